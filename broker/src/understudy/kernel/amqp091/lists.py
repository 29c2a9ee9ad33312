"""Property lists and field tables of AMQP 0-9-1, looked at in place.

They are checked as strictly as ``wire.amqp091.properties`` and ``wire.amqp091.tables`` do, with the limits that hold
after the login.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from understudy.limits import AMQP091_TABLE_DEPTH_MAX, AMQP091_TABLE_VALUES_MAX

#: Numbers of the properties, from the highest flag on.
HEADERS: Final = 2
DELIVERY_MODE: Final = 3
PRIORITY: Final = 4
CORRELATION_ID: Final = 5
REPLY_TO: Final = 6
EXPIRATION: Final = 7
MESSAGE_ID: Final = 8
TIMESTAMP: Final = 9
TYPE: Final = 10
USER_ID: Final = 11
_COUNT: Final = 14

#: Types of the values of a field table.
BOOLEAN, STRING, BINARY, ARRAY, TABLE, FLOAT, DOUBLE = b"tSxAFfd"
#: Layouts of integers by their type.
INTEGERS: Final = {
    b"b"[0]: Struct(">b"),
    b"B"[0]: Struct(">B"),
    b"s"[0]: Struct(">h"),
    b"u"[0]: Struct(">H"),
    b"I"[0]: Struct(">i"),
    b"i"[0]: Struct(">I"),
    b"l"[0]: Struct(">q"),
    b"L"[0]: Struct(">q"),
}
#: Bytes of a value by its type, for types of fixed size.
_FIXED_BYTES: Final = {
    **{tag: layout.size for tag, layout in INTEGERS.items()},
    BOOLEAN: 1,
    FLOAT: 4,
    DOUBLE: 8,
    b"T"[0]: 8,
    b"D"[0]: 5,
    b"V"[0]: 0,
}

_FLAGS = Struct(">H")
_U32 = Struct(">I")

Field = tuple[bytes, int, int, int]
"""Name of a header, type of its value, and where the value begins and ends, without its length."""


def is_text(raw: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def property_places(data: bytes, start: int, end: int) -> dict[int, tuple[int, int]] | None:
    """Begin and end of each property of the list in ``data[start:end]``, by its number; None: the list is malformed.

    The bytes of a short string are meant without its length, those of the headers with theirs. Headers are not looked
    at (``walk_table``).
    """
    offset = start + _FLAGS.size
    if offset > end:
        return None
    (flags,) = _FLAGS.unpack_from(data, start)
    if flags & 3:
        return None
    found: dict[int, tuple[int, int]] = {}
    for number in range(_COUNT):
        if not flags >> 15 - number & 1:
            continue
        begin = offset
        if number == HEADERS:
            if offset + 4 > end:
                return None
            offset += 4 + _U32.unpack_from(data, offset)[0]
        elif number in (DELIVERY_MODE, PRIORITY):
            offset += 1
        elif number == TIMESTAMP:
            offset += 8
        else:
            if offset >= end:
                return None
            begin += 1
            offset += 1 + data[offset]
        if offset > end:
            return None
        if number not in (HEADERS, DELIVERY_MODE, PRIORITY, TIMESTAMP) and not is_text(data[begin:offset]):
            return None
        found[number] = begin, offset
    return found if offset == end else None


def walk_table(data: bytes, start: int, end: int) -> list[Field] | None:
    """The fields of the table in ``data[start:end]``, length first, without those inside of others; None: it is
    malformed.
    """
    fields: list[Field] = []
    offset = start + 4
    limits, named = [end], [True]
    left = AMQP091_TABLE_VALUES_MAX
    while limits:
        limit = limits[-1]
        if offset == limit:
            limits.pop()
            named.pop()
            continue
        name = b""
        if named[-1]:
            begin = offset + 1
            offset = begin + data[offset]
            name = data[begin:offset]
            if offset > limit or not is_text(name):
                return None
        left -= 1
        if left < 0 or offset >= limit:
            return None
        tag = data[offset]
        offset += 1
        size = _FIXED_BYTES.get(tag)
        if size is None:
            if tag not in (STRING, BINARY, ARRAY, TABLE) or offset + 4 > limit:
                return None
            size = _U32.unpack_from(data, offset)[0]
            offset += 4
        stop = offset + size
        if stop > limit:
            return None
        if len(limits) == 1:
            fields.append((name, tag, offset, stop))
        if tag in (ARRAY, TABLE):
            if len(limits) >= AMQP091_TABLE_DEPTH_MAX:
                return None
            limits.append(stop)
            named.append(tag == TABLE)
        else:
            offset = stop
    return fields
