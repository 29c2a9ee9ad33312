"""Goal: each transformation says exactly its sentence, and no plan shuffles more than it needs.

Method: frames of a few rows; the property test checks them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from understudy.ledger import KIND_ORDER, Kind, Reason, Row
from understudy.spark.ledger import audits

pytestmark = pytest.mark.spark

SCHEMA = (
    "ordinal bigint, kind string, producer string, number bigint, address string, at_ms bigint, consumer string,"
    " queue string, message_id bigint, delivery_count bigint, durable boolean, digest bigint, transaction string,"
    " origin string, version bigint, node string, node_id string, epoch bigint, kind_order int"
)

Frame = Callable[[Iterable[Row]], DataFrame]


@pytest.fixture
def frame(spark: SparkSession) -> Frame:
    def make(rows: Iterable[Row]) -> DataFrame:
        data = [
            (
                place, row.kind.value, row.producer, row.number, row.address, row.at_ms, row.consumer, row.queue,
                row.message_id, row.delivery_count, row.durable, row.digest, row.transaction, row.origin, row.version,
                row.node, row.node_id, row.epoch, KIND_ORDER[row.kind],
            )
            for place, row in enumerate(rows)
        ]  # fmt: skip
        return spark.createDataFrame(data, SCHEMA)

    return make


def sent(number: int, at_ms: int = 0) -> Row:
    return Row(Kind.SENT, "p", number, "a", at_ms)


def confirmed(number: int, at_ms: int = 0, durable: bool = True) -> Row:
    return Row(Kind.CONFIRMED, "p", number, "a", at_ms, durable=durable)


def delivered(number: int, at_ms: int = 0, consumer: str = "c", count: int = 1, message_id: int = 0) -> Row:
    return Row(Kind.DELIVERED, "p", number, "a", at_ms, consumer, "q", message_id, count)


def acknowledged(number: int, at_ms: int = 0, consumer: str = "c") -> Row:
    return Row(Kind.ACKNOWLEDGED, "p", number, "a", at_ms, consumer, "q")


def keys(findings: DataFrame) -> set[tuple[int, str, int]]:
    return {(one["number"], one["reason"], one["after"]) for one in findings.collect()}


def test_messages_hold_the_first_of_each_time(frame: Frame) -> None:
    rows = [sent(1, 9), sent(1, 5), confirmed(1, 8, durable=False), delivered(1, 7), delivered(1, 6), sent(2, 1)]
    first, second = audits.messages(frame(rows)).orderBy("number").collect()
    assert (first["sent_at"], first["confirmed_at"], first["delivered_at"], first["transient"]) == (5, 8, 6, True)
    assert (second["confirmed_at"], second["transient"]) == (None, False)


def test_undelivered_and_ghosts(frame: Frame, spark: SparkSession) -> None:
    rows = [sent(1), confirmed(1), sent(2), confirmed(2, durable=False), confirmed(3), delivered(4), sent(5), sent(6),
            confirmed(6, 6), Row(Kind.DRAINED, "", 0, "a", 5, "d", "q")]  # fmt: skip
    data = frame(rows)
    messages, drains = audits.messages(data), audits.address_drains(data)
    remaining = spark.createDataFrame([("p", 6), ("x", 1)], "producer string, number bigint")
    never, unseen = Reason.NEVER_DELIVERED.value, Reason.DELIVERY_NOT_SEEN.value
    gone = {(1, never, -1), (3, never, -1)}
    assert keys(audits.undelivered(data, messages, drains, remaining, 0)) == gone
    assert keys(audits.undelivered(data, messages, drains, None, 0)) == {*gone, (6, unseen, -1)}
    assert keys(audits.ghosts(messages)) == {
        (3, Reason.CONFIRMED_NEVER_SENT.value, -1),
        (4, Reason.DELIVERED_NEVER_SENT.value, -1),
    }


def test_delivered_and_gone(frame: Frame) -> None:
    gone = [row for number in range(1, 6) for row in (sent(number), confirmed(number), delivered(number))]
    more = [
        replace(acknowledged(2), kind=Kind.ACKNOWLEDGING),
        replace(delivered(3), kind=Kind.REMAINING, queue="r"),
        replace(delivered(4), queue="r", origin="q"),
        replace(acknowledged(4), queue="r"),
        acknowledged(5),
        Row(Kind.DRAINED, "", 0, "a", 5, "d", "q"),
    ]
    data = frame([*gone, *more])
    copies = audits.copies(audits.consumptions(data))
    found = audits.unacknowledged(data, audits.messages(data), copies, audits.queue_drains(data), None, 0)
    assert keys(found) == {(1, Reason.NEVER_ACKNOWLEDGED.value, -1)}
    assert {one["sort"] for one in found.collect()} == {"lost"}


def test_duplicates(frame: Frame) -> None:
    rows = [
        *[delivered(1), acknowledged(1), delivered(1, count=2)],
        *[delivered(2), delivered(2), acknowledged(2)],
        *[delivered(3, message_id=7), delivered(3, message_id=8)],
        *[delivered(4, 10), acknowledged(4, 20), delivered(4, 31, consumer="d")],
        *[delivered(5, 10), acknowledged(5, 20), delivered(5, 30, consumer="d")],
        acknowledged(6),
    ]
    consumptions = audits.consumptions(frame(rows))
    copies = audits.copies(consumptions)
    crossed = audits.crossed(consumptions, copies, clock_skew_ms=10)
    assert {one["number"] for one in crossed.collect()} == {4}
    again = Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT.value
    assert keys(audits.duplicated(copies, crossed)) == {
        (1, again, -1),
        (3, Reason.STORED_TWICE.value, -1),
        (4, again, -1),
    }
    assert keys(audits.unfounded(copies)) == {(6, Reason.ACKNOWLEDGED_NEVER_DELIVERED.value, -1)}


def test_order_across_blocks_and_consumers(frame: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block is the same as all at once: every block length gives the same findings."""
    course = [0, 1, 5, 2, 3, 3, 4, 6, 9, 7, 8]
    rows = [delivered(number, 100 + place, "b") for place, number in enumerate(course)]
    rows += [delivered(number, 50 + number, "z") for number in (1, 0)]
    found = []
    for bits in (0, 1, 2, 20):
        monkeypatch.setattr(audits, "BLOCK_BITS", bits)
        data = frame(rows)
        found.append(keys(audits.reordered(audits.first_deliveries(data, audits.spans(data, 0)))))
    late = Reason.OUT_OF_ORDER.value
    assert found[0] == {(0, late, 1), (2, late, 5), (3, late, 5), (4, late, 5), (7, late, 9), (8, late, 9)}
    assert all(one == found[0] for one in found)


def test_shared_queues_are_not_judged(frame: Frame) -> None:
    data = frame([delivered(1, 10), delivered(0, 20), delivered(2, 15, "d")])
    spans = audits.spans(data, 0)
    assert [one["queue"] for one in audits.shared_queues(spans).collect()] == ["q"]
    assert audits.first_deliveries(data, spans).count() == 0


def test_spans_begin_when_a_consumer_is_opened_and_end_when_it_is_closed(frame: Frame) -> None:
    """The deliveries of d follow those of c on every queue."""

    def row(kind: Kind, at_ms: int, consumer: str, queue: str) -> Row:
        return Row(kind, "", 0, "", at_ms, consumer, queue)

    def story(queue: str, *edges: tuple[Kind, int, str]) -> list[Row]:
        deliveries = [delivered(1, 20), delivered(0, 40, "d")]
        return [row(*edge, queue) for edge in edges] + [replace(each, queue=queue) for each in deliveries]

    c_opens, c_closes = (Kind.OPENED, 10, "c"), (Kind.CLOSED, 30, "c")
    rows = [
        *story("deliveries alone"),
        *story("successors", c_opens, c_closes, (Kind.OPENED, 35, "d")),
        *story("both open", c_opens, c_closes, (Kind.OPENED, 29, "d"), (Kind.CLOSED, 50, "d")),
        *story("never closed", c_opens, (Kind.OPENED, 35, "d"), (Kind.CLOSED, 50, "d")),
        *story("another without deliveries", c_opens, c_closes, (Kind.OPENED, 15, "e"), (Kind.CLOSED, 16, "e")),
        *story("opened again", c_opens, c_closes, (Kind.OPENED, 32, "d"), (Kind.OPENED, 35, "d")),
    ]
    shared = {
        skew: {one["queue"] for one in audits.shared_queues(audits.spans(frame(rows), skew)).collect()}
        for skew in (0, 5, 6)
    }
    assert shared[0] == {"both open", "never closed", "another without deliveries", "opened again"}
    assert shared[5] == shared[0]
    assert shared[6] == shared[0] | {"successors"}
    assert "deliveries alone" not in shared[6]
    late = audits.reordered(audits.first_deliveries(frame(rows), audits.spans(frame(rows), 0))).collect()
    assert {(one["queue"], one["number"]) for one in late} == {("deliveries alone", 0), ("successors", 0)}


def test_windows_and_latencies(frame: Frame) -> None:
    rows = [sent(number, 10 * number) for number in range(1000)]
    rows += [confirmed(number, 10 * number + number) for number in range(1000)]
    rows += [confirmed(5000, 20_000), confirmed(5001, 20_000)]
    data = frame(rows)
    (window,) = audits.windows(data, 100).collect()
    assert (window["start_ms"], window["end_ms"], window["duration_ms"]) == (10_989, 20_000, 9_011)
    (latency,) = audits.latencies(audits.messages(data)).collect()
    assert latency.asDict() == {
        "end": "confirmed", "count": 1000, "p50_ms": 499, "p99_ms": 989, "p999_ms": 998, "max_ms": 999,
    }  # fmt: skip


def test_no_python_runs_per_row(frame: Frame) -> None:
    data = frame([delivered(1), acknowledged(1)])
    consumptions = audits.consumptions(data)
    copies = audits.copies(consumptions)
    for result in (
        audits.duplicated(copies, audits.crossed(consumptions, copies, 0)),
        audits.reordered(audits.first_deliveries(data, audits.spans(data, 0))),
        audits.latencies(audits.messages(data)),
    ):
        plan = result._jdf.queryExecution().toString()
        assert "Python" not in plan
        assert "Aggregate" in plan


def test_a_message_that_moved_between_members_is_stored_twice_only_with_two_acknowledgements(frame: Frame) -> None:
    moved = [delivered(1, 1, "c", message_id=1), delivered(1, 5, "d", message_id=9), acknowledged(1, 6, "d")]
    twice = [acknowledged(1, 7, "c")]
    for rows, members, expected in (
        (moved, True, set()),
        (moved, False, {(1, Reason.STORED_TWICE.value, -1)}),
        (moved + twice, True, {(1, Reason.STORED_TWICE.value, -1)}),
    ):
        consumptions = audits.consumptions(frame(rows))
        copies = audits.copies(consumptions)
        assert keys(audits.duplicated(copies, audits.crossed(consumptions, copies, 0), members=members)) == expected
