"""The judge's state of a ledger in little memory: columns of whole numbers instead of rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from understudy.ledger.report import Reason
from understudy.ledger.rows import Kind, Row


class Column:
    """Whole numbers -> integers >= 0, in blocks of an array: 8 bytes each where numbers are dense."""

    __slots__ = ("_blocks", "_empty")
    BITS: Final = 8

    def __init__(self, typecode: str = "q") -> None:
        self._blocks: dict[int, array[int]] = {}
        self._empty = array(typecode, [-1]) * (1 << self.BITS)

    def get(self, number: int) -> int:
        """Value of a row; -1 when it is not set."""
        block = self._blocks.get(number >> self.BITS)
        return -1 if block is None else block[number & 255]

    def set(self, number: int, value: int) -> None:
        """Set the value of a number; ``value`` is at least 0."""
        block = self._blocks.get(number >> self.BITS)
        if block is None:
            block = self._blocks[number >> self.BITS] = self._empty[:]
        block[number & 255] = value

    def set_least(self, number: int, value: int) -> None:
        """Keep the smaller of the old and the new value."""
        old = self.get(number)
        if old < 0 or value < old:
            self.set(number, value)

    def numbers(self) -> Iterator[int]:
        """Every number that is set."""
        for number, _ in self.entries():
            yield number

    def entries(self) -> Iterator[tuple[int, int]]:
        """Numbers that have a value, in rising order within a block, with the value."""
        for place, block in self._blocks.items():
            for offset, value in enumerate(block):
                if value >= 0:
                    yield (place << self.BITS) | offset, value


class Producer:
    """The judge's state of one producer's messages."""

    __slots__ = (
        "_address",
        "_addresses",
        "_digests",
        "_other_digests",
        "confirmations",
        "confirmed_at",
        "delivered_at",
        "moved",
        "refused",
        "remaining_at",
        "sent_at",
        "transactions",
        "transient",
    )

    def __init__(self) -> None:
        self.sent_at = Column()
        self.confirmed_at = Column()
        self.delivered_at = Column()
        self.transient: set[int] = set()
        self.confirmations = array("q")
        self.refused: set[int] = set()
        #: Per number still in a queue, the time of its first REMAINING row.
        self.remaining_at: dict[int, int] = {}
        #: (queue, number) of copies that were moved away from that queue.
        self.moved: set[tuple[str, int]] = set()
        #: Numbers sent in each transaction.
        self.transactions: dict[str, set[int]] = {}
        self._digests = Column()
        self._other_digests: dict[int, set[int]] = {}
        self._address: str | None = None
        self._addresses: dict[int, str] = {}

    def take(self, row: Row) -> None:
        """A SENT, CONFIRMED or REFUSED row of a send."""
        number = row.number
        if row.kind is Kind.REFUSED:
            self.refused.add(number)
            return
        self._take_address(number, row.address)
        if row.kind is Kind.SENT:
            self.sent_at.set_least(number, row.at_ms)
            if row.digest:
                self._take_digest(number, row.digest)
            if row.transaction:
                self.transactions.setdefault(row.transaction, set()).add(number)
        else:
            self.confirmed_at.set_least(number, row.at_ms)
            self.confirmations.append(row.at_ms)
        if not row.durable:
            self.transient.add(number)

    def _take_address(self, number: int, address: str) -> None:
        if self._address is None:
            self._address = address
        elif address != self._address or number in self._addresses:
            known = self.sent_at.get(number) >= 0 or self.confirmed_at.get(number) >= 0
            old = self._addresses.get(number, self._address if known else address)
            self._addresses[number] = min(old, address)

    def address_of(self, number: int) -> str:
        """Address to which a message was sent; the least one if the ledger names several."""
        return self._addresses.get(number, self._address or "")

    def _take_digest(self, number: int, digest: int) -> None:
        old = self._digests.get(number)
        if old < 0:
            self._digests.set(number, digest)
        elif old != digest:
            self._other_digests.setdefault(number, set()).add(digest)

    def may_have(self, number: int, digest: int) -> bool:
        """Whether the body with this digest may be the sent one; true while no SENT row gives the digest."""
        known = self._digests.get(number)
        return known in (-1, digest) or digest in self._other_digests.get(number, ())

    def knows_digest(self, number: int) -> bool:
        """Whether the digest of a message is known."""
        return self._digests.get(number) >= 0


#: One delivery or acknowledgement: whether it is an acknowledgement, consumer, time, message id.
Event = tuple[bool, int, int, int]


class Deliveries:
    """One producer's messages on one queue. The usual story of a message, delivered once and
    acknowledged by the same consumer, sits in columns; any other one is kept event by event.
    """

    __slots__ = (
        "_acknowledged_at",
        "_consumer",
        "_delivered_at",
        "_message_id",
        "attempts",
        "course",
        "digests",
        "first_count",
        "old",
        "remaining_at",
        "stories",
    )

    def __init__(self) -> None:
        self._consumer = Column("i")
        self._delivered_at = Column()
        self._message_id = Column()
        self._acknowledged_at = Column()
        self.stories: dict[int, list[Event]] = {}
        #: Per consumer, every delivery in its order: 2 * number + (1 when redelivered).
        self.course: dict[int, array[int]] = {}
        #: Number of different message numbers that were delivered.
        self.first_count = 0
        #: Per number, attempts to acknowledge minus refusals of them; left out once acknowledged.
        self.attempts: dict[int, int] = {}
        #: Per number still in the queue, the time of its last REMAINING row.
        self.remaining_at: dict[int, int] = {}
        #: Digests of delivered or remaining bodies that did not yet match one that was sent.
        self.digests: dict[int, set[int]] = {}
        #: Numbers with a DELIVERED row of version 1.
        self.old = Column("b")

    def take(self, row: Row, consumer: int) -> None:
        """A row of a consumer."""
        kind, number = row.kind, row.number
        if kind is Kind.DELIVERED:
            self.delivered(row, consumer)
            if row.version < 2:
                self.old.set(number, 1)
        elif kind is Kind.ACKNOWLEDGED:
            self.acknowledged(row, consumer)
            self.attempts.pop(number, None)
        elif kind is Kind.REMAINING:
            self.remaining_at[number] = max(row.at_ms, self.remaining_at.get(number, 0))
        else:
            self.attempts[number] = self.attempts.get(number, 0) + (1 if kind is Kind.ACKNOWLEDGING else -1)

    def unacknowledged(self) -> Iterator[int]:
        """Numbers that were delivered and never acknowledged."""
        for number, _ in self._consumer.entries():
            if number not in self.stories and self._acknowledged_at.get(number) < 0:
                yield number
        for number, story in self.stories.items():
            if not any(acknowledged for acknowledged, *_ in story):
                yield number

    def first_acknowledgement(self, number: int) -> int:
        """Time of the first acknowledgement; -1 without one."""
        story = self.stories.get(number)
        if story is None:
            return self._acknowledged_at.get(number)
        return min((at_ms for acknowledged, _, at_ms, _ in story if acknowledged), default=-1)

    def delivered(self, row: Row, consumer: int) -> None:
        """Record that a consumer received a message."""
        number = row.number
        course = self.course.get(consumer)
        if course is None:
            course = self.course[consumer] = array("Q")
        course.append(number << 1 | (row.delivery_count > 1))
        story = self.stories.get(number)
        if story is None:
            if self._consumer.get(number) < 0:
                self.first_count += 1
                self._consumer.set(number, consumer)
                self._delivered_at.set(number, row.at_ms)
                self._message_id.set(number, row.message_id)
                return
            story = self._promote(number)
        elif all(acknowledged for acknowledged, *_ in story):
            self.first_count += 1
        story.append((False, consumer, row.at_ms, row.message_id))

    def acknowledged(self, row: Row, consumer: int) -> None:
        """Record that a consumer acknowledged a message."""
        number = row.number
        story = self.stories.get(number)
        if story is None:
            if self._consumer.get(number) == consumer and self._acknowledged_at.get(number) < 0:
                self._acknowledged_at.set(number, row.at_ms)
                return
            story = self._promote(number)
        story.append((True, consumer, row.at_ms, row.message_id))

    def _promote(self, number: int) -> list[Event]:
        story = self.stories[number] = []
        consumer = self._consumer.get(number)
        if consumer >= 0:
            story.append((False, consumer, self._delivered_at.get(number), self._message_id.get(number)))
            acknowledged_at = self._acknowledged_at.get(number)
            if acknowledged_at >= 0:
                story.append((True, consumer, acknowledged_at, 0))
        return story


def judge_story(story: list[Event], clock_skew_ms: int, *, members: bool = False) -> Reason | None:
    """The finding in the deliveries and acknowledgements of one message in one queue; None if they are in order.

    Args:
        clock_skew_ms: How far the clocks of two writers may differ.
        members: The message may have moved between members of a cluster, where it gets another id. It is stored
            twice only if it was acknowledged more than once.
    """
    deliveries = [event for event in story if not event[0]]
    if not deliveries:
        return Reason.ACKNOWLEDGED_NEVER_DELIVERED
    if len({message_id for _, _, _, message_id in deliveries if message_id}) > 1:
        moved = members and sum(acknowledged for acknowledged, *_ in story) <= 1
        if not moved:
            return Reason.STORED_TWICE
    acknowledged_by: set[int] = set()
    for acknowledged, consumer, _, _ in story:
        if acknowledged:
            acknowledged_by.add(consumer)
        elif consumer in acknowledged_by:
            return Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT
    acknowledgements = [event for event in story if event[0]]
    for _, consumer, delivered_at, _ in deliveries:
        for _, other, acknowledged_at, _ in acknowledgements:
            if other != consumer and delivered_at > acknowledged_at + clock_skew_ms:
                return Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT
    return None
