"""A snapshot's own file: its name, header, records, and reading it back (docs/build/journal-format.md s. 7).

What a snapshot says is a ``StoreState``. ``SnapshotEncoder`` makes the bytes, in parts of bounded size;
``SnapshotReader`` cuts and checks bytes that its caller has read; ``apply_part`` puts one record into a
state. A reader either gets everything up to the END record or ``JournalCorrupt`` with the offset.

Not here: when and from what snapshots are made (``consolidator``), which one is used (``follower``).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import islice
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, StoreVersionUnsupported
from understudy.ids import NodeId, uuid_bytes, uuid_text
from understudy.kernel.log import crc32, plain_references
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import FileReader
from understudy.store.log.checkpoint import checkpoint_parts
from understudy.store.log.format_version import FORMAT_VERSION, FORMAT_VERSION_FIRST
from understudy.store.log.reading.replay import Cursor, Stop, read_frame
from understudy.store.log.records import (
    HEADER,
    HEADER_BYTES,
    PRIORITY_MAX,
    REST,
    AddressRecord,
    CheckpointRecord,
    DuplicateIdsItem,
    RecordType,
    decode,
)
from understudy.store.log.segment import HEADER_BLOCK_BYTES, NEW_SUFFIX, seed_of, segment_name
from understudy.store.messages.columns import Rows
from understudy.store.messages.reference import (
    LargeReference,
    MessageReference,
    pack_location,
    reference_to,
    unpack_location,
)
from understudy.store.setting_record import SettingRecord
from understudy.store.state import SegmentUse, StoreState, TransactionRecord

MAGIC: Final = b"USTSNAP\n"
#: References or acknowledgements in one record.
PART_ITEMS: Final = 1_000
#: Bytes of bindings, settings and duplicate ids in one record.
_BINDINGS_BYTES: Final = 64 * 1024
#: Bytes asked for at a time: one full record of references.
READ_BYTES: Final = 72 * 1024

_HEADER = struct.Struct("<8sHHI16sQqQQQQQ")
_CRC_OFFSET: Final = 12
_SEALED: Final = 1
_CLOSED: Final = 2
_NAME = re.compile(r"snapshot-([0-9]{20})-([0-9]{10})\.snap(\.new)?", re.ASCII)
_LOG = struct.Struct("<QQQQQ")
_PAIR = struct.Struct("<QQ")
_SEGMENT = struct.Struct("<QQQQQQII")
_TRANSACTION = struct.Struct("<QQIIII")
_DUPLICATE = struct.Struct("<QH")
_END = struct.Struct("<QQQ")
#: Queue id, message id, expiration, scheduled, segment, offset, length, size, delivery count, priority, file id.
REFERENCE = struct.Struct("<QQqqQIIIIB3xQ")


class PartType(IntEnum):
    """Records of a snapshot, in the order in which they come."""

    LOG = 32
    SEGMENTS = 33
    BINDINGS = 34
    TRANSACTION = 35
    REFERENCES = 36
    END = 37


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """Identity of a snapshot."""

    node_id: NodeId
    epoch: int
    """Epoch of the node that wrote it."""
    created_ms: int
    number: int
    """Number of the segment at whose end the snapshot gives the state."""
    segment_epoch: int
    offset: int
    """Behind the last record of that segment."""
    sequence: int
    batch: int
    sealed: Stop | None
    """SEALED or CLOSED if the last record is a seal."""
    format_version: int = FORMAT_VERSION_FIRST
    """Lowest version that a reader must know (``log.format_version``)."""

    @property
    def name(self) -> str:
        """File name of the snapshot."""
        return f"snapshot-{self.sequence:020d}-{self.epoch:010d}.snap"

    def cursor(self, directory: str) -> Cursor:
        """A reader of the log that has read everything in the snapshot."""
        path = f"{directory}/{segment_name(self.number, self.segment_epoch)}"
        seed = seed_of(self.number, self.segment_epoch)
        return Cursor(path, self.number, self.segment_epoch, seed, self.offset, self.sequence, self.batch, self.sealed)


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """Last record of a snapshot, with the counts of the others."""

    needs: int
    """Sequence up to which the log must exist."""
    references: int
    live_bytes: int
    """Bytes of the records that the references are of."""


def parse_snapshot_name(name: str) -> tuple[int, int, bool] | None:
    """Epoch, sequence, and whether it is complete (not ``.new``); None if it is no snapshot."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[2]), int(match[1]), match[3] is None)


def snapshot_names(names: Iterable[str]) -> list[str]:
    """The complete ones, newest first."""
    found = [(parsed[:2], name) for name in names if (parsed := parse_snapshot_name(name)) is not None and parsed[2]]
    return [name for _, name in sorted(found, reverse=True)]


def temporary_names(names: Iterable[str]) -> list[str]:
    """Snapshots that were never finished."""
    return [name for name in names if name.endswith(NEW_SUFFIX) and parse_snapshot_name(name) is not None]


def encode_snapshot_header(header: SnapshotHeader) -> bytes:
    """The header block."""
    flags = {None: 0, Stop.SEALED: _SEALED, Stop.CLOSED: _SEALED | _CLOSED}[header.sealed]
    fields = _HEADER.pack(
        MAGIC,
        header.format_version,
        flags,
        0,
        uuid_bytes(header.node_id),
        header.epoch,
        header.created_ms,
        header.number,
        header.segment_epoch,
        header.offset,
        header.sequence,
        header.batch,
    )
    block = bytearray(fields.ljust(HEADER_BLOCK_BYTES, b"\0"))
    struct.pack_into("<I", block, _CRC_OFFSET, crc32(block))
    return bytes(block)


def read_snapshot_header(file: FileReader, name: str) -> SnapshotHeader:
    """The header of an open snapshot, which must be the one its name says; read again past the cache if it is not.

    Raises:
        JournalCorrupt: it is not, or is damaged.
        StoreVersionUnsupported: a newer format.
    """
    try:
        return _read_header(file, name)
    except JournalCorrupt:
        # the medium may have what a cache of this machine has not
        file.forget_cached(0, HEADER_BLOCK_BYTES)
        return _read_header(file, name)


def _read_header(file: FileReader, name: str) -> SnapshotHeader:
    block = file.read(0, HEADER_BLOCK_BYTES)
    if len(block) < HEADER_BLOCK_BYTES or block[: len(MAGIC)] != MAGIC:
        raise JournalCorrupt("no snapshot", file=file.path, offset=0)
    (
        _, version, flags, crc, node_id, epoch, created_ms, number, segment_epoch, offset, sequence, batch,
    ) = _HEADER.unpack_from(block)  # fmt: skip
    zeroed = b"".join((block[:_CRC_OFFSET], b"\0\0\0\0", block[_CRC_OFFSET + 4 :]))
    if crc32(zeroed) != crc:
        raise JournalCorrupt("header is damaged", file=file.path, offset=0)
    if version > FORMAT_VERSION:
        raise StoreVersionUnsupported(
            f"{file.path}: format version {version}, this Understudy reads up to {FORMAT_VERSION}",
            hint="start the version that wrote it, or upgrade this one",
        )
    sealed = None if not flags & _SEALED else Stop.CLOSED if flags & _CLOSED else Stop.SEALED
    header = SnapshotHeader(
        NodeId(uuid_text(node_id)), epoch, created_ms, number, segment_epoch, offset, sequence, batch, sealed, version
    )
    if header.name != name:
        raise JournalCorrupt(f"header of {header.name} under another name", file=file.path, offset=0)
    return header


class SnapshotEncoder:
    """Frames records and collects them until they are taken."""

    def __init__(self, header: SnapshotHeader) -> None:
        """The header block is the first thing to be taken."""
        self._seed = seed_of(header.sequence, header.epoch)
        self._sequence = 0
        self._parts: list[bytes] = [encode_snapshot_header(header)]
        self.pending_bytes = HEADER_BLOCK_BYTES
        """Bytes encoded and not written yet."""

    def add(self, kind: PartType, *payload: bytes) -> None:
        """Encode one more record."""
        self._sequence += 1
        length = HEADER_BYTES + sum(map(len, payload))
        rest = REST.pack(length, self._sequence, 0, kind, 0, 0)
        crc = crc32(rest, self._seed)
        for part in payload:
            crc = crc32(part, crc)
        self._parts += (crc.to_bytes(4, "little") + rest, *payload)
        self.pending_bytes += length

    def take(self) -> bytes:
        """The bytes that come next in the file."""
        taken = b"".join(self._parts)
        self._parts = []
        self.pending_bytes = 0
        return taken


def encode_end(end: SnapshotEnd) -> bytes:
    """Payload of END."""
    return _END.pack(end.needs, end.references, end.live_bytes)


def encode_reference(queue_id: int, reference: MessageReference) -> bytes:
    """Encode one reference."""
    assert reference.location is not None, "a reference in a snapshot has a location in the log"
    return REFERENCE.pack(
        queue_id,
        reference.message_id,
        reference.expiration,
        reference.scheduled_ms,
        *unpack_location(reference.location),
        reference.size_bytes,
        reference.delivery_count,
        reference.priority,
        reference.file_id if isinstance(reference, LargeReference) else 0,
    )


def decode_references(payload: bytes) -> Iterator[tuple[int, MessageReference]]:
    """Queue id and reference of each."""
    for (
        queue_id, message_id, expiration, scheduled_ms, segment, offset, length, size_bytes, count, priority, file_id,
    ) in REFERENCE.iter_unpack(payload):  # fmt: skip
        if priority > PRIORITY_MAX:
            raise ValueError(f"a reference with priority {priority}")
        location = pack_location(segment, offset, length)
        reference = reference_to(
            file_id or None, message_id, priority, expiration, scheduled_ms, size_bytes, True, location
        )
        reference.delivery_count = count
        yield queue_id, reference


def small_parts(state: StoreState, removable: Mapping[int, int]) -> Iterator[tuple[PartType, bytes]]:
    """Everything of a state except waiting references, record by record.

    Args:
        state: State at the snapshot's position; must not change meanwhile.
        removable: Number to epoch of segments that may still have to be removed.
    """
    head = _LOG.pack(state.epoch, state.first_sequence, state.trimmed_to, state.checkpoint_segment or 0, state.complete)
    yield PartType.LOG, head + b"".join(_PAIR.pack(*pair) for pair in removable.items())
    segments = list(state.segments.items())
    for start in range(0, len(segments), PART_ITEMS):
        yield (
            PartType.SEGMENTS,
            b"".join(
                _SEGMENT.pack(
                    number, use.epoch, use.first_sequence, use.end, use.message_id_min, use.message_id_max, use.moved, 0
                )
                for number, use in segments[start : start + PART_ITEMS]
            ),
        )
    yield from ((PartType.BINDINGS, payload) for payload in checkpoint_parts(state.checkpoint_items(), _BINDINGS_BYTES))
    for transaction in state.transactions.values():
        yield from ((PartType.TRANSACTION, payload) for payload in _encode_transaction(transaction))


def _encode_transaction(transaction: TransactionRecord) -> Iterator[bytes]:
    acknowledges, adds, duplicate_ids = (
        iter(transaction.acknowledges),
        iter(transaction.adds),
        transaction.duplicate_ids,
    )
    xid = transaction.xid
    longest = max(len(transaction.acknowledges), len(transaction.adds), len(duplicate_ids), 1)
    for start in range(0, longest, PART_ITEMS):
        part = slice(start, start + PART_ITEMS)
        acknowledged = [_PAIR.pack(*entry) for entry in islice(acknowledges, PART_ITEMS)]
        added = [encode_reference(queue_id, reference) for queue_id, reference in islice(adds, PART_ITEMS)]
        yield b"".join(
            (
                _TRANSACTION.pack(
                    transaction.tx_id,
                    transaction.first_segment,
                    0 if xid is None else len(xid) + 1,
                    len(acknowledged),
                    len(added),
                    0,
                ),
                xid or b"",
                *acknowledged,
                *added,
                *(_DUPLICATE.pack(address_id, len(value)) + value for address_id, value in duplicate_ids[part]),
            )
        )


# --- reading ------------------------------------------------------------------------------------------


class SnapshotReader:
    """Cuts and checks the records of a snapshot, whose bytes are read elsewhere."""

    def __init__(self, path: str, header: SnapshotHeader) -> None:
        """At the first record."""
        self.path = path
        self.header = header
        self.offset = HEADER_BLOCK_BYTES
        """Offset of the bytes to be fed next ..."""
        self.want = READ_BYTES
        """... and how many."""
        self.end: SnapshotEnd | None = None
        """Once the last record was read."""
        self._count = 0
        self._last_kind = 0
        self._seed = seed_of(header.sequence, header.epoch)

    def feed(self, data: bytes) -> list[tuple[PartType, bytes]]:
        """The next records; ``data`` are the bytes at ``offset``, fewer than ``want`` only at the end.

        Raises:
            JournalCorrupt: they are damaged, or end too early.
        """
        found: list[tuple[PartType, bytes]] = []
        at = 0
        while self.end is None and (frame := read_frame(data, at, self.offset, self._seed)) is not None:
            if frame.sequence != self._count + 1 or frame.kind < self._last_kind:
                break
            try:
                kind = PartType(frame.kind)
            except ValueError:
                break
            payload = data[at + HEADER_BYTES : at + frame.length]
            at += frame.length
            self._count, self._last_kind = frame.sequence, kind
            if kind is PartType.END:
                if len(payload) != _END.size:
                    raise JournalCorrupt("the end of the snapshot is damaged", file=self.path, offset=self.offset + at)
                self.end = SnapshotEnd(*_END.unpack(payload))
            else:
                found.append((kind, payload))
        if self.end is not None and at < len(data):
            raise JournalCorrupt("bytes after the end of the snapshot", file=self.path, offset=self.offset + at)
        if not at:
            needed_bytes = HEADER.unpack_from(data)[1] if len(data) >= HEADER_BYTES else 0
            if len(data) < self.want or not self.want < needed_bytes <= RECORD_BYTES_MAX:
                raise JournalCorrupt("the snapshot is damaged", file=self.path, offset=self.offset)
            self.want = needed_bytes
            return found
        self.offset += at
        self.want = READ_BYTES
        return found


def apply_part(state: StoreState, kind: PartType, payload: bytes) -> None:
    """Put one record of a snapshot into the state it is of. Raises ValueError or struct.error for invalid data."""
    if kind is PartType.REFERENCES:
        _apply_references(state, payload)
    elif kind is PartType.BINDINGS:
        record = decode(RecordType.CHECKPOINT, 0, payload)
        assert isinstance(record, CheckpointRecord)
        for item in record.items:
            if isinstance(item, AddressRecord):
                state.addresses[item.address_id] = item
            elif isinstance(item, DuplicateIdsItem):
                state.remember_duplicates(item.address_id, item.duplicate_ids)
            elif isinstance(item, SettingRecord):
                state.apply_setting(item)
            else:
                state.queues[item.queue_id] = item
    elif kind is PartType.TRANSACTION:
        _apply_transaction(state, payload)
    elif kind is PartType.SEGMENTS:
        for number, epoch, first, end, id_min, id_max, moved, _ in _SEGMENT.iter_unpack(payload):
            state.segments[number] = SegmentUse(epoch, first, id_min, id_max, end, moved)
    elif kind is PartType.LOG:
        state.epoch, state.first_sequence, state.trimmed_to, checkpoint_segment, state.complete = _LOG.unpack_from(
            payload
        )
        state.checkpoint_segment = checkpoint_segment or None
        state.removable = dict(_PAIR.iter_unpack(payload[_LOG.size :]))


def _apply_references(state: StoreState, payload: bytes) -> None:
    # this refuses an incomplete reference
    REFERENCE.iter_unpack(payload)
    at = 0
    while True:
        at, runs = plain_references(payload, at)
        for queue_id, priority, segment, *columns in runs:
            state.add_rows(queue_id, priority, segment, Rows.of(columns))
        if at == len(payload):
            return
        end = at + REFERENCE.size
        for queue_id, reference in decode_references(payload[at:end]):
            state.add_reference(queue_id, reference)
            state.live.add(queue_id, reference.message_id)
        at = end


def _apply_transaction(state: StoreState, payload: bytes) -> None:
    tx_id, first_segment, xid_bytes, acknowledges, adds, _ = _TRANSACTION.unpack_from(payload)
    transaction = state.transaction(tx_id, first_segment)
    at = _TRANSACTION.size
    if xid_bytes:
        transaction.xid = payload[at : at + xid_bytes - 1]
        at += xid_bytes - 1
    stop = at + acknowledges * _PAIR.size
    for queue_id, message_id in _PAIR.iter_unpack(payload[at:stop]):
        transaction.acknowledges.add(queue_id, message_id)
    at, stop = stop, stop + adds * REFERENCE.size
    for queue_id, reference in decode_references(payload[at:stop]):
        transaction.adds.append(queue_id, reference)
        transaction.added_ids.add(queue_id, reference.message_id)
        state.live.add(queue_id, reference.message_id)
    at = stop
    while at < len(payload):
        address_id, length = _DUPLICATE.unpack_from(payload, at)
        at += _DUPLICATE.size
        transaction.duplicate_ids.append((address_id, payload[at : at + length]))
        at += length


def read_end(file: FileReader, header: SnapshotHeader) -> SnapshotEnd:
    """The last record of an open snapshot, without reading the rest.

    Raises:
        JournalCorrupt: it is damaged.
    """
    length = HEADER_BYTES + _END.size
    at = max(file.size() - length, 0)
    data = file.read(at, length)
    frame = read_frame(data, 0, at, seed_of(header.sequence, header.epoch))
    if frame is None or frame.kind != PartType.END:
        raise JournalCorrupt("the end of the snapshot is damaged", file=file.path, offset=at)
    return SnapshotEnd(*_END.unpack_from(data, HEADER_BYTES))


class SnapshotLoader:
    """Reader of one snapshot into a fresh state, some bytes at a time."""

    def __init__(self, file: FileReader, header: SnapshotHeader, state: StoreState) -> None:
        """
        Args:
            file: Open; closed by the caller.
            state: Where everything goes.
        """
        self.header = header
        self.reader = SnapshotReader(file.path, header)
        self._file = file
        self._state = state

    def step(self, max_bytes: int) -> int:
        """Read on; the bytes used. Done when ``reader.end`` is set.

        Raises:
            JournalCorrupt: the snapshot is damaged; the state is of no use.
        """
        reader, before = self.reader, self.reader.offset
        while reader.end is None and reader.offset - before < max_bytes:
            offset = reader.offset
            for kind, payload in self._feed():
                try:
                    apply_part(self._state, kind, payload)
                except (ValueError, KeyError, struct.error) as error:
                    raise JournalCorrupt(str(error), file=reader.path, offset=offset) from error
        if reader.end is not None:
            self._finish(reader.end)
        return reader.offset - before

    def _feed(self) -> list[tuple[PartType, bytes]]:
        """The next records, read again past the cache if the first one of them is damaged."""
        reader, file = self.reader, self._file
        offset, want = reader.offset, reader.want
        try:
            return reader.feed(file.read(offset, want))
        except JournalCorrupt:
            file.forget_cached(offset, want)
            return reader.feed(file.read(offset, want))

    def _finish(self, end: SnapshotEnd) -> None:
        state, header = self._state, self.header
        state.node_id = header.node_id
        state.sequence = header.sequence
        state.base = (header.epoch, end.needs)


def read_snapshot(file: FileReader, name: str) -> tuple[SnapshotHeader, StoreState]:
    """Read a whole snapshot.

    Raises:
        JournalCorrupt: it is damaged.
        StoreVersionUnsupported: a newer format.
    """
    header, state = read_snapshot_header(file, name), StoreState()
    loader = SnapshotLoader(file, header, state)
    while loader.reader.end is None:
        loader.step(READ_BYTES)
    return header, state


def check_snapshot(file: FileReader, name: str) -> SnapshotEnd:
    """Read a whole snapshot for what is wrong with it; its last record. Raises as ``read_snapshot``."""
    header = read_snapshot_header(file, name)
    loader = SnapshotLoader(file, header, StoreState())
    while loader.reader.end is None:
        loader.step(READ_BYTES)
    return loader.reader.end
