"""The references that wait in one queue, in order, by priority.

Operations are O(1), the ones for many references apart: append at the tail, take from the head, put a taken reference
back where it was, take one from the middle, continue from a position. Consumers with and without
selectors, browsers and rollbacks need no more.

Not here: the references of one priority (``level``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from understudy.routing.queues.level import Level
from understudy.store.messages.backlog import Backlog
from understudy.store.messages.reference import Location, MessageReference, Part
from understudy.store.messages.reference_block import BlockPages


class PendingMessages:
    """The levels of a queue."""

    __slots__ = ("_keep_open", "_levels", "_pages", "by_priority")

    def __init__(self, pages: BlockPages | None = None) -> None:
        """``pages``: where the references of a deep queue are spilled to; None keeps them in memory."""
        self._keep_open = False
        self.by_priority: list[Level | None] = [None] * 10
        """Levels by their number; None: not made yet (``level``)."""
        self._levels: list[Level] = []
        self._pages = pages

    def __len__(self) -> int:
        return sum(level.count for level in self._levels)

    def __iter__(self) -> Iterator[MessageReference]:
        """Iterate over the pending messages in delivery order; no message may be added or taken meanwhile."""
        for level in self._levels:
            yield from level

    @property
    def levels(self) -> list[Level]:
        """Highest priority first; empty levels included."""
        return self._levels

    @property
    def spilled_count(self) -> int:
        """References in page files."""
        return sum(level.spilled_count for level in self._levels)

    @property
    def oldest_id(self) -> int | None:
        """Lowest id of the first messages of all priorities (``Level.oldest_id``); None: nothing waits."""
        return min((each for level in self._levels if (each := level.oldest_id) is not None), default=None)

    def keep_open(self) -> None:
        """Keep references in memory, open, from now on: ``at`` is asked all the time."""
        self._keep_open = True
        for level in self._levels:
            level.keep_open = True

    def level(self, priority: int) -> Level:
        """The level of a priority, made when first needed."""
        found = self.by_priority[priority]
        if found is None:
            found = self.by_priority[priority] = Level(priority, self._pages, keep_open=self._keep_open)
            self._levels.append(found)
            self._levels.sort(key=lambda level: -level.priority)
        return found

    def append(self, reference: MessageReference) -> None:
        """Add a reference at the end of its priority."""
        level = self.by_priority[reference.priority]
        if level is None:
            level = self.level(reference.priority)
        level.append(reference)

    def adopt(self, backlog: Backlog) -> None:
        """Take over what the log says waits, into an empty structure. Nothing is done per message:
        start-up and takeover with a backlog must cost next to nothing.
        """
        for priority, blocks in backlog.blocks().items():
            self.level(priority).append_blocks(blocks)

    def at(self, priority: int, position: int, message_id: int) -> MessageReference | None:
        """The message of that id if it waits at that place, where it stays; None if it does not."""
        level = self.by_priority[priority]
        found = level.next_from(position) if level is not None else None
        return found if found is not None and found.message_id == message_id else None

    def take_part(self, part: Part) -> None:
        """Take messages that ``Level.part_from`` just gave, or neighbours of these."""
        self.level(part.priority).take(part)

    def remove(self, reference: MessageReference) -> None:
        """Take the one that ``at`` or a level's ``next_from`` just gave."""
        self.level(reference.priority).remove(reference.position)

    def remove_last(self, reference: MessageReference) -> None:
        """Take the one that ``append`` just added; its position is set."""
        level = self.level(reference.priority)
        last = level.next_from(level.end - 1)
        assert last is not None
        reference.position = last.position
        level.remove(last.position)

    def first_level(self) -> Level | None:
        """The highest level with anything in it."""
        for level in self._levels:
            if level.count:
                return level
        return None

    def requeue(self, references: Iterable[MessageReference]) -> None:
        """Back to where each was taken from; one that never had a place goes to the end."""
        by_priority: dict[int, list[MessageReference]] = {}
        for reference in references:
            if reference.position < 0:
                self.append(reference)
                continue
            by_priority.setdefault(reference.priority, []).append(reference)
        for priority, group in by_priority.items():
            self.level(priority).requeue(group)

    def locations_behind(self, reference: MessageReference) -> Iterator[Location | None]:
        """Locations of the messages after a reference that ``pop`` or ``next_from`` has returned last."""
        level = self.by_priority[reference.priority]
        return level.locations_behind(reference.position) if level is not None else iter(())

    def take(self, message_ids: Iterable[int]) -> list[MessageReference]:
        """Take the messages of these ids, looking from the front; they can be put back."""
        wanted = set(message_ids)
        taken: list[MessageReference] = []
        for level in self._levels:
            position = -1
            while wanted and (reference := level.next_from(position)) is not None:
                position = reference.position + 1
                if reference.message_id in wanted:
                    wanted.discard(reference.message_id)
                    level.remove(reference.position)
                    taken.append(reference)
        return taken

    def take_overdue(self, now_ms: int, limit: int) -> list[MessageReference]:
        """Take those that expire by then; at most ``limit`` at a time, empty when there are none."""
        taken: list[MessageReference] = []
        for level in self._levels:
            if len(taken) < limit:
                taken += level.take_overdue(now_ms, limit - len(taken))
        return taken

    def drain(self) -> Iterator[Part]:
        """Take everything, a part at a time."""
        for level in self._levels:
            while level.count:
                yield level.take_front()
