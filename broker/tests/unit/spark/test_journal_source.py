"""Refusals, damage and columns of the journal source; its reader is called without a running Spark."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.support.copies import act, restart, write_out
from tests.support.journals import plain_messages, read_table
from tests.support.store import NODE_ID, StoreHarness

from understudy.errors import BrokerError, ConfigError, JournalCorrupt, StoreInUse, StoreVersionUnsupported, WrongNode
from understudy.ids import NodeId, uuid_bytes
from understudy.message import LargeBody, LargeMessage, Message, MessageType
from understudy.properties import Properties, encode_simple_string
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.spark.journal.log_plan import parse_options, plan_logs
from understudy.spark.journal.source import read_journal
from understudy.store.log.format_version import FORMAT_VERSION

pytestmark = pytest.mark.spark

NOW_MS = 1_700_000_000_123


def new_rig(seed: int = 1) -> StoreHarness:
    rig = StoreHarness(random.Random(seed))
    rig.activate("a")
    return rig


def written(tmp_path: Path, operations: int = 250, seed: int = 1, restarts: int = 0) -> Path:
    """A store with some sealed segments."""
    rig = new_rig(seed)
    act(rig, operations)
    for _ in range(restarts):
        restart(rig)
        act(rig, operations)
    return write_out(rig, tmp_path / f"store{seed}")


def state_of(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file."""
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


# --- columns --------------------------------------------------------------------------------------------------------


def test_columns_of_a_message_are_those_that_were_sent(tmp_path: Path) -> None:
    rig = new_rig()
    rig.address()
    rig.queue()
    store = rig.store
    assert store is not None
    properties = Properties({"text": "ä€\U0001f600", "yes": True, "n": -7, "raw": b"\x00\xff", "none": None})
    properties["ledger_producer"] = "p1"
    messages = [
        Message(b"\x00\x01", address="a.b", timestamp=NOW_MS, user_id=bytes(range(16)), properties=properties),
        Message(b"\x01" + encode_simple_string("grün"), address="a.c", type=MessageType.TEXT, priority=9),
        Message(b"", address=None, durable=False, expiration=NOW_MS + 5000),
    ]
    for message in messages:
        message.assign_id(store.next_id())
        store.store_message(message, 4711, (rig.queue_ids[0],), duplicate_id=b"dup", scheduled_ms=NOW_MS)
    large = LargeMessage.of(Message(b"", address="l"), LargeBody(store.next_id(), 5_000_000, 1), 5_000_000)
    store.store_message(large, rig.address_ids[0], (rig.queue_ids[0],), large=True)
    rig.settle()
    one, text, bare, big = read_table(str(write_out(rig, tmp_path / "store")), "messages")
    assert (one["node_id"], one["epoch"], one["address"], one["body"]) == (NODE_ID, 1, "a.b", b"\x00\x01")
    assert one["timestamp"] == datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert one["scheduled"] == one["timestamp"]
    assert dict(one["properties"]) == {
        "text": "ä€\U0001f600", "yes": "true", "n": "-7", "raw": "00ff", "none": None, "ledger_producer": "p1"
    }  # fmt: skip
    assert (one["producer"], one["user_id"], one["duplicate_id"]) == ("p1", bytes(range(16)), b"dup")
    assert one["queue"].startswith("q")
    assert (text["text"], text["type"], text["priority"], text["address"]) == ("grün", 3, 9, "a.c")
    assert (bare["address"], bare["durable"], bare["body"], bare["text"]) == (None, False, b"", None)
    assert bare["expiration"] == datetime.fromtimestamp(NOW_MS / 1000 + 5, UTC)
    assert (big["large"], big["body"], big["text"], big["address"][0]) == (True, None, None, "a")


def test_a_message_in_several_queues_has_a_row_for_each(tmp_path: Path) -> None:
    rig = new_rig()
    rig.address()
    for _ in range(3):
        rig.queue()
    store = rig.store
    assert store is not None
    for _ in range(4):
        message = Message(b"body", address="x")
        message.assign_id(store.next_id())
        store.store_message(message, rig.address_ids[0], tuple(rig.queue_ids))
    rig.settle()
    found = read_table(str(write_out(rig, tmp_path / "store")), "messages")
    assert [row["queue_id"] for row in found] == 4 * rig.queue_ids
    assert {row["body"] for row in found} == {b"body"}


# --- pushdown -------------------------------------------------------------------------------------------------------


def test_segments_without_wanted_rows_are_not_opened(tmp_path: Path) -> None:
    store = written(tmp_path, restarts=1)
    rows = read_table(str(store), "records", ["epoch", "segment", "sequence", "file"])
    first = min(row["segment"] for row in rows)
    high = max(row["sequence"] for row in rows if row["segment"] == first)
    path = store / next(row["file"] for row in rows if row["segment"] == first)
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt):
        read_table(str(store), "records")
    for condition in (("sequence", ">", high), ("segment", ">", first)):
        assert read_table(str(store), "records", where=[condition])
    assert read_table(str(store), "records", where=[("epoch", "=", 7)]) == []


def test_partitions_are_ranges_of_segments(spark: SparkSession, tmp_path: Path) -> None:
    store = str(written(tmp_path))
    whole = read_journal(spark, store, "records", ["sequence", "segment"])
    assert whole.rdd.getNumPartitions() == 2
    parts = read_journal(spark, store, "records", ["sequence", "segment"], partitionBytes="1")
    segments = {row["segment"] for row in whole.collect()}
    assert parts.rdd.getNumPartitions() >= len(segments) > 2
    assert parts.collect() == whole.collect()


def test_the_source_runs_in_spark_with_conditions_and_fewer_columns(spark: SparkSession, tmp_path: Path) -> None:
    store = str(written(tmp_path))
    expected = plain_messages(store)
    frame = read_journal(spark, store, "messages")
    assert frame.count() == len(expected)
    where = [("sequence", ">", 100), ("epoch", "=", 1), ("priority", ">=", 5)]
    some = read_journal(spark, store, "messages", ["message_id", "body"], where)
    wanted = [row for row in expected if row["sequence"] > 100 and row["priority"] >= 5]
    assert [(row[0], bytes(row[1])) for row in some.collect()] == [(row["message_id"], row["body"]) for row in wanted]
    narrow = spark.read.schema("sequence bigint").format("understudy.journal").option("table", "messages").load(store)
    assert [row[0] for row in narrow.collect()] == [row["sequence"] for row in expected]
    acknowledged = read_journal(spark, store, "acknowledgements").select("queue_id", "message_id")
    left = frame.select("queue_id", "message_id").join(acknowledged, ["queue_id", "message_id"], "left_anti")
    assert left.count() <= len(expected)


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """Spark gives filters to Python sources meanwhile."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize("option", ["false", "true"])
def test_scans_of_one_frame_have_filters_of_their_own(spark: SparkSession, tmp_path: Path, option: str) -> None:
    """Spark runs all scans of a frame with the reader that it planned last, and with the filters of that one."""
    columns = ["sequence", "message_id", "queue_id", "priority"]
    frame = read_journal(spark, str(written(tmp_path)), "messages", columns, pushFilters=option)
    rows = [tuple(row) for row in frame.collect()]
    total = len(rows)
    for condition in ("sequence > 100", "priority >= 5"):
        both = frame.where(condition).unionByName(frame.where(f"NOT ({condition})"))
        assert both.count() == total
    # a scan without filters after one with filters, and both orders
    some = frame.where("sequence > 100")
    assert some.unionByName(frame).count() == frame.unionByName(some).count() == total + some.count()
    later = some.select("message_id").distinct()
    parts = [frame.where("sequence <= 100").join(later, "message_id", how) for how in ("left_anti", "left_semi")]
    assert sum(part.count() for part in parts) == frame.where("sequence <= 100").count() > 0
    # a join with itself: pairs of neighbours in the log
    left, right = frame.where("priority >= 5").alias("a"), frame.where("priority < 5").alias("b")
    joined = left.join(right, F.expr("a.sequence = b.sequence - 1")).count()
    high = [row[0] for row in rows if row[3] >= 5]
    low = [row[0] for row in rows if row[3] < 5]
    assert joined == sum(low.count(sequence + 1) for sequence in high)
    # columns of one scan are not those of another one
    narrow = frame.select("sequence").where("sequence > 100")
    assert narrow.join(frame.select("sequence", "priority"), "sequence").columns == ["sequence", "priority"]
    # a cached frame has all rows, also if a filter was planned before or after it
    cached = frame.where("sequence > 0").cache()
    try:
        assert frame.where("sequence > 100").count() == cached.where("sequence > 100").count() == some.count()
        assert cached.count() == cached.unionByName(frame.where("sequence > 100")).count() - some.count() == total
    finally:
        cached.unpersist()


def test_two_frames_with_conditions_are_united(spark: SparkSession, tmp_path: Path) -> None:
    store = str(written(tmp_path))

    def chosen(*where: tuple[str, str, Any]) -> DataFrame:
        return read_journal(spark, store, "messages", ["sequence"], where)

    total = read_journal(spark, store, "messages", ["sequence"]).count()
    first, second = chosen(("priority", ">=", 5)), chosen(("priority", "<", 5))
    assert 0 < first.count() < total
    assert first.unionByName(second).count() == total


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("priority = 5", "is no list of conditions"),
        ('[["body", "=", "x"]]', "no conditions for 'body'"),
        ('[["priority", "like", 5]]', "'like' is no operator"),
        ('[["priority", "=", "high"]]', "column priority is tinyint, which 'high' is not"),
        ('[["priority", "=", 200]]', "column priority is tinyint, which 200 is not"),
        ('[["timestamp", ">", "noon"]]', "column timestamp is timestamp, which 'noon' is not"),
        ('[["queue", "in", "a"]]', "'a' is no list of values"),
        ('[["sequence", "starts with", 1]]', "only texts start"),
    ],
)
def test_conditions_that_cannot_be_used_are_refused(tmp_path: Path, where: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_options({"path": str(tmp_path), "table": "messages", "where": where})


def test_conditions_are_refused_where_they_would_hide_rows(tmp_path: Path) -> None:
    where = '[["sequence", ">", 1]]'
    with pytest.raises(ConfigError, match="would drop the rows of damage"):
        parse_options({"path": str(tmp_path), "mode": "quarantine", "where": where})
    with pytest.raises(ConfigError, match="table bindings has no conditions"):
        parse_options({"path": str(tmp_path), "table": "bindings", "where": where})


def test_names_of_bindings_reach_the_tasks_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark serialises the reader before it asks for partitions."""
    store = str(written(tmp_path))
    plain = read_table(store, "messages", ["message_id", "address", "queue", "encoded", "header"])
    assert all(row["queue"].startswith("q") and row["address"].startswith("a") for row in plain)
    frame = read_journal(spark, store, "messages", ["message_id", "address", "queue", "encoded", "header"])
    assert [row.asDict() for row in frame.collect()] == plain
    one = plain[0]["address"]
    assert frame.where(F.col("address") == one).count() == sum(row["address"] == one for row in plain)
    for row in plain:
        message = Message.decode(row["encoded"])
        assert (message.message_id, row["encoded"][message.header_offset :]) == (row["message_id"], row["header"])
    frame = read_journal(spark, store, "acknowledgements", ["queue"])
    assert [row.asDict() for row in frame.collect()] == read_table(store, "acknowledgements", ["queue"])


# --- damage ---------------------------------------------------------------------------------------------------------


def damaged(store: Path) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Damage the middle record of a sealed segment; that record and all others."""
    rows = read_table(str(store), "records", ["segment", "file", "offset", "length", "sequence"])
    first = min(row["segment"] for row in rows)
    own = [row for row in rows if row["segment"] == first]
    chosen = own[len(own) // 2]
    path = store / chosen["file"]
    content = bytearray(path.read_bytes())
    content[chosen["offset"] + chosen["length"] - 1] ^= 0xFF
    path.write_bytes(content)
    return chosen, [row for row in rows if row != chosen]


def test_damage_fails_with_file_and_offset(tmp_path: Path) -> None:
    store = written(tmp_path)
    chosen, _ = damaged(store)
    with pytest.raises(JournalCorrupt) as caught:
        read_table(str(store), "messages")
    assert (caught.value.file, caught.value.offset) == (f"{store}/{chosen['file']}", chosen["offset"])


def test_quarantine_gives_damage_as_a_row_and_reads_on(tmp_path: Path) -> None:
    store = written(tmp_path)
    chosen, rest = damaged(store)
    found = read_table(str(store), "records", mode="quarantine")
    (bad,) = [row for row in found if row["damage"] is not None]
    assert {name: bad[name] for name in chosen} == chosen
    assert [{name: row[name] for name in chosen} for row in found if row["damage"] is None] == rest
    messages = read_table(str(store), "messages", ["sequence"], mode="quarantine")
    assert chosen["sequence"] not in {row["sequence"] for row in messages}


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"tble": "records"}, "unknown option 'tble'"),
        ({"table": "record"}, "no table 'record'"),
        ({"mode": "skip"}, "option mode: 'skip' is none of fail, quarantine"),
        ({"partitionbytes": "0"}, "option partitionbytes: '0' is no positive number"),
        ({"path": ""}, "holds no journal|no directory"),
    ],
)
def test_unknown_options_are_refused(given: dict[str, str], match: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        plan_logs(parse_options({"path": str(tmp_path)} | given))
    assert "\n" not in str(caught.value)


def _reheader(path: Path, at: int, value: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(value)] = value
    content[12:16] = bytes(4)
    content[12:16] = struct.pack("<I", crc32(content[:4096]))
    path.write_bytes(content)


def test_stores_that_cannot_be_read_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    store, other = written(tmp_path, seed=1), written(tmp_path, seed=2)
    segments = sorted(store.glob("segment-*.log"))
    used = [path for path in segments if path.stat().st_size and path.read_bytes()[4096:4100] != bytes(4)]
    for path in sorted(other.glob("segment-*.log")):
        _reheader(path, 16, uuid_bytes(NodeId("11111111-2222-4333-8444-555555555555")))
    cases: list[tuple[type[BrokerError], str, list[str]]] = []
    newer, missing, mixed = tmp_path / "newer", tmp_path / "missing", tmp_path / "mixed"
    for directory in (newer, missing, mixed):
        directory.mkdir()
        for path in segments:
            (directory / path.name).write_bytes(path.read_bytes())
    _reheader(newer / used[1].name, 8, struct.pack("<H", FORMAT_VERSION + 1))
    refused = f"format version {FORMAT_VERSION + 1}, this Understudy reads up to {FORMAT_VERSION}"
    cases.append((StoreVersionUnsupported, refused, [str(newer)]))
    (missing / used[1].name).unlink()
    cases.append((JournalCorrupt, "records [0-9]+ to [0-9]+ are missing: no segment between", [str(missing)]))
    _reheader(mixed / used[1].name, 16, uuid_bytes(NodeId("11111111-2222-4333-8444-555555555555")))
    cases.append((WrongNode, "belongs to node", [str(mixed)]))
    cases.append((JournalCorrupt, "name different nodes", [str(store), str(other)]))
    cases.append((ConfigError, "cannot be read: No such file", [str(tmp_path / "none")]))
    cases.append((ConfigError, "a directory is given twice", [str(store), str(store)]))
    before = state_of(tmp_path)
    for kind, match, directories in cases:
        with pytest.raises(kind, match=match) as caught:
            read_table(directories, "records")
        assert "\n" not in str(caught.value)
    assert state_of(tmp_path) == before


def test_a_store_in_use_is_refused_unless_asked_for(tmp_path: Path) -> None:
    store = written(tmp_path)
    lock = RealFileLock(f"{store}/serverlock.1")
    assert lock.try_acquire()
    try:
        with pytest.raises(StoreInUse, match="in use by a running broker"):
            read_table(str(store), "records")
        assert read_table(str(store), "records", inUse="read")
    finally:
        lock.release()
    assert read_table(str(store), "records")


def test_segments_of_a_retention_directory_are_read_without_their_neighbours(tmp_path: Path) -> None:
    store = written(tmp_path)
    everything = read_table(str(store), "records", ["segment", "sequence", "kind"])
    numbers = sorted({row["segment"] for row in everything if row["kind"] == "SEAL"})
    retained = tmp_path / "retained"
    retained.mkdir()
    for number in (numbers[0], numbers[2]):
        (path,) = store.glob(f"segment-{number:012d}-*.log")
        (retained / path.name).write_bytes(path.read_bytes())
    found = read_table(str(retained), "records", ["segment", "sequence", "kind"], layout="retention")
    assert found == [row for row in everything if row["segment"] in (numbers[0], numbers[2])]
