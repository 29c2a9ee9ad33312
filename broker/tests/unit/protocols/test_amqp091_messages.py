"""AMQP 0-9-1 from the client's side: messages and their settlement."""

from __future__ import annotations

from typing import Any

import pytest

from support.amqp091 import AmqpNode, bodies, declared, got
from support.routing import World
from understudy.limits import AMQP091_LIFETIME_MS_MAX
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.codes import ReplyCode
from understudy.wire.amqp091.frames import FrameType, content_frames, encode_frame, method_frame
from understudy.wire.amqp091.properties import BasicProperties, encode_header, encode_properties
from understudy.wire.amqp091.tables import Timestamp

# --- messages ------------------------------------------------------------------------------------


def test_properties_come_back_as_they_were_sent() -> None:
    client = AmqpNode().channel()
    declared(client)
    headers = {"a": 1, "b": [1, {"c": None}], "d": b"\xff", "e": 1.5, "f": True, "t": Timestamp(5), "JMSType": "x"}
    given: dict[str, Any] = {
        "headers": headers, "content_type": "c", "content_encoding": "e", "delivery_mode": 2, "priority": 200,
        "correlation_id": "co", "reply_to": "r", "message_id": "m", "timestamp": 7, "type": "t", "app_id": "a",
        "expiration": "10000",
    }  # fmt: skip
    client.publish("q", b"x" * 10_000, **given)
    found = got(client)
    assert found.body == b"x" * 10_000
    assert {name: getattr(found.properties, name) for name in given} == given


def test_a_lifetime_begins_when_the_message_comes_also_after_a_time_without_traffic() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    client.publish("q", b"1", expiration="200")
    node.world.clock.advance(150)
    client.publish("q", b"2", expiration="200")
    node.world.clock.advance(100)
    assert bodies(client) == [b"2"]


def test_a_message_that_comes_back_expires_at_its_time() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, "dead")
    arguments = {"x-message-ttl": 2000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.ask(m.QueueDeclare(0, "q", arguments=arguments), m.QueueDeclareOk)
    clock = node.world.clock
    client.publish("q", b"1")
    assert got(client).body == b"1"
    clock.advance(1000)
    client.publish("q", b"2")
    client.send(m.BasicGet(0, "q"))
    tag = client.only(m.BasicGetOk)[0].delivery_tag
    clock.advance(500)
    client.publish("q", b"3")
    # the look at the queue for the first message finds the third one, which is the first by then
    clock.advance(1000)
    client.send(m.BasicReject(tag, requeue=True))
    clock.advance(500)
    node.world.turn()
    assert bodies(client, "dead") == [b"2"]
    clock.advance(500)
    node.world.turn()
    assert bodies(client, "dead") == [b"3"]


@pytest.mark.parametrize("count", [1, 3])
def test_messages_without_a_timestamp_get_the_time_at_which_they_come(count: int) -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    node.world.clock.advance(60_000)
    frames = content_frames(m.BasicPublish(0, "", "q"), encode_properties(BasicProperties()), b"x", 1, 4096)
    client.send_bytes(frames * count)
    waiting = [reference.message for _, reference in node.world.office.directory.queues["q"].browse((9, -1))]
    assert [each and each.timestamp for each in waiting] == [node.world.clock.wall_ms()] * count


@pytest.mark.parametrize(
    "properties",
    [
        {"expiration": "x"},
        {"expiration": "-1"},
        {"expiration": "+"},
        {"expiration": "5 "},
        {"expiration": "315360000001"},
        {"user_id": "another-user"},
        {"headers": {"CC": "k"}},
    ],
)
def test_properties_that_cannot_be_used(properties: dict[str, Any]) -> None:
    client = AmqpNode().channel()
    declared(client)
    client.publish("q", **properties)
    assert client.only(m.ChannelClose)[0].reply_code == 406


def test_lifetimes_of_up_to_ten_years_are_possible() -> None:
    node = AmqpNode()
    client = node.channel()
    longest = AMQP091_LIFETIME_MS_MAX
    declared(client, arguments={"x-message-ttl": longest, "x-expires": longest, "x-max-length": 1 << 40})
    client.publish("q", b"1", expiration=str(longest))
    client.publish("q", b"2")
    waiting = [reference for _, reference in node.world.office.directory.queues["q"].browse((9, -1))]
    assert [each.expiration for each in waiting] == [node.world.clock.wall_ms() + longest] * 2


def test_an_expiration_may_have_a_sign() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    for text in ("+500", "0500"):
        client.publish("q", expiration=text)
    waiting = [reference for _, reference in node.world.office.directory.queues["q"].browse((9, -1))]
    assert [each.expiration for each in waiting] == [node.world.clock.wall_ms() + 500] * 2
    client.publish("q", expiration="-0")
    assert client.received() == []


def test_a_missing_exchange_counts_before_the_properties() -> None:
    client = AmqpNode().channel()
    client.publish("q", exchange="missing", user_id="another-user", expiration="x")
    assert client.only(m.ChannelClose)[0].reply_code == 404


def test_bodies_are_limited_before_they_come() -> None:
    client = AmqpNode().channel()
    client.send_bytes(
        method_frame(m.BasicPublish(0, "", "q"), 1)
        + encode_frame(FrameType.HEADER, 1, encode_header(17 * 1024 * 1024, b"\0\0"))
    )
    assert client.only(m.ChannelClose)[0].reply_code == ReplyCode.CONTENT_TOO_LARGE
    client.send_bytes(encode_frame(FrameType.BODY, 1, bytes(1000)))
    assert client.received() == []


def test_confirms_wait_for_the_disk_and_returns_come_before_them() -> None:
    node = AmqpNode(automatic=False)
    client = node.channel()
    client.send(m.QueueDeclare(0, "q", durable=True))
    client.send(m.ConfirmSelect())
    assert client.received() == []
    node.sync()
    assert [each.method for each in client.received()] == [m.QueueDeclareOk("q", 0, 0), m.ConfirmSelectOk()]
    client.publish("q", b"1", delivery_mode=2)
    client.publish("q", b"2", delivery_mode=2)
    client.publish("nowhere", b"3", mandatory=True)
    client.publish("nowhere", b"4")
    (returned,) = client.received()
    assert returned.method == m.BasicReturn(312, "NO_ROUTE", "", "nowhere")
    assert returned.body == b"3"
    node.sync()
    assert client.received()[-1].method in (m.BasicAck(4, multiple=True), m.BasicAck(4))
    assert bodies(client) == [b"1", b"2"]


def test_answers_come_in_the_order_of_their_requests() -> None:
    node = AmqpNode(automatic=False)
    client = node.channel()
    client.send(m.QueueDeclare(0, "q", durable=True))
    for request in (m.BasicQos(0, 1), m.ChannelFlow(True), m.BasicRecover(True)):
        client.send(request)
    assert client.received() == []
    node.sync()
    assert [each.method for each in client.received()] == [
        m.QueueDeclareOk("q", 0, 0), m.BasicQosOk(), m.ChannelFlowOk(True), m.BasicRecoverOk(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("failing", "code"),
    [
        (m.BasicAck(1), 406),
        (m.QueueBind(0, "q", "missing", ""), 404),
        (m.BasicQos(1, 0), 540),
        (m.ConnectionBlocked("x"), 503),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_earlier_requests_are_answered_before_an_error(failing: Any, code: int) -> None:
    node = AmqpNode(automatic=False)
    client = node.channel()
    client.send(m.ConfirmSelect())
    client.received()
    client.send(m.QueueDeclare(0, "q", durable=True))
    client.publish("q", b"1", delivery_mode=2)
    client.send(m.BasicGet(0, "q", no_ack=True))
    client.send(failing)
    client.send(m.QueueDeclare(0, "later"))
    assert client.received() == []
    node.settle()
    *answers, closed = [each.method for each in client.received()]
    assert answers[:3] == [m.QueueDeclareOk("q", 0, 0), m.BasicAck(1), m.BasicGetOk(1, False, "", "q", 0)]
    assert not answers[3:]
    assert isinstance(closed, m.ConnectionClose if code >= 500 else m.ChannelClose)
    assert closed.reply_code == code
    assert (closed.failing_class, closed.failing_method) == (failing.class_id, failing.method_id)
    assert "later" not in node.world.office.directory.queues


def test_a_refused_publish_leaves_the_confirms_of_earlier_ones() -> None:
    node = AmqpNode(automatic=False)
    client = node.channel()
    client.send(m.ConfirmSelect())
    client.publish("nowhere", b"1")
    client.received()
    client.send(m.QueueDeclare(0, "q", durable=True))
    client.publish("q", b"2", delivery_mode=2)
    client.publish("q", b"3", user_id="other")
    assert client.received() == []
    node.sync()
    declared_, confirmed, closed = [each.method for each in client.received()]
    assert (declared_, confirmed) == (m.QueueDeclareOk("q", 0, 0), m.BasicAck(2))
    assert isinstance(closed, m.ChannelClose)
    assert closed.reply_code == 406


def test_a_close_of_the_client_that_crosses_an_error_which_waits() -> None:
    node = AmqpNode(automatic=False)
    client = node.channel()
    client.send(m.QueueDeclare(0, "q", durable=True))
    client.send(m.BasicAck(1))
    client.send(m.ChannelClose(200, "end"))
    assert client.received() == []
    node.sync()
    answered, closed, confirmed = [each.method for each in client.received()]
    assert answered == m.QueueDeclareOk("q", 0, 0)
    assert isinstance(closed, m.ChannelClose)
    assert confirmed == m.ChannelCloseOk()
    client.send(m.ChannelCloseOk())
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)


def test_recovered_deliveries_come_after_the_answer() -> None:
    node = AmqpNode(automatic=False)
    client = node.channel()
    client.send(m.QueueDeclare(0, "q"))
    client.publish("q", b"1")
    client.send(m.BasicConsume(0, "q", "t"))
    node.sync()
    client.received()
    client.send(m.QueueDeclare(0, "waits", durable=True))
    client.send(m.BasicRecover(True))
    assert client.received() == []
    node.sync()
    assert [each.method for each in client.received()] == [
        m.QueueDeclareOk("waits", 0, 0), m.BasicRecoverOk(), m.BasicDeliver("t", 2, True, "", "q"),
    ]  # fmt: skip
    client.send(m.BasicRecover(True))
    assert [each.method for each in client.received()] == [
        m.BasicRecoverOk(), m.BasicDeliver("t", 3, True, "", "q"),
    ]  # fmt: skip


def test_a_recovered_delivery_cannot_be_settled_while_the_answer_waits() -> None:
    node = AmqpNode(automatic=False)
    client = node.channel()
    client.send(m.QueueDeclare(0, "q"))
    client.publish("q", b"1")
    client.send(m.BasicGet(0, "q"))
    node.settle()
    client.received()
    client.send(m.QueueDeclare(0, "waits", durable=True))
    client.send(m.BasicRecover(True))
    client.send(m.BasicAck(1))
    node.settle()
    *_, recovered, closed = [each.method for each in client.received()]
    assert recovered == m.BasicRecoverOk()
    assert isinstance(closed, m.ChannelClose)
    assert bodies(node.channel()) == [b"1"]


def test_a_returned_message_does_not_show_the_keys_of_bcc() -> None:
    client = AmqpNode().channel()
    headers = {"CC": ["missing"], "BCC": ["other"], "n": 1}
    client.publish("nowhere", b"1", mandatory=True, headers=headers)
    client.send(m.TxSelect())
    client.publish("nowhere", b"2", mandatory=True, headers=headers)
    client.send(m.TxCommit())
    returned = [each.properties.headers for each in client.received() if each.properties is not None]
    assert returned == [{"CC": ["missing"], "n": 1}] * 2


def test_values_that_are_no_keys_are_ignored_in_cc() -> None:
    client = AmqpNode().channel()
    declared(client)
    declared(client, "other")
    client.publish("q", headers={"CC": [1, "other", None]})
    assert got(client, "other").properties.headers == {"CC": [1, "other", None]}
    assert bodies(client) == [b"body"]


def test_a_full_queue_rejects_publishes() -> None:
    client = AmqpNode().channel()
    declared(client, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("q", b"1")
    client.publish("q", b"2")
    assert [each.method for each in client.received()] == [m.BasicAck(1), m.BasicNack(2)]
    assert bodies(client) == [b"1"]


@pytest.mark.parametrize("confirms", [False, True])
def test_a_full_queue_does_not_keep_messages_from_the_other_queues_of_an_exchange(confirms: bool) -> None:
    node = AmqpNode(world=World({"small": {"max_size_messages": 1, "address_full_policy": "DROP"}}))
    client = node.channel()
    declared(client, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    for queue in ("small", "other"):
        declared(client, queue)
    for queue in ("q", "small", "other"):
        client.ask(m.QueueBind(0, queue, "amq.fanout", ""), m.QueueBindOk)
    if confirms:
        client.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    for body in (b"1", b"2", b"3"):
        client.publish("", body, "amq.fanout")
    answers = [m.BasicAck(1), m.BasicNack(2), m.BasicNack(3)] if confirms else []
    assert [each.method for each in client.received()] == answers
    assert [bodies(client, queue) for queue in ("q", "small", "other")] == [[b"1"], [b"1"], [b"1", b"2", b"3"]]


def test_a_transaction_gives_no_queue_a_message_that_one_of_them_refuses() -> None:
    client = AmqpNode().channel()
    declared(client, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    declared(client, "other")
    for queue in ("q", "other"):
        client.ask(m.QueueBind(0, queue, "amq.fanout", ""), m.QueueBindOk)
    client.ask(m.TxSelect(), m.TxSelectOk)
    client.publish("", b"1", "amq.fanout")
    assert client.code(m.TxCommit()) == 406
    assert bodies(client, "other") == []


def test_transactions() -> None:
    client = AmqpNode().channel()
    declared(client)
    client.publish("q", b"0")
    client.ask(m.TxSelect(), m.TxSelectOk)
    assert client.code(m.ConfirmSelect()) == 406
    client.ask(m.TxSelect(), m.TxSelectOk)
    client.publish("q", b"1")
    client.publish("nowhere", b"2", mandatory=True)
    client.send(m.BasicGet(0, "q"))
    client.only(m.BasicGetOk)
    client.send(m.BasicAck(1))
    client.ask(m.TxRollback(), m.TxRollbackOk)
    client.send(m.BasicGet(0, "q"))
    client.only(m.BasicGetEmpty)
    # the delivery is outstanding again
    client.send(m.BasicAck(1))
    client.publish("q", b"3")
    client.publish("nowhere", b"4", mandatory=True)
    client.send(m.TxCommit())
    returned, committed = client.received()
    assert (returned.body, committed.method) == (b"4", m.TxCommitOk())
    assert bodies(client) == [b"3"]


def test_prefetch_of_a_consumer_and_of_the_channel() -> None:
    client = AmqpNode().channel()
    declared(client)
    client.ask(m.BasicQos(0, 2), m.BasicQosOk)
    client.ask(m.BasicConsume(0, "q", "one"), m.BasicConsumeOk)
    for number in range(5):
        client.publish("q", b"%d" % number)
    assert [each.body for each in client.received()] == [b"0", b"1"]
    client.send(m.BasicAck(1))
    assert [each.body for each in client.received()] == [b"2"]
    client.ask(m.BasicQos(0, 3, for_channel=True), m.BasicQosOk)
    client.send(m.BasicAck(3, multiple=True))
    assert [each.body for each in client.received()] == [b"3", b"4"]
    client.send(m.BasicNack(0, multiple=True, requeue=True))
    again = client.received()
    assert [(each.body, each.method.redelivered) for each in again] == [(b"3", True), (b"4", True)]  # type: ignore[attr-defined]
    client.ask(m.BasicCancel("one"), m.BasicCancelOk)
    client.send(m.BasicAck(0, multiple=True))
    assert bodies(client) == []
    assert client.code(m.BasicAck(1)) == 406


def test_a_tag_that_is_not_outstanding_settles_no_earlier_deliveries() -> None:
    client = AmqpNode().channel()
    declared(client)
    client.publish("q")
    client.send(m.BasicGet(0, "q"))
    client.received()
    assert client.code(m.BasicAck(2, multiple=True)) == 406
    assert bodies(client) == [b"body"]


def test_deliveries_return_when_their_channel_ends() -> None:
    node = AmqpNode()
    client, other = node.channel(), node.channel()
    declared(client)
    client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    for body in (b"1", b"2", b"3"):
        client.publish("q", body)
    assert len(client.received()) == 3
    client.send(m.BasicAck(2))
    client.lose()
    other.send(m.BasicConsume(0, "q", "u", no_ack=True))
    first, *deliveries = other.received()
    assert first.method == m.BasicConsumeOk("u")
    assert [(each.body, each.method.redelivered) for each in deliveries] == [(b"1", True), (b"3", True)]  # type: ignore[attr-defined]
    assert node.world.office.directory.queues["q"].message_count == 0


def test_consumers_alone_and_by_priority() -> None:
    node = AmqpNode()
    client, other = node.channel(), node.channel()
    declared(client)
    client.ask(m.BasicConsume(0, "q", "low", no_ack=True, arguments={"x-priority": -1}), m.BasicConsumeOk)
    client.ask(m.BasicConsume(0, "q", "high", no_ack=True, arguments={"x-priority": 5}), m.BasicConsumeOk)
    client.publish("q")
    client.publish("q")
    assert {each.method.consumer_tag for each in client.received()} == {"high"}  # type: ignore[attr-defined]
    assert other.code(m.BasicConsume(0, "q", "x", exclusive=True)) == 403
    client.send(m.BasicConsume(0, "q", "low"))
    assert client.only(m.ConnectionClose)[0].reply_code == 530
    client.lose()
    other.ask(m.BasicConsume(0, "q", "x", exclusive=True), m.BasicConsumeOk)
    assert node.channel().code(m.BasicConsume(0, "q", "y")) == 403


def test_a_queue_with_a_single_active_consumer_has_no_exclusive_one() -> None:
    client = AmqpNode().channel()
    declared(client, arguments={"x-single-active-consumer": True})
    assert client.code(m.BasicConsume(0, "q", "t", exclusive=True)) == 403
    client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)


def test_consumers_learn_that_their_queue_is_gone() -> None:
    node = AmqpNode()
    client, other = node.channel(), node.channel()
    declared(client)
    client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    client.publish("q")
    client.received()
    other.ask(m.QueueDelete(0, "q"), m.QueueDeleteOk)
    assert client.only(m.BasicCancel)[0] == m.BasicCancel("t", no_wait=True)
    client.send(m.BasicAck(1))
    assert client.received() == []


def test_replies_without_a_queue() -> None:
    node = AmqpNode()
    client, server = node.channel(), node.channel()
    declared(server)
    client.publish("q", reply_to="amq.rabbitmq.reply-to")
    assert client.only(m.ChannelClose)[0].reply_code == 406
    client.send(m.ChannelCloseOk())
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    assert client.code(m.BasicConsume(0, "amq.rabbitmq.reply-to", "r")) == 406
    client.ask(m.BasicConsume(0, "amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    client.publish("q", b"question", reply_to="amq.rabbitmq.reply-to")
    address = got(server).properties.reply_to
    server.publish(address, b"answer")
    delivered, found = client.only(m.BasicDeliver)
    assert (delivered.consumer_tag, delivered.routing_key, found.body) == ("r", address, b"answer")
    server.ask(m.QueueDeclare(0, address, passive=True), m.QueueDeclareOk)
    client.lose()
    assert server.code(m.QueueDeclare(0, address, passive=True)) == 404
    server.publish(address, b"late", mandatory=True)
    assert server.only(m.BasicReturn)[1].body == b"late"
