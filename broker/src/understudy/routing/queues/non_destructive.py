"""Non-destructive queues: consumers see everything and take nothing (manual, "Non-Destructive
Queues").

A delivery hands a copy of the reference to one consumer, while the reference itself stays in the queue for the other
consumers. Each consumer reads the queue from its start, higher priorities first. An acknowledgement ends the copy only.
Messages leave the queue by expiry, by a newer last value, by the size of a ring or by an operation of management, never
because of a consumer: failed deliveries count for the consumer that failed, and after ``max-delivery-attempts`` of
them, or when it rejects the message, that consumer does not get the message again. The others do.

A copy that a consumer returns is offered to the same consumer again, before messages that it has not seen. Redelivery
delays do not apply, because the message remains in the queue; neither do message groups, because every consumer sees
every message.

Not here: the order of dispatch (``delivery``). Invariant: a ``DeliveredCopy`` is never in a place
of the queue, and holds the file of a large message until it is given back.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Sequence

from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.special import SpecialQueue
from understudy.store.messages.reference import LargeReference, MessageReference

log = logging.getLogger(__name__)


class DeliveredCopy(MessageReference):
    """The copy of a reference that one consumer has; the message stays in the queue."""

    __slots__ = ("consumer", "file_id", "initial_delivery_count")

    consumer: Consumer
    """The consumer that has the copy."""
    file_id: int | None
    """File of a large message; held."""
    initial_delivery_count: int
    """Failed deliveries of the message to the same consumer when the copy was made."""


class NonDestructiveDeliveries:
    """The copies of the messages of one queue that its consumers hold."""

    __slots__ = ("_again", "_queue")

    def __init__(self, queue: SpecialQueue) -> None:
        self._queue = queue
        self._again: dict[Consumer, list[tuple[int, int, int, int]]] = {}
        """Messages that a consumer gave back: priority from the highest as 0 up, position, message id, and failed
        deliveries to this consumer."""

    def copy_for(self, reference: MessageReference, consumer: Consumer, failures: int = 0) -> DeliveredCopy:
        """A copy for a consumer, to which so many deliveries of the message have failed."""
        copy = DeliveredCopy(
            reference.message_id,
            reference.priority,
            reference.expiration,
            reference.scheduled_ms,
            reference.size_bytes,
            False,
            None,
        )
        copy.delivery_count = copy.initial_delivery_count = failures
        copy.position = reference.position
        copy.consumer = consumer
        copy.file_id = None
        if isinstance(reference, LargeReference):
            copy.file_id = reference.file_id
            self._queue.store.large.hold(reference.file_id)
        self._queue.delivering_count += 1
        return copy

    def next_again(self, consumer: Consumer, now_ms: int) -> tuple[MessageReference, int] | None:
        """The next message that a consumer gave back and may have again, which stays in the queue, and its failed
        deliveries to this consumer.
        """
        places = self._again.get(consumer)
        while places:
            level, position, message_id, failures = places.pop(0)
            reference = self._queue.pending.at(9 - level, position, message_id)
            if reference is not None and not 0 < reference.expiration <= now_ms:
                return reference, failures
        return None

    def settled(self, references: Sequence[MessageReference]) -> list[MessageReference]:
        """End the copies among them. Returns the other references, which were delivered before the queue became
        non-destructive.
        """
        others: list[MessageReference] = []
        for reference in references:
            if isinstance(reference, DeliveredCopy):
                self._end(reference)
            else:
                others.append(reference)
        return others

    def original(self, reference: DeliveredCopy) -> MessageReference | None:
        """End a copy and take its message out of the queue; None if that has left already."""
        self._end(reference)
        waiting = self._queue.pending
        found = waiting.at(reference.priority, reference.position, reference.message_id)
        if found is not None:
            waiting.remove(found)
        return found

    def cancelled(self, references: Sequence[MessageReference]) -> list[MessageReference]:
        """End the copies among them, which failed (their ``delivery_count`` has grown) or were not processed. Returns
        the other references.
        """
        others: list[MessageReference] = []
        present = set(self._queue.consumers)
        for reference in references:
            if not isinstance(reference, DeliveredCopy):
                others.append(reference)
                continue
            self._end(reference)
            if reference.consumer in present and self._may_be_tried(reference):
                place = (9 - reference.priority, reference.position, reference.message_id, reference.delivery_count)
                insort(self._again.setdefault(reference.consumer, []), place)
        self._queue.prompt()
        return others

    def _may_be_tried(self, copy: DeliveredCopy) -> bool:
        """Whether its consumer gets the message again: deliveries to it have not failed too often."""
        attempts = self._queue.address.settings.max_delivery_attempts
        if not 0 < attempts <= copy.delivery_count or copy.delivery_count == copy.initial_delivery_count:
            return True
        log.warning(
            "a consumer of a non-destructive queue gets a message no more, which has failed too often there; other"
            " consumers get it",
            extra={"queue": self._queue.name, "message_id": copy.message_id, "deliveries": copy.delivery_count},
        )
        return False

    def left(self, consumer: Consumer) -> None:
        """Called when a consumer is gone."""
        self._again.pop(consumer, None)

    def _end(self, copy: DeliveredCopy) -> None:
        self._queue.delivering_count -= 1
        if copy.file_id is not None:
            self._queue.store.large.release(copy.file_id)
            copy.file_id = None
