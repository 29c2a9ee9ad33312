"""Deliveries that a consumer has not settled, in the order of delivery.

Messages that were delivered together stay a slice of their run; those that are references are kept by their ids. Both
are settled from the front nearly always, which costs the same however many are outstanding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from understudy.store.reference import MessageReference, Part, References


class Outstanding:
    """The outstanding deliveries of one consumer, by message id."""

    __slots__ = ("_parts", "count")

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self.count = 0
        """Messages."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        """Message ids in the order of delivery."""
        for part in self._parts:
            yield from part.ids

    def __contains__(self, message_id: object) -> bool:
        return any(message_id in part.ids for part in self._parts)

    def values(self) -> Iterator[MessageReference]:
        """Every delivery as a reference; those of a slice are made for the caller."""
        for part in self._parts:
            yield from part

    def add(self, part: Part) -> None:
        """Messages were delivered together."""
        parts = self._parts
        if not parts or not parts[-1].join(part):
            parts.append(part.kept())
        self.count += len(part)

    def take_through(self, message_id: int) -> list[Part]:
        """Take everything up to this delivery, in order; nothing if it is not outstanding."""
        parts = self._parts
        before = 0
        for part in parts:
            last = part.take_through(message_id)
            if last is not None:
                break
            before += 1
        else:
            return []
        taken: list[Part] = [parts.popleft() for _ in range(before)] if before else []
        taken.append(last)
        if last is part:
            parts.popleft()
        self.count -= sum(map(len, taken))
        return taken

    def take_one(self, message_id: int) -> Part:
        """Take this delivery; empty if it is not outstanding."""
        parts = self._parts
        for index, part in enumerate(parts):
            number = part.find(message_id)
            if number < 0:
                continue
            self.count -= 1
            rest = [each for each in (part.part(0, number), part.part(number + 1, len(part))) if each]
            del parts[index]
            for each in reversed(rest):
                parts.insert(index, each)
            return part.part(number, number + 1)
        return References()

    def clear(self) -> list[MessageReference]:
        """Take all of them, in order."""
        taken = list(self.values())
        self._parts.clear()
        self.count = 0
        return taken
