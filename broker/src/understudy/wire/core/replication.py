"""Packets of the Artemis replication stream, channel 2 (artemis-core s. 9.2).

The records in them are Artemis journal records, which are not decoded here. Understudy pairs replicate
their log differently (docs/journal-format.md); these packets exist for mixed pairs and tools.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final

from understudy.dataclass import dataclass
from understudy.errors import LocalProtocolError, RemoteProtocolError
from understudy.limits import NAME_UNITS_MAX
from understudy.message import Message
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core.layout import (
    I8,
    I32,
    I64,
    Flag,
    I64s,
    OptionalI64,
    Packet,
    SizedBytes,
    Text,
)

#: First channel versions with an operation byte, and with 64-bit page numbers.
OPERATION_SINCE: Final = 131
LONG_PAGE_SINCE: Final = 133

#: Id byte of the CORE persister before a persisted message (artemis-core s. 5).
CORE_PERSISTER: Final = 1


class JournalId(IntEnum):
    """The journal of a record."""

    BINDINGS = 0
    MESSAGES = 1


class Operation(IntEnum):
    """Kind of an appended record."""

    UPDATE = 0
    ADD = 1
    EVENT = 2


class FileType(IntEnum):
    """Kind of a synchronised file."""

    JOURNAL = 0
    PAGE = 1
    LARGE_MESSAGE = 2


class SyncDataType(IntEnum):
    """Kind of the ids of a ``ReplicationStartFinishSync``."""

    BINDINGS = 0
    MESSAGES = 1
    LARGE_MESSAGES = 2
    ACTIVATION_SEQUENCE = 3


class LargeMarker(IntEnum):
    """Whether a paged message is a large one."""

    NONE = 0
    CORE = 1
    OTHER = 2
    OLD_CORE = -1


def _read_operation(reader: Reader, version: int) -> int:
    if version >= OPERATION_SINCE:
        return reader.i8()
    return Operation.UPDATE if reader.boolean() else Operation.ADD


def _write_operation(writer: Writer, operation: int, version: int) -> None:
    if version >= OPERATION_SINCE:
        writer.i8(operation)
    elif operation == Operation.EVENT:
        raise LocalProtocolError(f"a peer of version {version} takes no event records")
    else:
        writer.boolean(operation == Operation.UPDATE)


def _read_page(reader: Reader, version: int) -> int:
    return reader.i64() if version >= LONG_PAGE_SINCE else reader.i32()


def _write_page(writer: Writer, page: int, version: int) -> None:
    if version >= LONG_PAGE_SINCE:
        writer.i64(page)
    else:
        writer.i32(page)


@dataclass(slots=True)
class ReplicationResponse(Packet):
    """One packet was applied; responses are sent in order."""

    TYPE: ClassVar[int] = 90


@dataclass(slots=True)
class ReplicationResponseV2(Packet):
    """Answer to ``ReplicationStartFinishSync``."""

    TYPE: ClassVar[int] = -9
    sync_finished: Flag = False


@dataclass(slots=True)
class ReplicationAppend(Packet):
    """A record outside a transaction."""

    TYPE: ClassVar[int] = 91
    journal_id: int
    operation: int
    id: int
    record_type: int
    record: bytes

    def write_body(self, writer: Writer, version: int) -> None:
        writer.i8(self.journal_id)
        _write_operation(writer, self.operation, version)
        writer.i64(self.id)
        writer.i8(self.record_type)
        writer.sized_bytes(self.record)

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> ReplicationAppend:
        journal_id = reader.i8()
        operation = _read_operation(reader, version)
        return cls(journal_id, operation, reader.i64(), reader.i8(), reader.sized_bytes())


@dataclass(slots=True)
class ReplicationAppendTx(Packet):
    """A record within a transaction."""

    TYPE: ClassVar[int] = 92
    journal_id: int
    operation: int
    transaction_id: int
    id: int
    record_type: int
    record: bytes

    def write_body(self, writer: Writer, version: int) -> None:
        writer.i8(self.journal_id)
        _write_operation(writer, self.operation, version)
        writer.i64(self.transaction_id)
        writer.i64(self.id)
        writer.i8(self.record_type)
        writer.sized_bytes(self.record)

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> ReplicationAppendTx:
        journal_id = reader.i8()
        operation = _read_operation(reader, version)
        return cls(journal_id, operation, reader.i64(), reader.i64(), reader.i8(), reader.sized_bytes())


@dataclass(slots=True)
class ReplicationDelete(Packet):
    TYPE: ClassVar[int] = 93
    journal_id: I8
    id: I64


@dataclass(slots=True)
class ReplicationDeleteTx(Packet):
    TYPE: ClassVar[int] = 94
    journal_id: I8
    transaction_id: I64
    id: I64
    record: SizedBytes


@dataclass(slots=True)
class ReplicationPrepare(Packet):
    TYPE: ClassVar[int] = 95
    journal_id: I8
    transaction_id: I64
    record: SizedBytes


@dataclass(slots=True)
class ReplicationCommit(Packet):
    """End of a transaction, by commit or rollback."""

    TYPE: ClassVar[int] = 96
    journal_id: I8
    rollback: Flag
    transaction_id: I64


@dataclass(slots=True)
class PagedMessage:
    """A message in a page file: either ``message`` or the record of a large one."""

    transaction_id: int
    queue_ids: tuple[int, ...]
    message: Message | None = None
    large_marker: int = LargeMarker.NONE
    large_record: bytes = b""
    """Header record of a large message."""

    def write_to(self, writer: Writer) -> None:
        """Append the wire form.

        Raises:
            LocalProtocolError: neither or both of message and large record.
        """
        if (self.message is None) is (self.large_marker == LargeMarker.NONE):
            raise LocalProtocolError("a paged message must have either a message or the record of a large one")
        writer.i64(self.transaction_id)
        writer.i8(self.large_marker)
        if self.message is None:
            writer.sized_bytes(self.large_record)
        else:
            _write_persisted(writer, self.message)
        writer.i32(len(self.queue_ids))
        for queue_id in self.queue_ids:
            writer.i64(queue_id)

    @classmethod
    def read_from(cls, reader: Reader) -> PagedMessage:
        """The paged message at the reader's position.

        Raises:
            RemoteProtocolError: malformed bytes.
        """
        transaction_id = reader.i64()
        marker = reader.i8()
        message, record = None, b""
        if marker == LargeMarker.NONE:
            message = _read_persisted(reader)
        else:
            record = reader.sized_bytes()
        queue_ids = tuple(reader.i64() for _ in range(reader.count(8)))
        return cls(transaction_id, queue_ids, message, marker, record)


def _write_persisted(writer: Writer, message: Message) -> None:
    writer.i8(CORE_PERSISTER)
    writer.i64(message.message_id)
    writer.raw(b"\x00" if message.address is None else b"\x01")
    if message.address is not None:
        writer.simple_string(message.address)
    writer.sized_bytes(message.encoded)


def _read_persisted(reader: Reader) -> Message:
    start = reader.offset
    persister = reader.i8()
    if persister != CORE_PERSISTER:
        raise RemoteProtocolError(f"message of persister {persister} at offset {start}")
    message_id = reader.i64()
    # The message contains its address; Artemis repeats it for its other protocols.
    reader.nullable(lambda: reader.simple_string(NAME_UNITS_MAX))
    message = Message.decode(reader.sized_bytes())
    if message.message_id != message_id:
        message.assign_id(message_id)
    return message


@dataclass(slots=True)
class ReplicationPageWrite(Packet):
    TYPE: ClassVar[int] = 97
    page: int
    message: PagedMessage
    address: str | None = None
    """Only sent from 133 on."""

    def write_body(self, writer: Writer, version: int) -> None:
        _write_page(writer, self.page, version)
        self.message.write_to(writer)
        if version >= LONG_PAGE_SINCE:
            writer.raw(b"\x00" if self.address is None else b"\x01")
            if self.address is not None:
                writer.simple_string(self.address)

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> ReplicationPageWrite:
        page = _read_page(reader, version)
        message = PagedMessage.read_from(reader)
        address = None
        if version >= LONG_PAGE_SINCE:
            address = reader.nullable(lambda: reader.simple_string(NAME_UNITS_MAX))
        return cls(page, message, address)


@dataclass(slots=True)
class ReplicationPageEvent(Packet):
    TYPE: ClassVar[int] = 98
    store_name: str
    page: int
    is_delete: bool

    def write_body(self, writer: Writer, version: int) -> None:
        writer.simple_string(self.store_name)
        _write_page(writer, self.page, version)
        writer.boolean(self.is_delete)

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> ReplicationPageEvent:
        return cls(reader.simple_string(NAME_UNITS_MAX), _read_page(reader, version), reader.boolean())


@dataclass(slots=True)
class ReplicationLargeMessageBegin(Packet):
    TYPE: ClassVar[int] = 99
    id: I64


@dataclass(slots=True)
class ReplicationLargeMessageEnd(Packet):
    TYPE: ClassVar[int] = 100
    GROUPS: ClassVar[tuple[str, ...]] = ("pending_record_id", "is_delete")
    id: I64
    pending_record_id: OptionalI64 = None
    """None if not sent; then ``is_delete`` cannot be sent either."""
    is_delete: Flag = False


@dataclass(slots=True)
class ReplicationLargeMessageWrite(Packet):
    TYPE: ClassVar[int] = 101
    id: I64
    body: SizedBytes


@dataclass(slots=True)
class ReplicationSyncFile(Packet):
    """A piece of a file that is copied to a new backup."""

    TYPE: ClassVar[int] = 103
    file_id: int
    """-1: no other field is sent."""
    file_type: int = FileType.JOURNAL
    journal_id: int = JournalId.BINDINGS
    """Only for ``FileType.JOURNAL``."""
    store_name: str = ""
    """Only for ``FileType.PAGE``."""
    data: bytes | None = None
    """None ends the file."""

    def write_body(self, writer: Writer, version: int) -> None:
        writer.i64(self.file_id)
        if self.file_id == -1:
            return
        writer.i8(self.file_type)
        if self.file_type == FileType.JOURNAL:
            writer.i8(self.journal_id)
        elif self.file_type == FileType.PAGE:
            writer.simple_string(self.store_name)
        elif self.file_type != FileType.LARGE_MESSAGE:
            raise LocalProtocolError(f"ReplicationSyncFile.file_type: {self.file_type}")
        if self.data:
            writer.sized_bytes(self.data)
        else:
            writer.i32(-1)

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> ReplicationSyncFile:
        file_id = reader.i64()
        if file_id == -1:
            return cls(file_id)
        start = reader.offset
        file_type = reader.i8()
        journal_id: int = JournalId.BINDINGS
        store_name = ""
        if file_type == FileType.JOURNAL:
            journal_id = reader.i8()
        elif file_type == FileType.PAGE:
            store_name = reader.simple_string(NAME_UNITS_MAX)
        elif file_type != FileType.LARGE_MESSAGE:
            raise RemoteProtocolError(f"file of type {file_type} at offset {start}")
        start = reader.offset
        size = reader.i32()
        if size < -1:
            raise RemoteProtocolError(f"{size} bytes at offset {start}")
        return cls(file_id, file_type, journal_id, store_name, reader.raw(size) if size > 0 else None)


@dataclass(slots=True)
class ReplicationStartFinishSync(Packet):
    """Marks the beginning and the end of the initial copy."""

    TYPE: ClassVar[int] = 120
    GROUPS: ClassVar[tuple[str, ...]] = ("data_type",)
    finished: Flag
    allows_auto_failback: Flag
    node_id: Text
    data_type: I8 = SyncDataType.BINDINGS
    ids: I64s = ()
    """File ids to come, or the activation sequence."""


@dataclass(slots=True)
class ReplicationScheduledFailover(Packet):
    """The primary is stopping."""

    TYPE: ClassVar[int] = 121
    final_message: I32
    """0: clean stop, no failover on disconnects; 1: take over now."""
