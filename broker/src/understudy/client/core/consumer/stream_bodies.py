"""Bodies of stream messages: values one after the other, each with its type (artemis-core s. 2.1 and 2.2).

A text is ``str`` with a flag for null, other than in maps.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from understudy.errors import LocalProtocolError, RemoteProtocolError
from understudy.properties import (
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    NULL,
    SHORT,
    STRING,
    PropertyValue,
)
from understudy.wire.buffer import Reader, Writer

_FLOAT = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")


def encode_stream(values: Sequence[PropertyValue]) -> bytes:
    """Body of a stream message: numbers become long and double, as in maps.

    Raises:
        LocalProtocolError: a value of another type.
    """
    writer = Writer()
    for position, value in enumerate(values):
        try:
            _write_value(writer, value)
        except struct.error as error:
            raise LocalProtocolError(f"value {position} of a stream message does not fit: {error}") from None
    return writer.getvalue()


def _write_value(writer: Writer, value: PropertyValue) -> None:
    if value is None or isinstance(value, str):
        writer.i8(STRING)
        writer.boolean(value is not None)
        if value is not None:
            writer.string(value)
    elif isinstance(value, bool):
        writer.i8(BOOLEAN)
        writer.boolean(value)
    elif isinstance(value, int):
        writer.i8(LONG)
        writer.i64(value)
    elif isinstance(value, float):
        writer.i8(DOUBLE)
        writer.raw(_DOUBLE.pack(value))
    elif isinstance(value, bytes):
        writer.i8(BYTES)
        writer.sized_bytes(value)
    else:
        raise LocalProtocolError(f"a stream message cannot hold a {type(value).__name__}")


def decode_stream(body: bytes) -> list[PropertyValue]:
    """Values of the body of a stream message.

    Raises:
        RemoteProtocolError: it is no body of a stream message.
    """
    reader = Reader(body)
    values: list[PropertyValue] = []
    while reader.remaining:
        values.append(_read_value(reader))
    return values


def _read_value(reader: Reader) -> PropertyValue:
    tag = reader.i8()
    if tag == STRING:
        return reader.nullable(lambda: reader.string(reader.remaining))
    if tag == NULL:
        return None
    if tag == BOOLEAN:
        return reader.boolean()
    if tag == BYTE:
        return reader.i8()
    if tag == BYTES:
        return reader.sized_bytes()
    if tag == SHORT:
        return reader.i16()
    if tag == CHAR:
        return reader.i16() & 0xFFFF
    if tag == INT:
        return reader.i32()
    if tag == LONG:
        return reader.i64()
    if tag == FLOAT:
        return float(_FLOAT.unpack(reader.raw(4))[0])
    if tag == DOUBLE:
        return float(_DOUBLE.unpack(reader.raw(8))[0])
    raise RemoteProtocolError(f"value of unknown type {tag} in a stream message, at offset {reader.offset - 1}")
