"""Blocks whose messages the log alone has: how a block becomes one, and how its first messages are delivered.

The functions belong to ``reference_block.Block`` and use its fields.

Not here: which blocks lose their bodies (``routing.cold_bodies``), reading the messages (``stored_runs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from understudy.store.messages.columns import PAGE_SEGMENT, Columns, Rows, rows_of
from understudy.store.messages.reference import Part, References, RunSlice, StoredRun
from understudy.store.messages.reference_block import Block, GroupsAllowed

_FIRST_PAGE: Final = PAGE_SEGMENT << 64

StoredRows = tuple[Columns, int, int]
"""Columns, the first row, and the row after the last one."""


def stored_rows(block: Block) -> StoredRows | None:
    """The first messages of a block that wait as they came, whose bodies the log alone has, in one segment. None: the
    first one that waits is no such message.

    Raises:
        JournalCorrupt, DiskFailed: the page cannot be read back.
    """
    row, end = block.head, block.size
    if block.run is not None or block._counts or (block.returned is not None and row in block.returned):
        return None
    columns = block._columns_now()
    if columns.files is not None or columns.bodies is not None:
        return None
    if block._gone is not None:
        end = block._unbroken(row, end)
    segment, segments = columns.segment, columns.segments
    if segments is not None:
        segment = segments[row]
        end = next((each for each in range(row, end) if segments[each] != segment), end)
    if columns.counts is not None:
        counts = columns.counts
        end = next((each for each in range(row, end) if counts[each]), end)
    return (columns, row, end) if end > row and 0 < segment < PAGE_SEGMENT else None


def take_stored(
    block: Block,
    found: StoredRun,
    room_bytes: int,
    overhead_bytes: int,
    now_ms: int,
    may_take: GroupsAllowed | None = None,
) -> Part:
    """Take the first of the messages that ``stored_rows`` gave, like ``Block.take_slice``. They stay messages whose
    bodies are not in memory.

    Args:
        found: A run that was read from the log; its rows are the first of those messages.
    """
    run, begin, end = found
    if may_take is None and run.grouped:
        return References()
    end = min(run.fitting(begin, room_bytes, overhead_bytes, now_ms), end)
    if end == begin or (run.grouped and may_take is not None and not may_take(run.groups(begin, end))):
        return References()
    part = RunSlice(run, begin, end, block._columns_now().priority, block.base + block.head)
    part.paged = True
    block._take_first(block.head + end - begin)
    if not block.count:
        block.drop()
    return part


def let_go(block: Block) -> tuple[int, int]:
    """Drop the bodies of the waiting messages, if the log has all of them and none was put back. Returns the number of
    bodies that left memory, and their bytes.
    """
    slice_ = block.run
    if block.returned:
        return 0, 0
    if slice_ is None:
        return _let_go_single(block)
    if not slice_.durable:
        return 0, 0
    run, begin = slice_.run, slice_.begin
    if block._gone is None:
        size_bytes = run.bytes_between(begin + block.head, begin + block.size)
    else:
        size_bytes = sum([run.size(begin + row) for row in block.rows_from(0)])
    columns = Columns(slice_.priority)
    columns.extend(run.segment, rows_of(slice_))
    block._columns, block._gone = columns, block.gone
    block.run = block._looked = block.indexes = None
    return block.count, size_bytes


def _let_go_single(block: Block) -> tuple[int, int]:
    """``let_go`` for columns with bodies."""
    columns = block._columns
    if columns is None or columns.bodies is None:
        return 0, 0
    rows = [row for row, body in enumerate(columns.bodies) if body is not None]
    if any((columns.location(row) or _FIRST_PAGE) >= _FIRST_PAGE for row in rows):
        return 0, 0
    columns.bodies = block._looked = None
    return len(rows), sum([columns.sizes[row] for row in rows])


def joined(blocks: Sequence[Block]) -> Block:
    """One block of neighbours, in order, which were runs and have just lost their bodies (``let_go``)."""
    if len(blocks) == 1:
        return blocks[0]
    columns, gone = Columns(blocks[0].open().priority), bytearray()
    for block in blocks:
        own = block.open()
        columns.extend(own.segment, Rows(own.ids, own.offsets, own.lengths, own.sizes, own.expirations, None))
        gone += block.gone or bytes(block.size)
    made = Block(columns, gone if any(gone) else None)
    made.base = blocks[0].base
    return made
