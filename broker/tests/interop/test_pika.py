"""The AMQP 0-9-1 client pika, as it is, against our broker: requests, both protocols on one queue, and a failover."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]  # has no types
import pytest
from pika.exceptions import (  # type: ignore[import-untyped]
    AMQPError,
    ChannelClosedByBroker,
    NackError,
    UnroutableError,
)

from support.nodes import Nodes, nodes_in
from support.pika_clients import connected, connected_again
from support.processes import Pair
from understudy.client.sync import connect
from understudy.message import Message

#: Messages between two kills.
MESSAGES = 300


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with nodes_in(Path(tmp_path_factory.mktemp("pika"))) as nodes:
        yield nodes.active()


@pytest.fixture
def channel(pair: Pair) -> Iterator[Any]:
    connection = connected(pair.primary.port)
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.mark.feature("AMQP 0-9-1: publish, get, acknowledge, redelivery")
def test_publish_get_and_redelivery(channel: Any) -> None:
    channel.queue_declare("plain", durable=True)
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2, headers={"n": 1, "s": "x"}, content_type="text/plain")
    channel.basic_publish("", "plain", b"one", properties, mandatory=True)
    with pytest.raises(UnroutableError):
        channel.basic_publish("", "missing", b"two", mandatory=True)
    method, found, body = channel.basic_get("plain")
    assert (method.redelivered, found.headers, found.content_type, body) == (
        False,
        {"n": 1, "s": "x"},
        "text/plain",
        b"one",
    )
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, _ = channel.basic_get("plain")
    assert method.redelivered
    channel.basic_ack(method.delivery_tag)
    assert channel.queue_declare("plain", passive=True).method.message_count == 0


@pytest.mark.feature("AMQP 0-9-1: consumers with prefetch")
def test_consumers_with_prefetch(channel: Any) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.exchange_declare("events", "topic")
    channel.queue_bind(queue, "events", "a.#")
    channel.basic_qos(prefetch_count=3)
    for number in range(20):
        channel.basic_publish("events", f"a.{number}", str(number).encode())
    found = []
    for method, _, body in channel.consume(queue):
        found.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(found) == 20:
            break
    assert found == list(range(20))


@pytest.mark.feature("AMQP 0-9-1: large bodies")
def test_large_bodies(channel: Any) -> None:
    channel.queue_declare("large")
    channel.confirm_delivery()
    body = bytes(range(256)) * 20_000
    channel.basic_publish("", "large", body)
    assert channel.basic_get("large", auto_ack=True)[2] == body


@pytest.mark.feature("AMQP 0-9-1: errors close the channel")
def test_errors_of_channels(channel: Any) -> None:
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.queue_declare("missing", passive=True)
    assert raised.value.reply_code == 404


@pytest.mark.feature("AMQP 0-9-1: confirms and returned messages")
def test_rejected_publishes(channel: Any) -> None:
    channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", "full", b"1")
    with pytest.raises(NackError):
        channel.basic_publish("", "full", b"2")


@pytest.mark.feature("AMQP 0-9-1: expiry and dead letters")
def test_expired_messages_become_dead_letters(channel: Any) -> None:
    channel.queue_declare("late")
    channel.queue_declare("soon", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "late"})
    channel.basic_publish("", "soon", b"over", pika.BasicProperties(expiration="100"))
    method, found, body = next(channel.consume("late"))
    assert body == b"over"
    assert found.headers["x-death"][0]["reason"] == "expired"
    channel.basic_ack(method.delivery_tag)


@pytest.mark.feature("AMQP 0-9-1: one queue for CORE and AMQP")
def test_a_queue_of_both_protocols(pair: Pair, channel: Any) -> None:
    channel.queue_declare("both", durable=True)
    channel.basic_publish("", "both", b"from pika", pika.BasicProperties(delivery_mode=2, headers={"colour": "red"}))
    with connect(f"tcp://127.0.0.1:{pair.primary.port}") as connection, connection.session() as session:
        with session.consumer("both", filter="colour = 'red'") as consumer:
            received = consumer.receive(30)
            assert received is not None
            assert bytes(received.body) == b"from pika"
            received.ack()
        with session.producer("both") as producer:
            producer.send(Message(b"from core", address="both", properties={"n": 7}))
    _, found, body = next(channel.consume("both", auto_ack=True))
    assert (found.headers, body) == ({"n": 7}, b"from core")


@pytest.mark.feature("AMQP 0-9-1: failover without a lost confirmed message")
def test_no_confirmed_message_is_lost_when_the_active_node_is_killed(tmp_path: Path) -> None:
    with nodes_in(tmp_path) as nodes:
        _kill_while_publishing(nodes)


def _kill_while_publishing(nodes: Nodes) -> None:
    pair = nodes.pair()
    pair.start()
    ports = pair.primary.port, pair.backup.port
    connection = connected(*ports)
    channel = connection.channel()
    channel.exchange_declare("orders", "direct", durable=True)
    channel.queue_declare("work", durable=True)
    channel.queue_bind("work", "orders", "new")
    confirmed: list[int] = []
    channel.confirm_delivery()
    number = 0
    while number < 2 * MESSAGES:
        if number == MESSAGES:
            pair.primary.kill()
        try:
            channel.basic_publish(
                "orders", "new", json.dumps(number).encode(), pika.BasicProperties(delivery_mode=2), mandatory=True
            )
        except (AMQPError, OSError):
            channel = connected_again(*ports).channel()
            channel.confirm_delivery()
            # as an application does: an unconfirmed message is sent again
            continue
        confirmed.append(number)
        number += 1
    assert confirmed == list(range(2 * MESSAGES))
    found = set()
    for method, _, body in channel.consume("work", inactivity_timeout=5):
        if method is None:
            break
        found.add(json.loads(body))
        channel.basic_ack(method.delivery_tag)
        if len(found) == 2 * MESSAGES and not channel.get_waiting_message_count():
            break
    assert found == set(confirmed)
