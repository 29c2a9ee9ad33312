"""Special behaviour of a queue: last values, a ring, non-destructive delivery, a gate before the first dispatch.
Each part decides for itself; here is in which order they are asked.

An ordinary queue has none of this and pays one attribute test for it. A queue that once had some
keeps the object, so that messages delivered before a change are settled by the rules of that time.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.ports import Timers
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.dispatch_gate import DispatchGate
from understudy.routing.queues.last_value import LastValues
from understudy.routing.queues.non_destructive import NonDestructiveDeliveries
from understudy.routing.queues.ring import Ring, ring_of
from understudy.routing.queues.special import SpecialQueue
from understudy.store.messages.reference import MessageReference


def is_ordinary(full: QueueConfiguration) -> bool:
    """Whether a queue of this configuration needs none of this."""
    return not (
        full.last_value
        or full.non_destructive
        or full.bounded
        or (full.consumers_before_dispatch or 0) > 0
        or (full.group_rebalance and full.group_rebalance_pause_dispatch)
    )


class QueueKind:
    """The special behaviour of one queue: last value, ring, non-destructive, dispatch gate."""

    __slots__ = ("_copies", "_queue", "gate", "last_values", "non_destructive", "ring")

    def __init__(self, queue: SpecialQueue, timers: Timers) -> None:
        self._queue = queue
        self.gate = DispatchGate(queue, timers)
        self.last_values: LastValues | None = None
        self.ring: Ring | None = None
        self._copies = NonDestructiveDeliveries(queue)
        self.non_destructive = False
        """Whether consumers get copies of references that stay in the queue."""
        self.configure()

    @property
    def copies(self) -> NonDestructiveDeliveries:
        """Copies held by consumers; some may remain after the queue has ceased to be non-destructive."""
        return self._copies

    def configure(self) -> None:
        """Take what the queue's configuration says now."""
        queue, full = self._queue, self._queue.configuration
        if not full.last_value:
            self.last_values = None
        elif self.last_values is None or self.last_values.key != full.last_value_key:
            queue.pending.keep_open()
            self.last_values = LastValues(queue, full.last_value_key or "")
            self.last_values.load()
        self.ring = ring_of(queue) if full.bounded else None
        self.non_destructive = bool(full.non_destructive)
        self.gate.joined()

    def load(self) -> None:
        """Remove messages that should have been removed before a restart; called when the queue has its messages from
        the log."""
        if self.last_values is not None:
            self.last_values.load()
        if self.ring is not None:
            self.ring.load()

    # -- messages in ----------------------------------------------------------------------------

    def remember(self, reference: MessageReference) -> None:
        """Note the values of a message whose body is about to leave memory."""
        if self.last_values is not None:
            self.last_values.remember(reference)

    def added(self, reference: MessageReference) -> None:
        """Note that a message was just added at the end of its priority."""
        if self.last_values is not None:
            reference.position = self._queue.pending.level(reference.priority).end - 1
            self.last_values.added(reference)
        if self.ring is not None:
            self.ring.added()

    def admits(self, reference: MessageReference) -> bool:
        """Whether a scheduled message whose time has come may wait here; a redelivery has its place (``returned``)."""
        return self.ring is None or reference.position >= 0 or not self.ring.full

    def returned(self, references: Sequence[MessageReference]) -> None:
        """Deliveries that failed were put back to their places."""
        if self.last_values is not None:
            self.last_values.returned(references)
        if self.ring is not None:
            self.ring.returned(references)

    def served(self) -> None:
        """A dispatch has ended: no consumer takes further messages now."""
        if self.ring is not None:
            self.ring.served()

    # -- messages out ---------------------------------------------------------------------------

    def settled(self, references: Sequence[MessageReference]) -> Sequence[MessageReference]:
        """End deliveries that were acknowledged. Returns those whose messages leave the queue."""
        left = self._copies.settled(references)
        self.gate_may_open(len(left))
        return left

    def gate_may_open(self, settling: int) -> None:
        """``settling`` outstanding deliveries are about to leave the counts."""
        if not self.gate.open and self._queue.delivering_count <= settling:
            self._queue.prompt()

    def consumer_left(self, consumer: Consumer) -> None:
        """Note that a consumer left; its deliveries were put back or acknowledged before."""
        self._copies.left(consumer)
        self.gate.left()
