"""Each checker finds its kind of violation, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace

from understudy.errors import AddressFull, SendOutcomeUnknown
from understudy.ledger import UNKNOWN, Kind, Row, digest_of
from understudy.testing.runs.checkers import EpochChecker, judge_failures, judge_ledger
from understudy.testing.runs.workload import LedgerBook, _outcome, body_of
from understudy.testing.sim.loop import Failure


def row(kind: Kind, number: int, **fields) -> Row:
    return Row(kind, "p", number, "q", 1000 + number, **fields)


def delivery(number: int, **fields) -> Row:
    return row(Kind.DELIVERED, number, consumer="c", queue="q", **fields)


def checks(violations) -> list[str]:
    return [violation.check for violation in violations]


def test_a_clean_hand_over_is_no_violation():
    checker = EpochChecker()
    checker.activated(1.0, "a.1", 1, [])
    checker.confirmed(1.5, "a.1", 1, 1.4)
    checker.activated(2.0, "b.1", 2, [])
    checker.confirmed(2.5, "b.1", 2, 2.4)
    assert (checker.violations, checker.confirmations) == ([], 2)


def test_two_active_nodes_are_found():
    checker = EpochChecker()
    checker.activated(1.0, "a.1", 1, [])
    checker.activated(2.0, "b.1", 2, ["a.1"])
    assert checks(checker.violations) == ["two-active"]
    assert "b.1 became active while a.1 served" in str(checker.violations[0])


def test_an_epoch_that_does_not_grow_is_found():
    checker = EpochChecker()
    for epoch in (3, 3, 2, 4):
        checker.activated(epoch, f"a.{epoch}", epoch, [])
    assert checks(checker.violations) == ["epoch", "epoch"]


def test_a_zombie_is_found_only_for_records_written_after_the_younger_epoch_began():
    checker = EpochChecker()
    checker.activated(1.0, "a.1", 1, [])
    checker.activated(2.0, "b.1", 2, [])
    checker.confirmed(9.0, "a.1", 1, 1.9)
    assert checker.violations == []
    checker.confirmed(9.0, "a.1", 1, 2.1)
    assert checks(checker.violations) == ["zombie"]


def test_ledger_findings_become_violations_by_sort():
    sent = [row(kind, number) for number in range(4) for kind in (Kind.SENT, Kind.CONFIRMED)]
    sent.append(Row(Kind.DRAINED, "", 0, "q", 9000, "observer", "q"))

    def story(deliveries: list[Row], missing: Collection[int] = ()) -> list[Row]:
        taken = {delivered.number for delivered in deliveries} - set(missing)
        return [*sent, *deliveries, *(row(Kind.ACKNOWLEDGED, each, consumer="c", queue="q") for each in taken)]

    def found(rows: list[Row], **options) -> list[str]:
        return checks(judge_ledger(rows, **options))

    assert found(story([*map(delivery, range(4))])) == []
    assert found(story([*map(delivery, (0, 1, 3))])) == ["lost"]
    assert found(story([*map(delivery, range(4))], missing=[2])) == ["lost"]
    undrained = [each for each in story([*map(delivery, (0, 1, 3))]) if each.kind is not Kind.DRAINED]
    assert found(undrained) == ["unresolved"]
    assert found(undrained, drained=False) == []
    assert found(story([*map(delivery, (0, 2, 1, 3))])) == ["reordered"]
    twice = [delivery(number, message_id=number + 1) for number in range(4)] + [delivery(0, message_id=9)]
    assert found(story(twice)) == ["duplicated"]
    assert found(story([*map(delivery, range(5))])) == ["unexplained"]
    assert found([*story([*map(delivery, range(4))]), row(Kind.REFUSED, 3)]) == ["unexplained", "refused"]


def test_a_message_that_was_damaged_before_its_confirmation_and_sent_again_may_come_late():
    sent = [row(Kind.SENT, 0), row(Kind.SENT, 1)]
    late = [*sent, delivery(1), delivery(0), row(Kind.CONFIRMED, 0), row(Kind.CONFIRMED, 1)]
    assert "reordered" in checks(judge_ledger(late, set_aside={("p", 1)}))
    assert "reordered" not in checks(judge_ledger(late, set_aside={("p", 0)}))


def test_a_message_that_was_delivered_damaged_and_sent_again_has_two_ids_but_is_acknowledged_once():
    first, second = delivery(0, message_id=1), delivery(0, message_id=2)
    again = [row(Kind.SENT, 0), first, second, row(Kind.CONFIRMED, 0)]
    acknowledged = [Row(Kind.ACKNOWLEDGED, "p", 0, "q", 1000, "c", "q", each) for each in (1, 2)]
    assert checks(judge_ledger([*again, acknowledged[1]])) == ["duplicated"]
    assert judge_ledger([*again, acknowledged[1]], set_aside={("p", 0)}) == []
    assert checks(judge_ledger([*again, *acknowledged], set_aside={("p", 0)})) == ["duplicated"]


def test_messages_set_aside_are_not_lost_and_the_others_are():
    sent = [row(kind, number) for number in range(2) for kind in (Kind.SENT, Kind.CONFIRMED)]
    sent.append(Row(Kind.DRAINED, "", 0, "q", 9000, "observer", "q"))
    assert checks(judge_ledger(sent)) == ["lost"]
    assert str(judge_ledger(sent, set_aside={("p", 1)})[0]).startswith("lost: 1: p 0 ")
    assert judge_ledger(sent, set_aside={("p", 0), ("p", 1)}) == []
    corrupted = [*sent, delivery(0, digest=5), row(Kind.ACKNOWLEDGED, 0, consumer="c", queue="q")]
    corrupted[0] = row(Kind.SENT, 0, digest=6)
    found = checks(judge_ledger(corrupted, set_aside={("p", 0), ("p", 1)}))
    assert found == ["corrupted"], "a message that is set aside must not be delivered"


def test_a_delivery_after_an_acknowledgement_counts_unless_it_was_fetched_before():
    def story(consumer: str, session_ms: int, *more: Row) -> list[str]:
        first = Row(Kind.DELIVERED, "p", 0, "q", 1010, "c", "q", 7, 1)
        acknowledged = Row(Kind.ACKNOWLEDGED, "p", 0, "q", 1020, "c", "q", 7)
        second = Row(Kind.DELIVERED, "p", 0, "q", 1030, consumer, "q", 7, 1)
        rows = [row(Kind.SENT, 0), row(Kind.CONFIRMED, 0), first, acknowledged, second, *more]
        return checks(judge_ledger(rows, sessions={first: 1000, second: session_ms}))

    assert story("d", 1019) == [], "in its buffer when its connection broke"
    assert story("d", 1021) == ["duplicated"], "sent by a broker that had confirmed the acknowledgement"
    assert story("c", 1000) == ["duplicated"], "to the same consumer"
    asked, refused = (Row(kind, "p", 0, "q", 1040, "d", "q", 7) for kind in (Kind.ACKNOWLEDGING, Kind.REFUSED))
    assert story("d", 1019, asked, refused) == [], "its acknowledgement comes to nothing"
    twice = Row(Kind.ACKNOWLEDGED, "p", 0, "q", 1040, "d", "q", 7)
    assert story("d", 1019, twice) == ["duplicated"], "and acknowledged twice"


def test_failures_are_violations():
    failure = Failure(1.5, "a.1", "Exception in callback", ValueError("oops"))
    assert str(judge_failures([failure])[0]) == "failure: 1.500000 a.1: Exception in callback: ValueError: oops"


class Received:
    """Fields of a received message that the book reads."""

    queue, message_id, delivery_count = "q", 7, 2

    def __init__(self, producer: object, number: object, body: bytes) -> None:
        self.properties = {"ledger_producer": producer, "ledger_number": number}
        self.body = body


def test_the_book_notes_deliveries_and_finds_changed_bodies():
    book = LedgerBook(lambda: 5)
    body = body_of("p", 3, 50)
    delivered = book.delivered(Received("p", 3, body), "c", 2)
    assert delivered == Row(Kind.DELIVERED, "p", 3, "q", 5, "c", "q", 7, 2, digest=digest_of(body))
    assert book.sessions == {delivered: 2}
    book.acknowledged(delivered, UNKNOWN)
    assert book.rows == [delivered, Row(Kind.ACKNOWLEDGED, "p", 3, "q", 5, "c", "q", 7)]
    assert book.violations == []
    book.delivered(Received("p", 4, body_of("p", 3, 50)), "c", 2)
    book.delivered(Received(None, 3, b""), "c", 2)
    assert checks(book.violations) == ["corrupt", "corrupt"]


def test_outcomes_of_sends_are_noted():
    book = LedgerBook(lambda: 5)
    connection = SimpleNamespace(serving_node=("a:1", "id", 3))
    loop = asyncio.new_event_loop()
    outcomes = [None, AddressFull("full"), SendOutcomeUnknown("gone"), ValueError("oops"), asyncio.CancelledError()]
    try:
        for number, outcome in enumerate(outcomes):
            future = loop.create_future()
            if outcome is None:
                future.set_result(None)
            elif isinstance(outcome, asyncio.CancelledError):
                future.cancel()
            else:
                future.set_exception(outcome)
            _outcome(book, "p", number, "q", connection)(future)
    finally:
        loop.close()
    confirmed = Row(Kind.CONFIRMED, "p", 0, "q", 5, node="a:1", node_id="id", epoch=3)
    assert book.rows == [confirmed, Row(Kind.REFUSED, "p", 1, "q", 5)]
    assert [violation.text for violation in book.violations] == ["send of p 3 ended with ValueError('oops')"]
