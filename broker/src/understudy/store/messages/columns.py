"""References as columns of numbers: about 20 bytes each in memory, a few once packed.

A queue's waiting messages beyond the next few are not objects but a row each in a ``Columns``.
Ids, offsets and lengths of neighbours hardly differ, so their differences are packed,
deflated. The packed form lives no longer than the process (memory and page files); the log is
what lasts, so its byte order is the machine's and it has no version.

Not here: which rows are still waiting (``reference_block``).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain, compress, islice, repeat
from operator import add, lt, sub
from typing import Final
from zlib import compress as deflate
from zlib import decompressobj, error

from understudy.dataclass import dataclass
from understudy.kernel.log import run_columns
from understudy.message import LargeMessage, Message
from understudy.store.messages.reference import (
    LargeReference,
    Location,
    MessageReference,
    RunSlice,
    pack_location,
    reference_to,
    unpack_location,
)

_HEADER: Final = struct.Struct("<IHBQIQII")
"""Rows, which columns are there, priority, first id, first offset, segment, first length, length without size."""
_SEGMENTS: Final = 1
_EXPIRATIONS: Final = 2
_SCHEDULED: Final = 4
_COUNTS: Final = 8
_FILES: Final = 16
# columns that are left out because the header gives their value for each row:
_NEXT_IDS: Final = 32
"""Flag: each message id is one more than that of the row before, so only the first one is stored."""
_NO_GAPS: Final = 64
"""Gaps of records that follow each other: each begins at the end of the one before."""
_ONE_LENGTH: Final = 128
"""Flag: all records have the same length, which is stored once."""
_ONE_REST: Final = 256
"""The part of a record that is not the message always has the same length."""
_FIELD: Final = 0xFFFF_FFFF

#: Segment numbers from here on are page files, not the log (``pages``).
PAGE_SEGMENT: Final = 1 << 62


@dataclass(slots=True)
class Rows:
    """Messages of one queue and priority that lie in one segment, as ``kernel.scan`` finds them."""

    ids: array[int]
    offsets: array[int]
    lengths: array[int]
    sizes: array[int]
    expirations: array[int] | None
    """None if all are 0."""
    scheduled: array[int] | None
    """None if all are 0."""

    @classmethod
    def of(cls, columns: Sequence[bytes]) -> Rows:
        """Rows from the columns of a ``kernel.log.records.Group``."""
        ids, offsets, lengths, sizes, expirations, scheduled = columns
        return cls(
            array("Q", ids),
            array("I", offsets),
            array("I", lengths),
            array("I", sizes),
            array("q", expirations) if expirations else None,
            array("q", scheduled) if scheduled else None,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int, end: int) -> Rows:
        """The rows from ``first`` up to ``end``."""
        return Rows(
            self.ids[first:end],
            self.offsets[first:end],
            self.lengths[first:end],
            self.sizes[first:end],
            self.expirations[first:end] if self.expirations is not None else None,
            self.scheduled[first:end] if self.scheduled is not None else None,
        )

    def only(self, kept: Sequence[int]) -> Rows:
        """The rows for which ``kept`` is not 0."""
        return Rows(
            array("Q", compress(self.ids, kept)),
            array("I", compress(self.offsets, kept)),
            array("I", compress(self.lengths, kept)),
            array("I", compress(self.sizes, kept)),
            array("q", compress(self.expirations, kept)) if self.expirations is not None else None,
            array("q", compress(self.scheduled, kept)) if self.scheduled is not None else None,
        )


def rows_of(run: RunSlice) -> Rows:
    """Rows of messages that came together and are in the log."""
    return Rows.of((*run_columns(run.run, run.begin, run.end), b""))


def _longer(column: array[int] | None, more: array[int] | None, rows: int, count: int) -> array[int] | None:
    """Append ``count`` rows to a column of times; None if all times are 0."""
    if column is None and more is None:
        return None
    if column is None:
        column = array("q", bytes(8 * rows))
    column.extend(more if more is not None else array("q", bytes(8 * count)))
    return column


class Columns:
    """Rows of references of one priority. ``lengths`` is 0 where nothing is stored anywhere."""

    __slots__ = (
        "bodies",
        "counts",
        "expirations",
        "files",
        "ids",
        "lengths",
        "offsets",
        "priority",
        "scheduled",
        "segment",
        "segments",
        "sizes",
    )

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.ids = array("Q")
        self.offsets = array("I")
        self.lengths = array("I")
        self.sizes = array("I")
        self.segment = 0
        """Segment of every row, unless there are ``segments``."""
        self.segments: array[int] | None = None
        self.expirations: array[int] | None = None
        self.scheduled: array[int] | None = None
        self.counts: array[int] | None = None
        """Delivery counts of the rows; None while all of them are 0."""
        self.bodies: list[bytes | None] | None = None
        """Encoded messages that are still in memory."""
        self.files: dict[int, int] | None = None
        """Row to file id, for those that are large messages."""

    def __len__(self) -> int:
        return len(self.ids)

    def append(
        self,
        message_id: int,
        expiration: int,
        scheduled_ms: int,
        size_bytes: int,
        location: Location | None,
        delivery_count: int = 0,
        file_id: int | None = None,
    ) -> None:
        """Append the columns of one more message; ``file_id`` of a large message."""
        row = len(self.ids)
        place = location or 0
        segment = place >> 64
        if segment != self.segment:
            self._other_segment(segment, row)
        self.ids.append(message_id)
        self.offsets.append(place >> 32 & _FIELD)
        self.lengths.append(place & _FIELD)
        self.sizes.append(size_bytes)
        if self.segments is not None:
            self.segments.append(segment)
        if expiration or self.expirations is not None:
            if self.expirations is None:
                self.expirations = array("q", bytes(8 * row))
            self.expirations.append(expiration)
        if scheduled_ms or self.scheduled is not None:
            if self.scheduled is None:
                self.scheduled = array("q", bytes(8 * row))
            self.scheduled.append(scheduled_ms)
        if delivery_count or self.counts is not None:
            if self.counts is None:
                self.counts = array("I", bytes(4 * row))
            self.counts.append(delivery_count)
        if file_id is not None:
            if self.files is None:
                self.files = {}
            self.files[row] = file_id

    def extend(self, segment: int, rows: Rows) -> None:
        """More rows whose messages all lie in that segment."""
        row, count = len(self.ids), len(rows.ids)
        if segment != self.segment:
            self._other_segment(segment, row)
        self.ids.extend(rows.ids)
        self.offsets.extend(rows.offsets)
        self.lengths.extend(rows.lengths)
        self.sizes.extend(rows.sizes)
        if self.segments is not None:
            self.segments.extend(array("Q", [segment]) * count)
        self.expirations = _longer(self.expirations, rows.expirations, row, count)
        self.scheduled = _longer(self.scheduled, rows.scheduled, row, count)
        if self.counts is not None:
            self.counts.extend(array("I", bytes(4 * count)))

    def _other_segment(self, segment: int, row: int) -> None:
        if not row:
            self.segment = segment
        elif self.segments is None:
            self.segments = array("Q", [self.segment]) * row

    @classmethod
    def of(cls, references: Sequence[MessageReference | None], priority: int) -> Columns:
        """Rows for references that wait; None becomes a row with id 0."""
        self = cls(priority)
        if None in references:
            references = [each if each is not None else _NOTHING for each in references]
        rows: list[MessageReference] = references  # type: ignore[assignment]  # no None is left
        self.ids.extend([each.message_id for each in rows])
        self.sizes.extend([each.size_bytes for each in rows])
        places = [each.location or 0 for each in rows]
        self.offsets.extend([place >> 32 & _FIELD for place in places])
        self.lengths.extend([place & _FIELD for place in places])
        segments = [place >> 64 for place in places]
        self.segment = segments[0]
        if segments.count(segments[0]) != len(segments):
            self.segments = array("Q", segments)
        expirations = [each.expiration for each in rows]
        if any(expirations):
            self.expirations = array("q", expirations)
        counts = [each.delivery_count for each in rows]
        if any(counts):
            self.counts = array("I", counts)
        bodies = [each.message.encoded if each.message is not None else None for each in rows]
        if bodies.count(None) != len(bodies):
            self.bodies = bodies
        self.files = {row: each.file_id for row, each in enumerate(rows) if isinstance(each, LargeReference)} or None
        return self

    def location(self, row: int) -> Location | None:
        """Location of the message of a row."""
        length = self.lengths[row]
        if not length:
            return None
        return pack_location(self.segment if self.segments is None else self.segments[row], self.offsets[row], length)

    def set_location(self, row: int, location: Location) -> None:
        """Write where the message of a row is stored."""
        segment, self.offsets[row], self.lengths[row] = unpack_location(location)
        if self.segments is None and segment != self.segment:
            self.segments = array("Q", [self.segment]) * len(self.ids)
        if self.segments is not None:
            self.segments[row] = segment

    def reference(self, row: int) -> MessageReference:
        """The row as an object, without its body."""
        location = self.location(row)
        reference = reference_to(
            self.files.get(row) if self.files is not None else None,
            self.ids[row],
            self.priority,
            self.expirations[row] if self.expirations is not None else 0,
            self.scheduled[row] if self.scheduled is not None else 0,
            self.sizes[row],
            location is not None and location < PAGE_SEGMENT << 64,
            location,
        )
        if self.counts is not None:
            reference.delivery_count = self.counts[row]
        return reference

    def message(self, row: int) -> Message | None:
        """The message of a row, if it is still in memory."""
        body = self.bodies[row] if self.bodies is not None else None
        if body is None:
            return None
        large = self.files is not None and row in self.files
        return (LargeMessage if large else Message).decode(body, trusted=True)

    def references(self) -> list[MessageReference]:
        """Every row as an object."""
        lengths = self.lengths
        optional = (self.segments, self.expirations, self.scheduled, self.counts, self.files)
        if optional.count(None) != len(optional) or lengths.count(0):
            return list(map(self.reference, range(len(self.ids))))
        # in line, as a deep queue is drained through here
        base, durable, priority = self.segment << 64, self.segment < PAGE_SEGMENT, self.priority
        return [
            MessageReference(message_id, priority, 0, 0, size_bytes, durable, Location(base | offset << 32 | length))
            for message_id, offset, length, size_bytes in zip(self.ids, self.offsets, lengths, self.sizes, strict=True)
        ]

    def ordered(self) -> bool:
        """Whether ids rise from row to row."""
        if self._consecutive():
            return True
        return all(map(lt, self.ids, islice(self.ids, 1, None)))

    def _consecutive(self) -> bool:
        ids = self.ids
        count = len(ids)
        return count > 0 and ids[-1] - ids[0] == count - 1 and _is_series(ids, 1)

    def find(self, message_id: int) -> int:
        """Row of an id; -1 if it is in none."""
        try:
            return self.ids.index(message_id)
        except ValueError:
            return -1

    # --- packed -----------------------------------------------------------------------------------

    def pack(self) -> bytes:
        """Everything but the bodies, small."""
        flags, parts = self._differences()
        for flag, column in (
            (_SEGMENTS, self.segments),
            (_EXPIRATIONS, self.expirations),
            (_SCHEDULED, self.scheduled),
            (_COUNTS, self.counts),
        ):
            if column is not None:
                flags |= flag
                parts.append(column.tobytes())
        if self.files:
            flags |= _FILES
            parts += (array("Q", self.files).tobytes(), array("Q", self.files.values()).tobytes())
        rest = self.lengths[0] - self.sizes[0] if flags & _ONE_REST else 0
        header = _HEADER.pack(
            len(self.ids), flags, self.priority, self.ids[0], self.offsets[0], self.segment, self.lengths[0], rest
        )
        return deflate(b"".join((header, *parts)), 1)

    def _differences(self) -> tuple[int, list[bytes]]:
        """Flags for ids, offsets, lengths and sizes that go without saying, and the columns for those that do not.

        Neighbours in the log that are of one producer need no columns: looking whether they do takes a tenth of the
        time of making and deflating them.
        """
        ids, offsets, lengths, sizes = self.ids, self.offsets, self.lengths, self.sizes
        count, first, length = len(ids), offsets[0], lengths[0]
        flags = 0
        parts: list[bytes] = []
        if self._consecutive():
            flags |= _NEXT_IDS
        else:
            parts.append(array("q", map(sub, islice(ids, 1, None), ids)).tobytes())
        if _is_series(lengths, 0):
            flags |= _ONE_LENGTH
            if offsets[-1] - first == length * (count - 1) and _is_series(offsets, length):
                flags |= _NO_GAPS
        if not flags & _NO_GAPS:
            parts.append(array("q", map(sub, islice(offsets, 1, None), map(add, offsets, lengths))).tobytes())
        if not flags & _ONE_LENGTH:
            parts.append(lengths.tobytes())
        if flags & _ONE_LENGTH and length >= sizes[0] and _is_series(sizes, 0):
            flags |= _ONE_REST
        else:
            parts.append(array("q", map(sub, lengths, sizes)).tobytes())
        return flags, parts

    @classmethod
    def unpack(cls, data: bytes) -> Columns:
        """Decode the output of ``pack``; raises ``zlib.error`` for anything else."""
        try:
            return cls._unpack(decompressobj().decompress(data, _RAW_BYTES_MAX))
        except (struct.error, ValueError, OverflowError, TypeError) as failure:
            raise error(f"no packed references: {failure}") from failure

    @classmethod
    def _unpack(cls, raw: bytes) -> Columns:
        rows, flags, priority, first_id, first_offset, segment, length, rest = _HEADER.unpack_from(raw)
        if rows * 8 > _RAW_BYTES_MAX:
            raise ValueError(f"{rows} rows")
        self = cls(priority)
        self.segment = segment
        at = _HEADER.size

        def column(kind: str, count: int) -> array[int]:
            nonlocal at
            made = array(kind)
            end = at + count * made.itemsize
            made.frombytes(raw[at:end])
            at = end
            return made

        if flags & _NEXT_IDS:
            self.ids = array("Q", range(first_id, first_id + rows))
        else:
            self.ids = array("Q", accumulate(chain((first_id,), column("q", rows - 1))))
        gaps = None if flags & _NO_GAPS else column("q", rows - 1)
        self.lengths = array("I", (length,)) * rows if flags & _ONE_LENGTH else column("I", rows)
        if gaps is not None:
            self.offsets = array("I", accumulate(chain((first_offset,), map(add, self.lengths, gaps))))
        else:
            self.offsets = array("I", accumulate(chain((first_offset,), islice(self.lengths, rows - 1))))
        if flags & _ONE_REST:
            self.sizes = array("I", map(sub, self.lengths, repeat(rest)))
        else:
            self.sizes = array("I", map(sub, self.lengths, column("q", rows)))
        if flags & _SEGMENTS:
            self.segments = column("Q", rows)
        if flags & _EXPIRATIONS:
            self.expirations = column("q", rows)
        if flags & _SCHEDULED:
            self.scheduled = column("q", rows)
        if flags & _COUNTS:
            self.counts = column("I", rows)
        if flags & _FILES:
            count = (len(raw) - at) // 16
            self.files = dict(zip(column("Q", count), column("Q", count), strict=True))
        columns = (self.ids, self.offsets, self.lengths, self.sizes)
        optional = (self.segments, self.expirations, self.scheduled, self.counts)
        if any(len(each) != rows for each in (*columns, *(each for each in optional if each is not None))):
            raise ValueError(f"{rows} rows announced, {len(self.ids)} there")
        if at != len(raw):
            raise ValueError(f"{len(raw) - at} bytes after the last column")
        return self


def _is_series(column: array[int], step: int) -> bool:
    """Whether each number is by ``step`` greater than the one before; the last one must be, compared with the first.

    The columns are compared as one large number, which takes a tenth of the time of a loop.
    """
    count, first = len(column), column[0]
    if not step:
        return column.tobytes() == column[:1].tobytes() * count
    ones, ramp = _units(column.typecode, count)
    return int.from_bytes(column.tobytes(), sys.byteorder) == first * ones + step * ramp


@lru_cache(16)
def _units(typecode: str, count: int) -> tuple[int, int]:
    """Columns of ones and of row numbers, as one large number each."""
    columns = (array(typecode, (1,)) * count, array(typecode, range(count)))
    ones, ramp = (int.from_bytes(each.tobytes(), sys.byteorder) for each in columns)
    return ones, ramp


#: Most that the columns of one block take, whatever a packed one says of itself. Bytes.
_RAW_BYTES_MAX: Final = 1024 * 1024
_NOTHING: Final = MessageReference(0, 0, 0, 0, 0, False, None)
