"""Field tables of AMQP 0-9-1 (specification s. 4.2.5.5, with the value types that RabbitMQ and its clients use).

Values in Python: bool, int, float, str, bytes, None, list, dict, ``Timestamp`` and ``Decimal``. A string whose bytes
are no UTF-8 is read as bytes. Of two fields with one name the last one counts. Decoding is iterative, and a table is
limited in depth and in number of values, because a value may take one byte only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from understudy.errors import LocalProtocolError
from understudy.limits import AMQP091_TABLE_DEPTH_MAX, AMQP091_TABLE_VALUES_MAX
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode


class Timestamp(NamedTuple):
    """A point in time."""

    seconds: int
    """Seconds since 1970 UTC."""


class Decimal(NamedTuple):
    """A decimal number: ``unscaled`` divided by ten to the power of ``scale``."""

    scale: int
    unscaled: int


#: One of the Python values above; a type that contains itself cannot be evaluated for the layouts of methods.
Value = Any
Table = Mapping[str, Value]

_U32 = struct.Struct(">I")
_NUMBERS: Final[dict[int, struct.Struct]] = {
    tag[0]: struct.Struct(layout)
    for tag, layout in (
        (b"b", ">b"), (b"B", ">B"), (b"s", ">h"), (b"u", ">H"), (b"I", ">i"), (b"i", ">I"), (b"l", ">q"),
        (b"L", ">q"), (b"f", ">f"), (b"d", ">d"),
    )
}  # fmt: skip
_TIME = struct.Struct(">Q")
_DECIMAL = struct.Struct(">BI")
_BOOLEAN, _STRING, _BINARY, _ARRAY, _TABLE, _TIMESTAMP, _DECIMAL_TAG, _VOID = b"tSxAFTDV"


def malformed(text: str) -> Amqp091Error:
    """The error of a field that cannot be read."""
    return Amqp091Error(ReplyCode.SYNTAX_ERROR, text)


def decode_table(
    data: bytes,
    offset: int,
    end: int,
    *,
    depth_max: int = AMQP091_TABLE_DEPTH_MAX,
    values_max: int = AMQP091_TABLE_VALUES_MAX,
) -> tuple[dict[str, Value], int]:
    """The table at ``offset``, length first, and the offset after it.

    Args:
        data: Contains the table.
        offset: Place of its length.
        end: First byte that belongs to something else.
        depth_max: Most tables and arrays inside each other.
        values_max: Most values in all of them.

    Raises:
        Amqp091Error: SYNTAX_ERROR: a malformed table, or one above a limit.
    """
    return _Decoder(data, depth_max, values_max).table(offset, end)


class _Decoder:
    """Decodes one table."""

    __slots__ = ("_data", "_depth_max", "_left")

    def __init__(self, data: bytes, depth_max: int, values_max: int) -> None:
        self._data = data
        self._depth_max = depth_max
        self._left = values_max

    def table(self, offset: int, end: int) -> tuple[dict[str, Value], int]:
        """The table at ``offset`` and the offset after it."""
        result: dict[str, Value] = {}
        stop, offset = self.extent(offset, end)
        open_: list[tuple[dict[str, Value] | list[Value], int]] = [(result, stop)]
        data = self._data
        while open_:
            holder, limit = open_[-1]
            if offset == limit:
                open_.pop()
                continue
            name = ""
            if isinstance(holder, dict):
                name, offset = self.name(offset, limit)
            self._left -= 1
            if self._left < 0:
                raise malformed("a field table has too many values")
            if offset >= limit:
                raise malformed("a field table ends before a value")
            tag, offset = data[offset], offset + 1
            inner: dict[str, Value] | list[Value]
            if tag in (_TABLE, _ARRAY):
                if len(open_) >= self._depth_max:
                    raise malformed(f"a field table is nested deeper than {self._depth_max}")
                inner = {} if tag == _TABLE else []
                value: Value = inner
                stop, offset = self.extent(offset, limit)
                open_.append((inner, stop))
            else:
                value, offset = self.scalar(tag, offset, limit)
            if isinstance(holder, dict):
                holder[name] = value
            else:
                holder.append(value)
        return result, offset

    def extent(self, offset: int, end: int) -> tuple[int, int]:
        if offset + 4 > end:
            raise malformed("a length is cut off in a field table")
        stop = offset + 4 + _U32.unpack_from(self._data, offset)[0]
        if stop > end:
            raise malformed("a length in a field table goes beyond what encloses it")
        return stop, offset + 4

    def name(self, offset: int, limit: int) -> tuple[str, int]:
        stop = offset + 1 + self._data[offset]
        if stop > limit:
            raise malformed("a field name goes beyond its table")
        try:
            return str(self._data[offset + 1 : stop], "utf-8"), stop
        except UnicodeDecodeError:
            raise malformed("a field name is no UTF-8") from None

    def scalar(self, tag: int, offset: int, limit: int) -> tuple[Value, int]:
        data = self._data
        if tag in (_STRING, _BINARY):
            stop, start = self.extent(offset, limit)
            raw = bytes(data[start:stop])
            if tag == _BINARY:
                return raw, stop
            try:
                return raw.decode(), stop
            except UnicodeDecodeError:
                return raw, stop
        if tag == _VOID:
            return None, offset
        number = _NUMBERS.get(tag)
        size = 1 if tag == _BOOLEAN else number.size if number else 8 if tag == _TIMESTAMP else 5
        if number is None and tag not in (_BOOLEAN, _TIMESTAMP, _DECIMAL_TAG):
            raise malformed(f"a field table has a value of the unknown type {tag}")
        if offset + size > limit:
            raise malformed("a value goes beyond its field table")
        if number is not None:
            return number.unpack_from(data, offset)[0], offset + size
        if tag == _BOOLEAN:
            return data[offset] != 0, offset + size
        if tag == _TIMESTAMP:
            return Timestamp(_TIME.unpack_from(data, offset)[0]), offset + size
        return Decimal(*_DECIMAL.unpack_from(data, offset)), offset + size


def raw_fields(table: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and encoded value of each field of a table, which has been decoded before, in order.

    Args:
        table: Encoded table with its length.
    """
    decoder = _Decoder(table, AMQP091_TABLE_DEPTH_MAX, AMQP091_TABLE_VALUES_MAX)
    offset, end = 4, len(table)
    while offset < end:
        name, start = decoder.name(offset, end)
        tag = table[start]
        if tag in (_TABLE, _ARRAY):
            offset, _ = decoder.extent(start + 1, end)
        else:
            _, offset = decoder.scalar(tag, start + 1, end)
        yield name, table[start:offset]


def join_fields(fields: Mapping[str, bytes]) -> bytes:
    """A table of encoded values (``encode_value``), with its length."""
    body = b"".join(encode_short(name) + value for name, value in fields.items())
    return _U32.pack(len(body)) + body


def encode_table(table: Table) -> bytes:
    """A table with its length. Only value types that every client reads are used.

    Raises:
        LocalProtocolError: a name or a value that cannot be written.
    """
    return join_fields({name: encode_value(value) for name, value in table.items()})


def encode_value(value: Value) -> bytes:
    """Type and bytes of a value. Raises LocalProtocolError."""
    try:
        return _encoded(value)
    except struct.error as error:
        raise LocalProtocolError(f"a value of a field table is out of range: {error}") from error


def _encoded(value: Value) -> bytes:
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return b"I" + value.to_bytes(4, "big", signed=True) if -(1 << 31) <= value < 1 << 31 else b"l" + _long(value)
    if isinstance(value, float):
        return b"d" + _NUMBERS[b"d"[0]].pack(value)
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return b"S" + _U32.pack(len(raw)) + raw
    if isinstance(value, bytes):
        return b"x" + _U32.pack(len(value)) + value
    if isinstance(value, Timestamp):
        return b"T" + _TIME.pack(value.seconds)
    if isinstance(value, Decimal):
        return b"D" + _DECIMAL.pack(value.scale, value.unscaled)
    if isinstance(value, Mapping):
        return b"F" + encode_table(value)
    body = b"".join(map(encode_value, value))
    return b"A" + _U32.pack(len(body)) + body


def _long(value: int) -> bytes:
    return _NUMBERS[b"l"[0]].pack(value)


#: Longest short string. Bytes.
SHORT_TEXT_BYTES_MAX: Final = 255


def encode_short(text: str) -> bytes:
    """A short string: one byte of length, then UTF-8. Raises LocalProtocolError: it has more than 255 bytes."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > SHORT_TEXT_BYTES_MAX:
        raise LocalProtocolError(f"a short string of {len(raw)} bytes, limit {SHORT_TEXT_BYTES_MAX}")
    return bytes((len(raw),)) + raw
