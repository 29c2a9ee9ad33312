"""Simulated applications of AMQP 0-9-1: they publish with confirms or transactions, consume, and keep a ledger.

They do what those of ``workload`` do: a publish whose outcome stays unknown is not repeated under its number, and work
after a lost connection goes on under a new name. An acknowledgement outside of a transaction has no answer in this
protocol, so its outcome stays open in the ledger.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConnectionFailed
from understudy.ledger import UNKNOWN, Row
from understudy.testing.runs.amqp_client import AmqpClient, AmqpDelivery
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.workload import (
    NUMBER_PROPERTY,
    PRODUCER_PROPERTY,
    START_OVER_S,
    TRYING_AGAIN_HELPS,
    ClientPlan,
    ConsumerJob,
    NamedJob,
    ProducerJob,
    body_of,
    next_name,
    wait_until,
)
from understudy.wire.amqp091 import methods as m

_NODE: Final = re.compile(r"tcp://([^:,()]+):(\d+)")
_TTL: Final = re.compile(r"connectionTTL=(\d+)")
#: Longest wait for one message before a consumer looks whether it is to end. Virtual seconds.
RECEIVE_S: Final = 0.5


@dataclass(slots=True)
class AmqpProducerJob(ProducerJob):
    """A producer that publishes to its queue through the default exchange; ``batch`` messages in a transaction, or with
    confirms."""


@dataclass(slots=True)
class AmqpConsumerJob(ConsumerJob):
    """A consumer that acknowledges one by one, several at once (``client``) or in transactions (``transacted``)."""

    prefetch: int = 10
    """Deliveries that may be unacknowledged."""


def nodes_of(plan: ClientPlan) -> list[tuple[str, int]]:
    """Host and port of each node."""
    return [(host, int(port)) for host, port in _NODE.findall(plan.url)]


def heartbeat_of(plan: ClientPlan) -> int:
    """Interval of heartbeats. Seconds."""
    ttl = _TTL.search(plan.url)
    assert ttl is not None
    # the broker notices the end of a client after two intervals
    return max(1, int(ttl[1]) // 2000)


async def _start_over(plan: ClientPlan, job: NamedJob, work: Callable[[str, AmqpClient], Awaitable[None]]) -> None:
    """Do work over one connection after the other, at one node after the other, as often as trying again helps."""
    nodes, heartbeat_s = nodes_of(plan), heartbeat_of(plan)
    turn = 0
    while True:
        name = next_name(job)
        host, port = nodes[turn % len(nodes)]
        turn += 1
        try:
            client = await AmqpClient.connect(host, port, job.queue, heartbeat_s)
        except TRYING_AGAIN_HELPS:
            await asyncio.sleep(START_OVER_S)
            continue
        try:
            await work(name, client)
            await client.close()
            return
        except TRYING_AGAIN_HELPS:
            await asyncio.sleep(START_OVER_S)
        finally:
            if client.returned:
                text = f"{client.returned} messages of {name} were returned, although the queue is there"
                plan.book.violations.append(Violation("client", text))
            client.fail(ConnectionFailed("the application has ended it"))


# --- producers -------------------------------------------------------------------------------------


async def produce_over_amqp(plan: ClientPlan, job: AmqpProducerJob) -> None:
    """Carry out a producer's work, starting over as often as it takes."""

    async def work(name: str, client: AmqpClient) -> None:
        await (_publish_transacted if job.batch else _publish_confirmed)(plan, job, name, client)

    if job.done < job.count:
        await _start_over(plan, job, work)


async def _publish_confirmed(plan: ClientPlan, job: AmqpProducerJob, name: str, client: AmqpClient) -> None:
    await client.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    pending: list[asyncio.Future[bool]] = []
    number = 0
    while job.done < job.count:
        if client.error is not None:
            raise client.error
        body = body_of(name, number, job.size_bytes)
        plan.book.sent(name, number, job.queue, body)
        job.done += 1
        future = client.publish(job.queue, properties_of(name, number), body)
        future.add_done_callback(outcome(plan, name, number, job.queue))
        pending = [each for each in pending if not each.done()] + [future]
        if len(pending) >= job.window:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        number += 1
        if job.pause_s:
            await asyncio.sleep(job.pause_s)
    await asyncio.gather(*pending, return_exceptions=True)


def properties_of(name: str, number: int) -> dict[str, object]:
    """Headers that name a message in the ledger."""
    return {PRODUCER_PROPERTY: name, NUMBER_PROPERTY: number}


def outcome(plan: ClientPlan, name: str, number: int, queue: str) -> Callable[[asyncio.Future[bool]], None]:
    """Notes the confirm of one publish; an unknown outcome needs no note."""

    def done(future: asyncio.Future[bool]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        if future.result():
            plan.book.confirmed(name, number, queue, UNKNOWN)
        else:
            plan.book.refused(name, number, queue)

    return done


async def _publish_transacted(plan: ClientPlan, job: AmqpProducerJob, name: str, client: AmqpClient) -> None:
    await client.ask(m.TxSelect(), m.TxSelectOk)
    book, number = plan.book, 0
    while job.done < job.count:
        numbers = range(number, number + min(job.batch, job.count - job.done))
        number = numbers.stop
        transaction = f"{name}/{numbers.start}"
        job.transactions += 1
        for each in numbers:
            client.publish(job.queue, properties_of(name, each), body_of(name, each, job.size_bytes))
        if job.rollback_every and job.transactions % job.rollback_every == 0:
            await client.ask(m.TxRollback(), m.TxRollbackOk)
            for each in numbers:
                book.refused(name, each, job.queue, transaction)
        else:
            for each in numbers:
                book.sent(name, each, job.queue, body_of(name, each, job.size_bytes), transaction)
            # without an answer the outcome is unknown, and the messages are not repeated
            job.done += len(numbers)
            await client.ask(m.TxCommit(), m.TxCommitOk)
            for each in numbers:
                book.confirmed(name, each, job.queue, UNKNOWN, transaction)
        if job.pause_s:
            await asyncio.sleep(job.pause_s)


# --- consumers -------------------------------------------------------------------------------------


async def consume_over_amqp(plan: ClientPlan, job: AmqpConsumerJob) -> None:
    """Carry out a consumer's work, starting over as often as it takes."""
    if job.begins_s:
        await wait_until(job.begins_s)

    async def work(name: str, client: AmqpClient) -> None:
        await _consume(plan, job, name, client)

    await _start_over(plan, job, work)


async def _consume(plan: ClientPlan, job: AmqpConsumerJob, name: str, client: AmqpClient) -> None:
    loop = asyncio.get_running_loop()
    transacted = job.mode == "transacted"
    if transacted:
        await client.ask(m.TxSelect(), m.TxSelectOk)
    plan.book.opened(job.queue, name)
    began_ms = plan.book.now_ms()
    if not job.polls:
        await client.ask(m.BasicQos(0, max(job.prefetch, job.batch), for_channel=False), m.BasicQosOk)
        await client.ask(m.BasicConsume(0, job.queue, name), m.BasicConsumeOk)
    taken: list[tuple[AmqpDelivery, Row]] = []
    last = loop.time()
    while True:
        received = await client.get() if job.polls else await client.receive(RECEIVE_S)
        if received is not None:
            taken.append((received, plan.book.delivered(received, name, began_ms)))
            last = loop.time()
            if job.pause_s:
                await asyncio.sleep(job.pause_s)
        elif job.polls:
            await asyncio.sleep(RECEIVE_S)
        if taken and (received is None or len(taken) >= job.batch):
            await _settle(plan, job, client, taken)
            taken = []
        since = job.draining_since_s
        if received is None and since is not None and loop.time() - max(last, since) >= job.idle_s:
            break
    plan.book.closed(job.queue, name)


async def _settle(
    plan: ClientPlan, job: AmqpConsumerJob, client: AmqpClient, taken: Sequence[tuple[AmqpDelivery, Row]]
) -> None:
    """Acknowledge the taken messages; rows are written before the request, and after the answer to a commit."""
    book = plan.book
    if job.mode == "transacted":
        job.transactions += 1
        rolled_back = job.rollback_every and job.transactions % job.rollback_every == 0
        if not rolled_back:
            for _, row in taken:
                book.acknowledging(row)
        client.send(m.BasicAck(taken[-1][0].tag, multiple=True))
        if rolled_back:
            await client.ask(m.TxRollback(), m.TxRollbackOk)
            # the deliveries are unacknowledged again, and are returned; others are on their way, and stay
            client.send(m.BasicNack(taken[-1][0].tag, multiple=True, requeue=True))
        await client.ask(m.TxCommit(), m.TxCommitOk)
        if rolled_back:
            return
        for _, row in taken:
            book.acknowledged(row, UNKNOWN)
        return
    for _, row in taken:
        book.acknowledging(row)
    if job.mode == "client":
        client.send(m.BasicAck(taken[-1][0].tag, multiple=True))
    else:
        for received, _ in taken:
            client.send(m.BasicAck(received.tag))
