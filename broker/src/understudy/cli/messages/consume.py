"""``understudy consume``: receive and acknowledge messages, and record them in a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.messages.load import (
    Durations,
    LedgerFile,
    Meter,
    body_digest,
    confirmer,
    connected,
    connection_options,
    default_identity,
    identity_of,
    now_ms,
    origin_of,
    print_summary,
    read_password,
    run,
    show_progress,
    until_interrupted,
)
from understudy.client import aio
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.url.parsing import parse_url
from understudy.dataclass import dataclass
from understudy.errors import CallTimedOut, CommitOutcomeUnknown, TransactionRolledBack
from understudy.ledger import LedgerWriter, ReceivedCopy

#: Messages without any option that ends the run. As many as ``produce`` sends without one.
_COUNT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Intake:
    """Options of a run: which messages to receive, and when to end."""

    queue: str
    filter: str | None
    count: int | None
    idle_timeout_s: float | None
    until: Path | None
    """The idle timeout ends the run only once this file exists."""
    ack: str
    batch: int
    consumer: str

    @property
    def mode(self) -> AcknowledgeMode:
        """AUTO would acknowledge without an answer; a ledger wants the answer."""
        return AcknowledgeMode.TRANSACTED if self.ack == "transacted" else AcknowledgeMode.CLIENT


class Consumption:
    """One run: receives in batches, acknowledges each, counts and writes rows.

    ``auto`` acknowledges whatever has arrived, as soon as the answer to the acknowledgement before
    it is there; ``client`` and ``transacted`` wait for full batches, as long as messages come.
    """

    def __init__(self, intake: Intake, ledger: LedgerFile, meter: Meter) -> None:
        self._intake = intake
        self._ledger = ledger
        self._rows = ledger.rows
        self._meter = meter
        self.delivered = 0
        self.redelivered = 0
        self.age = Durations()
        """Times from the timestamp of the client that sent a message to its delivery, by the clocks of both hosts."""
        self.rolled_back = 0
        """Batches undone by a failover; their messages come again."""
        self.unknown = 0
        """Batches whose acknowledgement or commit was cut off before its answer."""
        self._settlement_undone = False
        """The broker has rolled the last batch back for certain."""

    async def receive_all(self, connection: aio.Connection) -> None:
        """Receive until the count, silence or an interrupt ends it."""
        intake = self._intake
        # The session is not closed here: closing the connection does it, and does not wait for a failover.
        session = await connection.session(intake.mode)
        painter = asyncio.create_task(show_progress(self._meter, connection))
        try:
            self._note_opened()
            consumer = await session.consumer(intake.queue, filter=intake.filter)
            interrupted = await until_interrupted(self._receive(connection, session, consumer))
            if self._rows is not None and not (interrupted and connection.failing_over):
                await self._close(consumer)
                if not interrupted:
                    await self._note_drained(session)
        finally:
            painter.cancel()

    def _note_opened(self) -> None:
        """Write that the consumer is about to be opened; in the file before the request leaves."""
        if self._rows is not None:
            self._rows.opened(now_ms(), consumer=self._intake.consumer, queue=self._intake.queue)
            self._ledger.flush()

    async def _close(self, consumer: aio.Consumer) -> None:
        """Close the consumer, and write that it is closed."""
        await consumer.close()
        if self._rows is not None:
            self._rows.closed(now_ms(), consumer=self._intake.consumer, queue=self._intake.queue)
            self._ledger.flush()

    async def _note_drained(self, session: aio.Session) -> None:
        """Write that the queue is empty, if the broker counts no message in it, delivered ones included."""
        if self._rows is None:
            return
        asked_ms = now_ms()
        answer = await session.query_queue(self._intake.queue)
        if answer.exists and answer.message_count == 0:
            name = self._intake.queue
            self._rows.drained(answer.address or name, asked_ms, consumer=self._intake.consumer, queue=name)
            self._ledger.flush()

    async def _receive(self, connection: aio.Connection, session: aio.Session, consumer: aio.Consumer) -> None:
        while True:
            wanted = self._wanted()
            if wanted == 0:
                return
            # looked up before the wait: the whole of it must lie after the file was made
            may_end = self._intake.until is None or self._intake.until.exists()
            first = await consumer.receive(self._intake.idle_timeout_s)
            if first is None:
                if may_end:
                    return
                continue
            batch: list[ReceivedMessage] = [first]
            self._delivered(first)
            await self._fill(consumer, batch, wanted)
            self._write(batch, LedgerWriter.acknowledging)
            self._ledger.flush()  # in the file before the acknowledgement leaves
            if await self._settle(session, batch[-1]):
                self._meter.add(len(batch))
                self._write(batch, partial(LedgerWriter.acknowledged, by=confirmer(connection)))
                self._ledger.flush()
            elif self._settlement_undone:
                self._write(batch, LedgerWriter.refused)

    def _wanted(self) -> int:
        """Size of the next batch."""
        count, batch = self._intake.count, self._intake.batch
        return batch if count is None else min(batch, count - self._meter.count)

    async def _fill(self, consumer: aio.Consumer, batch: list[ReceivedMessage], wanted: int) -> None:
        while len(batch) < wanted:
            received = consumer.take()
            if received is None:
                if self._intake.ack == "auto":
                    return
                received = await consumer.receive_nowait()
                if received is None:
                    return
            batch.append(received)
            self._delivered(received)

    async def _settle(self, session: aio.Session, last: ReceivedMessage) -> bool:
        """Acknowledge the batch; whether the broker confirmed it."""
        self._settlement_undone = False
        try:
            if self._intake.mode is AcknowledgeMode.CLIENT:
                confirmed = await session.acknowledge(last)
                self.unknown += not confirmed
                return confirmed
            await session.commit()
        except TransactionRolledBack:
            self.rolled_back += 1
            self._settlement_undone = True
            return False
        except (CommitOutcomeUnknown, CallTimedOut):
            # A failover may be longer than callFailoverTimeout: the command continues when it ends.
            self.unknown += 1
            return False
        return True

    def _delivered(self, received: ReceivedMessage) -> None:
        self.delivered += 1
        self.redelivered += received.redelivered
        if received.message.timestamp:
            self.age.add(now_ms() - received.message.timestamp)
        identity = identity_of(received)
        if self._rows is not None and identity is not None:
            producer, number = identity
            self._rows.delivered(
                producer,
                number,
                received.message.address or "",
                now_ms(),
                ReceivedCopy(
                    self._intake.consumer,
                    self._intake.queue,
                    received.stored_id,
                    body_digest(received),
                    origin_of(received),
                ),
                delivery_count=received.delivery_count,
            )

    def _write(self, batch: list[ReceivedMessage], write: Callable[..., None]) -> None:
        """A row of one kind for each message of the batch."""
        if self._rows is None:
            return
        for received in batch:
            identity = identity_of(received)
            if identity is not None:
                producer, number = identity
                address = received.message.address or ""
                copy = ReceivedCopy(self._intake.consumer, self._intake.queue)
                write(self._rows, producer, number, address, now_ms(), copy)


async def _consume(
    intake: Intake, url: str, user: str | None, password: str | None, ledger: LedgerFile, as_json: bool
) -> int:
    meter = Meter("acknowledged", intake.count, quiet=as_json)
    consumption = Consumption(intake, ledger, meter)
    failovers = 0

    async def use(connection: aio.Connection) -> None:
        nonlocal failovers
        try:
            await consumption.receive_all(connection)
        finally:
            failovers = connection.failovers

    connected_once = False
    try:
        with meter:
            await connected(parse_url(url), user, password, use)
        connected_once = True
    finally:
        if connected_once or consumption.delivered:
            summary: dict[str, Any] = {
                "consumer": intake.consumer,
                "queue": intake.queue,
                "delivered": consumption.delivered,
                "acknowledged": meter.count,
                "redelivered": consumption.redelivered,
                "rolled_back_batches": consumption.rolled_back,
                "unknown_batches": consumption.unknown,
                "seconds": round(meter.elapsed_s, 3),
                "rate": round(meter.rate, 1),
                "failovers": failovers,
                "longest_gap_ms": round(meter.longest_gap_ms, 1),
                **consumption.age.summary("age"),
            }
            print_summary("consume", summary, as_json=as_json)
    return 0 if meter.count >= (intake.count or 0) else 1


@click.command()
@connection_options
@click.option("--queue", required=True, help="Queue to receive from.")
@click.option("--filter", "filter_text", help="Selector; only matching messages.")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    help="End after this many acknowledged messages; default: 1000, or no limit with --idle-timeout or --follow.",
)
@click.option("--follow", is_flag=True, help="Receive until interrupted.")
@click.option(
    "--idle-timeout",
    "idle_timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    help="End when nothing came for this many seconds.",
)
@click.option(
    "--until", type=click.Path(dir_okay=False, path_type=Path), help="Count --idle-timeout only once this file exists."
)
@click.option("--ledger", "ledger_file", type=click.Path(dir_okay=False, path_type=Path), help="Append rows here.")
@click.option(
    "--ack",
    type=click.Choice(["auto", "client", "transacted"]),
    default="auto",
    show_default=True,
    help="auto: whatever has arrived at once; client: by batches; transacted: commit by batches.",
)
@click.option("--batch", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Messages of a batch.")
@click.option("--consumer", help="Name in the ledger; default: made of host and process.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def consume(
    url: str,
    user: str | None,
    password_file: Path | None,
    queue: str,
    filter_text: str | None,
    count: int | None,
    follow: bool,
    idle_timeout_s: float | None,
    until: Path | None,
    ledger_file: Path | None,
    ack: str,
    batch: int,
    consumer: str | None,
    as_json: bool,
) -> None:
    """Receive messages; every acknowledgement is confirmed by the broker.

    A failover in between is survived; put reconnectAttempts=-1 into the URL.
    When --count or --idle-timeout ends it and the broker counts no message in the queue, the ledger gets a row
    DRAINED. Without it ``ledger check`` counts messages without acknowledgement as unresolved, not as lost.

    \b
    Example: understudy consume --queue orders --count 1000 --ledger received.jsonl

    Exit codes: 0 done, 1 fewer than --count, 2 usage, 3 broker unreachable, 4 no failover in time.
    """
    if until is not None and idle_timeout_s is None:
        raise click.UsageError("--until needs --idle-timeout")
    if follow and (count is not None or idle_timeout_s is not None):
        raise click.UsageError("--follow receives until interrupted: give it without --count and --idle-timeout")
    if count is None and not follow and idle_timeout_s is None:
        count = _COUNT
    intake = Intake(
        queue=queue,
        filter=filter_text,
        count=count,
        idle_timeout_s=idle_timeout_s,
        until=until,
        ack=ack,
        batch=batch,
        consumer=consumer or default_identity("consumer"),
    )
    password = read_password(password_file)
    with LedgerFile(ledger_file) as ledger:
        code = run(lambda: _consume(intake, url, user, password, ledger, as_json))
    if code:
        raise SystemExit(code)
