"""Large messages through real processes: memory, and kill -9 in the middle of a send and of a delivery."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import random
import string
import time
from pathlib import Path

import pytest

from support.processes import Node, Pair, invoke
from understudy.client import aio, sync
from understudy.errors import ConnectionFailed, LimitExceeded, MessageUnreadable, SendOutcomeUnknown

MIB = 1024 * 1024


def write_body(path: Path, size_bytes: int) -> str:
    """A file of that size; its digest."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, size_bytes, MIB):
            piece = os.urandom(min(MIB, size_bytes - start))
            file.write(piece)
            digest.update(piece)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def memory_bytes(node: Node, field: str) -> int:
    """VmRSS now, or its peak VmHWM, of the broker's process."""
    assert node.process is not None
    for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


def large_files(pair: Pair) -> list[str]:
    return sorted(path.name for path in (pair.store / "large-messages").iterdir())


async def wait_for_files(pair: Pair, count: int, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while len(large_files(pair)) != count:
        assert time.monotonic() < deadline, large_files(pair)
        await asyncio.sleep(0.1)


def test_100_mb_pass_through_a_broker_that_hardly_grows(pair: Pair, tmp_path: Path) -> None:
    size_bytes = 100_000_000
    body, copy = tmp_path / "body", tmp_path / "copy"
    digest = write_body(body, size_bytes)
    pair.primary.start().wait_ready("active")

    async def scenario() -> None:
        async with await aio.connect(pair.url) as connection:
            session = await connection.session()
            producer, consumer = await session.producer("q"), await session.consumer("q")
            await producer.send(b"warm")
            assert await consumer.receive(10) is not None
            before = memory_bytes(pair.primary, "VmRSS")
            await producer.send(body, properties={"n": 1})
            received = await consumer.receive(20)
            assert received is not None
            assert received.properties["n"] == 1
            assert await received.save_to(copy) == size_bytes
            grown = memory_bytes(pair.primary, "VmHWM") - before
            assert grown < 64 * MIB, f"the broker grew by {grown / MIB:.1f} MiB"
            await session.close()

    asyncio.run(scenario())
    assert digest_of(copy) == digest
    asyncio.run(wait_for_files(pair, 0))


def test_a_send_goes_on_at_the_backup_when_the_active_is_killed_in_the_middle(pair: Pair, tmp_path: Path) -> None:
    size_bytes = 60_000_000
    body, copy = tmp_path / "body", tmp_path / "copy"
    digest = write_body(body, size_bytes)
    pair.start()

    async def scenario() -> None:
        async with await aio.connect(pair.url) as connection:
            session = await connection.session()
            producer = await session.producer("q")
            sent = asyncio.ensure_future(producer.send(body))
            folder = pair.store / "large-messages"
            while not any(path.stat().st_size > size_bytes // 8 for path in folder.glob("*.tmp")):
                assert not sent.done(), "it was through before it could be cut"
                await asyncio.sleep(0.001)
            pair.primary.kill()
            assert large_files(pair)[0].endswith(".tmp")
            await asyncio.to_thread(pair.backup.wait_ready, "active")
            await asyncio.wait_for(sent, 60)
            assert connection.failovers == 1
            await wait_for_files(pair, 1)
            consumer = await session.consumer("q")
            received = await consumer.receive(20)
            assert received is not None
            await received.save_to(copy)
            assert await consumer.receive_nowait() is None, "once"
            await session.close()

    asyncio.run(scenario())
    assert digest_of(copy) == digest


def test_a_body_that_cannot_be_read_again_says_that_its_outcome_is_unknown(pair: Pair) -> None:
    pair.start()

    async def scenario() -> None:
        async with await aio.connect(pair.url) as connection:
            session = await connection.session()
            producer = await session.producer("q")

            def endless() -> object:
                while True:
                    yield os.urandom(MIB)

            sent = asyncio.ensure_future(producer.send(endless()))  # type: ignore[arg-type]
            await wait_for_files(pair, 1)
            pair.primary.kill()
            with pytest.raises(SendOutcomeUnknown):
                await asyncio.wait_for(sent, 60)
            await producer.send(b"the next one")
            await wait_for_files(pair, 0)
            connection.abandon()

    asyncio.run(scenario())


def test_a_delivery_begins_again_when_the_active_is_killed_in_the_middle(pair: Pair, tmp_path: Path) -> None:
    size_bytes = 20_000_000
    body, copy = tmp_path / "body", tmp_path / "copy"
    digest = write_body(body, size_bytes)
    pair.start()

    async def scenario() -> None:
        async with await aio.connect(pair.url) as connection:
            session = await connection.session("client")
            producer, consumer = await session.producer("q"), await session.consumer("q")
            await producer.send(body)
            received = await consumer.receive(20)
            assert received is not None
            assert received.delivery_count == 1
            first = await received.body_stream.read(MIB)
            assert first
            pair.primary.kill()
            with pytest.raises(ConnectionFailed):
                await received.read_body()
            again = await consumer.receive(60)
            assert again is not None
            await again.save_to(copy)
            assert await consumer.acknowledge(again)
            await session.close()

    asyncio.run(scenario())
    assert digest_of(copy) == digest
    asyncio.run(wait_for_files(pair, 0))


def test_both_killed_and_the_message_is_still_there(pair: Pair, tmp_path: Path) -> None:
    body = tmp_path / "body"
    digest = write_body(body, 5_000_000)
    pair.start()

    async def send() -> None:
        async with await aio.connect(pair.url) as connection, await connection.session() as session:
            producer = await session.producer("q")
            await producer.send(body)

    async def receive() -> str:
        async with await aio.connect(pair.url) as connection, await connection.session() as session:
            consumer = await session.consumer("q")
            received = await consumer.receive(20)
            assert received is not None
            return hashlib.sha256(await received.read_body()).hexdigest()

    asyncio.run(send())
    pair.primary.kill()
    pair.backup.kill()
    pair.primary.start().wait_ready("active")
    assert asyncio.run(receive()) == digest


@pytest.mark.parametrize("compress", [False, True])
def test_the_blocking_client_sends_from_anything_and_reads_as_it_likes(
    pair: Pair, tmp_path: Path, compress: bool
) -> None:
    path, copy = tmp_path / "body", tmp_path / "copy"
    write_body(path, 3_000_000)
    body = path.read_bytes()
    pair.primary.start().wait_ready("active")
    with sync.connect(pair.url + ("&compressLargeMessage=true" if compress else "")) as connection:
        session = connection.session()
        producer, consumer = session.producer("q"), session.consumer("q")
        for source in (path, io.BytesIO(body), (body[:1000], body[1000:]), body):
            producer.send(source)
        received = consumer.receive(20)
        assert received is not None
        progress: list[int] = []
        assert received.save_to(copy, progress.append) == len(body)
        assert progress[-1] == len(body)
        assert copy.read_bytes() == body
        received = consumer.receive(20)
        assert received is not None
        assert received.read_body() == body
        received = consumer.receive(20)
        assert received is not None
        assert b"".join(received.body_stream) == body
        received = consumer.receive(20)
        assert received is not None
        with pytest.raises(LimitExceeded):
            received.read_body(1000)
        producer.send("text " * 100_000)
        received = consumer.receive(20)
        assert received is not None
        assert received.text == "text " * 100_000
        producer.send(b"small")
        received = consumer.receive(20)
        assert received is not None
        assert (received.read_body(), received.body) == (b"small", b"small")
        session.close()


def test_the_compression_level_of_the_client_decides_what_the_store_holds(pair: Pair) -> None:
    body = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=MIB)).encode()
    node = pair.primary.start()
    node.wait_ready("active")
    stored: list[int] = []
    for level in (0, 1, 5, 9):
        url = f"{pair.url}&compressLargeMessage=true&compressionLevel={level}"
        with sync.connect(url) as connection, connection.session() as session:
            session.producer(f"level{level}").send(body)
            status, size_bytes = invoke(node, f"queue.level{level}", "getPersistentSize")
            assert status == 200
            assert isinstance(size_bytes, int)
            stored.append(size_bytes)
            received = session.consumer(f"level{level}").receive(20)
            assert received is not None
            assert received.read_body() == body
    assert MIB < stored[0] < MIB * 1.01, "level 0 stores the body as it is, and a header"
    assert stored[0] > stored[1] > stored[2] >= stored[3]


@pytest.mark.parametrize("size_bytes", [600_000, 8_000_000])
def test_a_consumer_of_a_damaged_body_gets_an_error_that_says_so(pair: Pair, size_bytes: int) -> None:
    """The damage lies near the end: the client has a part of the body by then. Other messages go to a new consumer."""
    node = pair.primary.start()
    node.wait_ready("active")
    with sync.connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        producer = session.producer("films")
        producer.send(bytes(size_bytes))
        producer.send("the next one")
        (file,) = [pair.store / "large-messages" / name for name in large_files(pair)]
        with file.open("r+b") as damaged:
            damaged.seek(size_bytes - 1000)
            damaged.write(b"damage")
        consumer = session.consumer("films")
        with pytest.raises(MessageUnreadable, match=r"message \d+ of queue films: its body is damaged"):
            received = consumer.receive(20)
            assert received is not None
            received.read_body()
        following = session.consumer("films").receive(20)
        assert following is not None
        assert following.text == "the next one"
