"""Both clients with a real broker: contents and fields of messages, and the end of each one (ADR 0143)."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from support.targets import Target
from understudy.client import aio, sync
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.errors import CallTimedOut, IllegalState
from understudy.message import Message, MessageType

#: Modes in which a message can be given back alone, and in which a block may work on it.
MODES = ("auto", "client", "individual", "dups-ok")
_names = (f"work-{number}" for number in itertools.count())


@pytest.fixture
def queue() -> str:
    return next(_names)


@pytest.fixture
def connection(broker: Target) -> Iterator[sync.Connection]:
    with sync.connect(broker.url) as connection:
        yield connection


class Failed(Exception):
    """The error of an application."""


def fill(connection: sync.Connection, queue: str, count: int = 3) -> None:
    with connection.session() as session:
        producer = session.producer(queue)
        for number in range(count):
            producer.send(str(number))


def left(connection: sync.Connection, queue: str) -> list[tuple[str | None, int]]:
    """Text and count of this delivery of each message that is in the queue."""
    with connection.session() as session:
        consumer = session.consumer(queue)
        return [(each.text, each.delivery_count) for each in iter(consumer.receive_nowait, None)]


def got(message: ReceivedMessage | None) -> sync.Received:
    assert isinstance(message, sync.Received)
    return message


CONTENTS = [
    "a text",
    "large " * 400_000,
    b"bytes",
    {"symbol": "X", "price": 1.5, "count": 3, "open": True, "raw": b"\x00", "none": None},
    {"large": "map " * 400_000},
    ["a stream", 3, 2.5, False, b"raw", None, "umlauts \u00e4\U0001f600", "long " * 2000],
    [],
    None,
]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda each: type(each).__name__)
def test_content_that_was_sent_is_received(connection: sync.Connection, queue: str, content: object) -> None:
    with connection.session() as session:
        session.producer(queue).send(content)  # type: ignore[arg-type]  # each is a body
        message = got(session.consumer(queue).receive(10))
        assert message.read_content() == content
        assert message.content == content


@pytest.mark.parametrize("content", CONTENTS, ids=lambda each: type(each).__name__)
def test_content_in_the_asyncio_client(broker: Target, queue: str, content: object) -> None:
    async def main() -> None:
        async with await aio.connect(broker.url) as connection, await connection.session() as session:
            producer = await session.producer(queue)
            await producer.send(content)  # type: ignore[arg-type]  # each is a body
            consumer = await session.consumer(queue)
            message = await consumer.receive(10)
            assert message is not None
            assert await message.read_content() == content
            assert message.content == content

    asyncio.run(main())


def test_a_large_text_names_the_call_that_reads_it(connection: sync.Connection, queue: str) -> None:
    text = "x" * 1_500_000
    with connection.session() as session:
        session.producer(queue).send(text)
        message = got(session.consumer(queue).receive(10))
        with pytest.raises(IllegalState, match="read_content"):
            assert message.text
        assert message.read_content() == text
        assert message.text == text


def test_fields(connection: sync.Connection, queue: str) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    with connection.session() as session:
        session.producer(queue).send(
            json={"n": [1, None]},
            properties={"colour": "green"},
            durable=False,
            priority=7,
            ttl_s=60,
            group_id="g",
            reply_to="answers",
            correlation_id="17",
        )
        message = got(session.consumer(queue).receive(10))
        assert message.json() == {"n": [1, None]}
        assert (message.type, message.address, message.queue) == (MessageType.TEXT, queue, queue)
        assert (message.priority, message.durable, message.group_id) == (7, False, "g")
        assert (message.reply_to, message.correlation_id) == ("queue://answers", "17")
        assert message.properties["colour"] == "green"
        assert (message.delivery_count, message.redelivered) == (1, False)
        assert message.timestamp is not None
        assert before <= message.timestamp <= datetime.now(UTC)
        assert message.expires_at == message.timestamp + timedelta(seconds=60)


def test_later_delivery(connection: sync.Connection, queue: str) -> None:
    with connection.session() as session:
        producer, consumer = session.producer(queue), session.consumer(queue)
        began = time.monotonic()
        producer.send("a delay", delay_s=0.3)
        producer.send("a time", deliver_at=datetime.now(UTC) + timedelta(seconds=0.6))
        producer.send("seconds", deliver_at=time.time() + 0.9)
        assert [got(consumer.receive(10)).text for _ in range(3)] == ["a delay", "a time", "seconds"]
        assert time.monotonic() - began >= 0.85


@pytest.mark.parametrize("mode", MODES)
def test_a_block_acknowledges_at_its_end_and_gives_back_after_an_error(
    connection: sync.Connection, queue: str, mode: str
) -> None:
    fill(connection, queue)
    with connection.session(mode) as session:
        consumer = session.consumer(queue)
        with got(consumer.receive(5)).process() as message:
            assert message.text == "0"
        with pytest.raises(Failed), got(consumer.receive(5)).process():
            raise Failed
        with got(consumer.receive(5)).process() as message:
            assert (message.text, message.delivery_count) in (("1", 2), ("2", 1))
    assert left(connection, queue) in ([("2", 1)], [("1", 2)])


@pytest.mark.parametrize("mode", MODES)
def test_a_block_of_the_asyncio_client(broker: Target, connection: sync.Connection, queue: str, mode: str) -> None:
    fill(connection, queue, 2)

    async def main() -> None:
        async with await aio.connect(broker.url) as connection, await connection.session(mode) as session:
            consumer = await session.consumer(queue)
            message = await consumer.receive(5)
            assert message is not None
            async with message.process():
                pass
            message = await consumer.receive(5)
            assert message is not None
            with pytest.raises(Failed):
                async with message.process():
                    raise Failed

    asyncio.run(main())
    assert left(connection, queue) == [("1", 2)]


def test_blocks_of_several_tasks_do_not_touch_each_other(
    broker: Target, connection: sync.Connection, queue: str
) -> None:
    fill(connection, queue, 20)
    done: list[str | None] = []

    async def main() -> None:
        async with await aio.connect(broker.url) as connection, await connection.session("individual") as session:
            consumer = await session.consumer(queue)

            async def work() -> None:
                while (message := await consumer.receive(1)) is not None:
                    try:
                        async with message.process():
                            await asyncio.sleep(0.01)
                            if int(message.text or "") % 3 == 0 and not message.redelivered:
                                raise Failed
                            done.append(message.text)
                    except Failed:
                        pass

            await asyncio.gather(*(work() for _ in range(4)))

    asyncio.run(main())
    assert sorted(map(int, filter(None, done))) == list(range(20)), "each is done once: an error costs one message only"
    assert left(connection, queue) == []


@pytest.mark.parametrize("mode", [*MODES, "transacted"])
def test_a_rejected_message_is_a_dead_letter_at_once(connection: sync.Connection, queue: str, mode: str) -> None:
    fill(connection, queue)
    with connection.session(mode) as session:
        consumer = session.consumer(queue)
        assert got(consumer.receive(5)).ack()
        assert got(consumer.receive(5)).reject(requeue=False)
        if mode == "transacted":
            session.commit()
    assert left(connection, queue) == [("2", 1)]
    with connection.session() as session:
        dead = got(session.consumer("dead", filter=f"_AMQ_ORIG_QUEUE = '{queue}'").receive(5))
        assert dead.text == "1"


@pytest.mark.parametrize("mode", MODES)
def test_a_poison_message_becomes_a_dead_letter_without_a_transaction(
    connection: sync.Connection, queue: str, mode: str
) -> None:
    """After max-delivery-attempts, which is 3 at this broker, or after the number that the block says."""
    for after, deliveries in ((None, 3), (2, 2)):
        fill(connection, queue, 1)
        seen = 0
        with connection.session(mode) as session:
            consumer = session.consumer(queue)
            while (message := consumer.receive(0.5)) is not None:
                seen += 1
                with pytest.raises(Failed), message.process(dead_letter_after=after):
                    raise Failed
        assert seen == deliveries
        with connection.session() as session:
            assert got(session.consumer("dead", filter=f"_AMQ_ORIG_QUEUE = '{queue}'").receive(5)).text == "0"


def test_a_delayed_redelivery(connection: sync.Connection, queue: str) -> None:
    fill(connection, queue, 2)
    with connection.session("individual") as session:
        consumer = session.consumer(queue)
        began = time.monotonic()
        assert got(consumer.receive(5)).reject(delay_s=0.5)
        second = got(consumer.receive(5))
        assert second.text == "1", "a message that waits does not hold up the next one"
        assert second.ack()
        again = got(consumer.receive(5))
        assert (again.text, again.delivery_count) == ("0", 2)
        assert time.monotonic() - began >= 0.45
        assert again.ack()


def test_modified(connection: sync.Connection, queue: str) -> None:
    fill(connection, queue, 1)
    with connection.session("individual") as session:
        consumer = session.consumer(queue)
        assert got(consumer.receive(5)).modified(undeliverable_here=True)
        assert consumer.receive(0.3) is None
        other = session.consumer(queue)
        message = got(other.receive(5))
        assert message.delivery_count == 1
        assert message.modified(delivery_failed=True)
        assert got(other.receive(5)).delivery_count == 2


def test_the_end_of_a_delivery_comes_once(connection: sync.Connection, queue: str) -> None:
    fill(connection, queue)
    with connection.session("individual") as session:
        consumer = session.consumer(queue)
        first, second = got(consumer.receive(5)), got(consumer.receive(5))
        assert first.ack()
        with pytest.raises(IllegalState, match="before"):
            first.reject()
        assert second.reject(requeue=False)
        with pytest.raises(IllegalState, match="given back before"):
            second.ack()
    with connection.session() as session:
        consumer = session.consumer(queue)
        first = got(consumer.receive(5))
        assert consumer.receive_nowait() is None
        with pytest.raises(IllegalState, match="acknowledged"):
            first.reject()


def test_client_mode_acknowledges_around_a_rejected_message(connection: sync.Connection, queue: str) -> None:
    fill(connection, queue, 4)
    with connection.session("client") as session:
        consumer = session.consumer(queue)
        messages = [got(consumer.receive(5)) for _ in range(4)]
        assert messages[1].reject(requeue=False)
        assert messages[3].reject(delay_s=60)
        assert messages[2].ack()
    assert left(connection, queue) == []


def test_transactions_in_blocks(connection: sync.Connection, queue: str) -> None:
    with connection.session(transacted=True) as session:
        producer = session.producer(queue)
        with session.transaction():
            producer.send("kept")
        with pytest.raises(Failed), session.transaction():
            producer.send("undone")
            raise Failed
        with pytest.raises(IllegalState, match=r"session\.transaction"):
            got(session.consumer(queue).receive(5)).process()
        session.rollback()
    assert left(connection, queue) == [("kept", 2)]
    with connection.session() as session, pytest.raises(IllegalState, match="not transacted"), session.transaction():
        pass


def test_transactions_in_blocks_of_the_asyncio_client(broker: Target, connection: sync.Connection, queue: str) -> None:
    async def main() -> None:
        async with await aio.connect(broker.url) as connection, await connection.session(transacted=True) as session:
            producer = await session.producer(queue)
            async with session.transaction():
                await producer.send("kept")
            with pytest.raises(Failed):
                async with session.transaction():
                    await producer.send("undone")
                    raise Failed

    asyncio.run(main())
    assert left(connection, queue) == [("kept", 1)]


def test_a_forgotten_commit_is_warned_about(connection: sync.Connection, queue: str) -> None:
    session = connection.session(transacted=True)
    session.producer(queue).send("forgotten")
    with pytest.warns(RuntimeWarning, match=r"test_message_work\.py:\d+ is closed with work that was never committed"):
        session.close()
    assert left(connection, queue) == []


def test_request_and_reply(broker: Target, connection: sync.Connection, queue: str) -> None:
    """A responder of asyncio, and requesters of both clients; an error gives the request back and ends the loop."""

    async def answer(request: aio.Received) -> object:
        if request.text == "fail" and not request.redelivered:
            raise Failed
        return {"echo": request.text}

    async def respond() -> None:
        async with await aio.connect(broker.url) as connection, await connection.session("individual") as session:
            await session.respond(queue, answer)

    async def main() -> None:
        responder = asyncio.create_task(respond())
        async with await aio.connect(broker.url) as asking, await asking.session() as session:
            answers = await asyncio.gather(*(session.request(queue, str(each), timeout_s=10) for each in range(5)))
            assert [each.content for each in answers] == [{"echo": str(each)} for each in range(5)]
        with connection.session() as session:
            reply = await asyncio.to_thread(session.request, queue, "from sync", timeout_s=10)
            assert reply.content == {"echo": "from sync"}
            failed = asyncio.create_task(asyncio.to_thread(session.request, queue, "fail", timeout_s=10))
            with pytest.raises(Failed):
                await responder
            responder = asyncio.create_task(respond())
            assert (await failed).content == {"echo": "fail"}
        responder.cancel()
        with pytest.raises(asyncio.CancelledError):
            await responder

    asyncio.run(main())


def test_a_request_without_an_answer_times_out(connection: sync.Connection, queue: str) -> None:
    with connection.session() as session:
        with pytest.raises(CallTimedOut, match=f"no answer from {queue} within 0.1 s"):
            session.request(queue, "silence", timeout_s=0.1)
        consumer = session.consumer(queue)
        assert not session.reply(got(consumer.receive(5)), "too late"), "its temporary queue was deleted"
        session.producer(queue).send("wants no answer")
        assert not session.reply(got(consumer.receive(5)), "an answer")
    with connection.session(transacted=True) as session, pytest.raises(IllegalState, match="transaction"):
        session.request(queue, "never sent")


def test_a_whole_message_of_any_kind_can_be_sent(connection: sync.Connection, queue: str) -> None:
    with connection.session() as session:
        session.producer(queue).send(Message(b"\xac\xed", type=MessageType.OBJECT))
        message = got(session.consumer(queue).receive(5))
        assert (message.type, message.body, message.content) == (MessageType.OBJECT, b"\xac\xed", b"\xac\xed")
        with pytest.raises(IllegalState, match="object message"):
            assert message.text


def test_what_connections_and_sessions_show(connection: sync.Connection, queue: str) -> None:
    session = connection.session("individual")
    session.producer(queue)
    assert repr(session) == "<Session individual, open, producers: 1, consumers: 0>"
    assert "connected" in repr(connection)
    session.close()
    assert repr(session) == "<Session individual, closed, producers: 0, consumers: 0>"
