"""The report of a judgement: findings, counts, latencies and windows. ``judge.check`` and the Spark audit
both make reports; this module contains no rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum
from heapq import nsmallest
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.ledger.rows import Kind, Row, encode, sort_key

#: Maximum number of findings of one sort that a report lists; the totals count all of them.
FINDINGS_LISTED_MAX: Final = 100
#: Example rows kept for one listed finding.
EXAMPLE_ROWS_MAX: Final = 8
#: Windows without service listed in a report, longest first.
WINDOWS_LISTED_MAX: Final = 100
#: Queues named in ``Report.order_not_judged``.
QUEUES_LISTED_MAX: Final = 100
#: Pause between two confirmations of a producer above which it counts as without service.
WINDOW_MS: Final = 250


class Reason(Enum):
    """The reason of a finding, as text for people."""

    NEVER_DELIVERED = "confirmed, never delivered"
    STORED_TWICE = "delivered under two message ids"
    DELIVERED_AFTER_ACKNOWLEDGEMENT = "delivered again after its confirmed acknowledgement"
    OUT_OF_ORDER = "first delivered after a later number"
    DELIVERED_NEVER_SENT = "delivered, never sent"
    CONFIRMED_NEVER_SENT = "confirmed, never sent"
    ACKNOWLEDGED_NEVER_DELIVERED = "acknowledged, never delivered"
    NEVER_ACKNOWLEDGED = "delivered, never acknowledged, and no longer in the drained queue"
    REMAINING_AFTER_ACKNOWLEDGEMENT = "still in the queue after its confirmed acknowledgement"
    REMAINING_NEVER_SENT = "in a queue, never sent"
    CONFIRMED_AND_REFUSED = "both confirmed and refused"
    ANOTHER_BODY = "delivered with another body than was sent"
    VISIBLE_AFTER_REFUSAL = "delivered or in a queue, although refused or rolled back"
    PART_OF_A_TRANSACTION = "missing, although others of its transaction took effect"
    DELIVERY_NOT_SEEN = "confirmed and not delivered; its queue was not seen drained"
    ACKNOWLEDGEMENT_NOT_SEEN = "delivered and not acknowledged; its queue was not seen drained"
    TRANSACTION_NOT_SEEN = "not seen, unlike others of its transaction; its queue was not seen drained"


#: The sort of each reason; messages with other reasons are unresolved.
SORT_OF_REASON: Final = {
    Reason.NEVER_DELIVERED: "lost",
    Reason.NEVER_ACKNOWLEDGED: "lost",
    Reason.STORED_TWICE: "duplicated",
    Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT: "duplicated",
    Reason.REMAINING_AFTER_ACKNOWLEDGEMENT: "duplicated",
    Reason.OUT_OF_ORDER: "reordered",
    Reason.DELIVERED_NEVER_SENT: "unexplained",
    Reason.CONFIRMED_NEVER_SENT: "unexplained",
    Reason.ACKNOWLEDGED_NEVER_DELIVERED: "unexplained",
    Reason.REMAINING_NEVER_SENT: "unexplained",
    Reason.CONFIRMED_AND_REFUSED: "unexplained",
    Reason.ANOTHER_BODY: "corrupted",
    Reason.VISIBLE_AFTER_REFUSAL: "refused",
    Reason.PART_OF_A_TRANSACTION: "partial",
}
#: Sorts of broken promises.
FINDING_SORTS: Final = tuple(dict.fromkeys(SORT_OF_REASON.values()))
#: The sorts of findings, and the sort of those that could not be judged.
LISTED_SORTS: Final = (*FINDING_SORTS, "unresolved")


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise, or one promise that could not be judged."""

    producer: str
    number: int
    queue: str
    """Empty where the finding is about the message, not about one queue."""
    reason: Reason
    after: int = -1
    """OUT_OF_ORDER: the largest number first delivered before; else -1."""
    rows: tuple[Row, ...] = ()
    """At most EXAMPLE_ROWS_MAX rows about it, by time."""

    @property
    def key(self) -> tuple[str, int, str, str, int]:
        """Identity and order of findings; the example rows play no part."""
        return (self.producer, self.number, self.queue, self.reason.value, self.after)


@dataclass(frozen=True, slots=True)
class Window:
    """A pause between two confirmations of one producer that follow each other in time."""

    producer: str
    start_ms: int
    end_ms: int

    @property
    def duration_ms(self) -> int:
        """Length of the window."""
        return self.end_ms - self.start_ms

    @property
    def key(self) -> tuple[int, str, int]:
        """Sort key of windows: the longest first, then by producer and time."""
        return (-self.duration_ms, self.producer, self.start_ms)


@dataclass(frozen=True, slots=True)
class Latency:
    """Nearest-rank percentiles of differences between wall clocks; may be negative across hosts."""

    count: int
    p50_ms: int
    p99_ms: int
    p999_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows by kind (those of consumers, OPENED and CLOSED, are not counted), and the numbers of producers, messages and
    queues in them.
    """

    sent: int = 0
    confirmed: int = 0
    delivered: int = 0
    acknowledged: int = 0
    acknowledging: int = 0
    refused_rows: int = 0
    remaining: int = 0
    drained: int = 0
    messages: int = 0
    """Different (producer, number) sent."""
    unconfirmed: int = 0
    """Messages sent whose outcome is unknown."""
    redelivered: int = 0
    """DELIVERED rows beyond the first of a message on a queue, duplicates included."""
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    unexplained: int = 0
    corrupted: int = 0
    refused: int = 0
    partial: int = 0
    unresolved: int = 0
    windows: int = 0

    @property
    def findings(self) -> int:
        """Number of broken promises."""
        return sum(getattr(self, sort) for sort in FINDING_SORTS)


@dataclass(frozen=True, slots=True)
class Report:
    """The judgement. Lists hold the first FINDINGS_LISTED_MAX in key order, ``counts`` all."""

    counts: Counts = field(default_factory=Counts)
    lost: tuple[Finding, ...] = ()
    duplicated: tuple[Finding, ...] = ()
    reordered: tuple[Finding, ...] = ()
    unexplained: tuple[Finding, ...] = ()
    corrupted: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()
    partial: tuple[Finding, ...] = ()
    unresolved: tuple[Finding, ...] = ()
    """Undecided: no violation was found, but a queue was not drained, so losses cannot be excluded."""
    reasons: tuple[tuple[Reason, int], ...] = ()
    """How many findings there are for each reason that has any, in the order of ``Reason``."""
    confirm_latency: Latency | None = None
    """First SENT to first CONFIRMED of each message that has both."""
    delivery_latency: Latency | None = None
    """Time in ms from the first SENT to the first DELIVERED, on any queue."""
    window_ms: int = WINDOW_MS
    windows: tuple[Window, ...] = ()
    order_not_judged: tuple[str, ...] = ()
    """Shared queues, by name."""

    @property
    def ok(self) -> bool:
        """Every promise was judged, and none was broken."""
        return self.counts.findings == 0 and self.counts.unresolved == 0

    @property
    def verdict(self) -> str:
        """``kept``, ``broken``, or ``unresolved`` when nothing is broken and not everything could be judged."""
        if self.counts.findings:
            return "broken"
        return "unresolved" if self.counts.unresolved else "kept"

    def to_json(self) -> dict[str, object]:
        """Plain data for ``json.dumps``; the shape of every ``--json`` of the ledger commands."""
        counts = {name: getattr(self.counts, name) for name in Counts.__dataclass_fields__}
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "counts": counts,
            "reasons": {reason.value: dict(self.reasons).get(reason, 0) for reason in Reason},
            **{sort: [_finding_json(one) for one in getattr(self, sort)] for sort in LISTED_SORTS},
            "confirm_latency": _latency_json(self.confirm_latency),
            "delivery_latency": _latency_json(self.delivery_latency),
            "window_ms": self.window_ms,
            "windows": [
                {
                    "producer": one.producer,
                    "start_ms": one.start_ms,
                    "end_ms": one.end_ms,
                    "duration_ms": one.duration_ms,
                }
                for one in self.windows
            ],
            "order_not_judged": list(self.order_not_judged),
        }


def _finding_json(finding: Finding) -> dict[str, object]:
    fields: dict[str, object] = {"producer": finding.producer, "number": finding.number}
    if finding.queue:
        fields["queue"] = finding.queue
    fields["reason"] = finding.reason.value
    if finding.after >= 0:
        fields["after"] = finding.after
    fields["rows"] = [json.loads(encode(row)) for row in finding.rows]
    return fields


def _latency_json(latency: Latency | None) -> dict[str, int] | None:
    if latency is None:
        return None
    return {name: getattr(latency, name) for name in Latency.__dataclass_fields__}


def latency_of(histogram: dict[int, int]) -> Latency | None:
    """Percentiles of a histogram {milliseconds: how often}; None when it is empty."""
    count = sum(histogram.values())
    if not count:
        return None
    ranks = [rank_of(count, permille) for permille in (500, 990, 999)]
    found: list[int] = []
    below = 0
    for value in sorted(histogram):
        below += histogram[value]
        while len(found) < len(ranks) and below >= ranks[len(found)]:
            found.append(value)
    return Latency(count, found[0], found[1], found[2], max(histogram))


def rank_of(count: int, permille: int) -> int:
    """Nearest rank, from 1, in whole numbers so that every implementation agrees."""
    return (count * permille + 999) // 1000


def belongs(row: Row, finding: Finding) -> bool:
    """Whether the row says something about the finding."""
    return (
        row.producer == finding.producer
        and row.number in (finding.number, finding.after)
        and (not finding.queue or not row.queue or row.queue == finding.queue)
    )


def with_examples(report: Report, rows: Iterable[Row]) -> Report:
    """The report with the first rows, by time, of every listed finding."""
    listed = [finding for sort in LISTED_SORTS for finding in getattr(report, sort)]
    wanted: dict[tuple[str, int], list[int]] = {}
    for place, finding in enumerate(listed):
        for number in {finding.number, finding.after} - {-1}:
            wanted.setdefault((finding.producer, number), []).append(place)
    examples: list[list[Row]] = [[] for _ in listed]
    for row in rows:
        for place in wanted.get((row.producer, row.number), ()):
            if belongs(row, listed[place]):
                kept = examples[place]
                kept.append(row)
                if len(kept) >= 8 * EXAMPLE_ROWS_MAX:
                    kept[:] = nsmallest(EXAMPLE_ROWS_MAX, kept, key=sort_key)
    complete = {
        finding.key: replace(finding, rows=tuple(nsmallest(EXAMPLE_ROWS_MAX, kept, key=sort_key)))
        for finding, kept in zip(listed, examples, strict=True)
    }
    lists: dict[str, Any] = {sort: tuple(complete[one.key] for one in getattr(report, sort)) for sort in LISTED_SORTS}
    return replace(report, **lists)


def row_counts(rows: Mapping[Kind, int]) -> dict[str, int]:
    """Rows of each kind by the name of their field in ``Counts``."""
    counted = [kind for kind in Kind if kind is not Kind.OPENED and kind is not Kind.CLOSED]
    return {"refused_rows" if kind is Kind.REFUSED else kind.value.lower(): rows[kind] for kind in counted}
