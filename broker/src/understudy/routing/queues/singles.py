"""Waiting messages that are objects, as a block of a level: those that came alone and need more than a run says, and
those that were put back where no other block is any more.

Unlike a ``Block`` of the store it holds messages at any positions of its range. Not here: when they become columns
(``level``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from understudy.store.messages.reference import Location, MessageReference, References
from understudy.store.messages.reference_block import GroupsAllowed, needs_look


def _position(reference: MessageReference) -> int:
    return reference.position


def _descending(reference: MessageReference) -> int:
    return -reference.position


class Singles:
    """Messages at positions of a range of ``size`` from ``base`` on. A row is a position less ``base``."""

    __slots__ = ("_ordered", "_references", "base", "size")

    #: references that are no part of a run, as in ``Block``
    run = None
    spilled = False

    def __init__(self, base: int) -> None:
        self.base = base
        self.size = 0
        self._references: list[MessageReference] = []
        """References with the latest position first, so that the next one is popped from the end."""
        self._ordered = True
        """Whether the list is in order at present."""

    @property
    def count(self) -> int:
        """Number of messages in the block."""
        return len(self._references)

    @property
    def oldest_id(self) -> int:
        """Id of the first message of the block."""
        return self._in_order()[-1].message_id

    def _in_order(self) -> list[MessageReference]:
        if not self._ordered:
            self._references.sort(key=_position, reverse=True)
            self._ordered = True
        return self._references

    def add(self, reference: MessageReference) -> None:
        """Add a message after the range, which grows by its place."""
        reference.position = self.base + self.size
        self.size += 1
        self._in_order().insert(0, reference)

    def requeue(self, row: int, reference: MessageReference) -> None:
        """Put a message back at its position, which may lie outside of the range."""
        if row < 0:
            self.base += row
            self.size -= row
        else:
            self.size = max(self.size, row + 1)
        known = self._references
        if known and reference.position > known[-1].position:
            self._ordered = False
        known.append(reference)

    def take_slice(
        self, room_bytes: int, overhead_bytes: int, now_ms: int, may_take: GroupsAllowed | None = None
    ) -> References:
        """Take several references, as ``Block.take_slice`` does."""
        known = self._in_order()
        taken = References()
        for reference in reversed(known):
            if room_bytes <= 0 or needs_look(reference, now_ms):
                break
            room_bytes -= reference.size_bytes + overhead_bytes
            taken.append(reference)
        del known[len(known) - len(taken) :]
        return taken

    def take_first(self) -> MessageReference:
        """Take the first reference."""
        return self._in_order().pop()

    def take_all(self) -> References:
        """Take every reference."""
        taken = References(self.references())
        self._references = []
        return taken

    def _index(self, row: int) -> int:
        return bisect_left(self._in_order(), -self.base - row, key=_descending)

    def row_slice(self, row: int) -> None:
        """Return None, because single references are no part of a run."""

    def row_from(self, row: int) -> int:
        """The first row at or after one; -1 if there is none."""
        index = bisect_right(self._in_order(), -self.base - row, key=_descending) - 1
        return self._references[index].position - self.base if index >= 0 else -1

    def part_from(self, row: int, count_max: int) -> References:
        """References from a position on, as ``Block.part_from`` gives them."""
        end = self._index(row) + 1
        return References(reversed(self._references[max(end - count_max, 0) : end]))

    def at(self, row: int) -> MessageReference:
        """The message of a row."""
        return self._references[self._index(row)]

    def take(self, row: int) -> None:
        """Take the message of a row out of the block."""
        del self._references[self._index(row)]

    def locations_from(self, row: int) -> Iterator[Location | None]:
        """Locations of the messages at or after a row, in order; None for one that is in memory."""
        index = bisect_right(self._in_order(), -self.base - row, key=_descending)
        for reference in map(self._references.__getitem__, range(index - 1, -1, -1)):
            yield reference.location if reference.message is None else None

    def take_overdue(self, now_ms: int, limit: int) -> Sequence[MessageReference]:
        """Take the first references whose messages have expired by a time, at most so many."""
        known = self._in_order()
        taken = list(islice((each for each in reversed(known) if 0 < each.expiration <= now_ms), limit))
        if taken:
            gone = {*map(id, taken)}
            self._references = [each for each in known if id(each) not in gone]
        return taken

    def references(self) -> Iterator[MessageReference]:
        """Every reference in order."""
        return reversed(self._in_order())

    def stay_open(self) -> None:
        """Like ``Block.stay_open``; nothing to do."""

    def close(self) -> None:
        """Like ``Block.close``; nothing to do."""
