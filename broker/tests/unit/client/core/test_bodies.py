"""JMS bodies and messages to send (artemis-core s. 5.1, 5.2)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from understudy.client.core.consumer.bodies import (
    build_message,
    complete_message,
    decode_map,
    decode_text,
    delivery_properties,
    encode_map,
    encode_text,
)
from understudy.client.sources import plain_body
from understudy.errors import LocalProtocolError, RemoteProtocolError
from understudy.message import DUPLICATE_ID, ROUTING_TYPE, Message, MessageType
from understudy.properties import BYTE, STRING, Properties


@pytest.mark.parametrize(
    ("text", "body"), [(None, b"\x00"), ("", b"\x01\0\0\0\0"), ("Hi", bytes.fromhex("010000000448006900"))]
)
def test_text(text: str | None, body: bytes) -> None:
    assert encode_text(text) == body
    assert decode_text(body) == text


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01\0\0\0\x02H", b"\x01\0\0\0\0x", b"\x01\0\0\0\x01H"])
def test_no_text(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_text(body)


def test_map() -> None:
    values = {"a": 1, "b": "x", "c": None, "d": True, "e": b"raw", "f": 1.5}
    assert dict(decode_map(encode_map(values))) == values
    with pytest.raises(RemoteProtocolError):
        decode_map(encode_map(values) + b"x")


@pytest.mark.parametrize(
    ("body", "kind", "raw"),
    [
        (b"x", MessageType.BYTES, b"x"),
        ("x", MessageType.TEXT, encode_text("x")),
        ({"x": 1}, MessageType.MAP, encode_map({"x": 1})),
        (None, MessageType.DEFAULT, b""),
    ],
)
def test_type_follows_the_body(body: bytes | str | dict[str, int] | None, kind: MessageType, raw: bytes) -> None:
    message = build_message(body, address="a", routing=1, duplicate_id="d", timestamp_ms=5, properties={"p": 2})
    assert (message.type, message.body, message.address, message.timestamp) == (kind, raw, "a", 5)
    assert dict(message.properties) == {"p": 2, ROUTING_TYPE: 1, DUPLICATE_ID: "d"}
    assert message.properties.tag(ROUTING_TYPE) == BYTE
    assert message.properties.tag(DUPLICATE_ID) == STRING


def test_a_duplicate_id_of_the_caller_wins() -> None:
    own = Properties({DUPLICATE_ID: "mine"})
    message = build_message(b"", address="a", routing=None, duplicate_id="ours", timestamp_ms=0, properties=own)
    assert dict(message.properties) == {DUPLICATE_ID: "mine"}
    assert message.properties is not own, "the caller's properties are left alone"


def test_fields_out_of_range_are_refused() -> None:
    with pytest.raises(LocalProtocolError):
        build_message(b"", address="a", routing=None, duplicate_id=None, timestamp_ms=0, priority=10)


def test_a_complete_message_gets_its_missing_fields() -> None:
    bare = Message(b"x", properties={"p": 1}, priority=7)
    done = complete_message(bare, address="a", routing=0, duplicate_id="d")
    assert (done.address, done.priority, done.body) == ("a", 7, b"x")
    assert dict(done.properties) == {"p": 1, ROUTING_TYPE: 0, DUPLICATE_ID: "d"}
    assert dict(bare.properties) == {"p": 1}
    assert complete_message(done, address="b", routing=1, duplicate_id="e") is done, "nothing is overwritten"


@pytest.mark.parametrize(
    ("body", "properties", "error", "text"),
    [
        (5, {}, TypeError, "a body cannot be 5 of type int; json= sends a JSON document of it"),
        (True, {}, TypeError, "of type bool"),
        ({"a": [1]}, {}, LocalProtocolError, "the map of a message: a property cannot be a list (json= sends"),
        ({1: 2}, {}, LocalProtocolError, "the name of a property is a text, 1 is none"),
        (b"", {1: 2}, LocalProtocolError, "the name of a property is a text, 1 is none"),
        (b"", {"a": 1 << 70}, LocalProtocolError, f"property 'a': {1 << 70} is no integer of 64 bits"),
    ],
)
def test_a_body_or_property_that_cannot_be_sent_is_named(
    body: Any, properties: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        build_message(
            body, address="a", routing=None, duplicate_id=None, timestamp_ms=0, properties=properties
        ).encode()


def test_a_correlation_id_that_is_a_number_is_named() -> None:
    own = delivery_properties({}, correlation_id=17)  # type: ignore[arg-type]  # the error of a caller
    with pytest.raises(LocalProtocolError, match="property 'JMSCorrelationID': 17 is no text"):
        own.encode()


@pytest.mark.parametrize("body", [bytearray(b"ab"), memoryview(b"ab")])
def test_a_buffer_is_a_body_of_bytes(body: bytearray | memoryview) -> None:
    assert plain_body(body) == b"ab"
    assert type(plain_body(body)) is bytes
    assert plain_body("text") == "text"
