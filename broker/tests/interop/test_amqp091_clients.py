"""Clients of AMQP 0-9-1 beside pika, as they are, against our broker: confirms, consumers, and failovers.

Each client connects again as its documentation says: kombu by its list of URLs, aio-pika by its robust connection to
the node that comes back, and the others by the loop of an application.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import aio_pika
import aiormq
import amqp  # type: ignore[import-untyped]  # has no types
import amqpstorm
import kombu  # type: ignore[import-untyped]  # has no types
import kombu.exceptions  # type: ignore[import-untyped]  # has no types
import pytest

from support.nodes import Nodes, nodes_in

#: Messages before and after a kill.
MESSAGES = 100
ACTIVATION_TIMEOUT_S = 60
QUEUE = "work"


class Client(Protocol):
    """The calls of a client that the tests need."""

    def __init__(self, *ports: int) -> None:
        """Connect to the first port that answers, and declare the queue."""

    def publish(self, body: bytes) -> None:
        """Publish a durable message and wait for its confirm. Raises an error of ``errors`` when the node is gone."""

    def received(self, count: int) -> list[bytes]:
        """Consume and acknowledge that many messages."""

    def close(self) -> None:
        """Close the connection."""


class PyAmqp:
    """py-amqp."""

    errors = (amqp.exceptions.AMQPError, OSError)

    def __init__(self, *ports: int) -> None:
        self._connection = _first(ports, self._connect, self.errors)
        self._channel = self._connection.channel()
        self._channel.queue_declare(QUEUE, durable=True, auto_delete=False)

    def _connect(self, port: int) -> Any:
        connection = amqp.Connection(f"127.0.0.1:{port}", confirm_publish=True)
        connection.connect()
        return connection

    def publish(self, body: bytes) -> None:
        self._channel.basic_publish(amqp.Message(body, delivery_mode=2), "", QUEUE, timeout=30)

    def received(self, count: int) -> list[bytes]:
        found: list[bytes] = []

        def take(message: Any) -> None:
            found.append(bytes(message.body))
            message.channel.basic_ack(message.delivery_tag)

        self._channel.basic_qos(0, 10, False)
        self._channel.basic_consume(QUEUE, callback=take)
        while len(found) < count:
            self._connection.drain_events(timeout=30)
        return found

    def close(self) -> None:
        self._connection.close()


class Kombu:
    """kombu, which has a list of URLs and connects again itself."""

    errors = (kombu.exceptions.OperationalError,)

    def __init__(self, *ports: int) -> None:
        urls = ";".join(f"amqp://guest:guest@127.0.0.1:{port}//" for port in ports)
        self._connection = kombu.Connection(urls, transport_options={"confirm_publish": True})
        self._queue = kombu.Queue(QUEUE, kombu.Exchange(""), QUEUE, durable=True)
        self._producer = self._connection.Producer(serializer=None)

    def publish(self, body: bytes) -> None:
        policy = {"max_retries": 600, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
        options = {"content_type": "application/octet-stream", "content_encoding": "binary"}
        self._producer.publish(
            body, routing_key=QUEUE, declare=[self._queue], retry=True, retry_policy=policy, delivery_mode=2, **options
        )

    def received(self, count: int) -> list[bytes]:
        found: list[bytes] = []

        def take(body: Any, message: Any) -> None:
            found.append(bytes(message.body))
            message.ack()

        with self._connection.Consumer([self._queue], callbacks=[take], accept=None, prefetch_count=10):
            while len(found) < count:
                self._connection.drain_events(timeout=30)
        return found

    def close(self) -> None:
        self._connection.release()


class Amqpstorm:
    """amqpstorm."""

    errors = (amqpstorm.AMQPError, OSError)

    def __init__(self, *ports: int) -> None:
        self._connection = _first(ports, self._connect, self.errors)
        self._channel = self._connection.channel()
        self._channel.queue.declare(QUEUE, durable=True)
        self._channel.confirm_deliveries()

    def _connect(self, port: int) -> amqpstorm.Connection:
        return amqpstorm.Connection("127.0.0.1", "guest", "guest", port=port, timeout=30)

    def publish(self, body: bytes) -> None:
        assert self._channel.basic.publish(body, QUEUE, properties={"delivery_mode": 2}, mandatory=True)

    def received(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        self._channel.basic.qos(10)
        self._channel.basic.consume(queue=QUEUE)
        for message in self._channel.build_inbound_messages():
            found.append(bytes(message._body))
            message.ack()
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self._connection.close()


class Asynchronous(ABC):
    """A client on a loop of its own."""

    def __init__(self, *ports: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(ports))

    @abstractmethod
    async def _open(self, ports: tuple[int, ...]) -> None:
        """Connect to the first of the ports that answers."""

    @abstractmethod
    async def _publish(self, body: bytes) -> None:
        """Publish to the queue and wait for the confirm."""

    @abstractmethod
    async def _received(self, count: int) -> list[bytes]:
        """Bodies of so many messages of the queue, in their order."""

    @abstractmethod
    async def _close(self) -> None:
        """Close the connection."""

    def publish(self, body: bytes) -> None:
        self._loop.run_until_complete(asyncio.wait_for(self._publish(body), 30))

    def received(self, count: int) -> list[bytes]:
        return self._loop.run_until_complete(asyncio.wait_for(self._received(count), 60))

    def close(self) -> None:
        self._loop.run_until_complete(self._close())
        self._loop.close()


class Aiormq(Asynchronous):
    """aiormq."""

    errors = (aiormq.exceptions.AMQPError, OSError, TimeoutError)

    async def _open(self, ports: tuple[int, ...]) -> None:
        async with asyncio.timeout(ACTIVATION_TIMEOUT_S):
            for port in itertools.cycle(ports):
                try:
                    self._connection = await aiormq.connect(f"amqp://guest:guest@127.0.0.1:{port}//")
                    break
                except (aiormq.exceptions.AMQPError, OSError):
                    # the time is limited and not the number of attempts; a refusal comes at once
                    await asyncio.sleep(0.01)
        self._channel = await self._connection.channel()
        await self._channel.queue_declare(QUEUE, durable=True)

    async def _publish(self, body: bytes) -> None:
        properties = aiormq.spec.Basic.Properties(delivery_mode=2)
        await self._channel.basic_publish(body, routing_key=QUEUE, properties=properties, mandatory=True)

    async def _received(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        everything = asyncio.Event()

        async def take(message: Any) -> None:
            found.append(message.body)
            await self._channel.basic_ack(message.delivery_tag)
            if len(found) == count:
                everything.set()

        await self._channel.basic_qos(prefetch_count=10)
        await self._channel.basic_consume(QUEUE, take)
        await everything.wait()
        return found

    async def _close(self) -> None:
        await self._connection.close()


class AioPika(Asynchronous):
    """aio-pika with its robust connection, which connects to one port again and again."""

    errors = (aio_pika.exceptions.AMQPError, aiormq.exceptions.ChannelInvalidStateError, OSError, TimeoutError)

    async def _open(self, ports: tuple[int, ...]) -> None:
        url = f"amqp://guest:guest@127.0.0.1:{ports[0]}//"
        self._connection = await aio_pika.connect_robust(url, reconnect_interval=0.1)
        self._channel = await self._connection.channel()
        await self._channel.set_qos(10)
        self._queue = await self._channel.declare_queue(QUEUE, durable=True)

    async def _publish(self, body: bytes) -> None:
        await self._connection.ready()
        await self._channel.ready()
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(message, QUEUE)

    async def _received(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        async with self._queue.iterator() as messages:
            async for message in messages:
                found.append(message.body)
                await message.ack()
                if len(found) == count:
                    break
        return found

    async def _close(self) -> None:
        await self._connection.close()


def _first(ports: tuple[int, ...], connect: Any, errors: tuple[type[Exception], ...]) -> Any:
    """A connection to whichever node becomes active; the nodes answer or refuse within the limits of the client."""
    # a refusal comes at once, so the time is limited and not the number of attempts
    deadline = time.monotonic() + ACTIVATION_TIMEOUT_S
    for port in itertools.cycle(ports):
        with contextlib.suppress(*errors):
            return connect(port)
        if time.monotonic() > deadline:
            break
    raise AssertionError(f"no node of {ports} became active")


CLIENTS = [PyAmqp, Kombu, Amqpstorm, Aiormq, AioPika]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with nodes_in(Path(tmp_path_factory.mktemp("clients"))) as nodes:
        yield nodes.active().primary.port


@pytest.mark.feature("AMQP 0-9-1: kombu, py-amqp, amqpstorm, aiormq, aio-pika publish with confirms and consume")
@pytest.mark.parametrize("kind", CLIENTS)
def test_publish_and_consume(port: int, kind: Any) -> None:
    client: Client = kind(port)
    bodies = [b"%d of %s" % (number, kind.__name__.encode()) for number in range(50)]
    for body in bodies:
        client.publish(body)
    assert client.received(len(bodies)) == bodies
    client.close()


@pytest.mark.feature("AMQP 0-9-1: kombu, py-amqp, amqpstorm, aiormq over a failover without a lost confirmed message")
# amqpstorm does not notice that the node is gone: it waits a minute for the confirm
@pytest.mark.parametrize("kind", [PyAmqp, Kombu, pytest.param(Amqpstorm, marks=pytest.mark.long), Aiormq])
def test_no_confirmed_message_is_lost_when_the_active_node_is_killed(nodes: Nodes, kind: Any) -> None:
    pair = nodes.pair().start()
    ports = pair.primary.port, pair.backup.port
    client: Client = kind(*ports)
    number = 0
    while number < 2 * MESSAGES:
        if number == MESSAGES:
            pair.primary.kill()
        try:
            client.publish(b"%d" % number)
        except kind.errors:
            # an unconfirmed message is sent again, as an application does
            client = kind(*ports)
            continue
        number += 1
    # the message that was sent again may be there twice
    found = client.received(2 * MESSAGES)
    assert {int(body) for body in found} >= set(range(2 * MESSAGES - 1))
    client.close()


@pytest.mark.feature("AMQP 0-9-1: the robust connection of aio-pika and the list of kombu over failover and failback")
@pytest.mark.parametrize("kind", [AioPika, Kombu])
def test_a_client_goes_on_after_failover_and_failback(nodes: Nodes, kind: Any) -> None:
    pair = nodes.pair().start()
    client: Client = kind(pair.primary.port, pair.backup.port)
    client.publish(b"before")
    pair.primary.kill()
    pair.backup.wait_ready("active")
    pair.primary.start().wait_ready("active")
    sent = False
    while not sent:
        with contextlib.suppress(*kind.errors):
            client.publish(b"after")
            sent = True
    assert client.received(2) == [b"before", b"after"]
    client.close()
