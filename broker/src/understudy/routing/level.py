"""The references of one priority that wait in a queue, in order.

How: per priority a list that only grows at its end. The **position** of a reference is its index in the endless list of
everything that ever waited there; ``base`` is the position of ``entries[0]``. A taken reference leaves ``None`` behind
and remembers its position, so putting it back restores the order exactly; taken entries at the front are cut off now
and then. A reference put back after its place was cut off goes to ``returned``, sorted by position, which comes before
``entries``.

A level has up to three parts: ``entries`` at the front, ``blocks`` behind them (``reference_block``: messages that came
together, or, of a deep queue, about 20 bytes a reference, a few when packed, next to nothing when spilled to a page
file), and the newest ones, objects again, in ``inlet``. When ``entries`` is used up the first block is handed out in
slices if it can be, else it becomes the new ``entries``. Without blocks ``inlet`` is the same list as ``entries``.

Invariants: every position in ``returned`` is below ``base``; ``entries[:head]`` is all None; ``count`` is the number of
references in all parts; positions of the parts follow each other without a gap.

Not here: priorities (``waiting``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from understudy.message import GROUP_ID
from understudy.properties import NO_PROPERTIES
from understudy.store.columns import Columns, Rows
from understudy.store.reference import Location, MessageReference, RunSlice
from understudy.store.reference_block import BLOCK_REFERENCES, Block, BlockPages, GroupsAllowed

#: Taken entries at the front before they are cut off, if they are more than half of the list.
_CUT_MIN = 512
#: References in one block.
_BLOCK = BLOCK_REFERENCES
#: Objects in ``inlet`` before they are turned into blocks.
_INLET_MAX = 4 * BLOCK_REFERENCES
#: Blocks of a level that stay open, next to be handed out ...
_OPEN_BLOCKS = 2
#: ... and in memory; further ones are spilled.
_MEMORY_BLOCKS = 8

_position = attrgetter("position")
_base = attrgetter("base")


class Level:
    """The waiting references of one priority."""

    __slots__ = (
        "_opened",
        "_opened_columns",
        "_pages",
        "_tail_base",
        "base",
        "blocks",
        "count",
        "entries",
        "head",
        "inlet",
        "keep_open",
        "priority",
        "returned",
    )

    def __init__(self, priority: int, pages: BlockPages | None = None, *, keep_open: bool = False) -> None:
        self.priority = priority
        self.entries: list[MessageReference | None] = []
        self.base = 0
        self.head = 0
        self.count = 0
        self.returned: list[MessageReference] = []
        """Latest position first, so that the next one is popped from the end."""
        self.blocks: list[Block] = []
        self.inlet = self.entries
        """What ``append`` adds to."""
        self._tail_base = 0
        """Position of ``inlet[0]`` while there are blocks."""
        self._pages = pages
        self.keep_open = keep_open
        """Whether blocks are looked into all the time, so that packing them is of no use."""
        self._opened: Block | None = None
        """The packed block that was looked into last, and its columns."""
        self._opened_columns: Columns | None = None

    @property
    def end(self) -> int:
        """Position of the next reference that is appended."""
        return self._tail_base + len(self.inlet) if self.blocks else self.base + len(self.entries)

    @property
    def spilled_count(self) -> int:
        """References in page files."""
        return sum(block.count for block in self.blocks if block.spilled)

    # --- the front --------------------------------------------------------------------------------

    def pop(self) -> MessageReference | None:
        """Take the first one; None if there is none."""
        returned = self.returned
        if returned:
            self.count -= 1
            return returned.pop()
        entries = self.entries
        head = self.head
        size = len(entries)
        while head < size:
            reference = entries[head]
            if reference is not None:
                entries[head] = None
                reference.position = self.base + head
                self.head = head + 1
                self.count -= 1
                if head >= _CUT_MIN and head + head > size:
                    self.cut()
                return reference
            head += 1
        self.head = head
        if self.blocks:
            self._refill()
            return self.pop()
        return None

    @property
    def next_grouped(self) -> bool:
        """Whether the next ones are a run in which messages belong to groups."""
        run = self.blocks[0].run if self.blocks and not self.returned and self.head == len(self.entries) else None
        return run is not None and run.grouped

    def pop_run(
        self, room_bytes: int, overhead_bytes: int, now_ms: int, may_take: GroupsAllowed | None = None
    ) -> Sequence[MessageReference]:
        """Take the first ones as long as there is room before each of them, but stop before whatever needs a look of
        its own: one that was put back, has expired, is large, belongs to a group, or has its body elsewhere.

        Args:
            room_bytes: Used up by what is taken; the last one may take more.
            overhead_bytes: Counted with the size of each.
            now_ms: Wall time.
            may_take: Whether messages of a run may be taken that belong to these groups; None: they may not.
        """
        run: list[MessageReference] = []
        if self.returned:
            return run
        if self.blocks and self.head == len(self.entries):
            part = self._pop_slice(room_bytes, overhead_bytes, now_ms, may_take)
            if part is not None:
                return part
        entries, position = self.entries, self.base + self.head
        for reference in islice(entries, self.head, None):
            if room_bytes <= 0 or reference is None or (reference.expiration and reference.expiration <= now_ms):
                break
            message = reference.message
            if message is None or message.is_large:
                break
            properties = message.properties
            if properties is not NO_PROPERTIES and GROUP_ID in properties:
                break
            reference.position = position
            position += 1
            room_bytes -= reference.size_bytes + overhead_bytes
            run.append(reference)
        count = len(run)
        head = self.head + count
        entries[self.head : head] = [None] * count
        self.head = head
        self.count -= count
        if head > _CUT_MIN and head + head > len(entries):
            self.cut()
        return run

    def _pop_slice(
        self, room_bytes: int, overhead_bytes: int, now_ms: int, may_take: GroupsAllowed | None
    ) -> RunSlice | None:
        block = self.blocks[0]
        part = block.take_slice(room_bytes, overhead_bytes, now_ms, may_take)
        if part is not None:
            self.count -= part.end - part.begin
            if not block.count:
                self._drop_first()
        return part

    def _drop_first(self) -> None:
        """``entries`` and the first blocks are used up."""
        while self.blocks and not self.blocks[0].count:
            del self.blocks[0]
        self.base = self.blocks[0].base if self.blocks else self._tail_base
        self.head = 0
        self.entries = [] if self.blocks else self.inlet
        self._opened = self._opened_columns = None

    def cut(self) -> None:
        """Drop the taken entries at the front."""
        head = self.head
        del self.entries[:head]
        self.base += head
        self.head = 0

    def _refill(self) -> None:
        """``entries`` is used up: the next block that has anything takes its place."""
        self._drop_first()
        if self.blocks:
            block = self.blocks[0]
            self.entries = block.entries()
            block.drop()
            del self.blocks[0]
            if not self.blocks:
                self.entries += self.inlet
                self.inlet = self.entries

    def take_front(self) -> list[MessageReference]:
        """Take all that is before the next block."""
        taken = [*reversed(self.returned), *(each for each in self.entries if each is not None)]
        self.returned.clear()
        # the base moves past all of them, so that a reference that was taken can still be put back at its position
        self.base += len(self.entries)
        self.entries.clear()
        self.head = 0
        self.count -= len(taken)
        if self.blocks:
            self._refill()
        return taken

    # --- the end ----------------------------------------------------------------------------------

    def extend(self, references: Sequence[MessageReference]) -> None:
        """Append references as objects."""
        inlet = self.inlet
        before = len(inlet)
        inlet += references
        self.count += len(inlet) - before
        if len(inlet) > _INLET_MAX:
            self.compact()

    def compact(self) -> None:
        """``inlet`` is long: turn the oldest of it into blocks, but for the front of the queue."""
        inlet = self.inlet
        if inlet is self.entries:
            self.cut()
            if 2 * len(inlet) < _INLET_MAX:
                return
            self._tail_base = self.base + _BLOCK
            inlet = self.inlet = self.entries[_BLOCK:]
            del self.entries[_BLOCK:]
        closed = 0
        while len(inlet) - closed >= 2 * _BLOCK or not self.blocks:
            self._close_block(inlet[closed : closed + _BLOCK])
            closed += _BLOCK
        del inlet[:closed]

    def _close_block(self, references: list[MessageReference | None]) -> None:
        gone = None
        if None in references:
            gone = bytearray([each is None for each in references])
        block = Block(Columns.of(references, self.priority), gone)
        block.base = self._tail_base
        self._tail_base += block.size
        self.blocks.append(block)
        self._put_away(block)
        if not block.count:
            block.drop()
            self._join_empty(block)

    def _put_away(self, block: Block) -> None:
        """Nothing is added to the last block any more: of a deep queue it is packed or spilled."""
        if not block.count or self.keep_open or block.in_memory or len(self.blocks) <= _OPEN_BLOCKS:
            return
        if self._pages is None or len(self.blocks) <= _MEMORY_BLOCKS or not block.spill(self._pages):
            block.pack()

    def append_rows(self, segment: int, rows: Rows) -> None:
        """Append messages of which the log alone has the bodies; neighbours become one block."""
        tail = self.blocks[-1] if self.blocks and not self.inlet else None
        if tail is not None:
            if tail.extend(segment, rows):
                self._tail_base += len(rows)
                self.count += len(rows)
                return
            self._put_away(tail)
        columns = Columns(self.priority)
        columns.extend(segment, rows)
        self.append_blocks([Block(columns)])

    def append_blocks(self, blocks: list[Block]) -> None:
        """Append closed blocks of which nothing is gone, in order."""
        if not self.blocks:
            self._tail_base = self.base + len(self.entries)
            self.inlet = []
        elif self.inlet:
            self._close_block(self.inlet[:])
            self.inlet.clear()
        for block in blocks:
            block.base = self._tail_base
            self._tail_base += block.size
            self.count += block.size
        self.blocks += blocks

    def _join_empty(self, block: Block) -> None:
        """Nothing in a block waits: as one with its empty neighbours it costs nothing. Where the
        middle of a queue is used up for ever (last values) there would be no end of them.
        """
        index = self.blocks.index(block)
        for left in (index, index - 1):
            if 0 <= left < len(self.blocks) - 1 and self.blocks[left].join(self.blocks[left + 1]):
                del self.blocks[left + 1]
                self._opened = self._opened_columns = None

    def adopt(self, blocks: list[Block]) -> None:
        """Take over blocks, in order, into an empty level."""
        assert not self.count
        self._tail_base = self.base = self.end
        self.head = 0
        self.entries = []
        for block in blocks:
            block.base = self._tail_base
            self._tail_base += block.size
            self.count += block.count
        self.blocks = blocks
        self.inlet = [] if blocks else self.entries

    # --- anywhere ---------------------------------------------------------------------------------

    def put_back(self, references: Iterable[MessageReference]) -> None:
        """Back to their positions, which ``pop`` or ``next_from`` set."""
        early = False
        for reference in references:
            index = reference.position - self.base
            if index < 0:
                self.returned.append(reference)
                early = True
            elif index < len(self.entries):
                self.entries[index] = reference
                self.head = min(self.head, index)
            else:
                block = self._block_at(reference.position)
                if block is not None:
                    block.put_back(reference.position - block.base, reference)
                else:
                    self.inlet[reference.position - self._tail_base] = reference
            self.count += 1
        if early:
            self.returned.sort(key=_position, reverse=True)

    def _block_at(self, position: int) -> Block | None:
        """The block of a position behind ``entries``; None if it lies in ``inlet``."""
        if position >= self._tail_base:
            return None
        opened = self._opened
        if opened is not None and 0 <= position - opened.base < opened.size:
            return opened
        return self.blocks[bisect_right(self.blocks, position, key=_base) - 1]

    def _columns(self, block: Block) -> Columns:
        if block.columns is not None:
            return block.columns
        if self.keep_open:
            return block.stay_open()
        if block is not self._opened or self._opened_columns is None:
            self._opened, self._opened_columns = block, block.open()
        return self._opened_columns

    def next_row(self, position: int) -> RunSlice | None:
        """``next_from`` as a slice of a run; None: the next one is no message of a run, or there is none."""
        if position < self.base + len(self.entries) and (self.returned or self.head < len(self.entries)):
            return None
        first = max(bisect_right(self.blocks, position, key=_base) - 1, 0)
        for block in islice(self.blocks, first, None):
            if block.count:
                part = block.row_slice(position - block.base)
                if part is not None or block.run is None:
                    return part
        return None

    def next_from(self, position: int) -> MessageReference | None:
        """The first one at or behind a position, with its position set; it stays."""
        if position < self.base:
            for reference in reversed(self.returned):
                if reference.position >= position:
                    return reference
        entries = self.entries
        for index in range(max(position - self.base, self.head), len(entries)):
            found = entries[index]
            if found is not None:
                found.position = self.base + index
                return found
        if not self.blocks:
            return None
        first = max(bisect_right(self.blocks, position, key=_base) - 1, 0)
        for block in islice(self.blocks, first, None):
            if not block.count:
                continue
            for row in block.rows_from(max(position - block.base, 0)):
                return block.reference(self._columns(block), row)
        for index in range(max(position - self._tail_base, 0), len(self.inlet)):
            found = self.inlet[index]
            if found is not None:
                found.position = self._tail_base + index
                return found
        return None

    def remove(self, reference: MessageReference | RunSlice) -> None:
        """Take the one that ``next_from`` or ``next_row`` just gave."""
        index = reference.position - self.base
        self.count -= 1
        if isinstance(reference, MessageReference) and index < 0:
            self.returned.remove(reference)
        elif index < len(self.entries):
            self.entries[index] = None
            if index == self.head:
                self.head = index + 1
                if index >= _CUT_MIN and index + index > len(self.entries):
                    self.cut()
        else:
            block = self._block_at(reference.position)
            if block is not None:
                block.take(reference.position - block.base)
                if not block.count and block is self.blocks[0] and self.head == len(self.entries):
                    self._drop_first()
                elif not block.count:
                    self._join_empty(block)
            else:
                self.inlet[reference.position - self._tail_base] = None

    def locations_behind(self, position: int) -> Iterator[Location | None]:
        """Where the messages behind a position are stored, in order, as far as they are cheap to
        list; None for one that is in memory.
        """
        index = position - self.base
        if index < 0:
            return
        if index < len(self.entries):
            for reference in islice(self.entries, index + 1, None):
                if reference is not None:
                    yield reference.location if reference.message is None else None
            return
        block = self._block_at(position)
        if block is not None and block.count:
            columns = self._columns(block)
            for row in block.rows_from(position - block.base + 1):
                yield block.location(columns, row)
        elif block is None:
            for reference in islice(self.inlet, position - self._tail_base + 1, None):
                if reference is not None:
                    yield reference.location if reference.message is None else None

    def take_overdue(self, now_ms: int, limit: int) -> list[MessageReference]:
        """Take about ``limit`` of those that expire by then, in order; they can be put back."""

        def overdue(reference: MessageReference | None) -> bool:
            return reference is not None and 0 < reference.expiration <= now_ms

        taken = [reference for reference in self.returned if overdue(reference)]
        self.returned = [reference for reference in self.returned if not overdue(reference)]
        parts = ((self.base, self.entries), (self._tail_base, self.inlet))
        for base, part in parts if self.blocks else parts[:1]:
            for index, reference in enumerate(part):
                if reference is not None and overdue(reference):
                    reference.position = base + index
                    taken.append(reference)
                    part[index] = None
        for block in self.blocks:
            if len(taken) >= limit:
                break
            taken += block.take_overdue(now_ms)
        self.count -= len(taken)
        taken.sort(key=_position)
        return taken

    def __iter__(self) -> Iterator[MessageReference]:
        yield from reversed(self.returned)
        for reference in self.entries:
            if reference is not None:
                yield reference
        if self.blocks:
            for block in self.blocks:
                yield from block.references()
            for reference in self.inlet:
                if reference is not None:
                    yield reference
