"""How a method of AMQP 0-9-1 is declared, written and read.

The class of a method lists its fields in order; the encoding of a field is in its annotation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast, dataclass_transform, get_type_hints

from understudy.dataclass import dataclass
from understudy.errors import LocalProtocolError
from understudy.limits import AMQP091_TABLE_DEPTH_MAX, AMQP091_TABLE_VALUES_MAX
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.tables import Table, decode_table, encode_short, encode_table, malformed


class Kind(Enum):
    """Encoding of one field."""

    OCTET = auto()
    U16 = auto()
    U32 = auto()
    U64 = auto()
    SHORT_TEXT = auto()
    LONG_BYTES = auto()
    FIELDS = auto()
    BIT = auto()


Octet = Annotated[int, Kind.OCTET]
U16 = Annotated[int, Kind.U16]
U32 = Annotated[int, Kind.U32]
U64 = Annotated[int, Kind.U64]
ShortText = Annotated[str, Kind.SHORT_TEXT]
LongBytes = Annotated[bytes, Kind.LONG_BYTES]
Fields = Annotated[Table, Kind.FIELDS]
Bit = Annotated[bool, Kind.BIT]


class Method:
    """Base of all methods."""

    class_id: ClassVar[int]
    method_id: ClassVar[int]
    name: ClassVar[str]
    """Name in the specification, such as ``queue.declare``."""
    from_client: ClassVar[bool] = False
    """Whether a client may send it."""
    has_content: ClassVar[bool] = False
    """Whether a header and a body follow."""


M = TypeVar("M", bound=type[Method])
METHODS: Final[dict[tuple[int, int], type[Method]]] = {}
_LAYOUTS: Final[dict[type[Method], tuple[tuple[str, Kind], ...]]] = {}
_HEADS: Final[dict[type[Method], bytes]] = {}
_IDS = struct.Struct(">HH")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def method(
    class_id: int, method_id: int, name: str, *, client: bool = False, content: bool = False
) -> Callable[[M], M]:
    """Declare a class as a method.

    Args:
        class_id: Number of its class in the specification.
        method_id: Number in the class.
        name: Name in the specification.
        client: Whether clients may send it.
        content: Whether a content follows.
    """

    def declare(kind: M) -> M:
        kind.class_id, kind.method_id, kind.name = class_id, method_id, name
        kind.from_client, kind.has_content = client, content
        made = dataclass(frozen=True, slots=True)(kind)
        METHODS[class_id, method_id] = made
        _HEADS[made] = _IDS.pack(class_id, method_id)
        return cast(M, made)

    return declare


_NUMBERS: Final[Mapping[Kind, struct.Struct]] = {
    Kind.OCTET: struct.Struct(">B"),
    Kind.U16: struct.Struct(">H"),
    Kind.U32: struct.Struct(">I"),
    Kind.U64: struct.Struct(">Q"),
}
_U32 = _NUMBERS[Kind.U32]


def layout_of(kind: type[Method]) -> tuple[tuple[str, Kind], ...]:
    """Name and encoding of each field of a method, in order."""
    found = _LAYOUTS.get(kind)
    if found is None:
        hints = get_type_hints(kind, include_extras=True)
        found = _LAYOUTS[kind] = tuple(
            (name, mark)
            for name, hint in hints.items()
            for mark in getattr(hint, "__metadata__", ())
            if isinstance(mark, Kind)
        )
    return found


def encode_method(method: Method) -> bytes:
    """Payload of the method frame.

    Raises:
        LocalProtocolError: a value does not fit its field.
    """
    parts = [_HEADS[type(method)]]
    bits = bit = 0
    for name, kind in layout_of(type(method)):
        value: Any = getattr(method, name)
        if kind is Kind.BIT:
            bits |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((bits,)))
            bits = bit = 0
        number = _NUMBERS.get(kind)
        if number is not None:
            try:
                parts.append(number.pack(value))
            except struct.error as error:
                raise LocalProtocolError(f"{method.name}: {name} is {value}") from error
        elif kind is Kind.SHORT_TEXT:
            parts.append(encode_short(value))
        elif kind is Kind.LONG_BYTES:
            parts.append(_U32.pack(len(value)) + value)
        else:
            parts.append(encode_table(value))
    if bit:
        parts.append(bytes((bits,)))
    return b"".join(parts)


def decode_method(
    payload: bytes, *, depth_max: int = AMQP091_TABLE_DEPTH_MAX, values_max: int = AMQP091_TABLE_VALUES_MAX
) -> Method:
    """The method in the payload of a method frame, which it must fill exactly.

    Args:
        payload: Bytes of the frame without its header and end.
        depth_max: Most field tables inside each other.
        values_max: Most values in one field table.

    Raises:
        Amqp091Error: COMMAND_INVALID: an unknown method. SYNTAX_ERROR: a field that cannot be read.
    """
    if len(payload) < _IDS.size:
        raise malformed("a method frame without class and method")
    ids: tuple[int, int] = _IDS.unpack_from(payload)
    kind = METHODS.get(ids)
    if kind is None:
        raise Amqp091Error(ReplyCode.COMMAND_INVALID, f"there is no method {ids[0]}.{ids[1]}")
    values: dict[str, object] = {}
    offset, end = _IDS.size, len(payload)
    bit = 8
    for name, encoding in layout_of(kind):
        if encoding is Kind.BIT:
            if bit == 8:
                if offset >= end:
                    raise malformed(f"{kind.name}: {name} is missing")
                offset, bit = offset + 1, 0
            values[name] = bool(payload[offset - 1] >> bit & 1)
            bit += 1
            continue
        bit = 8
        number = _NUMBERS.get(encoding)
        if number is not None:
            if offset + number.size > end:
                raise malformed(f"{kind.name}: {name} is cut off")
            values[name] = number.unpack_from(payload, offset)[0]
            offset += number.size
        elif encoding is Kind.SHORT_TEXT:
            values[name], offset = decode_short(payload, offset, end)
        elif encoding is Kind.LONG_BYTES:
            if offset + 4 > end:
                raise malformed(f"{kind.name}: {name} is cut off")
            start = offset + 4
            offset = start + _U32.unpack_from(payload, offset)[0]
            if offset > end:
                raise malformed(f"{kind.name}: {name} is cut off")
            values[name] = bytes(payload[start:offset])
        else:
            values[name], offset = decode_table(payload, offset, end, depth_max=depth_max, values_max=values_max)
    if offset != end:
        raise malformed(f"{kind.name}: {end - offset} bytes after its last field")
    return kind(**values)


def decode_short(payload: bytes, offset: int, end: int) -> tuple[str, int]:
    """The short string at ``offset``, and the offset after it. Raises Amqp091Error."""
    if offset >= end or offset + 1 + payload[offset] > end:
        raise malformed("a short string is cut off")
    stop = offset + 1 + payload[offset]
    try:
        return str(payload[offset + 1 : stop], "utf-8"), stop
    except UnicodeDecodeError:
        raise malformed("a short string is no UTF-8") from None
