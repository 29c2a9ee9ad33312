"""``understudy produce``: send messages, each confirmed, and record them in a ledger."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.messages.load import (
    LEDGER_NUMBER,
    LEDGER_PRODUCER,
    Durations,
    LedgerFile,
    Meter,
    confirmer,
    connected,
    connection_options,
    default_identity,
    now_ms,
    print_summary,
    read_password,
    run,
    show_progress,
    until_interrupted,
)
from understudy.client import aio
from understudy.client.core.url.parsing import parse_url
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.ledger import digest_of
from understudy.limits import FRAME_BYTES_MAX

#: Messages without any option that ends the run: a run without an end at full speed fills a disk.
_COUNT: Final = 1_000
#: Longest wait for open confirmations after an interrupt.
_LAST_CONFIRMATIONS_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """Options of a run: which messages to send, and when to end."""

    address: str
    routing: str
    count: int | None
    until: Path | None
    """After ``count`` messages the run continues until this file exists."""
    rate: float | None
    producer: str
    start_number: int
    window: int
    blocking: bool
    durable: bool
    size_bytes: int
    file: Path | None
    repeat: bool

    def bodies(self) -> Iterator[bytes]:
        """Bodies of the messages, one after the other, endless unless a file is sent once."""
        if self.file is None:
            pattern = bytes(range(32, 127))
            body = (pattern * (self.size_bytes // len(pattern) + 1))[: self.size_bytes]
            return itertools.repeat(body)
        return self._lines(self.file)

    def _lines(self, file: Path) -> Iterator[bytes]:
        while True:
            some = False
            with file.open("rb") as lines:
                for line in lines:
                    some = True
                    yield line.rstrip(b"\r\n")
            if not self.repeat:
                return
            if not some:
                raise ConfigError("is empty, so it cannot be repeated", file=str(file))


class Production:
    """One run: sends, counts and writes rows."""

    def __init__(self, load: Load, ledger: LedgerFile, meter: Meter) -> None:
        self._load = load
        self._ledger = ledger
        self._rows = ledger.rows
        self._meter = meter
        self.sent = 0
        self.latency = Durations()
        """Times from a send to its confirmation."""
        self.error: BaseException | None = None

    async def send_all(self, connection: aio.Connection) -> None:
        """Send until the count, the file or an interrupt ends it; every send is waited for.

        Raises:
            BrokerError: a send failed; earlier confirmations hold.
        """
        load = self._load
        self._connection = connection
        # The session is not closed here: closing the connection closes it, without waiting for a failover.
        session = await connection.session()
        producer = await session.producer(load.address, routing=load.routing, window=load.window)
        painter = asyncio.create_task(show_progress(self._meter, connection))
        try:
            if await until_interrupted(self._send(producer)):
                await self._finish(producer, _LAST_CONFIRMATIONS_S)
            else:
                await self._finish(producer, None)
        finally:
            painter.cancel()
        if self.error is not None:
            raise self.error

    async def _send(self, producer: aio.Producer) -> None:
        load = self._load
        started_s = time.monotonic()
        limit = 1 if load.blocking else load.window
        numbers = itertools.count(load.start_number)
        for body in load.bodies():
            if self.error is not None or self._complete():
                return
            if load.rate is not None:
                ahead_s = self.sent / load.rate - (time.monotonic() - started_s)
                if ahead_s > 0:
                    self._ledger.flush()
                    await asyncio.sleep(ahead_s)
            # A wait lets the loop send: rows have to be in the file before.
            if producer.in_flight >= limit:
                self._ledger.flush()
                await (self._wait_idle(producer) if load.blocking else producer.wait_sendable())
            self._send_one(producer, next(numbers), body)

    def _complete(self) -> bool:
        """Whether enough was sent, and the file that ends the load exists if there is to be one."""
        load = self._load
        if load.until is None:
            return load.count is not None and self.sent >= load.count
        return self.sent >= (load.count or 0) and load.until.exists()

    async def _wait_idle(self, producer: aio.Producer) -> None:
        while producer.in_flight and self._last is not None:
            await asyncio.wait([self._last])

    def _send_one(self, producer: aio.Producer, number: int, body: bytes) -> None:
        load = self._load
        if self._rows is not None:
            if body is not self._body:
                self._body, self._digest = body, digest_of(body)
            self._rows.sent(load.producer, number, load.address, now_ms(), durable=load.durable, digest=self._digest)
        self.sent += 1
        began_s = time.monotonic()
        self._last = producer.send_nowait(
            body, properties={LEDGER_PRODUCER: load.producer, LEDGER_NUMBER: number}, durable=load.durable
        )
        self._last.add_done_callback(partial(self._done, number, began_s))

    _connection: aio.Connection
    _last: asyncio.Future[None] | None = None
    #: The body whose digest is known: most runs send one body again and again.
    _body: bytes | None = None
    _digest = 0

    def _done(self, number: int, began_s: float, future: asyncio.Future[None]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self.error = self.error or error
            return
        self.latency.add((time.monotonic() - began_s) * 1000)
        self._meter.add()
        if self._rows is not None:
            load = self._load
            by = confirmer(self._connection)
            self._rows.confirmed(load.producer, number, load.address, now_ms(), durable=load.durable, by=by)

    async def _finish(self, producer: aio.Producer, timeout_s: float | None) -> None:
        """Wait for the open confirmations."""
        self._ledger.flush()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while producer.in_flight and (deadline_s is None or time.monotonic() < deadline_s):
            await asyncio.sleep(0.005)
        self._ledger.flush()


async def _produce(
    load: Load, url: str, user: str | None, password: str | None, ledger: LedgerFile, as_json: bool
) -> int:
    parsed = parse_url(url)
    if not load.durable:
        # Without this option no send would be answered, and "confirmed" would mean "written to a socket".
        parsed = replace(parsed, options=replace(parsed.options, block_on_non_durable_send=True))
    meter = Meter("confirmed", load.count if load.until is None else None, quiet=as_json)
    failovers = 0
    production = Production(load, ledger, meter)

    async def use(connection: aio.Connection) -> None:
        nonlocal failovers
        try:
            await production.send_all(connection)
        finally:
            failovers = connection.failovers

    ended_well = False
    try:
        with meter:
            await connected(parsed, user, password, use)
        ended_well = True
    finally:
        if production.sent or ended_well:
            summary: dict[str, Any] = {
                "producer": load.producer,
                "address": load.address,
                "sent": production.sent,
                "confirmed": meter.count,
                "seconds": round(meter.elapsed_s, 3),
                "rate": round(meter.rate, 1),
                "failovers": failovers,
                "longest_gap_ms": round(meter.longest_gap_ms, 1),
                **production.latency.summary("latency"),
                "error": str(production.error) if production.error is not None else None,
            }
            print_summary("produce", summary, as_json=as_json)
    return 0 if meter.count == production.sent and meter.count >= (load.count or 0) else 1


@click.command()
@connection_options
@click.option("--queue", help="Queue to send to.")
@click.option("--address", help="Address to send to, instead of --queue.")
@click.option(
    "--routing", type=click.Choice(["anycast", "multicast"]), default="anycast", show_default=True, help="Routing type."
)
@click.option(
    "--count",
    type=click.IntRange(min=0),
    help="Messages to send; default: 1000, or until interrupted with --until or --rate, or all lines of --file.",
)
@click.option(
    "--size",
    "size_bytes",
    type=click.IntRange(0, FRAME_BYTES_MAX // 2),
    default=1024,
    show_default=True,
    help="Bytes of each body.",
)
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Send the lines of this file instead."
)
@click.option("--repeat-to", type=click.IntRange(min=1), help="Go through --file again and again, up to this many.")
@click.option(
    "--until",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Send at least --count, then until this file exists.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages per second; default: no limit.")
@click.option("--producer", help="Name in the ledger; default: made of host and process.")
@click.option("--start-number", type=click.IntRange(min=0), default=0, show_default=True, help="First ledger number.")
@click.option("--ledger", "ledger_file", type=click.Path(dir_okay=False, path_type=Path), help="Append rows here.")
@click.option(
    "--window", type=click.IntRange(1, 100_000), default=500, show_default=True, help="Confirmations in flight."
)
@click.option("--blocking", is_flag=True, help="Wait for each confirmation before the next send.")
@click.option("--non-durable", is_flag=True, help="Messages that need not survive the broker.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def produce(
    url: str,
    user: str | None,
    password_file: Path | None,
    queue: str | None,
    address: str | None,
    routing: str,
    count: int | None,
    size_bytes: int,
    file: Path | None,
    repeat_to: int | None,
    until: Path | None,
    rate: float | None,
    producer: str | None,
    start_number: int,
    ledger_file: Path | None,
    window: int,
    blocking: bool,
    non_durable: bool,
    as_json: bool,
) -> None:
    """Send messages and wait for the broker's confirmation of each.

    A failover in between is waited for and survived; put reconnectAttempts=-1 into the URL.

    \b
    Example: understudy produce --address orders --count 1000 --ledger sent.jsonl

    Exit codes: 0 all confirmed, 1 not all, 2 usage, 3 broker unreachable, 4 no failover in time.
    """
    if (queue is None) == (address is None):
        raise click.UsageError("give either --queue or --address")
    if repeat_to is not None and file is None:
        raise click.UsageError("--repeat-to needs --file")
    if count is None:
        count = repeat_to
    if count is None and until is None and file is None and rate is None:
        count = _COUNT
    load = Load(
        address=queue or address or "",
        routing=routing,
        count=count,
        until=until,
        rate=rate,
        producer=producer or default_identity("producer"),
        start_number=start_number,
        window=window,
        blocking=blocking,
        durable=not non_durable,
        size_bytes=size_bytes,
        file=file,
        repeat=repeat_to is not None,
    )
    password = read_password(password_file)
    with LedgerFile(ledger_file) as ledger:
        code = run(lambda: _produce(load, url, user, password, ledger, as_json))
    if code:
        raise SystemExit(code)
