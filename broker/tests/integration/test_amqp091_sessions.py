"""A session of AMQP 0-9-1 over the kill of the active node: each publish is there once (ADR 0195)."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

from support.nodes import nodes_in
from understudy.testing.runs.amqp_client import AmqpClient
from understudy.testing.runs.workload import NUMBER_PROPERTY, PRODUCER_PROPERTY, ClientPlan, LedgerBook
from understudy.testing.scenarios.amqp091_sessions import SessionProducerJob, produce_in_session
from understudy.wire.amqp091 import methods as m

COUNT = 400


def test_each_publish_of_a_session_is_stored_once_when_the_active_node_is_killed(tmp_path: Path) -> None:
    with nodes_in(tmp_path) as nodes:
        pair = nodes.pair()
        pair.start()
        ports = pair.primary.port, pair.backup.port
        asyncio.run(_produce(ports, pair.primary.kill))


async def _produce(ports: tuple[int, int], kill: object) -> None:
    assert callable(kill)
    url = ",".join(f"tcp://127.0.0.1:{port}" for port in ports)
    book = LedgerBook(lambda: time.time_ns() // 1_000_000)
    plan = ClientPlan(f"({url})?connectionTTL=10000", book.now_ms, os.urandom, book)
    made = await AmqpClient.connect("127.0.0.1", ports[0], "work", 10)
    await made.ask(m.QueueDeclare(0, "work", durable=True), m.QueueDeclareOk)
    await made.close()
    job = SessionProducerJob("producer", "work", COUNT, 100, 0.002, window=50)
    producing = asyncio.create_task(produce_in_session(plan, job))
    while job.done < COUNT // 2:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(kill)
    await producing
    assert book.violations == []
    reader = await AmqpClient.connect("127.0.0.1", ports[1], "work", 10)
    await reader.ask(m.BasicConsume(0, "work", "reader"), m.BasicConsumeOk)
    found: Counter[object] = Counter()
    while (received := await reader.receive(5)) is not None:
        found[received.properties[PRODUCER_PROPERTY], received.properties[NUMBER_PROPERTY]] += 1
        reader.send(m.BasicAck(received.tag))
    await reader.close()
    assert found == Counter(("producer.1", number) for number in range(1, COUNT + 1))
