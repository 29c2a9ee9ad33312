"""The references that wait in one queue, in order, by priority.

Operations are O(1), the ones for many references apart: append at the tail, take from the head,
put a taken reference back where it was, take one from the middle, look on from a position. That is
what plain FIFO consumers, consumers with selectors, browsers and rollbacks need of it.

How: per priority a list that only grows at its end. The **position** of a reference is its index
in the endless list of everything that ever waited there; ``base`` is the position of
``entries[0]``. A taken reference leaves ``None`` behind and remembers its position, so putting it
back restores the order exactly; taken entries at the front are cut off now and then. A reference
put back after its place was cut off goes to ``returned``, sorted by position, which comes before
``entries``.

Invariants: every position in ``returned`` is below ``base``; ``entries[:head]`` is all None;
``count`` is the number of references in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from understudy.store.reference import MessageReference

#: Taken entries at the front before they are cut off, if they are more than half of the list.
_CUT_MIN = 512

_position = attrgetter("position")


class Level:
    """The waiting references of one priority."""

    __slots__ = ("base", "count", "entries", "head", "priority", "returned")

    def __init__(self, priority: int, references: Iterable[MessageReference] = ()) -> None:
        self.priority = priority
        self.entries: list[MessageReference | None] = list(references)
        self.base = 0
        self.head = 0
        self.count = len(self.entries)
        self.returned: list[MessageReference] = []
        """Latest position first, so that the next one is popped from the end."""

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
        return None

    def cut(self) -> None:
        """Drop the taken entries at the front."""
        head = self.head
        del self.entries[:head]
        self.base += head
        self.head = 0

    def put_back(self, references: Iterable[MessageReference]) -> None:
        """Back to their positions, which ``pop`` or ``next_from`` set."""
        base = self.base
        early = False
        for reference in references:
            index = reference.position - base
            if index < 0:
                self.returned.append(reference)
                early = True
            else:
                self.entries[index] = reference
                self.head = min(self.head, index)
            self.count += 1
        if early:
            self.returned.sort(key=_position, reverse=True)

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
        return None

    def remove(self, reference: MessageReference) -> None:
        """Take the one that ``next_from`` just gave."""
        index = reference.position - self.base
        if index < 0:
            self.returned.remove(reference)
        else:
            self.entries[index] = None
            if index == self.head:
                self.head = index + 1
                if index >= _CUT_MIN and index + index > len(self.entries):
                    self.cut()
        self.count -= 1


class Waiting:
    """The levels of a queue."""

    __slots__ = ("_by_priority", "_levels")

    def __init__(self) -> None:
        self._by_priority: list[Level | None] = [None] * 10
        self._levels: list[Level] = []

    def __len__(self) -> int:
        return sum(level.count for level in self._levels)

    def __iter__(self) -> Iterator[MessageReference]:
        """All of them in delivery order; the structure must not change meanwhile."""
        for level in self._levels:
            yield from reversed(level.returned)
            for reference in level.entries:
                if reference is not None:
                    yield reference

    @property
    def levels(self) -> list[Level]:
        """Highest priority first; empty levels included."""
        return self._levels

    def level(self, priority: int) -> Level:
        """The level of a priority, made when first needed."""
        found = self._by_priority[priority]
        if found is None:
            found = self._by_priority[priority] = Level(priority)
            self._levels.append(found)
            self._levels.sort(key=lambda level: -level.priority)
        return found

    def append(self, reference: MessageReference) -> None:
        level = self._by_priority[reference.priority]
        if level is None:
            level = self.level(reference.priority)
        level.entries.append(reference)
        level.count += 1

    def adopt(self, references: list[MessageReference], single_priority: int | None) -> None:
        """Take over many at once, in order, into an empty structure.

        ``single_priority`` spares looking at each when all share it (start-up and takeover: the
        backlog must cost next to nothing).
        """
        if single_priority is not None:
            level = self.level(single_priority)
            level.entries.extend(references)
            level.count += len(references)
            return
        for reference in references:
            self.append(reference)

    def first_level(self) -> Level | None:
        """The highest level with anything in it."""
        for level in self._levels:
            if level.count:
                return level
        return None

    def put_back(self, references: Iterable[MessageReference]) -> None:
        """Back to where each was taken from."""
        by_priority: dict[int, list[MessageReference]] = {}
        for reference in references:
            by_priority.setdefault(reference.priority, []).append(reference)
        for priority, group in by_priority.items():
            self.level(priority).put_back(group)

    def discard(self, references: Iterable[MessageReference]) -> None:
        """Take these out, wherever they are; one pass over everything, for sweeps. They can be put
        back.
        """
        gone = set(map(id, references))
        if not gone:
            return
        for level in self._levels:
            level.returned = [reference for reference in level.returned if id(reference) not in gone]
            entries = level.entries
            for index in range(level.head, len(entries)):
                found = entries[index]
                if found is not None and id(found) in gone:
                    found.position = level.base + index
                    entries[index] = None
            level.count = len(level.returned) + sum(entry is not None for entry in entries)

    def clear(self) -> list[MessageReference]:
        """Take everything."""
        taken = list(self)
        for level in self._levels:
            # The base moves over all of them: whoever holds a taken one may still put it back.
            level.base += len(level.entries)
            level.entries.clear()
            level.returned.clear()
            level.head = level.count = 0
        return taken
