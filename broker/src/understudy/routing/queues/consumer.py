"""The consumers of a queue as the queue sees them: by priority, and whether one can take a message now.

Not here: which consumer is next (``delivery``), what a consumer does with a message (``session.consumer``), how much
it may be sent (``flow_control``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

from understudy.routing.filter import ExcludingFilter, Filter
from understudy.routing.queues.flow_control import FlowControl
from understudy.store.messages.reference import Part

#: Number of bytes sent to a consumer before its ``writable`` is called again.
ALLOWANCE_BYTES: Final = 256 * 1024


class Consumer(ABC):
    """The routing side of a consumer."""

    __slots__ = (
        "allowance_bytes", "cursors", "filter", "flow", "overhead_bytes", "priority", "started",
    )  # fmt: skip

    def __init__(self, filter: Filter | None, priority: int, flow: FlowControl) -> None:  # noqa: A002
        self.filter = filter
        self.priority = priority
        self.flow = flow
        """Credit of the client; the consumer waits while it is not above zero."""
        self.allowance_bytes = 0
        """Number of bytes that the consumer may still get before its ``writable`` is called again."""
        self.overhead_bytes = 0
        """Bytes that each delivery costs beside its message, if that is always the same number or credits are in
        messages; 0: it takes no runs."""
        self.started = False
        self.cursors: dict[int, int] = {}
        """Priority to the position before which no message waits for this consumer."""

    @abstractmethod
    def writable(self) -> bool:
        """Whether the consumer's socket accepts more bytes."""

    @abstractmethod
    def deliver(self, part: Part) -> None:
        """Send messages, and keep them until they are settled; charges credits and allowance. Their messages are in
        memory, or there is one, with the part of it that is shown.
        """

    @abstractmethod
    def abandon(self, bug: Exception) -> None:
        """A bug was met on its behalf: its connection ends, and no other is affected."""

    @abstractmethod
    def disconnect(self) -> None:
        """Notify the client and forget delivered messages; called when the queue was deleted."""

    @abstractmethod
    def resume(self, *, done: bool) -> None:
        """The turn requested with ``Queue.resume_scan``. ``done``: the queue has no further message for consumers."""

    def exclude(self, message_id: int) -> bool:
        """Do not deliver a message to this consumer again (AMQP 1.0 s. 3.4.5, undeliverable-here). Returns whether its
        queue has to choose the way of dispatch again, because the consumer takes everything no longer.
        """
        first = not isinstance(self.filter, ExcludingFilter)
        if not isinstance(self.filter, ExcludingFilter):
            self.filter = ExcludingFilter(self.filter)
        self.filter.exclude(message_id)
        return first

    def include_all(self) -> None:
        """Deliver the messages that are excluded again, from the start of the queue on."""
        if isinstance(self.filter, ExcludingFilter):
            self.filter.clear()
            self.cursors.clear()

    def room(self) -> tuple[int, int]:
        """Limits of the next messages together: bytes, and how many each of them counts beside its own.

        With credit in messages each counts so many that no more than the credit fit; then up to four times the
        allowance is given out at once, so that few of the credit are left over.
        """
        credits, allowance_bytes = self.flow.credits, self.allowance_bytes  # noqa: A001  # the name of the field
        if self.flow.counts_bytes:
            return min(credits, allowance_bytes), self.overhead_bytes
        room_bytes = 4 * allowance_bytes
        each_bytes = max(self.overhead_bytes, room_bytes // credits)
        return min(credits * each_bytes, room_bytes), each_bytes

    @property
    def ready(self) -> bool:
        """Whether the consumer can take a message now; asks the socket when the allowance is used up."""
        if not self.started or self.flow.credits <= 0:
            return False
        if self.allowance_bytes <= 0:
            if not self.writable():
                return False
            self.allowance_bytes = ALLOWANCE_BYTES
        return True


class ConsumerGroup:
    """Consumers of one priority, and the one whose turn it is."""

    __slots__ = ("consumers", "priority", "turn")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.consumers: list[Consumer] = []
        self.turn = 0

    def ready(self) -> list[Consumer]:
        """Consumers that can take a message, the one whose turn it is first."""
        consumers, turn = self.consumers, self.turn
        if len(consumers) == 1:
            return consumers[:] if consumers[0].ready else []
        return [consumer for consumer in consumers[turn:] + consumers[:turn] if consumer.ready]

    def served(self, last: Consumer) -> None:
        """Begin the next round with the consumer after ``last``."""
        if len(self.consumers) > 1 and last in self.consumers:
            self.turn = (self.consumers.index(last) + 1) % len(self.consumers)


class QueueConsumers:
    """All consumers of one queue, without browsers."""

    __slots__ = ("by_priority", "count", "left_ms", "searching", "served_alone")

    def __init__(self) -> None:
        self.by_priority: list[ConsumerGroup] = []
        """Highest priority first; empty without consumers."""
        self.count = 0
        self.left_ms = 0
        """Wall time at which a consumer left last; 0: never since the activation."""
        self.served_alone: Consumer | None = None
        """The consumer of an exclusive queue that was given messages, until it leaves."""
        self.searching: list[Consumer] = []
        """Consumers and browsers that go on after the next dispatch (``Consumer.resume``)."""

    def __iter__(self) -> Iterator[Consumer]:
        for group in self.by_priority:
            yield from group.consumers

    @property
    def selective(self) -> bool:
        """Whether a consumer has a selector."""
        return any(consumer.filter is not None for consumer in self)

    def add(self, consumer: Consumer) -> None:
        """Add a consumer to those of its priority."""
        self.count += 1
        for group in self.by_priority:
            if group.priority == consumer.priority:
                break
        else:
            group = ConsumerGroup(consumer.priority)
            self.by_priority.append(group)
            self.by_priority.sort(key=lambda group: -group.priority)
        group.consumers.append(consumer)

    def remove(self, consumer: Consumer) -> bool:
        """Called when a consumer or browser leaves. Returns whether it was a consumer."""
        if consumer in self.searching:
            self.searching = [each for each in self.searching if each is not consumer]
        for group in self.by_priority:
            if consumer in group.consumers:
                break
        else:
            return False
        group.consumers.remove(consumer)
        group.turn = 0
        if not group.consumers:
            self.by_priority.remove(group)
        self.count -= 1
        if self.served_alone is consumer:
            self.served_alone = None
        return True

    def restart_turns(self) -> None:
        """Begin the next round with the first consumer of each priority."""
        for group in self.by_priority:
            group.turn = 0

    def forget_cursors(self) -> None:
        """Each consumer looks from the start of the queue again."""
        for consumer in self:
            consumer.cursors.clear()
