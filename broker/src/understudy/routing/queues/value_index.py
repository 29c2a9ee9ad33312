"""Finding the messages of a run that have certain property values, by an index that is made once for a block.

The functions belong to ``reference_block.Block`` and use its fields; they pass over messages that a selector cannot
take, and never say that one is taken which needs a look of its own: it was put back, expires, or has its body
elsewhere.

Not here: which comparisons a selector has (``selector.equalities``), the order of blocks (``level``).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from understudy.kernel.log import run_values
from understudy.routing.queues.singles import Singles
from understudy.selector import STEPS_OF_A_LOOK
from understudy.selector.equalities import Equalities
from understudy.selector.work import WORK
from understudy.store.messages.reference import RunSlice
from understudy.store.messages.reference_block import Block, ValueIndex

#: Steps that are counted for a message which enters an index.
_STEPS_OF_A_ROW: Final = 1
#: Messages of a block that were put back, from which on each is looked at as without an index.
_RETURNED_MAX: Final = 64
#: Indexes of a block by different properties.
_INDEXES_MAX: Final = 8


def next_equal(block: Block | Singles, row: int, wanted: Equalities, now_ms: int) -> tuple[int, bool]:
    """The first waiting row at or after one that may have the values, and whether it has them for certain and can be
    delivered as it is. -1: there is none.

    Args:
        wanted: At least one comparison.
        now_ms: Wall time; messages that have expired by then need a look.
    """
    WORK.steps += STEPS_OF_A_LOOK
    index = _index_of(block, wanted.names, now_ms) if isinstance(block, Block) else None
    if index is None or isinstance(block, Singles):
        return block.row_from(row), False
    part, returned, gone = block.run, block.returned, block._gone
    assert part is not None
    first, head = part.begin, block.head
    row = row if row > head else head
    rows = index.get(wanted.values, ())
    found = -1
    for number in range(bisect_left(rows, first + row), len(rows)):
        each = rows[number] - first
        if gone is None or not gone[each]:
            found = each
            break
    if returned is not None:
        again = min((each for each in returned if each >= row), default=found)
        if again <= found or found < 0:
            return again, False
    return found, not part.run.grouped


def _index_of(block: Block, names: tuple[bytes, ...], now_ms: int) -> ValueIndex | None:
    """The index of a block by these properties; None: each message is looked at."""
    indexes = block.indexes
    if indexes is not None:
        index = indexes.get(names)
        if index is not None and block.returned is None and not 0 < block.earliest_ms <= now_ms:
            return index
    if (
        block.run is None
        or block.run.paged
        or 0 < block.earliest_ms <= now_ms
        or (block.returned is not None and len(block.returned) > _RETURNED_MAX)
    ):
        return None
    return _make_index(block, names, block.run) if indexes is None or names not in indexes else indexes[names]


def _make_index(block: Block, names: tuple[bytes, ...], part: RunSlice) -> ValueIndex | None:
    """The rows of a block that is a run by these properties, which is kept with it. None: a message is malformed."""
    begin = part.begin
    WORK.steps += _STEPS_OF_A_ROW * (block.size - block.head)
    try:
        index: ValueIndex = run_values(part.run, begin + block.head, begin + block.size, names)
    except ValueError:
        return None
    if block.indexes is None or len(block.indexes) >= _INDEXES_MAX:
        block.indexes = {}
    block.indexes[names] = index
    return index
