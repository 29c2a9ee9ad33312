"""One segment file: its name, header block, writing in order, sealing (docs/build/journal-format.md s. 2).

``SegmentFile`` is a segment that is being written. It sees every byte in order and so keeps the digest of the segment
at no cost to the loop's thread. Its methods run on the writer's thread, one after another (``applier``).

Not here: which segments form the log (``chain``), when to change to the next one
(``journal``), or what records mean.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, DiskFull, JournalCorrupt, LockLost, StoreError, StoreVersionUnsupported
from understudy.ids import NodeId, uuid_bytes, uuid_text
from understudy.kernel.log import Batch, crc32, digest_records
from understudy.kernel.log.skim import Step
from understudy.ports import Disk, File, FileReader
from understudy.store.log.format_version import FORMAT_VERSION, FORMAT_VERSION_FIRST
from understudy.store.log.open_files import OpenSegment
from understudy.store.log.records import (
    HEADER,
    HEADER_BYTES,
    REST,
    SEAL_CLOSED,
    SEAL_MAGIC,
    SEAL_TRAILER,
    RecordType,
    SealRecord,
    decode,
    encode_seal,
)
from understudy.store.log.segment_skim import COLLECT_BYTES, Skim

MAGIC: Final = b"USTLOG\r\n"
#: Records begin here; a block of its own, so that no record shares a sector with the header.
HEADER_BLOCK_BYTES: Final = 4096
FIRST_OF_EPOCH: Final = 1
#: Bytes of a segment, element journal-file-size.
SEGMENT_BYTES: Final = 10 * 1024 * 1024
SEGMENT_BYTES_MIN: Final = 64 * 1024
#: Offsets in a segment are u32.
SEGMENT_BYTES_MAX: Final = 2 * 1024**3
NEW_SUFFIX: Final = ".new"
#: Bytes read at a time for the digest of a segment that is continued.
_RESUME_BYTES: Final = 1024 * 1024
#: Shorter buffers of a batch are copied together: a buffer of its own costs more.
_COPIED_BYTES_MAX: Final = 16 * 1024

#: Zeros in the place of the header of a record: nothing follows.
NO_RECORD: Final = bytes(HEADER_BYTES)

_HEADER = struct.Struct("<8sHHI16sQQqQ")
_CRC_OFFSET: Final = 12
_U64_PAIR = struct.Struct("<QQ")
_NAME = re.compile(r"segment-([0-9]{12})-([0-9]{10})\.log(\.new)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header block of a segment."""

    node_id: NodeId
    epoch: int
    number: int
    created_ms: int
    allocated_bytes: int
    first_of_epoch: bool
    format_version: int = FORMAT_VERSION_FIRST
    """Lowest version that a reader must know (``format_version``)."""


def segment_name(number: int, epoch: int) -> str:
    """File name of a segment."""
    return f"segment-{number:012d}-{epoch:010d}.log"


def parse_name(name: str) -> tuple[int, int, bool] | None:
    """Number, epoch, and whether the file is complete (not ``.new``); None if it is no segment."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]), match[3] is None)


def seed_of(number: int, epoch: int) -> int:
    """Start value of the crc of every record in the segment."""
    return crc32(_U64_PAIR.pack(number, epoch))


def encode_header(header: SegmentHeader) -> bytes:
    """The header block."""
    fields = _HEADER.pack(
        MAGIC,
        header.format_version,
        FIRST_OF_EPOCH if header.first_of_epoch else 0,
        0,
        uuid_bytes(header.node_id),
        header.epoch,
        header.number,
        header.created_ms,
        header.allocated_bytes,
    )
    block = bytearray(fields.ljust(HEADER_BLOCK_BYTES, b"\0"))
    struct.pack_into("<I", block, _CRC_OFFSET, crc32(block))
    return bytes(block)


def decode_header(block: bytes, path: str) -> SegmentHeader:
    """The header in a segment's first block.

    Raises:
        JournalCorrupt: it is no header, or damaged.
        StoreVersionUnsupported: a newer format.
    """
    if len(block) < HEADER_BLOCK_BYTES:
        raise JournalCorrupt(f"header cut off after {len(block)} bytes", file=path, offset=len(block))
    magic, version, flags, crc, node_id, epoch, number, created_ms, allocated = _HEADER.unpack_from(block)
    if magic != MAGIC:
        raise JournalCorrupt("no segment of a journal", file=path, offset=0)
    zeroed = b"".join((block[:_CRC_OFFSET], b"\0\0\0\0", block[_CRC_OFFSET + 4 : HEADER_BLOCK_BYTES]))
    if crc32(zeroed) != crc:
        raise JournalCorrupt("header is damaged", file=path, offset=0)
    if version > FORMAT_VERSION:
        raise StoreVersionUnsupported(
            f"{path}: format version {version}, this Understudy reads up to {FORMAT_VERSION}",
            hint="start the version that wrote it, or upgrade this one",
        )
    first = bool(flags & FIRST_OF_EPOCH)
    return SegmentHeader(NodeId(uuid_text(node_id)), epoch, number, created_ms, allocated, first, version)


def read_header(file: FileReader, number: int, epoch: int) -> SegmentHeader:
    """The header of an open segment, which must be the one its name says; read again past the cache if it is not.

    Raises:
        JournalCorrupt: it is not.
        StoreVersionUnsupported: a newer format.
        FileNotFoundError: the segment was removed since it was opened, and a later one is made of its file.
    """
    try:
        return _read_header(file, number, epoch)
    except JournalCorrupt:
        # the medium may have what a cache of this machine has not
        file.forget_cached(0, HEADER_BLOCK_BYTES)
        return _read_header(file, number, epoch)


def _read_header(file: FileReader, number: int, epoch: int) -> SegmentHeader:
    header = decode_header(file.read(0, HEADER_BLOCK_BYTES), file.path)
    if (header.epoch, header.number) > (epoch, number):
        # only a renamed file gets a later header (``segment_pool``)
        raise FileNotFoundError(f"{file.path} was removed: its file is segment {header.number} of epoch {header.epoch}")
    if (header.number, header.epoch) != (number, epoch):
        raise JournalCorrupt(
            f"header of segment {header.number} of epoch {header.epoch} under another name", file=file.path, offset=0
        )
    return header


def frame(kind: RecordType, flags: int, sequence: int, batch: int, seed: int, *parts: bytes) -> tuple[bytes, ...]:
    """Header and payload parts of one record, ready to be written."""
    length = HEADER_BYTES
    for part in parts:
        length += len(part)
    rest = REST.pack(length, sequence, batch, kind, flags, 0)
    crc = crc32(rest, seed)
    for part in parts:
        crc = crc32(part, crc)
    return (crc.to_bytes(4, "little") + rest, *parts)


def read_seal(file: FileReader, header: SegmentHeader) -> tuple[int, SealRecord] | None:
    """Offset and content of the seal at the end of the file; None if the file has no valid seal."""
    size = file.size()
    if size < HEADER_BLOCK_BYTES + SEAL_TRAILER.size:
        return None
    at, _, magic = SEAL_TRAILER.unpack(file.read(size - SEAL_TRAILER.size, SEAL_TRAILER.size))
    if magic != SEAL_MAGIC or not HEADER_BLOCK_BYTES <= at <= size - HEADER_BYTES:
        return None
    raw = file.read(at, size - at)
    crc, length, sequence, _, kind, flags, _ = HEADER.unpack_from(raw)
    if kind != RecordType.SEAL or length != len(raw) or crc32(raw[4:], seed_of(header.number, header.epoch)) != crc:
        return None
    seal = decode(kind, flags, raw[HEADER_BYTES:])
    return (at, seal) if isinstance(seal, SealRecord) and seal.last_sequence + 1 == sequence else None


def _with_small_ones_joined(buffers: Sequence[bytes]) -> list[bytes]:
    """The buffers, but neighbours that are small as one. Large ones are not copied."""
    found: list[bytes] = []
    small: list[bytes] = []
    for buffer in buffers:
        if len(buffer) < _COPIED_BYTES_MAX:
            small.append(buffer)
            continue
        if small:
            found.append(b"".join(small))
            small = []
        found.append(buffer)
    if small:
        found.append(b"".join(small))
    return found


class SegmentBatch(NamedTuple):
    """A batch that is written by other means than the methods of ``SegmentFile``. Implements ``ports.BatchWrite``."""

    file: File
    batch: Batch
    end: Callable[[Batch, int, Sequence[list[Step] | None], BaseException | None], None]


#: ``SegmentBatch(...)`` without the Python-level call.
_batch_of: Callable[[tuple[File, Batch, Callable[..., None]]], SegmentBatch] = partial(tuple.__new__, SegmentBatch)


class SegmentFile:
    """A segment being written, strictly in order.

    After a failure of the disk other than missing space, every further call raises the same error: the kernel may have
    dropped the pages that it could not write, so a second sync would succeed without them.
    """

    __slots__ = (
        "_before",
        "_digest",
        "_failure",
        "_file",
        "_last",
        "_old_end",
        "_path",
        "_position",
        "_seed",
        "_skim",
        "skimmed",
    )

    def __init__(self, file: File, path: str, written: bytes, seed: int, *, old_end: int = 0) -> None:
        """Wraps a file whose first bytes are ``written``: the header, for a first segment EPOCH. ``seed`` is that of
        its crcs. Bytes of an earlier use of the file may lie before ``old_end``; all others are zeros.
        """
        self._old_end = old_end
        self._skim = Skim(len(written)) if len(written) == HEADER_BLOCK_BYTES else None
        self.skimmed: Skim | None = None
        """Summary of its records, once it is sealed; None for the first segment of an epoch, and after a full disk."""
        self._file = file
        self._path = path
        self._digest = self._before = crc32(written)
        """Digest of all bytes written, and of those before the last write."""
        self._seed = seed
        self._position = self._last = len(written)
        """End of the written bytes, and where the last write began."""
        self._failure: DiskFailed | None = None

    @classmethod
    def resumed(cls, file: File, path: str, state: OpenSegment) -> SegmentFile:
        """Continue a segment that another applier has written up to now.

        Raises:
            JournalCorrupt: its bytes have another digest.
        """
        digest, offset = 0, 0
        while offset < state.position:
            data = file.read(offset, min(_RESUME_BYTES, state.position - offset))
            if not data:
                break
            digest = crc32(data, digest)
            offset += len(data)
        if offset != state.position or digest != state.digest:
            raise JournalCorrupt("the bytes are not those that were written", file=path, offset=offset)
        segment = cls(file, path, b"", state.seed, old_end=file.size())
        segment._digest, segment._before = state.digest, state.before
        segment._position, segment._last = state.position, state.last
        return segment

    def leave_out_summary(self) -> None:
        """Collect no summary of the records (``skimmed``)."""
        self._skim = None

    def describe(self, name: str) -> OpenSegment:
        """State of the segment file, with which another applier can continue it."""
        return OpenSegment(name, self._position, self._digest, self._last, self._before, self._seed)

    @property
    def path(self) -> str:
        """Absolute path of the file."""
        return self._path

    @property
    def position(self) -> int:
        """End of the written bytes. May be read by any thread."""
        return self._position

    def write(self, offset: int, buffers: Sequence[bytes]) -> None:
        """Append. A write at the offset of the last one replaces it: that met a full disk, in the write or in the sync.

        Each of the buffers holds whole records. Zeros follow the bytes in the place of the next header, so that a
        reader sees the end of the log although older bytes lie after it.
        """
        self._append(offset, buffers, (NO_RECORD,) if offset < self._old_end else ())

    def _append(self, offset: int, buffers: Sequence[bytes], behind: tuple[bytes, ...] = ()) -> None:
        buffers = self._begin(offset, buffers)
        digest = self._digest
        try:
            self._file.write(offset, [*buffers, *behind] if behind else buffers)
        except DiskFailed as failure:
            self._failure = failure
            raise
        for data in buffers:
            digest = digest_records(data, digest, self._seed)
            self._position += len(data)
            if self._skim is not None:
                self._skim.take(data)
        self._digest = digest

    def _begin(self, offset: int, buffers: Sequence[bytes]) -> Sequence[bytes]:
        """Note where a write begins; the buffers to write."""
        if self._failure is not None:
            raise self._failure
        if offset != self._position:
            self._take_back(offset)
        self._before = self._digest
        self._last = offset
        return _with_small_ones_joined(buffers) if len(buffers) > 1 else buffers

    def begin_batch(self, offset: int, buffers: Sequence[bytes], *, sync: bool) -> SegmentBatch:
        """The same as ``write``, and ``sync`` if it is wanted, by means of the caller. ``SegmentBatch.end`` follows, or
        ``write`` with the same arguments.

        Raises:
            DiskFailed: the segment has failed before.
        """
        # without ``_begin`` where it has nothing to do, because this runs once per lone message
        if self._failure is None and offset == self._position and len(buffers) == 1:
            self._before, self._last = self._digest, offset
        else:
            buffers = self._begin(offset, buffers)
        behind = NO_RECORD if offset < self._old_end else b""
        skim_bytes = None if self._skim is None else COLLECT_BYTES
        batch = (offset, list(buffers), behind, sync, self._digest, self._seed, skim_bytes)
        return _batch_of((self._file, batch, self._end_batch))

    def _end_batch(
        self, batch: Batch, digest: int, skimmed: Sequence[list[Step] | None], error: BaseException | None
    ) -> None:
        """Take the outcome of a batch over (``ports.BatchWrite.end``)."""
        if error is not None:
            if isinstance(error, DiskFailed):
                self._failure = error
            if not skimmed:
                return
        for data, steps in zip(batch[1], skimmed, strict=True):
            self._position += len(data)
            if self._skim is not None:
                self._skim.take(data, steps)
        self._digest = digest

    def _take_back(self, offset: int) -> None:
        assert offset == self._last, f"{self.path}: write at {offset}, expected {self._position}"
        self._position, self._digest = offset, self._before
        # a part of the reserved space may have been allocated already
        self._skim = None

    def zero(self, offset: int, length: int) -> None:
        """Write zeros over allocated, unwritten blocks and sync, so that later syncs need no extent conversion."""
        assert offset >= self._position, f"{self.path}: zeros at {offset}, written up to {self._position}"
        if offset + length <= self._old_end:
            # these blocks were written in an earlier use of the file
            return
        self._ask(self._file.write, offset, (bytes(length),))
        self.sync()

    def allocate(self, length: int) -> None:
        """Reserve blocks up to ``length`` bytes; raises DiskFull or DiskFailed."""
        self._ask(self._file.allocate, length)

    def sync(self) -> None:
        """Make everything that was written durable; raises DiskFull or DiskFailed."""
        if self._failure is not None:
            raise self._failure
        try:
            self._file.sync()
        except DiskFailed as failure:
            self._failure = failure
            raise

    def _ask(self, change: Callable[..., None], *args: object) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            change(*args)
        except DiskFailed as failure:
            self._failure = failure
            raise

    def close(self) -> None:
        """Close the segment file."""
        self._file.close()

    def seal(self, record: SealRecord, sequence: int, offsets: bytes) -> None:
        """Write the footer after the records, end the file with it and sync.

        Args:
            record: Fields of the record; digest and offsets are filled in here.
            sequence: Sequence of the SEAL record.
            offsets: Offsets of all records, u32 little-endian.

        Raises:
            DiskFull, DiskFailed: as the file does.
        """
        if self._skim is not None:
            self._skim.finish()
            self.skimmed, self._skim = self._skim, None
        at = self._position
        complete = SealRecord(
            record.closed,
            len(offsets) // 4,
            self._digest,
            record.first_sequence,
            record.last_sequence,
            record.first_ms,
            record.sealed_ms,
            record.message_id_min,
            record.message_id_max,
            (),
        )
        if self.skimmed is not None:
            self.skimmed.seal = at, complete
        payload = encode_seal(complete, at, offsets)
        parts = frame(RecordType.SEAL, SEAL_CLOSED if record.closed else 0, sequence, at, self._seed, payload)
        try:
            raw = b"".join(parts)
            has_room = at + len(raw) + HEADER_BYTES <= self._old_end
            self._append(at, (raw,), (NO_RECORD,) if has_room else ())
            # first the seal, then the cut: a short file without a seal would look damaged
            self.sync()
            self._ask(self._file.truncate, self._position)
            self.sync()
        except DiskFull:
            if self._position != at:
                self._take_back(at)
            raise


def create_segment(
    disk: Disk,
    directory: str,
    header: SegmentHeader,
    first_records: bytes = b"",
    used_file: Callable[[SegmentHeader, str], File | None] | None = None,
) -> SegmentFile:
    """Make a segment so that it exists completely or not at all; blocks for several syncs.

    Args:
        disk: Where the log is.
        directory: Absolute path of the log.
        header: Header block of the new file, except its checksum.
        first_records: Records that the segment begins with.
        used_file: Has the file of a removed segment renamed to a path and opens it; None: there is none
            (``SegmentPool.take``). Not called for the first segment of an epoch: only one of two nodes that begin the
            same epoch can create that file.

    Raises:
        LockLost: another node has made the same segment of the same epoch: it activates too.
        DiskFull: no space; no file is left.
        DiskFailed: the disk said no.
    """
    path = f"{directory}/{segment_name(header.number, header.epoch)}"
    temporary = path + NEW_SUFFIX
    file, old_end = None, 0
    if used_file is not None and not header.first_of_epoch and not disk.exists(temporary):
        file = used_file(header, temporary)
    try:
        file = file or disk.open(temporary, create=True)
    except FileExistsError:
        raise LockLost(f"{temporary} exists: another node is writing epoch {header.epoch}") from None
    written = encode_header(header) + first_records
    try:
        old_end = file.size()
        allocated_bytes = max(header.allocated_bytes, len(written))
        if old_end < allocated_bytes:
            file.allocate(allocated_bytes)
        file.write(0, (written, NO_RECORD) if old_end else (written,))
        file.sync()
    except BaseException:
        # also the space of a partial allocation must be freed
        with suppress(StoreError):
            file.close()
            disk.remove(temporary)
        raise
    if disk.exists(path):
        file.close()
        raise LockLost(f"{path} exists: another node is writing epoch {header.epoch}")
    disk.rename(temporary, path)
    disk.sync_directory(directory)
    return SegmentFile(file, path, written, seed_of(header.number, header.epoch), old_end=old_end)


def log_size_bytes(disk: Disk, directory: str) -> int:
    """Bytes of a directory's segments and snapshots on the disk, with those being made and the files that are kept for
    later segments."""
    total = 0
    for name in disk.list(directory):
        if name.startswith(("segment-", "snapshot-", "pool-")):
            try:
                file = disk.open(f"{directory}/{name}", read_only=True)
            except FileNotFoundError:
                # the segment was trimmed between listing and opening
                continue
            total += file.size()
            file.close()
    return total
