"""Deliveries that a consumer has not settled, in the order of delivery.

Messages that were delivered together stay a slice of their run; those that are references are kept by their ids. Both
are settled from the front nearly always, which costs the same however many are outstanding. Each part has the time at
which its first message was delivered; messages that were delivered within a second of it may share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from understudy.store.messages.reference import MessageReference, Part, References

#: Messages delivered later than that after the first one of a part do not join it.
_SAME_TIME_MS: Final = 1_000


class Outstanding:
    """The outstanding deliveries of one consumer, by message id."""

    __slots__ = ("_parts", "_times", "count")

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._times: deque[int] = deque()
        """Wall time of each part."""
        self.count = 0
        """Number of outstanding messages."""

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

    def add(self, part: Part, now_ms: int = 0) -> None:
        """Messages were delivered together, at this wall time."""
        parts = self._parts
        if not parts or now_ms - self._times[-1] > _SAME_TIME_MS or not parts[-1].join(part):
            parts.append(part.kept())
            self._times.append(now_ms)
        self.count += len(part)

    @property
    def oldest_ms(self) -> int | None:
        """Wall time of the oldest delivery; None if there is none."""
        return self._times[0] if self._times else None

    def delivered_ms(self, message_id: int) -> int | None:
        """Wall time at which a message was delivered, up to a second too early; None if it is not outstanding."""
        for part, time_ms in zip(self._parts, self._times, strict=True):
            if part.find(message_id) >= 0:
                return time_ms
        return None

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
            before += 1
        for _ in range(before):
            self._times.popleft()
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
            time_ms = self._times[index]
            del self._times[index]
            for each in reversed(rest):
                parts.insert(index, each)
                self._times.insert(index, time_ms)
            return part.part(number, number + 1)
        return References()

    def clear(self) -> list[MessageReference]:
        """Take every outstanding delivery, in order."""
        taken = list(self.values())
        self._parts.clear()
        self._times.clear()
        self.count = 0
        return taken
