"""The outcome of every message, judged from the clients' ledgers and from the messages left in the queues.

Each function is one rule of ``understudy.ledger`` over the judge's state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from understudy.ledger.columns import Deliveries, Producer
from understudy.ledger.report import Finding, Reason
from understudy.ledger.rows import END_MS, Row

#: Producers by name.
_Producers = Mapping[str, Producer]
#: Deliveries by queue and producer.
_Queues = Mapping[str, Mapping[str, Deliveries]]
#: (producer, number) of messages that are known by other means to be in a queue.
_Kept = Collection[tuple[str, int]]


class Drains:
    """When each queue and each address was last seen completely."""

    def __init__(self, *, complete: bool) -> None:
        """
        Args:
            complete: All queues were seen after the end of the run.
        """
        self._complete = complete
        self._queues: dict[str, int] = {}
        self._addresses: dict[str, int] = {}

    def take(self, row: Row) -> None:
        """Take the DRAINED row of a queue."""
        at_ms, queue = row.at_ms, row.queue
        self._queues[queue] = max(at_ms, self._queues.get(queue, -1))
        for name in {row.address, queue, f"{row.address}::{queue}"}:
            self._addresses[name] = max(at_ms, self._addresses.get(name, -1))

    def queue_seen_at(self, queue: str) -> int:
        """Time at which a queue was seen drained; -1 for never."""
        return END_MS if self._complete else self._queues.get(queue, -1)

    def address_seen_at(self, address: str) -> int:
        """Time at which the name was seen to which a message was sent: an address, a queue, or ``address::queue``; -1
        for never.
        """
        return END_MS if self._complete else self._addresses.get(address, -1)


def undelivered(producers: _Producers, drains: Drains, kept: _Kept, clock_skew_ms: int) -> Iterator[Finding]:
    """Confirmed durable messages that no consumer and no queue has."""
    for name, producer in producers.items():
        for number, confirmed_at in producer.confirmed_at.entries():
            if (
                producer.delivered_at.get(number) >= 0
                or number in producer.transient
                or number in producer.remaining_at
                or (name, number) in kept
            ):
                continue
            seen_at = drains.address_seen_at(producer.address_of(number))
            drained = seen_at >= confirmed_at + clock_skew_ms
            yield Finding(name, number, "", Reason.NEVER_DELIVERED if drained else Reason.DELIVERY_NOT_SEEN)


def unacknowledged(
    producers: _Producers, queues: _Queues, drains: Drains, kept: _Kept, clock_skew_ms: int
) -> Iterator[Finding]:
    """Confirmed durable messages that were delivered on a queue and neither acknowledged there nor kept."""
    for queue, by_producer in queues.items():
        seen_at = drains.queue_seen_at(queue)
        for name, deliveries in by_producer.items():
            producer = producers[name]
            for number in deliveries.unacknowledged():
                confirmed_at = producer.confirmed_at.get(number)
                if (
                    confirmed_at < 0
                    or number in producer.transient
                    or number in producer.remaining_at
                    or (name, number) in kept
                    or (queue, number) in producer.moved
                    or deliveries.attempts.get(number, 0) > 0
                ):
                    continue
                drained = seen_at >= confirmed_at + clock_skew_ms and deliveries.old.get(number) < 0
                reason = Reason.NEVER_ACKNOWLEDGED if drained else Reason.ACKNOWLEDGEMENT_NOT_SEEN
                yield Finding(name, number, queue, reason)


def incomplete(producers: _Producers, drains: Drains, kept: _Kept, clock_skew_ms: int) -> Iterator[Finding]:
    """Unconfirmed messages that are nowhere although others of their transaction took effect."""
    for name, producer in producers.items():
        for numbers in producer.transactions.values():
            if not numbers.isdisjoint(producer.refused):
                continue
            evidence = [at_ms for number in numbers if (at_ms := _effect_at(producer, number)) >= 0]
            if not evidence:
                continue
            for number in numbers:
                if _effect_at(producer, number) >= 0 or number in producer.transient or (name, number) in kept:
                    continue
                since = max(producer.sent_at.get(number), min(evidence))
                drained = drains.address_seen_at(producer.address_of(number)) >= since + clock_skew_ms
                reason = Reason.PART_OF_A_TRANSACTION if drained else Reason.TRANSACTION_NOT_SEEN
                yield Finding(name, number, "", reason)


def _effect_at(producer: Producer, number: int) -> int:
    """When the message was first known to have been taken by the broker; -1 for not at all."""
    times = (
        producer.confirmed_at.get(number),
        producer.delivered_at.get(number),
        producer.remaining_at.get(number, -1),
    )
    return min((at_ms for at_ms in times if at_ms >= 0), default=-1)


def remaining_after_acknowledgement(queues: _Queues, clock_skew_ms: int) -> Iterator[Finding]:
    """Messages a queue still had later than the confirmation of their acknowledgement."""
    for queue, by_producer in queues.items():
        for name, deliveries in by_producer.items():
            for number, at_ms in deliveries.remaining_at.items():
                acknowledged_at = deliveries.first_acknowledgement(number)
                if acknowledged_at >= 0 and at_ms > acknowledged_at + clock_skew_ms:
                    yield Finding(name, number, queue, Reason.REMAINING_AFTER_ACKNOWLEDGEMENT)


def corrupted(producers: _Producers, queues: _Queues) -> Iterator[Finding]:
    """Bodies that are not the one that was sent."""
    for queue, by_producer in queues.items():
        for name, deliveries in by_producer.items():
            producer = producers[name]
            for number, digests in deliveries.digests.items():
                if not all(producer.may_have(number, digest) for digest in digests):
                    yield Finding(name, number, queue, Reason.ANOTHER_BODY)


def refused(producers: _Producers, kept: _Kept) -> Iterator[Finding]:
    """Messages that were refused or rolled back for certain, and that a consumer or a queue has."""
    for name, producer in producers.items():
        for number in producer.refused:
            seen = producer.delivered_at.get(number) >= 0 or number in producer.remaining_at
            if seen or (name, number) in kept:
                yield Finding(name, number, "", Reason.VISIBLE_AFTER_REFUSAL)
