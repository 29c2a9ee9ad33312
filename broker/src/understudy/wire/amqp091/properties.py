"""The property list of a content header of class 60 (AMQP 0-9-1, basic): decoded, encoded, and its fields replaced.

The bytes that a publisher sent are kept as they are, so that every value type reaches the consumer unchanged.
"""

from __future__ import annotations

import struct
from typing import Final

from understudy.dataclass import dataclass
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.layout import decode_short
from understudy.wire.amqp091.tables import (
    Table,
    decode_table,
    encode_short,
    encode_table,
    join_fields,
    malformed,
    raw_fields,
)

BASIC: Final = 60
_HEADER = struct.Struct(">HHQ")
_FLAGS = struct.Struct(">H")
_U64 = struct.Struct(">Q")
_NAMES: Final = (
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
_OCTETS: Final = frozenset({"delivery_mode", "priority"})
PERSISTENT: Final = 2


@dataclass(frozen=True, slots=True)
class BasicProperties:
    """Properties of a message; None: absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    """2: the message is durable."""
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    """Milliseconds as text."""
    message_id: str | None = None
    timestamp: int | None = None
    """Seconds since 1970 UTC."""
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


def decode_header(payload: bytes) -> tuple[int, bytes]:
    """Body size in bytes and encoded property list of the payload of a header frame.

    Raises:
        Amqp091Error: UNEXPECTED_FRAME: the header is not one of class 60. FRAME_ERROR: it cannot be read.
    """
    if len(payload) < _HEADER.size + _FLAGS.size:
        raise Amqp091Error(ReplyCode.FRAME_ERROR, f"a content header of {len(payload)} bytes")
    class_id, weight, body_bytes = _HEADER.unpack_from(payload)
    if class_id != BASIC:
        raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, f"a content header of class {class_id}, not {BASIC}")
    if weight:
        raise Amqp091Error(ReplyCode.FRAME_ERROR, f"a content header with weight {weight}")
    return body_bytes, bytes(payload[_HEADER.size :])


def encode_header(body_bytes: int, properties: bytes) -> bytes:
    """Payload of a header frame with an encoded property list."""
    return _HEADER.pack(BASIC, 0, body_bytes) + properties


def decode_properties(encoded: bytes) -> BasicProperties:
    """The properties of an encoded list, which they must fill exactly. Raises Amqp091Error."""
    values: dict[str, object] = {}
    for name, start, end in _places(encoded):
        if name == "headers":
            values[name] = decode_table(encoded, start, end)[0]
        elif name in _OCTETS:
            values[name] = encoded[start]
        elif name == "timestamp":
            values[name] = _U64.unpack_from(encoded, start)[0]
        else:
            values[name] = decode_short(encoded, start, end)[0]
    return BasicProperties(**values)  # type: ignore[arg-type]  # each value was decoded by its own encoding


def _places(encoded: bytes) -> list[tuple[str, int, int]]:
    """Name, begin and end of each property in an encoded list."""
    end = len(encoded)
    if end < _FLAGS.size:
        raise malformed("a property list without flags")
    (flags,) = _FLAGS.unpack_from(encoded)
    if flags & 3:
        raise Amqp091Error(ReplyCode.FRAME_ERROR, "a property list with unknown flags")
    found: list[tuple[str, int, int]] = []
    offset = _FLAGS.size
    for number, name in enumerate(_NAMES):
        if not flags >> 15 - number & 1:
            continue
        start = offset
        if name == "headers":
            offset += 4 + (int.from_bytes(encoded[offset : offset + 4], "big") if offset + 4 <= end else 0)
        elif name in _OCTETS:
            offset += 1
        elif name == "timestamp":
            offset += 8
        else:
            offset += 1 + (encoded[offset] if offset < end else 0)
        if offset > end:
            raise malformed(f"the property {name} is cut off")
        found.append((name, start, offset))
    if offset != end:
        raise malformed(f"{end - offset} bytes after the last property")
    return found


def encode_properties(properties: BasicProperties) -> bytes:
    """The encoded list. Raises LocalProtocolError."""
    parts: dict[str, bytes] = {}
    for name in _NAMES:
        value = getattr(properties, name)
        if value is None:
            continue
        if name == "headers":
            parts[name] = encode_table(value)
        elif name in _OCTETS:
            parts[name] = bytes((value & 255,))
        elif name == "timestamp":
            parts[name] = _U64.pack(value)
        else:
            parts[name] = encode_short(value)
    return _joined(parts)


def _joined(parts: dict[str, bytes]) -> bytes:
    flags, body = 0, b""
    for number, name in enumerate(_NAMES):
        if name in parts:
            flags |= 1 << 15 - number
            body += parts[name]
    return _FLAGS.pack(flags) + body


def with_fields(
    encoded: bytes, *, headers: dict[str, bytes | None] | None = None, fields: dict[str, bytes | None] | None = None
) -> bytes:
    """A property list with some values replaced; everything else keeps its bytes.

    Args:
        encoded: The list as its publisher sent it.
        headers: Encoded values of headers (``tables.encode_value``) by name; None removes the header.
        fields: Encoded properties by name; None removes the property.
    """
    parts = {name: encoded[start:end] for name, start, end in _places(encoded)}
    if headers:
        table = dict(raw_fields(parts["headers"])) if "headers" in parts else {}
        for name, value in headers.items():
            table.pop(name, None)
            if value is not None:
                table[name] = value
        parts["headers"] = join_fields(table)
    for name, value in (fields or {}).items():
        parts.pop(name, None)
        if value is not None:
            parts[name] = value
    return _joined(parts)
