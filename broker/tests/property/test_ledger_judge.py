"""Goal: ``ledger.check`` agrees with a naive reading of its rules on histories of any shape.

Method: the naive judge below holds all rows in lists and follows the module text of
``understudy.ledger`` sentence by sentence, quadratic and without any shared code.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.ledger import Finding, Kind, Reason, Row, check, encode, parse
from understudy.ledger.report import Latency

ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from(Kind),
        st.sampled_from(["p", "r"]),
        st.integers(0, 3) | st.sampled_from([255, 256]),
        st.just("a"),
        st.integers(0, 12),
        st.sampled_from(["c", "d", "e"]),
        st.sampled_from(["q", "s"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=40,
)

Key = tuple[str, int, str, str, int]


def at(row: Row) -> int:
    return row.at_ms


def naive_lost(rows: list[Row], remaining: set[tuple[str, int]]) -> set[Key]:
    found = set()
    for row in rows:
        same = [one for one in rows if (one.producer, one.number) == (row.producer, row.number)]
        transient = any(not one.durable and one.kind in (Kind.SENT, Kind.CONFIRMED) for one in same)
        seen = any(one.kind is Kind.DELIVERED for one in same)
        kept = (row.producer, row.number) in remaining
        if row.kind is Kind.CONFIRMED and not (transient or seen or kept):
            found.add(Finding(row.producer, row.number, "", Reason.NEVER_DELIVERED).key)
    return found


def naive_unexplained(rows: list[Row]) -> set[Key]:
    found = set()
    for row in rows:
        same = [one for one in rows if (one.producer, one.number) == (row.producer, row.number)]
        if not any(one.kind is Kind.SENT for one in same):
            if row.kind is Kind.DELIVERED:
                found.add(Finding(row.producer, row.number, "", Reason.DELIVERED_NEVER_SENT).key)
            if row.kind is Kind.CONFIRMED:
                found.add(Finding(row.producer, row.number, "", Reason.CONFIRMED_NEVER_SENT).key)
        on_queue = [one for one in same if one.queue == row.queue and one.kind is Kind.DELIVERED]
        if row.kind is Kind.ACKNOWLEDGED and not on_queue:
            found.add(Finding(row.producer, row.number, row.queue, Reason.ACKNOWLEDGED_NEVER_DELIVERED).key)
    return found


def naive_duplicated(rows: list[Row], clock_skew_ms: int) -> set[Key]:
    found = {}
    pairs = [(first, second) for place, first in enumerate(rows) for second in rows[place + 1 :]]
    for first, second in pairs:
        if (first.queue, first.producer, first.number) != (second.queue, second.producer, second.number):
            continue
        place = (first.producer, first.number, first.queue)
        kinds = (first.kind, second.kind)
        if kinds == (Kind.DELIVERED, Kind.DELIVERED):
            if first.message_id and second.message_id and first.message_id != second.message_id:
                found[place] = Reason.STORED_TWICE
            continue
        if set(kinds) != {Kind.DELIVERED, Kind.ACKNOWLEDGED}:
            continue
        if first.consumer == second.consumer:
            again = kinds == (Kind.ACKNOWLEDGED, Kind.DELIVERED)
        else:
            delivery, acknowledgement = (first, second) if first.kind is Kind.DELIVERED else (second, first)
            again = delivery.at_ms > acknowledgement.at_ms + clock_skew_ms
        if again:
            found.setdefault(place, Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT)
    return {Finding(*place, reason).key for place, reason in found.items()}


def naive_shared(rows: list[Row]) -> set[str]:
    shared = set()
    delivered = [row for row in rows if row.kind is Kind.DELIVERED]
    for one in delivered:
        for other in delivered:
            if one.queue == other.queue and one.consumer != other.consumer:
                mine = sorted(row.at_ms for row in delivered if (row.queue, row.consumer) == (one.queue, one.consumer))
                theirs = sorted(
                    row.at_ms for row in delivered if (row.queue, row.consumer) == (other.queue, other.consumer)
                )
                first, second = sorted([(mine[0], mine[-1]), (theirs[0], theirs[-1])])
                if second[0] < first[1]:
                    shared.add(one.queue)
    return shared


def naive_reordered(rows: list[Row]) -> set[Key]:
    shared = naive_shared(rows)
    found = set()
    delivered = [row for row in rows if row.kind is Kind.DELIVERED and row.queue not in shared]
    for queue, producer in {(row.queue, row.producer) for row in delivered}:
        starts = {
            row.consumer: min(at(one) for one in delivered if (one.queue, one.consumer) == (queue, row.consumer))
            for row in delivered
            if row.queue == queue
        }
        course = [row for row in delivered if (row.queue, row.producer) == (queue, producer)]
        course.sort(key=lambda row: (starts[row.consumer], row.consumer))
        firsts = [
            row
            for place, row in enumerate(course)
            if row.number not in {before.number for before in course[:place]} and row.delivery_count <= 1
        ]
        for place, row in enumerate(firsts):
            larger = [before.number for before in firsts[:place] if before.number > row.number]
            if larger:
                found.add(Finding(producer, row.number, queue, Reason.OUT_OF_ORDER, max(larger)).key)
    return found


def naive_latency(rows: list[Row], kind: Kind) -> Latency | None:
    values = []
    for producer, number in {(row.producer, row.number) for row in rows}:
        same = [row for row in rows if (row.producer, row.number) == (producer, number)]
        starts = [row.at_ms for row in same if row.kind is Kind.SENT]
        ends = [row.at_ms for row in same if row.kind is kind]
        if starts and ends:
            values.append(min(ends) - min(starts))
    if not values:
        return None
    values.sort()
    p50, p99, p999 = (values[math.ceil(len(values) * p / 1000) - 1] for p in (500, 990, 999))
    return Latency(len(values), p50, p99, p999, values[-1])


def naive_windows(rows: list[Row], window_ms: int) -> list[tuple[str, int, int]]:
    found = []
    for producer in {row.producer for row in rows}:
        times = sorted(row.at_ms for row in rows if row.kind is Kind.CONFIRMED and row.producer == producer)
        found += [(producer, a, b) for a, b in pairwise(times) if b - a > window_ms]
    return sorted(found)


@given(ROWS, st.sets(st.tuples(st.sampled_from(["p", "r"]), st.integers(0, 3)), max_size=2), st.integers(0, 3))
@settings(max_examples=400, deadline=None)
def test_check_agrees_with_the_naive_judge(rows: list[Row], remaining: set[tuple[str, int]], slack_ms: int) -> None:
    report = check(rows, remaining=remaining, window_ms=slack_ms, clock_skew_ms=slack_ms)
    assert {one.key for one in report.lost} == naive_lost(rows, remaining)
    assert {one.key for one in report.unexplained} == naive_unexplained(rows)
    assert {one.key for one in report.duplicated} == naive_duplicated(rows, slack_ms)
    assert set(report.order_not_judged) == naive_shared(rows)
    assert {one.key for one in report.reordered} == naive_reordered(rows)
    assert report.confirm_latency == naive_latency(rows, Kind.CONFIRMED)
    assert report.delivery_latency == naive_latency(rows, Kind.DELIVERED)
    assert sorted((one.producer, one.start_ms, one.end_ms) for one in report.windows) == naive_windows(rows, slack_ms)
    kinds = Counter(row.kind for row in rows)
    delivered = {(row.queue, row.producer, row.number) for row in rows if row.kind is Kind.DELIVERED}
    assert report.counts.redelivered == kinds[Kind.DELIVERED] - len(delivered)
    assert report.counts.messages == len({(row.producer, row.number) for row in rows if row.kind is Kind.SENT})


@given(
    st.builds(Row, st.sampled_from(Kind), st.text(), st.integers(0, 2**63 - 1), st.text(), st.integers(0, 2**48 - 1))
)
def test_lines_round_trip(row: Row) -> None:
    assert parse(encode(row)) == row
