"""Neighbouring references of a queue: a run as it arrived, open as columns, packed in memory, or spilled to a page.

What the rows say never changes once the block is closed, so packing and spilling write it once;
which of them are gone, were put back or counted again is kept here beside it. A caller that walks a
packed block gets its columns made anew (``open``) and lets go of them: a scan of a deep queue
costs one block of memory at a time.

A row that is looked at on its own is made an object, which the block forgets with ``close``. What the block keeps as
objects are only rows that were taken and put back, because delivery counts or bodies may have changed since. When few
rows of a run are left behind the first that waits, they become columns with bodies, so that the buffer of the run is
not kept for them.

Not here: blocks whose bodies leave memory or have left it (``stored_blocks``), the order of blocks (``backlog`` of a
follower, ``routing.queues.pending``), page files as such.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final, Protocol

from understudy.errors import JournalCorrupt
from understudy.message import GROUP_ID
from understudy.properties import NO_PROPERTIES
from understudy.store.messages.columns import Columns, Rows
from understudy.store.messages.reference import Location, MessageReference, Part, References, RunSlice

#: References in a full block.
BLOCK_REFERENCES: Final = 1024
#: Changed locations kept beside packed columns before these are packed anew.
_MOVED_MAX: Final = 64
#: A run of which rows were taken from the middle is kept while one in so many of them waits.
_RUN_SHARE_MIN: Final = 4

ValueIndex = Mapping[tuple[int | float | str, ...], Sequence[int]]
"""Rows of a run by the values of some properties."""

GroupsAllowed = Callable[[list[str]], bool]
"""Function that says whether messages of these message groups may be taken."""


class BlockPages(Protocol):
    """Page files for spilled blocks (``pages``)."""

    def store(self, data: bytes) -> Location | None:
        """Store the bytes in a page; None when the disk accepts no more at present."""
        ...

    def read(self, location: Location) -> bytes:
        """Read the bytes stored at a location; raises ``JournalCorrupt`` or ``DiskFailed``."""
        ...

    def release(self, location: Location) -> None:
        """Release a location that is not needed any more."""
        ...


class Block:
    """Messages of one queue: a run, columns, packed columns, or columns on a page. ``count`` of ``size`` rows wait."""

    __slots__ = (
        "_columns",
        "_counts",
        "_gone",
        "_looked",
        "_moved",
        "_opened",
        "_packed",
        "_page",
        "base",
        "count",
        "earliest_ms",
        "first_id",
        "head",
        "indexes",
        "last_id",
        "ordered",
        "reach",
        "returned",
        "run",
        "scheduled_count",
        "size",
    )

    def __init__(self, columns: Columns, gone: bytearray | None = None) -> None:
        """Closes columns that get no further rows.

        Args:
            columns: At least one row.
            gone: 1 for every row that does not wait any more; may be longer.
        """
        self.run: RunSlice | None = None
        """The run of the block's messages, which includes those that do not wait any more; None: the block has
        columns."""
        self._columns: Columns | None = columns
        self._gone: bytearray | None = gone
        """1 for every row that does not wait any more; None: these are the rows before ``head``."""
        self.size = size = len(columns)
        self.count = size if gone is None else size - gone.count(1, 0, size)
        self.head = 0 if gone is None else gone.find(0, 0, size)
        """The first row that waits."""
        ids = columns.ids
        self.ordered = columns.ordered()
        self.first_id = ids[0] if self.ordered else min(ids)
        self.last_id = ids[-1] if self.ordered else max(ids)
        self.reach = self.last_id
        """Highest id of this and all blocks before it, for a search."""
        expirations = columns.expirations
        self.earliest_ms = min(filter(None, expirations), default=0) if expirations is not None else 0
        """No row expires before; 0 when none does."""
        scheduled = columns.scheduled
        self.scheduled_count = len(scheduled) - scheduled.count(0) if scheduled is not None else 0
        self.base = 0
        """Position of the first row in the queue."""
        self.returned: dict[int, MessageReference] | None = None
        """Current references of rows that were taken and put back. None if there are none."""
        self._counts: dict[int, int] | None = None
        self._moved: dict[int, Location] | None = None
        """Rows whose messages lie elsewhere than the packed columns say."""
        self._packed: bytes | None = None
        self._page: tuple[BlockPages, Location] | None = None
        self._opened: Columns | None = None
        """Columns of a packed block, between the first ``at`` and ``close``."""
        self._looked: dict[int, MessageReference] | None = None
        """Waiting rows that a dispatch has looked at, as references; None: none was."""
        self.indexes: dict[tuple[bytes, ...], ValueIndex] | None = None
        """Rows of the run by the values of properties, by the names of these; None: no selector asked."""

    @classmethod
    def of_run(cls, run: RunSlice) -> Block:
        """A block of messages that came together, with their positions; the block owns the slice from here on."""
        self = cls.__new__(cls)
        self.run = run
        self.size = self.count = run.end - run.begin
        ids = run.ids
        self.first_id = ids[0]
        self.last_id = self.reach = ids[-1]
        self.ordered = True
        self.earliest_ms = run.run.earliest_ms
        self.base = run.position
        self.head = self.scheduled_count = 0
        self._columns = self._gone = self.returned = self._counts = self._moved = None
        self._packed = self._page = self._opened = self._looked = self.indexes = None
        return self

    @property
    def oldest_id(self) -> int:
        """Id of the first waiting row; of the first row of all, if the columns are packed or on a page."""
        row = self.row_from(0)
        if self.run is not None:
            return self.run.ids[row]
        columns = self._columns or self._opened
        return self.first_id if columns is None else columns.ids[row]

    # --- the first rows ---------------------------------------------------------------------------

    def take_slice(
        self, room_bytes: int, overhead_bytes: int, now_ms: int, may_take: GroupsAllowed | None = None
    ) -> Part:
        """Take the first ones as long as there is credit before each, but stop before one that needs a look of its own:
        it was put back, has expired, is large, has its body elsewhere, or belongs to a group.

        Args:
            room_bytes: Bytes available for the messages taken; the last one may exceed them.
            overhead_bytes: Counted with the size of each.
            now_ms: Wall time.
            may_take: Asked with the message groups of those of a run that would be taken; None: none may belong to a
                group.
        """
        slice_, row = self.run, self.head
        if self.returned is not None and row in self.returned:
            return References()
        if slice_ is None:
            return self._take_bodies(room_bytes, overhead_bytes, now_ms)
        run, first = slice_.run, slice_.begin
        if may_take is None and run.grouped:
            return References()
        end = min(run.fitting(first + row, room_bytes, overhead_bytes, now_ms) - first, self.size)
        if self._gone is not None:
            end = self._unbroken(row, end)
        if end == row or (run.grouped and may_take is not None and not may_take(run.groups(first + row, first + end))):
            return References()
        part = RunSlice(
            run, first + row, first + end, slice_.priority, self.base + row,
            durable=slice_.durable, shared=slice_.shared,
        )  # fmt: skip
        self._take_first(end)
        return part

    def part_from(self, row: int, count_max: int) -> Part:
        """A waiting row and neighbours that follow it, which stay: a slice of a run, or objects."""
        slice_, returned = self.run, self.returned or {}
        if slice_ is None:
            rows = self.rows_from(row)
        elif row in returned:
            rows = takewhile(returned.__contains__, self.rows_from(row))
        else:
            end = min(row + count_max, self.size)
            part = slice_.part(row, end if self._gone is None else self._unbroken(row, end))
            part.position = self.base + row
            return part
        return References(map(self.at, islice(rows, count_max)))

    def _unbroken(self, row: int, end: int) -> int:
        """The end of the rows from ``row`` on that all wait and were not put back."""
        assert self._gone is not None
        hole = self._gone.find(1, row, end)
        end = hole if hole >= 0 else end
        return min((each for each in self.returned or () if row <= each < end), default=end)

    def _take_bodies(self, room_bytes: int, overhead_bytes: int, now_ms: int) -> References:
        """Take columns with bodies, like ``take_slice``."""
        columns, row, end = self._columns, self.head, self.size
        taken = References()
        if columns is None or columns.bodies is None:
            return taken
        if self._gone is not None:
            end = self._unbroken(row, end)
        while row < end and room_bytes > 0:
            reference = self.at(row)
            if needs_look(reference, now_ms):
                break
            room_bytes -= reference.size_bytes + overhead_bytes
            taken.append(reference)
            row += 1
        if taken:
            columns.bodies[self.head : row] = [None] * len(taken)
            self._take_first(row)
        return taken

    def _take_first(self, end: int) -> None:
        """The rows from the first that waits up to ``end``, which all wait, do not any more."""
        head = self.head
        self.count -= end - head
        if self._gone is None:
            self.head = end
        else:
            self._gone[head:end] = b"\1" * (end - head)
            found = self._gone.find(0, end, self.size)
            self.head = found if found >= 0 else self.size

    def take_first(self) -> MessageReference:
        """Take the first reference of the block."""
        row = self.head
        if self._looked is None and self.run is None and self._counts is None:
            columns = self._columns_now()
            if columns.bodies is None:
                # all at once, as a deep queue is drained through here
                self._looked = dict(enumerate(columns.references()))
        reference = self.at(row)
        self.take(row)
        return reference

    def take_all(self) -> Part:
        """Take every waiting reference of the block."""
        run = self.run
        if run is not None and self.returned is None and self._gone is None:
            taken: Part = run.part(self.head, self.size)
        else:
            taken = References(self.references())
        self.count = 0
        self.drop()
        return taken

    def row_slice(self, row: int) -> RunSlice | None:
        """A waiting row of a run, which stays; None if it was put back, or this is no run."""
        if self.run is None or (self.returned is not None and row in self.returned):
            return None
        return self.run.part(row, row + 1)

    def _thin_out(self) -> None:
        """Few of a run are left behind the first: its buffer is not kept for them."""
        run = self.run
        assert run is not None
        waiting = dict(zip(self.rows_from(0), self.references(), strict=True))
        self._columns = Columns.of([waiting.get(row) for row in range(self.size)], run.priority)
        self._gone = self.gone
        self.run = self._looked = self.indexes = None

    @property
    def gone(self) -> bytearray | None:
        """1 for every row that does not wait any more; None: all wait."""
        if self._gone is None and self.head:
            self._gone = bytearray(b"\1") * self.head + bytes(self.size - self.head)
        return self._gone

    def extend(self, segment: int, rows: Rows) -> bool:
        """Append messages, which lie in that segment of the log. False, and nothing is changed, if it
        would be too long, holds a run, or is not open.
        """
        columns, size = self._columns, self.size
        end = size + len(rows)
        if columns is None or len(columns) != size or end > BLOCK_REFERENCES:
            return False
        if columns.bodies is not None:
            return False
        columns.extend(segment, rows)
        gone = self._gone
        if gone is not None and len(gone) < end:
            gone.extend(bytes(end - len(gone)))
        self.size = end
        self.count += len(rows)
        self.ordered = self.ordered and rows.ids[0] > self.last_id
        self.last_id = max(self.last_id, rows.ids[-1])
        self.reach = max(self.reach, self.last_id)
        earliest_ms = min(filter(None, rows.expirations), default=0) if rows.expirations is not None else 0
        if earliest_ms and not 0 < self.earliest_ms < earliest_ms:
            self.earliest_ms = earliest_ms
        return True

    # --- memory -----------------------------------------------------------------------------------

    @property
    def in_memory(self) -> bool:
        """Whether any row has its message in memory, so that it must stay open."""
        return self.run is not None or (self._columns is not None and self._columns.bodies is not None)

    @property
    def spilled(self) -> bool:
        """Whether the block is in a page file."""
        return self._page is not None

    def plain_columns(self) -> Columns | None:
        """The columns of the block; None unless these and ``gone`` say everything about its rows, none of which was
        delivered or is a large message. Raises as ``open``.
        """
        if self.returned or self._counts or not self.count:
            return None
        columns = self.open()
        return columns if columns.counts is None and columns.files is None else None

    def pack(self) -> None:
        """Keep it small from now on. Without effect for rows whose messages are in memory."""
        if not self.in_memory and self._columns is not None:
            self._packed = self._columns.pack()
            self._columns = None

    def spill(self, pages: BlockPages) -> bool:
        """Keep it outside of memory from now on. False if the disk took nothing; it stays packed."""
        self.pack()
        if self._packed is None:
            return False
        page = pages.store(self._packed)
        if page is None:
            return False
        self._page, self._packed = (pages, page), None
        return True

    def open(self) -> Columns:
        """The columns of the block; the block does not hold on to them unless it is open anyway.

        Raises:
            JournalCorrupt, DiskFailed: the page cannot be read back.
        """
        if self._columns is not None:
            return self._columns
        packed = self._packed
        if packed is None:
            assert self._page is not None
            pages, location = self._page
            packed = pages.read(location)
        try:
            columns = Columns.unpack(packed)
        except zlib.error as error:
            raise JournalCorrupt(f"spilled references are damaged: {error}", file="page", offset=0) from error
        for row, location in (self._moved or {}).items():
            columns.set_location(row, location)
        return columns

    def close(self) -> None:
        """Drop the data cached for access to its rows."""
        self._opened = self._looked = None

    def drop(self) -> None:
        """Delete the page of the block, whose references are all gone."""
        self._release_page()
        self._packed = self._counts = self._moved = self.run = self._opened = self._looked = self.indexes = None

    def _release_page(self) -> None:
        if self._page is not None:
            pages, location = self._page
            self._page = None
            pages.release(location)

    def stay_open(self) -> None:
        """Keep the columns of the block in memory until it is spilled again; raises the same errors as ``open``."""
        if self.run is not None or self._columns is not None:
            return
        columns = self.open()
        self._release_page()
        self._packed = None
        for row, count in (self._counts or {}).items():
            set_delivery_count(columns, row, count)
        # the opened columns have the moved rows
        self._counts = self._moved = None
        self._columns = columns

    def _columns_now(self) -> Columns:
        if self._columns is not None:
            return self._columns
        if self._opened is None:
            self._opened = self.open()
        return self._opened

    # --- rows -------------------------------------------------------------------------------------

    def row_from(self, row: int) -> int:
        """The first waiting row at or after one; -1 if there is none."""
        row = max(row, self.head)
        if row >= self.size:
            return -1
        return self._gone.find(0, row, self.size) if self._gone is not None else row

    def rows_from(self, row: int) -> Iterator[int]:
        """Waiting rows at or after one; it may be changed meanwhile."""
        while (row := self.row_from(row)) >= 0:
            yield row
            row += 1

    def waits(self, row: int) -> bool:
        """Whether a row waits."""
        return row >= self.head and not (self._gone is not None and self._gone[row])

    def take(self, row: int) -> None:
        """A row that waits does not any more."""
        if self.returned is not None and self.returned.pop(row, None) is not None and not self.returned:
            self.returned = None
        if self._looked is not None:
            self._looked.pop(row, None)
        if self._columns is not None and self._columns.bodies is not None:
            self._columns.bodies[row] = None
        self.take_rows(row, row + 1)

    def take_rows(self, first: int, end: int) -> None:
        """The rows from ``first`` up to ``end``, which all wait as they came, do not wait any more."""
        if self._columns is not None and self._columns.bodies is not None:
            # a run that was thinned out meanwhile
            self._columns.bodies[first:end] = [None] * (end - first)
        if first == self.head:
            self._take_first(end)
        else:
            if self._gone is None:
                self._gone = self.gone or bytearray(self.size)
            self._gone[first:end] = b"\1" * (end - first)
            self.count -= end - first
        if not self.count:
            self.drop()
        elif self.run is not None and self._gone is not None and self.count * _RUN_SHARE_MIN < self.size - self.head:
            self._thin_out()

    def requeue(self, row: int, reference: MessageReference) -> None:
        """A row that was taken waits again, as it is now."""
        if self._gone is None:
            self._gone = self.gone or bytearray(self.size)
        self._gone[row] = 0
        self.count += 1
        self.head = min(self.head, row)
        if self.returned is None:
            self.returned = {}
        self.returned[row] = reference
        if reference.expiration and not 0 < self.earliest_ms < reference.expiration:
            self.earliest_ms = reference.expiration

    def set_count(self, columns: Columns, row: int, count: int) -> None:
        """Set the delivery count of a message."""
        if self._columns is not None:
            set_delivery_count(columns, row, count)
            return
        if self._counts is None:
            self._counts = {}
        self._counts[row] = count

    def set_location(self, columns: Columns, row: int, location: Location) -> None:
        """Record that a message of the block has moved in the log; ``columns`` are the result of ``open``."""
        columns.set_location(row, location)
        if self._columns is not None:
            return
        if self._moved is None:
            self._moved = {}
        self._moved[row] = location
        if len(self._moved) >= _MOVED_MAX and self._packed is not None:
            self._packed = self.open().pack()
            self._moved = None

    def reference(self, columns: Columns, row: int) -> MessageReference:
        """A waiting row of columns as an object with its position, and its message if that is in memory."""
        if self.returned is not None and row in self.returned:
            return self.returned[row]
        reference = columns.reference(row)
        reference.position = self.base + row
        reference.message = columns.message(row)
        if self._counts is not None and row in self._counts:
            reference.delivery_count = self._counts[row]
        return reference

    def at(self, row: int) -> MessageReference:
        """A waiting row as an object with its position, and its message if that is in memory; the same object until
        ``close``.
        """
        if self.returned is not None and row in self.returned:
            return self.returned[row]
        if self._looked is None:
            self._looked = {}
        found = self._looked.get(row)
        if found is None:
            run = self.run
            found = run.reference(run.begin + row) if run is not None else self.reference(self._columns_now(), row)
            self._looked[row] = found
        found.position = self.base + row
        return found

    def location(self, row: int) -> Location | None:
        """Location of the message of a waiting row; None if the message is in memory."""
        if self.returned is not None and row in self.returned:
            reference = self.returned[row]
            return reference.location if reference.message is None else None
        if self.run is not None:
            return None
        columns = self._columns_now()
        if columns.bodies is not None and columns.bodies[row] is not None:
            return None
        return columns.location(row)

    def locations_from(self, row: int) -> Iterator[Location | None]:
        """``location`` of each waiting row at or after one."""
        return map(self.location, self.rows_from(row))

    def take_overdue(self, now_ms: int, limit: int) -> list[MessageReference]:
        """Take the first waiting rows that expire by then, at most ``limit``."""
        if not self.count or not 0 < self.earliest_ms <= now_ms:
            return []
        run, returned = self.run, self.returned or {}
        columns = self._columns_now() if run is None else None
        expirations = columns.expirations if columns is not None else None
        due: list[int] = []
        self.earliest_ms = 0
        for row in self.rows_from(0):
            if row in returned:
                time_ms = returned[row].expiration
            elif run is not None:
                time_ms = run.run.expiration(run.begin + row)
            else:
                time_ms = expirations[row] if expirations is not None else 0
            if 0 < time_ms <= now_ms:
                if len(due) == limit:
                    self.earliest_ms = time_ms
                    break
                due.append(row)
            elif time_ms and not 0 < self.earliest_ms < time_ms:
                self.earliest_ms = time_ms
        taken = [self.at(row) for row in due]
        for row in due:
            self.take(row)
        return taken

    def references(self) -> Iterator[MessageReference]:
        """Every waiting row as an object, in order, made for the caller."""
        run, returned = self.run, self.returned or {}
        if run is not None:
            for row in self.rows_from(0):
                yield returned[row] if row in returned else run.reference(run.begin + row)
        elif self.count:
            columns = self.open()
            for row in self.rows_from(0):
                yield self.reference(columns, row)


def set_delivery_count(columns: Columns, row: int, count: int) -> None:
    """Write into open columns."""
    if columns.counts is None:
        columns.counts = type(columns.sizes)("I", bytes(4 * len(columns)))
    columns.counts[row] = count


def needs_look(reference: MessageReference, now_ms: int) -> bool:
    """Whether a message cannot be delivered as it is: it has expired by then, is large, belongs to a group or has its
    body elsewhere.
    """
    message = reference.message
    if message is None or message.is_large or 0 < reference.expiration <= now_ms:
        return True
    properties = message.properties
    return properties is not NO_PROPERTIES and GROUP_ID in properties
