"""Two nodes, each with its own identity, in one process: ``runtime.process.server.Server``."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from understudy.client import aio
from understudy.config.model import Configuration
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import BrokerError, StoreError
from understudy.runtime.base.environment import SystemClock, SystemEntropy
from understudy.runtime.base.logs import JsonFormatter
from understudy.runtime.process.server import HostedNode, Server
from understudy.security.authorization import NO_USERS, security_policy

#: Only against a test that hangs.
GUARD_S = 60

_XML = """
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{name}</name>
    <security-enabled>false</security-enabled>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>
    <acceptors><acceptor name="core">tcp://127.0.0.1:{port}</acceptor></acceptors>
    <addresses><address name="q"><anycast><queue name="q"/></anycast></address></addresses>
  </core>
</configuration>
"""


@pytest.fixture(autouse=True)
def _own_process() -> Iterator[None]:
    """A server sets these for its process, which here is that of the tests."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


def configuration(directory: Path, name: str) -> Configuration:
    text = _XML.format(name=name, store=directory / name, port=free_port())
    return read_broker_xml(text.encode(), file=f"{name}/broker.xml", base_directory=str(directory)).configuration


def add(server: Server, directory: Path, name: str) -> HostedNode:
    read = configuration(directory, name)
    security = security_policy(read, SystemEntropy(), SystemClock(), NO_USERS)
    return server.add(read, security, instance_directory=str(directory / name))


def url(hosted: HostedNode) -> str:
    return f"{hosted.node.configuration.acceptors[0].url}?reconnectAttempts=0"


async def send(hosted: HostedNode, body: bytes) -> None:
    async with await aio.connect(url(hosted)) as connection:
        producer = await (await connection.session()).producer("q")
        await producer.send(body)


async def receive(hosted: HostedNode) -> bytes:
    async with await aio.connect(url(hosted)) as connection:
        session = await connection.session()
        consumer = await session.consumer("q")
        message = await asyncio.wait_for(consumer.receive(), GUARD_S)
        assert message is not None
        body = bytes(message.body)
        await consumer.acknowledge(message)
        return body


async def both_active(server: Server, one: HostedNode, two: HostedNode) -> asyncio.Task[bool]:
    running = asyncio.create_task(server.run())
    for hosted in (one, two):
        assert await asyncio.wait_for(hosted.node.wait_for("active"), GUARD_S) == "active"
    return running


def test_each_node_has_its_own_identity_and_its_own_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Server(nodes=2)
        one, two = add(server, tmp_path, "one"), add(server, tmp_path, "two")
        running = await both_active(server, one, two)
        assert one.node.parts.lock.node_id != two.node.parts.lock.node_id
        await send(one, b"to one")
        await send(two, b"to two")
        one.stop("test")
        assert await asyncio.wait_for(one.node.wait_ended(), GUARD_S) is None
        assert (one.node.state, two.node.state) == ("stopped", "active")
        with pytest.raises(BrokerError):
            await send(one, b"too late")
        await send(two, b"still served")
        assert [await receive(two), await receive(two)] == [b"to two", b"still served"]
        assert not running.done()
        server.stop("test")
        assert await asyncio.wait_for(running, GUARD_S)

    asyncio.run(scenario())


def test_a_node_that_fails_leaves_the_other_active(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Server(nodes=2)
        one, two = add(server, tmp_path, "one"), add(server, tmp_path, "two")
        running = await both_active(server, one, two)
        one.node.parts.turn.report(StoreError("its store is gone"))
        assert isinstance(await asyncio.wait_for(one.node.wait_ended(), GUARD_S), StoreError)
        await send(two, b"served")
        assert await receive(two) == b"served"
        server.stop("test")
        assert not await asyncio.wait_for(running, GUARD_S)

    asyncio.run(scenario())


def test_nodes_share_the_memory_and_the_descriptors_of_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        alone = add(Server(), tmp_path, "alone").node.environment
        shared = add(Server(nodes=2), tmp_path, "shared").node.environment
        assert shared.memory_bytes == alone.memory_bytes // 2
        assert alone.large_messages_max is not None
        assert shared.large_messages_max == alone.large_messages_max // 2

    asyncio.run(scenario())


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """The log of the broker as ``understudy run`` writes it."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("understudy")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_log_lines_name_their_node(tmp_path: Path, log_lines: io.StringIO) -> None:
    """Lines of tasks, of connections, of callbacks of the writer's thread and of a stop from outside."""

    async def scenario() -> None:
        server = Server(nodes=2)
        one, two = add(server, tmp_path, "one"), add(server, tmp_path, "two")
        running = await both_active(server, one, two)
        for hosted in (one, two):
            port = int(hosted.node.configuration.acceptors[0].url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(reader.read(), GUARD_S)
            writer.close()
            await send(hosted, b"a message")
        one.context.copy().run(one.node.parts.turn.report, StoreError("its store is gone"))
        await asyncio.wait_for(one.node.wait_ended(), GUARD_S)
        server.stop("test")
        await asyncio.wait_for(running, GUARD_S)

    asyncio.run(scenario())
    lines = [json.loads(line) for line in log_lines.getvalue().splitlines()]
    lines = [line for line in lines if not line["logger"].startswith("understudy.client")]
    assert [line for line in lines if line.get("node") not in ("one", "two")] == []
    events = {name: {line["event"] for line in lines if line["node"] == name} for name in ("one", "two")}
    for name in ("one", "two"):
        assert {"started", "protocol not served", "active"} <= events[name], events
    assert "stopping" in events["two"]
    assert [line["node"] for line in lines if line.get("error") == "its store is gone"] == ["one"]
