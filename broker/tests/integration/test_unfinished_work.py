"""Both clients with a real broker: a message whose work ends with an error comes back, and its delivery counts.

Each case leaves one of three messages in work: the one before is finished, the one after was sent ahead to the client.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from support.targets import Target
from understudy.client import aio, sync

MODES = ("auto", "client", "individual", "dups-ok", "transacted")
_names = (f"unfinished-{number}" for number in itertools.count())


@pytest.fixture
def queue() -> str:
    return next(_names)


class Failed(Exception):
    """The error of an application."""


def fill(broker: Target, queue: str, count: int = 3) -> None:
    with sync.connect(broker.url) as connection, connection.session() as session:
        producer = session.producer(queue)
        for number in range(count):
            producer.send(str(number))


def left(broker: Target, queue: str) -> list[tuple[str | None, int]]:
    """Text and count of this delivery of each message that is in the queue."""
    found = []
    with sync.connect(broker.url) as connection, connection.session() as session:
        consumer = session.consumer(queue)
        while (received := consumer.receive_nowait()) is not None:
            found.append((received.text, received.delivery_count))
    return found


def expected(mode: str) -> list[tuple[str, int]]:
    """After an error at the second message: finished messages of CLIENT and INDIVIDUAL were acknowledged, those of a
    transaction come back with it.
    """
    return [("0", 2), ("1", 2), ("2", 1)] if mode == "transacted" else [("1", 2), ("2", 1)]


def step(consumer: sync.Consumer, received: sync.Received) -> None:
    if received.text == "1":
        raise Failed
    consumer.acknowledge(received)


async def step_later(consumer: aio.Consumer, received: aio.Received) -> None:
    if received.text == "1":
        raise Failed
    await consumer.acknowledge(received)


def loop_in_session(url: str, mode: str, queue: str) -> None:
    with sync.connect(url) as connection, connection.session(mode) as session:
        consumer = session.consumer(queue)
        for received in consumer:
            step(consumer, received)


def loop_in_consumer(url: str, mode: str, queue: str) -> None:
    with sync.connect(url) as connection, connection.session(mode) as session, session.consumer(queue) as consumer:
        for received in consumer:
            step(consumer, received)


def loop_in_connection(url: str, mode: str, queue: str) -> None:
    with sync.connect(url) as connection:
        session = connection.session(mode)
        consumer = session.consumer(queue)
        for received in consumer:
            step(consumer, received)


def handler(url: str, mode: str, queue: str) -> None:
    with sync.connect(url) as connection, connection.session(mode) as session:
        consumer = session.consumer(queue)
        consumer.handle(lambda received: step(consumer, received))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use", [loop_in_session, loop_in_consumer, loop_in_connection, handler])
def test_an_error_gives_the_message_in_work_back(
    broker: Target, queue: str, mode: str, use: Callable[[str, str, str], None]
) -> None:
    fill(broker, queue)
    with pytest.raises(Failed):
        use(broker.url, mode, queue)
    assert left(broker, queue) == expected(mode)


async def aio_loop_in_session(url: str, mode: str, queue: str) -> None:
    async with await aio.connect(url) as connection, await connection.session(mode) as session:
        consumer = await session.consumer(queue)
        async for received in consumer:
            await step_later(consumer, received)


async def aio_loop_in_consumer(url: str, mode: str, queue: str) -> None:
    async with (
        await aio.connect(url) as connection,
        await connection.session(mode) as session,
        await session.consumer(queue) as consumer,
    ):
        async for received in consumer:
            await step_later(consumer, received)


async def aio_handler(url: str, mode: str, queue: str) -> None:
    async with await aio.connect(url) as connection, await connection.session(mode) as session:
        consumer = await session.consumer(queue)
        await consumer.handle(lambda received: step_later(consumer, received))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use", [aio_loop_in_session, aio_loop_in_consumer, aio_handler])
def test_an_error_gives_the_message_in_work_back_with_asyncio(
    broker: Target, queue: str, mode: str, use: Callable[[str, str, str], Awaitable[None]]
) -> None:
    fill(broker, queue)

    async def run() -> None:
        await use(broker.url, mode, queue)

    with pytest.raises(Failed):
        asyncio.run(run())
    assert left(broker, queue) == expected(mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_cancelled_task_gives_the_message_in_work_back(broker: Target, queue: str, mode: str) -> None:
    fill(broker, queue)

    async def work(reached: asyncio.Event) -> None:
        async with await aio.connect(broker.url) as connection, await connection.session(mode) as session:
            consumer = await session.consumer(queue)
            async for received in consumer:
                if received.text == "1":
                    reached.set()
                    await asyncio.Event().wait()
                await consumer.acknowledge(received)

    async def run() -> None:
        reached = asyncio.Event()
        task = asyncio.create_task(work(reached))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert left(broker, queue) == expected(mode)


def test_a_break_has_finished_the_message(broker: Target, queue: str) -> None:
    fill(broker, queue)
    with sync.connect(broker.url) as connection, connection.session() as session:
        for received in session.consumer(queue):
            if received.text == "1":
                break
    assert left(broker, queue) == [("2", 1)]


def test_a_session_whose_object_is_lost_gives_the_message_in_work_back(broker: Target, queue: str) -> None:
    fill(broker, queue)
    with sync.connect(broker.url) as connection:
        session = connection.session()
        consumer = session.consumer(queue)
        assert consumer.receive(20)
        assert consumer.receive(20)
        with pytest.warns(ResourceWarning):
            del session, consumer
        with connection.session() as other:
            again = other.consumer(queue).receive(20)
            assert again is not None
            assert (again.text, again.delivery_count) == ("1", 2)
    assert left(broker, queue) == [("2", 1)]


def test_a_handler_that_fails_does_not_count_for_other_consumers_of_its_session(broker: Target, queue: str) -> None:
    """Messages that were sent ahead to an idle consumer are not counted: they would become dead letters, too."""
    other = f"{queue}-other"
    fill(broker, queue, 1)
    fill(broker, other, 2)

    def fail(received: sync.Received) -> None:
        counts.append(received.delivery_count)
        raise Failed

    counts: list[int] = []
    with sync.connect(broker.url) as connection, connection.session() as session:
        failing, idle = session.consumer(queue), session.consumer(other)
        for _ in range(3):
            with pytest.raises(Failed):
                failing.handle(fail)
        received = idle.receive(20)
        assert received is not None
        assert (received.text, received.delivery_count) == ("0", 1)
    assert counts == [1, 2, 3]
    assert left(broker, other) == [("1", 1)]
