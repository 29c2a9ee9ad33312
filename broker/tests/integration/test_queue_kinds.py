"""Queue kinds and diverts of real nodes: the same after a kill of the active one, and after a restart of both."""

from __future__ import annotations

import asyncio

import pytest

from support.nodes import Nodes
from support.processes import Node, Pair
from understudy.client import aio

CONFIGURED = """
    <addresses>
      <address name="prices"><anycast>
        <queue name="prices" last-value-key="code" non-destructive="true"/>
      </anycast></address>
      <address name="latest"><anycast><queue name="latest" last-value="true"/></anycast></address>
      <address name="recent"><anycast><queue name="recent" ring-size="3"/></anycast></address>
      <address name="closed"><anycast><queue name="closed" enabled="false"/></anycast></address>
      <address name="pairs"><anycast><queue name="pairs" consumers-before-dispatch="2"/></anycast></address>
      <address name="copies"><anycast><queue name="copies"/></anycast></address>
    </addresses>
    <diverts>
      <divert name="copying">
        <address>recent</address><forwarding-address>copies</forwarding-address>
        <filter string="copied = TRUE"/>
      </divert>
    </diverts>
"""


@pytest.fixture
def configured(nodes: Nodes) -> Pair:
    return nodes.pair(extra=CONFIGURED)


async def send(url: str, queue: str, *bodies: str, **properties: object) -> None:
    connection = await aio.connect(url)
    session = await connection.session()
    producer = await session.producer(queue)
    for body in bodies:
        await producer.send(body.encode(), properties={"code": body[0], "_AMQ_LVQ_NAME": body[0], **properties})
    await connection.close()


async def read(url: str, queue: str, count: int) -> list[str]:
    """The first ``count`` messages of a queue, which then return to it: the session is closed without acknowledging."""
    connection = await aio.connect(url)
    session = await connection.session(transacted=True)
    consumer = await session.consumer(queue)
    found = []
    for _ in range(count):
        message = await consumer.receive(timeout_s=10)
        assert message is not None, f"only {found} in {queue}"
        found.append(bytes(message.body).decode())
    await connection.close()
    return found


def check(pair: Pair, node: Node, prices: list[str], latest: list[str], recent: list[str], copies: list[str]) -> None:
    counts = {name: node.queue(name) for name in ("prices", "latest", "recent", "copies", "closed")}
    found = {name: facts["message_count"] for name, facts in counts.items() if facts is not None}
    assert found == {
        "prices": len(prices), "latest": len(latest), "recent": len(recent), "copies": len(copies), "closed": 0,
    }  # fmt: skip
    for name, wanted in (("prices", prices), ("latest", latest), ("recent", recent), ("copies", copies)):
        assert asyncio.run(read(pair.url, name, len(wanted))) == wanted, name


def test_kinds_and_their_contents_survive(configured: Pair) -> None:
    pair = configured.start()
    asyncio.run(send(pair.url, "prices", "a1", "b1", "a2", "c1", "b2"))
    asyncio.run(send(pair.url, "latest", "a1", "a2", "b1", "a3"))
    asyncio.run(send(pair.url, "recent", "1", "2", "3", "4", copied=True))
    asyncio.run(send(pair.url, "recent", "5", copied=False))
    asyncio.run(send(pair.url, "closed", "lost"))
    expected = (["a2", "c1", "b2"], ["b1", "a3"], ["3", "4", "5"], ["1", "2", "3", "4"])
    check(pair, pair.primary, *expected)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    check(pair, pair.backup, *expected)
    asyncio.run(send(pair.url, "prices", "a3"))
    asyncio.run(send(pair.url, "latest", "b2"))
    asyncio.run(send(pair.url, "recent", "6", copied=True))
    expected = (["c1", "b2", "a3"], ["a3", "b2"], ["4", "5", "6"], ["1", "2", "3", "4", "6"])
    check(pair, pair.backup, *expected)
    pair.backup.kill()
    pair.primary.start().wait_ready("active")
    check(pair, pair.primary, *expected)


def test_a_changed_configuration_changes_the_queues_at_the_next_start(configured: Pair) -> None:
    node = configured.primary
    node.start().wait_ready("active")
    asyncio.run(send(configured.url, "recent", "1", "2", "3", copied=False))
    asyncio.run(send(configured.url, "closed", "lost"))
    node.kill()
    text = node.config.read_text()
    text = text.replace('ring-size="3"', 'ring-size="2"').replace(' enabled="false"', "")
    node.config.write_text(text.replace('name="latest" last-value="true"', 'name="latest"'))
    node.start().wait_ready("active")
    asyncio.run(send(configured.url, "closed", "taken"))
    asyncio.run(send(configured.url, "latest", "a1", "a2"))
    asyncio.run(send(configured.url, "recent", "4", copied=False))
    assert asyncio.run(read(configured.url, "closed", 1)) == ["taken"]
    assert asyncio.run(read(configured.url, "latest", 2)) == ["a1", "a2"]
    assert asyncio.run(read(configured.url, "recent", 2)) == ["2", "3"], "a smaller ring is reached by consuming"
    facts = node.queue("recent")
    assert facts is not None
    assert facts["message_count"] == 2, "a message that came back to a full ring was removed"


def test_consumers_wait_for_each_other(configured: Pair) -> None:
    configured.primary.start().wait_ready("active")
    url = configured.url

    async def run() -> None:
        await send(url, "pairs", "1", "2")
        connection = await aio.connect(url)
        session = await connection.session()
        first = await session.consumer("pairs")
        assert await first.receive(timeout_s=0.5) is None
        other = await connection.session()
        await other.consumer("pairs")
        assert await first.receive(timeout_s=10) is not None
        await connection.close()

    asyncio.run(run())
