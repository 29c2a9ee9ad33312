"""A broker that goes on and ends the connection for a request, or exceeds a limit: only that request fails."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.oversized import oversized
from support.packet_driver import PacketDriver, sends_of
from understudy.errors import ConnectionLost, LimitExceeded
from understudy.limits import PROPERTIES_MAX, STRING_UNITS_MAX
from understudy.message import Message
from understudy.wire.core.packets import (
    NullResponse,
    QueueQuery,
    QueueQueryResponseV3,
    ReceiveContinuation,
    ReceiveLargeMessage,
    ReceiveMessage,
    header_of_message,
)

MANY = {f"p{number}": number for number in range(PROPERTIES_MAX + 4000)}


def ask(talk: PacketDriver) -> Outcome:
    outcome = Outcome()
    talk.session.request("query", QueueQuery("q"), QueueQueryResponseV3, outcome)
    talk.sent()
    return outcome


def test_a_call_for_which_the_same_broker_ends_the_connection_twice_fails_and_later_ones_go_on() -> None:
    talk = PacketDriver()
    first, second = ask(talk), ask(talk)
    talk.lose()
    assert QueueQuery("q") in talk.recover()
    assert not first.settled
    talk.lose()
    talk.recover()
    assert isinstance(first.error, ConnectionLost)
    assert "query: the broker has ended the connection twice" in str(first.error)
    assert not second.settled
    talk.answer(QueueQueryResponseV3(True, True, name="q", address="q"))
    assert second.value.name == "q"


def test_a_send_for_which_the_broker_ends_the_connection_twice_fails() -> None:
    talk = PacketDriver()
    bad = talk.send(b"bad")
    for _ in range(2):
        assert not bad.settled
        talk.sent()
        talk.lose()
        packets = talk.recover()
    assert sends_of(packets) == []
    assert isinstance(bad.error, ConnectionLost)
    good = talk.send(b"good")
    talk.answer(NullResponse(2))
    assert good.settled
    assert good.error is None


def test_of_several_sends_the_one_that_ends_the_connection_is_found() -> None:
    talk = PacketDriver()
    outcomes = {body: talk.send(body) for body in (b"a", b"bad", b"c")}
    talk.sent()
    talk.lose()
    assert [body for body, _ in sends_of(talk.recover())] == [b"a", b"bad", b"c"]
    talk.lose()
    assert [body for body, _ in sends_of(talk.recover())] == [b"a"], "each alone"
    outcomes[b"d"] = talk.send(b"d")
    assert sends_of(talk.sent()) == [], "the order is kept"
    talk.answer(NullResponse(1))
    assert [body for body, _ in sends_of(talk.sent())] == [b"bad"]
    talk.lose()
    assert [body for body, _ in sends_of(talk.recover())] == [b"c", b"d"]
    assert isinstance(outcomes[b"bad"].error, ConnectionLost)
    for correlation_id in (3, 4):
        talk.answer(NullResponse(correlation_id))
    assert all(outcome.settled for outcome in outcomes.values())
    assert [outcome.error is None for outcome in outcomes.values()] == [True, False, True, True]


def test_a_message_with_more_properties_than_may_be_sent_is_handed_over() -> None:
    talk = PacketDriver()
    consumer = talk.consumer()
    message = Message(b"x", address="q", message_id=7, properties={**MANY, "long": "x" * (STRING_UNITS_MAX + 1)})
    talk.drive.core.receive_data(oversized(ReceiveMessage(message, consumer.consumer_id, 1), talk.session.channel_id))
    received = consumer.take()
    assert received is not None
    assert len(received.properties) == PROPERTIES_MAX + 4001
    header = header_of_message(message)
    talk.answer(ReceiveLargeMessage(consumer.consumer_id, 1, 4, header))
    talk.answer(ReceiveContinuation(b"body", False, consumer.consumer_id))
    large = consumer.take()
    assert large is not None
    assert large.body == b"body"


def test_a_delivery_that_cannot_be_read_fails_one_receive() -> None:
    talk = PacketDriver()
    consumer = talk.consumer()
    decoder = talk.drive.core.link.decoder
    assert decoder is not None
    decoder.frame_limit_bytes = 1000
    frame = oversized(
        ReceiveMessage(Message(bytes(5000), address="q", message_id=7), consumer.consumer_id, 1),
        talk.session.channel_id,
    )
    talk.drive.core.receive_data(frame)
    talk.deliver(consumer, 8)
    with pytest.raises(LimitExceeded, match="limit 1000"):
        consumer.take()
    received = consumer.take()
    assert received is not None
    assert received.message_id == 8


def test_an_answer_beyond_a_limit_fails_its_call() -> None:
    talk = PacketDriver()
    outcome = ask(talk)
    answer = QueueQueryResponseV3(True, True, name="q", address="q", filter="x" * (STRING_UNITS_MAX + 1))
    talk.drive.core.receive_data(oversized(answer, talk.session.channel_id))
    assert isinstance(outcome.error, LimitExceeded)
    other = ask(talk)
    talk.answer(QueueQueryResponseV3(True, True, name="q", address="q"))
    assert other.value.name == "q"
