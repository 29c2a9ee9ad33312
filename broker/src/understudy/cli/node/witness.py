"""``understudy witness``: the service that keeps locks and activation sequences for replicated pairs."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import uvloop

from understudy.cli.tables import Column, Table, View, view_options
from understudy.cli.tables import Kind as Cell
from understudy.cli.terminal import Commands, echo
from understudy.config.reading.locking import parse_address, parse_members
from understudy.errors import BrokerError, CallTimedOut, ConfigError
from understudy.ha.locks.sequence_verdict import SEQUENCE_MAX, newest
from understudy.ha.witness.frames import TOKEN_BYTES, Kind, Request
from understudy.limits import LEASE_MS_MAX, LEASE_MS_MIN
from understudy.runtime.base.environment import LoopTimers, SystemEntropy
from understudy.runtime.base.logs import configure_logs
from understudy.runtime.base.turn import Turn
from understudy.runtime.locks.providers import WitnessGroupOptions, make_group, read_secret
from understudy.runtime.locks.witness_dialer import LoopWitnessDialer
from understudy.runtime.locks.witness_groups import form, replace, text_of
from understudy.runtime.locks.witness_process import serve_witness
from understudy.runtime.locks.witness_requests import WitnessRequests

Places = tuple[tuple[str, int], ...]


_SECRET = click.option(
    "--secret-file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the shared secret, not readable by other users.",
)


LOCKS: Final = Table(
    "locks",
    (
        Column("name", Cell.NAME, "Name of the lock.", title="lock"),
        Column("holder", Cell.NAME, "Node that has it, or had it last."),
        Column("held", Cell.NAME, "Whether its lease is not over."),
        Column("left_ms", Cell.DURATION, "Rest of the lease.", title="left"),
    ),
)

NUMBERS: Final = Table(
    "sequences",
    (
        Column("name", Cell.NAME, "Node id of the pair.", title="sequence of"),
        Column("sequence", Cell.NUMBER, "Its newest activation sequence."),
        Column("state", Cell.NAME, "Whether it is committed, or claimed only."),
    ),
)


@click.group(cls=Commands)
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

    \b
    Example: understudy witness run --directory /srv/witness --listen 0.0.0.0:7070 --secret-file secret

    Exit codes: 0 stopped, 1 failed (the last log line says why), 2 the configuration cannot be used.
    """
    places = [_place(each) for each in addresses]
    secret = read_secret(str(secret_file))
    scrape = _place(metrics) if metrics else None
    configure_logs(log_level, log_file)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", file=str(directory)) from error
    sys.exit(uvloop.run(serve_witness(str(directory.resolve()), places, secret, lease_max_ms, scrape)))


@witness.command()
@click.argument("address")
@_SECRET
@click.option("--timeout", default=5.0, show_default=True, help="Seconds.")
@view_options(LOCKS, NUMBERS, watch=True)
def status(address: str, secret_file: Path, timeout: float, view: View) -> None:
    """Print locks, numbers and identity of the witness at ADDRESS (host:port).

    \b
    Example: understudy witness status 10.0.0.9:61700 --secret-file witness.secret --watch

    Exit codes: 0 printed, 1 refused, 2 usage, 3 unreachable, 4 no answer in time.
    """
    place = _place(address)

    def show() -> None:
        answer = _run(secret_file, timeout, lambda requests: requests.ask(place, Request(Kind.STATUS, 1)))
        found = json.loads(answer.text)
        locks = [{"name": name, **lock} for name, lock in found["locks"].items()]
        numbers = [
            {"name": name, "sequence": newest(value), "state": "claimed, not committed" if value < 0 else "committed"}
            for name, value in found["numbers"].items()
        ]
        if view.as_json and view.table is None:
            echo(json.dumps(found))
            return
        if view.table is None:
            view.figures(_figures(found))
        for table, rows in ((LOCKS, locks), (NUMBERS, numbers)):
            if view.table == table.name or (view.table is None and rows):
                view.rows(table, rows)

    view.repeat(show)


def _figures(found: dict[str, Any]) -> dict[str, str]:
    figures = {"identity": str(found["identity"])}
    if found.get("configuration"):
        figures["group"] = f"{found['group']}  configuration {found['configuration']}"
    figures["uptime"] = f"{found['uptime_ms'] // 1000} s"
    if found["grants_in_ms"]:
        figures["grants in"] = f"{found['grants_in_ms']} ms"
    return figures


@witness.command(name="set")
@click.argument("address")
@click.argument("node_id")
@click.argument("sequence", type=click.IntRange(0, SEQUENCE_MAX))
@_SECRET
@click.option("--timeout", default=5.0, show_default=True, help="Seconds.")
def set_sequence(address: str, node_id: str, sequence: int, secret_file: Path, timeout: float) -> None:
    """Set the activation sequence of NODE_ID at the witness at ADDRESS, or at all members of a group, with commas.

    For a node that refuses to activate because the data with a newer sequence is lost for good: messages that only that
    data has are lost. Stop all nodes of the pair first.

    \b
    Example: understudy witness set w1:7070 6bf474c7-7b6b-19cf-9325-8c3e598acf46 7 --secret-file secret
    """
    _check_node_id(node_id)
    if "," in address:
        secret = read_secret(str(secret_file))
        asyncio.run(_set_by_majority(_members(address), secret, node_id, sequence, timeout))
    else:
        place, request = _place(address), Request(Kind.SET, 1, node_id, first=sequence)
        _run(secret_file, timeout, lambda requests: requests.ask(place, request))
    echo(f"activation sequence of {node_id}: {sequence}")


def _check_node_id(text: str) -> None:
    """Raise UsageError if a text is no node id, perhaps with the suffix of its position: a witness keeps a number for
    every name.
    """
    node_id = text.partition(".")[0]
    try:
        known = str(uuid.UUID(node_id)) == node_id
    except ValueError:
        known = False
    if not known:
        raise click.UsageError(f"{text!r} is no node id: `understudy status` and `understudy witness status` print it")


@witness.command(name="form")
@click.argument("members")
@_SECRET
@click.option("--timeout", default=5.0, show_default=True, help="Seconds for each request.")
def form_group(members: str, secret_file: Path, timeout: float) -> None:
    """Make one group of the witnesses MEMBERS (host:port,host:port,host:port), of which a majority decides.

    Each of them runs with an empty directory and the same secret. The command can be repeated after an error.

    \b
    Example: understudy witness form w1:7070,w2:7070,w3:7070 --secret-file secret
    """
    places = _members(members)
    found = _run(secret_file, timeout, lambda requests: form(requests.ask, places, secrets.token_bytes(TOKEN_BYTES)))
    echo(f"group {found.hex()} of {', '.join(map(text_of, places))}")


@witness.command(name="replace")
@click.argument("members")
@click.argument("new")
@_SECRET
@click.option("--timeout", default=5.0, show_default=True, help="Seconds for each request.")
def replace_member(members: str, new: str, secret_file: Path, timeout: float) -> None:
    """Let the witness NEW (host:port) take the place of a member of the group; MEMBERS are all members with it.

    NEW runs with an empty directory; the member before it must not run any more. All other members must answer. Nodes
    are served meanwhile. The command can be repeated after an error.

    \b
    Example: understudy witness replace w1:7070,w2:7070,w3:7070 w4:7070 --secret-file secret
    """
    places, place = _members(members), _place(new)
    found = _run(secret_file, timeout, lambda requests: replace(requests.ask, places, place))
    echo(f"{text_of(place)} has joined the group; configuration {found}")


_R = TypeVar("_R")


def _run(secret_file: Path, timeout_s: float, work: Callable[[WitnessRequests], Awaitable[_R]]) -> _R:
    """The result of asynchronous work with requests to witnesses."""
    secret = read_secret(str(secret_file))

    async def carry_out() -> _R:
        loop = asyncio.get_running_loop()
        dialer = LoopWitnessDialer(loop, Turn(loop, LoopTimers(loop)))
        name = f"command of process {os.getpid()}"
        return await work(WitnessRequests(dialer, SystemEntropy(), secret, name, timeout_s))

    return asyncio.run(carry_out())


async def _set_by_majority(places: Places, secret: bytes, node_id: str, sequence: int, timeout_s: float) -> None:
    """Set a number of a group of witnesses."""
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop)
    turn = Turn(loop, timers)
    group = make_group(
        WitnessGroupOptions(places, secret, f"command of process {os.getpid()}"), LoopWitnessDialer(loop, turn), turn
    )
    done: asyncio.Future[BrokerError | None] = loop.create_future()

    def give(error: BrokerError | None) -> None:
        if not done.done():
            done.set_result(error)

    class Available:
        """Listener that ends the wait once the manager is available. Implements ``ManagerListener``."""

        def available(self) -> None:
            group.number(node_id).set(sequence, give)

        def unavailable(self, error: BrokerError) -> None:
            give(error)

    group.start(Available())
    try:
        async with asyncio.timeout(timeout_s):
            error = await done
    except TimeoutError as expired:
        raise CallTimedOut(f"{group.name}: no answer of a majority within {timeout_s} s") from expired
    finally:
        group.stop()
    if error is not None:
        raise error


@witness.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def secret(file: Path) -> None:
    """Write a new random secret to FILE with mode 0600. An existing file is left alone (exit code 2).

    \b
    Example: understudy witness secret secret
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(file)) from error
    with os.fdopen(descriptor, "w") as output:
        output.write(secrets.token_hex(32) + "\n")


def _members(text: str) -> Places:
    try:
        return parse_members(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _place(text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
