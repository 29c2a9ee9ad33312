"""``understudy witness``: the service that keeps locks and activation sequences for replicated pairs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
from pathlib import Path

import click
import uvloop

from understudy.cli.terminal import echo
from understudy.config.locking import parse_address
from understudy.errors import BrokerError, CallTimedOut, ConfigError, LockManagerUnavailable
from understudy.ha.sequence_verdict import SEQUENCE_MAX, newest
from understudy.ha.witness_client import WitnessClientOptions
from understudy.ha.witness_frames import Answer, Kind, Request
from understudy.ha.witness_link import WitnessLink, WitnessLinkOwner
from understudy.limits import LEASE_MS_MAX, LEASE_MS_MIN
from understudy.runtime.environment import LoopTimers, SystemEntropy
from understudy.runtime.file_modes import check_directories
from understudy.runtime.lock_providers import read_secret
from understudy.runtime.logs import configure_logs
from understudy.runtime.turn import Turn
from understudy.runtime.witness_dialer import LoopWitnessDialer
from understudy.runtime.witness_process import serve_witness

log = logging.getLogger(__name__)

_SECRET = click.option(
    "--secret-file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the shared secret, not readable by other users.",
)


@click.group()
def witness() -> None:
    """Keep the locks and activation sequences of replicated pairs, on a third host."""


@witness.command()
@click.option(
    "--directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the state; created with mode 0700 if it is missing.",
)
@click.option("--listen", "addresses", required=True, multiple=True, help="host:port; may be given several times.")
@_SECRET
@click.option(
    "--lease-max-ms",
    default=10_000,
    show_default=True,
    type=click.IntRange(LEASE_MS_MIN, LEASE_MS_MAX),
    help="Longest lease of a lock; for this time after a start no lock is granted, except to its recorded holder.",
)
@click.option("--metrics", help="host:port of Prometheus metrics over HTTP; default: none.")
@click.option("--log-file", type=click.Path(dir_okay=False), help="Append JSON log lines here instead of stderr.")
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
def run(
    directory: Path,
    addresses: tuple[str, ...],
    secret_file: Path,
    lease_max_ms: int,
    metrics: str | None,
    log_file: str | None,
    log_level: str,
) -> None:
    """Run the witness in the foreground. SIGTERM and SIGINT stop it; holders keep their locks over a restart.

    Exit codes: 0 stopped, 1 failed (the last log line says why), 2 the configuration cannot be used.
    """
    places = [_place(each) for each in addresses]
    secret = read_secret(str(secret_file))
    scrape = _place(metrics) if metrics else None
    configure_logs(log_level, log_file)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for complaint in check_directories([str(directory)]):
        log.warning("file modes", extra={"detail": complaint})
    sys.exit(uvloop.run(serve_witness(str(directory.resolve()), places, secret, lease_max_ms, scrape)))


@witness.command()
@click.argument("address")
@_SECRET
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--timeout", default=5.0, show_default=True, help="Seconds.")
def status(address: str, secret_file: Path, as_json: bool, timeout: float) -> None:
    """Print locks, numbers and identity of the witness at ADDRESS (host:port).

    Exit codes: 0 printed, 1 refused, 2 usage, 3 unreachable, 4 no answer in time.
    """
    answer = asyncio.run(_ask(*_place(address), read_secret(str(secret_file)), Request(Kind.STATUS, 1), timeout))
    found = json.loads(answer.text)
    if as_json:
        echo(json.dumps(found))
        return
    echo(f"identity      {found['identity']}")
    echo(f"uptime        {found['uptime_ms'] // 1000} s")
    if found["grants_in_ms"]:
        echo(f"grants in     {found['grants_in_ms']} ms")
    for name, lock in found["locks"].items():
        left = "lease over" if not lock["held"] else f"{lock['left_ms']} ms left"
        echo(f"lock          {name}  {lock['holder']}  {left}")
    for name, value in found["numbers"].items():
        claimed = "  claimed, not committed" if value < 0 else ""
        echo(f"sequence      {name}  {newest(value)}{claimed}")


@witness.command(name="set")
@click.argument("address")
@click.argument("node_id")
@click.argument("sequence", type=click.IntRange(0, SEQUENCE_MAX))
@_SECRET
@click.option("--timeout", default=5.0, show_default=True, help="Seconds.")
def set_sequence(address: str, node_id: str, sequence: int, secret_file: Path, timeout: float) -> None:
    """Set the activation sequence of NODE_ID at the witness at ADDRESS.

    For a node that refuses to activate because the data with a newer sequence is lost for good: messages that only that
    data has are lost. Stop all nodes of the pair first.
    """
    request = Request(Kind.SET, 1, node_id, first=sequence)
    asyncio.run(_ask(*_place(address), read_secret(str(secret_file)), request, timeout))
    echo(f"activation sequence of {node_id}: {sequence}")


class _Asker(WitnessLinkOwner):
    """Sends one request."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.answer: asyncio.Future[Answer | BrokerError] = asyncio.get_running_loop().create_future()

    def link_welcomed(self, link: WitnessLink) -> None:
        """Send the request."""
        link.send(self._request)

    def link_answered(self, link: WitnessLink, answer: Answer) -> None:
        """Keep the answer."""
        failed = answer.kind is Kind.ERROR
        self.answer.set_result(LockManagerUnavailable(f"witness {link.address}: {answer.text}") if failed else answer)

    def link_lost(self, link: WitnessLink, reason: str) -> None:
        """Keep the error."""
        if not self.answer.done():
            self.answer.set_result(LockManagerUnavailable(f"witness {reason}"))


async def _ask(host: str, port: int, secret: bytes, request: Request, timeout_s: float) -> Answer:
    loop = asyncio.get_running_loop()
    asker = _Asker(request)
    options = WitnessClientOptions([(host, port)], secret, f"command of process {os.getpid()}")
    link = WitnessLink(asker, options, None, SystemEntropy().token, f"{host}:{port}")
    LoopWitnessDialer(loop, Turn(loop, LoopTimers(loop))).dial(host, port, link)
    try:
        found = await asyncio.wait_for(asker.answer, timeout_s)
    except TimeoutError as error:
        raise CallTimedOut(f"witness {host}:{port}: no answer within {timeout_s} s") from error
    finally:
        link.close()
    if isinstance(found, BrokerError):
        raise found
    return found


@witness.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def secret(file: Path) -> None:
    """Write a new random secret to FILE with mode 0600. An existing file is left alone (exit code 2)."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(file)) from error
    with os.fdopen(descriptor, "w") as output:
        output.write(secrets.token_hex(32) + "\n")


def _place(text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
