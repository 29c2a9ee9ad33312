"""Requests of a channel of AMQP 0-9-1 that wait, and later ones."""

from __future__ import annotations

from typing import Any

import pytest

from support.amqp091 import AmqpClient, AmqpNode, bodies, declared
from understudy.limits import AMQP091_HELD_INPUT_BYTES_PAUSE, OUTGOING_BYTES_PAUSE
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import content_frames, method_frame
from understudy.wire.amqp091.layout import Method
from understudy.wire.amqp091.properties import BasicProperties, encode_properties


def started(**options: Any) -> tuple[AmqpNode, AmqpClient]:
    """A client with two channels and a queue, at a node whose disk does not keep up by itself."""
    node = AmqpNode(automatic=False)
    client = node.amqp_client()
    client.open(**options)
    for number in (1, 2):
        client.ask(m.ChannelOpen(), m.ChannelOpenOk, number)
    client.send(m.QueueDeclare(0, "q", durable=True))
    node.settle()
    client.received()
    return node, client


def frame(method: Method, channel: int = 1) -> bytes:
    return method_frame(method, channel)


def content(body: bytes, queue: str = "q", channel: int = 1) -> bytes:
    properties = encode_properties(BasicProperties(delivery_mode=2))
    return content_frames(m.BasicPublish(0, "", queue), properties, body, channel, 4096)


def answers(client: AmqpClient) -> list[Method]:
    return [each.method for each in client.received()]


def test_a_queue_that_is_deleted_and_declared_again_is_there() -> None:
    node, client = started()
    client.send_bytes(content(b"1") + frame(m.QueueDelete(0, "q")) + frame(m.QueueDeclare(0, "q", durable=True)))
    node.settle()
    assert answers(client) == [m.QueueDeleteOk(1), m.QueueDeclareOk("q", 0, 0)]
    assert list(node.world.office.directory.queues) == ["q"]


@pytest.mark.parametrize("count", [1, 5])
def test_a_purge_leaves_later_publishes(count: int) -> None:
    node, client = started()
    later = b"".join(content(b"later") for _ in range(count))
    client.send_bytes(content(b"1") + frame(m.QueuePurge(0, "q")) + later)
    node.settle()
    assert answers(client) == [m.QueuePurgeOk(1)]
    assert bodies(client) == [b"later"] * count


def test_a_declare_counts_earlier_messages_only() -> None:
    node, client = started()
    client.send_bytes(content(b"1") + frame(m.QueueDeclare(0, "q", passive=True)) + content(b"2"))
    node.settle()
    assert answers(client) == [m.QueueDeclareOk("q", 1, 0)]


def test_a_queue_that_the_client_knows_is_declared_again_without_waiting_for_the_disk() -> None:
    """Celery declares its queue before each publish. A passive declare waits: it asks for the number of messages."""
    node, client = started()
    declare = m.QueueDeclare(0, "q", durable=True)
    client.send_bytes(content(b"1", channel=2) + frame(declare, 2))
    assert answers(client) == [], "the client of the second channel does not know the queue yet"
    node.settle()
    assert answers(client) == [m.QueueDeclareOk("q", 1, 0)]
    client.send_bytes(content(b"2") + frame(declare) + frame(m.QueueDeclare(0, "q", passive=True)) + content(b"3"))
    assert answers(client) == [m.QueueDeclareOk("q", 1, 0)]
    node.settle()
    assert answers(client) == [m.QueueDeclareOk("q", 2, 0)]


def test_requests_that_come_again_are_answered_at_once_with_the_figures_of_now() -> None:
    node, client = started()
    declares = (
        m.ExchangeDeclare(0, "x", "direct", durable=True),
        m.QueueDeclare(0, "q", durable=True),
        m.QueueBind(0, "q", "x", "key"),
    )
    again = b"".join(map(frame, declares))
    for _ in range(2):
        client.send_bytes(again)
        node.settle()
        assert answers(client) == [m.ExchangeDeclareOk(), m.QueueDeclareOk("q", 0, 0), m.QueueBindOk()]
    client.send_bytes(content(b"1"))
    node.settle()
    client.send_bytes(content(b"2") + again)
    assert answers(client) == [m.ExchangeDeclareOk(), m.QueueDeclareOk("q", 1, 0), m.QueueBindOk()]


def test_a_request_that_comes_again_is_carried_out_after_a_change() -> None:
    node, client = started()
    declare, bind = m.ExchangeDeclare(0, "x", "direct", durable=True), m.QueueBind(0, "q", "x", "key")
    client.send_bytes(frame(declare) + frame(bind))
    node.settle()
    client.send_bytes(frame(m.ExchangeDelete(0, "x"), 2) + frame(declare) + frame(bind))
    node.settle()
    assert answers(client)[2:] == [m.ExchangeDeleteOk(), m.ExchangeDeclareOk(), m.QueueBindOk()]
    client.send_bytes(frame(m.QueueDelete(0, "q"), 2) + frame(bind))
    node.settle()
    assert {type(each) for each in answers(client)} == {m.QueueDeleteOk, m.ChannelClose}


def test_a_declare_that_comes_again_names_the_queue_of_later_requests() -> None:
    node, client = started()
    declare = m.QueueDeclare(0, "q", durable=True)
    for _ in range(3):
        client.send_bytes(frame(declare))
        node.settle()
    client.send_bytes(frame(m.QueueDeclare(0, "other", no_wait=True)) + content(b"1"))
    node.settle()
    client.send_bytes(frame(declare) + frame(m.QueuePurge(0, "")))
    node.settle()
    assert answers(client)[-1] == m.QueuePurgeOk(1)


def test_a_declare_overtakes_no_earlier_answer() -> None:
    node, client = started()
    declare = m.QueueDeclare(0, "q", durable=True)
    client.send_bytes(frame(declare))
    node.settle()
    assert answers(client) == [m.QueueDeclareOk("q", 0, 0)]
    client.send_bytes(frame(m.QueueDeclare(0, "new", durable=True)) + frame(declare))
    assert answers(client) == []
    node.settle()
    assert answers(client) == [m.QueueDeclareOk("new", 0, 0), m.QueueDeclareOk("q", 0, 0)]


def test_a_declare_of_a_queue_that_was_made_again_waits_for_its_record() -> None:
    node, client = started()
    declare = m.QueueDeclare(0, "q", durable=True)
    client.send_bytes(frame(declare))
    node.settle()
    client.received()
    client.send(m.QueueDelete(0, "q"))
    node.settle()
    assert answers(client) == [m.QueueDeleteOk(0)]
    client.send(m.QueueDeclare(0, "q", durable=True, no_wait=True))
    client.send(declare)
    assert answers(client) == []
    node.settle()
    assert answers(client) == [m.QueueDeclareOk("q", 0, 0)]


def test_the_end_of_a_channel_or_connection_comes_after_the_requests_before_it() -> None:
    node, client = started()
    client.send(m.QueueDeclare(0, "other", durable=True), 2)
    node.settle()
    client.received()
    for channel, queue in ((1, "q"), (2, "other")):
        client.send_bytes(content(b"1", queue, channel) + frame(m.QueueDelete(0, queue, no_wait=True), channel))
    client.send_bytes(frame(m.ChannelClose(200, "end"), 1) + frame(m.ChannelOpen(), 1))
    client.send_bytes(frame(m.ConnectionClose(200, "end"), 0))
    assert answers(client) == []
    node.settle()
    assert answers(client) == [m.ChannelCloseOk(), m.ChannelOpenOk(), m.ConnectionCloseOk()]
    assert not node.world.office.directory.queues


def test_other_channels_go_on() -> None:
    node, client = started()
    client.send_bytes(content(b"1") + frame(m.BasicGet(0, "q")))
    assert client.ask(m.BasicQos(0, 1), m.BasicQosOk, 2)
    client.send_bytes(frame(m.BasicQos(0, 1)) + frame(m.BasicQos(0, 1), 2))
    assert answers(client) == [], "the input has an order"
    node.settle()
    assert [type(each) for each in answers(client)] == [m.BasicGetOk, m.BasicQosOk, m.BasicQosOk]


def test_the_socket_is_read_until_much_has_come_after_a_request() -> None:
    node, client = started(heartbeat=2)
    client.send_bytes(content(b"1") + frame(m.BasicGet(0, "q", no_ack=True)))
    later = content(b"x" * 1000)
    sent = 0
    while not client.handler.congested():
        assert sent < 2 * AMQP091_HELD_INPUT_BYTES_PAUSE, "there is a limit"
        client.send_bytes(later)
        sent += len(later)
    assert sent >= AMQP091_HELD_INPUT_BYTES_PAUSE
    for _ in range(20):
        node.world.clock.advance(10_000)
        client.handler.check()
    assert not client.connection.closed, "what the client sends meanwhile is not seen"
    client.connection.sent.clear()
    node.settle()
    assert not client.handler.congested()
    assert answers(client) == [m.BasicGetOk(1, False, "", "q", 0)]
    assert len(node.world.office.directory.queues["q"].pending) == sent // len(later)


def test_a_commit_that_fails_ends_the_channel_before_later_requests() -> None:
    node, client = started()
    client.ask(m.TxSelect(), m.TxSelectOk)
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    client.send(m.QueueDeclare(0, "full", durable=True, arguments=full), 2)
    node.settle()
    client.received()
    client.send_bytes(content(b"1", "full") + frame(m.QueueDeclare(0, "waits", durable=True)))
    client.send_bytes(frame(m.TxCommit()) + frame(m.QueueDelete(0, "q")))
    node.settle()
    declared_, closed = answers(client)
    assert declared_ == m.QueueDeclareOk("waits", 0, 0)
    assert isinstance(closed, m.ChannelClose)
    assert "q" in node.world.office.directory.queues


def test_requests_wait_for_a_get_whose_answer_waits_for_the_socket() -> None:
    node, client = started()
    client.send_bytes(content(b"1"))
    node.settle()
    client.connection.outgoing = OUTGOING_BYTES_PAUSE
    client.send_bytes(frame(m.BasicGet(0, "q", no_ack=True)) + frame(m.QueuePurge(0, "q")))
    assert answers(client) == []
    client.connection.outgoing = 0
    client.handler.resume_deliveries()
    node.settle()
    assert answers(client) == [m.BasicGetOk(1, False, "", "q", 0), m.QueuePurgeOk(0)]


def test_a_get_that_waits_is_answered_when_its_queue_is_deleted() -> None:
    node, client = started()
    client.send_bytes(content(b"1"))
    node.settle()
    client.connection.outgoing = OUTGOING_BYTES_PAUSE
    client.send_bytes(frame(m.BasicGet(0, "q", no_ack=True)) + frame(m.BasicQos(0, 1)))
    node.channel().send(m.QueueDelete(0, "q"))
    node.settle()
    assert answers(client) == [m.BasicGetEmpty(), m.BasicQosOk()]


def test_recovered_deliveries_come_at_once_in_a_transaction() -> None:
    client = AmqpNode().channel()
    declared(client)
    client.publish("q", b"1")
    client.publish("q", b"2")
    client.ask(m.TxSelect(), m.TxSelectOk)
    for body in (b"1", b"2"):
        client.send(m.BasicGet(0, "q"))
        assert client.only(m.BasicGetOk)[1].body == body
    client.send(m.BasicAck(1))
    client.ask(m.BasicRecover(True), m.BasicRecoverOk)
    client.send(m.BasicGet(0, "q"))
    again, received = client.only(m.BasicGetOk)
    assert (received.body, again.delivery_tag, again.redelivered) == (b"2", 3, True)
    # the acknowledgement before it stays in the transaction
    client.ask(m.TxRollback(), m.TxRollbackOk)
    client.send(m.BasicNack(1, multiple=False, requeue=True))
    client.ask(m.TxCommit(), m.TxCommitOk)
    assert bodies(client) == [b"1"]


def test_recovered_deliveries_of_a_consumer_come_at_once_in_a_transaction() -> None:
    client = AmqpNode().channel()
    declared(client)
    client.ask(m.TxSelect(), m.TxSelectOk)
    client.ask(m.BasicQos(0, 1), m.BasicQosOk)
    client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    other = client.node.channel()
    other.publish("q", b"1")
    client.node.world.turn()
    client.received()
    for tag in (2, 3):
        client.send(m.BasicRecover(True) if tag == 2 else m.BasicRecoverAsync(True))
        came = [each for each in client.received() if isinstance(each.method, m.BasicDeliver)]
        assert [(each.method, each.body) for each in came] == [(m.BasicDeliver("t", tag, True, "", "q"), b"1")]
    client.send(m.BasicAck(3))
    client.ask(m.TxCommit(), m.TxCommitOk)
    assert not node_messages(client)


def node_messages(client: AmqpClient) -> int:
    return client.node.world.office.directory.queues["q"].message_count
