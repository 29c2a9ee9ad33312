"""Queues, exchanges and subscriptions that the client made on demand and that are gone: it makes them again."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.client091 import Drive091, Sent, status
from understudy.client.core.consumer.state import ConsumerSettings
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.sends import ProducerState
from understudy.client.core.session.state import SessionState
from understudy.errors import AddressNotFound, QueueNotFound, TransactionRolledBack
from understudy.message import ROUTING_TYPE, Message
from understudy.wire.amqp091 import methods as m
from understudy.wire.core.packets import CreateQueueV2

ANYCAST, MULTICAST = 1, 0
NO_QUEUE = m.ChannelClose(404, "NOT_FOUND - no queue 'q'")


def opened(
    mode: AcknowledgeMode = AcknowledgeMode.AUTO, routing: int = ANYCAST
) -> tuple[Drive091, SessionState, ProducerState]:
    """A connection with a session and a producer that makes its queue on demand."""
    drive = Drive091()
    drive.connect()
    session = drive.session(mode)
    producer = session.open_producer("q", 500, repeats=True, on_demand=routing)
    assert drive.sent() == []
    return drive, session, producer


def bodies(sent: list[Sent]) -> list[bytes]:
    """Bodies of the messages among the methods."""
    return [each.body for each in sent if isinstance(each.method, m.BasicPublish)]


def come_back(drive: Drive091, first: int, *sent: bytes) -> None:
    """The broker returns and confirms messages."""
    for body in sent:
        drive.deliver(m.BasicReturn(312, "NO_ROUTE", "", "q"), body, delivery_mode=2, priority=4)
    drive.answer(m.BasicAck(first + len(sent) - 1, multiple=True), 2)


def make_queue(drive: Drive091) -> None:
    """The client looks for the queue, and makes it."""
    assert drive.sent() == [Sent(1, m.QueueDeclare(0, "q", passive=True))]
    drive.answer(NO_QUEUE, 1)
    assert drive.sent() == [Sent(1, m.ChannelCloseOk()), Sent(1, m.ChannelOpen())]
    drive.answer(m.ChannelOpenOk(), 1)
    assert drive.sent() == [Sent(1, m.QueueDeclare(0, "q", durable=True))]
    drive.answer(m.QueueDeclareOk("q", 0, 0), 1)


def test_messages_that_come_back_are_sent_again_in_their_order_before_later_ones() -> None:
    drive, session, producer = opened()
    outcomes = [drive.send(session, producer, body) for body in (b"1", b"2")]
    drive.sent()
    come_back(drive, 1, b"1", b"2")
    outcomes.append(drive.send(session, producer, b"3"))
    make_queue(drive)
    assert bodies(drive.sent()) == [b"1", b"2", b"3"]
    assert not any(each.settled for each in outcomes)
    drive.answer(m.BasicAck(5, multiple=True), 2)
    assert [(each.settled, each.error) for each in outcomes] == [(True, None)] * 3


def test_the_queue_is_made_and_messages_are_sent_again_when_those_before_them_have_their_outcome() -> None:
    """The queue is made on another channel: it would get messages that are still on their way first."""
    drive, session, producer = opened()
    outcomes = [drive.send(session, producer, body) for body in (b"1", b"2", b"3")]
    drive.sent()
    come_back(drive, 1, b"1")
    assert drive.sent() == []
    come_back(drive, 2, b"2")
    assert drive.sent() == []
    drive.answer(m.BasicAck(3), 2)
    make_queue(drive)
    assert bodies(drive.sent()) == [b"1", b"2"]
    assert [each.settled for each in outcomes] == [False, False, True]


def test_a_message_that_comes_back_twice_is_an_error() -> None:
    drive, session, producer = opened()
    outcome = drive.send(session, producer, b"1")
    drive.sent()
    come_back(drive, 1, b"1")
    make_queue(drive)
    drive.sent()
    come_back(drive, 2, b"1")
    assert isinstance(outcome.error, AddressNotFound)
    assert drive.sent() == []


def test_a_queue_that_may_not_be_made_is_named_with_the_reason() -> None:
    drive, session, producer = opened()
    outcome = drive.send(session, producer, b"1")
    later = drive.send(session, producer, b"2")
    drive.sent()
    come_back(drive, 1, b"1", b"2")
    drive.sent()
    drive.answer(NO_QUEUE, 1)
    drive.answer(m.ChannelOpenOk(), 1)
    drive.sent()
    drive.answer(m.ChannelClose(403, "ACCESS_REFUSED - no"), 1)
    for each in (outcome, later):
        assert isinstance(each.error, AddressNotFound)
        assert str(each.error).endswith("NO_ROUTE, and it cannot be made again: ACCESS_REFUSED - no")


def test_a_producer_that_makes_no_queue_gets_the_error() -> None:
    drive, session, producer = opened()
    other = session.open_producer(None, 500, repeats=True)
    session.close_producer(producer)
    outcome = drive.send(session, other, b"1")
    drive.sent()
    come_back(drive, 1, b"1")
    assert isinstance(outcome.error, AddressNotFound)
    assert drive.sent() == []


def test_messages_of_a_producer_that_is_closed_meanwhile_are_sent_again() -> None:
    drive, session, producer = opened()
    outcome = drive.send(session, producer, b"1")
    session.close_producer(producer)
    drive.sent()
    come_back(drive, 1, b"1")
    make_queue(drive)
    assert bodies(drive.sent()) == [b"1"]
    drive.answer(m.BasicAck(2), 2)
    assert (outcome.settled, outcome.error) == (True, None)


def test_messages_that_are_not_durable_are_sent_again() -> None:
    drive, session, producer = opened()
    drive.send(session, producer, b"1", durable=False)
    drive.sent()
    drive.deliver(m.BasicReturn(312, "NO_ROUTE", "", "q"), b"1", delivery_mode=1, priority=4)
    drive.answer(m.BasicAck(1), 2)
    make_queue(drive)
    assert bodies(drive.sent()) == [b"1"]


@pytest.mark.parametrize("accepted", [0, 1])
def test_the_queue_is_made_at_a_new_session_before_messages(accepted: int) -> None:
    drive, session, producer = opened()
    outcome = drive.send(session, producer, b"1")
    drive.sent()
    drive.lose()
    drive.again()
    assert drive.sent() == [Sent(1, m.ChannelOpen()), Sent(2, m.ChannelOpen("resume;tag=0;seq=1"))]
    drive.answer(m.ChannelOpenOk(), 1)
    drive.answer(status(publishes={"accepted": accepted, "returned": [1][:accepted]}), 2)
    assert drive.methods() == [m.BasicRecover(requeue=True)]
    drive.answer(m.BasicRecoverOk(), 2)
    make_queue(drive)
    assert bodies(drive.sent()) == [b"1"]
    drive.answer(m.BasicAck(accepted + 1), 2)
    assert (outcome.settled, outcome.error) == (True, None)


def test_a_transaction_waits_until_its_queue_is_made() -> None:
    drive, session, producer = opened(AcknowledgeMode.TRANSACTED)
    drive.lose()
    drive.again()
    drive.answer(m.ChannelOpenOk(), 1)
    drive.answer(m.ChannelOpenOk(), 2)
    drive.answer(m.TxSelectOk(), 2)
    committed = Outcome()
    drive.send(session, producer, b"1")
    session.commit(committed)
    assert [each for each in drive.methods() if not isinstance(each, m.ChannelOpen | m.TxSelect)] == []
    drive.answer(m.QueueDeclareOk("q", 0, 0), 1)
    assert [type(each) for each in drive.methods()] == [m.BasicPublish, m.TxCommit]
    drive.answer(m.TxCommitOk(), 2)
    assert (committed.settled, committed.error) == (True, None)


def test_a_commit_that_waits_for_its_queue_when_the_connection_is_lost_is_decided() -> None:
    drive, session, producer = opened(AcknowledgeMode.TRANSACTED)
    drive.lose()
    drive.again()
    drive.answer(m.ChannelOpenOk(), 1)
    drive.answer(m.ChannelOpenOk(), 2)
    drive.answer(m.TxSelectOk(), 2)
    committed = Outcome()
    drive.send(session, producer, b"1")
    session.commit(committed)
    drive.sent()
    drive.lose()
    drive.clock.now_ms += 2000
    drive.core.handle_deadline()
    drive.again()
    drive.answer(m.ChannelOpenOk(), 1)
    drive.answer(status(mode="tx", tx={"commits": 0}), 2)
    assert isinstance(committed.error, TransactionRolledBack)


def test_an_exchange_is_made_again_when_its_absence_has_closed_the_channel() -> None:
    drive, session, producer = opened(routing=MULTICAST)
    outcome = Outcome()
    session.send(producer, Message(b"1", address="q", properties={ROUTING_TYPE: MULTICAST}), outcome)
    drive.sent()
    drive.answer(m.ChannelClose(404, "NOT_FOUND - no exchange 'q'", 60, 40), 2)
    drive.clock.now_ms += 2000
    drive.core.handle_deadline()
    drive.again()
    drive.answer(m.ChannelOpenOk(), 1)
    drive.answer(m.ChannelOpenOk(), 2)
    drive.answer(m.ConfirmSelectOk(), 2)
    assert Sent(1, m.ExchangeDeclare(0, "q", "fanout", passive=True)) in drive.sent()
    drive.answer(m.ChannelClose(404, "NOT_FOUND - no exchange 'q'"), 1)
    drive.answer(m.ChannelOpenOk(), 1)
    assert Sent(1, m.ExchangeDeclare(0, "q", "fanout", durable=True)) in drive.sent()
    drive.answer(m.ExchangeDeclareOk(), 1)
    assert bodies(drive.sent()) == [b"1"]
    drive.answer(m.BasicAck(1), 2)
    assert (outcome.settled, outcome.error) == (True, None)


@pytest.mark.parametrize("on_demand", [True, False])
def test_a_consumer_makes_its_queue_at_a_new_session(on_demand: bool) -> None:
    drive = Drive091(keeps_sessions=False)
    drive.connect()
    session = drive.session()
    outcome = Outcome()
    session.consumers.open("q", outcome, ConsumerSettings(on_demand=on_demand))
    drive.sent()
    drive.answer(m.QueueDeclareOk("q", 0, 0), 1)
    drive.answer(m.BasicQosOk(), 2)
    consumer = outcome.value
    drive.sent()
    drive.lose()
    drive.again()
    drive.answer(m.ChannelOpenOk(), 1)
    drive.answer(m.ChannelOpenOk(), 2)
    drive.answer(m.ConfirmSelectOk(), 2)
    drive.sent()
    drive.answer(NO_QUEUE, 1)
    drive.answer(m.ChannelOpenOk(), 1)
    if on_demand:
        assert Sent(1, m.QueueDeclare(0, "q", durable=True)) in drive.sent()
        drive.answer(m.QueueDeclareOk("q", 0, 0), 1)
        assert drive.sent() == [Sent(1, m.QueueDeclare(0, "q", passive=True))]
        drive.answer(m.QueueDeclareOk("q", 0, 0), 1)
        assert m.BasicConsume in map(type, drive.methods())
        assert consumer.ended is None
    else:
        assert isinstance(consumer.ended, QueueNotFound)


def test_the_exchange_of_a_subscription_is_made_again() -> None:
    drive = Drive091(keeps_sessions=False)
    drive.connect()
    session = drive.session()
    session.temporary_queue_created(CreateQueueV2("news", "s", None, False, True, True, False, MULTICAST))
    drive.lose()
    drive.again()
    drive.answer(m.ChannelOpenOk(), 1)
    drive.answer(m.ChannelOpenOk(), 2)
    drive.answer(m.ConfirmSelectOk(), 2)
    assert Sent(1, m.QueueDeclare(0, "s", exclusive=True)) in drive.sent()
    drive.answer(m.QueueDeclareOk("s", 0, 0), 1)
    assert drive.sent_one(m.QueueBind).exchange == "news"
    drive.answer(m.ChannelClose(404, "NOT_FOUND - no exchange 'news'"), 1)
    drive.answer(m.ChannelOpenOk(), 1)
    drive.answer(m.ChannelClose(404, "NOT_FOUND - no exchange 'news'"), 1)
    drive.answer(m.ChannelOpenOk(), 1)
    assert Sent(1, m.ExchangeDeclare(0, "news", "fanout", durable=True)) in drive.sent()
    drive.answer(m.ExchangeDeclareOk(), 1)
    assert drive.sent_one(m.QueueBind) == m.QueueBind(0, "s", "news", "")
