"""Our client with a confirmation window over connections that are cut: its transactions go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.processes import Pair
from support.proxy import proxy_to
from understudy.client import aio

COUNT = 400


async def work(url: str, cut: asyncio.Event) -> tuple[list[int], int]:
    """Send and receive in transactions; the numbers received, and how often the session was a new one."""
    connection = await aio.connect(url)
    session = await connection.session(transacted=True)
    name = session._state.channel.name
    producer = await session.producer("q", window=100)
    consumer = await session.consumer("q")
    received: list[int] = []
    for number in range(COUNT):
        await producer.send(b"x" * 300, properties={"number": number})
        if number % 10 == 9:
            await session.commit()
        if number % 50 == 25:
            cut.set()
    await session.commit()
    while len(received) < COUNT:
        message = await consumer.receive(timeout_s=20)
        assert message is not None, f"nothing more after {len(received)}"
        received.append(message.properties["number"])
        await session.acknowledge(message)
        if len(received) % 50 == 25:
            cut.set()
        if len(received) % 10 == 0:
            await session.commit()
    await session.commit()
    new = session._state.channel.name != name
    await connection.close()
    return received, int(new)


def test_open_transactions_survive_cut_connections(pair: Pair) -> None:
    """The server keeps the session for the confirmation window: nothing is rolled back or received twice, and the order
    stays.
    """
    pair.primary.start().wait_ready("active")

    async def run() -> None:
        with proxy_to(pair.primary.port) as proxy:
            cut = asyncio.Event()
            cuts = 0

            async def cutter() -> None:
                nonlocal cuts
                while True:
                    await cut.wait()
                    cut.clear()
                    cuts += proxy.cut() > 0

            task = asyncio.create_task(cutter())
            url = f"tcp://127.0.0.1:{proxy.port}?reconnectAttempts=-1&retryInterval=50&confirmationWindowSize=20000"
            url += "&useTopologyForLoadBalancing=false"
            received, new = await work(url, cut)
            task.cancel()
            assert cuts >= 10
            assert new == 0, "every time the old session was found again"
            assert received == list(range(COUNT))

    asyncio.run(run())
    assert "session reattached" in pair.primary.log.read_text()


def test_a_restarted_node_answers_a_reattachment_as_one_that_never_knew(pair: Pair, tmp_path: Path) -> None:
    """After a takeover the session is created anew: the client rolls back and goes on."""
    pair.start()

    async def run() -> None:
        connection = await aio.connect(pair.url + "&confirmationWindowSize=20000")
        session = await connection.session()
        producer = await session.producer("q")
        await producer.send(b"before")
        name = session._state.channel.name
        pair.primary.kill()
        await producer.send(b"after")
        assert session._state.channel.name != name
        await connection.close()

    asyncio.run(run())
    queue = pair.backup.queue("q")
    assert queue is not None
    assert queue["message_count"] == 2
