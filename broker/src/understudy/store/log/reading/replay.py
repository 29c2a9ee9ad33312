"""Walking records: the hot reader of the log, and the search that tells a torn tail from damage.

``replay`` applies a piece of the log to a state without parsing bodies. Messages in one queue, acknowledgements
and duplicate ids, which are nearly everything in a log, come from ``kernel.scan`` as columns; any other record goes
through ``records.decode`` and ``StoreState.apply``.

Not here: where bytes come from and which count (``follower``).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt
from understudy.kernel.log import crc32, find_record, scan
from understudy.kernel.log.records import BAD, BLANK, ENDED, MORE, OTHER, SHORT
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import FileReader
from understudy.store.log.records import HEADER, HEADER_BYTES, RecordType, decode
from understudy.store.log.segment import HEADER_BLOCK_BYTES
from understudy.store.messages.columns import Rows
from understudy.store.messages.reference import pack_location
from understudy.store.state import StoreState

_WALK_BYTES: Final = 4 * 1024 * 1024


class Stop(Enum):
    """Reason why a walk ended."""

    ENDED = auto()
    """The bytes are used up exactly."""
    SHORT = auto()
    """The next record is longer than the bytes that are left."""
    BLANK = auto()
    """Zeros where a header should be."""
    BAD = auto()
    """The bytes hold no valid record, or a record that is not the next one."""
    SEALED = auto()
    """The record before was a seal."""
    CLOSED = auto()
    """The last record was a seal that says the node stopped cleanly."""


_STOPS: Final = {ENDED: Stop.ENDED, SHORT: Stop.SHORT, BLANK: Stop.BLANK, BAD: Stop.BAD}


@dataclass(slots=True)
class Cursor:
    """Position of a reader within one segment, and the sequence that the next record must have."""

    path: str
    number: int
    epoch: int
    seed: int
    offset: int = HEADER_BLOCK_BYTES
    """Offset of the next record in the file."""
    sequence: int = 0
    """Sequence of the record before; 0 accepts any."""
    batch: int = HEADER_BLOCK_BYTES
    """Offset of the first record of the batch that the record before belongs to."""
    sealed: Stop | None = None
    """SEALED or CLOSED once the record before was a seal."""


def replay(state: StoreState, cursor: Cursor, data: bytes) -> Stop:
    """Apply the records at the beginning of ``data``, which lies at ``cursor.offset``; moves the
    cursor past the last one applied.

    Raises:
        JournalCorrupt: a valid record that cannot be understood.
    """
    at, origin, number = 0, cursor.offset, cursor.number
    sequence, batch = cursor.sequence, cursor.batch
    stop = Stop.ENDED
    while True:
        code, behind, found, found_batch, first, id_min, id_max, groups, acknowledged, duplicates = scan(
            data, at, origin, cursor.seed, sequence
        )
        if behind > at:
            use = state.segments.get(number) or state.begin_segment(number, cursor.epoch, first)
            for queue_id, message_ids in acknowledged:
                state.remove_references(queue_id, array("Q", message_ids))
            for queue_id, priority, *columns in groups:
                state.add_rows(queue_id, priority, number, Rows.of(columns))
            for address_id, length, ids in duplicates:
                state.remember_packed(address_id, length, ids)
            if id_max:
                use.note(id_min)
                use.note(id_max)
            sequence, batch, at = found, found_batch, behind
        if code == OTHER:
            _, length, sequence, batch, kind, flags, _ = HEADER.unpack_from(data, at)
            stop = _apply(state, cursor, data[at + HEADER_BYTES : at + length], origin + at, sequence, kind, flags)
            at += length
            if stop is not Stop.ENDED:
                break
        elif code != MORE:
            stop = _STOPS[code]
            break
    if at:
        state.sequence = sequence
        cursor.offset, cursor.sequence, cursor.batch = origin + at, sequence, batch
    return stop


def _apply(
    state: StoreState, cursor: Cursor, payload: bytes, offset: int, sequence: int, kind: int, flags: int
) -> Stop:
    """Apply one checked record of a kind that the fast path leaves out."""
    number = cursor.number
    if number not in state.segments:
        state.begin_segment(number, cursor.epoch, sequence)
    try:
        record = decode(kind, flags, payload)
    except ValueError as error:
        raise JournalCorrupt(str(error), file=cursor.path, offset=offset) from error
    state.apply(record, sequence, number, pack_location(number, offset, HEADER_BYTES + len(payload)))
    if kind == RecordType.SEAL:
        return Stop.CLOSED if flags & 1 else Stop.SEALED
    return Stop.ENDED


@dataclass(frozen=True, slots=True)
class Frame:
    """One record of the log for the commands that inspect a store."""

    offset: int
    length: int
    sequence: int
    batch: int
    kind: int
    flags: int


def read_frame(data: bytes, at: int, origin: int, seed: int) -> Frame | None:
    """The record at ``data[at]``, which lies at ``origin + at``; None if it is not valid."""
    if at + HEADER_BYTES > len(data):
        return None
    crc, length, sequence, batch, kind, flags, _ = HEADER.unpack_from(data, at)
    if length < HEADER_BYTES or at + length > len(data):
        return None
    if crc32(memoryview(data)[at + 4 : at + length], seed) != crc:
        return None
    return Frame(origin + at, length, sequence, batch, kind, flags)


def _nothing_known(offset: int) -> int:
    return 0


def read_frames(
    file: FileReader, seed: int, stop: int | None = None, damaged_at: Callable[[int], int] = _nothing_known
) -> Iterator[tuple[Frame, bytes]]:
    """The valid records of a segment from its beginning, with their bytes, up to the first that
    is not, or up to the offset ``stop``. Damaged records whose length ``damaged_at`` knows are passed over.
    """
    origin = HEADER_BLOCK_BYTES
    want = _WALK_BYTES
    while True:
        length = want if stop is None else min(want, stop - origin)
        data = file.read(origin, length)
        at = 0
        while (frame := read_frame(data, at, origin, seed)) is not None:
            yield frame, data[at : at + frame.length]
            at += frame.length
        passed = damaged_at(origin + at)
        if at or passed:
            origin += at + passed
            want = _WALK_BYTES
            continue
        needed_bytes = HEADER.unpack_from(data)[1] if len(data) >= HEADER_BYTES else 0
        if len(data) < want or not want < needed_bytes <= RECORD_BYTES_MAX:
            return
        want = needed_bytes


def find_later_record(data: bytes, origin: int, seed: int, *, above: int, after: int) -> int | None:
    """Offset of a valid record that proves that the bytes at ``origin`` had been synced; None if there is none.

    Args:
        data: Bytes from the first bad offset on.
        origin: Where they lie in the file.
        seed: Crc seed of the segment.
        above: Sequence it must be higher than.
        after: Offset after which its batch must lie (docs/build/journal-format.md s. 2.2); -1 for any.
    """
    at = find_record(data, 0, origin, seed, above, after)
    return origin + at if at >= 0 else None


def find_next_record(data: bytes, origin: int, seed: int, *, above: int) -> Frame | None:
    """The first valid record with a sequence higher than ``above``; see ``find_later_record`` for the others."""
    at = find_record(data, 0, origin, seed, above, -1)
    return read_frame(data, at, origin, seed) if at >= 0 else None


def unfinished_bytes(data: bytes, origin: int, seed: int, *, above: int) -> int:
    """Bytes that records of a batch which is not whole take after the end of the log, as far as headers say; 0: there
    are none.

    Other bytes there are zeros, or those of an earlier use of the file (docs/build/journal-format.md s. 2.3).

    Args:
        data: Bytes from the end of the log on.
        origin: Where they lie in the file.
        seed: Crc seed of the segment.
        above: Sequence of the last record before them; 0 if it is not known.
    """
    end, at = 0, find_record(data, 0, origin, seed, above, -1)
    while at >= 0:
        end = at + HEADER.unpack_from(data, at)[1]
        at = find_record(data, end, origin, seed, above, -1)
    if end or len(data) < HEADER_BYTES or not data[:HEADER_BYTES].strip(b"\0"):
        return end
    # the headers of records whose bytes are damaged or were not all written
    while end + HEADER_BYTES <= len(data):
        _, length, sequence, *_ = HEADER.unpack_from(data, end)
        if length < HEADER_BYTES or sequence != (above + 1 if above else sequence):
            break
        end, above = end + length, sequence
    return min(max(end, HEADER_BYTES), len(data))
