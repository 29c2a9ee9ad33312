"""Calls and sends beyond the limits of a broker fail before anything is sent, and the others go on."""

from __future__ import annotations

import pytest

from support.client import Outcome
from support.packet_driver import PacketDriver
from understudy.client.core.consumer.bodies import build_message, check_sendable, complete_message
from understudy.client.core.consumer.state import ConsumerSettings
from understudy.client.core.url.destinations import query_queue
from understudy.errors import LocalProtocolError
from understudy.limits import NAME_UNITS_MAX, PROPERTIES_MAX, STRING_UNITS_MAX
from understudy.message import Message
from understudy.wire.core.packets import QueueQuery, QueueQueryResponseV3


def ask(talk: PacketDriver, queue: str) -> Outcome:
    outcome, request = Outcome(), query_queue(queue)
    talk.session.request(request.name, request.packet, request.expected, outcome)
    return outcome


def test_a_call_with_a_name_that_is_too_long_fails_and_the_next_one_goes_on() -> None:
    talk = PacketDriver()
    before = ask(talk, "before")
    refused, after = ask(talk, "q" * (NAME_UNITS_MAX + 1)), ask(talk, "after")
    assert talk.sent() == [QueueQuery("before")]
    talk.answer(QueueQueryResponseV3(True))
    assert before.error is None
    assert isinstance(refused.error, LocalProtocolError)
    assert talk.sent() == [QueueQuery("after")]
    talk.answer(QueueQueryResponseV3(True))
    assert after.error is None
    assert not talk.drive.core.failing_over


def test_a_selector_that_is_too_long_fails_its_call() -> None:
    talk = PacketDriver()
    outcome = Outcome()
    talk.session.consumers.open("q", outcome, ConsumerSettings("a" * (STRING_UNITS_MAX + 1)))
    assert isinstance(outcome.error, LocalProtocolError)
    assert talk.sent() == []
    assert talk.consumer("q").opened


@pytest.mark.parametrize(
    "message",
    [
        Message(b"", address="a" * (NAME_UNITS_MAX + 1)),
        Message(b"", address="a", properties={f"p{number}": 1 for number in range(PROPERTIES_MAX + 1)}),
        Message(b"", address="a", properties={"p": "x" * (STRING_UNITS_MAX + 1)}),
        Message(b"", address="a", properties={"p": "\U0001f600" * (STRING_UNITS_MAX // 2 + 1)}),
        Message(b"", address="a", properties={"p" * (STRING_UNITS_MAX + 1): 1}),
    ],
    ids=["address", "number of properties", "text", "text of pairs", "name"],
)
def test_a_message_beyond_the_limits_is_not_sent(message: Message) -> None:
    with pytest.raises(LocalProtocolError, match="limit"):
        complete_message(message, address="a", routing=None, duplicate_id=None)
    with pytest.raises(LocalProtocolError, match="limit"):
        build_message(
            b"",
            address=message.address or "",
            routing=1,
            duplicate_id="d",
            timestamp_ms=0,
            properties=message.properties,
        )


@pytest.mark.parametrize(
    "message",
    [
        Message(b"x" * 5000, address="a" * NAME_UNITS_MAX),
        Message(b"", address="a", properties={f"p{number}": 1 for number in range(PROPERTIES_MAX)}),
        Message(b"", address="a", properties={"p": "x" * STRING_UNITS_MAX}),
    ],
    ids=["address", "number of properties", "text"],
)
def test_a_message_at_its_limits_is_sent(message: Message) -> None:
    check_sendable(message)
