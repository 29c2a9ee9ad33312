"""Plain operation of the client over AMQP 0-9-1 against a hand-played broker."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.client091 import Drive091, Sent
from understudy.client.amqp091.declarations import check_queue
from understudy.client.core.connection.failover import State
from understudy.client.core.consumer.state import ConsumerSettings
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.channel import SessionOptions
from understudy.client.core.session.state import SessionState
from understudy.errors import (
    AddressFull,
    AddressNotFound,
    AuthenticationFailed,
    BrokerError,
    ConfigError,
    ConnectionLost,
    LimitExceeded,
    LocalProtocolError,
    ObjectClosed,
    QueueNotFound,
)
from understudy.limits import AMQP091_LIFETIME_MS_MAX, AMQP091_MESSAGE_BYTES_MAX, FRAME_BYTES_MAX
from understudy.message import GROUP_ID, Message
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import FrameType, encode_frame, method_frame
from understudy.wire.amqp091.properties import BasicProperties, encode_header, encode_properties
from understudy.wire.core.packets import CreateQueueV2, CreateSharedQueueV2


def opened(mode: AcknowledgeMode = AcknowledgeMode.AUTO) -> tuple[Drive091, SessionState]:
    drive = Drive091()
    drive.connect()
    return drive, drive.session(mode)


def test_the_login_and_the_limits_of_the_handshake() -> None:
    drive = Drive091("amqp091://alice:se%2Fcret@a:1/?connectionTTL=20000")
    drive.connect()
    assert drive.start_ok is not None
    assert (drive.start_ok.mechanism, drive.start_ok.response) == ("PLAIN", b"\0alice\0se/cret")
    assert drive.core.node_id == drive.node_id


def test_heartbeats_are_sent_while_the_connection_is_idle() -> None:
    drive = Drive091("amqp091://a:1?connectionTTL=60000&ha=false&reconnectAttempts=0")
    drive.connect()
    drive.clock.now_ms += 30_000
    drive.core.handle_deadline()
    drive.sent()
    assert drive.heartbeats == 1
    drive.clock.now_ms += 60_001
    drive.core.handle_deadline()
    assert drive.core.state is State.CLOSED, "the broker has sent nothing for the TTL"


def test_a_wrong_password_ends_the_first_connection_at_once() -> None:
    drive = Drive091("amqp091://u:wrong@a:1,b:1")
    connected = Outcome()
    drive.core.connect(connected)
    drive.up()
    drive.answer(m.ConnectionStart(0, 9, {}, b"PLAIN"))
    drive.sent()
    drive.answer(m.ConnectionClose(403, "ACCESS_REFUSED - the login was refused"))
    assert isinstance(connected.error, AuthenticationFailed)


def test_a_virtual_host_that_is_not_there_is_named() -> None:
    drive = Drive091("amqp091://a:1/nowhere")
    connected = Outcome()
    drive.core.connect(connected)
    drive.up()
    drive.answer(m.ConnectionStart(0, 9, {}, b"PLAIN"))
    drive.answer(m.ConnectionTune(0, 0, 0))
    drive.answer(m.ConnectionClose(530, "NOT_ALLOWED - no virtual host 'nowhere'"))
    assert isinstance(connected.error, ConfigError)
    assert "nowhere" in str(connected.error)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\x00\x01\x00\x00",
        method_frame(m.ConnectionTune(1, 4096, 1), 0),
        encode_frame(FrameType.BODY, 7, b"x"),
        encode_frame(FrameType.METHOD, 0, b"\x00\x0a"),
    ],
)
def test_a_peer_that_does_not_speak_the_protocol_is_left(data: bytes) -> None:
    drive = Drive091("amqp091://a:1")
    connected = Outcome()
    drive.core.connect(connected)
    drive.up()
    drive.core.receive_data(data)
    assert isinstance(connected.error, BrokerError)


def test_confirms_and_returns() -> None:
    drive, session = opened()
    producer = drive.producer(session)
    outcomes = [drive.send(session, producer, b"%d" % number) for number in range(5)]
    sent = drive.sent()
    assert [each.body for each in sent] == [b"0", b"1", b"2", b"3", b"4"]
    assert {each.method for each in sent} == {m.BasicPublish(0, "", "q", mandatory=True)}
    properties = sent[1].properties
    assert properties is not None
    drive.deliver(m.BasicReturn(312, "NO_ROUTE", "", "q"), b"1", delivery_mode=2, priority=4)
    drive.answer(m.BasicAck(2, multiple=True), 2)
    assert (outcomes[0].settled, outcomes[0].error) == (True, None)
    assert isinstance(outcomes[1].error, AddressNotFound)
    drive.answer(m.BasicNack(3), 2)
    assert isinstance(outcomes[2].error, AddressFull)
    assert not outcomes[3].settled
    drive.answer(m.BasicAck(5), 2)
    assert outcomes[4].settled
    assert not outcomes[3].settled


def test_a_message_that_is_not_durable_is_done_when_written() -> None:
    drive, session = opened()
    outcome = drive.send(session, drive.producer(session), b"1", durable=False)
    assert outcome.settled
    drive.sent()
    drive.answer(m.BasicAck(1), 2)


def test_a_consumer_gets_and_acknowledges() -> None:
    drive, session = opened()
    consumer = drive.consumer(session)
    for tag in (1, 2, 3):
        drive.deliver(m.BasicDeliver("c0.1", tag, tag == 2, "", "q"), b"%d" % tag, headers={"n": tag})
    first, second = consumer.take(), consumer.take()
    assert first is not None
    assert second is not None
    assert (first.body, first.delivery_count, dict(first.properties)) == (b"1", 1, {"n": 1})
    assert (second.delivery_count, second.stored_id) == (2, 0)
    assert drive.methods() == [m.BasicAck(1, multiple=True)]


def test_acknowledgements_of_one_consumer_leave_those_of_another_alone() -> None:
    drive, session = opened(AcknowledgeMode.DUPS_OK)
    one, two = drive.consumer(session, "q"), drive.consumer(session, "r")
    drive.deliver(m.BasicDeliver("c0.1", 1, False, "", "q"), b"1")
    drive.deliver(m.BasicDeliver("c1.2", 2, False, "", "r"), b"2")
    drive.deliver(m.BasicDeliver("c0.1", 3, False, "", "q"), b"3")
    assert two.take() is not None
    two.acknowledge_taken()
    assert drive.methods() == [m.BasicAck(2)]
    assert one.take() is not None
    assert one.take() is not None
    one.acknowledge_taken()
    assert drive.methods() == [m.BasicAck(3, multiple=True)]


def test_a_consumer_whose_prefetch_is_used_up_by_taken_messages_is_begun_once_more() -> None:
    drive = Drive091("amqp091://a:1?consumerWindowSize=4096")
    drive.connect()
    session = drive.session(AcknowledgeMode.CLIENT)
    consumer = drive.consumer(session)
    for tag in range(1, 5):
        drive.deliver(m.BasicDeliver("c0.1", tag, False, "", "q"), b"x")
    assert drive.methods() == [], "nothing was taken"
    for _ in range(3):
        assert consumer.take() is not None
    begun = drive.methods()
    assert [type(each) for each in begun] == [m.BasicQos, m.BasicConsume, m.BasicCancel]
    assert begun[0] == m.BasicQos(0, 4)
    assert begun[2] == m.BasicCancel("c0.1")
    drive.answer(m.BasicQosOk(), 2)
    drive.answer(m.BasicCancelOk("c0.1"), 2)
    drive.deliver(m.BasicDeliver("c0.2", 5, False, "", "q"), b"y")
    last = None
    while (message := consumer.take()) is not None:
        last = message
    assert last is not None
    done = Outcome()
    session.settlements.acknowledge(last, done)
    assert drive.methods() == [m.BasicAck(5, multiple=True), m.BasicQos(0, 0)]
    assert not done.settled
    drive.answer(m.BasicQosOk(), 2)
    assert done.value is True


def test_a_window_of_zero_asks_for_each_message() -> None:
    drive, session = opened()
    outcome = Outcome()
    session.consumers.open("q", outcome, ConsumerSettings(window_bytes=0))
    drive.sent()
    drive.answer(m.QueueDeclareOk("q", 1, 0), 1)
    assert drive.methods() == [], "no message is asked for"
    consumer = outcome.value
    consumer.ask()
    assert drive.methods()[0] == m.BasicQos(0, 1)
    drive.answer(m.BasicQosOk(), 2)
    drive.deliver(m.BasicDeliver("c0.1", 1, False, "", "q"), b"x")
    assert drive.methods() == [m.BasicCancel("c0.1")]
    assert consumer.take() is not None


def test_a_rollback_returns_all_deliveries_and_begins_the_consumers_again() -> None:
    drive, session = opened(AcknowledgeMode.TRANSACTED)
    consumer = drive.consumer(session)
    drive.deliver(m.BasicDeliver("c0.1", 1, False, "", "q"), b"1")
    drive.deliver(m.BasicDeliver("c0.1", 2, False, "", "q"), b"2")
    assert consumer.take() is not None
    done = Outcome()
    session.rollback(done)
    assert drive.methods() == [m.BasicCancel("c0.1")]
    drive.answer(m.BasicCancelOk("c0.1"), 2)
    assert drive.methods() == [
        m.BasicAck(1, multiple=True), m.TxRollback(), m.BasicRecover(requeue=True), m.TxCommit()
    ]  # fmt: skip
    for answer in (m.TxRollbackOk(), m.BasicRecoverOk(), m.TxCommitOk()):
        drive.answer(answer, 2)
    assert done.settled
    assert isinstance(drive.methods()[-1], m.BasicConsume)
    assert consumer.take() is None


def test_messages_of_a_transaction_without_a_queue_are_reported_by_its_commit() -> None:
    drive, session = opened(AcknowledgeMode.TRANSACTED)
    drive.send(session, drive.producer(session), b"1")
    commit = Outcome()
    session.commit(commit)
    drive.sent()
    drive.deliver(m.BasicReturn(312, "NO_ROUTE", "", "q"), b"1")
    drive.answer(m.TxCommitOk(), 2)
    assert isinstance(commit.error, AddressNotFound)


def test_a_closed_consumer_gives_its_messages_back() -> None:
    drive, session = opened()
    consumer = drive.consumer(session)
    drive.deliver(m.BasicDeliver("c0.1", 1, False, "", "q"), b"1")
    closed = Outcome()
    session.consumers.close(consumer, closed)
    assert drive.methods() == [m.BasicCancel("c0.1")]
    drive.deliver(m.BasicDeliver("c0.1", 2, False, "", "q"), b"2")
    drive.answer(m.BasicCancelOk("c0.1"), 2)
    assert drive.methods() == [m.BasicNack(2, requeue=True), m.BasicNack(1, requeue=True)]
    assert closed.settled


def test_a_consumer_of_a_deleted_queue_ends() -> None:
    drive, session = opened()
    consumer = drive.consumer(session)
    drive.answer(m.BasicCancel("c0.1", no_wait=True), 2)
    assert isinstance(consumer.ended, QueueNotFound)


def test_a_queue_that_is_not_there() -> None:
    drive, session = opened()
    outcome = Outcome()
    session.consumers.open("q", outcome)
    drive.sent()
    drive.answer(m.ChannelClose(404, "NOT_FOUND - no queue 'q'", 50, 10), 1)
    assert isinstance(outcome.error, QueueNotFound)
    assert drive.sent() == [Sent(1, m.ChannelCloseOk()), Sent(1, m.ChannelOpen())]


def test_a_channel_that_the_broker_closes_is_made_again_with_its_connection() -> None:
    drive, session = opened()
    outcome = drive.send(session, drive.producer(session), b"1")
    drive.sent()
    drive.answer(m.ChannelClose(406, "PRECONDITION_FAILED", 60, 40), 2)
    assert drive.core.failing_over
    assert not outcome.settled


def test_a_send_for_which_the_broker_ends_the_channel_twice_fails() -> None:
    drive, session = opened()
    outcome = drive.send(session, drive.producer(session), b"1")
    for _ in range(2):
        drive.sent()
        drive.answer(m.ChannelClose(406, "PRECONDITION_FAILED", 60, 40), 2)
        drive.clock.now_ms += 2000
        drive.core.handle_deadline()
        drive.again()
        drive.sent()
        drive.answer(m.ChannelOpenOk(), 2)
        drive.answer(m.ConfirmSelectOk(), 2)
    assert isinstance(outcome.error, ConnectionLost)
    assert "twice" in str(outcome.error)


def test_a_send_survives_any_number_of_cut_links() -> None:
    drive, session = opened()
    outcome = drive.send(session, drive.producer(session), b"1")
    for _ in range(4):
        assert [each.body for each in drive.sent() if isinstance(each.method, m.BasicPublish)] == [b"1"]
        drive.lose()
        drive.clock.now_ms += 2000
        drive.core.handle_deadline()
        drive.again()
        drive.sent()
        drive.answer(m.ChannelOpenOk(), 2)
        drive.answer(m.ConfirmSelectOk(), 2)
    drive.answer(m.BasicAck(1), 2)
    assert outcome.error is None
    assert outcome.settled


def test_a_message_beyond_the_limit_fails_one_receive() -> None:
    drive, session = opened()
    consumer = drive.consumer(session)
    method = method_frame(m.BasicDeliver("c0.1", 1, False, "", "q"), 2)
    header = encode_header(FRAME_BYTES_MAX + 1, encode_properties(BasicProperties()))
    drive.core.receive_data(method + encode_frame(FrameType.HEADER, 2, header))
    piece = bytes(100_000)
    left = FRAME_BYTES_MAX + 1
    while left:
        drive.core.receive_data(encode_frame(FrameType.BODY, 2, piece[:left]))
        left -= len(piece[:left])
    with pytest.raises(LimitExceeded, match="limit"):
        consumer.take()
    assert drive.methods() == [m.BasicReject(1)]


def test_properties_of_a_message_may_fill_a_frame_also_while_the_connection_is_lost() -> None:
    drive, session = opened()
    producer = drive.producer(session)
    drive.lose()
    drive.up()
    large = Message(b"", address="q", properties={"large": "x" * 20_000})
    outcome = Outcome()
    session.send(producer, large, outcome)
    assert outcome.error is None


def test_operations_that_the_protocol_does_not_have_name_themselves() -> None:
    drive, session = opened()
    for settings, what in ((ConsumerSettings(browse_only=True), "browser"), (ConsumerSettings("a = 1"), "filter")):
        outcome = Outcome()
        session.consumers.open("q", outcome, settings)
        assert isinstance(outcome.error, LocalProtocolError)
        assert what in str(outcome.error)
        assert "tcp://" in str(outcome.error)
    xa = Outcome()
    drive.core.sessions.open(SessionOptions(AcknowledgeMode.TRANSACTED, xa=True), xa)
    assert isinstance(xa.error, LocalProtocolError)
    producer = drive.producer(session)
    with pytest.raises(LocalProtocolError, match="message group"):
        session.send(producer, Message(b"", address="q", properties={GROUP_ID: "g"}), Outcome())
    with pytest.raises(LocalProtocolError, match="16777217 bytes"):
        session.send(producer, Message(bytes(AMQP091_MESSAGE_BYTES_MAX + 1), address="q"), Outcome())
    for properties, what in (
        ({"n" * 256: 1}, "name has 256 characters"),
        ({"large": "x" * 200_000}, "properties of 200"),
    ):
        with pytest.raises(LocalProtocolError, match=what):
            session.send(producer, Message(b"", address="q", properties=properties), Outcome())
    expiration = drive.clock.wall_ms() + AMQP091_LIFETIME_MS_MAX
    with pytest.raises(LocalProtocolError, match="lifetime"):
        session.send(producer, Message(b"", address="q", expiration=expiration + 1), Outcome())
    assert drive.sent() == []
    session.send(producer, Message(b"", address="q", expiration=expiration), Outcome())
    assert len(drive.sent()) == 1


def test_the_queue_of_a_shared_subscription_is_made() -> None:
    """Only names of attributes of a queue are compared, not those of the packet."""
    check_queue(CreateSharedQueueV2("news", "readers", durable=False, routing_type=0))
    with pytest.raises(LocalProtocolError, match="a queue with max_consumers"):
        check_queue(CreateSharedQueueV2("news", "readers", routing_type=0, max_consumers=1))


@pytest.mark.parametrize("address", ["news.#", "*.news"])
def test_a_subscription_of_a_wildcard_address_is_not_possible(address: str) -> None:
    """The queue would belong to an exchange of that name, to which no client publishes."""
    with pytest.raises(LocalProtocolError, match="wildcard address"):
        check_queue(CreateQueueV2(address, "readers", routing_type=0))
    check_queue(CreateQueueV2("news.#1", "readers", routing_type=0))


def test_a_closed_session_frees_its_channel() -> None:
    drive, session = opened()
    closed = Outcome()
    session.close(closed)
    assert drive.sent_one(m.ChannelClose).reply_code == 200
    drive.answer(m.ChannelCloseOk(), 2)
    assert closed.settled
    assert isinstance(session.closed, ObjectClosed)
    assert drive.session().channel_id > session.channel_id


def test_a_blocked_connection_does_not_count_as_lost() -> None:
    drive, session = opened()
    drive.send(session, drive.producer(session), b"1")
    drive.sent()
    drive.answer(m.ConnectionBlocked("address q is full"))
    for _ in range(40):
        drive.clock.now_ms += 1000
        drive.core.receive_data(encode_frame(FrameType.HEARTBEAT, 0, b""))
        drive.core.handle_deadline()
    assert drive.core.state is State.CONNECTED
    drive.answer(m.ConnectionUnblocked())
    for _ in range(31):
        drive.clock.now_ms += 1000
        drive.core.receive_data(encode_frame(FrameType.HEARTBEAT, 0, b""))
        drive.core.handle_deadline()
    assert drive.core.failing_over, "no send was confirmed"


def test_a_close_tells_the_broker() -> None:
    drive, _ = opened()
    drive.core.leave()
    assert drive.sent() == [Sent(0, m.ConnectionClose(200, "the client closes the connection"))]
