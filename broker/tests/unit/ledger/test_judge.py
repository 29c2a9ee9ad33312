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


def drained(at_ms: int = 5000, address: str = "a", queue: str = "q") -> Row:
    return Row(Kind.DRAINED, "", 0, address, at_ms, "drain", queue)


def acknowledging(number: int, at_ms: int = 0, consumer: str = "c") -> Row:
    return replace(acknowledged(number, at_ms, consumer), kind=Kind.ACKNOWLEDGING)


def remaining(number: int, at_ms: int = 4000, **more: object) -> Row:
    return replace(Row(Kind.REMAINING, "p", number, "a", at_ms, "drain", "q", 100 + number), **more)  # type: ignore[arg-type]


def refused(number: int, transaction: str = "") -> Row:
    return Row(Kind.REFUSED, "p", number, "a", 1011, transaction=transaction)


def check_unsettled(rows: Iterable[Row]) -> Report:
    """Judge a history whose unacknowledged messages are all still in their queue."""
    return check(rows, remaining={("p", number) for number in range(10)})


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
    rows = [*without(without(clean(), Kind.DELIVERED, 2), Kind.ACKNOWLEDGED, 2), drained()]
    report = check(rows)
    assert only(report, "lost") == [(2, Reason.NEVER_DELIVERED)]
    assert [row.kind for row in report.lost[0].rows] == [Kind.SENT, Kind.CONFIRMED]
    assert check(iter(rows)).lost[0].rows == ()


def test_messages_still_in_the_queue_are_not_lost() -> None:
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
    assert check([drained(), sent(0, durable=False), confirmed(0, durable=False)]).ok
    assert check([drained(), sent(0, durable=False), confirmed(0)]).ok
    assert not check([drained(), sent(0), confirmed(0)]).ok


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
    report = check_unsettled([*rows, delivered(3, 2000, message_id=999, count=count)])
    assert only(report, "duplicated") == [(3, Reason.STORED_TWICE)]
    assert check_unsettled([*rows, delivered(3, 2000, message_id=0)]).ok


def test_a_message_that_moved_to_another_member_has_another_id() -> None:
    """Delivered at one member, not acknowledged, delivered and acknowledged at another one."""
    rows = [
        *without(clean(), Kind.ACKNOWLEDGED, 3),
        delivered(3, 2000, "d", message_id=999),
        acknowledged(3, 2001, "d"),
    ]
    assert only(check(rows), "duplicated") == [(3, Reason.STORED_TWICE)]
    assert check(rows, members=True).ok
    twice = check([*rows, acknowledged(3, 2002)], members=True)
    assert only(twice, "duplicated") == [(3, Reason.STORED_TWICE)]
    # also if one consumer wrote both acknowledgements before the other one got its copy
    early = [*clean(), acknowledged(3, 30), delivered(3, 5, "d", message_id=999)]
    assert only(check(early, members=True), "duplicated") == [(3, Reason.STORED_TWICE)]
    again = check([*clean(), delivered(3, 2000, "d", message_id=999)], members=True)
    assert only(again, "duplicated") == [(3, Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT)]


def test_order_between_members_is_not_judged() -> None:
    rows = [row for row in clean((1, 0)) if row.kind is not Kind.SENT]
    rows = [sent(0), sent(1), *sorted(rows, key=lambda row: -row.number)]
    assert not check(rows).ok
    found = check(rows, members=True)
    assert found.ok
    assert found.order_not_judged == ("q",)


def test_copies_on_two_queues_are_no_duplicates() -> None:
    copies = [replace(row, queue="q2") for row in clean() if row.queue]
    assert check(clean() + copies).ok


def test_a_first_delivery_that_goes_back_is_reordered() -> None:
    rows = [*map(sent, range(4)), *map(confirmed, range(4)), *map(delivered, (0, 2, 1, 3))]
    report = check_unsettled(rows)
    assert only(report, "reordered") == [(1, Reason.OUT_OF_ORDER)]
    assert report.reordered[0].after == 2
    assert {row.number for row in report.reordered[0].rows} == {1, 2}


def test_a_rewind_may_go_back_and_must_continue_in_order() -> None:
    base = [*map(sent, range(6)), *map(confirmed, range(6)), *map(delivered, (0, 1, 2, 3))]
    assert check_unsettled([*base, *map(delivered, (2, 3, 4, 5))]).ok
    report = check_unsettled([*base, *map(delivered, (2, 3, 5, 4))])
    assert only(report, "reordered") == [(4, Reason.OUT_OF_ORDER)]


def test_a_redelivery_unknown_to_the_ledger_is_left_out_of_the_order() -> None:
    """A killed consumer's last rows may be missing; its successor sees the tail flagged."""
    base = [*map(sent, range(4)), *map(confirmed, range(4)), *map(delivered, (0, 3))]
    assert check_unsettled([*base, delivered(1, count=2), delivered(2, count=2)]).ok
    assert not check_unsettled([*base, delivered(1, count=2), delivered(2)]).ok
    first_seen_flagged = [delivered(3, count=2), delivered(0), delivered(1), delivered(2)]
    assert check_unsettled([*map(sent, range(4)), *first_seen_flagged]).ok


def test_the_course_of_a_queue_runs_through_consumers_that_follow_each_other() -> None:
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    first = [delivered(number, 2000 + number, consumer="z") for number in (0, 2)]
    second = [delivered(number, 3000 + number, consumer="b") for number in (1, 3)]
    for rows in (first + second, second + first):
        assert only(check_unsettled(base + rows), "reordered") == [(1, Reason.OUT_OF_ORDER)]


def test_order_of_competing_consumers_is_not_judged_and_that_is_said() -> None:
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    first = [delivered(0, 2000), delivered(3, 2010), delivered(1, 2020)]
    other = [delivered(2, 2005, consumer="d")]
    report = check_unsettled(base + first + other)
    assert report.ok
    assert report.order_not_judged == ("q",)


def opened(at_ms: int, consumer: str = "c") -> Row:
    return Row(Kind.OPENED, "", 0, "", at_ms, consumer, "q")


def closed(at_ms: int, consumer: str = "c") -> Row:
    return Row(Kind.CLOSED, "", 0, "", at_ms, consumer, "q")


#: Number 3 came first, then 0, 1 and 2 to another consumer, later by the times of the deliveries.
LATE = [delivered(3, 2000), *(delivered(number, 2100 + number, "d") for number in range(3))]


@pytest.mark.parametrize(
    "opening",
    [
        [opened(1900), opened(1950, "d"), closed(2200), closed(2300, "d")],
        [opened(1950, "d"), opened(1960), closed(1999, "d"), opened(2050, "d"), closed(2200, "d"), closed(2300)],
        [opened(1900), opened(2050, "d"), closed(2300, "d")],
    ],
    ids=["both open", "open before its first delivery", "never closed"],
)
def test_order_is_not_judged_where_consumers_were_open_together_although_their_deliveries_do_not_overlap(
    opening: list[Row],
) -> None:
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    for rows in (opening + LATE, LATE + opening):
        report = check_unsettled(base + rows)
        assert report.ok
        assert report.order_not_judged == ("q",)
    assert only(check_unsettled(base + LATE), "reordered") == [(number, Reason.OUT_OF_ORDER) for number in range(3)]


def test_order_is_not_judged_where_an_open_consumer_received_nothing() -> None:
    """Messages that the open consumer has fetched return to the queue when it is closed, after the other consumer
    received later messages.
    """
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    course = [delivered(number, 2000 + place) for place, number in enumerate((2, 3, 0, 1))]
    idle = [opened(1900, "d"), closed(2001, "d")]
    assert check_unsettled([*base, *idle, opened(1910), *course, closed(2100)]).order_not_judged == ("q",)
    report = check_unsettled([*base, *idle, opened(2001), *course, closed(2100)])
    assert report.order_not_judged == ("q",), "a delivery shows that the consumer was open"
    report = check_unsettled([*base, opened(1900, "d"), closed(1901, "d"), opened(1901), *course, closed(2100)])
    assert only(report, "reordered") == [(0, Reason.OUT_OF_ORDER), (1, Reason.OUT_OF_ORDER)]


def test_the_course_runs_through_consumers_that_were_opened_after_the_one_before_was_closed() -> None:
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    rows = [opened(1900), *LATE[:1], closed(2050), opened(2050, "d"), *LATE[1:], closed(2200, "d")]
    for history in (rows, rows[::-1]):
        assert check_unsettled(base + history).order_not_judged == ()
    assert only(check_unsettled(base + rows), "reordered") == [(number, Reason.OUT_OF_ORDER) for number in range(3)]
    last_not_closed = rows[:-1]
    assert check_unsettled(base + last_not_closed).counts.reordered == 3
    assert check_unsettled([opened(9000, "e"), closed(9001, "e"), *base, *rows]).counts.reordered == 3


def test_a_consumer_that_is_opened_again_without_having_been_closed_competes_with_itself() -> None:
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    rows = [opened(1900), delivered(3, 2000), opened(2050), delivered(0, 2100), closed(2200)]
    assert check_unsettled(base + rows).order_not_judged == ("q",)
    rows.insert(2, closed(2040))
    assert only(check_unsettled(base + rows), "reordered") == [(0, Reason.OUT_OF_ORDER)]


def test_clock_skew_may_make_consumers_overlap() -> None:
    base = [*map(sent, range(4)), *map(confirmed, range(4))]
    between = 2100 - 2000
    for rows in (LATE, [opened(1900), LATE[0], closed(2000), opened(2100, "d"), *LATE[1:], closed(2200, "d")]):
        assert check([*base, *rows], remaining=(), clock_skew_ms=between).counts.reordered == 3
        assert check([*base, *rows], remaining=(), clock_skew_ms=between + 1).counts.reordered == 0


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
    report = check([row for number in range(count) for row in (sent(number), confirmed(number))], remaining=())
    assert report.counts.lost == count
    assert [one.number for one in report.lost] == list(range(FINDINGS_LISTED_MAX))


def test_numbers_far_apart_do_not_mix() -> None:
    far = [0, 255, 256, 2**40, 2**63 - 1]
    rows = [replace(row, number=far[row.number]) for row in clean(range(5))]
    assert check(rows).ok
    assert only(check([*rows, sent(1), confirmed(1), drained()]), "lost") == [(1, Reason.NEVER_DELIVERED)]


def test_the_report_as_json_carries_everything_a_script_needs() -> None:
    fields = check([*clean(), delivered(1, 2000)]).to_json()
    assert fields["ok"] is False
    assert fields["counts"]["duplicated"] == 1  # type: ignore[index]
    (finding,) = fields["duplicated"]  # type: ignore[misc]
    assert finding["reason"] == Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT.value
    assert finding["rows"][0]["kind"] == "SENT"
    assert fields["confirm_latency"]["p50_ms"] == 10  # type: ignore[index]
    assert fields["verdict"] == "broken"
    assert fields["reasons"][Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT.value] == 1  # type: ignore[index]


# --- what became of a message that was delivered -------------------------------------------------


def unsettled(number: int = 2) -> list[Row]:
    """A history in which one message was delivered and not acknowledged."""
    return without(clean(), Kind.ACKNOWLEDGED, number)


def test_a_delivered_message_that_is_gone_without_acknowledgement_is_lost() -> None:
    report = check([*unsettled(), drained()])
    assert only(report, "lost") == [(2, Reason.NEVER_ACKNOWLEDGED)]
    assert report.lost[0].queue == "q"
    assert [row.kind for row in report.lost[0].rows] == [Kind.SENT, Kind.CONFIRMED, Kind.DELIVERED]
    assert report.reasons == ((Reason.NEVER_ACKNOWLEDGED, 1),)
    assert only(check(unsettled(), remaining=()), "lost") == [(2, Reason.NEVER_ACKNOWLEDGED)]


def test_an_acknowledgement_whose_answer_was_cut_off_may_have_been_taken() -> None:
    assert check([*unsettled(), acknowledging(2), drained()]).ok
    report = check([*unsettled(), acknowledging(2), replace(acknowledging(2), kind=Kind.REFUSED), drained()])
    assert only(report, "lost") == [(2, Reason.NEVER_ACKNOWLEDGED)], "rolled back, so it had no effect"


def test_a_message_that_is_still_in_the_queue_or_was_moved_is_not_lost() -> None:
    assert check([*unsettled(), remaining(2), drained()]).ok
    assert check([*unsettled(), remaining(2, queue="DLQ", message_id=7), drained()]).ok
    moved = replace(delivered(2, 4000), queue="DLQ", origin="q", message_id=7)
    done = replace(acknowledged(2, 4001), queue="DLQ", message_id=7)
    assert check([*unsettled(), moved, done, drained()]).ok
    assert not check([*unsettled(), replace(moved, origin="other"), done, drained()]).ok


def test_a_copy_is_lost_on_its_own_queue_whatever_became_of_the_other() -> None:
    other = [replace(row, queue="q2", message_id=7) for row in clean() if row.queue]
    report = check([*unsettled(), *other, drained()])
    assert [(one.queue, one.reason) for one in report.lost] == [("q", Reason.NEVER_ACKNOWLEDGED)]


@pytest.mark.parametrize("drains", [[], [drained(1011)], [drained(5000, "b", "r")]])
def test_without_a_drain_after_the_confirmation_a_message_is_unresolved(drains: list[Row]) -> None:
    report = check([*unsettled(), *drains])
    assert (report.ok, report.verdict, report.counts.findings) == (False, "unresolved", 0)
    assert [(one.number, one.reason) for one in report.unresolved] == [(2, Reason.ACKNOWLEDGEMENT_NOT_SEEN)]
    report = check([sent(1), confirmed(1, 1012), *drains])
    assert [(one.number, one.reason) for one in report.unresolved] == [(1, Reason.DELIVERY_NOT_SEEN)]


@pytest.mark.parametrize("address", ["a", "q", "a::q"])
def test_a_drain_covers_the_names_a_producer_may_use(address: str) -> None:
    rows = [sent(1, address=address), confirmed(1, address=address)]
    assert check([*rows, drained()]).counts.lost == 1
    assert check(rows).counts.unresolved == 1


def test_clock_skew_makes_a_drain_that_is_hardly_later_none() -> None:
    assert check([*unsettled(), drained(1020)], clock_skew_ms=8).counts.lost == 1
    assert check([*unsettled(), drained(1020)], clock_skew_ms=9).counts.unresolved == 1


def test_an_old_ledger_cannot_prove_a_loss_after_delivery() -> None:
    old = [replace(row, version=1) for row in unsettled()]
    assert check([*old, drained()]).verdict == "unresolved"
    assert check([replace(row, version=1) for row in clean()]).ok


def test_in_the_queue_after_its_acknowledgement_is_a_duplicate() -> None:
    assert only(check([*clean(), remaining(2)]), "duplicated") == [(2, Reason.REMAINING_AFTER_ACKNOWLEDGEMENT)]
    assert check([*clean(), remaining(2, 1032)]).ok
    assert check([*clean(), remaining(2, 1040)], clock_skew_ms=8).ok


def test_in_the_queue_and_never_sent_is_unexplained() -> None:
    assert only(check([*clean(), remaining(8)]), "unexplained") == [(8, Reason.REMAINING_NEVER_SENT)]


# --- bodies and transactions -----------------------------------------------------------------------


def test_another_body_than_was_sent_is_corrupted() -> None:
    rows = [replace(row, digest=row.number + 1) if row.kind in (Kind.SENT, Kind.DELIVERED) else row for row in clean()]
    assert check(rows).ok
    swapped = [replace(row, digest=1) if (row.kind, row.number) == (Kind.DELIVERED, 2) else row for row in rows]
    for history in (swapped, swapped[::-1]):
        report = check(history, remaining=())
        assert (2, Reason.ANOTHER_BODY) in [(one.number, one.reason) for one in report.corrupted]
    assert only(check(swapped), "corrupted") == [(2, Reason.ANOTHER_BODY)]
    unknown = [replace(row, digest=0) if row.kind is Kind.SENT else row for row in swapped]
    assert check(unknown).ok, "nothing to compare with"


def test_refused_messages_must_not_be_received() -> None:
    assert check([*clean(), sent(9), refused(9)]).ok
    rows = [*clean(), sent(9), refused(9)]
    assert only(check([*rows, delivered(9)]), "refused") == [(9, Reason.VISIBLE_AFTER_REFUSAL)]
    assert only(check([*rows, remaining(9)]), "refused") == [(9, Reason.VISIBLE_AFTER_REFUSAL)]
    both = check([*clean(), refused(1)])
    assert (both.counts.unexplained, both.counts.refused) == (1, 1)


def in_transaction(*numbers: int) -> list[Row]:
    return [sent(number, transaction="t") for number in numbers]


def test_a_transaction_of_unknown_outcome_takes_effect_as_a_whole() -> None:
    whole = [*in_transaction(0, 1), delivered(0), delivered(1), acknowledged(0), acknowledged(1)]
    assert check([*whole, drained()]).ok
    assert check([*in_transaction(0, 1), drained()]).ok
    half = [row for row in whole if row.number == 0] + in_transaction(1)
    assert only(check([*half, drained()]), "partial") == [(1, Reason.PART_OF_A_TRANSACTION)]
    assert check(half).verdict == "unresolved"
    assert check([*half, remaining(1), drained()]).ok
    confirmed_half = [*in_transaction(0, 1), confirmed(0, transaction="t"), remaining(0), drained()]
    assert only(check(confirmed_half), "partial") == [(1, Reason.PART_OF_A_TRANSACTION)]


def test_a_drain_before_the_transaction_took_effect_proves_nothing() -> None:
    half = [*in_transaction(0, 1), confirmed(0, 2000), remaining(0, 2500)]
    assert check([*half, drained(1999)]).counts.unresolved == 1
    assert check([*half, drained(2000)]).counts.partial == 1
