"""Ring queues: no more than so many messages wait; newer messages replace the oldest (manual, "Ring Queues").

Messages that are being delivered or scheduled do not count and are never removed, so a queue may hold
more for a while. When such a message comes back to a full ring, the oldest message of its priority is removed, which
may be that message. A size that was lowered is reached by consuming, not by removing: a new
message removes one. Other than in Artemis, messages whose body left memory count like any other.

Not here: queues (``queue``) and their other properties (``kinds``).
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.routing.queues.special import SpecialQueue
from understudy.store.messages.reference import MessageReference


class Ring:
    """Bound of the messages of one queue."""

    __slots__ = ("_queue", "size")

    def __init__(self, queue: SpecialQueue, size: int) -> None:
        """``size``: messages that may wait."""
        self._queue = queue
        self.size = size

    @property
    def full(self) -> bool:
        """Whether the queue holds as many messages as it may."""
        return len(self._queue.pending) >= self.size

    def added(self) -> None:
        """A message was added at the end: the first is removed, if they are too many now."""
        queue = self._queue
        if len(queue.pending) > self.size:
            level = queue.pending.first_level()
            reference = level.pop() if level is not None else None
            if reference is not None:
                queue.replaced(reference)

    def returned(self, references: Sequence[MessageReference]) -> None:
        """Deliveries that failed wait again: where they are too many, the oldest message goes for each of them."""
        queue = self._queue
        for reference in references:
            if len(queue.pending) <= self.size:
                return
            oldest = queue.pending.level(reference.priority).pop()
            if oldest is not None:
                queue.replaced(oldest)

    def load(self) -> None:
        """Remove the oldest messages after a restart or takeover, when all messages wait again."""
        while len(self._queue.pending) > self.size:
            self.added()
