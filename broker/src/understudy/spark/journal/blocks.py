"""The records of a piece of the log, block by block, and the damaged places between them.

A sealed segment is vouched for by the digest in its seal, and its records are found by the offsets there. Where there
is no seal, or the digest is wrong, the crc of every record is checked.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt
from understudy.kernel.log import crc32, scan
from understudy.kernel.log.records import MORE, OTHER, SHORT
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import Disk, File
from understudy.spark.journal.decode import Block
from understudy.spark.journal.log_plan import Mode, Piece
from understudy.store.log.reading.replay import find_later_record, find_next_record, unfinished_bytes
from understudy.store.log.records import HEADER, HEADER_BYTES, SEAL_FIXED_BYTES, SEAL_TRAILER, RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES, seed_of
from understudy.store.quarantine import KnownDamage, read_known_damage

#: Bytes of records in one block, unless one record is larger.
BLOCK_BYTES: Final = 16 * 1024 * 1024
#: Bytes read at a time for a digest.
_READ_BYTES: Final = 16 * 1024 * 1024
#: Segments up to this are kept in memory between checking their digest and decoding them. Bytes.
_KEPT_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the log that are no valid records."""

    piece: Piece
    offset: int
    length: int
    sequence: int
    """Sequence of the first record that is missing; 0 if it is not known."""
    message: str

    def error(self) -> JournalCorrupt:
        """The damage as an error that names file and offset."""
        return JournalCorrupt(self.message, file=self.piece.path, offset=self.offset)


class _Bytes:
    """The bytes of one file, read once if it is not large."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = file.size()
        self._kept = memoryview(file.read(0, self.size)) if self.size <= _KEPT_BYTES else None

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Bytes from an offset on, fewer only at the end."""
        if self._kept is not None:
            return self._kept[offset : offset + length]
        return self._file.read(offset, length)

    def digest(self, end: int) -> int:
        """Crc of everything before an offset."""
        found = 0
        for start in range(0, end, _READ_BYTES):
            found = crc32(self.read(start, min(_READ_BYTES, end - start)), found)
        return found


def read_blocks(disk: Disk, piece: Piece, mode: Mode) -> Iterator[Block | Damage]:
    """The records of a piece, in order.

    Args:
        disk: Where it is; only read.
        piece: Part of the plan.
        mode: Treatment of damage; FAIL raises the first one.

    Raises:
        JournalCorrupt: a damaged record in mode FAIL; names file and offset.
        DiskFailed: the file cannot be read.
    """
    for found in _all_blocks(disk, piece, mode):
        if not piece.after and not piece.until:
            yield found
        elif isinstance(found, Block):
            clipped = found.between(piece.after, piece.until)
            if clipped is not None:
                yield clipped


def _all_blocks(disk: Disk, piece: Piece, mode: Mode) -> Iterator[Block | Damage]:
    """All records of a segment, whatever the piece wants of it."""
    file = disk.open(piece.path, read_only=True)
    try:
        content = _Bytes(file)
        if piece.digest is not None:
            at, offsets = _sealed(content, piece)
            if offsets and content.digest(at) == piece.digest:
                yield from _by_offsets(content, piece, offsets)
                _check_name(disk, piece)
                return
        for found in _walked(content, piece, read_known_damage(disk, piece.directory)):
            if isinstance(found, Damage):
                _check_name(disk, piece)
                if mode is Mode.FAIL:
                    raise found.error()
            yield found
    finally:
        file.close()


def _check_name(disk: Disk, piece: Piece) -> None:
    """Raise FileNotFoundError if the segment was removed while it was read: a running broker may have made a later
    segment of its file.
    """
    if not disk.exists(piece.path):
        raise FileNotFoundError(piece.path)


def _sealed(content: _Bytes, piece: Piece) -> tuple[int, array[int]]:
    """Offset of the seal, and those of all records with the seal itself; none if there is no valid seal."""
    trailer = content.read(content.size - SEAL_TRAILER.size, SEAL_TRAILER.size)
    at: int = SEAL_TRAILER.unpack(trailer)[0]
    raw = content.read(at, content.size - at)
    crc, length, _, _, kind, *_ = HEADER.unpack_from(raw)
    if length != len(raw) or crc32(raw[4:], seed_of(piece.number, piece.epoch)) != crc or kind != RecordType.SEAL:
        return 0, array("I")
    count = int.from_bytes(raw[HEADER_BYTES : HEADER_BYTES + 4], "little")
    first = SEAL_FIXED_BYTES - SEAL_TRAILER.size
    offsets = array("I", bytes(raw[first : first + 4 * count]))
    offsets.append(at)
    return at, offsets


def _by_offsets(content: _Bytes, piece: Piece, offsets: array[int]) -> Iterator[Block]:
    first = 0
    while first < len(offsets):
        origin = offsets[first]
        after = max(bisect_left(offsets, origin + BLOCK_BYTES, first), first + 1)
        end = offsets[after] if after < len(offsets) else content.size
        positions = array("i", [offset - origin for offset in offsets[first:after]])
        yield Block(piece, content.read(origin, end - origin), origin, positions)
        first = after


# --- without a seal -------------------------------------------------------------------------------------------------


def _walked(content: _Bytes, piece: Piece, known: KnownDamage) -> Iterator[Block | Damage]:
    """Every record is checked. A bad one is the end, a torn tail, or damage after which valid records follow."""
    offset, sequence = HEADER_BLOCK_BYTES, 0
    seed, end = seed_of(piece.number, piece.epoch), min(piece.end, content.size)
    want = BLOCK_BYTES
    while offset < end:
        data = bytes(content.read(offset, min(want, end - offset)))
        positions, used, sequence, stop = scan_records(data, offset, seed, sequence)
        if positions:
            yield Block(piece, data[:used], offset, positions)
            offset += used
            want = BLOCK_BYTES
            if data[positions[-1] + 20] == RecordType.SEAL:
                return
            continue
        if stop == SHORT and offset + len(data) < end:
            needed = HEADER.unpack_from(data)[1] if len(data) >= HEADER_BYTES else 0
            if want < needed <= RECORD_BYTES_MAX:
                want = needed
                continue
        aside = known.length_at(piece.number, piece.epoch, offset)
        if aside:
            offset, sequence = offset + aside, sequence + bool(sequence)
            continue
        found = _after_bad(content, piece, offset, sequence)
        if found is None:
            return
        yield found
        offset, sequence = found.offset + found.length, 0
    if piece.end > content.size:
        message = f"the file ends here and should go on to {piece.end}"
        yield Damage(piece, content.size, piece.end - content.size, sequence + 1 if sequence else 0, message)


def scan_records(data: bytes, origin: int, seed: int, sequence: int) -> tuple[array[int], int, int, int]:
    """Positions of the valid records at the beginning, bytes used, the last sequence, and why they end.

    Args:
        data: Begins with a record.
        origin: Offset in the file of ``data``.
        seed: Seed of the crcs of the segment.
        sequence: Sequence of the record before; 0 for any.
    """
    at = 0
    while True:
        stop, after, found, *_ = scan(data, at, origin, seed, sequence)
        if after > at:
            at, sequence = after, found
        if stop == OTHER:
            _, length, sequence, *_ = HEADER.unpack_from(data, at)
            at += length
        elif stop != MORE:
            break
    positions, place = array("i"), 0
    while place < at:
        positions.append(place)
        place += int.from_bytes(data[place + 4 : place + 8], "little")
    return positions, at, sequence, stop


def _after_bad(content: _Bytes, piece: Piece, offset: int, sequence: int) -> Damage | None:
    """The damage at an offset up to the next valid record; None if the log ends there, also in a torn tail."""
    rest = bytes(content.read(offset, min(piece.end, content.size) - offset))
    first = sequence + 1 if sequence else 0
    seed = seed_of(piece.number, piece.epoch)
    if not piece.stated and not unfinished_bytes(rest, offset, seed, above=sequence):
        # the bytes were allocated and not written in this use of the file
        return None
    if piece.last and find_later_record(rest, offset, seed, above=sequence, after=offset) is None:
        return None
    later = find_next_record(rest, offset, seed, above=sequence)
    length = later.offset - offset if later is not None else len(rest)
    return Damage(piece, offset, length, first, f"record {first} is damaged" if first else "a record is damaged")
