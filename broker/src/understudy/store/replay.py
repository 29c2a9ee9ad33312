"""Walking records: the hot reader of the log, and the search that tells a torn tail from damage.

``replay`` applies a run of bytes to a state without parsing bodies. Messages in one queue and
acknowledgements, which are nearly everything in a log, are applied here in line; the rest goes
through ``records.decode`` and ``StoreState.apply``.

Not here: where bytes come from and which count (``follower``).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from zlib import crc32

from understudy.errors import JournalCorrupt
from understudy.store.backlog import Backlog
from understudy.store.records import (
    ACKNOWLEDGE_HEADER_BYTES,
    HEADER,
    HEADER_BYTES,
    MESSAGE_HEADER_BYTES,
    PRIORITY_MAX,
    RecordType,
    decode,
)
from understudy.store.reference import Location, pack_location
from understudy.store.segment import HEADER_BLOCK_BYTES
from understudy.store.state import StoreState

_MESSAGE_ONE: Final = struct.Struct("<IIQIBBHQQQqqBBHIQ")
_MESSAGE_ONE_BYTES: Final = MESSAGE_HEADER_BYTES + 8
_ACKNOWLEDGE: Final = struct.Struct("<IIQIBBHQQII")
#: A record's header with the crc, length, sequence and batch free: type, flags, zero.
_CANDIDATE: Final = re.compile(rb"(?=.{20}[\x01-\x0f\x28-\x2a][\x00-\x07]\x00\x00)", re.DOTALL)


class Stop(Enum):
    """Why a walk ended."""

    ENDED = auto()
    """The bytes are used up exactly."""
    SHORT = auto()
    """The next record is longer than the bytes that are left."""
    BLANK = auto()
    """Zeros where a header should be."""
    BAD = auto()
    """No valid record there, or not the next one."""
    SEALED = auto()
    """The record before was a seal."""
    CLOSED = auto()
    """It was a seal that says the node stopped cleanly."""


@dataclass(slots=True)
class Cursor:
    """Where a reader is within one segment, and what the next record must be."""

    path: str
    number: int
    epoch: int
    seed: int
    offset: int = HEADER_BLOCK_BYTES
    """In the file, of the next record."""
    sequence: int = 0
    """Of the record before; 0 accepts any."""
    batch: int = HEADER_BLOCK_BYTES
    """Offset of the first record of the batch that the record before belongs to."""
    sealed: Stop | None = None
    """SEALED or CLOSED once the record before was a seal."""


def replay(state: StoreState, cursor: Cursor, data: bytes) -> Stop:
    """Apply the records at the beginning of ``data``, which lies at ``cursor.offset``; moves the
    cursor behind the last one applied.

    Raises:
        JournalCorrupt: a valid record that cannot be understood.
    """
    at, size, origin = 0, len(data), cursor.offset
    seed, sequence, batch, number = cursor.seed, cursor.sequence, cursor.batch, cursor.number
    use = state.segments.get(number)
    view = memoryview(data)
    base = number << 64
    live_queues = state.live.queues
    last_queue = -1
    backlog = Backlog()
    masks: dict[int, int] = {}
    stop = Stop.ENDED
    while at < size:
        if at + _MESSAGE_ONE_BYTES <= size and data[at + 20] == 9:
            (
                crc, length, found, found_batch, _, _, _, message_id, tx_id, _, expiration, scheduled_ms,
                priority, large, duplicate_bytes, count, queue_id,
            ) = _MESSAGE_ONE.unpack_from(data, at)  # fmt: skip
            plain = count == 1 and not tx_id and not duplicate_bytes and not large and priority <= PRIORITY_MAX
        else:
            if at + HEADER_BYTES > size:
                stop = Stop.SHORT
                break
            crc, length, found, found_batch, *_ = HEADER.unpack_from(data, at)
            plain = False
        end = at + length
        if end > size or length < HEADER_BYTES:
            stop = _why_not(data, at, length)
            break
        if crc32(view[at + 4 : end], seed) != crc or (found != sequence + 1 and sequence):
            stop = Stop.BAD
            break
        if plain and use is not None:
            if queue_id != last_queue:
                last_queue = queue_id
                backlog = state.backlog(queue_id)
                masks = live_queues.setdefault(queue_id, {})
            backlog.append(
                message_id, priority, expiration, scheduled_ms, length - _MESSAGE_ONE_BYTES,
                Location(base | origin + at << 32 | length),  # pack_location, in line
            )  # fmt: skip
            block = message_id >> 6
            masks[block] = masks.get(block, 0) | 1 << (message_id & 63)
            if message_id > use.message_id_max and use.message_id_min:
                use.message_id_max = message_id
            else:
                use.note(message_id)
            sequence, batch, at = found, found_batch, end
            continue
        stop = _apply(state, cursor, data, at, end)
        use = state.segments.get(number)
        if data[at + 20] != 10:
            # it may have replaced what belongs to the queue
            last_queue = -1
        sequence, batch, at = found, found_batch, end
        if stop is not Stop.ENDED:
            break
    if at:
        state.sequence = sequence
        cursor.offset, cursor.sequence, cursor.batch = origin + at, sequence, batch
    return stop


def _why_not(data: bytes, at: int, length: int) -> Stop:
    if length >= HEADER_BYTES:
        return Stop.SHORT
    header = data[at : at + HEADER_BYTES]
    return Stop.BAD if header.strip(b"\0") else Stop.BLANK


def _apply(state: StoreState, cursor: Cursor, data: bytes, at: int, end: int) -> Stop:
    """One checked record that is not the plain kind."""
    _, length, sequence, _, kind, flags, _ = HEADER.unpack_from(data, at)
    offset = cursor.offset + at
    number = cursor.number
    if number not in state.segments:
        state.begin_segment(number, cursor.epoch, sequence)
    if kind == RecordType.ACKNOWLEDGE and length >= ACKNOWLEDGE_HEADER_BYTES:
        _, _, _, _, _, _, _, queue_id, tx_id, count, _ = _ACKNOWLEDGE.unpack_from(data, at)
        if not tx_id and length == ACKNOWLEDGE_HEADER_BYTES + 8 * count:
            state.remove_references(queue_id, struct.unpack_from(f"<{count}Q", data, at + ACKNOWLEDGE_HEADER_BYTES))
            return Stop.ENDED
    try:
        record = decode(kind, flags, data[at + HEADER_BYTES : end])
    except ValueError as error:
        raise JournalCorrupt(str(error), file=cursor.path, offset=offset) from error
    state.apply(record, sequence, number, pack_location(number, offset, length))
    if kind == RecordType.SEAL:
        return Stop.CLOSED if flags & 1 else Stop.SEALED
    return Stop.ENDED


@dataclass(frozen=True, slots=True)
class Frame:
    """One record as the walk for tools sees it."""

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


def find_later_record(data: bytes, origin: int, seed: int, *, above: int, behind: int) -> int | None:
    """Offset of a valid record that proves that bytes before ``behind`` had been synced.

    Args:
        data: Bytes from the first bad offset on.
        origin: Where they lie in the file.
        seed: Crc seed of the segment.
        above: Sequence it must be higher than.
        behind: Offset that its batch must lie behind (docs/journal-format.md s. 2.2); -1 for any.
    """
    used = len(data.rstrip(b"\0"))
    for match in _CANDIDATE.finditer(data, 0, used + HEADER_BYTES):
        at = match.start()
        _, length, sequence, batch, _, _, _ = HEADER.unpack_from(data, at)
        if sequence <= above or not HEADER_BLOCK_BYTES <= batch <= origin + at or batch <= behind:
            continue
        if length >= HEADER_BYTES and read_frame(data, at, origin, seed) is not None:
            return origin + at
    return None


def find_next_record(data: bytes, origin: int, seed: int, *, above: int) -> Frame | None:
    """The first valid record with a sequence higher than ``above``; see ``find_later_record`` for the others."""
    used = len(data.rstrip(b"\0"))
    for match in _CANDIDATE.finditer(data, 0, used + HEADER_BYTES):
        at = match.start()
        _, length, sequence, batch, _, _, _ = HEADER.unpack_from(data, at)
        if above < sequence and length >= HEADER_BYTES and HEADER_BLOCK_BYTES <= batch <= origin + at:
            frame = read_frame(data, at, origin, seed)
            if frame is not None:
                return frame
    return None
