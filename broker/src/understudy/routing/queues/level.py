"""The messages of one priority that wait in a queue, in order.

How: the **position** of a message is its number in the endless list of everything that ever waited there. A level is a
sequence of blocks, each with the messages of a range of positions: runs, or, of a deep queue, columns of about 20 bytes
a message, a few when packed, next to nothing when spilled to a page file (``reference_block``); and messages that are
objects (``singles``). A message that is taken remembers its position, so putting it back restores the order exactly:
into the block of its range, or, where that is used up, as a single.

Short runs that arrive one after the other are collected in ``_loose`` and joined to one run when they are many or the
next message is asked for. A run that was made so is joined with the one before it while that is at most twice as long,
so that a deep queue has few blocks and each message is copied a few times at most.

Invariants: the ranges of the blocks do not overlap and rise; every block has a message; the positions of loose messages
follow all of them; ``count`` is the number of all messages.

Not here: priorities (``queues.pending``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from understudy.kernel.log import join_runs
from understudy.routing.queues.singles import Singles
from understudy.routing.queues.value_index import next_equal
from understudy.selector.equalities import Equalities
from understudy.selector.work import WORK
from understudy.store.messages.columns import Columns, Rows, rows_of
from understudy.store.messages.reference import Location, MessageReference, Part, References, RunSlice, StoredRun
from understudy.store.messages.reference_block import BLOCK_REFERENCES, Block, BlockPages, GroupsAllowed
from understudy.store.messages.stored_blocks import StoredRows, joined, let_go, stored_rows, take_stored

#: Messages in a block that is made of single messages or of short runs ...
_BLOCK = BLOCK_REFERENCES
#: ... and most of their bytes: the buffer is kept until the last of them has left.
_BLOCK_BYTES = 64 * 1024
#: A run of fewer messages is short.
_SHORT = 16
#: Short runs that are joined when so many have arrived.
_LOOSE_MAX = 64
#: Neighbouring blocks that are still short, because their runs cannot be joined, before they become columns.
_SHORT_BLOCKS = 64
#: Blocks at the end of a level that hold single messages as objects.
_OBJECT_BLOCKS = 4
#: Blocks of a level that stay open, next to be handed out ...
_OPEN_BLOCKS = 2
#: ... and in memory; further ones are spilled.
_MEMORY_BLOCKS = 8

#: Blocks without bodies that can leave memory, which one search for some passes over.
_LOOKS_MAX = 256

#: Steps of one search for values (``selector.work``), after which it ends at the next message.
_INDEX_STEPS_MAX = 1_024

_position = attrgetter("position")
_base = attrgetter("base")


class Level:
    """The waiting messages of one priority."""

    __slots__ = ("_bare", "_looked", "_loose", "_pages", "blocks", "count", "end", "keep_open", "priority")

    def __init__(self, priority: int, pages: BlockPages | None = None, *, keep_open: bool = False) -> None:
        self.priority = priority
        self.count = 0
        self.end = 0
        """Position of the next message that is appended."""
        self.blocks: list[Block | Singles] = []
        self._loose: list[RunSlice] = []
        """Short runs that are in no block yet."""
        self._pages = pages
        self.keep_open = keep_open
        """Whether blocks are looked into all the time, so that packing them is of no use."""
        self._bare = (0, 0)
        """Positions, the last one excluded, between which ``let_go_last`` has found that no further body can leave."""
        self._looked: Block | Singles | None = None
        """The block that was looked into last; its objects are dropped with the next one, unless it is the
        first block."""

    @property
    def spilled_count(self) -> int:
        """Messages in page files."""
        return sum(block.count for block in self.blocks if block.spilled)

    @property
    def oldest_id(self) -> int | None:
        """Id of the first message, or of an earlier one of its block if that is packed; None: nothing waits."""
        if self.blocks:
            return self.blocks[0].oldest_id
        return self._loose[0].ids[0] if self._loose else None

    # --- the front --------------------------------------------------------------------------------

    def _first(self) -> Block | Singles | None:
        if not self.blocks:
            if not self._loose:
                return None
            self._gather()
        return self.blocks[0]

    def pop(self) -> MessageReference | None:
        """Take the first message of the level; None if it has none."""
        block = self._first()
        if block is None:
            return None
        reference = block.take_first()
        self.count -= 1
        if not block.count:
            self._remove_block(0)
        return reference

    @property
    def next_grouped(self) -> bool:
        """Whether the next ones are a run in which messages belong to groups."""
        block = self._first()
        return block is not None and block.run is not None and block.run.run.grouped

    def take_plain(
        self, room_bytes: int, overhead_bytes: int, now_ms: int, may_take: GroupsAllowed | None = None
    ) -> Part:
        """Take the first ones as long as ``room_bytes`` are left before each of them, but stop before a message that
        needs a look of its own (``Block.take_slice``).
        """
        block = self._first()
        if block is None:
            return References()
        taken = block.take_slice(room_bytes, overhead_bytes, now_ms, may_take)
        self.count -= len(taken)
        if not block.count:
            self._remove_block(0)
        return taken

    def stored(self) -> StoredRows | None:
        """The first ones, if the log alone has their bodies (``stored_rows``)."""
        block = self._first()
        return stored_rows(block) if isinstance(block, Block) else None

    def take_stored(
        self,
        found: StoredRun,
        room_bytes: int,
        overhead_bytes: int,
        now_ms: int,
        may_take: GroupsAllowed | None = None,
    ) -> Part:
        """Take the first of those that ``stored`` just gave (``stored_blocks.take_stored``)."""
        block = self.blocks[0]
        assert isinstance(block, Block)
        taken = take_stored(block, found, room_bytes, overhead_bytes, now_ms, may_take)
        self.count -= len(taken)
        if not block.count:
            self._remove_block(0)
        return taken

    def let_go_last(self, wanted_bytes: int, alone: Callable[[int, int], bool]) -> tuple[int, int]:
        """Drop bodies of waiting messages that the log has, whole blocks of them, those that are delivered last first.
        The messages of the first block keep theirs.

        Args:
            wanted_bytes: When so many bytes of bodies have left memory, the rest stays.
            alone: Given a first and a last message id, whether no other queue holds one of the messages between them.

        Returns:
            How many bodies left memory, and their bytes.
        """
        if self._loose:
            self._gather()
        blocks, count, size_bytes = self.blocks, 0, 0
        bare_begin, bare_end = self._bare
        end = self.end
        bare: list[int] = []
        index = len(blocks) - 1
        looks = _LOOKS_MAX
        while index > 0 and size_bytes < wanted_bytes and looks > 0:
            block = blocks[index]
            if bare_begin <= block.base < bare_end:
                index = bisect_left(blocks, bare_begin, key=_base) - 1
                continue
            came_together = block.run is not None
            gone = gone_bytes = 0
            if isinstance(block, Block) and block is not self._looked and alone(block.first_id, block.last_id):
                gone, gone_bytes = let_go(block)
                count, size_bytes = count + gone, size_bytes + gone_bytes
            if gone and came_together:
                bare.append(index)
            elif gone:
                self._put_away(block)
            elif isinstance(block, Singles) or block.in_memory:
                end = block.base
            looks -= not gone
            index -= 1
        begin = blocks[index + 1].base if index + 1 < len(blocks) else end
        if end - begin > bare_end - bare_begin:
            self._bare = begin, end
        self._join_bare(bare)
        return count, size_bytes

    def _join_bare(self, bare: list[int]) -> None:
        """Join neighbours among the blocks of these numbers, which fall, and finish them. All were runs, and have just
        lost their bodies.
        """
        blocks = self.blocks
        while bare:
            first, end = bare[0], bare[0] + 1
            size = 0
            while bare and bare[0] == first and (not size or size + blocks[first].size <= _BLOCK):
                size += blocks[first].size
                del bare[0]
                first -= 1
            first += 1
            made = joined([block for block in blocks[first:end] if isinstance(block, Block)])
            blocks[first:end] = [made]
            self._put_away(made)

    def take_front(self) -> Part:
        """Take the messages of the first block."""
        block = self._first()
        if block is None:
            return References()
        taken = block.take_all()
        self.count -= len(taken)
        self._remove_block(0)
        return taken

    def _remove_block(self, index: int) -> None:
        block = self.blocks.pop(index)
        if block is self._looked:
            self._looked = None

    # --- the end ----------------------------------------------------------------------------------

    def add(self, part: Part) -> tuple[int, int]:
        """Append messages that came together. Returns how many, and how many of them have an expiration."""
        if not isinstance(part, RunSlice):
            for reference in part:
                self.append(reference)
            return len(part), part.expiring_count
        run = part.run
        count, expiring = part.end - part.begin, run.expiring and part.expiring_count
        if part.paged:
            self.append_rows(run.segment, rows_of(part))
            return count, expiring
        part.position = self.end
        self.end += count
        self.count += count
        loose = self._loose
        if count < _SHORT:
            loose.append(part)
            if len(loose) >= _LOOSE_MAX:
                self._gather()
            return count, expiring
        if loose:
            self._gather()
        self.blocks.append(Block.of_run(part))
        return count, expiring

    def _gather(self) -> None:
        """Make blocks of the runs in ``_loose``."""
        loose, self._loose = self._loose, []
        group: list[RunSlice] = []
        size_bytes = 0
        for part in loose:
            if group:
                run, last, before = part.run, group[-1], group[-1].run
                size_bytes += run.size_bytes
                if (
                    size_bytes > _BLOCK_BYTES
                    or part.shared is not last.shared
                    or part.durable is not last.durable
                    or run.segment != before.segment
                    or run.first_id < before.first_id + before.count
                ):
                    self._add_joined(group)
                    group = []
            if not group:
                size_bytes = part.run.size_bytes
            group.append(part)
        if group:
            self._add_joined(group)

    def _add_joined(self, parts: list[RunSlice]) -> None:
        blocks = self.blocks
        blocks.append(Block.of_run(_joined(parts)))
        while len(blocks) > 1 and _may_join(blocks[-2], blocks[-1]):
            one, other = blocks[-2:]
            if self._looked in (one, other):
                self._looked = None
            blocks[-2:] = [Block.of_run(_joined([each.run for each in (one, other) if each.run is not None]))]
        self._join_short()

    def append(self, reference: MessageReference) -> None:
        """Append a message as an object."""
        if self._loose:
            self._gather()
        blocks = self.blocks
        tail = blocks[-1] if blocks else None
        if not isinstance(tail, Singles) or tail.base + tail.size != self.end or tail.size >= _BLOCK:
            tail = Singles(self.end)
            blocks.append(tail)
            if len(blocks) > _OBJECT_BLOCKS:
                self._to_columns(len(blocks) - _OBJECT_BLOCKS, len(blocks) - _OBJECT_BLOCKS + 1)
            self._join_short()
        tail.add(reference)
        self.end += 1
        self.count += 1

    def _join_short(self) -> None:
        """The last blocks are short and cannot be joined as runs: they become columns."""
        blocks = self.blocks
        first = len(blocks) - 1 - _SHORT_BLOCKS
        if first > 0 and all(map(_is_short, islice(blocks, first, len(blocks) - 1))):
            self._to_columns(first, len(blocks) - 1)

    def _to_columns(self, first: int, end: int) -> None:
        """Blocks ``first`` to ``end``, the last one excluded, become one of columns, unless it would have many rows
        without a message, or they are no singles and no runs.
        """
        blocks = self.blocks
        part = blocks[first:end]
        base = part[0].base
        size = part[-1].base + part[-1].size - base
        if size > 2 * _BLOCK or not all(isinstance(each, Singles) or each.run is not None for each in part):
            return
        rows: list[MessageReference | None] = [None] * size
        for each in part:
            for reference in each.references():
                rows[reference.position - base] = reference
        block = Block(Columns.of(rows, self.priority), bytearray([row is None for row in rows]))
        block.base = base
        blocks[first:end] = [block]
        if self._looked in part:
            self._looked = None
        self._put_away(block)

    def _put_away(self, block: Block | Singles) -> None:
        """Finish a block to which no message is added any more: the block of a deep queue is packed or spilled."""
        if isinstance(block, Singles) or self.keep_open or block.in_memory or len(self.blocks) <= _OPEN_BLOCKS:
            return
        if self._pages is None or len(self.blocks) <= _MEMORY_BLOCKS or not block.spill(self._pages):
            block.pack()

    def append_rows(self, segment: int, rows: Rows) -> None:
        """Append messages of which the log alone has the bodies; neighbours become one block."""
        if self._loose:
            self._gather()
        if self.blocks:
            tail = self.blocks[-1]
            if isinstance(tail, Block) and tail.base + tail.size == self.end and tail.extend(segment, rows):
                self.end += len(rows)
                self.count += len(rows)
                return
            self._put_away(tail)
        columns = Columns(self.priority)
        columns.extend(segment, rows)
        self.append_blocks([Block(columns)])

    def append_blocks(self, blocks: Sequence[Block]) -> None:
        """Append closed blocks in which something waits, in order."""
        if self._loose:
            self._gather()
        for block in blocks:
            block.base = self.end
            self.end += block.size
            self.count += block.count
        self.blocks += blocks

    # --- anywhere ---------------------------------------------------------------------------------

    def requeue(self, references: Iterable[MessageReference]) -> None:
        """Back to their positions."""
        blocks = self.blocks
        for reference in references:
            position = reference.position
            index = bisect_right(blocks, position, key=_base)
            self.count += 1
            block = blocks[index - 1] if index else None
            if block is None or (position >= block.base + block.size and not isinstance(block, Singles)):
                following = blocks[index] if index < len(blocks) else None
                if isinstance(following, Singles):
                    block = following
                else:
                    block = Singles(position)
                    if following is not None and following is not self._looked:
                        following.close()
                    blocks.insert(index, block)
            block.requeue(position - block.base, reference)

    def _block_at(self, position: int) -> tuple[int, Block | Singles | None]:
        """The block in whose range a position lies, and its number; None if there is none."""
        index = bisect_right(self.blocks, position, key=_base) - 1
        if index >= 0:
            block = self.blocks[index]
            if position < block.base + block.size:
                return index, block
        return index, None

    def _find(self, position: int) -> tuple[Block | Singles, int] | None:
        """The first message at or after a position: its block and row."""
        first = max(bisect_right(self.blocks, position, key=_base) - 1, 0)
        for block in islice(self.blocks, first, None):
            row = block.row_from(max(position - block.base, 0))
            if row >= 0:
                self._look(block)
                return block, row
        if self._loose:
            self._gather()
            return self._find(position)
        return None

    def _look(self, block: Block | Singles) -> None:
        looked = self._looked
        if looked is not block:
            if looked is not None and looked is not self.blocks[0]:
                looked.close()
            self._looked = block
        if self.keep_open:
            block.stay_open()

    def find_equal(self, position: int, wanted: Equalities, now_ms: int) -> tuple[Block | Singles, int, bool] | None:
        """A message at or after a position before which none has these values: its block and row, and whether it has
        them for certain (``value_index``). Without indexes of too many blocks. None: there is no further message.
        """
        if self._loose:
            self._gather()
        blocks = self.blocks
        end = WORK.steps + _INDEX_STEPS_MAX
        count = len(blocks)
        number = bisect_right(blocks, position, key=_base) - 1 if count > 1 else 0
        for block in blocks if number <= 0 else islice(blocks, number, None):
            row = position - block.base
            if WORK.steps < end:
                row, certain = next_equal(block, row if row > 0 else 0, wanted, now_ms)
            else:
                row, certain = block.row_from(max(row, 0)), False
            if row >= 0:
                if self._looked is not block or self.keep_open:
                    self._look(block)
                return block, row, certain
        return None

    def take_equal(self, position: int, wanted: Equalities, now_ms: int) -> tuple[RunSlice | None, int]:
        """Take a message of a run that has these values, if ``find_equal`` gives one that has them for certain. Returns
        it, or None, and the position of the next message that may have them.
        """
        found = self.find_equal(position, wanted, now_ms)
        if found is None:
            return None, self.end
        block, row, certain = found
        position = block.base + row
        run = block.run
        if not certain or run is None:
            return None, position
        assert isinstance(block, Block)
        first = run.begin + row
        part = RunSlice(
            run.run, first, first + 1, run.priority, position, durable=run.durable, shared=run.shared
        )  # fmt: skip
        self.count -= 1
        block.take_rows(row, row + 1)
        if not block.count:
            self._remove_block(self.blocks.index(block))
        return part, position

    def next_row(self, position: int) -> RunSlice | None:
        """``next_from`` as a slice of a run; None: the next one is no message of a run, or there is none."""
        found = self._find(position)
        return found[0].row_slice(found[1]) if found is not None else None

    def next_from(self, position: int) -> MessageReference | None:
        """The first one at or after a position, with its position set; it stays."""
        found = self._find(position)
        return found[0].at(found[1]) if found is not None else None

    def part_from(self, position: int, count_max: int) -> Part | None:
        """Neighbours from the first one at or after a position on, which stay; None: there is none."""
        found = self._find(position)
        return found[0].part_from(found[1], count_max) if found is not None else None

    def take(self, part: Part) -> None:
        """Take messages that ``part_from`` just gave, or neighbours of these."""
        if not isinstance(part, RunSlice):
            for reference in part:
                self.remove(reference.position)
            return
        index, block = self._block_at(part.position)
        assert isinstance(block, Block)
        first = part.position - block.base
        self.count -= len(part)
        block.take_rows(first, first + len(part))
        if not block.count:
            self._remove_block(index)

    def remove(self, position: int) -> None:
        """Take the message of a position, which waits."""
        index, block = self._block_at(position)
        assert block is not None
        self.count -= 1
        block.take(position - block.base)
        if not block.count:
            self._remove_block(index)

    def locations_behind(self, position: int) -> Iterator[Location | None]:
        """Locations of the messages after a position, in order, as far as they are cheap to
        list; None for one that is in memory.
        """
        _, block = self._block_at(position)
        return block.locations_from(position - block.base + 1) if block is not None else iter(())

    def take_overdue(self, now_ms: int, limit: int) -> list[MessageReference]:
        """Take at most ``limit`` of those that expire by then, in order; they can be put back."""
        if self._loose:
            self._gather()
        taken: list[MessageReference] = []
        for block in self.blocks:
            if len(taken) >= limit:
                break
            taken += block.take_overdue(now_ms, limit - len(taken))
            if block is not self._looked:
                block.close()
        self.blocks = [block for block in self.blocks if block.count]
        if self._looked is not None and not self._looked.count:
            self._looked = None
        self.count -= len(taken)
        return taken

    def __iter__(self) -> Iterator[MessageReference]:
        if self._loose:
            self._gather()
        for block in self.blocks:
            yield from block.references()


def _is_short(block: Block | Singles) -> bool:
    return block.size < _SHORT and (block.run is None or block.run.size_bytes < _BLOCK_BYTES // 4)


def _may_join(one: Block | Singles, other: Block | Singles) -> bool:
    """Whether two neighbours are better one run."""
    run, following = one.run, other.run
    return (
        run is not None
        and following is not None
        and one.size <= 2 * other.size
        and one.size + other.size <= _BLOCK
        and one.count == one.size
        and one.base + one.size == other.base
        and run.shared is None
        and following.shared is None
        and run.durable is following.durable
        and run.run.segment == following.run.segment
        and run.ids[-1] < following.ids[0]
        and run.size_bytes + following.size_bytes <= _BLOCK_BYTES
    )


def _joined(parts: list[RunSlice]) -> RunSlice:
    """Neighbours as one slice."""
    first = parts[0]
    if len(parts) == 1:
        return first
    run = join_runs([(each.run, each.begin, each.end) for each in parts])
    return RunSlice(run, 0, run.count, first.priority, first.position, durable=first.durable)
