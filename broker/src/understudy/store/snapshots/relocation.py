"""Copying the live messages of one nearly dead segment to the end of the log (ADR 0010).

Each is appended as a MESSAGE_MOVE, in the order of offsets, so the moved part is one number per segment.
Nothing is copied that is not whole; a damaged segment stays where it is.

A reference in memory, in a page file or with a consumer keeps its old location. ``Relocations`` holds the new one, and
is asked only when a message is read whose segment is gone. A table for each source segment is kept while any message
of it is live. The tables end with the activation: recovery gives every reference its current location.

Not here: which segments (``consolidator``).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Container, Generator
from dataclasses import field
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFull, JournalCorrupt
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import Disk, File
from understudy.store.live_index import LiveIndex
from understudy.store.log.journal import Journal
from understudy.store.log.reading.replay import read_frame
from understudy.store.log.records import HEADER_BYTES, MESSAGE_HEADER_BYTES, RecordType, encode_move
from understudy.store.log.segment import HEADER_BLOCK_BYTES, seed_of, segment_name
from understudy.store.messages.reference import Location, pack_location, unpack_location
from understudy.store.quarantine import KnownDamage
from understudy.store.snapshots.background import Job, Request, read_job
from understudy.store.state import StoreState

#: Log that is read and looked through in one step. A change of thread costs as much as to look at some hundred records.
_READ_BYTES: Final = 512 * 1024
_MESSAGES: Final = (int(RecordType.MESSAGE_ADD), int(RecordType.MESSAGE_MOVE))
_LENGTH: Final = struct.Struct("<I")
_COUNT: Final = struct.Struct("<I")
_MESSAGE_ID: Final = struct.Struct("<Q")


@dataclass(slots=True)
class _Table:
    """Sixteen bytes a message, in the order of offsets, in which a segment is copied."""

    id_min: int
    id_max: int
    sources: array[int] = field(default_factory=lambda: array("I"))
    """Offset in the source ..."""
    segments: array[int] = field(default_factory=lambda: array("Q"))
    """... to the segment ..."""
    offsets: array[int] = field(default_factory=lambda: array("I"))
    """... and the offset where it lies as well, at the same length."""


class Relocations:
    """New locations of messages that were copied forward, by source segment."""

    def __init__(self) -> None:
        self._tables: dict[int, _Table] = {}

    def __len__(self) -> int:
        return sum(len(table.sources) for table in self._tables.values())

    def add(self, number: int, offset: int, message_id: int, location: Location) -> None:
        """The message of that record lies there as well; offsets of one segment only rise."""
        table = self._tables.get(number)
        if table is None:
            table = self._tables[number] = _Table(message_id, message_id)
        assert not table.sources or table.sources[-1] < offset, "segments are copied from their beginning on"
        table.id_min = min(table.id_min, message_id)
        table.id_max = max(table.id_max, message_id)
        segment, place, _ = unpack_location(location)
        table.sources.append(offset)
        table.segments.append(segment)
        table.offsets.append(place)

    def resolve(self, location: Location, present: Container[int]) -> Location:
        """The location in a segment that is present. Raises KeyError if the message was not live."""
        number, offset, length = unpack_location(location)
        while number not in present:
            table = self._tables[number]
            row = bisect_left(table.sources, offset)
            if row == len(table.sources) or table.sources[row] != offset:
                raise KeyError(location)
            number, offset = table.segments[row], table.offsets[row]
        return pack_location(number, offset, length)

    def sweep(self, live: LiveIndex) -> None:
        """Forget tables of which nothing is live."""
        for number, table in list(self._tables.items()):
            if not live.any_between(table.id_min, table.id_max):
                del self._tables[number]


class SegmentCopy:
    """Appends the live messages of one segment to the log again."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        number: int,
        journal: Journal,
        state: StoreState,
        relocations: Relocations,
        known: KnownDamage,
    ) -> None:
        """
        Args:
            disk: Where the store is.
            directory: Absolute path of the store.
            number: Number of the segment, which is finished.
            journal: Where the messages go.
            state: State of the running store: live messages, and those moved already.
            relocations: Gets every message that is copied.
            known: Damaged records that were set aside: they are passed over.
        """
        self._disk = disk
        self._directory = directory
        self._number = number
        self._journal = journal
        self._state = state
        self._relocations = relocations
        self._known = known
        self.messages = 0
        """Messages of the segment that were copied to the end of the log."""

    def run(self) -> Generator[Request, Any, None]:
        """Copy the live records of the segment.

        Raises:
            JournalCorrupt: the segment is damaged; earlier copies count.
            DiskFull: there is no space; likewise.
        """
        number = self._number
        use = self._state.segments[number]
        if not self._state.holds_live(use):
            # the messages of the record were acknowledged since the snapshot
            return
        path = f"{self._directory}/{segment_name(number, use.epoch)}"
        seed = seed_of(number, use.epoch)
        file: File = yield Job(lambda: self._disk.open(path, read_only=True))
        origin, want = HEADER_BLOCK_BYTES, _READ_BYTES
        try:
            while origin < use.end:
                data = yield read_job(file, origin, min(want, use.end - origin))
                if self._journal.no_space:
                    raise DiskFull(f"no space to copy messages out of {path}")
                at = 0
                length = 0
                while at + HEADER_BYTES <= len(data):
                    damaged = self._known.length_at(number, use.epoch, origin + at)
                    length = damaged or _LENGTH.unpack_from(data, at + 4)[0]
                    if length < HEADER_BYTES:
                        raise JournalCorrupt("a record is damaged", file=path, offset=origin + at)
                    if at + length > len(data):
                        break
                    is_message = data[at + 20] in _MESSAGES and not damaged
                    if is_message and origin + at >= use.moved and self._is_live(data, at):
                        if read_frame(data, at, origin, seed) is None:
                            raise JournalCorrupt("a record is damaged", file=path, offset=origin + at)
                        self._copy_record(origin + at, data[at : at + length])
                    at += length
                if not at and not want < length <= RECORD_BYTES_MAX:
                    raise JournalCorrupt("a record is damaged", file=path, offset=origin)
                want = _READ_BYTES if at else length
                origin += at
        finally:
            file.close()

    def _is_live(self, data: bytes, at: int) -> bool:
        """Whether any queue has the message of a record."""
        message_id, count = _MESSAGE_ID.unpack_from(data, at + HEADER_BYTES)[0], _COUNT.unpack_from(data, at + 68)[0]
        if at + MESSAGE_HEADER_BYTES + 8 * count > len(data):
            return False
        is_live = self._state.live.is_live
        if count == 1:
            return is_live(_MESSAGE_ID.unpack_from(data, at + MESSAGE_HEADER_BYTES)[0], message_id)
        queue_ids = struct.unpack_from(f"<{count}Q", data, at + MESSAGE_HEADER_BYTES)
        return any(is_live(queue_id, message_id) for queue_id in queue_ids)

    def _copy_record(self, offset: int, raw: bytes) -> None:
        """Append a message again."""
        journal, number = self._journal, self._number
        message_id: int = _MESSAGE_ID.unpack_from(raw, HEADER_BYTES)[0]
        journal.append(RecordType.MESSAGE_MOVE, encode_move(raw[HEADER_BYTES:], number, offset), flags=raw[21])
        location = pack_location(journal.number, journal.offset - len(raw), len(raw))
        journal.use.note(message_id)
        self._state.segments[number].moved = offset + 1
        self._relocations.add(number, offset, message_id, location)
        self.messages += 1
