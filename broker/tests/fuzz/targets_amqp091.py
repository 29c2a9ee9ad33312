"""Decoders of AMQP 0-9-1: frames, methods, field tables, property lists, logins, and lists that CORE clients wrote."""

from __future__ import annotations

from fuzz.target import Target
from understudy.limits import AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX
from understudy.message import Message
from understudy.properties import Properties
from understudy.protocols.amqp091 import sasl
from understudy.protocols.amqp091.messages import MessageCarrier, to_delivery
from understudy.protocols.amqp091.session_request import session_request
from understudy.routing.exchanges.carrier import Death, Reason
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.core_messages import PROPERTY_LIST
from understudy.wire.amqp091.frames import FrameDecoder, FrameType, content_frames, method_frame
from understudy.wire.amqp091.layout import decode_method, encode_method
from understudy.wire.amqp091.methods import BasicPublish, ConnectionStartOk, QueueDeclare
from understudy.wire.amqp091.properties import (
    BasicProperties,
    decode_header,
    decode_properties,
    encode_properties,
    with_fields,
)
from understudy.wire.amqp091.tables import Decimal, Timestamp, decode_table, encode_table, join_fields, raw_fields

TABLE = {
    "text": "é", "long": 1 << 40, "int": -1, "double": 1.5, "yes": True, "raw": b"\xff", "none": None,
    "time": Timestamp(1), "decimal": Decimal(2, 3), "list": [1, [2, {"x": None}]], "table": {"a": {"b": "c"}},
}  # fmt: skip
PROPERTIES = BasicProperties(
    content_type="text/plain", headers=TABLE, delivery_mode=2, priority=5, correlation_id="c", timestamp=7, app_id="a"
)


def _frames(data: bytes) -> None:
    decoder = FrameDecoder(AMQP091_FRAME_BYTES_BEFORE_LOGIN_MAX)
    decoder.receive(data)
    while (frame := decoder.next()) is not None:
        if frame.type == FrameType.METHOD:
            decode_method(frame.payload)
        elif frame.type == FrameType.HEADER:
            decode_properties(decode_header(frame.payload)[1])


def _method(data: bytes) -> None:
    method = decode_method(data)
    again = decode_method(encode_method(method))
    # a value that is no number is not equal to itself
    assert repr(again) == repr(method)


def _table(data: bytes) -> None:
    table, end = decode_table(data, 0, len(data))
    fields = dict(raw_fields(data[:end]))
    assert list(fields) == list(table)
    joined = join_fields(fields)
    assert repr(decode_table(joined, 0, len(joined))[0]) == repr(table)


def _properties(data: bytes) -> None:
    before = decode_properties(data)
    after = decode_properties(with_fields(data, headers={"added": b"V"}))
    assert repr({**(before.headers or {}), "added": None}) == repr({**(after.headers or {}), "added": None})


def _login(data: bytes) -> None:
    for mechanism in sasl.mechanisms(by_certificate=False):
        try:
            sasl.credentials(mechanism, data, by_certificate=False)
        except Amqp091Error:
            continue
    session_request(decode_table(data, 0, len(data))[0])


def _foreign_list(data: bytes) -> None:
    """A CORE client may write the property with the list, so nothing in it is an error."""
    message = Message(b"body", address="q", properties=Properties({PROPERTY_LIST: data}))
    frame_bytes = 4096
    assert len(to_delivery(message, "q", frame_bytes).properties) <= frame_bytes
    letter = MessageCarrier().dead_letter(message, Death("q", Reason.REJECTED, 1, None, ""))
    decode_properties(to_delivery(letter.message, "q", frame_bytes).properties)


def _stream() -> bytes:
    start = ConnectionStartOk({"product": "x", "capabilities": {"basic.nack": True}}, "PLAIN", b"\0a\0b", "en_US")
    publish = content_frames(BasicPublish(0, "x", "k"), encode_properties(PROPERTIES), b"body", 1, 4096)
    return method_frame(start, 0) + publish


AMQP091 = (
    Target("amqp091-frames", _frames, (Amqp091Error,), lambda: [_stream()], memory_per_byte=256),
    Target(
        "amqp091-method",
        _method,
        (Amqp091Error,),
        lambda: [encode_method(QueueDeclare(0, "q", durable=True, arguments=TABLE))],
        memory_per_byte=256,
    ),
    Target("amqp091-table", _table, (Amqp091Error,), lambda: [encode_table(TABLE)], memory_per_byte=256),
    Target(
        "amqp091-properties",
        _properties,
        (Amqp091Error,),
        lambda: [encode_properties(PROPERTIES)],
        memory_per_byte=256,
    ),
    Target(
        "amqp091-login",
        _login,
        (Amqp091Error,),
        lambda: [
            b"\0user\0password",
            encode_table({"LOGIN": "user", "PASSWORD": "password"})[4:],
            encode_table({"qpid.session.attach": "8e0f0c4e-7c1f-4e0b-9d5b-1f6a3f6f0a11", "qpid.session.timeout": 5}),
        ],
        memory_per_byte=256,
    ),
    Target(
        "amqp091-foreign-list",
        _foreign_list,
        (),
        lambda: [
            encode_properties(PROPERTIES),
            encode_properties(BasicProperties(headers={"x-death": [{"queue": "q", "reason": "rejected", "count": 1}]})),
        ],
        memory_per_byte=512,
    ),
)
