"""Our client over AMQP 0-9-1: against our broker and against Debian's RabbitMQ, and over links that are cut.

RabbitMQ comes from its Debian package (``.ci/system-packages rabbitmq`` installs it).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.load import CannotRun
from benchmarks.targets import RabbitMq
from support.nodes import nodes_in
from support.processes import Node
from support.proxy import proxy_to
from understudy.client import aio
from understudy.client.sync import Connection, connect
from understudy.errors import (
    AddressNotFound,
    AuthenticationFailed,
    ConfigError,
    LocalProtocolError,
    QueueNotFound,
    TransactionRolledBack,
)

PATIENCE_S = 30
RABBITMQ = pytest.param("rabbitmq", marks=pytest.mark.maven)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of our broker, which serves both protocols."""
    with nodes_in(tmp_path_factory.mktemp("ours")) as nodes:
        node = nodes.target().node
        assert isinstance(node, Node)
        yield node.port


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of RabbitMQ."""
    peer = RabbitMq(tmp_path_factory.mktemp("rabbitmq") / "rabbitmq")
    try:
        peer.prepare()
        peer.start()
    except CannotRun as error:
        peer.stop()
        pytest.skip(f"RabbitMQ cannot be had: {error}")
    yield peer.port
    peer.stop()


@pytest.fixture(params=["ours", RABBITMQ])
def port(request: pytest.FixtureRequest) -> int:
    """Port of each broker in turn."""
    found: int = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def connection(port: int) -> Iterator[Connection]:
    """A connection of the blocking client."""
    with connect(f"amqp091://127.0.0.1:{port}/") as made:
        yield made


def test_messages_of_all_kinds(connection: Connection) -> None:
    with connection.session() as session:
        producer, consumer = session.producer("kinds"), session.consumer("kinds")
        bodies: list[Any] = ["text é", b"bytes", {"map": 1, "of": "values"}, [1, "stream", 2.5], None, b"l" * 400_000]
        properties = {"text": "é", "long": 1 << 40, "double": 1.5, "yes": True, "raw": b"\xff"}
        for body in bodies:
            producer.send(body, properties=properties, priority=7, correlation_id="17", reply_to="answers")
        producer.send(json={"a": 1}, durable=False)
        for body in bodies:
            message = consumer.receive(PATIENCE_S)
            assert message is not None
            assert message.content == body
            assert dict(message.properties).items() >= properties.items()
            assert (message.priority, message.durable, message.delivery_count) == (7, True, 1)
            assert (message.correlation_id, message.reply_to) == ("17", "queue://answers")
        last = consumer.receive(PATIENCE_S)
        assert last is not None
        assert last.json() == {"a": 1}
        assert not last.durable
        assert consumer.receive(0.2) is None


@pytest.mark.parametrize("mode", ["auto", "client", "individual", "dups-ok", "pre"])
def test_many_messages_in_each_mode(port: int, mode: str) -> None:
    """More messages than the window holds, which the application keeps without an acknowledgement."""
    count, queue = 600, f"many.{mode}"
    with connect(f"amqp091://127.0.0.1:{port}?consumerWindowSize=65536") as connection:
        with connection.session(mode) as session:
            producer, consumer = session.producer(queue), session.consumer(queue)
            for number in range(count):
                producer.wait_sendable()
                producer.send_nowait(str(number))
            for number in range(count):
                message = consumer.receive(PATIENCE_S)
                assert message is not None, number
                assert message.text == str(number)
                if mode == "individual":
                    message.ack()
            message.ack()
        with connection.session() as session:
            assert session.consumer(queue).receive(0.3) is None


def test_a_message_that_is_given_back_comes_again(connection: Connection) -> None:
    with connection.session("individual") as session:
        session.producer("again").send("x")
        consumer = session.consumer("again")
        message = consumer.receive(PATIENCE_S)
        assert message is not None
        assert message.reject()
        message = consumer.receive(PATIENCE_S)
        assert message is not None
        assert message.redelivered
        assert message.ack()


def test_transactions(connection: Connection) -> None:
    with connection.session(transacted=True) as session:
        producer, consumer = session.producer("tx"), session.consumer("tx")
        producer.send("undone")
        session.rollback()
        producer.send("kept")
        session.commit()
        for _ in range(2):
            message = consumer.receive(PATIENCE_S)
            assert message is not None
            assert message.text == "kept"
            session.rollback()
        message = consumer.receive(PATIENCE_S)
        assert message is not None
        assert message.redelivered
        session.commit()
        assert consumer.receive(0.2) is None


def test_destinations_made_on_demand_are_made_again(connection: Connection) -> None:
    """The queue or the exchange is deleted while the producer and the subscriber use it."""
    with connection.session() as session, connection.session() as other:
        producer = session.producer("again-queue")
        producer.send("lost")
        other.delete_queue("again-queue")
        for number in range(100):
            producer.send_nowait(str(number))
        producer.send("last", durable=False)
        consumer = session.consumer("again-queue")
        for text in (*map(str, range(100)), "last"):
            message = consumer.receive(PATIENCE_S)
            assert message is not None
            assert message.text == text


def test_subscriptions_are_queues_of_a_fanout_exchange(connection: Connection) -> None:
    with connection.session() as session:
        one, two = session.subscriber("news"), session.subscriber("news", name="reader")
        session.producer("news", routing="multicast").send("n")
        for subscriber in (one, two):
            message = subscriber.receive(PATIENCE_S)
            assert message is not None
            assert message.text == "n"


def test_a_request_has_its_answer(port: int, connection: Connection) -> None:
    def respond() -> None:
        with connect(f"amqp091://127.0.0.1:{port}") as other, other.session() as session:
            request = session.consumer("requests").receive(PATIENCE_S)
            assert request is not None
            session.reply(request, str(request.text).upper())

    thread = threading.Thread(target=respond)
    thread.start()
    with connection.session() as session:
        assert session.request("requests", "hello", timeout_s=PATIENCE_S).text == "HELLO"
    thread.join()


def test_errors_name_the_cause(port: int, connection: Connection) -> None:
    with connection.session() as session:
        with pytest.raises(QueueNotFound):
            session.consumer("missing", auto_create=False)
        with pytest.raises(AddressNotFound, match="missing"):
            session.producer("missing", auto_create=False).send("x")
        with pytest.raises(QueueNotFound):
            session.delete_queue("missing")
        producer = session.producer("limits")
        for options in ({"delay_s": 1}, {"group_id": "g"}, {"last_value_key": "k"}, {"duplicate_id": "d"}):
            with pytest.raises(LocalProtocolError, match="not possible over AMQP 0-9-1"):
                producer.send("x", **options)  # type: ignore[arg-type]  # one option each
        with pytest.raises(LocalProtocolError, match="a browser"):
            list(session.browser("limits"))
        producer.send("the session works")
        assert session.consumer("limits").receive(PATIENCE_S) is not None
    with pytest.raises(ConfigError):
        connect(f"amqp091://127.0.0.1:{port}/nowhere")


@pytest.mark.maven
def test_a_wrong_password_is_refused(rabbitmq: int) -> None:
    with pytest.raises(AuthenticationFailed):
        connect(f"amqp091://guest:wrong@127.0.0.1:{rabbitmq}")


def test_the_asyncio_client(port: int) -> None:
    async def run() -> None:
        async with (
            await aio.connect(f"amqp091://127.0.0.1:{port}") as connection,
            await connection.session() as session,
        ):
            producer = await session.producer("async")
            sends = []
            for number in range(300):
                await producer.wait_sendable()
                sends.append(producer.send_nowait(str(number)))
            await asyncio.gather(*sends)
            consumer = await session.consumer("async")
            for number in range(300):
                message = await consumer.receive(PATIENCE_S)
                assert message is not None
                assert message.text == str(number)

    asyncio.run(run())


@pytest.mark.parametrize(("sender", "reader"), [("tcp", "amqp091"), ("amqp091", "tcp"), ("amqp091", "amqp091")])
def test_a_message_is_equal_over_both_protocols(ours: int, sender: str, reader: str) -> None:
    queue = f"equal.{sender}.{reader}"
    bodies: list[Any] = ["text é", b"bytes", {"a": 1, "b": "c"}, [1, "x"], None]
    properties = {"text": "é", "long": 1 << 40, "double": 1.5, "yes": True, "raw": b"\xff"}
    with connect(f"{sender}://127.0.0.1:{ours}") as connection, connection.session() as session:
        producer = session.producer(queue)
        for body in bodies:
            producer.send(body, properties=properties, priority=3, correlation_id="c", durable=False)
        producer.send(b"", ttl_s=600, priority=3)
    with connect(f"{reader}://127.0.0.1:{ours}") as connection, connection.session() as session:
        consumer = session.consumer(queue)
        for body in bodies:
            message = consumer.receive(PATIENCE_S)
            assert message is not None
            # a message without a body has no type in AMQP 0-9-1, and is one of empty bytes for a reader of CORE
            assert message.content == (b"" if body is None and (sender, reader) == ("amqp091", "tcp") else body)
            assert dict(message.properties).items() >= properties.items()
            assert (message.priority, message.durable, message.correlation_id) == (3, False, "c")


def test_a_session_that_is_cut_again_and_again_stores_each_message_once(ours: int) -> None:
    """The broker resumes the session, so publishes without a confirm are sent again with their numbers."""
    count = expected = 1500

    async def run() -> list[str]:
        with proxy_to(ours) as proxy:
            url = f"amqp091://127.0.0.1:{proxy.port}?reconnectAttempts=-1&retryInterval=20"
            connection = await aio.connect(url)
            session = await connection.session()
            producer = await session.producer("cut", window=200)
            sends = []
            for number in range(count):
                await producer.wait_sendable()
                sends.append(producer.send_nowait(str(number)))
                if number % 150 == 75:
                    await asyncio.sleep(0)
                    proxy.cut()
            await asyncio.gather(*sends)
            assert connection.failovers >= 3
            await connection.close()
        async with (
            await aio.connect(f"amqp091://127.0.0.1:{ours}") as connection,
            await connection.session() as session,
        ):
            consumer = await session.consumer("cut")
            found = []
            while (message := await consumer.receive(1 if len(found) >= expected else PATIENCE_S)) is not None:
                found.append(str(message.text))
            return found

    assert asyncio.run(run()) == [str(number) for number in range(count)]


def test_transactions_over_cut_links_take_effect_once(ours: int) -> None:
    """A commit without an answer is decided by the status of the channel, or its transaction is done again."""
    count, expected = 40, 120

    async def run() -> list[str]:
        with proxy_to(ours) as proxy:
            url = f"amqp091://127.0.0.1:{proxy.port}?reconnectAttempts=-1&retryInterval=20"
            connection = await aio.connect(url)
            session = await connection.session(transacted=True)
            producer = await session.producer("cut.tx")
            for number in range(count):
                attempts = 0
                while True:
                    attempts += 1
                    try:
                        for part in range(3):
                            await producer.send(f"{number}.{part}")
                        commit = asyncio.ensure_future(session.commit())
                        await asyncio.sleep(0.002 * (number % 5))
                        if number % 4 == 1 and attempts == 1:
                            proxy.cut()
                        await commit
                        break
                    except TransactionRolledBack:
                        continue
            assert connection.failovers >= 3
            await connection.close()
        async with (
            await aio.connect(f"amqp091://127.0.0.1:{ours}") as connection,
            await connection.session() as session,
        ):
            consumer = await session.consumer("cut.tx")
            found = []
            while (message := await consumer.receive(1 if len(found) >= expected else PATIENCE_S)) is not None:
                found.append(str(message.text))
            return found

    assert asyncio.run(run()) == [f"{number}.{part}" for number in range(count) for part in range(3)]
