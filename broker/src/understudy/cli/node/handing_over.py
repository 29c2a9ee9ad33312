"""``understudy failover``, ``failback`` and ``activate``: move the active role between the nodes of a pair.

The first two use the management API of the active node, the last one that of a backup whose primary was stopped. Not
here: ``stop --failover``, which needs no backup.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.node.status import (
    STOP_POLL_MS,
    Place,
    instance_option,
    server_option,
    token_file_option,
    url_option,
)
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, CallTimedOut, Unreachable

_timeout = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1, 3600), default=60, show_default=True, help="Seconds."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
#: States of a node that has handed over and goes on.
_PASSIVE: Final = ("passive", "isolated")


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@click.option("--force", is_flag=True, help="Also if no backup is known to the node.")
@_timeout
@_json
def failover(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    force: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Stop the active node and let its peer take over, whatever failover-on-shutdown says.

    Returns when the node has ended. Exit codes: 0 it has; 1 it is not active, or no peer is known to it (see --force);
    3 not reachable; 4 it still runs after --timeout.

    \b
    Example: understudy failover --instance /srv/broker
    """
    place = Place.of(instance, url, token_file, server)
    node = _active(place)
    if node["peer"] is None and not force:
        raise BrokerError("no peer is known to the node: nothing would take over", hint="see --force")
    place.ask("/api/v1/invoke", body={"resource": "broker", "operation": "forceFailover"})
    _report(node, _wait(place, timeout_s), as_json)


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@_timeout
@_json
def failback(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Let the active backup yield to its primary, which has to be running. Works also without allow-failback.

    Returns when the backup is passive, or has ended if restart-backup is false. Exit codes: 0 it is; 1 it is not an
    active backup, or its primary does not wait; 3 not reachable; 4 it is still active after --timeout.

    \b
    Example: understudy failback --instance /srv/broker
    """
    place = Place.of(instance, url, token_file, server)
    node = _active(place)
    place.ask("/api/v1/invoke", body={"resource": "broker", "operation": "failback"})
    _report(node, _wait(place, timeout_s), as_json)


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@_timeout
@_json
def activate(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Let the backup of a shared store activate although its primary was stopped cleanly.

    After a clean stop of a primary without failover-on-shutdown its backup stays passive. This is for a primary that
    does not come back soon: the lock of the store shows that no other node is active, and no message is lost. When the
    primary returns, the backup yields to it as after any take-over.

    Returns when the backup is active. Exit codes: 0 it is; 1 it is no passive backup, or activates by itself; 3 not
    reachable; 4 it is not active after --timeout.

    \b
    Example: understudy activate --instance /srv/broker
    """
    place = Place.only(instance, url, token_file, server)
    node: dict[str, Any] = place.ask("/api/v1/node")
    place.ask("/api/v1/node/activate", body={})
    state = _wait(place, timeout_s, ("active",))
    if state != "active":
        raise BrokerError(f"{node['name']} has ended before it was active")
    _report(node, state, as_json)


def _active(place: Place) -> dict[str, Any]:
    node: dict[str, Any] = place.ask("/api/v1/node")
    if node["ha"]["state"] != "active":
        raise BrokerError(f"the node is {node['ha']['state']}, not active")
    return node


def _wait(place: Place, timeout_s: float, states: Sequence[str] = _PASSIVE) -> str:
    """Wait until the node is in one of the states or has ended. Returns its state."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            state = str(place.ask("/api/v1/node")["ha"]["state"])
        except Unreachable:
            return "stopped"
        if state in states:
            return state
        if time.monotonic() > deadline:
            raise CallTimedOut(f"{place.url}: the node is still {state}")
        time.sleep(STOP_POLL_MS / 1000)


def _report(node: dict[str, Any], state: str, as_json: bool) -> None:
    if as_json:
        echo(json.dumps({"name": node["name"], "node_id": node["node_id"], "state": state}))
    else:
        echo(state)
