"""Encoding of values whose fields are known by name: numbers, texts, bytes, lists and other such values.

A value is encoded as its fields in order, little-endian, without alignment. Long bytes are not copied: they become
parts of their own of the encoded text. A decoder checks each number against its range and each length against the
bytes that are left, before anything is allocated; an error names the field.

Not here: the values (``operation_codec``, ``copy_messages``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from understudy.dataclass import dataclass
from understudy.errors import LimitExceeded, RemoteProtocolError
from understudy.ids import NodeId, uuid_bytes, uuid_text
from understudy.limits import REPLICATED_NAME_BYTES_MAX

U32_MAX: Final = (1 << 32) - 1
U64_MAX: Final = (1 << 64) - 1
I64_MAX: Final = (1 << 63) - 1

_U8: Final = struct.Struct("<B")
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_NODE_ID_BYTES: Final = 16


class FieldReader:
    """A position in encoded bytes."""

    __slots__ = ("_at", "_data", "field", "where")

    def __init__(self, data: bytes | memoryview, where: str) -> None:
        """
        Args:
            data: The encoded bytes; they are not kept by the decoded values.
            where: The kind of value that is decoded, for errors.
        """
        self._data = memoryview(data).toreadonly()
        self._at = 0
        self.where = where
        self.field = ""
        """Name of the field that is read, for errors."""

    def error(self, reason: str) -> RemoteProtocolError:
        """An error that names the place."""
        return RemoteProtocolError(f"{self.where}: field {self.field} at byte {self._at}: {reason}")

    def too_large(self, reason: str) -> LimitExceeded:
        """An error about a limit, which names the place."""
        return LimitExceeded(f"{self.where}: field {self.field} at byte {self._at}: {reason}")

    @property
    def left_bytes(self) -> int:
        """Bytes that were not read yet."""
        return len(self._data) - self._at

    def take(self, length: int) -> memoryview:
        """The next ``length`` bytes. Raises RemoteProtocolError if there are fewer."""
        if length > self.left_bytes:
            raise self.error(f"{length} bytes expected, {self.left_bytes} left")
        piece = self._data[self._at : self._at + length]
        self._at += length
        return piece

    def unpack(self, layout: struct.Struct) -> int:
        """Read the next number."""
        value: int = layout.unpack(self.take(layout.size))[0]
        return value

    def finish(self) -> None:
        """Raise RemoteProtocolError if bytes are left."""
        if self.left_bytes:
            self.field = "end"
            raise self.error(f"{self.left_bytes} bytes are left")


class Field(NamedTuple):
    """How the values of one field are written and read."""

    write: Callable[[Any, list[bytes]], None]
    """Appends the encoded bytes of a value."""
    read: Callable[[FieldReader], Any]
    """Raises RemoteProtocolError for bytes that are no value of the field."""


def number(code: str, lowest: int, highest: int) -> Field:
    """Encoding of an integer.

    Args:
        code: Code of ``struct``, one letter.
        lowest: Smallest value that is accepted.
        highest: Largest value that is accepted.
    """
    layout = struct.Struct("<" + code)

    def write(value: int, out: list[bytes]) -> None:
        out.append(layout.pack(value))

    def read(reader: FieldReader) -> int:
        value = reader.unpack(layout)
        if not lowest <= value <= highest:
            raise reader.error(f"{value} is not between {lowest} and {highest}")
        return value

    return Field(write, read)


def _write_flag(value: bool, out: list[bytes]) -> None:
    out.append(b"\1" if value else b"\0")


def _read_flag(reader: FieldReader) -> bool:
    value = reader.unpack(_U8)
    if value > 1:
        raise reader.error(f"{value} is neither 0 nor 1")
    return value == 1


def _write_text(value: str, out: list[bytes]) -> None:
    # as the names of files: bytes that are no UTF-8 are kept
    raw = value.encode("utf-8", "surrogateescape")
    out += (_U16.pack(len(raw)), raw)


def _read_text(reader: FieldReader) -> str:
    length = reader.unpack(_U16)
    if length > REPLICATED_NAME_BYTES_MAX:
        raise reader.too_large(f"a text of {length} bytes, at most {REPLICATED_NAME_BYTES_MAX}")
    return bytes(reader.take(length)).decode("utf-8", "surrogateescape")


def name_fault(name: str) -> str | None:
    """Reason why a name does not lie in the directory of the applier, or None. It may lie one directory below."""
    parts = name.split("/")
    if "\0" in name:
        return "it contains NUL"
    if any(part in ("", ".", "..") for part in parts):
        return "it leaves the directory"
    if len(parts) > 2:
        return "it lies more than one directory below"
    return None


def _read_name(reader: FieldReader) -> str:
    name = _read_text(reader)
    fault = name_fault(name)
    if fault is not None:
        raise reader.error(f"the name {name!r}: {fault}")
    return name


def _read_name_or_empty(reader: FieldReader) -> str:
    name = _read_text(reader)
    fault = name_fault(name) if name else None
    if fault is not None:
        raise reader.error(f"the name {name!r}: {fault}")
    return name


def _write_data(value: bytes, out: list[bytes]) -> None:
    out += (_U32.pack(len(value)), value)


def _read_data(reader: FieldReader) -> bytes:
    return bytes(reader.take(reader.unpack(_U32)))


def _write_parts(value: Any, out: list[bytes]) -> None:
    out.append(_U32.pack(sum(map(len, value))))
    out.extend(value)


def _read_parts(reader: FieldReader) -> tuple[bytes, ...]:
    data = _read_data(reader)
    return (data,) if data else ()


def _write_node_id(value: NodeId, out: list[bytes]) -> None:
    out.append(uuid_bytes(value))


def _read_node_id(reader: FieldReader) -> NodeId:
    return NodeId(uuid_text(bytes(reader.take(_NODE_ID_BYTES))))


FLAG: Final = Field(_write_flag, _read_flag)
#: A text that is not a name of a file.
TEXT: Final = Field(_write_text, _read_text)
#: Name of a file or directory, relative, at most one directory below; never empty.
NAME: Final = Field(_write_text, _read_name)
#: As ``NAME``, or empty for the directory itself.
NAME_OR_EMPTY: Final = Field(_write_text, _read_name_or_empty)
DATA: Final = Field(_write_data, _read_data)
#: A sequence of bytes of which only the concatenation matters.
PARTS: Final = Field(_write_parts, _read_parts)
NODE_ID: Final = Field(_write_node_id, _read_node_id)
U32: Final = number("I", 0, U32_MAX)
U64: Final = number("Q", 0, U64_MAX)
I64: Final = number("q", -I64_MAX - 1, I64_MAX)
#: Offsets and sizes of files.
SIZE: Final = number("Q", 0, I64_MAX)


def fixed(length: int) -> Field:
    """Encoding of exactly ``length`` bytes."""

    def write(value: bytes, out: list[bytes]) -> None:
        assert len(value) == length
        out.append(value)

    return Field(write, lambda reader: bytes(reader.take(length)))


def several(of: Field) -> Field:
    """A tuple of values. Each takes at least one byte, so the bytes that are left limit their number."""

    def write(values: Any, out: list[bytes]) -> None:
        out.append(_U32.pack(len(values)))
        for value in values:
            of.write(value, out)

    def read(reader: FieldReader) -> tuple[Any, ...]:
        count = reader.unpack(_U32)
        if count > reader.left_bytes:
            raise reader.error(f"{count} items in {reader.left_bytes} bytes")
        return tuple(of.read(reader) for _ in range(count))

    return Field(write, read)


@dataclass(frozen=True)
class Shape:
    """The fields of one class, in the order in which they are encoded."""

    made: Callable[..., Any]
    """Class of which decoding makes an instance."""
    fields: Mapping[str, Field]
    fault: Callable[[Any], str | None] = lambda value: None
    """Reason why a decoded value is refused although each field is valid, or None."""

    def write(self, value: Any, out: list[bytes]) -> None:
        """Append the encoded fields."""
        for name, field in self.fields.items():
            field.write(getattr(value, name), out)

    def read(self, reader: FieldReader) -> Any:
        """Decode a value; raises RemoteProtocolError."""
        around = reader.field
        values = {}
        for name, field in self.fields.items():
            reader.field = f"{around}.{name}" if around else name
            values[name] = field.read(reader)
        reader.field = around
        value = self.made(**values)
        fault = self.fault(value)
        if fault is not None:
            raise reader.error(fault)
        return value

    @property
    def field(self) -> Field:
        """Encoding of a field whose value is an instance of this class."""
        return Field(self.write, self.read)


class Kinds:
    """Encoding of values of several classes: the number of the class in one byte, then its fields."""

    def __init__(self, shapes: Mapping[int, Shape]) -> None:
        """``shapes``: by number; numbers are never used again for another class."""
        self._shapes = dict(shapes)
        self._numbers = {shape.made: number for number, shape in shapes.items()}

    @property
    def classes(self) -> frozenset[Any]:
        """The classes that can be encoded."""
        return frozenset(self._numbers)

    def write(self, value: Any, out: list[bytes]) -> None:
        """Append an encoded value."""
        kind = self._numbers[type(value)]
        out.append(_U8.pack(kind))
        self._shapes[kind].write(value, out)

    def read(self, reader: FieldReader) -> Any:
        """Decode a value; raises RemoteProtocolError."""
        where = reader.where
        reader.field = "kind"
        kind = reader.unpack(_U8)
        shape = self._shapes.get(kind)
        if shape is None:
            raise reader.error(f"unknown kind {kind}")
        reader.where, reader.field = f"{where}: {getattr(shape.made, '__name__', kind)}", ""
        value = shape.read(reader)
        reader.where = where
        return value
