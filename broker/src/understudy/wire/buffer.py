"""Bounds-checked reading and writing of the CORE primitive encodings (artemis-core s. 2).

Not here: structures made of primitives (``core.layout``), frames (``core.codec``), or
the packets of the hot path, which the codec reads without these objects.

Invariants: a ``Reader`` never reads outside ``[offset, end)`` and allocates no memory that is not backed
by received bytes; it raises only ``RemoteProtocolError`` or ``LimitExceeded``, which name the offset. A
``Writer`` raises only ``LocalProtocolError`` or ``struct.error``.
"""

from __future__ import annotations

import struct
from codecs import utf_16_le_decode
from collections.abc import Callable
from typing import Final, TypeVar

from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from understudy.limits import LIST_ITEMS_MAX, STRING_UNITS_MAX
from understudy.properties import encode_simple_string

T = TypeVar("T")

#: A ``str`` of fewer units is written as big-endian UTF-16.
SHORT_STRING_UNITS: Final = 9
#: A ``str`` of this many units or more is written as a SimpleString.
LONG_STRING_UNITS: Final = 4095

_I8 = struct.Struct(">b")
_U16 = struct.Struct(">H")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class Reader:
    """Reader of primitive values, one after the other, from ``data[offset:end]``."""

    __slots__ = ("_skips_excess", "data", "end", "offset")

    def __init__(self, data: bytes, offset: int = 0, end: int | None = None, *, skips_excess: bool = False) -> None:
        """``skips_excess``: a string or bytes above their limit are skipped and read as empty, so that the fields after
        them can be read.
        """
        self.data = data
        self.offset = offset
        self.end = len(data) if end is None else end
        self._skips_excess = skips_excess

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return self.end - self.offset

    def _take(self, size: int) -> int:
        """Advance by ``size`` bytes and return their offset."""
        start = self.offset
        if not 0 <= size <= self.end - start:
            raise RemoteProtocolError(f"{size} bytes wanted at offset {start}, {self.end - start} left")
        self.offset = start + size
        return start

    def i8(self) -> int:
        """Read a signed 8-bit integer."""
        value: int = _I8.unpack_from(self.data, self._take(1))[0]
        return value

    def i16(self) -> int:
        """Read a signed 16-bit integer."""
        value: int = _I16.unpack_from(self.data, self._take(2))[0]
        return value

    def i32(self) -> int:
        """Read a signed 32-bit integer."""
        value: int = _I32.unpack_from(self.data, self._take(4))[0]
        return value

    def i64(self) -> int:
        """Read a signed 64-bit integer."""
        value: int = _I64.unpack_from(self.data, self._take(8))[0]
        return value

    def boolean(self) -> bool:
        """Read a truth value of one byte; any value except zero is true."""
        return self.data[self._take(1)] != 0

    def raw(self, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        start = self._take(size)
        return self.data[start : start + size]

    def rest(self) -> bytes:
        """All bytes that remain."""
        return self.raw(self.end - self.offset)

    def sized_bytes(self, size_max: int | None = None) -> bytes:
        """``i32`` length and that many bytes.

        Raises:
            LimitExceeded: more than ``size_max`` bytes.
        """
        start = self.offset
        size = self.i32()
        if size_max is not None and size > size_max:
            if not self._skips_excess:
                raise LimitExceeded(f"{size} bytes at offset {start}, limit {size_max}")
            self._take(size)
            return b""
        return self.raw(size)

    def simple_string(self, units_max: int = STRING_UNITS_MAX) -> str:
        """``ss``: byte length and little-endian UTF-16 units."""
        start = self.offset
        size = self.i32()
        if size < 0 or size & 1:
            raise RemoteProtocolError(f"string of {size} bytes at offset {start}")
        if self._exceeds(size >> 1, units_max, start):
            self._take(size)
            return ""
        return utf_16_le_decode(self.raw(size), "surrogatepass", True)[0]

    def string(self, units_max: int = STRING_UNITS_MAX) -> str:
        """Read a ``str``: a count of UTF-16 units, then one of three encodings, which depends on the count."""
        start = self.offset
        units = self.i32()
        if units < 0:
            raise RemoteProtocolError(f"string of {units} characters at offset {start}")
        if self._exceeds(units, units_max, start):
            # above the limit it is a SimpleString, whose own length says how much is skipped
            size = self.i32()
            self._take(size)
            return ""
        if units < SHORT_STRING_UNITS:
            return self.raw(2 * units).decode("utf-16-be", "surrogatepass")
        text = self.simple_string(units_max) if units >= LONG_STRING_UNITS else self._utf(start)
        if _units_of(text) != units:
            raise RemoteProtocolError(f"string at offset {start} does not have the {units} characters that it declares")
        return text

    def _exceeds(self, units: int, units_max: int, offset: int) -> bool:
        """Whether a string has to be skipped for its length."""
        if units > units_max and not self._skips_excess:
            raise LimitExceeded(f"string of {units} characters at offset {offset}, limit {units_max}")
        return units > units_max

    def _utf(self, start: int) -> str:
        size = _U16.unpack_from(self.data, self._take(2))[0]
        try:
            text = self.raw(size).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"string at offset {start}: {error.reason}") from error
        if text.isascii():
            return text
        # Surrogates are encoded separately (as in CESU-8); encoding to UTF-16 and back pairs them.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def nullable(self, read: Callable[[], T]) -> T | None:
        """Read a flag byte, then the value unless the flag is zero."""
        return read() if self.boolean() else None

    def count(self, item_bytes_min: int, items_max: int = LIST_ITEMS_MAX) -> int:
        """The ``i32`` number of items of a list whose items take ``item_bytes_min`` bytes or more.

        Raises:
            LimitExceeded: more than ``items_max``.
            RemoteProtocolError: negative, or more than the remaining bytes can hold.
        """
        start = self.offset
        count = self.i32()
        if count > items_max:
            raise LimitExceeded(f"list of {count} items at offset {start}, limit {items_max}")
        if count < 0 or count * item_bytes_min > self.remaining:
            raise RemoteProtocolError(f"list of {count} items at offset {start}, {self.remaining} bytes left")
        return count


class Writer:
    """Collects the encoded primitives of one packet body."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def getvalue(self) -> bytes:
        """All bytes written so far."""
        return b"".join(self.parts)

    def i8(self, value: int) -> None:
        """Write a signed 8-bit integer."""
        self.parts.append(_I8.pack(value))

    def i16(self, value: int) -> None:
        """Write a signed 16-bit integer."""
        self.parts.append(_I16.pack(value))

    def i32(self, value: int) -> None:
        """Write a signed 32-bit integer."""
        self.parts.append(_I32.pack(value))

    def i64(self, value: int) -> None:
        """Write a signed 64-bit integer."""
        self.parts.append(_I64.pack(value))

    def boolean(self, value: bool) -> None:
        """True is 0xFF in packet fields (artemis-core s. 0)."""
        self.parts.append(b"\xff" if value else b"\x00")

    def raw(self, value: bytes) -> None:
        """Append bytes without a length."""
        self.parts.append(bytes(value))

    def sized_bytes(self, value: bytes) -> None:
        """``i32`` length and the bytes."""
        self.parts.append(_I32.pack(len(value)))
        self.parts.append(bytes(value))

    def simple_string(self, text: str, units_max: int = STRING_UNITS_MAX) -> None:
        """``ss``: byte length and little-endian UTF-16 units. Raises LocalProtocolError: no peer would read it."""
        encoded = encode_simple_string(text)
        if len(encoded) > 4 + 2 * units_max:
            raise LocalProtocolError(f"string of {_units_of(text)} characters, limit {units_max}")
        self.parts.append(encoded)

    def string(self, text: str) -> None:
        """``str`` in the encoding for its length."""
        units = _units_of(text)
        if units > STRING_UNITS_MAX:
            raise LocalProtocolError(f"string of {units} characters, limit {STRING_UNITS_MAX}")
        self.parts.append(_I32.pack(units))
        if units < SHORT_STRING_UNITS:
            self.parts.append(text.encode("utf-16-be", "surrogatepass"))
        elif units < LONG_STRING_UNITS:
            if units != len(text):
                text = _split_pairs(text)
            raw = text.encode("utf-8", "surrogatepass")
            self.parts.append(_U16.pack(len(raw)))
            self.parts.append(raw)
        else:
            self.parts.append(encode_simple_string(text))


def _units_of(text: str) -> int:
    """UTF-16 code units of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) >> 1


def _split_pairs(text: str) -> str:
    """The text with every character beyond U+FFFF as its two surrogates."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return "".join(map(chr, struct.unpack(f"<{len(raw) >> 1}H", raw)))
