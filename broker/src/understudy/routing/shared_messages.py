"""Messages that are in several queues of one address: how many still hold each of them.

Small enough for any depth: ids rise with the log, so one array of counts serves 64 neighbours,
about six bytes a message.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Final

#: Ids per array; after their counts it has the number of them that are not 0.
_SPAN: Final = 64
_FULL: Final = (1 << _SPAN) - 1


class SharedMessages:
    """Message id to number of queues, for those in more than one."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, array[int]] = {}
        """Id // 64 to its array; empty when nothing is shared."""

    def add(self, message_id: int, queue_count: int) -> None:
        """Add a message that is in that many queues, at least two."""
        counts = self.counts.get(message_id >> 6)
        if counts is None:
            counts = self.counts[message_id >> 6] = array("I", bytes(4 * _SPAN + 4))
        slot = message_id & 63
        if not counts[slot]:
            counts[_SPAN] += 1
        counts[slot] = queue_count

    def add_range(self, first_id: int, count: int, queue_count: int) -> None:
        """Count ``count`` new messages of consecutive ids as in ``queue_count`` queues each, at least two."""
        while count:
            slot = first_id & 63
            taken = min(_SPAN - slot, count)
            counts = self.counts.get(first_id >> 6)
            if counts is None:
                counts = self.counts[first_id >> 6] = array("I", bytes(4 * _SPAN + 4))
            counts[slot : slot + taken] = array("I", (queue_count,)) * taken
            counts[_SPAN] += taken
            first_id += taken
            count -= taken

    def release_range(self, first_id: int, count: int) -> list[tuple[int, int]]:
        """One queue is through with messages of consecutive ids. Those that no other holds: first id, and the id after
        the last one, of each stretch of neighbours.
        """
        freed: list[tuple[int, int]] = []
        while count:
            slot = first_id & 63
            taken = min(_SPAN - slot, count)
            counts = self.counts.get(first_id >> 6)
            part = counts[slot : slot + taken] if counts is not None else None
            if part is not None and part.count(part[0]) != taken:
                # the messages differ, so only the first one is taken
                taken = 1
                part = part[:1]
            if part is None or not part[0]:
                _add_stretch(freed, first_id, first_id + taken)
            else:
                assert counts is not None
                left = part[0] - 1 if part[0] > 2 else 0
                counts[slot : slot + taken] = array("I", (left,)) * taken
                if not left:
                    # only one queue has the messages now, and releases them like messages that were never shared
                    counts[_SPAN] -= taken
                    if not counts[_SPAN]:
                        del self.counts[first_id >> 6]
            first_id += taken
            count -= taken
        return freed

    def holds_none(self, first_id: int, last_id: int) -> bool:
        """Whether none of the messages from one id to another is in more than one queue."""
        if not self.counts:
            return True
        first, last = first_id >> 6, last_id >> 6
        for block in range(first, last + 1):
            counts = self.counts.get(block)
            if counts is None:
                continue
            begin = first_id & 63 if block == first else 0
            end = (last_id & 63) + 1 if block == last else _SPAN
            if any(counts[begin:end]):
                return False
        return True

    def overlay(self, masks: Mapping[int, int], seen: dict[int, int]) -> int:
        """One more queue holds what ``masks`` says; ``seen`` is what the queues before it hold, and
        is brought up to date. How many messages of ``masks`` were seen before.

        Both are as in ``store.live_index``: id // 64 to a mask of ids.
        """
        overlap = 0
        for block, mask in masks.items():
            before = seen.get(block, 0)
            seen[block] = before | mask
            common = before & mask
            if common:
                overlap += common.bit_count()
                self._count_again(block, common)
        return overlap

    def _count_again(self, block: int, common: int) -> None:
        counts = self.counts.get(block)
        if counts is None and common == _FULL:
            self.counts[block] = array("I", [2] * _SPAN + [_SPAN])
            return
        for slot in _bits(common):
            count = counts[slot] if counts is not None else 0
            self.add(block << 6 | slot, max(count, 1) + 1)
            counts = self.counts[block]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _add_stretch(stretches: list[tuple[int, int]], first_id: int, end_id: int) -> None:
    if stretches and stretches[-1][1] == first_id:
        first_id = stretches.pop()[0]
    stretches.append((first_id, end_id))
