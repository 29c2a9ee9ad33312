"""``understudy start``: start one of several servers of a running process again, after it was stopped alone."""

from __future__ import annotations

import time
from pathlib import Path

import click

from understudy.cli.node.status import STOP_POLL_MS, Place, instance_option, token_file_option
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, CallTimedOut, ConfigError

#: States of a server that has not started yet.
_STARTING = "starting"


@click.command()
@instance_option
@click.option("--server", required=True, help="The name of the server.")
@token_file_option
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1, 3600), default=60, show_default=True, help="Seconds."
)
def start(instance: Path | None, server: str, token_file: Path | None, timeout_s: float) -> None:
    """Start a server of a running process that was stopped or has failed, and wait until it serves or follows.

    Another server of the process is asked over HTTP. Exit codes: 0 it is active or passive, which is printed; 1 it
    was refused, or the server has ended; 3 no server of the process answers; 4 it still starts after --timeout.

    \b
    Example: understudy start --instance /srv/broker --server west
    """
    if instance is None:
        raise ConfigError("--instance names the process")
    deadline = time.monotonic() + timeout_s
    place = Place.reachable(instance, token_file)
    place.ask("/api/v1/servers/start", body={"name": server})
    while True:
        servers = place.ask("/api/v1/servers")["servers"]
        state = next(each["state"] for each in servers if each["name"] == server)
        if state == "stopped":
            raise BrokerError(f"server {server!r} has ended: see the log")
        if state != _STARTING:
            break
        if time.monotonic() > deadline:
            raise CallTimedOut(f"server {server!r} is still {state}")
        time.sleep(STOP_POLL_MS / 1000)
    echo(state)
