"""References that wait in one queue, as read from the log: counts, and references in blocks.

A passive node holds every queue's backlog so that it can take over at once, however deep it is: a
new reference is a row (``columns``), full blocks are packed, and an acknowledgement marks its row.
At the activation routing takes the blocks over as they are, so nothing is done per message.

Acknowledgements mostly come in the order of the messages, so the row after the last one removed
is looked at first; any other is searched for by block.

Not here: references of open transactions (``state``), handing out (``routing.queues.pending``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from understudy.store.messages.columns import Columns, Rows
from understudy.store.messages.reference import LargeReference, Location, MessageReference
from understudy.store.messages.reference_block import BLOCK_REFERENCES, Block, set_delivery_count

_reach = attrgetter("reach")
#: Closed blocks at either end of a level that are not packed: they are about to change.
_OPEN_BLOCKS = 2


class BacklogLevel:
    """The references of one priority: closed blocks, then the rows being added."""

    __slots__ = ("_gone", "_gone_count", "_hint", "_hint_columns", "_hint_row", "block_references", "blocks", "columns")

    def __init__(self, priority: int) -> None:
        self.block_references = BLOCK_REFERENCES
        self.blocks: list[Block] = []
        self.columns = Columns(priority)
        """Rows that are in no block yet; at most ``block_references``."""
        self._gone: bytearray | None = None
        """The rows that were removed."""
        self._gone_count = 0
        """Number of rows of ``columns`` that were removed."""
        self._hint: Block | None = None
        """Block of the last removal; None for ``columns``."""
        self._hint_columns: Columns = self.columns
        self._hint_row = 0

    def close_block(self) -> None:
        """Make the present rows a block, if any is left; further rows can be added."""
        columns = self.columns
        self.end_block()
        self.columns = Columns(columns.priority)
        self._gone = None
        self._gone_count = 0
        if self._hint_columns is columns and self._hint is None:
            self._hint_columns, self._hint_row = self.columns, 0

    def end_block(self) -> None:
        """Close the block like ``close_block``, but no rows can be added afterwards."""
        columns, gone = self.columns, self._gone
        size = len(columns)
        if self._gone_count < size:
            block = Block(columns, gone)
            if self.blocks:
                block.reach = max(block.reach, self.blocks[-1].reach)
            self.blocks.append(block)
            if len(self.blocks) > 2 * _OPEN_BLOCKS:
                self.blocks[-1 - _OPEN_BLOCKS].pack()
            if self._hint_columns is columns:
                self._hint = block

    def append_blocks(self, blocks: list[Block]) -> None:
        """Append closed blocks, in order."""
        self.close_block()
        for block in blocks:
            block.pack()
            if self.blocks:
                block.reach = max(block.reach, self.blocks[-1].reach)
            self.blocks.append(block)

    def find(self, message_id: int) -> tuple[Block | None, Columns, int] | None:
        """Block (None for the open rows), its columns and the row of a reference that waits."""
        block, columns, row = self._hint, self._hint_columns, self._hint_row
        if row < len(columns.ids) and columns.ids[row] == message_id and not self._is_gone(block, row):
            return block, columns, row
        blocks = self.blocks
        for index in range(bisect_left(blocks, message_id, key=_reach), len(blocks)):
            block = blocks[index]
            if not block.first_id <= message_id <= block.last_id:
                continue
            columns = self._hint_columns if block is self._hint else block.open()
            row = _row_of(columns, message_id, ordered=block.ordered)
            if row >= 0 and not self._is_gone(block, row):
                return block, columns, row
        row = _row_of(self.columns, message_id, ordered=False)
        return (None, self.columns, row) if row >= 0 and not self._is_gone(None, row) else None

    def _is_gone(self, block: Block | None, row: int) -> bool:
        if block is not None:
            return not block.waits(row)
        return self._gone is not None and bool(self._gone[row])

    def take(self, block: Block | None, columns: Columns, row: int) -> None:
        """A reference that was found does not wait any more."""
        self._hint, self._hint_columns, self._hint_row = block, columns, row + 1
        if block is None:
            if self._gone is None:
                self._gone = bytearray(self.block_references)
            self._gone[row] = 1
            self._gone_count += 1
            return
        block.take(row)
        if not block.count:
            self._forget(block)

    def take_next(self, ids: array[int], first: int) -> array[int]:
        """Take the references that follow the one taken last, as long as their ids are those of ``ids`` from ``first``
        on; their sizes. Takes none if the rows have more than an id and a size.
        """
        block, columns, row = self._hint, self._hint_columns, self._hint_row
        end = min(len(columns.ids), row + len(ids) - first)
        gone = self._gone if block is None else block.gone
        if gone is not None and row < end:
            found = gone.find(1, row, end)
            end = found if found >= 0 else end
        plain = columns.expirations is None and columns.scheduled is None and columns.files is None
        if not plain or row >= end or columns.ids[row] != ids[first]:
            return array("I")
        if columns.ids[row:end] != ids[first : first + end - row]:
            end = next(each for each in range(row, end) if columns.ids[each] != ids[first + each - row])
        sizes = columns.sizes[row:end]
        if block is None:
            if self._gone is None:
                self._gone = bytearray(self.block_references)
            self._gone[row:end] = b"\1" * (end - row)
            self._gone_count += end - row
            self._hint_row = end
        else:
            block.take_rows(row, end)
            self._hint_row = end
            if not block.count:
                self._forget(block)
        return sizes

    def _forget(self, block: Block) -> None:
        self.blocks.remove(block)
        self._hint, self._hint_columns, self._hint_row = None, self.columns, 0

    def __iter__(self) -> Iterator[MessageReference]:
        for block in self.blocks:
            yield from block.references()
        for row in range(len(self.columns)):
            if not self._is_gone(None, row):
                yield self.columns.reference(row)


def _row_of(columns: Columns, message_id: int, *, ordered: bool) -> int:
    ids = columns.ids
    row = bisect_left(ids, message_id)
    if row < len(ids) and ids[row] == message_id:
        return row
    return -1 if ordered else columns.find(message_id)


class Backlog(Mapping[int, MessageReference]):
    """References that wait in one queue, in blocks. As a mapping: message id to a reference made on demand, by
    priority, each in log order.
    """

    __slots__ = ("count", "expiring_count", "files", "levels", "redeliveries", "scheduled_count", "size_bytes")

    def __init__(self) -> None:
        self.levels: dict[int, BacklogLevel] = {}
        """Blocks and rows of each message priority that has references."""
        self.count = 0
        self.size_bytes = 0
        """Bytes of the messages."""
        self.expiring_count = 0
        """Number of messages in ``count`` that have an expiration."""
        self.scheduled_count = 0
        """Number of messages in ``count`` with a time before which they are not delivered."""
        self.files: dict[int, int] = {}
        """File id to how many of ``count`` are that large message."""
        self.redeliveries: dict[int, int] = {}
        """Message id to the wall time of its redelivery. It replaces the time of the reference, which has that of the
        producer or of a snapshot.
        """

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return (reference.message_id for reference in self.references())

    def __getitem__(self, message_id: int) -> MessageReference:
        reference = self._find(message_id)
        if reference is None:
            raise KeyError(message_id)
        return reference

    def references(self) -> Iterator[MessageReference]:
        """Every reference, a block in memory at a time; the backlog must not change meanwhile."""
        for priority in sorted(self.levels, reverse=True):
            yield from self.levels[priority]

    def level(self, priority: int) -> BacklogLevel:
        """The level of a priority, with space for at least one more row."""
        level = self.levels.get(priority)
        if level is None:
            level = self.levels[priority] = BacklogLevel(priority)
        elif len(level.columns.ids) >= level.block_references:
            level.close_block()
        return level

    def append(
        self,
        message_id: int,
        priority: int,
        expiration: int,
        scheduled_ms: int,
        size_bytes: int,
        location: Location | None,
        delivery_count: int = 0,
        file_id: int | None = None,
    ) -> None:
        """Append one reference to its priority; ``file_id`` of a large message."""
        columns = self.level(priority).columns
        columns.append(message_id, expiration, scheduled_ms, size_bytes, location, delivery_count, file_id)
        self.count += 1
        self.size_bytes += size_bytes
        if expiration:
            self.expiring_count += 1
        if scheduled_ms:
            self.scheduled_count += 1
        if file_id is not None:
            self.files[file_id] = self.files.get(file_id, 0) + 1

    def extend(self, priority: int, segment: int, rows: Rows) -> None:
        """Append references to that priority; all their messages lie in that segment of the log."""
        first, count = 0, len(rows)
        while first < count:
            level = self.level(priority)
            end = min(count, first + level.block_references - len(level.columns))
            level.columns.extend(segment, rows if end - first == count else rows.part(first, end))
            first = end
        self.count += count
        self.size_bytes += sum(rows.sizes)
        if rows.expirations is not None:
            self.expiring_count += count - rows.expirations.count(0)
        if rows.scheduled is not None:
            self.scheduled_count += count - rows.scheduled.count(0)

    def append_reference(self, reference: MessageReference) -> None:
        """Append an object, like ``append``."""
        self.append(
            reference.message_id,
            reference.priority,
            reference.expiration,
            reference.scheduled_ms,
            reference.size_bytes,
            reference.location,
            reference.delivery_count,
            reference.file_id if isinstance(reference, LargeReference) else None,
        )

    def absorb(self, other: Backlog) -> None:
        """Append all of another backlog, block by block; that one must not be used afterwards."""
        for priority, level in other.levels.items():
            level.close_block()
            own = self.levels.get(priority)
            if own is None:
                self.levels[priority] = level
            else:
                own.append_blocks(level.blocks)
        self.count += other.count
        self.size_bytes += other.size_bytes
        self.expiring_count += other.expiring_count
        self.scheduled_count += other.scheduled_count
        self.redeliveries.update(other.redeliveries)
        for file_id, count in other.files.items():
            self.files[file_id] = self.files.get(file_id, 0) + count

    def _find(self, message_id: int) -> MessageReference | None:
        for level in self.levels.values():
            found = level.find(message_id)
            if found is not None:
                block, columns, row = found
                return columns.reference(row) if block is None else block.reference(columns, row)
        return None

    def remove(self, message_id: int) -> bool:
        """Remove a message; return whether it was waiting."""
        for level in self.levels.values():
            found = level.find(message_id)
            if found is None:
                continue
            block, columns, row = found
            self.count -= 1
            self.size_bytes -= columns.sizes[row]
            if columns.expirations is not None and columns.expirations[row]:
                self.expiring_count -= 1
            if columns.scheduled is not None and columns.scheduled[row]:
                self.scheduled_count -= 1
            if columns.files is not None and row in columns.files:
                self._forget_file(columns.files[row])
            level.take(block, columns, row)
            return True
        return False

    def remove_all(self, message_ids: Sequence[int], is_live: Callable[[int], bool]) -> None:
        """The messages do not wait any more. Those that are not live are not searched for."""
        ids = message_ids if isinstance(message_ids, array) else array("Q", message_ids)
        if self.redeliveries:
            for message_id in ids:
                self.redeliveries.pop(message_id, None)
        at = 0
        while at < len(ids):
            for level in self.levels.values():
                sizes = level.take_next(ids, at)
                if sizes:
                    self.count -= len(sizes)
                    self.size_bytes -= sum(sizes)
                    at += len(sizes)
                    break
            else:
                if is_live(ids[at]):
                    self.remove(ids[at])
                at += 1

    def _forget_file(self, file_id: int) -> None:
        self.files[file_id] -= 1
        if not self.files[file_id]:
            del self.files[file_id]

    def pop(self, message_id: int) -> MessageReference | None:
        """Remove a message and return its reference; None if the message does not wait in this queue."""
        reference = self._find(message_id)
        if reference is not None:
            self.remove(message_id)
        return reference

    def clear(self) -> None:
        """Remove every reference from the backlog."""
        self.levels.clear()
        self.files.clear()
        self.redeliveries.clear()
        self.count = self.size_bytes = self.expiring_count = self.scheduled_count = 0

    def set_delivery_count(self, message_id: int, count: int, not_before_ms: int = 0) -> None:
        """Record the delivery count of a message and the wall time of its redelivery; 0 leaves the time unchanged."""
        if not_before_ms:
            self.redeliveries[message_id] = not_before_ms
        for level in self.levels.values():
            found = level.find(message_id)
            if found is None:
                continue
            block, columns, row = found
            if block is None:
                set_delivery_count(columns, row, count)
            else:
                block.set_count(columns, row, count)
            return

    def relocate(self, message_id: int, location: Location) -> bool:
        """Record the new place of a message in the log; return whether a reference of this queue was found."""
        for level in self.levels.values():
            found = level.find(message_id)
            if found is not None:
                block, columns, row = found
                if block is None:
                    columns.set_location(row, location)
                else:
                    block.set_location(columns, row, location)
                return True
        return False

    def scheduled_after(self, now_ms: int) -> list[MessageReference]:
        """Remove the references whose time has not come by then, in log order of each priority."""
        later = self._scheduled_after(now_ms) if self.scheduled_count else []
        for message_id, not_before_ms in self.redeliveries.items():
            reference = self.pop(message_id) if not_before_ms > now_ms else None
            if reference is not None:
                reference.scheduled_ms = not_before_ms
                later.append(reference)
        return later

    def _scheduled_after(self, now_ms: int) -> list[MessageReference]:
        times = self.redeliveries
        later = [
            reference
            for reference in self._scheduled()
            if reference.scheduled_ms > now_ms and reference.message_id not in times
        ]
        for reference in later:
            self.remove(reference.message_id)
        return later

    def _scheduled(self) -> Iterator[MessageReference]:
        for level in self.levels.values():
            level.close_block()
            for block in level.blocks:
                if block.scheduled_count:
                    yield from block.references()

    def blocks(self) -> dict[int, list[Block]]:
        """Everything as blocks by priority, in order: what routing takes over. Nothing may be
        added or removed here afterwards.
        """
        for level in self.levels.values():
            level.end_block()
        return {priority: level.blocks for priority, level in self.levels.items()}
