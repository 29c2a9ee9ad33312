"""AMQP 0-9-1 from the client's side: messages, their settlement, dead letters, CORE clients, restarts."""

from __future__ import annotations

from typing import Any

import pytest

from support.amqp091 import AmqpNode, bodies, declared, got
from support.routing import World, text
from understudy.errors import AddressFull, AddressNotFound
from understudy.limits import AMQP091_LIFETIME_MS_MAX
from understudy.message import MessageType
from understudy.properties import encode_simple_string
from understudy.protocols.amqp091.messages import MessageCarrier
from understudy.protocols.amqp091.names import REPLIES
from understudy.routing.restore import restore, settle
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
        {"expiration": "315360000001"},
        {"user_id": "somebody"},
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


def test_a_missing_exchange_counts_before_the_properties() -> None:
    client = AmqpNode().channel()
    client.publish("q", exchange="missing", user_id="somebody", expiration="x")
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


# --- dead letters --------------------------------------------------------------------------------


def test_a_client_of_core_learns_that_it_cannot_answer_a_direct_request() -> None:
    """No queue is made that would keep the answers."""
    node = AmqpNode()
    client, session, answers = node.channel(), node.world.session(), node.world.answers
    declared(client)
    client.ask(m.BasicConsume(0, REPLIES, "t", no_ack=True), m.BasicConsumeOk)
    client.publish("q", b"request", reply_to=REPLIES)
    address = got(client).properties.reply_to
    for name in (REPLIES, address):
        session.sends.send(text(name, name), answers.of(name))
        assert isinstance(answers.error(name), AddressNotFound)
    assert REPLIES not in node.world.office.directory.addresses


def test_dead_letters_of_every_reason() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, "dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declared(client, "limited", arguments={**dead, "x-max-length": 1})
    declared(client, "counted", arguments={**dead, "x-delivery-limit": 1})
    declared(client, "timed", arguments={**dead, "x-message-ttl": 100})
    for name in ("limited", "counted", "timed"):
        client.publish(name, name.encode())
    client.publish("limited", b"newer")
    client.send(m.BasicGet(0, "limited"))
    client.send(m.BasicReject(1))
    for tag in (2, 3):
        client.send(m.BasicGet(0, "counted"))
        client.send(m.BasicNack(tag, requeue=True))
    node.world.clock.advance(101)
    node.world.turn()
    client.received()
    reasons = {}
    while (found := got(client, "dead")) is not None:
        (death,) = found.properties.headers["x-death"]
        assert (death["count"], death["exchange"]) == (1, "")
        assert death["routing-keys"] == [death["queue"]]
        assert found.properties.headers["x-first-death-reason"] == death["reason"]
        reasons[found.body] = death["reason"]
    assert reasons == {
        b"limited": "maxlen", b"newer": "rejected", b"counted": "delivery_limit", b"timed": "expired",
    }  # fmt: skip


def test_a_circle_of_dead_letters_ends_unless_they_are_rejected() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(
        client, "a", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b", "x-message-ttl": 10}
    )
    declared(
        client, "b", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a", "x-message-ttl": 10}
    )
    client.publish("a")
    for _ in range(5):
        node.world.clock.advance(20)
        node.world.turn()
    queues = node.world.office.directory.queues
    assert (queues["a"].message_count, queues["b"].message_count) == (0, 0)
    assert queues["b"].messages_added == 1


def test_unused_queues_expire() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, arguments={"x-expires": 1000})
    node.world.clock.advance(900)
    declared(client, arguments={"x-expires": 1000})
    node.world.clock.advance(900)
    client.ask(m.QueueDeclare(0, "q", passive=True), m.QueueDeclareOk)
    client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    node.world.clock.advance(5000)
    client.ask(m.BasicCancel("t"), m.BasicCancelOk)
    node.world.clock.advance(2000)
    assert client.code(m.QueueDeclare(0, "q", passive=True)) == 404


# --- CORE, restart -------------------------------------------------------------------------------


def test_one_queue_for_both_protocols() -> None:
    node = AmqpNode()
    amqp, core = node.channel(), node.client()
    core.create_session(window=-1)
    declared(amqp)
    core.consume()
    amqp.publish("q", b"from amqp", headers={"n": 1, "s": "x"}, correlation_id="c", delivery_mode=2, priority=7)
    (received,) = [each for each in core.received() if hasattr(each, "message")]
    message = received.message
    assert (message.body, message.durable, message.properties["n"]) == (b"from amqp", True, 1)
    assert message.properties["JMSCorrelationID"] == "c"
    core.lose()
    declared(amqp, "r")
    session = node.world.session()
    session.sends.send(text("plain", "r"))
    raw = b"\x01" + encode_simple_string("grün")
    other = text("", "r", type=MessageType.TEXT, properties={"n": 2, "_AMQ_GROUP_ID": "g", "JMSReplyTo": "queue://x"})
    session.sends.send(type(other)(raw, address="r", type=MessageType.TEXT, properties=other.properties))
    node.world.turn()
    assert got(amqp, "r").body == b"plain"
    found = got(amqp, "r")
    assert (found.body.decode(), found.properties.headers) == ("grün", {"n": 2})
    assert (found.properties.reply_to, found.properties.content_type) == ("queue://x", "text/plain; charset=utf-8")
    assert (found.method.exchange, found.method.routing_key) == ("", "r")


@pytest.mark.parametrize("argument", ["x-max-length", "x-max-length-bytes"])
def test_a_full_queue_refuses_messages_of_core(argument: str) -> None:
    """A queue that was declared over AMQP 0-9-1 holds no more than its arguments say, whoever sends."""
    node = AmqpNode()
    client, session = node.channel(), node.world.session()
    declared(client, arguments={argument: 1, "x-overflow": "reject-publish"})
    answers = node.world.answers
    session.sends.send(text("1", "q"), answers.of("1"))
    node.world.turn()
    for name, address in (("2", "q"), ("3", "q::q")):
        session.sends.send(text(name, address), answers.of(name))
        assert isinstance(answers.error(name), AddressFull)
    assert bodies(client) == [b"1"]
    session.sends.send(text("4", "q"), answers.of("4"))
    node.world.turn()
    assert answers.error("1") is answers.error("4") is None
    assert bodies(client) == [b"4"]


def test_a_property_list_of_a_core_client_is_checked() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    node.world.session().sends.send(
        text("x", "q", properties={"_UND_AMQP091": b"\xff\xff", "amqp_exchange": "y" * 300})
    )
    node.world.turn()
    found = got(client)
    assert (found.body, found.method.exchange) == (b"x", "")


@pytest.mark.parametrize("circle", [("a",), ("a", "b"), ("a", "b", "c")])
@pytest.mark.parametrize("first", ["exchange", "queue"])
def test_auto_delete_exchanges_that_are_bound_in_a_circle_go_together(circle: tuple[str, ...], first: str) -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    for name in circle:
        client.ask(m.ExchangeDeclare(0, name, "fanout", auto_delete=True, durable=True), m.ExchangeDeclareOk)
    for source, destination in zip(circle, (*circle[1:], circle[0]), strict=True):
        client.ask(m.ExchangeBind(0, destination, source, ""), m.ExchangeBindOk)
    client.ask(m.QueueBind(0, "q", "a", ""), m.QueueBindOk)
    if first == "queue":
        client.ask(m.QueueDelete(0, "q"), m.QueueDeleteOk)
        # the circle itself keeps its exchanges
        for name in circle:
            client.ask(m.ExchangeDeclare(0, name, "fanout", passive=True), m.ExchangeDeclareOk)
    client.ask(m.ExchangeDelete(0, "a"), m.ExchangeDeleteOk)
    for name in circle:
        assert client.code(m.ExchangeDeclare(0, name, "fanout", passive=True)) == 404
    assert node.world.office.routing.exchanges.binding_count == 0
    assert not [kind for kind, _ in node.store.state.settings if "exchange" in kind]


def test_durable_exchanges_bindings_and_arguments_survive() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, durable=True, arguments={"x-max-length": 2, "x-dead-letter-exchange": "x"})
    declared(client, "transient")
    client.ask(m.ExchangeDeclare(0, "x", "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"}),
               m.ExchangeDeclareOk)  # fmt: skip
    client.ask(m.ExchangeDeclare(0, "y", "headers", durable=True), m.ExchangeDeclareOk)
    client.ask(m.QueueBind(0, "q", "y", "", arguments={"n": 1}), m.QueueBindOk)
    client.ask(m.ExchangeBind(0, "y", "x", "a.#"), m.ExchangeBindOk)
    client.ask(m.QueueBind(0, "transient", "x", "#"), m.QueueBindOk)
    client.ask(m.QueueBind(0, "q", "x", "gone"), m.QueueBindOk)
    client.ask(m.QueueUnbind(0, "q", "x", "gone"), m.QueueUnbindOk)
    client.publish("a.b", b"1", "x", headers={"n": 1}, delivery_mode=2)
    world = World(store=node.store)
    world.office.routing.exchanges.carrier = MessageCarrier()
    assert restore(world.office, node.store.found()) == 1
    settle(world.office, "$.internal")
    again = AmqpNode(world=world).channel()
    assert world.office.routing.exchanges.binding_count == 2
    declared(again, durable=True, arguments={"x-max-length": 2, "x-dead-letter-exchange": "x"})
    again.publish("a.c", b"2", "x", headers={"n": 1})
    again.publish("gone", b"3", "x")
    assert bodies(again) == [b"1", b"2"]
    again.ask(m.ExchangeDelete(0, "x"), m.ExchangeDeleteOk)
    again.ask(m.QueueDelete(0, "q"), m.QueueDeleteOk)
    assert world.office.routing.exchanges.binding_count == 0
    assert world.store.state.format_version == 6


def test_a_full_address_pauses_its_publishers() -> None:
    world = World({"q": {"max_size_bytes": 1000, "address_full_policy": "BLOCK"}})
    node = AmqpNode(world=world)
    client, consumer = node.channel(), node.channel()
    declared(client)
    client.publish("q", bytes(2000))
    client.publish("q", b"")
    assert isinstance(client.received()[0].method, m.ConnectionBlocked)
    assert client.handler.congested()
    consumer.send(m.QueuePurge(0, "q"))
    node.world.turn()
    client.only(m.ConnectionUnblocked)
    assert not client.handler.congested()
