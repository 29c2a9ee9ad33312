"""Which durable messages are still needed, small enough for any depth: one bit per message.

Answers one question: does any live message have an id in this range (of a segment)? Ids rise with
the log, so a bit mask per 64 ids and queue stays dense. Removing an id twice, or an unknown id,
changes nothing, so a mistake of a caller can only keep a segment too long, never drop it early.

Not here: references, order, transactions (their messages stay live until the outcome).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

#: All ids of a block are live.
_FULL: Final = (1 << 64) - 1


class LiveIndex:
    """Live message ids per queue."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: dict[int, dict[int, int]] = {}
        """Queue id to id // 64 to a mask of the ids that are live. No mask is 0."""

    def add(self, queue_id: int, message_id: int) -> None:
        """Add a message that is live in the queue."""
        masks = self.queues.get(queue_id)
        if masks is None:
            masks = self.queues[queue_id] = {}
        block = message_id >> 6
        masks[block] = masks.get(block, 0) | 1 << (message_id & 63)

    def add_range(self, queue_id: int, first_id: int, count: int) -> None:
        """Mark ``count`` messages of consecutive ids as live in the queue."""
        masks = self.queues.get(queue_id)
        if masks is None:
            masks = self.queues[queue_id] = {}
        while count > 0:
            block, slot = first_id >> 6, first_id & 63
            if not slot and count >= 64:
                whole = count >> 6
                masks.update(dict.fromkeys(range(block, block + whole), _FULL))
                first_id += whole << 6
                count &= 63
                continue
            taken = min(64 - slot, count)
            masks[block] = masks.get(block, 0) | ((1 << taken) - 1) << slot
            first_id += taken
            count -= taken

    def add_all(self, queue_id: int, message_ids: Sequence[int]) -> None:
        """The messages, whose ids rise, are live in the queue."""
        if not message_ids:
            return
        first, last = message_ids[0], message_ids[-1]
        if last - first == len(message_ids) - 1:
            self.add_range(queue_id, first, len(message_ids))
            return
        masks = self.queues.get(queue_id)
        if masks is None:
            masks = self.queues[queue_id] = {}
        block, added = first >> 6, 0
        for message_id in message_ids:
            if message_id >> 6 != block:
                masks[block] = masks.get(block, 0) | added
                block, added = message_id >> 6, 0
            added |= 1 << (message_id & 63)
        masks[block] = masks.get(block, 0) | added

    def remove(self, queue_id: int, message_ids: Iterable[int]) -> None:
        """Called when the messages have left the queue."""
        masks = self.queues.get(queue_id)
        if masks is None:
            return
        # neighbours mostly leave together: one change per block of them
        block, gone = -1, 0
        for message_id in message_ids:
            if message_id >> 6 != block:
                if gone:
                    _clear(masks, block, gone)
                block, gone = message_id >> 6, 0
            gone |= 1 << (message_id & 63)
        if gone:
            _clear(masks, block, gone)

    def remove_queue(self, queue_id: int) -> None:
        """Remove a queue with every reference in it."""
        self.queues.pop(queue_id, None)

    def is_live(self, queue_id: int, message_id: int) -> bool:
        """Whether that message is live in that queue."""
        return bool(self.queues.get(queue_id, {}).get(message_id >> 6, 0) >> (message_id & 63) & 1)

    def any_between(self, first_id: int, last_id: int) -> bool:
        """Whether an id in the range, ends included, may be live in any queue; blocks of 64 ids
        count as a whole. Costs at most one look per block of the range and queue.
        """
        first, last = first_id >> 6, last_id >> 6
        for masks in self.queues.values():
            if len(masks) < last - first + 1:
                if any(first <= block <= last for block in masks):
                    return True
            elif not masks.keys().isdisjoint(range(first, last + 1)):
                return True
        return False

    def count(self) -> int:
        """Live messages, once per queue. Walks everything: for tests and tools."""
        return sum(mask.bit_count() for masks in self.queues.values() for mask in masks.values())


def _clear(masks: dict[int, int], block: int, gone: int) -> None:
    left = masks.get(block, 0) & ~gone
    if left:
        masks[block] = left
    else:
        masks.pop(block, None)
