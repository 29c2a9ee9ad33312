"""Ways of publishes that a connection remembers: each change of their destinations ends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.amqp091 import AmqpClient, AmqpNode
from understudy import limits
from understudy.kernel.amqp091 import PublishTarget
from understudy.protocols.amqp091.runs import publishes
from understudy.protocols.amqp091.runs.methods import PublishMethod
from understudy.protocols.amqp091.runs.ways import Way
from understudy.routing.addresses.updates import change_queue
from understudy.routing.exchanges.exchange import Exchange
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import content_frames
from understudy.wire.amqp091.properties import BasicProperties, encode_properties

PROPERTIES = encode_properties(BasicProperties(delivery_mode=2))


def publish(client: AmqpClient, exchange: str = "", key: str = "q", body: bytes = b"body") -> None:
    """A publish that comes in a read of its own."""
    client.send_bytes(content_frames(m.BasicPublish(0, exchange, key), PROPERTIES, body, 1, 4096))


def started(monkeypatch: pytest.MonkeyPatch) -> tuple[AmqpNode, AmqpClient, list[str]]:
    """A client with confirms, two queues and a bound exchange; and the names of exchanges that are looked up."""
    node = AmqpNode()
    client = node.channel()
    client.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    for queue in ("q", "r"):
        client.ask(m.QueueDeclare(0, queue, durable=True), m.QueueDeclareOk)
    client.ask(m.ExchangeDeclare(0, "e", "direct"), m.ExchangeDeclareOk)
    client.ask(m.QueueBind(0, "q", "e", "key"), m.QueueBindOk)
    sought: list[str] = []
    real = publishes.PublishRuns._way

    def counted(
        runs: publishes.PublishRuns, exchange: Exchange, method: PublishMethod, target: PublishTarget
    ) -> Way | None:
        sought.append(method.exchange)
        return real(runs, exchange, method, target)

    monkeypatch.setattr(publishes.PublishRuns, "_way", counted)
    return node, client, sought


def counts(node: AmqpNode) -> dict[str, int]:
    return {name: queue.message_count for name, queue in node.world.office.directory.queues.items()}


def test_a_publish_in_a_later_read_goes_the_known_way(monkeypatch: pytest.MonkeyPatch) -> None:
    node, client, sought = started(monkeypatch)
    for _ in range(3):
        publish(client, "e", "key")
        client.send(m.BasicQos(0, 1))
    # the first one asks for the permission, and is taken by its frames
    assert sought == ["e", "e"]
    assert counts(node) == {"q": 3, "r": 0}
    assert [each.method for each in client.received() if isinstance(each.method, m.BasicAck)] == [
        m.BasicAck(number) for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda client: client.ask(m.QueueBind(0, "r", "e", "key"), m.QueueBindOk), {"q": 3, "r": 1}),
        (lambda client: client.ask(m.QueueUnbind(0, "q", "e", "key"), m.QueueUnbindOk), {"q": 2, "r": 0}),
        (lambda client: client.ask(m.QueueDelete(0, "q"), m.QueueDeleteOk), {"r": 0}),
    ],
    ids=["bind", "unbind", "delete"],
)
def test_a_change_of_another_client_leads_later_publishes_elsewhere(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[AmqpClient], object], expected: dict[str, int]
) -> None:
    node, client, _ = started(monkeypatch)
    other = node.channel()
    for _ in range(2):
        publish(client, "e", "key")
    change(other)
    publish(client, "e", "key")
    assert counts(node) == expected
    assert client.received()[-1].method == m.BasicAck(3)


def test_an_exchange_that_is_deleted_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    node, client, _ = started(monkeypatch)
    for _ in range(2):
        publish(client, "e", "key")
    node.channel().ask(m.ExchangeDelete(0, "e"), m.ExchangeDeleteOk)
    client.received()
    publish(client, "e", "key")
    closed = client.received()[-1].method
    assert isinstance(closed, m.ChannelClose)
    assert closed.reply_code == 404


def test_a_queue_that_was_made_again_gets_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    node, client, _ = started(monkeypatch)
    for _ in range(2):
        publish(client)
    other = node.channel()
    other.ask(m.QueueDelete(0, "q"), m.QueueDeleteOk)
    other.ask(m.QueueDeclare(0, "q", durable=True, arguments={"x-max-length": 1}), m.QueueDeclareOk)
    for _ in range(3):
        publish(client)
    assert counts(node)["q"] == 1


def test_a_queue_that_an_operator_disables_gets_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    node, client, _ = started(monkeypatch)
    for _ in range(2):
        publish(client)
    queue = node.world.office.directory.queues["q"]
    change_queue(node.world.office, queue, replace(queue.configuration, enabled=False))
    publish(client)
    assert counts(node)["q"] == 2


def test_a_permission_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node, client, _ = started(monkeypatch)
    for _ in range(2):
        publish(client)
    sends = client.handler.channels[1].session.sends
    sends.forget_permissions()
    asked: list[str] = []
    real = sends.permit
    monkeypatch.setattr(type(sends), "permit", lambda self, name: asked.append(name) or real(name))
    publish(client)
    assert asked == ["q"]
    assert counts(node)["q"] == 3


def test_the_number_of_ways_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    node, client, _ = started(monkeypatch)
    for number in range(limits.AMQP091_WAYS_MAX + 10):
        client.ask(m.QueueBind(0, "q", "e", f"key {number}"), m.QueueBindOk)
    for number in range(limits.AMQP091_WAYS_MAX + 10):
        publish(client, "e", f"key {number}")
    assert 0 < len(client.handler.ways.found) <= limits.AMQP091_WAYS_MAX
    assert counts(node)["q"] == limits.AMQP091_WAYS_MAX + 10
