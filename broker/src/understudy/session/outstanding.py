"""What a consumer was given and has not settled, in the order of delivery.

Messages that were delivered together stay a slice of their run; one that was delivered on its own is a reference. Both
are settled from the front nearly always, which costs the same however many are outstanding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from understudy.store.reference import MessageReference, RunSlice

_Part = RunSlice | dict[int, MessageReference]
"""A slice, or message ids and references in order."""


class Outstanding:
    """The outstanding deliveries of one consumer, by message id."""

    __slots__ = ("_count", "_parts")

    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Message ids in the order of delivery."""
        for part in self._parts:
            yield from part.ids if isinstance(part, RunSlice) else part

    def __contains__(self, message_id: object) -> bool:
        return any(message_id in _ids(part) for part in self._parts)

    def values(self) -> Iterator[MessageReference]:
        """Every delivery as a reference; those of a slice are made for the caller."""
        for part in self._parts:
            yield from part if isinstance(part, RunSlice) else part.values()

    def add(self, reference: MessageReference) -> None:
        """A message was delivered."""
        parts = self._parts
        last = parts[-1] if parts else None
        if isinstance(last, dict):
            last[reference.message_id] = reference
        else:
            parts.append({reference.message_id: reference})
        self._count += 1

    def extend(self, references: Sequence[MessageReference], count: int) -> None:
        """``count`` messages were delivered together."""
        parts = self._parts
        if isinstance(references, RunSlice):
            last = parts[-1] if parts else None
            if (
                isinstance(last, RunSlice)
                and last.run is references.run
                and last.end == references.begin
                and last.deliveries == references.deliveries
            ):
                # neighbours, as those of a message group that were given one by one
                last.end = references.end
            else:
                parts.append(references)
        else:
            parts.append({reference.message_id: reference for reference in references})
        self._count += count

    def take_through(self, message_id: int) -> list[Sequence[MessageReference]]:
        """Take everything up to this delivery, in order; nothing if it is not outstanding."""
        parts = self._parts
        before = 0
        for part in parts:
            if message_id in _ids(part):
                break
            before += 1
        else:
            return []
        taken: list[Sequence[MessageReference]] = []
        for _ in range(before):
            whole = parts.popleft()
            taken.append(whole if isinstance(whole, RunSlice) else list(whole.values()))
        part = parts[0]
        if isinstance(part, RunSlice):
            size, count = part.end - part.begin, part.run.row_of(message_id) - part.begin + 1
            if count == size:
                taken.append(parts.popleft())  # type: ignore[arg-type]  # it is the slice
            else:
                taken.append(part.part(0, count))
                parts[0] = part.part(count, size)
        else:
            through: list[MessageReference] = []
            while not through or through[-1].message_id != message_id:
                through.append(part.pop(next(iter(part))))
            taken.append(through)
            if not part:
                parts.popleft()
        self._count -= sum(map(len, taken))
        return taken

    def take_one(self, message_id: int) -> Sequence[MessageReference]:
        """Take this delivery; empty if it is not outstanding."""
        parts = self._parts
        for index, part in enumerate(parts):
            if message_id not in _ids(part):
                continue
            self._count -= 1
            if isinstance(part, RunSlice):
                number = part.run.row_of(message_id) - part.begin
                before, after = part.part(0, number), part.part(number + 1, len(part))
                del parts[index]
                for rest in (after, before):
                    if rest:
                        parts.insert(index, rest)
                return part.part(number, number + 1)
            reference = part.pop(message_id)
            if not part:
                del parts[index]
            return (reference,)
        return ()

    def clear(self) -> list[MessageReference]:
        """Take all of them, in order."""
        taken = list(self.values())
        self._parts.clear()
        self._count = 0
        return taken


def _ids(part: _Part) -> Sequence[int] | dict[int, MessageReference]:
    return part.ids if isinstance(part, RunSlice) else part
