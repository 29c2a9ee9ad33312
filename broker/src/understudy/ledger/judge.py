"""``check``: the reference judge over rows. Its rules are stated in ``understudy.ledger``."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest
from typing import Final

from understudy.ledger.report import (
    FINDINGS_LISTED_MAX,
    QUEUES_LISTED_MAX,
    WINDOW_MS,
    WINDOWS_LISTED_MAX,
    Counts,
    Finding,
    Latency,
    Reason,
    Report,
    Window,
    latency_of,
    with_examples,
)
from understudy.ledger.rows import Kind, Row


class _Column:
    """Whole numbers -> integers >= 0, in blocks of an array: 8 bytes each where numbers are dense."""

    __slots__ = ("_blocks", "_empty")
    BITS: Final = 8

    def __init__(self, typecode: str = "q") -> None:
        self._blocks: dict[int, array[int]] = {}
        self._empty = array(typecode, [-1]) * (1 << self.BITS)

    def get(self, number: int) -> int:
        """-1 when unset."""
        block = self._blocks.get(number >> self.BITS)
        return -1 if block is None else block[number & 255]

    def set(self, number: int, value: int) -> None:
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
        for place, block in self._blocks.items():
            for offset, value in enumerate(block):
                if value >= 0:
                    yield (place << self.BITS) | offset, value


class _Producer:
    """What is known of one producer's messages."""

    __slots__ = ("confirmations", "confirmed_at", "delivered_at", "sent_at", "transient")

    def __init__(self) -> None:
        self.sent_at = _Column()
        self.confirmed_at = _Column()
        self.delivered_at = _Column()
        self.transient: set[int] = set()
        self.confirmations = array("q")


#: One delivery or acknowledgement: acknowledged?, consumer, time, message id.
_Event = tuple[bool, int, int, int]


class _Deliveries:
    """One producer's messages on one queue. The usual story of a message, delivered once and
    acknowledged by the same consumer, sits in columns; any other one is kept event by event.
    """

    __slots__ = ("_acknowledged_at", "_consumer", "_delivered_at", "_message_id", "course", "first_count", "stories")

    def __init__(self) -> None:
        self._consumer = _Column("i")
        self._delivered_at = _Column()
        self._message_id = _Column()
        self._acknowledged_at = _Column()
        self.stories: dict[int, list[_Event]] = {}
        #: Per consumer, every delivery in its order: 2 * number + (1 when redelivered).
        self.course: dict[int, array[int]] = {}
        #: Different numbers delivered.
        self.first_count = 0

    def delivered(self, row: Row, consumer: int) -> None:
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
        number = row.number
        story = self.stories.get(number)
        if story is None:
            if self._consumer.get(number) == consumer:
                self._acknowledged_at.set_least(number, row.at_ms)
                return
            story = self._promote(number)
        story.append((True, consumer, row.at_ms, row.message_id))

    def _promote(self, number: int) -> list[_Event]:
        story = self.stories[number] = []
        consumer = self._consumer.get(number)
        if consumer >= 0:
            story.append((False, consumer, self._delivered_at.get(number), self._message_id.get(number)))
            acknowledged_at = self._acknowledged_at.get(number)
            if acknowledged_at >= 0:
                story.append((True, consumer, acknowledged_at, 0))
        return story


def _judge_story(story: list[_Event], clock_skew_ms: int) -> Reason | None:
    deliveries = [event for event in story if not event[0]]
    if not deliveries:
        return Reason.ACKNOWLEDGED_NEVER_DELIVERED
    if len({message_id for _, _, _, message_id in deliveries if message_id}) > 1:
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


class _Ledger:
    """Everything ``check`` remembers while the rows go by."""

    def __init__(self) -> None:
        self.rows = dict.fromkeys(Kind, 0)
        self.producers: dict[str, _Producer] = {}
        self.queues: dict[str, dict[str, _Deliveries]] = {}
        #: Consumer names by their number.
        self.consumers: dict[str, int] = {}
        #: Per queue and consumer, times of the first and the last delivery.
        self.spans: dict[str, dict[int, tuple[int, int]]] = {}

    def take(self, row: Row) -> None:
        kind = row.kind
        self.rows[kind] += 1
        producer = self.producers.get(row.producer)
        if producer is None:
            producer = self.producers[row.producer] = _Producer()
        if kind is Kind.SENT:
            producer.sent_at.set_least(row.number, row.at_ms)
        elif kind is Kind.CONFIRMED:
            producer.confirmed_at.set_least(row.number, row.at_ms)
            producer.confirmations.append(row.at_ms)
        else:
            self._take_consumer_row(row, producer)
            return
        if not row.durable:
            producer.transient.add(row.number)

    def _take_consumer_row(self, row: Row, producer: _Producer) -> None:
        consumer = self.consumers.setdefault(row.consumer, len(self.consumers))
        queue = self.queues.setdefault(row.queue, {})
        deliveries = queue.get(row.producer)
        if deliveries is None:
            deliveries = queue[row.producer] = _Deliveries()
        if row.kind is Kind.ACKNOWLEDGED:
            deliveries.acknowledged(row, consumer)
            return
        producer.delivered_at.set_least(row.number, row.at_ms)
        deliveries.delivered(row, consumer)
        spans = self.spans.setdefault(row.queue, {})
        first, last = spans.get(consumer, (row.at_ms, row.at_ms))
        spans[consumer] = (min(first, row.at_ms), max(last, row.at_ms))

    def lost(self, remaining: Collection[tuple[str, int]]) -> Iterator[Finding]:
        for name, producer in self.producers.items():
            for number in producer.confirmed_at.numbers():
                if (
                    producer.delivered_at.get(number) < 0
                    and number not in producer.transient
                    and (name, number) not in remaining
                ):
                    yield Finding(name, number, "", Reason.NEVER_DELIVERED)

    def stories(self, clock_skew_ms: int) -> Iterator[Finding]:
        """Duplicates, and acknowledgements of what was never delivered."""
        for queue, producers in self.queues.items():
            for producer, deliveries in producers.items():
                for number, story in deliveries.stories.items():
                    reason = _judge_story(story, clock_skew_ms)
                    if reason is not None:
                        yield Finding(producer, number, queue, reason)

    def ghosts(self) -> Iterator[Finding]:
        for name, producer in self.producers.items():
            for reason, column in (
                (Reason.DELIVERED_NEVER_SENT, producer.delivered_at),
                (Reason.CONFIRMED_NEVER_SENT, producer.confirmed_at),
            ):
                for number in column.numbers():
                    if producer.sent_at.get(number) < 0:
                        yield Finding(name, number, "", reason)

    def shared_queues(self) -> set[str]:
        shared: set[str] = set()
        for queue, spans in self.spans.items():
            latest = -1
            for first, last in sorted(spans.values()):
                if first < latest:
                    shared.add(queue)
                latest = max(latest, last)
        return shared

    def reordered(self, shared: set[str]) -> Iterator[Finding]:
        names = {place: name for name, place in self.consumers.items()}
        for queue, spans in self.spans.items():
            if queue in shared:
                continue
            consumers = sorted(spans, key=lambda one: (spans[one][0], names[one]))
            for producer, deliveries in self.queues[queue].items():
                courses = [deliveries.course[one] for one in consumers if one in deliveries.course]
                for number, after in _steps_back(courses):
                    yield Finding(producer, number, queue, Reason.OUT_OF_ORDER, after)

    def windows(self, window_ms: int) -> Iterator[Window]:
        for name, producer in self.producers.items():
            previous = None
            for at_ms in sorted(producer.confirmations):
                if previous is not None and at_ms - previous > window_ms:
                    yield Window(name, previous, at_ms)
                previous = at_ms

    def latencies(self) -> tuple[Latency | None, Latency | None]:
        confirm: Counter[int] = Counter()
        delivery: Counter[int] = Counter()
        for producer in self.producers.values():
            for number, sent_at in producer.sent_at.entries():
                confirmed_at = producer.confirmed_at.get(number)
                if confirmed_at >= 0:
                    confirm[confirmed_at - sent_at] += 1
                delivered_at = producer.delivered_at.get(number)
                if delivered_at >= 0:
                    delivery[delivered_at - sent_at] += 1
        return latency_of(confirm), latency_of(delivery)


def _steps_back(courses: list[array[int]]) -> Iterator[tuple[int, int]]:
    """First deliveries of a number after a larger one, with that larger one."""
    seen = _Column("b")
    largest = -1
    for course in courses:
        for entry in course:
            number = entry >> 1
            if seen.get(number) >= 0:
                continue
            seen.set(number, 1)
            if entry & 1:
                continue
            if number < largest:
                yield number, largest
            else:
                largest = number


def check(
    rows: Iterable[Row],
    *,
    remaining: Collection[tuple[str, int]] = frozenset(),
    window_ms: int = WINDOW_MS,
    clock_skew_ms: int = 0,
) -> Report:
    """Judge the rows of any number of ledgers together; the module's text defines every finding.

    Memory is some 70 bytes per message. When ``rows`` can be walked again (a list, not an
    iterator) a second walk collects example rows for what was found.

    Args:
        remaining: (producer, number) of messages still in a queue at the end, as browsed there;
            they are not lost.
        window_ms: Pauses between confirmations longer than this are windows without service.
        clock_skew_ms: How far the clocks of two consumers may differ.
    """
    ledger = _Ledger()
    for row in rows:
        ledger.take(row)
    lost = _Listed(ledger.lost(remaining))
    duplicated, unexplained = _Listed(()), _Listed(ledger.ghosts())
    for finding in ledger.stories(clock_skew_ms):
        (unexplained if finding.reason is Reason.ACKNOWLEDGED_NEVER_DELIVERED else duplicated).add(finding)
    shared = ledger.shared_queues()
    reordered = _Listed(ledger.reordered(shared))
    windows = list(ledger.windows(window_ms))
    confirm_latency, delivery_latency = ledger.latencies()
    messages = sum(1 for producer in ledger.producers.values() for _ in producer.sent_at.numbers())
    confirmed = sum(
        1
        for producer in ledger.producers.values()
        for number in producer.confirmed_at.numbers()
        if producer.sent_at.get(number) >= 0
    )
    first_deliveries = sum(one.first_count for queue in ledger.queues.values() for one in queue.values())
    report = Report(
        Counts(
            ledger.rows[Kind.SENT],
            ledger.rows[Kind.CONFIRMED],
            ledger.rows[Kind.DELIVERED],
            ledger.rows[Kind.ACKNOWLEDGED],
            messages=messages,
            unconfirmed=messages - confirmed,
            redelivered=ledger.rows[Kind.DELIVERED] - first_deliveries,
            lost=lost.count,
            duplicated=duplicated.count,
            reordered=reordered.count,
            unexplained=unexplained.count,
            windows=len(windows),
        ),
        lost.first(),
        duplicated.first(),
        reordered.first(),
        unexplained.first(),
        confirm_latency,
        delivery_latency,
        window_ms,
        tuple(nsmallest(WINDOWS_LISTED_MAX, windows, key=lambda one: one.key)),
        tuple(sorted(shared)[:QUEUES_LISTED_MAX]),
    )
    if report.ok or iter(rows) is rows:
        return report
    return with_examples(report, rows)


class _Listed:
    """Counts findings and keeps the first ones in key order."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.count = 0
        self._kept: list[Finding] = []
        for finding in findings:
            self.add(finding)

    def add(self, finding: Finding) -> None:
        self.count += 1
        self._kept.append(finding)
        if len(self._kept) >= 16 * FINDINGS_LISTED_MAX:
            self._kept = list(self.first())

    def first(self) -> tuple[Finding, ...]:
        return tuple(nsmallest(FINDINGS_LISTED_MAX, self._kept, key=lambda one: one.key))
