"""References that an open transaction adds, as a reader of the log knows them.

Few of them are kept as objects; of a large transaction all but the newest are rows of columns (``backlog``), about 20
bytes each, which join the backlogs of their queues when the transaction commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from understudy.store.messages.backlog import Backlog
from understudy.store.messages.columns import Rows
from understudy.store.messages.reference import Location, MessageReference

#: References that are kept as objects.
_OBJECTS_MAX: Final = 4096


class StagedReferences:
    """Queue ids and references; of one queue and priority in the order in which they were added."""

    __slots__ = ("_backlogs", "_newest")

    def __init__(self) -> None:
        self._newest: list[tuple[int, MessageReference]] = []
        self._backlogs: dict[int, Backlog] = {}
        """Queue id to the oldest."""

    def __len__(self) -> int:
        return len(self._newest) + sum(backlog.count for backlog in self._backlogs.values())

    def __iter__(self) -> Iterator[tuple[int, MessageReference]]:
        for queue_id, backlog in self._backlogs.items():
            for reference in backlog.references():
                yield queue_id, reference
        yield from self._newest

    def append(self, queue_id: int, reference: MessageReference) -> None:
        """Add one reference for a queue."""
        self._newest.append((queue_id, reference))
        if len(self._newest) > _OBJECTS_MAX:
            self._pack()

    def extend(self, queue_id: int, priority: int, segment: int, rows: Rows) -> None:
        """Add references of one priority for a queue; all their messages lie in that segment of the log."""
        self._pack()
        self._backlog(queue_id).extend(priority, segment, rows)

    def _pack(self) -> None:
        for owner_id, each in self._newest:
            self._backlog(owner_id).append_reference(each)
        self._newest.clear()

    def _backlog(self, queue_id: int) -> Backlog:
        backlog = self._backlogs.get(queue_id)
        if backlog is None:
            backlog = self._backlogs[queue_id] = Backlog()
        return backlog

    def clear(self) -> None:
        """Remove all staged references."""
        self._newest.clear()
        self._backlogs.clear()

    def remove_queue(self, queue_id: int) -> None:
        """Forget the references of a queue."""
        self._newest = [entry for entry in self._newest if entry[0] != queue_id]
        self._backlogs.pop(queue_id, None)

    def relocate(self, message_id: int, location: Location) -> None:
        """Record the new place of a message in the log, whether or not a staged reference names it."""
        for _, reference in self._newest:
            if reference.message_id == message_id:
                reference.location = location
        for backlog in self._backlogs.values():
            backlog.relocate(message_id, location)

    def commit(self, references: dict[int, Backlog]) -> None:
        """Append every staged reference to its queue."""
        for queue_id, staged in self._backlogs.items():
            backlog = references.get(queue_id)
            if backlog is None:
                references[queue_id] = staged
            else:
                backlog.absorb(staged)
        for queue_id, reference in self._newest:
            backlog = references.get(queue_id)
            if backlog is None:
                backlog = references[queue_id] = Backlog()
            backlog.append_reference(reference)
