"""Contents of all kinds of messages, and what a message of another kind says (artemis-core s. 5.2)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from support.packet_driver import PacketDriver
from understudy.client.core.consumer.bodies import build_message, encode_text
from understudy.client.core.consumer.content import decode_content
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.client.core.consumer.stream_bodies import decode_stream, encode_stream
from understudy.client.core.session.send_options import delivery_ms, expiration_ms, json_text
from understudy.errors import IllegalState, LocalProtocolError, RemoteProtocolError
from understudy.message import Message, MessageType
from understudy.properties import PropertyValue

#: Every type of value in a stream message, as ``ActiveMQStreamMessage`` of Artemis writes it.
FROM_JAVA = bytes.fromhex(
    "0201"  # boolean true
    "03ff"  # byte -1
    "0400000002abcd"  # bytes
    "05fffe"  # short -2
    "06fffffffd"  # int -3
    "07fffffffffffffffc"  # long -4
    "083fc00000"  # float 1.5
    "094004000000000000"  # double 2.5
    "0a010000000200480069"  # "Hi", short form
    "0a010000000a000a30313233343536373839"  # ten characters: UTF form
    "0a00"  # null
    "0b0041"  # char A
)  # fmt: skip
VALUES: list[PropertyValue] = [True, -1, b"\xab\xcd", -2, -3, -4, 1.5, 2.5, "Hi", "0123456789", None, 0x41]


def received(message: Message) -> ReceivedMessage:
    talk = PacketDriver()
    return ReceivedMessage(message, 1, 10, talk.consumer())


def test_a_stream_of_java_is_read() -> None:
    assert decode_stream(FROM_JAVA) == VALUES


def test_a_stream_that_was_written_is_read() -> None:
    values: list[PropertyValue] = [True, 5, 2.5, "x", "y" * 5000, "\U0001f600", b"raw", None]
    assert decode_stream(encode_stream(values)) == values
    message = build_message(values, address="a", routing=None, duplicate_id=None, timestamp_ms=0)
    assert message.type == MessageType.STREAM
    assert received(message).content == values


@pytest.mark.parametrize("body", [b"\x0c", b"\x05\x00", b"\x0a\x01\xff\xff\xff\xff", b"\x04\x00\x00\x00\x05x"])
def test_no_stream(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_stream(body)


@pytest.mark.parametrize("value", [2**63, {"a": 1}, object()])
def test_a_value_that_no_stream_holds(value: PropertyValue) -> None:
    with pytest.raises(LocalProtocolError, match="stream message"):
        encode_stream([value])


@pytest.mark.parametrize(
    ("kind", "body", "content"),
    [
        (MessageType.TEXT, encode_text("x"), "x"),
        (MessageType.TEXT, encode_text(None), None),
        (MessageType.BYTES, b"", b""),
        (MessageType.OBJECT, b"\xac", b"\xac"),
        (MessageType.MAP, b"\x00", {}),
        (MessageType.DEFAULT, b"", None),
        (MessageType.DEFAULT, b"x", b"x"),
        (99, b"x", b"x"),
    ],
)
def test_the_kind_says_what_the_content_is(kind: int, body: bytes, content: object) -> None:
    assert decode_content(kind, body) == content
    assert received(Message(body, type=kind)).content == content


@pytest.mark.parametrize(
    ("kind", "says"), [(4, "a bytes message .use message.body"), (5, "a map message .use message.content")]
)
def test_text_refuses_another_kind(kind: int, says: str) -> None:
    with pytest.raises(IllegalState, match=says):
        assert received(Message(b"\x00", type=kind, message_id=7)).text


@pytest.mark.parametrize(
    ("kind", "says"),
    [(3, "message 7 is a text message .use message.text"), (6, "a stream message .use message.content")],
)
def test_body_refuses_another_kind(kind: int, says: str) -> None:
    with pytest.raises(IllegalState, match=says):
        assert received(Message(b"\x00", type=kind, message_id=7)).body


def test_json() -> None:
    assert received(Message(encode_text('{"a": 1}'), type=MessageType.TEXT)).json() == {"a": 1}
    assert received(Message(b"[1]", type=MessageType.BYTES)).json() == [1]
    with pytest.raises(ValueError, match="Expecting"):
        received(Message(b"{", type=MessageType.BYTES)).json()
    with pytest.raises(IllegalState, match="a map message without a JSON document"):
        received(Message(b"\x00", type=MessageType.MAP)).json()
    assert json_text(None, None) == "null"
    with pytest.raises(TypeError, match="not both"):
        json_text(1, "body")
    with pytest.raises(ValueError, match="JSON"):
        json_text(float("nan"), None)


def test_moments() -> None:
    never = received(Message(b""))
    assert (never.timestamp, never.expires_at, never.group_id, never.type) == (None, None, None, MessageType.BYTES)
    message = received(Message(b"", timestamp=1_500, expiration=2**63 - 1, type=99))
    assert message.timestamp == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert message.expires_at == datetime.max.replace(tzinfo=UTC)
    assert message.type == 99


def test_times_of_delivery_and_expiry() -> None:
    assert delivery_ms(None, None, 1000) == 0
    assert delivery_ms(None, 0, 1000) == 0
    assert delivery_ms(None, 1.5, 1000) == 2500
    assert delivery_ms(12.5, None, 1000) == 12_500
    assert delivery_ms(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), None, 1000) == 2000
    assert (expiration_ms(None, 1000), expiration_ms(0.5, 1000), expiration_ms(1e-9, 1000)) == (0, 1500, 1001)
    with pytest.raises(ValueError, match="not both"):
        delivery_ms(1.0, 1.0, 0)
    with pytest.raises(ValueError, match="0 or more"):
        delivery_ms(None, -1, 0)
    with pytest.raises(ValueError, match="more than 0"):
        expiration_ms(0, 0)
