"""Ring queues: no more than so many messages wait; newer messages replace the oldest (manual, "Ring Queues").

Messages that are being delivered or scheduled do not count and are never removed, so a queue may hold
more for a while. When such a message comes back to a full ring, the oldest message of its priority is removed, which
may be that message. A queue of AMQP 0-9-1 (x-overflow drop-head) that has consumers is served first: messages that a
consumer takes are not dropped, as in RabbitMQ. A size that was lowered is reached by consuming, not by removing: a new
message removes one. Other than in Artemis, messages whose body left memory count like any other.

Not here: queues (``queue``) and their other properties (``kinds``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from understudy.routing.queues.special import SpecialQueue
from understudy.store.messages.reference import MessageReference

_UNLIMITED: Final = 1 << 62


class Ring:
    """Bound of the messages of one queue."""

    __slots__ = ("_consumers_first", "_queue", "size", "size_bytes")

    def __init__(
        self, queue: SpecialQueue, size: int, size_bytes: int = _UNLIMITED, *, consumers_first: bool = False
    ) -> None:
        """Args:
        queue: The bounded queue.
        size: Messages that may wait.
        size_bytes: Bytes of all messages that the queue may have while one waits.
        consumers_first: Whether consumers are served before new messages are counted.
        """
        self._queue = queue
        self._consumers_first = consumers_first
        self.size = size
        self.size_bytes = size_bytes

    @property
    def full(self) -> bool:
        """Whether the queue holds as many messages as it may."""
        return len(self._queue.pending) >= self.size

    @property
    def _holds_too_much(self) -> bool:
        return len(self._queue.pending) > 0 and self._queue.address.size_bytes > self.size_bytes

    def added(self) -> None:
        """A message was added at the end: the first is removed, if they are too many now, and further ones while they
        have too many bytes.
        """
        if self._consumers_first and self._queue.consumers.by_priority:
            # the queue is served in this turn
            return
        if len(self._queue.pending) > self.size:
            self._remove_first()
        while self._holds_too_much and self._remove_first():
            pass

    def served(self) -> None:
        """A dispatch has ended: remove messages while there are too many."""
        if self._consumers_first:
            while len(self._queue.pending) > self.size and self._remove_first():
                pass
            while self._holds_too_much and self._remove_first():
                pass

    def _remove_first(self) -> bool:
        queue = self._queue
        level = queue.pending.first_level()
        reference = level.pop() if level is not None else None
        if reference is not None:
            queue.replaced(reference)
        return reference is not None

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


def ring_of(queue: SpecialQueue) -> Ring:
    """The bound that the configuration of a queue asks for."""
    arguments, size = queue.configuration.arguments, queue.configuration.ring_size
    bounds = [] if size is None or size < 0 else [size]
    size_bytes = _UNLIMITED
    drops_head = arguments is not None and arguments.drops_head
    if arguments is not None and drops_head:
        bounds += [] if arguments.max_length is None else [arguments.max_length]
        size_bytes = _UNLIMITED if arguments.max_length_bytes is None else arguments.max_length_bytes
    return Ring(queue, min(bounds, default=_UNLIMITED), size_bytes, consumers_first=drops_head)
