"""Typed properties of a message (CORE "TypedProperties") and the SimpleString they are made of.

Source: artemis-core s. 2.1 and 2.2. A property keeps its wire type, so a message read and
written again is the same message; a plain Python value set by a caller gets the natural type:
bool, long for int, double for float, string, bytes, null for None.
"""

from __future__ import annotations

import struct
from codecs import utf_16_le_decode, utf_16_le_encode
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from understudy.kernel import names
from understudy.limits import PROPERTIES_MAX, PROPERTIES_READ_MAX, STRING_UNITS_MAX

NULL: Final = 0
BOOLEAN: Final = 2
BYTE: Final = 3
BYTES: Final = 4
SHORT: Final = 5
INT: Final = 6
LONG: Final = 7
FLOAT: Final = 8
DOUBLE: Final = 9
STRING: Final = 10
CHAR: Final = 11

#: Prefixes of the property names that only a broker may write.
RESERVED_PREFIXES: Final = names.RESERVED_PREFIXES

PropertyValue = bool | int | float | str | bytes | None

_I32 = struct.Struct(">i")
_COUNT = struct.Struct(">bi")
_FIXED: Final[dict[int, struct.Struct]] = {
    BYTE: struct.Struct(">b"),
    SHORT: struct.Struct(">h"),
    INT: struct.Struct(">i"),
    LONG: struct.Struct(">q"),
    FLOAT: struct.Struct(">f"),
    DOUBLE: struct.Struct(">d"),
    CHAR: struct.Struct(">H"),
}

#: Decoded keys, because most messages repeat them. Bounded, so that a peer cannot make it grow.
_KEYS: dict[bytes, str] = {}
_KEYS_MAX: Final = 4096
#: Decoded names under ``RESERVED_PREFIXES``, kept apart so that decoding other names needs no further check.
_RESERVED_KEYS: dict[bytes, str] = {}
#: Longest name remembered. Bytes.
_KEY_BYTES_MAX: Final = 128

#: Whole property blocks that repeat, such as the routing type alone: entries by encoded bytes. Bounded in number and
#: length; a longer block contains ids and does not repeat.
_BLOCKS: dict[bytes, dict[str, tuple[int, PropertyValue]]] = {}
_BLOCKS_MAX: Final = 1024
_BLOCK_BYTES_MAX: Final = 64


def encode_simple_string(text: str) -> bytes:
    """``i32`` byte length and UTF-16 little-endian units."""
    raw = utf_16_le_encode(text, "surrogatepass")[0]
    return _I32.pack(len(raw)) + raw


#: Encoded names, because most messages repeat them. Bounded, so that a peer cannot make it grow.
_NAMES: dict[str, bytes] = {}
_NAMES_MAX: Final = 1024
_NAME_CHARACTERS_MAX: Final = 128


def encode_name(text: str) -> bytes:
    """``encode_simple_string`` with a cache, for addresses and property names."""
    known = _NAMES.get(text)
    if known is not None:
        return known
    encoded = encode_simple_string(text)
    if len(_NAMES) < _NAMES_MAX and len(text) <= _NAME_CHARACTERS_MAX:
        _NAMES[text] = encoded
    return encoded


def decode_simple_string(data: bytes, offset: int, end: int, units_max: int = STRING_UNITS_MAX) -> tuple[str, int]:
    """The string at ``offset`` and the offset after it.

    Raises:
        RemoteProtocolError: odd or negative length, or it runs past ``end``.
        LimitExceeded: longer than ``units_max``.
    """
    start = offset + 4
    if start > end:
        raise RemoteProtocolError(f"string length cut off at offset {offset}")
    (length,) = _I32.unpack_from(data, offset)
    stop: int = start + length
    if length < 0 or length & 1 or stop > end:
        raise RemoteProtocolError(f"string of {length} bytes at offset {offset}, {end - start} bytes left")
    if length > 2 * units_max:
        raise LimitExceeded(f"string of {length // 2} characters, limit {units_max}")
    # The codec function itself: a third of the cost of bytes.decode, which looks it up by name.
    return utf_16_le_decode(data[start:stop], "surrogatepass", True)[0], stop


class Properties(MutableMapping[str, PropertyValue]):
    """Name to value, remembering wire types. Order is kept but has no meaning."""

    __slots__ = ("_items", "may_be_reserved")

    def __init__(self, values: Mapping[str, PropertyValue] | None = None) -> None:
        self._items: dict[str, tuple[int, PropertyValue]] = {}
        self.may_be_reserved = False
        """Whether a name under ``RESERVED_PREFIXES`` may be present. False means that there is none."""
        if values:
            self.update(values)

    def __getitem__(self, key: str) -> PropertyValue:
        return self._items[key][1]

    def __setitem__(self, key: str, value: PropertyValue) -> None:
        self.set_typed(key, _natural_tag(value), value)

    def __delitem__(self, key: str) -> None:
        del self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or ``default``. Optimised for absent names, which the broker looks up often."""
        entry = self._items.get(key)
        return default if entry is None else entry[1]

    def __repr__(self) -> str:
        return f"Properties({dict(self)!r})"

    def set_typed(self, key: str, tag: int, value: PropertyValue) -> None:
        """Set a property with an explicit wire type, for instance ``BYTE`` for ``_AMQ_ROUTING_TYPE``."""
        self._items[key] = (tag, value)
        try:
            if key.startswith(RESERVED_PREFIXES):
                self.may_be_reserved = True
        except AttributeError:
            raise LocalProtocolError(f"the name of a property is a text, {key!r} is none") from None

    def tag(self, key: str) -> int:
        """Wire type of a property; raises KeyError if there is none."""
        return self._items[key][0]

    def copy(self) -> Properties:
        """An independent copy with the same wire types."""
        other = Properties()
        other._items = dict(self._items)
        other.may_be_reserved = self.may_be_reserved
        return other

    def without_reserved(self) -> Properties:
        """An independent copy without the names under ``RESERVED_PREFIXES``."""
        other = Properties()
        other._items = {name: entry for name, entry in self._items.items() if not name.startswith(RESERVED_PREFIXES)}
        return other

    def encode(self) -> bytes:
        """Wire form, flag byte first.

        Raises:
            LocalProtocolError: a value does not fit its type.
        """
        if not self._items:
            return b"\x00"
        parts = [_COUNT.pack(1, len(self._items))]
        for key, (tag, value) in self._items.items():
            parts.append(encode_name(key))
            parts.append(_encode_value(key, tag, value))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, offset: int, end: int, *, trusted: bool = False) -> tuple[Properties, int]:
        """The properties at ``offset`` and the offset after them.

        Args:
            data: Contains them.
            trusted: Whether they come from a broker or its store, and not from a client.

        Raises:
            RemoteProtocolError: anything that is not the format.
            LimitExceeded: more than ``PROPERTIES_MAX`` entries, ``PROPERTIES_READ_MAX`` of a broker; or a text of a
                client of more than ``STRING_UNITS_MAX``.
        """
        if offset >= end:
            raise RemoteProtocolError(f"properties cut off at offset {offset}")
        self = cls.__new__(cls)
        if data[offset] == 0:
            self._items = {}
            self.may_be_reserved = False
            return self, offset + 1
        if end - offset > _BLOCK_BYTES_MAX:
            self._items, offset, self.may_be_reserved = _decode_entries(data, offset, end, trusted)
            return self, offset
        block = data[offset:end]
        known = _BLOCKS.get(block)
        if known is not None:
            self._items = known.copy()
            self.may_be_reserved = False
            return self, end
        self._items, offset, self.may_be_reserved = _decode_entries(data, offset, end, trusted)
        if offset == end and not self.may_be_reserved:
            if len(_BLOCKS) >= _BLOCKS_MAX:
                _BLOCKS.clear()
            _BLOCKS[bytes(block)] = self._items.copy()
        return self, offset


class _NoProperties(Properties):
    """Immutable empty properties."""

    __slots__ = ()

    def __setitem__(self, key: str, value: PropertyValue) -> None:
        raise TypeError("a received message does not change: use Message.replace")

    def set_typed(self, key: str, tag: int, value: PropertyValue) -> None:
        raise TypeError("a received message does not change: use Message.replace")


#: Shared by all received messages without properties.
NO_PROPERTIES: Final = _NoProperties()


def _decode_entries(
    data: bytes, offset: int, end: int, trusted: bool
) -> tuple[dict[str, tuple[int, PropertyValue]], int, bool]:
    """The entries of the block at ``offset``, whose flag byte is known to be set; the offset after it; and whether it
    contains a reserved name.
    """
    if offset + 5 > end:
        raise RemoteProtocolError(f"properties cut off at offset {offset}")
    unpack_length = _I32.unpack_from
    (count,) = unpack_length(data, offset + 1)
    count_max = PROPERTIES_READ_MAX if trusted else PROPERTIES_MAX
    if count > count_max:
        raise LimitExceeded(f"{count} properties, limit {count_max}")
    if count < 0:
        raise RemoteProtocolError(f"{count} properties at offset {offset}")
    offset += 5
    units_max = end if trusted else STRING_UNITS_MAX
    items: dict[str, tuple[int, PropertyValue]] = {}
    keys = _KEYS
    reserved = False
    fixed_of = _FIXED.get
    for _ in range(count):
        start = offset + 4
        if start > end:
            raise RemoteProtocolError(f"property name cut off at offset {offset}")
        stop: int = start + unpack_length(data, offset)[0]
        raw = data[start:stop]
        key = keys.get(raw)
        if key is None:
            key = _RESERVED_KEYS.get(raw)
            if key is None:
                key, stop = decode_simple_string(data, offset, end, units_max)
                _remember_key(bytes(raw), key)
            reserved = reserved or key.startswith(RESERVED_PREFIXES)
        if stop >= end or stop < start:
            raise RemoteProtocolError(f"property {key!r} cut off at offset {offset}")
        tag = data[stop]
        offset = stop + 1
        fixed = fixed_of(tag)
        if fixed is not None and offset + fixed.size <= end:
            items[key] = (tag, fixed.unpack_from(data, offset)[0])
            offset += fixed.size
        elif tag == STRING:
            text, offset = decode_simple_string(data, offset, end, units_max)
            items[key] = (STRING, text)
        else:
            items[key], offset = _decode_value(key, tag, data, offset, end)
    return items, offset, reserved


def _remember_key(raw: bytes, key: str) -> None:
    if len(raw) <= _KEY_BYTES_MAX:
        known = _RESERVED_KEYS if key.startswith(RESERVED_PREFIXES) else _KEYS
        if len(known) >= _KEYS_MAX:
            known.clear()
        known[raw] = key


def _natural_tag(value: PropertyValue) -> int:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return LONG
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, str):
        return STRING
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BYTES
    raise LocalProtocolError(f"a property cannot be a {type(value).__name__}")


#: Kinds of values in errors.
_KINDS: Final = {
    STRING: "text", BYTES: "bytes", BYTE: "integer of 8 bits", SHORT: "integer of 16 bits", INT: "integer of 32 bits",
    LONG: "integer of 64 bits",
}  # fmt: skip


def _encode_value(key: str, tag: int, value: PropertyValue) -> bytes:
    head = bytes((tag,))
    try:
        if tag == STRING:
            return head + encode_simple_string(value)  # type: ignore[arg-type]  # checked by the except
        if tag == BOOLEAN:
            return head + (b"\x01" if value else b"\x00")
        if tag == NULL:
            return head
        if tag == BYTES:
            raw = bytes(value)  # type: ignore[arg-type]  # checked by the except
            return head + _I32.pack(len(raw)) + raw
        return head + _FIXED[tag].pack(value)
    except (struct.error, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise LocalProtocolError(
            f"property {key!r}: {value!r} is no {_KINDS.get(tag, f'value of type {tag}')}"
        ) from error


def _decode_value(key: str, tag: int, data: bytes, offset: int, end: int) -> tuple[tuple[int, PropertyValue], int]:
    """The value at ``offset`` that is neither a string nor of a fixed size; and the offset after it."""
    if tag == NULL:
        return (tag, None), offset
    if tag == BOOLEAN:
        if offset < end:
            return (tag, data[offset] != 0), offset + 1
    elif tag == BYTES:
        start = offset + 4
        if start <= end:
            stop = start + _I32.unpack_from(data, offset)[0]
            if start <= stop <= end:
                return (tag, bytes(data[start:stop])), stop
    elif tag not in _FIXED:
        raise RemoteProtocolError(f"property {key!r} has the unknown type {tag}")
    raise RemoteProtocolError(f"property {key!r} of type {tag} runs past the end of its message")
