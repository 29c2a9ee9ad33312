"""``check``: the reference judge over rows. Its rules are stated in ``understudy.ledger``."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest
from itertools import chain
from typing import Final

from understudy.ledger import outcomes
from understudy.ledger.columns import Column, Deliveries, Producer, judge_story
from understudy.ledger.outcomes import Drains
from understudy.ledger.report import (
    FINDINGS_LISTED_MAX,
    LISTED_SORTS,
    QUEUES_LISTED_MAX,
    SORT_OF_REASON,
    WINDOW_MS,
    WINDOWS_LISTED_MAX,
    Counts,
    Finding,
    Latency,
    Reason,
    Report,
    Window,
    latency_of,
    row_counts,
    with_examples,
)
from understudy.ledger.rows import Kind, Row
from understudy.ledger.spans import Spans

#: Kinds of rows that show that a queue holds or held the message.
_SEEN: Final = frozenset({Kind.DELIVERED, Kind.REMAINING})


class _Ledger:
    """Everything ``check`` remembers while the rows go by."""

    def __init__(self, *, complete: bool) -> None:
        self.rows = dict.fromkeys(Kind, 0)
        self.producers: dict[str, Producer] = {}
        self.queues: dict[str, dict[str, Deliveries]] = {}
        #: Names of consumers, with the number that stands for each.
        self.consumers: dict[str, int] = {}
        self.spans = Spans()
        self.drains = Drains(complete=complete)

    def take(self, row: Row) -> None:
        kind = row.kind
        self.rows[kind] += 1
        if kind is Kind.DRAINED:
            self.drains.take(row)
            return
        if kind is Kind.OPENED or kind is Kind.CLOSED:
            self.spans.take(row, self._number_of(row.consumer))
            return
        producer = self.producers.get(row.producer)
        if producer is None:
            producer = self.producers[row.producer] = Producer()
        if kind is Kind.SENT or kind is Kind.CONFIRMED or (kind is Kind.REFUSED and not row.queue):
            producer.take(row)
        else:
            self._take_consumer_row(row, producer)

    def _number_of(self, consumer: str) -> int:
        return self.consumers.setdefault(consumer, len(self.consumers))

    def _take_consumer_row(self, row: Row, producer: Producer) -> None:
        consumer = self._number_of(row.consumer)
        queue = self.queues.setdefault(row.queue, {})
        deliveries = queue.get(row.producer)
        if deliveries is None:
            deliveries = queue[row.producer] = Deliveries()
        deliveries.take(row, consumer)
        if row.kind not in _SEEN:
            return
        number, at_ms = row.number, row.at_ms
        if row.origin:
            producer.moved.add((row.origin, number))
        if row.digest and not (producer.knows_digest(number) and producer.may_have(number, row.digest)):
            deliveries.digests.setdefault(number, set()).add(row.digest)
        if row.kind is Kind.REMAINING:
            producer.remaining_at[number] = min(at_ms, producer.remaining_at.get(number, at_ms))
            return
        producer.delivered_at.set_least(number, at_ms)
        self.spans.take(row, consumer)

    def stories(self, clock_skew_ms: int, *, members: bool) -> Iterator[Finding]:
        """Duplicates, and acknowledgements of messages that were never delivered."""
        for queue, producers in self.queues.items():
            for producer, deliveries in producers.items():
                for number, story in deliveries.stories.items():
                    reason = judge_story(story, clock_skew_ms, members=members)
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
            for number in producer.remaining_at:
                if producer.sent_at.get(number) < 0:
                    yield Finding(name, number, "", Reason.REMAINING_NEVER_SENT)
            for number in producer.refused:
                if producer.confirmed_at.get(number) >= 0:
                    yield Finding(name, number, "", Reason.CONFIRMED_AND_REFUSED)

    def reordered(self, shared: set[str]) -> Iterator[Finding]:
        for queue, consumers in self.spans.successions(list(self.consumers), shared).items():
            for producer, deliveries in self.queues.get(queue, {}).items():
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
    seen = Column("b")
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
    remaining: Collection[tuple[str, int]] | None = None,
    window_ms: int = WINDOW_MS,
    clock_skew_ms: int = 0,
    members: bool = False,
) -> Report:
    """Judge the rows of any number of ledgers together; ``understudy.ledger`` defines every finding.

    Memory is some 70 bytes per message. When ``rows`` can be walked again (a list, not an
    iterator) a second walk collects example rows for each finding.

    Args:
        remaining: (producer, number) of *all* messages that any queue held after the last client had
            ended. None when the queues were not looked at by other means than the rows.
        window_ms: Pauses between confirmations longer than this are windows without service.
        clock_skew_ms: How far the clocks of two writers may differ.
        members: Several members of a cluster have the queues, and messages move between them.
    """
    ledger = _Ledger(complete=remaining is not None)
    for row in rows:
        ledger.take(row)
    kept = remaining or frozenset()
    found = _Findings()
    found.add("unexplained", ledger.ghosts())
    for finding in ledger.stories(clock_skew_ms, members=members):
        unfounded = finding.reason is Reason.ACKNOWLEDGED_NEVER_DELIVERED
        found.add("unexplained" if unfounded else "duplicated", (finding,))
    # a message that waited at one member comes after later ones that were sent to another one
    shared = set(ledger.queues) if members else ledger.spans.shared_queues(clock_skew_ms)
    found.add("reordered", ledger.reordered(shared))
    producers, queues = ledger.producers, ledger.queues
    for finding in chain(
        outcomes.undelivered(producers, ledger.drains, kept, clock_skew_ms),
        outcomes.unacknowledged(producers, queues, ledger.drains, kept, clock_skew_ms),
        outcomes.incomplete(producers, ledger.drains, kept, clock_skew_ms),
    ):
        found.add(SORT_OF_REASON.get(finding.reason, "unresolved"), (finding,))
    found.add("duplicated", outcomes.remaining_after_acknowledgement(queues, clock_skew_ms))
    found.add("corrupted", outcomes.corrupted(producers, queues))
    found.add("refused", outcomes.refused(producers, kept))
    windows = list(ledger.windows(window_ms))
    confirm_latency, delivery_latency = ledger.latencies()
    messages = sum(1 for producer in producers.values() for _ in producer.sent_at.numbers())
    confirmed = sum(
        1
        for producer in producers.values()
        for number in producer.confirmed_at.numbers()
        if producer.sent_at.get(number) >= 0
    )
    first_deliveries = sum(one.first_count for queue in queues.values() for one in queue.values())
    report = Report(
        Counts(
            **row_counts(ledger.rows),
            messages=messages,
            unconfirmed=messages - confirmed,
            redelivered=ledger.rows[Kind.DELIVERED] - first_deliveries,
            windows=len(windows),
            **found.counts(),
        ),
        **found.first(),
        reasons=found.reasons(),
        confirm_latency=confirm_latency,
        delivery_latency=delivery_latency,
        window_ms=window_ms,
        windows=tuple(nsmallest(WINDOWS_LISTED_MAX, windows, key=lambda one: one.key)),
        order_not_judged=tuple(sorted(shared)[:QUEUES_LISTED_MAX]),
    )
    if report.ok or iter(rows) is rows:
        return report
    return with_examples(report, rows)


class _Findings:
    """Counts findings by sort and by reason, and keeps the first ones of each sort in key order."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(LISTED_SORTS, 0)
        self._reasons: Counter[Reason] = Counter()
        self._kept: dict[str, list[Finding]] = {sort: [] for sort in LISTED_SORTS}

    def add(self, sort: str, findings: Iterable[Finding]) -> None:
        kept = self._kept[sort]
        for finding in findings:
            self._counts[sort] += 1
            self._reasons[finding.reason] += 1
            kept.append(finding)
            if len(kept) >= 16 * FINDINGS_LISTED_MAX:
                kept[:] = self._first(kept)

    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def reasons(self) -> tuple[tuple[Reason, int], ...]:
        return tuple((reason, self._reasons[reason]) for reason in Reason if self._reasons[reason])

    def first(self) -> dict[str, tuple[Finding, ...]]:
        return {sort: tuple(self._first(kept)) for sort, kept in self._kept.items()}

    @staticmethod
    def _first(kept: list[Finding]) -> list[Finding]:
        return nsmallest(FINDINGS_LISTED_MAX, kept, key=lambda one: one.key)
