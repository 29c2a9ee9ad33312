"""Job ``flow`` against a plain Python reading of the same journals.

Every record is decoded by itself, and every message in every queue is an entry of a dictionary. Journals with
snapshots are compared with the state that a broker recovers. Forecasts are checked on series with known slopes.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.support.copies import act, restart, write_out
from tests.support.journals import plain_records
from tests.support.seeds import seeds
from tests.support.store import StoreHarness

from understudy.message import Message
from understudy.runtime.base.disk import RealDisk
from understudy.spark.flow.flows import Flow, Settings, flow
from understudy.spark.flow.forecasts import forecast_disk, slope
from understudy.spark.flow.page import flow_page
from understudy.spark.flow.report import Axis, stretches
from understudy.spark.flow.rows import SLICES, segment_times
from understudy.spark.journal.log_plan import LogPlan, Piece, parse_options, plan_logs
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import (
    AcknowledgeRecord,
    CommitRecord,
    EpochRecord,
    MessageRecord,
    PrepareRecord,
    QueueRemoveRecord,
    RecordType,
    RollbackRecord,
)
from understudy.store.log.segment import HEADER_BLOCK_BYTES
from understudy.store.messages.reference import unpack_location

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def some_history(seed: int, directory: Path, *, compacts: bool) -> str:
    stream = random.Random(seed)
    rig = StoreHarness(stream, compact_segments_min=2 * compacts, compact_percent=75)
    rig.activate("a")
    act(rig, 250)
    for _ in range(stream.randrange(1, 3)):
        rig.prepared = {}
        restart(rig)
        act(rig, 100)
    return str(write_out(rig, directory))


@dataclass
class Plain:
    """Numbers of one journal, counted one by one."""

    came: Counter[int] = field(default_factory=Counter)
    acknowledged: Counter[int] = field(default_factory=Counter)
    held: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)
    """Queue and message to segment, offset and length."""
    messages: Counter[int] = field(default_factory=Counter)
    message_bytes: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    kind_bytes: Counter[str] = field(default_factory=Counter)


def plain_flow(store: str) -> Plain:
    found = Plain()
    open_transactions: dict[int, list[tuple[Any, tuple[int, int, int]]]] = {}
    prepared: set[int] = set()

    def take(record: Any, place: tuple[int, int, int]) -> None:
        if isinstance(record, MessageRecord):
            for queue_id in record.queue_ids:
                found.came[queue_id] += 1
                found.held[queue_id, record.message_id] = place
        else:
            for message_id in record.message_ids:
                if found.held.pop((record.queue_id, message_id), None) is not None:
                    found.acknowledged[record.queue_id] += 1

    for entry in plain_records(store):
        frame, record = entry.frame, entry.record
        kind = RecordType(frame.kind)
        found.kinds[kind.name] += 1
        found.kind_bytes[kind.name] += frame.length
        place = (entry.number, frame.offset, frame.length)
        if isinstance(record, MessageRecord):
            found.messages[record.address_id] += 1
            found.message_bytes[record.address_id] += len(record.encoded)
        if isinstance(record, MessageRecord | AcknowledgeRecord):
            if record.tx_id:
                open_transactions.setdefault(record.tx_id, []).append((record, place))
            else:
                take(record, place)
        elif isinstance(record, PrepareRecord):
            prepared.add(record.tx_id)
        elif isinstance(record, CommitRecord):
            staged = open_transactions.pop(record.tx_id, [])
            for each in sorted(staged, key=lambda each: isinstance(each[0], AcknowledgeRecord)):
                take(*each)
        elif isinstance(record, RollbackRecord):
            open_transactions.pop(record.tx_id, None)
        elif isinstance(record, EpochRecord):
            open_transactions = {tx: work for tx, work in open_transactions.items() if tx in prepared}
        elif isinstance(record, QueueRemoveRecord):
            found.held = {key: held for key, held in found.held.items() if key[0] != record.queue_id}
    return found


def by_id(rows: list[dict[str, Any]], key: str, value: str) -> dict[int, Any]:
    return {row[key]: row[value] for row in rows if row[value]}


def check(found: Flow, held: dict[tuple[int, int], tuple[int, int, int]]) -> None:
    """Depths, and segments that messages keep."""
    report = found.report
    depths = Counter(queue_id for queue_id, _ in held)
    assert by_id(report["queues"], "queue_id", "depth") == depths
    assert report["depth"] == len(held)
    records = {place: message_id for (_, message_id), place in held.items()}
    live: Counter[int] = Counter()
    oldest: dict[int, int] = {}
    for (segment, _, length), message_id in records.items():
        live[segment] += length
        oldest[segment] = min(message_id, oldest.get(segment, message_id))
    assert by_id(report["segments"]["list"], "segment", "live_bytes") == live
    assert by_id(report["segments"]["list"], "segment", "oldest_message_id") == oldest
    assert report["segments"]["live_bytes"] == sum(live.values())


@pytest.mark.parametrize("seed", seeds(2))
def test_numbers_are_those_of_every_record(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    store = some_history(seed, tmp_path / "store", compacts=False)
    expected = plain_flow(store)
    # lists of the report are short, the tables are whole
    short = flow(spark, [store], Settings(listed=1, bucket_ms=1000, replay_bytes_s=1e6, tables=tmp_path / "tables"))
    assert len(short.report["queues"]) == 1
    found = flow(spark, [store], Settings(listed=10_000, bucket_ms=1000, replay_bytes_s=1e6))
    report = found.report
    check(found, expected.held)
    check_tables(spark, tmp_path / "tables", found, expected)
    assert by_id(report["queues"], "queue_id", "came") == expected.came
    assert by_id(report["queues"], "queue_id", "acknowledged") == expected.acknowledged
    assert by_id(report["addresses"], "address_id", "messages") == expected.messages
    assert by_id(report["addresses"], "address_id", "bytes") == expected.message_bytes
    kinds = report["amplification"]["kinds"]
    assert {name: each["records"] for name, each in kinds.items()} == expected.kinds
    assert {name: each["bytes"] for name, each in kinds.items()} == expected.kind_bytes
    check_intervals(found)
    page = flow_page(report, found.series)
    assert page.count("<polyline") >= 3
    assert "http" not in page
    assert "<script" not in page


def check_tables(spark: SparkSession, directory: Path, found: Flow, expected: Plain) -> None:
    """The Parquet files have the numbers of each record, with any reader, and depths that follow from each other."""
    assert {path.name for path in directory.iterdir()} == {"queues.parquet", "addresses.parquet", "segments.parquet"}
    queues, addresses, segments = (
        pq.read_table(directory / f"{name}.parquet").to_pylist() for name in ("queues", "addresses", "segments")
    )
    assert spark.read.parquet(str(directory / "queues.parquet")).count() == len(queues)

    def total(rows: list[dict[str, Any]], key: str, value: str) -> Counter[int]:
        counted: Counter[int] = Counter()
        for row in rows:
            counted[row[key]] += row[value]
        return +counted

    assert total(queues, "queue_id", "came") == expected.came
    assert total(queues, "queue_id", "acknowledged") == expected.acknowledged
    assert total(addresses, "address_id", "messages") == expected.messages
    assert total(addresses, "address_id", "bytes") == expected.message_bytes
    depth: dict[int, int] = {}
    for row in queues:
        before = depth.get(row["queue_id"], 0)
        left = row["acknowledged"] + row["removed_with_queue"]
        depth[row["queue_id"]] = row["depth"]
        assert row["depth"] == before + row["came"] - left
    assert {queue_id: value for queue_id, value in depth.items() if value} == Counter(
        queue_id for queue_id, _ in expected.held
    )
    records = set(expected.held.values())
    live = Counter({segment: 0 for segment, _, _ in records})
    for segment, _, length in records:
        live[segment] += length
    assert {row["segment"]: row["live_bytes"] for row in segments if row["live_bytes"]} == live
    assert len(segments) == found.report["segments"]["in_all"]
    assert sum(row["live_messages"] for row in segments) == len(records)


def check_intervals(found: Flow) -> None:
    """Numbers of intervals add up to the totals, and no interval lies outside of the time."""
    report, axis = found.report, found.series.axis
    for key, rows in found.series.by_queue().items():
        depth = found.series.depth(rows)
        assert min(value for _, value in depth) >= 0
        (of,) = [each for each in report["queues"] if (each["directory"], each["queue_id"]) == key]
        assert depth[-1][1] == of["depth"]
        assert max(value for _, value in depth) == of["depth_highest"]
    assert {row["begin_ms"] for row in found.series.queues} <= set(axis.begins())


def test_a_journal_with_a_snapshot_has_the_depths_of_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    stores = (some_history(seed, tmp_path / str(seed), compacts=True) for seed in range(20))
    store = next(each for each in stores if plan_logs(parse_options({"path": each}))[0].snapshot is not None)
    follower = recover(RealDisk(), store)
    held = {
        (queue_id, each.message_id): unpack_location(each.location)
        for queue_id, each in follower.state.waiting()
        if each.location is not None
    }
    follower.close()
    check(flow(spark, [store], Settings(listed=10_000, replay_bytes_s=1e6)), held)


def test_times_of_segments_rise(tmp_path: Path) -> None:
    store = some_history(3, tmp_path / "store", compacts=False)
    times = segment_times(plan_logs(parse_options({"path": store}))[0], {}, {})
    assert all(each.begin_ms <= each.end_ms for each in times)
    assert all(one.end_ms <= other.begin_ms for one, other in pairwise(times))


def burst_journal(directory: Path) -> tuple[str, int, int]:
    """A burst of messages in one second, in a segment of seven minutes; the newest acknowledgements come after it."""
    rig = StoreHarness(random.Random(7))
    rig.activate("a")
    rig.address()
    rig.queue()
    assert rig.store is not None
    rig.settle_log()
    rig.time.advance(180_000)
    begin_ms = rig.time.wall_ms()
    for number in range(60):
        # one client has a clock that is an hour wrong
        sent_ms = begin_ms + (3_600_000 if number == 30 else number * 1_000 // 60)
        message = Message(b"x" * 100, address="a", timestamp=sent_ms)
        message.assign_id(rig.store.next_id())
        rig.store.store_message(message, 4711, (rig.queue_ids[0],))
        rig.live.append((rig.queue_ids[0], message.message_id))
        if 10 <= number < 50:
            rig.store.store_acknowledges(*oldest(rig), 0)
        rig.store.flush()
        rig.time.advance(1_000 // 60)
    rig.settle_log()
    rig.time.advance(240_000)
    while rig.live:
        rig.store.store_acknowledges(*oldest(rig), 0)
    rig.settle_log()
    restart(rig)
    return str(write_out(rig, directory)), begin_ms, rig.queue_ids[0]


def oldest(rig: StoreHarness) -> tuple[int, list[int]]:
    queue_id, message_id = rig.live.pop(0)
    return queue_id, [message_id]


def test_burst_of_a_second_is_drawn_in_its_second(spark: SparkSession, tmp_path: Path) -> None:
    store, begin_ms, queue_id = burst_journal(tmp_path / "store")
    found = flow(spark, [store], Settings(bucket_ms=1_000, replay_bytes_s=1e6))
    report, axis = found.report, found.series.axis
    assert axis.end_ms - axis.begin_ms > 400_000
    rows = [row for row in found.series.queues if row["queue_id"] == queue_id]
    came = {row["begin_ms"]: row["came"] for row in rows if row["came"]}
    # the message of the wrong clock is at the end of its segment, the others are in two intervals at most
    assert sum(number for at, number in came.items() if begin_ms - 1_000 < at <= begin_ms + 1_000) == 59
    assert sum(came.values()) == 60
    early = [row for row in rows if row["acknowledged"] and row["begin_ms"] <= begin_ms + 2_000]
    assert sum(row["acknowledged"] for row in early) >= 38
    (address,) = report["addresses"]
    assert address["highest_per_s"] >= 30
    # the last acknowledgements were written in the minutes after the burst; the log does not say when
    (stretches_found,) = report["unknown"].values()
    assert any(end - begin > 200_000 for begin, end in stretches_found)
    assert not any(begin <= begin_ms < end for begin, end in stretches_found)
    page = flow_page(report, found.series)
    # the line of the address covers the whole time, with one peak
    rates = re.findall(r"points='([^']*)'", page)[0].split()
    heights = [float(each.partition(",")[2]) for each in rates]
    assert len(heights) == len(axis.begins())
    assert sum(height < 180 for height in heights) == sum(number > 0 for number in came.values())
    assert "the times of other records in it are not known" in page
    assert page.count("fill='#d9d9d9'") == 3 * len(stretches_found)


@given(
    sent=st.dictionaries(
        st.integers(0, SLICES - 1),
        st.tuples(st.integers(-10_000, 700_000), st.integers(0, 5_000)).map(lambda each: (each[0], sum(each))),
    ),
    offsets=st.lists(st.integers(HEADER_BLOCK_BYTES, HEADER_BLOCK_BYTES + 100_000), min_size=2),
)
@example(sent={0: (1_001, 1_001), 1: (0, 0)}, offsets=[HEADER_BLOCK_BYTES, HEADER_BLOCK_BYTES])
@example(sent={0: (300_000, 300_000), SLICES - 1: (2_000, 2_000)}, offsets=[HEADER_BLOCK_BYTES, HEADER_BLOCK_BYTES])
def test_times_of_records_rise_within_their_segment_whatever_clients_say(
    sent: dict[int, tuple[int, int]], offsets: list[int]
) -> None:
    piece = Piece("d", "n", 1, 1, HEADER_BLOCK_BYTES + 100_000, 1, 10, None, first_ms=1_000, sealed_ms=420_000)
    (time,) = segment_times(LogPlan("d", "n", [piece]), {}, {1: sent})
    assert len(time.borders) == SLICES + 1
    found = [time.at_ms(offset) for offset in sorted(offsets)]
    assert found == sorted(found)
    assert time.begin_ms <= found[0]
    assert found[-1] <= time.end_ms


def test_stretches_without_messages_are_those_with_other_records() -> None:
    axis = Axis(0, 9_000, 1_000)
    known = {0: True, 2_000: False, 4_000: True, 5_000: True, 7_000: False, 9_000: False}
    assert stretches(axis, known) == [(1_000, 4_000), (6_000, 10_000)]
    assert stretches(axis, {0: True, 9_000: True}) == []
    assert stretches(axis, {3_000: False}) == [(0, 10_000)]


# --- forecasts --------------------------------------------------------------------------------------------------------


@given(
    steps=st.lists(st.integers(1, 100_000), min_size=2, max_size=50),
    growth=st.integers(-10_000, 10_000),
    begin=st.integers(0, 10**9),
)
def test_the_slope_of_a_line_is_found(steps: list[int], growth: int, begin: int) -> None:
    times = [sum(steps[: place + 1]) for place in range(len(steps))]
    found = slope([(at, begin + growth * at) for at in times])
    assert found == pytest.approx(growth, abs=1e-3, rel=1e-6)


def test_a_slope_needs_two_times() -> None:
    assert slope([]) is None
    assert slope([(1, 5), (1, 9)]) is None


def test_a_disk_is_full_when_the_growth_has_used_the_free_space() -> None:
    live = [(1000 * second, 500 * second) for second in range(10)]
    found = forecast_disk(10_000, 50_000, live, written_bytes=100_000, span_ms=10_000)
    assert found.growth_bytes_s == pytest.approx(500)
    assert found.full_in_s == pytest.approx(100)
    assert found.full_in_s_at_least == pytest.approx(5)
    shrinking = forecast_disk(10_000, 50_000, [(0, 900), (1000, 100)], written_bytes=0, span_ms=1000)
    assert shrinking.full_in_s is None
    assert shrinking.full_in_s_at_least is None
