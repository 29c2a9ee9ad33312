"""Goal: every invariant violated alone is found alone; every explained case is accepted.

Method: a clean history of four messages, with one thing changed per test.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from understudy.ledger import FINDINGS_LISTED_MAX, Kind, Reason, Report, Row, Window, check, latency_of, rank_of


def sent(number: int, at_ms: int = 0, producer: str = "p", **more: object) -> Row:
    return replace(Row(Kind.SENT, producer, number, "a", at_ms or 1000 + number), **more)  # type: ignore[arg-type]


def confirmed(number: int, at_ms: int = 0, producer: str = "p", **more: object) -> Row:
    return replace(Row(Kind.CONFIRMED, producer, number, "a", at_ms or 1010 + number), **more)  # type: ignore[arg-type]


def delivered(number: int, at_ms: int = 0, consumer: str = "c", count: int = 1, message_id: int = -1) -> Row:
    message_id = 100 + number if message_id < 0 else message_id
    return Row(Kind.DELIVERED, "p", number, "a", at_ms or 1020 + number, consumer, "q", message_id, count)


def acknowledged(number: int, at_ms: int = 0, consumer: str = "c") -> Row:
    return Row(Kind.ACKNOWLEDGED, "p", number, "a", at_ms or 1030 + number, consumer, "q", 100 + number)


def clean(numbers: Iterable[int] = range(4)) -> list[Row]:
    rows: list[Row] = []
    for make in (sent, confirmed, delivered, acknowledged):
        rows += [make(number) for number in numbers]
    return rows


def without(rows: list[Row], kind: Kind, number: int) -> list[Row]:
    return [row for row in rows if (row.kind, row.number) != (kind, number)]


def only(report: Report, sort: str) -> list[tuple[int, Reason]]:
    """The findings of one sort, after proving that there are no others."""
    found = getattr(report, sort)
    assert report.counts.findings == getattr(report.counts, sort) == len(found), report
    assert not report.ok
    return [(one.number, one.reason) for one in found]


def test_a_clean_history_has_no_findings() -> None:
    report = check(clean())
    assert report.ok
    assert (report.counts.sent, report.counts.messages, report.counts.unconfirmed) == (4, 4, 0)
    assert check([]) == Report()


def test_confirmed_and_never_delivered_is_lost_and_shows_its_rows() -> None:
    rows = without(without(clean(), Kind.DELIVERED, 2), Kind.ACKNOWLEDGED, 2)
    report = check(rows)
    assert only(report, "lost") == [(2, Reason.NEVER_DELIVERED)]
    assert [row.kind for row in report.lost[0].rows] == [Kind.SENT, Kind.CONFIRMED]
    assert check(iter(rows)).lost[0].rows == ()


def test_what_remains_in_the_queue_is_not_lost() -> None:
    rows = without(without(clean(), Kind.DELIVERED, 2), Kind.ACKNOWLEDGED, 2)
    assert check(rows, remaining={("p", 2)}).ok
    assert not check(rows, remaining={("other", 2), ("p", 1)}).ok


@pytest.mark.parametrize("was_delivered", [True, False])
def test_sent_without_confirmation_may_arrive_or_not(was_delivered: bool) -> None:
    rows = without(clean(), Kind.CONFIRMED, 3)
    if not was_delivered:
        rows = without(without(rows, Kind.DELIVERED, 3), Kind.ACKNOWLEDGED, 3)
    report = check(rows)
    assert report.ok
    assert report.counts.unconfirmed == 1


def test_a_message_that_is_not_durable_may_be_lost() -> None:
    assert check([sent(0, durable=False), confirmed(0, durable=False)]).ok
    assert check([sent(0, durable=False), confirmed(0)]).ok
    assert not check([sent(0), confirmed(0)]).ok


def test_delivered_and_never_sent_is_a_ghost() -> None:
    report = check(without(without(clean(), Kind.SENT, 1), Kind.CONFIRMED, 1))
    assert only(report, "unexplained") == [(1, Reason.DELIVERED_NEVER_SENT)]


def test_confirmed_and_never_sent_is_unexplained() -> None:
    assert only(check(without(clean(), Kind.SENT, 1)), "unexplained") == [
        (1, Reason.CONFIRMED_NEVER_SENT),
        (1, Reason.DELIVERED_NEVER_SENT),
    ]


def test_acknowledged_and_never_delivered_is_unexplained() -> None:
    report = check([*clean(), sent(9), acknowledged(9)])
    assert only(report, "unexplained") == [(9, Reason.ACKNOWLEDGED_NEVER_DELIVERED)]


@pytest.mark.parametrize("count", [1, 2])
def test_delivered_after_a_confirmed_acknowledgement_is_a_duplicate(count: int) -> None:
    report = check([*clean(), delivered(1, 2000, count=count)])
    assert only(report, "duplicated") == [(1, Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT)]
    assert report.counts.redelivered == 1


def test_delivered_to_another_consumer_after_the_acknowledgement_is_a_duplicate() -> None:
    other = delivered(1, 2000, consumer="d")
    for rows in ([*clean(), other], [other, *clean()]):
        assert only(check(rows), "duplicated") == [(1, Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT)]


def test_delivered_to_another_consumer_before_the_acknowledgement_is_explained() -> None:
    assert check([*clean(), delivered(1, 1025, consumer="d")]).ok


def test_clock_skew_between_consumers_is_in_the_brokers_favour() -> None:
    rows = [*clean(), delivered(1, 1036, consumer="d")]
    assert not check(rows, clock_skew_ms=4).ok
    assert check(rows, clock_skew_ms=5).ok


@pytest.mark.parametrize("count", [0, 1, 2])
def test_delivered_again_without_acknowledgement_is_explained(count: int) -> None:
    """Also with delivery count 1: a broker that failed over may not know that it had delivered."""
    first = without(clean(), Kind.ACKNOWLEDGED, 3)
    report = check([*first, delivered(3, 2000, count=count), acknowledged(3, 2001)])
    assert report.ok
    assert report.counts.redelivered == 1


@pytest.mark.parametrize("count", [1, 2])
def test_two_message_ids_mean_stored_twice(count: int) -> None:
    rows = without(clean(), Kind.ACKNOWLEDGED, 3)
    report = check([*rows, delivered(3, 2000, message_id=999, count=count)])
    assert only(report, "duplicated") == [(3, Reason.STORED_TWICE)]
    assert check([*rows, delivered(3, 2000, message_id=0)]).ok


def test_copies_on_two_queues_are_no_duplicates() -> None:
    copies = [replace(row, queue="q2") for row in clean() if row.queue]
    assert check(clean() + copies).ok


def test_a_first_delivery_that_goes_back_is_reordered() -> None:
    rows = [*map(sent, range(4)), *map(confirmed, range(4)), *map(delivered, (0, 2, 1, 3))]
    report = check(rows)
    assert only(report, "reordered") == [(1, Reason.OUT_OF_ORDER)]
    assert report.reordered[0].after == 2
    assert {row.number for row in report.reordered[0].rows} == {1, 2}


def test_a_rewind_may_go_back_and_must_continue_in_order() -> None:
    base = [*map(sent, range(6)), *map(confirmed, range(6)), *map(delivered, (0, 1, 2, 3))]
    assert check([*base, *map(delivered, (2, 3, 4, 5))]).ok
    report = check([*base, *map(delivered, (2, 3, 5, 4))])
    assert only(report, "reordered") == [(4, Reason.OUT_OF_ORDER)]


def test_a_redelivery_unknown_to_the_ledger_is_left_out_of_the_order() -> None:
    """A killed consumer's last rows may be missing; its successor sees the tail flagged."""
    base = [*map(sent, range(4)), *map(confirmed, range(4)), *map(delivered, (0, 3))]
    assert check([*base, delivered(1, count=2), delivered(2, count=2)]).ok
    assert not check([*base, delivered(1, count=2), delivered(2)]).ok
    first_seen_flagged = [delivered(3, count=2), delivered(0), delivered(1), delivered(2)]
    assert check([*map(sent, range(4)), *first_seen_flagged]).ok


def test_the_course_of_a_queue_runs_through_consumers_that_follow_each_other() -> None:
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    first = [delivered(number, 2000 + number, consumer="z") for number in (0, 2)]
    second = [delivered(number, 3000 + number, consumer="b") for number in (1, 3)]
    for rows in (first + second, second + first):
        assert only(check(base + rows), "reordered") == [(1, Reason.OUT_OF_ORDER)]


def test_order_of_competing_consumers_is_not_judged_and_that_is_said() -> None:
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    first = [delivered(0, 2000), delivered(3, 2010), delivered(1, 2020)]
    other = [delivered(2, 2005, consumer="d")]
    report = check(base + first + other)
    assert report.ok
    assert report.order_not_judged == ("q",)


def test_windows_are_pauses_between_confirmations_longest_first() -> None:
    times = [1000, 1250, 1501, 3000]
    rows = [row for place, at_ms in enumerate(times) for row in (sent(place, 900), confirmed(place, at_ms))]
    report = check(reversed(rows), remaining={("p", number) for number in range(4)})
    assert report.windows == (Window("p", 1501, 3000), Window("p", 1250, 1501))
    assert report.windows[0].duration_ms == 1499
    assert report.ok
    assert check(rows, window_ms=1499, remaining={("p", n) for n in range(4)}).counts.windows == 0


def test_percentiles_are_nearest_rank() -> None:
    assert latency_of({}) is None
    exact = latency_of(dict.fromkeys(range(1, 1001), 1))
    assert exact is not None
    assert (exact.count, exact.p50_ms, exact.p99_ms, exact.p999_ms, exact.max_ms) == (1000, 500, 990, 999, 1000)
    assert [rank_of(1, permille) for permille in (500, 990, 999)] == [1, 1, 1]
    one = latency_of({7: 1})
    assert one is not None
    assert (one.p50_ms, one.p999_ms) == (7, 7)


def test_latencies_run_from_the_first_of_each() -> None:
    rows = [sent(0, 100), sent(0, 90), confirmed(0, 200), confirmed(0, 150), delivered(0, 300), delivered(0, 250)]
    report = check(rows)
    assert report.confirm_latency is not None
    assert report.delivery_latency is not None
    assert (report.confirm_latency.p50_ms, report.delivery_latency.max_ms) == (60, 160)


def test_a_flood_of_findings_is_counted_whole_and_listed_in_part() -> None:
    count = 40 * FINDINGS_LISTED_MAX
    report = check([row for number in range(count) for row in (sent(number), confirmed(number))])
    assert report.counts.lost == count
    assert [one.number for one in report.lost] == list(range(FINDINGS_LISTED_MAX))


def test_numbers_far_apart_do_not_mix() -> None:
    far = [0, 255, 256, 2**40, 2**63 - 1]
    rows = [replace(row, number=far[row.number]) for row in clean(range(5))]
    assert check(rows).ok
    assert only(check([*rows, sent(1), confirmed(1)]), "lost") == [(1, Reason.NEVER_DELIVERED)]


def test_the_report_as_json_carries_everything_a_script_needs() -> None:
    fields = check([*clean(), delivered(1, 2000)]).to_json()
    assert fields["ok"] is False
    assert fields["counts"]["duplicated"] == 1  # type: ignore[index]
    (finding,) = fields["duplicated"]  # type: ignore[misc]
    assert finding["reason"] == Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT.value
    assert finding["rows"][0]["kind"] == "SENT"
    assert fields["confirm_latency"]["p50_ms"] == 10  # type: ignore[index]
