"""Declarative wire form of packets: annotated fields that define both reading and writing.

A packet is a dataclass whose annotations carry the encoding of each field, in wire order::

    @dataclass(slots=True)
    class CreateConsumer(Packet):
        TYPE: ClassVar[int] = 40
        GROUPS = ("priority",)          # read only if bytes remain
        SINCE = {"priority": 130}       # written only to peers of this version or newer
        consumer_id: I64
        queue_name: Name
        ...
        priority: I32 = 0

so reading and writing cannot differ. The few packets whose fields depend on one another or on
the version of the channel override ``write_body`` and ``read_body``. Bytes after the last known
field are ignored, as Artemis does: newer peers append fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeVar, get_type_hints

from understudy.errors import LocalProtocolError
from understudy.ids import Xid
from understudy.limits import AUTHENTICATION_BYTES_MAX, NAME_UNITS_MAX, XID_PART_BYTES_MAX
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core.transport import TransportConfiguration

#: Format id and size of the branch qualifier of a branch, and the size of its global transaction id.
_XID_HEAD: Final = struct.Struct(">ii")
_XID_SIZE: Final = struct.Struct(">i")

#: Oldest and newest version of the protocol that we read and write (artemis-core s. 3.2).
VERSION_MIN: Final = 121
VERSION: Final = 136

P = TypeVar("P", bound="Packet")


class Encoding(NamedTuple):
    """How one field is read and written. The type is ``Any`` because the annotation of the field has it."""

    read: Callable[[Reader], Any]
    write: Callable[[Writer, Any], None]
    nullable: bool = False


class Field(NamedTuple):
    """One field of a packet."""

    name: str
    encoding: Encoding
    starts_group: bool
    """Whether packets of older peers may end before this field."""
    since: int
    """First channel version for which the field is written."""
    default: object
    """Value if the field is absent; MISSING for fields that are always present."""


class Packet:
    """Base of all packets."""

    __slots__ = ()

    TYPE: ClassVar[int]
    """Type byte of the packet, signed."""
    GROUPS: ClassVar[tuple[str, ...]] = ()
    """First fields of the trailing groups that older peers omit."""
    SINCE: ClassVar[Mapping[str, int]] = {}
    """Channel version from which a trailing field is written."""

    @property
    def counts_as_command(self) -> bool:
        """Whether the packet has a command id on a session channel with a confirmation window (artemis-core s. 7.1)."""
        return True

    def write_body(self, writer: Writer, version: int) -> None:
        """Append the body for a peer of ``version``.

        Raises:
            LocalProtocolError: the value of a field does not fit its encoding.
        """
        layout = layout_of(type(self))
        for position, field in enumerate(layout):
            if version < field.since:
                break
            value = getattr(self, field.name)
            if value is None and field.starts_group and not field.encoding.nullable:
                self._check_omitted(layout[position:])
                break
            try:
                field.encoding.write(writer, value)
            except (struct.error, AttributeError, TypeError, ValueError) as error:
                raise LocalProtocolError(f"{type(self).__name__}.{field.name}: {value!r} does not fit") from error

    def _check_omitted(self, left_out: tuple[Field, ...]) -> None:
        for field in left_out:
            if getattr(self, field.name) != field.default:
                raise LocalProtocolError(
                    f"{type(self).__name__}.{field.name} cannot be sent without {left_out[0].name}"
                )

    @classmethod
    def read_body(cls: type[P], reader: Reader, version: int) -> P:
        """Decode the body that the reader contains.

        Raises:
            RemoteProtocolError: the body does not have the layout.
        """
        values = []
        for field in layout_of(cls):
            if field.starts_group and reader.offset >= reader.end:
                break
            values.append(field.encoding.read(reader))
        return cls(*values)


_LAYOUTS: dict[type[Packet], tuple[Field, ...]] = {}


def layout_of(packet_type: type[Packet]) -> tuple[Field, ...]:
    """The fields of a packet type in wire order, computed on first use."""
    layout = _LAYOUTS.get(packet_type)
    if layout is None:
        layout = _LAYOUTS[packet_type] = _make_layout(packet_type)
    return layout


def _make_layout(packet_type: type[Packet]) -> tuple[Field, ...]:
    hints = get_type_hints(packet_type, include_extras=True)
    found = []
    for entry in fields(packet_type):  # type: ignore[arg-type]  # every concrete packet is a dataclass
        encoding = next(mark for mark in hints[entry.name].__metadata__ if isinstance(mark, Encoding))
        default = MISSING if entry.default is MISSING else entry.default
        since = packet_type.SINCE.get(entry.name, 0)
        found.append(Field(entry.name, encoding, entry.name in packet_type.GROUPS, since, default))
    return tuple(found)


def _nullable(encoding: Encoding, flag: bytes) -> Encoding:
    """An encoding preceded by a flag byte; ``flag`` is written if the value is present (artemis-core s. 0)."""

    def read(reader: Reader) -> Any:
        return encoding.read(reader) if reader.boolean() else None

    def write(writer: Writer, value: Any) -> None:
        if value is None:
            writer.raw(b"\x00")
        else:
            writer.raw(flag)
            encoding.write(writer, value)

    return Encoding(read, write, nullable=True)


def _list_of(encoding: Encoding, item_bytes_min: int) -> Encoding:
    def read(reader: Reader) -> tuple[Any, ...]:
        return tuple(encoding.read(reader) for _ in range(reader.count(item_bytes_min)))

    def write(writer: Writer, value: Any) -> None:
        writer.i32(len(value))
        for item in value:
            encoding.write(writer, item)

    return Encoding(read, write)


def read_name(reader: Reader) -> str:
    """An address or queue name."""
    return reader.simple_string(NAME_UNITS_MAX)


def write_name(writer: Writer, text: str) -> None:
    """Write an address or queue name."""
    writer.simple_string(text, NAME_UNITS_MAX)


def read_xid(reader: Reader) -> Xid:
    """A transaction branch; the branch qualifier comes first (artemis-core s. 2.3)."""
    # most requests of a transaction name its branch: read without a call for each number where nothing is wrong
    data, start, end = reader.data, reader.offset, reader.end
    if end - start >= _XID_HEAD.size:
        format_id, size = _XID_HEAD.unpack_from(data, start)
        branch_at = start + _XID_HEAD.size
        name_at = branch_at + size + _XID_SIZE.size
        if 0 <= size <= XID_PART_BYTES_MAX and name_at <= end:
            name_size = _XID_SIZE.unpack_from(data, branch_at + size)[0]
            if 0 <= name_size <= XID_PART_BYTES_MAX and name_at + name_size <= end:
                reader.offset = name_at + name_size
                return Xid(format_id, data[name_at : reader.offset], data[branch_at : branch_at + size])
    format_id = reader.i32()
    branch = reader.sized_bytes(XID_PART_BYTES_MAX)
    return Xid(format_id, reader.sized_bytes(XID_PART_BYTES_MAX), branch)


def write_xid(writer: Writer, xid: Xid) -> None:
    """Write the id of a transaction branch; the branch qualifier comes first (artemis-core s. 2.3)."""
    writer.i32(xid.format_id)
    writer.sized_bytes(xid.branch_qualifier)
    writer.sized_bytes(xid.global_transaction_id)


def _read_secret(reader: Reader) -> bytes:
    return reader.sized_bytes(AUTHENTICATION_BYTES_MAX)


_BOOLEAN = Encoding(Reader.boolean, Writer.boolean)
_I8 = Encoding(Reader.i8, Writer.i8)
_I32 = Encoding(Reader.i32, Writer.i32)
_I64 = Encoding(Reader.i64, Writer.i64)
_SIMPLE_STRING = Encoding(Reader.simple_string, Writer.simple_string)
_STRING = Encoding(Reader.string, Writer.string)
_NAME = Encoding(read_name, write_name)
_XID = Encoding(read_xid, write_xid)
_CONNECTOR = Encoding(TransportConfiguration.read_from, lambda writer, connector: connector.write_to(writer))

Flag = Annotated[bool, _BOOLEAN]
I8 = Annotated[int, _I8]
I32 = Annotated[int, _I32]
I64 = Annotated[int, _I64]
#: ``[i64]``, omitted if None.
OptionalI64 = Annotated[int | None, _I64]
#: ``[bool]``, omitted if None.
OptionalFlag = Annotated[bool | None, _BOOLEAN]
FlagOrNull = Annotated[bool | None, _nullable(_BOOLEAN, b"\xff")]
I32OrNull = Annotated[int | None, _nullable(_I32, b"\xff")]
I64OrNull = Annotated[int | None, _nullable(_I64, b"\xff")]
#: ``ss``, with the limit for names of addresses, queues and nodes.
Name = Annotated[str, _NAME]
NameOrNull = Annotated[str | None, _nullable(_NAME, b"\x01")]
#: ``ss``, with the limit for text.
SimpleString = Annotated[str, _SIMPLE_STRING]
#: ``ss?``, with the limit for text: filters.
SimpleStringOrNull = Annotated[str | None, _nullable(_SIMPLE_STRING, b"\x01")]
#: Text encoded as ``str``.
Text = Annotated[str, _STRING]
TextOrNull = Annotated[str | None, _nullable(_STRING, b"\x01")]
#: ``i32`` length and bytes.
SizedBytes = Annotated[bytes, Encoding(Reader.sized_bytes, Writer.sized_bytes)]
#: A list of byte strings with the length limit of nonces and proofs.
SizedTexts = Annotated[tuple[bytes, ...], _list_of(Encoding(Reader.sized_bytes, Writer.sized_bytes), 4)]
Secret = Annotated[bytes, Encoding(_read_secret, Writer.sized_bytes)]
#: A byte string that is omitted if it is None.
OptionalSecret = Annotated[bytes | None, Encoding(_read_secret, Writer.sized_bytes)]
#: Everything up to the end of the packet.
Rest = Annotated[bytes, Encoding(Reader.rest, Writer.raw)]
XidField = Annotated[Xid, _XID]
#: Size of an empty xid: format and two length fields.
Xids = Annotated[tuple[Xid, ...], _list_of(_XID, 12)]
Names = Annotated[tuple[str, ...], _list_of(_NAME, 4)]
RoutingTypes = Annotated[tuple[int, ...], _list_of(_I8, 1)]
#: A connector after a flag byte (``bool, [tc]``).
ConnectorOrNull = Annotated[TransportConfiguration | None, _nullable(_CONNECTOR, b"\xff")]
Connector = Annotated[TransportConfiguration, _CONNECTOR]
