"""Neighbouring references of a queue: a run as it arrived, open as columns, packed in memory, or spilled to a page.

What the rows say never changes once the block is closed, so packing and spilling write it once;
which of them are gone, were put back or counted again is kept here beside it. A caller that walks a
packed block gets its columns made anew (``open``) and lets go of them: a scan of a deep queue
costs one block of memory at a time.

A block that holds a ``Run`` is taken from its front, a slice at a time, or row by row where message groups have it so,
while no row of it is looked at as an object. The first such look, or when few rows are left, turns the run into columns
and objects, so that its buffer is not kept for a few messages.

Not here: the order of blocks (``backlog`` of a follower, ``routing.waiting``), page files as such.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from understudy.errors import JournalCorrupt
from understudy.kernel import Run
from understudy.store.columns import Columns, Rows
from understudy.store.reference import Location, MessageReference, RunSlice

#: References in a full block.
BLOCK_REFERENCES: Final = 1024
#: Changed locations kept beside packed columns before these are packed anew.
_MOVED_MAX: Final = 64
#: Rows of empty blocks that are joined into one.
_JOINED_MAX: Final = 1 << 20
#: A run of which rows were taken from the middle is kept while one in so many of them waits.
_RUN_SHARE_MIN: Final = 4

GroupsAllowed = Callable[[list[str]], bool]
"""Whether messages of these message groups may be taken."""


class BlockPages(Protocol):
    """Where blocks are spilled to (``pages``)."""

    def store(self, data: bytes) -> Location | None:
        """Keep it; None when the disk takes nothing now."""
        ...

    def read(self, location: Location) -> bytes:
        """What was stored there; raises ``JournalCorrupt`` or ``DiskFailed``."""
        ...

    def release(self, location: Location) -> None:
        """It is not needed any more."""
        ...


class Block:
    """References of one queue in columns, packed, or on a page. ``count`` of its ``size`` rows still wait."""

    __slots__ = (
        "_columns",
        "_counts",
        "_gone",
        "_moved",
        "_packed",
        "_page",
        "_pages",
        "_rest",
        "base",
        "count",
        "earliest_ms",
        "first_id",
        "last_id",
        "ordered",
        "reach",
        "returned",
        "scheduled_count",
        "size",
    )

    def __init__(self, columns: Columns, gone: bytearray | None = None) -> None:
        """Closes columns that get no further rows.

        Args:
            columns: At least one row.
            gone: 1 for every row that does not wait any more; may be longer.
        """
        self._rest: RunSlice | None = None
        """What waits of the run that it holds."""
        self._columns: Columns | None = columns
        self._gone: bytearray | None = gone
        self.size = size = len(columns)
        self.count = size if gone is None else size - gone.count(1, 0, size)
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
        self._hold()

    def _hold(self) -> None:
        self.base = 0
        """Position of the first row in the queue."""
        self.returned: dict[int, MessageReference] | None = None
        """Rows that were taken and put back: what they are now."""
        self._counts: dict[int, int] | None = None
        self._moved: dict[int, Location] | None = None
        """Rows whose messages lie elsewhere than the packed columns say."""
        self._packed: bytes | None = None
        self._page: Location | None = None
        self._pages: BlockPages | None = None

    @classmethod
    def of_run(cls, run: RunSlice) -> Block:
        """A block of the messages of a whole run, which the block owns from here on."""
        self = cls.__new__(cls)
        self._rest = run
        self._columns = self._gone = None
        self.size = self.count = run.end - run.begin
        first_id = run.run.first_id
        self.first_id = first_id + run.begin
        self.last_id = self.reach = first_id + run.end - 1
        self.ordered = True
        self.earliest_ms = run.run.earliest_ms
        # as ``_hold``, without a call for each message that comes alone
        self.base = self.scheduled_count = 0
        self.returned = self._counts = self._moved = self._packed = self._page = self._pages = None
        return self

    # --- as a run ---------------------------------------------------------------------------------

    @property
    def run(self) -> Run | None:
        """What it holds while no row was looked at on its own; None: columns."""
        return self._rest.run if self._rest is not None else None

    def take_slice(
        self, room_bytes: int, overhead_bytes: int, now_ms: int, may_take: GroupsAllowed | None = None
    ) -> RunSlice | None:
        """Take the first ones as long as there is credit before each and none has expired (``Run.fitting``).

        Args:
            room_bytes: Used up by what is taken; the last one may take more.
            overhead_bytes: Counted with the size of each.
            now_ms: Wall time.
            may_take: Asked with the message groups of those that would be taken; None: none may belong to a group.

        Returns:
            None if it holds no run, the first one has expired, or groups do not allow it.
        """
        rest = self._rest
        if rest is None or (may_take is None and rest.run.grouped):
            return None
        begin, run = rest.begin, rest.run
        end = run.fitting(begin, room_bytes, overhead_bytes, now_ms)
        if self._gone is not None:
            hole = self._gone.find(1, begin, end)
            end = hole if hole >= 0 else end
        if end == begin or (run.grouped and may_take is not None and not may_take(run.groups(begin, end))):
            return None
        self.count -= end - begin
        if not self.count:
            self._end_run()
        else:
            rest.begin = end if self._gone is None else self._gone.find(0, end)
        return RunSlice(run, begin, end, rest.priority, self.base + begin, durable=rest.durable, shared=rest.shared)

    def row_slice(self, row: int) -> RunSlice | None:
        """The first waiting row of its run at or behind one, which stays; None: there is none, or it holds no run."""
        rest = self._rest
        if rest is None:
            return None
        row = max(row, rest.begin)
        if self._gone is not None:
            row = self._gone.find(0, row, self.size)
        if not 0 <= row < self.size:
            return None
        return RunSlice(
            rest.run, row, row + 1, rest.priority, self.base + row, durable=rest.durable, shared=rest.shared
        )

    def _end_run(self) -> None:
        self._rest = self._gone = None
        self._columns = _EMPTY

    def _take_of_run(self, rest: RunSlice, row: int) -> None:
        gone = self._gone
        if gone is None:
            gone = self._gone = bytearray(self.size)
        gone[row] = 1
        self.count -= 1
        if not self.count:
            self._end_run()
            return
        if row == rest.begin:
            rest.begin = gone.find(0, row)
        if self.count * _RUN_SHARE_MIN < self.size - rest.begin:
            # the buffer of the run is not kept for the few that are left
            self._open_run()

    def _open_run(self) -> None:
        """From now on rows are looked at one by one."""
        rest = self._rest
        assert rest is not None
        references = self.entries()
        self._rest = None
        self._columns = Columns.of(references, rest.priority)
        if None in references:
            self._gone = bytearray([each is None for each in references])
        self.returned = {row: each for row, each in enumerate(references) if each is not None}

    @property
    def columns(self) -> Columns | None:
        """What is known of each row; None: it is packed or spilled."""
        if self._rest is not None:
            self._open_run()
        return self._columns

    @columns.setter
    def columns(self, columns: Columns | None) -> None:
        self._rest = None
        self._columns = columns

    @property
    def gone(self) -> bytearray | None:
        """1 for every row that does not wait any more; None: none is gone, or all are."""
        if self._rest is not None:
            self._open_run()
        return self._gone

    @gone.setter
    def gone(self, gone: bytearray | None) -> None:
        self._gone = gone

    def extend(self, segment: int, rows: Rows) -> bool:
        """More messages behind all that it holds, which lie in that segment of the log. False, and nothing done, if it
        would be too long, holds a run, or is not open.
        """
        columns, size = self._columns, self.size
        end = size + len(rows)
        if self._rest is not None or columns is None or len(columns) != size or end > BLOCK_REFERENCES:
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
        return self._rest is not None or (self.columns is not None and self.columns.bodies is not None)

    @property
    def spilled(self) -> bool:
        """Whether it is in a page file."""
        return self._page is not None

    def plain_columns(self) -> Columns | None:
        """Its columns; None unless these and ``gone`` say everything about its rows, none of which was delivered or is
        a large message. Raises as ``open``.
        """
        if self.returned or self._counts or not self.count:
            return None
        columns = self.open()
        return columns if columns.counts is None and columns.files is None else None

    def pack(self) -> None:
        """Keep it small from now on. Without effect for rows whose messages are in memory."""
        if not self.in_memory and self.columns is not None:
            self._packed = self.columns.pack()
            self.columns = None

    def spill(self, pages: BlockPages) -> bool:
        """Keep it outside of memory from now on. False if the disk took nothing; it stays packed."""
        self.pack()
        if self._packed is None:
            return False
        page = pages.store(self._packed)
        if page is None:
            return False
        self._page, self._pages, self._packed = page, pages, None
        return True

    def open(self) -> Columns:
        """Its columns; the block does not hold on to them unless it is open anyway.

        Raises:
            JournalCorrupt, DiskFailed: the page cannot be read back.
        """
        if self.columns is not None:
            return self.columns
        packed = self._packed
        if packed is None:
            assert self._page is not None
            assert self._pages is not None
            packed = self._pages.read(self._page)
        try:
            columns = Columns.unpack(packed)
        except zlib.error as error:
            raise JournalCorrupt(f"spilled references are damaged: {error}", file="page", offset=0) from error
        for row, location in (self._moved or {}).items():
            columns.set_location(row, location)
        return columns

    def drop(self) -> None:
        """Nothing in it is needed any more, but for what is ``returned``."""
        if self._page is not None and self._pages is not None:
            self._pages.release(self._page)
        self._page = self._packed = self._counts = self._moved = None
        self.columns = _EMPTY

    def stay_open(self) -> Columns:
        """Its columns, kept from now on; raises as ``open``."""
        columns = self.open()
        if self._page is not None and self._pages is not None:
            self._pages.release(self._page)
        self._page = self._packed = None
        for row, count in (self._counts or {}).items():
            set_delivery_count(columns, row, count)
        # what has moved is in what was opened
        self._counts = self._moved = None
        self.columns = columns
        return columns

    def join(self, following: Block) -> bool:
        """Make the block behind it a part of it, if nothing waits in either."""
        if self.count or following.count or self.size + following.size > _JOINED_MAX:
            return False
        self.size += following.size
        self.gone = None
        return True

    # --- rows -------------------------------------------------------------------------------------

    def find(self, columns: Columns, message_id: int) -> int:
        """Row of a waiting message; -1 if there is none."""
        row = columns.find(message_id)
        return -1 if row >= 0 and self.gone is not None and self.gone[row] else row

    def take(self, row: int) -> None:
        """The row does not wait any more."""
        if self._rest is not None:
            self._take_of_run(self._rest, row)
            return
        if self.gone is None:
            self.gone = bytearray(self.size)
        self.gone[row] = 1
        self.count -= 1
        if self.returned is not None:
            self.returned.pop(row, None)
        if self.columns is not None and self.columns.bodies is not None:
            self.columns.bodies[row] = None
        if not self.count:
            self.drop()

    def take_rows(self, first: int, end: int) -> None:
        """The rows from ``first`` up to ``end``, which all wait, do not wait any more. None of them has its message in
        memory.
        """
        if self.gone is None:
            self.gone = bytearray(self.size)
        self.gone[first:end] = b"\1" * (end - first)
        self.count -= end - first
        if self.returned is not None:
            for row in range(first, end):
                self.returned.pop(row, None)
        if not self.count:
            self.drop()

    def put_back(self, row: int, reference: MessageReference) -> None:
        """A row that was taken waits again, as it is now."""
        if self.gone is None:
            assert not self.count, "only what was taken is put back"
            self.gone = bytearray(b"\1") * self.size
        self.gone[row] = 0
        self.count += 1
        if self.returned is None:
            self.returned = {}
        self.returned[row] = reference
        if reference.expiration and not 0 < self.earliest_ms < reference.expiration:
            self.earliest_ms = reference.expiration

    def set_count(self, columns: Columns, row: int, count: int) -> None:
        """The message was delivered so often."""
        if self.columns is not None:
            set_delivery_count(columns, row, count)
            return
        if self._counts is None:
            self._counts = {}
        self._counts[row] = count

    def set_location(self, columns: Columns, row: int, location: Location) -> None:
        """The message lies there now; ``columns`` are what ``open`` gave."""
        columns.set_location(row, location)
        if self.columns is not None:
            return
        if self._moved is None:
            self._moved = {}
        self._moved[row] = location
        if len(self._moved) >= _MOVED_MAX and self._packed is not None:
            self._packed = self.open().pack()
            self._moved = None

    def reference(self, columns: Columns, row: int) -> MessageReference:
        """A waiting row as an object with its position, and its message if that is in memory."""
        if self.returned is not None and row in self.returned:
            return self.returned[row]
        reference = columns.reference(row)
        reference.position = self.base + row
        reference.message = columns.message(row)
        if self._counts is not None and row in self._counts:
            reference.delivery_count = self._counts[row]
        return reference

    def location(self, columns: Columns, row: int) -> Location | None:
        """Where the message of a waiting row is stored; None if it is in memory."""
        if self.returned is not None and row in self.returned:
            reference = self.returned[row]
            return reference.location if reference.message is None else None
        if columns.bodies is not None and columns.bodies[row] is not None:
            return None
        return columns.location(row)

    def rows_from(self, row: int) -> Iterator[int]:
        """Waiting rows at or behind one; it may be changed meanwhile."""
        while row < self.size:
            gone = self.gone
            if gone is not None and gone[row]:
                row = gone.find(0, row, self.size)
                if row < 0:
                    return
            yield row
            row += 1

    def take_overdue(self, now_ms: int) -> list[MessageReference]:
        """Take the waiting rows that expire by then."""
        if not self.count or not 0 < self.earliest_ms <= now_ms:
            return []
        columns = self.open()
        expirations = columns.expirations or ()
        back = self.returned or {}
        later = [each for each in (*expirations, *(each.expiration for each in back.values())) if each > now_ms]
        self.earliest_ms = min(later, default=0)
        rows = [
            row
            for row in self.rows_from(0)
            if 0 < (back[row].expiration if row in back else expirations[row] if expirations else 0) <= now_ms
        ]
        taken = [self.reference(columns, row) for row in rows]
        for row in rows:
            self.take(row)
        return taken

    def references(self) -> Iterator[MessageReference]:
        """Every waiting row as an object, in order."""
        if not self.count:
            return
        columns = self.open()
        for row in self.rows_from(0):
            yield self.reference(columns, row)

    def entries(self) -> list[MessageReference | None]:
        """Every row as an object with its message, if that is in memory; None for what is gone."""
        size = self.size
        if not self.count:
            return [None] * size
        rest = self._rest
        if rest is not None:
            rest.position = self.base + rest.begin
            found = [*(None for _ in range(rest.begin)), *rest]
            return found if self._gone is None else [
                None if gone else each for each, gone in zip(found, self._gone, strict=True)
            ]  # fmt: skip
        columns = self.open()
        made: list[MessageReference | None] = [None] * size if columns is _EMPTY else [*columns.references()]
        if columns.bodies is not None:
            for row in range(size):
                made[row].message = columns.message(row)  # type: ignore[union-attr]  # none is gone yet
        for row, count in (self._counts or {}).items():
            made[row].delivery_count = count  # type: ignore[union-attr]
        for row, reference in (self.returned or {}).items():
            made[row] = reference
        if self.gone is not None:
            row = self.gone.find(1, 0, size)
            while row >= 0:
                made[row] = None
                row = self.gone.find(1, row + 1, size)
        return made


def set_delivery_count(columns: Columns, row: int, count: int) -> None:
    """Write into open columns."""
    if columns.counts is None:
        columns.counts = type(columns.sizes)("I", bytes(4 * len(columns)))
    columns.counts[row] = count


_EMPTY: Final = Columns(0)
