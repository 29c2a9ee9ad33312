"""Simulated applications: producers and consumers that use the shipped client and keep a ledger.

They do what a careful application does. A send whose outcome stays unknown is not repeated under
its number; work after a lost connection goes on as a new producer or consumer, under a new name,
so that the ledger's order stays meaningful. Every body can be recomputed from its producer and
number and is compared on receipt; its digest is in the ledger.

Errors that they may meet and must handle are listed in ``TRYING_AGAIN_HELPS``; any other error is the
client's or the broker's fault and fails the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import Final, Protocol

from understudy.client import aio
from understudy.client.core.connection.listeners import FailureCode
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.client.host import Surroundings
from understudy.dataclass import dataclass
from understudy.errors import (
    AddressFull,
    BrokerError,
    CommitOutcomeUnknown,
    ConnectionFailed,
    ObjectClosed,
    OutcomeUnknown,
    TransactionRolledBack,
)
from understudy.ledger import UNKNOWN, Confirmer, Kind, Row, digest_of
from understudy.message import GROUP_ID
from understudy.properties import PropertyValue
from understudy.testing.runs.amqp_client import AmqpDelivery
from understudy.testing.runs.checkers import Violation

PRODUCER_PROPERTY: Final = "ledger_producer"
NUMBER_PROPERTY: Final = "ledger_number"

TRYING_AGAIN_HELPS: Final = (ConnectionFailed, OutcomeUnknown, ObjectClosed)
#: Pause in seconds before an application starts over after an error of its connection.
START_OVER_S: Final = 0.2
#: Longest wait for one message before a consumer looks whether it is to end. Seconds.
_RECEIVE_S: Final = 0.5


@dataclass(slots=True)
class LedgerBook:
    """The events of all clients of a run."""

    now_ms: Callable[[], int]
    rows: list[Row] = field(default_factory=list)
    sessions: dict[Row, int] = field(default_factory=dict)
    """Beginning of the session through which each DELIVERED row came."""
    violations: list[Violation] = field(default_factory=list)
    """Violations that only the client can detect."""

    def sent(self, producer: str, number: int, queue: str, body: bytes, transaction: str = "") -> None:
        """Record that a message is about to be sent."""
        self.rows.append(
            Row(Kind.SENT, producer, number, queue, self.now_ms(), digest=digest_of(body), transaction=transaction)
        )

    def confirmed(self, producer: str, number: int, queue: str, by: Confirmer, transaction: str = "") -> None:
        """Record that the broker confirmed a message."""
        self.rows.append(
            Row(Kind.CONFIRMED, producer, number, queue, self.now_ms(), transaction=transaction, **by._asdict())
        )

    def refused(self, producer: str, number: int, queue: str, transaction: str = "") -> None:
        """The broker refused the message for certain, alone or with its transaction."""
        self.rows.append(Row(Kind.REFUSED, producer, number, queue, self.now_ms(), transaction=transaction))

    def delivered(self, received: ReceivedMessage | AmqpDelivery, consumer: str, began_ms: int) -> Row:
        """Note a delivery through a session that began at ``began_ms``; the row names the message from then on."""
        producer, number = self._identity(received, consumer)
        row = Row(
            Kind.DELIVERED,
            producer,
            number,
            received.queue,
            self.now_ms(),
            consumer,
            received.queue,
            received.message_id,
            received.delivery_count,
            digest=digest_of(received.body),
        )
        self.rows.append(row)
        self.sessions[row] = began_ms
        return row

    def _identity(self, received: ReceivedMessage | AmqpDelivery, consumer: str) -> tuple[str, int]:
        properties = received.properties
        producer, number = properties.get(PRODUCER_PROPERTY), properties.get(NUMBER_PROPERTY)
        if not isinstance(producer, str) or not isinstance(number, int):
            self.violations.append(Violation("corrupt", f"{consumer} received a message without ledger properties"))
            return "?", 0
        if received.body != body_of(producer, number, len(received.body)):
            self.violations.append(Violation("corrupt", f"{consumer} received {producer} {number} with another body"))
        return producer, number

    def acknowledging(self, delivered: Row) -> None:
        """Called when the acknowledgement of the delivery is about to leave the client."""
        self._settling(Kind.ACKNOWLEDGING, delivered)

    def acknowledged(self, delivered: Row, by: Confirmer) -> None:
        """Called when the broker has confirmed it."""
        self._settling(Kind.ACKNOWLEDGED, delivered, by)

    def acknowledgement_refused(self, delivered: Row) -> None:
        """Note that the broker has certainly rolled back an acknowledgement."""
        self._settling(Kind.REFUSED, delivered)

    def _settling(self, kind: Kind, delivered: Row, by: Confirmer = UNKNOWN) -> None:
        self.rows.append(
            Row(
                kind,
                delivered.producer,
                delivered.number,
                delivered.address,
                self.now_ms(),
                delivered.consumer,
                delivered.queue,
                delivered.message_id,
                **by._asdict(),
            )
        )

    def opened(self, queue: str, consumer: str) -> None:
        """Called when the request for the consumer is about to leave the client."""
        self.rows.append(Row(Kind.OPENED, "", 0, queue, self.now_ms(), consumer, queue))

    def closed(self, queue: str, consumer: str) -> None:
        """Called when the broker has confirmed that the consumer is closed."""
        self.rows.append(Row(Kind.CLOSED, "", 0, queue, self.now_ms(), consumer, queue))

    def drained(self, queue: str, observer: str, at_ms: int, remaining: Sequence[ReceivedMessage]) -> None:
        """Called when the whole content of the queue was seen at ``at_ms``."""
        for received in remaining:
            producer, number = self._identity(received, observer)
            self.rows.append(
                Row(
                    Kind.REMAINING,
                    producer,
                    number,
                    queue,
                    at_ms,
                    observer,
                    queue,
                    received.message_id,
                    digest=digest_of(received.body),
                )
            )
        self.rows.append(Row(Kind.DRAINED, "", 0, queue, at_ms, observer, queue))


def confirmer(connection: aio.Connection) -> Confirmer:
    """The node that has just confirmed something over a connection."""
    return Confirmer(*connection.serving_node)


def body_of(producer: str, number: int, size_bytes: int) -> bytes:
    """The only body a message of this name and size may have."""
    unit = f"{producer}/{number};".encode()
    return (unit * (size_bytes // len(unit) + 1))[:size_bytes]


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """Parameters that all clients of a run share."""

    url: str
    wall_ms: Callable[[], int]
    entropy: Callable[[int], bytes]
    book: LedgerBook
    others: tuple[str, ...] = ()
    """URLs of other members to which a scale-down may move the XA branches of this client."""
    nodes: tuple[str, ...] = ()
    """URLs of single nodes, if those of one URL may serve different stores: a branch is decided where its store
    is."""

    async def connect(self, url: str = "") -> aio.Connection:
        """A connection to the active node at a URL, by default that of the client."""
        factory = aio.ConnectionFactory(url or self.url)
        factory.surroundings = Surroundings(self.wall_ms, self.entropy)
        return await factory.connect()


@dataclass(slots=True)
class ProducerJob:
    """One producer's work."""

    name: str
    queue: str
    count: int
    """Messages to be confirmed (or given up as unknown) before it ends."""
    size_bytes: int
    pause_s: float
    """Between two messages, or two transactions."""
    window: int = 1
    """Confirmations in flight; 1 waits for each."""
    batch: int = 0
    """Messages of a transaction; 0 sends without."""
    hasty: bool = False
    """Commits without having waited for the sends of the transaction."""
    rollback_every: int = 0
    """Number of transactions of which one is rolled back on purpose; 0: none is."""
    groups: int = 0
    """Number of message groups that the messages belong to in turn; 0: to none."""
    transactions: int = 0
    """Number of transactions begun."""
    done: int = 0
    names: int = 0
    """Number of names used so far; each new start takes another name."""


@dataclass(slots=True)
class ConsumerJob:
    """One consumer's work."""

    name: str
    queue: str
    mode: str
    """``auto``, ``client``, ``individual`` or ``transacted``."""
    batch: int = 1
    """Messages per acknowledgement or transaction."""
    pause_s: float = 0.0
    """Time in s that the work on one message takes."""
    begins_s: float = 0.0
    """Virtual time in s at which the consumer begins."""
    polls: bool = False
    """Asks the broker for each message and does not wait for one that comes later (receive-no-wait)."""
    rollback_every: int = 0
    """Number of transactions of which one is rolled back on purpose; 0: none is."""
    transactions: int = 0
    """Number of transactions ended."""
    idle_s: float = 3.0
    draining_since_s: float | None = None
    """Time at which the last message was sent; the job ends after ``idle_s`` without a message from then on."""
    names: int = 0


async def produce(plan: ClientPlan, job: ProducerJob) -> None:
    """Carry out a producer's work, starting over as often as it takes."""
    while job.done < job.count:
        job.names += 1
        name = f"{job.name}.{job.names}"
        try:
            connection = await plan.connect()
        except TRYING_AGAIN_HELPS:
            await asyncio.sleep(START_OVER_S)
            continue
        try:
            await (_produce_transacted if job.batch else _produce_confirmed)(plan, job, name, connection)
        except TRYING_AGAIN_HELPS:
            await asyncio.sleep(START_OVER_S)
        finally:
            await close_connection(connection)


async def _produce_confirmed(plan: ClientPlan, job: ProducerJob, name: str, connection: aio.Connection) -> None:
    session = await connection.session()
    producer = await session.producer(job.queue, window=job.window)
    pending: list[asyncio.Future[None]] = []
    number = 0
    while job.done < job.count:
        await producer.wait_sendable()
        body = body_of(name, number, job.size_bytes)
        plan.book.sent(name, number, job.queue, body)
        job.done += 1
        future = producer.send_nowait(
            body,
            properties=_properties(job, name, number),
        )
        future.add_done_callback(_outcome(plan.book, name, number, job.queue, connection))
        pending = [known for known in pending if not known.done()] + [future]
        number += 1
        if job.pause_s:
            await asyncio.sleep(job.pause_s)
    await asyncio.gather(*pending, return_exceptions=True)
    await session.close()


def group_of(job: ProducerJob, number: int) -> str | None:
    """The message group of a message; None: it belongs to none."""
    return f"g{number % job.groups}" if job.groups else None


def _properties(job: ProducerJob, name: str, number: int) -> dict[str, PropertyValue]:
    properties: dict[str, PropertyValue] = {PRODUCER_PROPERTY: name, NUMBER_PROPERTY: number}
    group = group_of(job, number)
    if group is not None:
        properties[GROUP_ID] = group
    return properties


def _outcome(
    book: LedgerBook, name: str, number: int, queue: str, connection: aio.Connection
) -> Callable[[asyncio.Future[None]], None]:
    """Notes what became of one send; an unknown outcome needs no note."""

    def done(future: asyncio.Future[None]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            book.confirmed(name, number, queue, confirmer(connection))
        elif isinstance(error, AddressFull):
            book.refused(name, number, queue)
        elif not isinstance(error, TRYING_AGAIN_HELPS):
            book.violations.append(Violation("client", f"send of {name} {number} ended with {error!r}"))

    return done


async def _produce_transacted(plan: ClientPlan, job: ProducerJob, name: str, connection: aio.Connection) -> None:
    session = await connection.session(transacted=True)
    producer = await session.producer(job.queue, window=max(job.window, job.batch))
    number = 0
    while job.done < job.count:
        numbers = range(number, number + min(job.batch, job.count - job.done))
        number = numbers.stop
        job.transactions += 1
        try:
            job.done += await _transact(plan, job, name, connection, session, producer, numbers)
        except AddressFull:
            _note_refused(plan.book, job, name, numbers)
            await session.rollback()
            await asyncio.sleep(START_OVER_S)
        if job.pause_s:
            await asyncio.sleep(job.pause_s)
    await session.close()


@contextmanager
def unread_if_it_fails(sends: Sequence[asyncio.Future[None]]) -> Iterator[None]:
    """Leave the outcomes of sends without a reader when an error ends their transaction, which says more."""
    try:
        yield
    except BaseException:
        for each in sends:
            if not each.done():
                each.add_done_callback(_read)
            else:
                _read(each)
        raise


def _read(send: asyncio.Future[None]) -> None:
    if not send.cancelled():
        send.exception()


async def _transact(
    plan: ClientPlan,
    job: ProducerJob,
    name: str,
    connection: aio.Connection,
    session: aio.Session,
    producer: aio.Producer,
    numbers: range,
) -> int:
    """Run one transaction and return the number of messages that are done: 0 after a rollback.

    Raises:
        AddressFull: the broker refused one of the messages; the transaction is open.
    """
    transaction = f"{name}/{numbers.start}"
    sends: list[asyncio.Future[None]] = []
    try:
        with unread_if_it_fails(sends):
            for each in numbers:
                await producer.wait_sendable()
                sends.append(
                    producer.send_nowait(
                        body_of(name, each, job.size_bytes),
                        properties=_properties(job, name, each),
                    )
                )
                if not job.hasty:
                    await sends[-1]
            if job.rollback_every and job.transactions % job.rollback_every == 0:
                await session.rollback()
                await asyncio.gather(*sends, return_exceptions=True)
                _note_refused(plan.book, job, name, numbers)
                return 0
            for each in numbers:
                plan.book.sent(name, each, job.queue, body_of(name, each, job.size_bytes), transaction)
            await session.commit()
            await asyncio.gather(*sends, return_exceptions=True)
    except TransactionRolledBack:
        _note_refused(plan.book, job, name, numbers)
        return 0
    except CommitOutcomeUnknown:
        return len(numbers)
    for each in numbers:
        plan.book.confirmed(name, each, job.queue, confirmer(connection), transaction)
    return len(numbers)


def _note_refused(book: LedgerBook, job: ProducerJob, name: str, numbers: range) -> None:
    for each in numbers:
        book.refused(name, each, job.queue, f"{name}/{numbers.start}")


class NamedJob(Protocol):
    """Work that a client does under a new name over each connection."""

    name: str
    queue: str
    names: int


def next_name(job: NamedJob) -> str:
    """The name for the next connection."""
    job.names += 1
    return f"{job.name}.{job.names}"


async def start_over(
    plan: ClientPlan, name: Callable[[], str], work: Callable[[str, aio.Connection], Awaitable[None]]
) -> None:
    """Do work that needs a connection, over another one and under another name as often as trying again helps."""
    while True:
        chosen = name()
        try:
            connection = await plan.connect()
        except TRYING_AGAIN_HELPS:
            await asyncio.sleep(START_OVER_S)
            continue
        try:
            await work(chosen, connection)
            return
        except TRYING_AGAIN_HELPS:
            await asyncio.sleep(START_OVER_S)
        finally:
            await close_connection(connection)


async def consume(plan: ClientPlan, job: ConsumerJob) -> None:
    """Carry out a consumer's work, starting over as often as it takes."""
    if job.begins_s:
        await wait_until(job.begins_s)
    await start_over(plan, partial(next_name, job), partial(_consume, plan, job))


async def _consume(plan: ClientPlan, job: ConsumerJob, name: str, connection: aio.Connection) -> None:
    session = await connection.session(job.mode)
    plan.book.opened(job.queue, name)
    consumer = await session.consumer(job.queue)
    taken: list[tuple[ReceivedMessage, Row]] = []
    loop = asyncio.get_running_loop()
    last, failovers = loop.time(), 0
    began_ms = plan.book.now_ms()

    def failed_over(error: BrokerError, succeeded: bool, code: FailureCode) -> None:
        nonlocal began_ms
        began_ms = plan.book.now_ms()

    connection.add_failure_listener(failed_over)
    while True:
        if job.mode == "auto" and taken:
            # asking for the next message acknowledges the one before
            plan.book.acknowledging(taken.pop()[1])
        received = await receive(job, consumer)
        if received is not None:
            taken.append((received, plan.book.delivered(received, name, began_ms)))
            last = loop.time()
            if job.pause_s:
                await asyncio.sleep(job.pause_s)
        if job.mode != "auto" and taken and (received is None or len(taken) >= job.batch):
            await _settle(plan, job, connection, session, taken)
            taken = []
        if connection.failing_over or connection.failovers > failovers:
            # idle time counts only while the connection works
            last, failovers = loop.time(), connection.failovers
        since = job.draining_since_s
        if received is None and since is not None and loop.time() - max(last, since) >= job.idle_s:
            break
    await session.close()
    plan.book.closed(job.queue, name)


async def wait_until(at_s: float) -> None:
    """Wait until that virtual time."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(max(0.0, at_s - loop.time()))


async def receive(job: ConsumerJob, consumer: aio.Consumer) -> ReceivedMessage | None:
    """The next message, or None if there was none for a while."""
    if not job.polls:
        return await consumer.receive(timeout_s=_RECEIVE_S)
    received = await consumer.receive_nowait()
    if received is None:
        await asyncio.sleep(_RECEIVE_S)
    return received


async def _settle(
    plan: ClientPlan,
    job: ConsumerJob,
    connection: aio.Connection,
    session: aio.Session,
    taken: list[tuple[ReceivedMessage, Row]],
) -> None:
    """Acknowledge the taken messages: rows before the request, and rows after the broker's confirmation."""
    book, confirmed = plan.book, taken
    if job.mode == "transacted":
        job.transactions += 1
        if job.rollback_every and job.transactions % job.rollback_every == 0:
            await session.rollback()
            return
        for _, row in taken:
            book.acknowledging(row)
        try:
            await session.commit()
        except CommitOutcomeUnknown:
            return
        except TransactionRolledBack:
            for _, row in taken:
                book.acknowledgement_refused(row)
            return
    elif job.mode == "client":
        # the acknowledgement is cumulative, for deliveries of the present session only
        last = taken[-1][0]
        covered = [entry for entry in taken if entry[0].generation == last.generation]
        for _, row in covered:
            book.acknowledging(row)
        confirmed = covered if await session.acknowledge(last) else []
    else:
        confirmed = []
        for received, row in taken:
            book.acknowledging(row)
            if await session.acknowledge(received):
                book.acknowledged(row, confirmer(connection))
    for _, row in confirmed:
        book.acknowledged(row, confirmer(connection))


async def observe(plan: ClientPlan, queue: str, name: str) -> None:
    """Note everything the queue holds, once none of it is in delivery; trying again as often as it takes."""
    while True:
        try:
            connection = await plan.connect()
        except TRYING_AGAIN_HELPS:
            await asyncio.sleep(START_OVER_S)
            continue
        try:
            session = await connection.session()
            at_ms = plan.book.now_ms()
            seen = [received async for received in await session.browser(queue)]
            if (await session.query_queue(queue)).message_count == len(seen):
                plan.book.drained(queue, name, at_ms, seen)
                return
        except TRYING_AGAIN_HELPS:
            pass
        finally:
            await close_connection(connection)
        await asyncio.sleep(START_OVER_S)


async def close_connection(connection: aio.Connection) -> None:
    """Close a connection and ignore the errors of a broker that is gone."""
    try:
        await connection.close()
    except BrokerError:
        # the other work of the connection is abandoned; the next connection starts anew
        return
