"""Goal: ``ledger.check`` agrees with a naive reading of its rules on histories of any shape.

Method: the naive judge below holds all rows in lists and follows the module text of
``understudy.ledger`` sentence by sentence, quadratic and without any shared code.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.ledger import LISTED_SORTS, Finding, Kind, Reason, Row, check, encode, parse
from understudy.ledger.report import Latency

ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from(Kind),
        st.sampled_from(["p", "r"]),
        st.integers(0, 3) | st.sampled_from([255, 256]),
        st.sampled_from(["a", "a", "q", "a::q"]),
        st.integers(0, 12),
        st.sampled_from(["c", "d", "e"]),
        st.sampled_from(["q", "s", ""]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([0, 0, 7, 8]),
        st.sampled_from(["", "", "t", "u"]),
        st.sampled_from(["", "", "", "q", "s"]),
        st.sampled_from([3, 2, 2, 1]),
    ),
    max_size=40,
)

Key = tuple[str, int, str, str, int]


def at(row: Row) -> int:
    return row.at_ms


SEEN = (Kind.DELIVERED, Kind.REMAINING)
OF_SENDS = (Kind.SENT, Kind.CONFIRMED)
Remaining = set[tuple[str, int]] | None


def about(rows: list[Row], producer: str, number: int) -> list[Row]:
    return [row for row in with_message(rows) if (row.producer, row.number) == (producer, number)]


def everything(rows: list[Row]) -> set[tuple[str, int]]:
    return {(row.producer, row.number) for row in with_message(rows)}


def with_message(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.kind not in (Kind.DRAINED, Kind.OPENED, Kind.CLOSED)]


def of_kind(rows: list[Row], *kinds: Kind) -> list[Row]:
    return [row for row in rows if row.kind in kinds]


def least(rows: list[Row]) -> int:
    return min(row.at_ms for row in rows)


def is_transient(same: list[Row]) -> bool:
    return any(not row.durable for row in of_kind(same, *OF_SENDS))


def refusals_of_send(same: list[Row]) -> list[Row]:
    return [row for row in of_kind(same, Kind.REFUSED) if not row.queue]


def address_drained(rows: list[Row], same: list[Row], since: int, remaining: Remaining) -> bool:
    address = min(row.address for row in of_kind(same, *OF_SENDS))
    drains = [row for row in of_kind(rows, Kind.DRAINED) if row.at_ms >= since]
    return remaining is not None or any(
        address in (row.address, row.queue, f"{row.address}::{row.queue}") for row in drains
    )


def naive_outcomes(rows: list[Row], remaining: Remaining, skew: int) -> Counter[Key]:
    """Lost, partial and unresolved."""
    found = []
    for producer, number in everything(rows):
        same = about(rows, producer, number)
        confirmed = of_kind(same, Kind.CONFIRMED)
        if not confirmed or is_transient(same) or of_kind(same, Kind.REMAINING):
            continue
        if (producer, number) in (remaining or ()):
            continue
        if not of_kind(same, Kind.DELIVERED):
            drained = address_drained(rows, same, least(confirmed) + skew, remaining)
            reason = Reason.NEVER_DELIVERED if drained else Reason.DELIVERY_NOT_SEEN
            found.append(Finding(producer, number, "", reason).key)
        for queue in {row.queue for row in of_kind(same, Kind.DELIVERED)}:
            there = [row for row in same if row.queue == queue]
            refused = [row for row in of_kind(there, Kind.REFUSED) if row.queue]
            open_attempts = len(of_kind(there, Kind.ACKNOWLEDGING)) - len(refused)
            moved = any(queue and row.origin == queue for row in of_kind(same, *SEEN))
            if of_kind(there, Kind.ACKNOWLEDGED) or moved or open_attempts > 0:
                continue
            drained = remaining is not None or any(
                row.queue == queue and row.at_ms >= least(confirmed) + skew for row in of_kind(rows, Kind.DRAINED)
            )
            old = any(row.version == 1 for row in of_kind(there, Kind.DELIVERED))
            certain = drained and not old
            reason = Reason.NEVER_ACKNOWLEDGED if certain else Reason.ACKNOWLEDGEMENT_NOT_SEEN
            found.append(Finding(producer, number, queue, reason).key)
    for producer, transaction in {(row.producer, row.transaction) for row in of_kind(rows, Kind.SENT)}:
        members = {
            row.number
            for row in of_kind(rows, Kind.SENT)
            if (row.producer, row.transaction) == (producer, transaction) and transaction
        }
        rows_of = {number: about(rows, producer, number) for number in members}
        if any(refusals_of_send(same) for same in rows_of.values()):
            continue
        effects = {number: of_kind(same, Kind.CONFIRMED, *SEEN) for number, same in rows_of.items()}
        if not any(effects.values()):
            continue
        first = min(least(effect) for effect in effects.values() if effect)
        for number, same in rows_of.items():
            if effects[number] or is_transient(same) or (producer, number) in (remaining or ()):
                continue
            since = max(first, least(of_kind(same, Kind.SENT))) + skew
            drained = address_drained(rows, same, since, remaining)
            reason = Reason.PART_OF_A_TRANSACTION if drained else Reason.TRANSACTION_NOT_SEEN
            found.append(Finding(producer, number, "", reason).key)
    return Counter(found)


def naive_corrupted(rows: list[Row]) -> set[Key]:
    found = set()
    for row in of_kind(rows, *SEEN):
        sent = {one.digest for one in of_kind(about(rows, row.producer, row.number), Kind.SENT)} - {0}
        if row.digest and sent and row.digest not in sent:
            found.add(Finding(row.producer, row.number, row.queue, Reason.ANOTHER_BODY).key)
    return found


def naive_refused(rows: list[Row], remaining: Remaining) -> set[Key]:
    found = set()
    for producer, number in everything(rows):
        same = about(rows, producer, number)
        if refusals_of_send(same) and (of_kind(same, *SEEN) or (producer, number) in (remaining or ())):
            found.add(Finding(producer, number, "", Reason.VISIBLE_AFTER_REFUSAL).key)
    return found


def naive_unexplained(rows: list[Row]) -> set[Key]:
    found = set()
    never_sent = {
        Kind.DELIVERED: Reason.DELIVERED_NEVER_SENT,
        Kind.CONFIRMED: Reason.CONFIRMED_NEVER_SENT,
        Kind.REMAINING: Reason.REMAINING_NEVER_SENT,
    }
    for row in rows:
        same = about(rows, row.producer, row.number)
        if row.kind in never_sent and not of_kind(same, Kind.SENT):
            found.add(Finding(row.producer, row.number, "", never_sent[row.kind]).key)
        if row.kind is Kind.CONFIRMED and refusals_of_send(same):
            found.add(Finding(row.producer, row.number, "", Reason.CONFIRMED_AND_REFUSED).key)
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
    keys = {Finding(*place, reason).key for place, reason in found.items()}
    for row in of_kind(rows, Kind.REMAINING):
        same = [one for one in about(rows, row.producer, row.number) if one.queue == row.queue]
        if any(row.at_ms > least(acks) + clock_skew_ms for acks in [of_kind(same, Kind.ACKNOWLEDGED)] if acks):
            reason = Reason.REMAINING_AFTER_ACKNOWLEDGEMENT
            keys.add(Finding(row.producer, row.number, row.queue, reason).key)
    return keys


def naive_spans(rows: list[Row], queue: str) -> dict[str, tuple[float, float]]:
    """Per consumer of the queue, when it was opened and closed."""
    found = {}
    open_rows = [row for row in of_kind(rows, Kind.DELIVERED, Kind.OPENED, Kind.CLOSED) if row.queue == queue]
    for consumer in {row.consumer for row in open_rows}:
        mine = [row for row in open_rows if row.consumer == consumer]
        unclosed = len(of_kind(mine, Kind.OPENED)) > len(of_kind(mine, Kind.CLOSED))
        found[consumer] = (least(mine), math.inf if unclosed else max(map(at, mine)))
    return found


def opened_again(rows: list[Row], queue: str, consumer: str) -> bool:
    mine = [row for row in rows if (row.queue, row.consumer) == (queue, consumer)]
    return any(
        len(of_kind(mine[:place], Kind.OPENED)) > len(of_kind(mine[:place], Kind.CLOSED))
        for place, row in enumerate(mine)
        if row.kind is Kind.OPENED
    )


def naive_shared(rows: list[Row], skew: int) -> set[str]:
    shared = set()
    for queue in {row.queue for row in rows}:
        spans = naive_spans(rows, queue)
        for one, other in combinations(sorted(spans.values()), 2):
            if other[0] < one[1] + skew:
                shared.add(queue)
        if any(opened_again(rows, queue, consumer) for consumer in spans):
            shared.add(queue)
    return shared


def naive_reordered(rows: list[Row], skew: int) -> set[Key]:
    shared = naive_shared(rows, skew)
    found = set()
    delivered = [row for row in rows if row.kind is Kind.DELIVERED and row.queue not in shared]
    for queue, producer in {(row.queue, row.producer) for row in delivered}:
        spans = naive_spans(rows, queue)
        course = [row for row in delivered if (row.queue, row.producer) == (queue, producer)]
        course.sort(key=lambda row: (spans[row.consumer], row.consumer))
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


@given(
    ROWS,
    st.none() | st.sets(st.tuples(st.sampled_from(["p", "r"]), st.integers(0, 3)), max_size=2),
    st.integers(0, 3),
)
@settings(max_examples=400, deadline=None)
def test_check_agrees_with_the_naive_judge(rows: list[Row], remaining: Remaining, slack_ms: int) -> None:
    report = check(rows, remaining=remaining, window_ms=slack_ms, clock_skew_ms=slack_ms)
    outcomes = Counter(one.key for one in (*report.lost, *report.partial, *report.unresolved))
    assert outcomes == naive_outcomes(rows, remaining, slack_ms)
    assert {one.reason for one in report.lost} <= {Reason.NEVER_DELIVERED, Reason.NEVER_ACKNOWLEDGED}
    assert {one.reason for one in report.partial} <= {Reason.PART_OF_A_TRANSACTION}
    assert {one.key for one in report.corrupted} == naive_corrupted(rows)
    assert {one.key for one in report.refused} == naive_refused(rows, remaining)
    listed = [one for sort in LISTED_SORTS for one in getattr(report, sort)]
    assert Counter(one.reason for one in listed) == Counter(dict(report.reasons))
    assert {one.key for one in report.unexplained} == naive_unexplained(rows)
    assert {one.key for one in report.duplicated} == naive_duplicated(rows, slack_ms)
    assert set(report.order_not_judged) == naive_shared(rows, slack_ms)
    assert {one.key for one in report.reordered} == naive_reordered(rows, slack_ms)
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
