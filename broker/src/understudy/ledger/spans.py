"""Spans in which each consumer of a queue was open, as far as the ledger shows it."""

from __future__ import annotations

from understudy.ledger.rows import END_MS, Kind, Row


class Span:
    """The time in which one consumer was open on one queue."""

    __slots__ = ("begin_ms", "last_ms", "opened_again", "unclosed")

    def __init__(self, at_ms: int) -> None:
        self.begin_ms = at_ms
        self.last_ms = at_ms
        #: OPENED rows minus CLOSED rows.
        self.unclosed = 0
        #: Whether the span began again before it had ended.
        self.opened_again = False

    @property
    def end_ms(self) -> int:
        """``END_MS`` for a consumer that was opened and not closed."""
        return END_MS if self.unclosed > 0 else self.last_ms


class Spans:
    """The spans of all consumers, by queue and by the number of the consumer."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[int, Span]] = {}

    def take(self, row: Row, consumer: int) -> None:
        """An OPENED, DELIVERED or CLOSED row. Any of them shows that the consumer was open at that time."""
        queue = self._queues.get(row.queue)
        if queue is None:
            queue = self._queues[row.queue] = {}
        span = queue.get(consumer)
        at_ms = row.at_ms
        if span is None:
            span = queue[consumer] = Span(at_ms)
        elif at_ms > span.last_ms:
            span.last_ms = at_ms
        elif at_ms < span.begin_ms:
            span.begin_ms = at_ms
        if row.kind is Kind.OPENED:
            span.unclosed += 1
            span.opened_again |= span.unclosed > 1
        elif row.kind is Kind.CLOSED:
            span.unclosed -= 1

    def shared_queues(self, clock_skew_ms: int) -> set[str]:
        """Queues with two consumers that were, or may have been, open at the same time."""
        shared: set[str] = set()
        for name, queue in self._queues.items():
            if any(span.opened_again for span in queue.values()):
                shared.add(name)
                continue
            spans = sorted((span.begin_ms, span.end_ms) for span in queue.values())
            latest = spans[0][1]
            for begin_ms, end_ms in spans[1:]:
                if begin_ms < latest + clock_skew_ms:
                    shared.add(name)
                    break
                latest = max(latest, end_ms)
        return shared

    def successions(self, names: list[str], shared: set[str]) -> dict[str, list[int]]:
        """The consumers of each queue that is not shared, one after the other.

        Args:
            names: Names of the consumers by their number; they decide between equal times.
        """

        def place(item: tuple[int, Span]) -> tuple[int, int, str]:
            consumer, span = item
            return span.begin_ms, span.end_ms, names[consumer]

        return {
            name: [consumer for consumer, _ in sorted(queue.items(), key=place)]
            for name, queue in self._queues.items()
            if name not in shared
        }
