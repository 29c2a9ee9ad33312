"""Whether the bytes of a file of a store are those that were written, by the checksums that the store has of them.

A *check* is fed the bytes of one whole file, from its beginning and in pieces, from this disk or from another node:

- a sealed segment fits if header and seal are valid and the digest in the seal is that of the bytes before it;
- a snapshot fits if every record of it is valid up to its end;
- the body of a large message fits if size and crc are those in the record of the log that names it. ``BodyChecksums``
  collects these from the records in the segments, so a node that only has the files can check bodies, too;
- the record of a message fits if its crc does (``record_fits``).

Nothing is known of other files: unfinished ones, segments without a seal, bodies that no record names (yet).

Not here: where the bytes come from and what follows (``repair``, ``scrubbing``, ``store.replication.copy_source``).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator
from contextlib import suppress
from enum import Enum, auto
from typing import Final, Protocol

from understudy.errors import JournalCorrupt, StoreVersionUnsupported
from understudy.kernel.log import crc32
from understudy.message import LargeBody, large_body_of
from understudy.ports import FileReader
from understudy.store.log.reading.replay import read_frame
from understudy.store.log.records import (
    HEADER,
    HEADER_BYTES,
    MESSAGE_HEADER,
    MESSAGE_HEADER_BYTES,
    MESSAGE_LARGE,
    SEAL_MAGIC,
    SEAL_TRAILER,
    RecordType,
)
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, read_header, read_seal, seed_of
from understudy.store.snapshots.snapshot import SnapshotReader, read_snapshot_header

#: Bytes read, and asked of another node, at a time.
PIECE_BYTES: Final = 512 * 1024
_LENGTH: Final = struct.Struct("<I")
_MESSAGES: Final = (int(RecordType.MESSAGE_ADD), int(RecordType.MESSAGE_MOVE))


class Condition(Enum):
    """Result of a check."""

    FITS = auto()
    UNKNOWN = auto()
    """No checksum of the file is known, so that nothing can be compared."""
    DAMAGED = auto()


class Check(Protocol):
    """Result of reading one file and comparing its bytes with the known checksums."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file."""

    @property
    def fits(self) -> bool:
        """Whether the bytes fed so far are the whole file, as it was written."""
        ...


class BodyCheck:
    """The check of a body. Implements ``Check``."""

    def __init__(self, large: LargeBody) -> None:
        """``large``: as the log records it."""
        self._large = large
        self._crc = self._size_bytes = 0

    def feed(self, data: bytes) -> None:
        self._crc = crc32(data, self._crc)
        self._size_bytes += len(data)

    @property
    def fits(self) -> bool:
        return (self._size_bytes, self._crc) == (self._large.size_bytes, self._large.crc)


class _Parts:
    """Some parts of a file in memory. Implements ``ports.FileReader``."""

    def __init__(self, path: str, size_bytes: int, parts: dict[int, bytes]) -> None:
        self.path = path
        self._size_bytes = size_bytes
        self._parts = parts

    def size(self) -> int:
        return self._size_bytes

    def read(self, offset: int, length: int) -> bytes:
        for begin, data in self._parts.items():
            if begin <= offset <= begin + len(data):
                return data[offset - begin : offset - begin + length]
        return b""

    def forget_cached(self, offset: int, length: int) -> None: ...

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        return [(offset, self._size_bytes)]

    def close(self) -> None: ...


class SegmentCheck:
    """The check of a sealed segment. Implements ``Check``."""

    def __init__(self, name: str, size_bytes: int, trailer: bytes) -> None:
        """
        Args:
            trailer: Last bytes of the file, which say where the seal begins: ``TRAILER_BYTES``.
        """
        self._name = name
        self._size_bytes = size_bytes
        at, _, magic = SEAL_TRAILER.unpack(trailer) if len(trailer) == SEAL_TRAILER.size else (0, 0, b"")
        self._seal_at = at if magic == SEAL_MAGIC and HEADER_BLOCK_BYTES <= at < size_bytes else 0
        self._header, self._seal = bytearray(), bytearray()
        self._digest = self._offset = 0

    def feed(self, data: bytes) -> None:
        if self._offset < HEADER_BLOCK_BYTES:
            self._header += data[: HEADER_BLOCK_BYTES - self._offset]
        before = data[: max(self._seal_at - self._offset, 0)]
        self._digest = crc32(before, self._digest)
        self._seal += data[len(before) :] if self._seal_at else b""
        self._offset += len(data)

    @property
    def fits(self) -> bool:
        parsed = parse_name(self._name)
        if not self._seal_at or self._offset != self._size_bytes or parsed is None:
            return False
        parts = _Parts(self._name, self._size_bytes, {0: bytes(self._header), self._seal_at: bytes(self._seal)})
        with suppress(JournalCorrupt, StoreVersionUnsupported):
            seal = read_seal(parts, read_header(parts, parsed[0], parsed[1]))
            return seal is not None and seal[1].digest == self._digest
        return False


TRAILER_BYTES: Final = SEAL_TRAILER.size


class SnapshotCheck:
    """The check of a snapshot. Implements ``Check``."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self._name = name
        self._left_bytes = size_bytes
        self._data = bytearray()
        """Bytes that are not cut into records yet."""
        self._reader: SnapshotReader | None = None
        self._damaged = False

    def feed(self, data: bytes) -> None:
        self._left_bytes -= len(data)
        if self._damaged:
            return
        self._data += data
        try:
            self._cut()
        except (JournalCorrupt, StoreVersionUnsupported):
            self._damaged = True

    def _cut(self) -> None:
        if self._reader is None:
            if len(self._data) < HEADER_BLOCK_BYTES and self._left_bytes > 0:
                return
            block = _Parts(self._name, HEADER_BLOCK_BYTES, {0: bytes(self._data[:HEADER_BLOCK_BYTES])})
            self._reader = SnapshotReader(self._name, read_snapshot_header(block, self._name))
            del self._data[:HEADER_BLOCK_BYTES]
        reader = self._reader
        while reader.end is None and (len(self._data) >= reader.want or self._left_bytes <= 0):
            before = reader.offset
            reader.feed(bytes(self._data[: reader.want]))
            del self._data[: reader.offset - before]
        if reader.end is not None and (self._data or self._left_bytes > 0):
            self._damaged = True

    @property
    def fits(self) -> bool:
        return not self._damaged and self._left_bytes == 0 and self._reader is not None and self._reader.end is not None


def record_fits(data: bytes, number: int, epoch: int) -> bool:
    """Whether the bytes are exactly one valid record of a segment.

    Args:
        data: The bytes.
    """
    frame = read_frame(data, 0, 0, seed_of(number, epoch))
    return frame is not None and frame.length == len(data)


def read_pieces(file: FileReader, size_bytes: int, *, past_cache: bool) -> Generator[bytes, None, None]:
    """The bytes of a file in pieces; fewer if it ends before.

    Args:
        file: Open.
        past_cache: Whether the bytes come from the medium, not from a cache of this machine.
    """
    offset = 0
    while offset < size_bytes:
        length = min(PIECE_BYTES, size_bytes - offset)
        if past_cache:
            file.forget_cached(offset, length)
        data = file.read(offset, length)
        if not data:
            return
        yield data
        if past_cache:
            file.forget_cached(offset, length)
        offset += len(data)


def trailer_of(file: FileReader) -> bytes:
    """The last bytes of a segment, for ``SegmentCheck``."""
    return file.read(max(file.size() - TRAILER_BYTES, 0), TRAILER_BYTES)


def ends_with_seal(trailer: bytes) -> bool:
    """Whether the last bytes of a segment are those of a seal, whatever the rest of it is."""
    return len(trailer) == TRAILER_BYTES and SEAL_TRAILER.unpack(trailer)[2] == SEAL_MAGIC


class BodyChecksums:
    """Size and crc of bodies, as the records of large messages in the segments of a log state them."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._found: dict[int, LargeBody] = {}
        self._read_to: dict[str, int] = {}
        """Offset in each segment up to which its records were looked at."""

    def of(self, file_id: int) -> LargeBody | None:
        """The checksum of a body; None: no record that was read names it."""
        return self._found.get(file_id)

    def learn(self, file: FileReader, name: str, end: int, wanted: Collection[int]) -> Generator[int, None, None]:
        """Look at the records of a segment that were not looked at, in steps of some bytes.

        Only records of large messages are checked. Reading ends at a length that cannot be right: bodies that the
        records after it name stay without a checksum.

        Args:
            file: The segment, open.
            end: Offset after the last record, or of the file.
            wanted: Ids of files whose checksums are of use.
        """
        number, epoch, _ = parse_name(name) or (0, 0, False)
        seed, offset = seed_of(number, epoch), self._read_to.get(name, HEADER_BLOCK_BYTES)
        want = PIECE_BYTES
        while offset + HEADER_BYTES <= end:
            data = file.read(offset, min(want, end - offset))
            at = self._look(data, offset, seed, wanted)
            yield len(data)
            if not at:
                length = _LENGTH.unpack_from(data, 4)[0] if len(data) >= HEADER_BYTES else 0
                if not len(data) < length <= end - offset:
                    break
                want = length
                continue
            offset, want = offset + at, PIECE_BYTES
        self._read_to[name] = offset

    def _look(self, data: bytes, origin: int, seed: int, wanted: Collection[int]) -> int:
        """Note the bodies that whole records at the beginning of ``data`` name; how many bytes these records have."""
        at = 0
        while at + HEADER_BYTES <= len(data):
            _, length, _, _, kind, _, _ = HEADER.unpack_from(data, at)
            if length < HEADER_BYTES or at + length > len(data):
                break
            if kind in _MESSAGES and length >= MESSAGE_HEADER_BYTES:
                *_, flags, duplicate_bytes, queues = MESSAGE_HEADER.unpack_from(data, at)
                if flags & MESSAGE_LARGE and read_frame(data, at, origin, seed) is not None:
                    begin = at + MESSAGE_HEADER_BYTES + 8 * queues + duplicate_bytes
                    with suppress(ValueError):
                        large = large_body_of(data[begin : at + length])
                        if large.file_id in wanted:
                            self._found[large.file_id] = large
            at += length
        return at
