"""A session of AMQP 0-9-1 that moves between the members of a cluster: each publish is there once (ADR 0199)."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from support.members import Members
from support.processes import Node, invoke
from understudy.testing.runs.amqp_client import AmqpClient
from understudy.testing.runs.workload import NUMBER_PROPERTY, PRODUCER_PROPERTY, ClientPlan, LedgerBook
from understudy.testing.scenarios.amqp091_sessions import SessionProducerJob, produce_in_session
from understudy.wire.amqp091 import methods as m

COUNT = 600
#: Publishes between two cuts of the producer's connection.
BETWEEN = 60


def _cut(node: Node) -> None:
    """Close the connections of all clients of a node."""
    invoke(node, "broker", "closeConnectionsForAddress", "127.0.0.1")


def test_each_publish_is_stored_once_when_the_session_moves_between_members(tmp_path: Path) -> None:
    _run(tmp_path, 3, lambda members, turn: [_cut(each) for each in members.nodes])


def _run(directory: Path, count: int, strike: Callable[[Members, int], object]) -> None:
    members = Members(directory, count, settings="<redistribution-delay>-1</redistribution-delay>")
    try:
        members.start()
        asyncio.run(_produce(members, strike))
    finally:
        members.end()


async def _produce(members: Members, strike: Callable[[Members, int], object]) -> None:
    url = ",".join(f"tcp://127.0.0.1:{each.port}" for each in members.nodes)
    book = LedgerBook(lambda: time.time_ns() // 1_000_000)
    plan = ClientPlan(f"({url})?connectionTTL=10000", book.now_ms, os.urandom, book)
    for each in members.nodes:
        made = await AmqpClient.connect("127.0.0.1", each.port, "work", 10)
        await made.ask(m.QueueDeclare(0, "work", durable=True), m.QueueDeclareOk)
        await made.close()
    job = SessionProducerJob("producer", "work", COUNT, 100, 0.002, window=20)
    producing = asyncio.create_task(produce_in_session(plan, job))
    for turn, least in enumerate(range(BETWEEN, COUNT, BETWEEN)):
        while job.done < least and not producing.done():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(strike, members, turn)
    await producing
    assert book.violations == []
    found: Counter[object] = Counter()
    places = set()
    for each in members.nodes:
        reader = await AmqpClient.connect("127.0.0.1", each.port, "work", 10)
        await reader.ask(m.BasicConsume(0, "work", "reader"), m.BasicConsumeOk)
        while (received := await reader.receive(2)) is not None:
            found[received.properties[PRODUCER_PROPERTY], received.properties[NUMBER_PROPERTY]] += 1
            places.add(each.port)
            reader.send(m.BasicAck(received.tag))
        await reader.close()
    assert found == Counter(("producer.1", number) for number in range(1, COUNT + 1))
    assert len(places) == len(members.nodes), "the session was at each member"
