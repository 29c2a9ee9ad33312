"""Offsets, ranges and refusals of the streaming source; called as Spark calls it, without a running Spark.

Method: a simulated store is written into a real directory again and again, as a running broker would change it, and a
stream reads batches of random size. The reference is the log read record by record.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.property.test_store_model import RELAXED
from tests.support.copies import act, fork, go_on, restart
from tests.support.journals import plain_records
from tests.support.store import DIRECTORY, NODE_ID, StoreHarness

from understudy.errors import (
    BrokerError,
    ConfigError,
    ConnectionFailed,
    JournalCorrupt,
    StoreVersionUnsupported,
    WrongNode,
)
from understudy.message import Message
from understudy.runtime.base.management_client import ManagementAddress
from understudy.spark.journal.broker_positions import BrokerPositions
from understudy.spark.journal.stream_offsets import StreamOffset
from understudy.spark.journal.stream_options import parse_stream_options
from understudy.spark.journal.stream_reader import JournalStream
from understudy.store.log.format_version import FORMAT_VERSION
from understudy.store.named_readers import LogPosition
from understudy.store.retention import RetentionSettings

pytestmark = pytest.mark.spark

Offset = dict[str, Any]
Row = tuple[int, int]

SCHEMA = StructType([StructField("epoch", LongType()), StructField("sequence", LongType())])
NAMED = StructType([StructField("sequence", LongType()), StructField("queue", StringType())])


class FakeNode:
    """The active node, whose confirmed end a test sets."""

    def __init__(self) -> None:
        self.confirmed: LogPosition | None = None
        self.committed: list[int] = []

    def positions(self) -> BrokerPositions:
        if self.confirmed is None:
            raise ConnectionFailed("no active node")
        end = StreamOffset(NODE_ID, self.confirmed.epoch, self.confirmed.sequence)
        return BrokerPositions(end, StreamOffset(NODE_ID, 0, 0), ManagementAddress("http://n", ""))

    def register(self, reader: str, position: str, max_bytes: int) -> StreamOffset:
        return StreamOffset(NODE_ID, 1, 7)

    def commit(self, reader: str, offset: StreamOffset) -> StreamOffset:
        self.positions()
        self.committed.append(offset.sequence)
        return offset


def put(rig: StoreHarness, directory: Path) -> Path:
    """Make the directory what the store of the rig is now; files that did not change stay as they are."""
    directory.mkdir(exist_ok=True)
    wanted = {path.removeprefix(DIRECTORY + "/"): rig.volume.content(path) for path in rig.volume.paths()
              if path.startswith(DIRECTORY + "/")}  # fmt: skip
    for path in directory.iterdir():
        if path.is_file() and path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        target = directory / name
        target.parent.mkdir(exist_ok=True)
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)
    return directory


def stream_of(
    *directories: Path, schema: StructType = SCHEMA, node: FakeNode | None = None, **options: str
) -> JournalStream:
    paths = "[" + ",".join(f'"{each}"' for each in directories) + "]"
    given = {"paths": paths, "table": "records"} | options
    if node is not None:
        given["servers"] = "http://n"
    stream = JournalStream(parse_stream_options(given), schema)
    if node is not None:
        stream.plan._active = stream._active = node  # type: ignore[assignment]
    return stream


def read(stream: JournalStream, start: Offset, end: Offset) -> list[Row]:
    parts = stream.partitions(start, end)
    return [tuple(row.values()) for part in parts for batch in stream.read(part) for row in batch.to_pylist()]


def drain(stream: JournalStream, at: Offset, limit_bytes: int) -> tuple[list[tuple[Offset, Offset, list[Row]]], Offset]:
    """All batches there are now, and the offset after them."""
    batches = []
    while True:
        end = stream.latestOffset(at, ReadMaxBytes(limit_bytes))
        if end == at:
            return batches, at
        assert list(end) == ["epoch", "node_id", "sequence"]
        batches.append((at, end, read(stream, at, end)))
        at = end


def reference(directory: Path) -> list[Row]:
    return [(each.epoch, each.frame.sequence) for each in plain_records(str(directory))]


def new_rig(seed: int = 1, **settings_of: Any) -> StoreHarness:
    rig = StoreHarness(random.Random(seed), **settings_of)
    rig.activate("a")
    return rig


@settings(max_examples=10, **RELAXED)
@given(st.integers(0, 2**32 - 1), st.lists(st.booleans(), min_size=2, max_size=5))
def test_batches_are_the_log_and_a_repeated_batch_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, takeovers: list[bool]
) -> None:
    rig = new_rig(seed)
    assert rig.store is not None
    rig.store.readers.register("r", rig.store.readers.earliest, 1 << 40)
    directory = tmp_path_factory.mktemp("stream") / "store"
    chance = random.Random(seed)
    found: list[tuple[Offset, Offset, list[Row]]] = []
    at: Offset | None = None
    stream: JournalStream | None = None
    for takeover in takeovers:
        act(rig, chance.randrange(5, 120))
        if takeover:
            restart(rig)
        put(rig, directory)
        if stream is None or chance.random() < 0.3:
            stream = stream_of(directory)
        at = at or stream.initialOffset()
        batches, at = drain(stream, at, chance.choice((1, 500, 20_000, 1 << 30)))
        found += batches
    rows = [row for _, _, each in found for row in each]
    log = reference(directory)
    assert rows == log[: len(rows)]
    assert at is not None
    assert at["sequence"] == len(rows)
    assert len(log) - len(rows) < 60, "only the last batch is left out"
    for first, last, expected in found:
        assert read(stream_of(directory), first, last) == expected


def test_bytes_bound_a_batch(tmp_path: Path) -> None:
    rig = new_rig(3)
    act(rig, 400)
    stream = stream_of(put(rig, tmp_path / "store"), partitionBytes="5000")
    start = stream.initialOffset()
    batches, _ = drain(stream, start, 30_000)
    assert len(batches) > 5
    assert max(len(rows) for _, _, rows in batches) < 400
    whole = stream.latestOffset(start, ReadAllAvailable())
    assert read(stream, start, whole) == [row for _, _, rows in batches for row in rows]
    assert len(stream.partitions(start, whole)) > 1


def test_the_last_batch_is_read_once_the_broker_confirms_it(tmp_path: Path) -> None:
    rig = new_rig(4)
    act(rig, 60)
    directory = put(rig, tmp_path / "store")
    last = reference(directory)[-1][1]
    alone = stream_of(directory)
    assert alone.latestOffset(alone.initialOffset(), ReadAllAvailable())["sequence"] < last
    node = FakeNode()
    stream = stream_of(directory, node=node)
    node.confirmed = LogPosition(1, last - 3)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable())["sequence"] == last - 3
    node.confirmed = LogPosition(1, last + 50)
    assert stream.latestOffset(start, ReadAllAvailable())["sequence"] == last
    node.confirmed = LogPosition(2, last + 50)
    assert stream.latestOffset(start, ReadAllAvailable()) == start, "the copy does not know the newest epoch"
    node.confirmed = None
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    with pytest.raises(ConnectionFailed):
        stream.prepareForTriggerAvailableNow()


def test_records_that_a_zombie_appended_are_left_out(tmp_path: Path) -> None:
    rig = new_rig(5)
    act(rig, 80)
    both = fork(rig, random.Random(6))
    directory = tmp_path / "store"
    before = stream_of(put(both.left, directory))
    at = before.initialOffset()
    _, at = drain(before, at, 1 << 30)
    go_on(both.left, 40)
    put(both.left, directory)
    log = reference(directory)
    # the old node goes on in its segment, at the same numbers and in the same epoch
    zombie = next(path for path in sorted(directory.glob("segment-*-0000000001.log"), reverse=True))
    content = bytearray(zombie.read_bytes())
    tail = both.right.volume.content(f"{DIRECTORY}/{zombie.name}")
    zombie.write_bytes(bytes(content) + tail[len(content) :] + bytes(5_000))
    for stream in (before, stream_of(directory)):
        _, end = drain(stream, at, 1 << 30)
        assert read(stream, at, end) == log[at["sequence"] : end["sequence"]]
        assert end["epoch"] == 2


def test_a_copy_that_diverged_is_not_read(tmp_path: Path) -> None:
    rig = new_rig(7)
    act(rig, 80)
    both = fork(rig, random.Random(8))
    go_on(both.left, 60)
    go_on(both.right, 60)
    restart(both.right)
    act(both.right, 60)
    left, right = put(both.left, tmp_path / "left"), put(both.right, tmp_path / "right")
    log = reference(right)
    node = FakeNode()
    node.confirmed = LogPosition(log[-1][0], log[-1][1])
    stream = stream_of(left, right, node=node)
    batches, at = drain(stream, stream.initialOffset(), 4_000)
    assert [row for _, _, rows in batches for row in rows] == log
    gone = at | {"epoch": 2, "sequence": log[-1][1]}
    with pytest.raises(JournalCorrupt, match="is of epoch"):
        stream.latestOffset(gone, ReadAllAvailable())


@pytest.mark.parametrize("named", [True, False])
def test_records_that_are_gone_end_the_stream(tmp_path: Path, named: bool) -> None:
    rig = new_rig(9)
    act(rig, 300)
    directory = put(rig, tmp_path / "store")
    node = FakeNode()
    node.confirmed = LogPosition(1, reference(directory)[-1][1])
    stream = stream_of(directory, node=node, **({"reader": "r"} if named else {}))
    for path in sorted(directory.glob("segment-*.log"))[:2]:
        path.unlink()
    start = {"epoch": 1, "node_id": NODE_ID, "sequence": 5}
    name = "reader 'r': " if named else ""
    with pytest.raises(
        JournalCorrupt, match=f"{name}the stream is at epoch 1, sequence 5 .* the records 6 to .* are gone"
    ):
        stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(JournalCorrupt, match="are gone"):
        stream.partitions(start, start | {"sequence": 9})


def test_another_node_and_a_newer_format_end_the_stream(tmp_path: Path) -> None:
    rig = new_rig(10)
    act(rig, 30)
    directory = put(rig, tmp_path / "store")
    stream = stream_of(directory)
    with pytest.raises(WrongNode, match=r"the offset is of node other, .* is of node"):
        stream.latestOffset({"epoch": 1, "node_id": "other", "sequence": 1}, ReadAllAvailable())
    path = next(iter(sorted(directory.glob("segment-*.log"))))
    content = bytearray(path.read_bytes())
    content[8:10] = (FORMAT_VERSION + 1).to_bytes(2, "little")
    content[12:16] = bytes(4)
    content[12:16] = crc32(bytes(content[:4096])).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(StoreVersionUnsupported, match=f"format version {FORMAT_VERSION + 1}"):
        stream_of(directory).initialOffset()


def test_damage_in_a_batch_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    rig = new_rig(11)
    act(rig, 200)
    directory = put(rig, tmp_path / "store")
    stream = stream_of(directory)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    path = next(iter(sorted(directory.glob("segment-*.log"))))
    content = bytearray(path.read_bytes())
    content[6_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt, match=path.name):
        read(stream, start, end)


def test_segments_that_left_the_log_come_from_the_retention_directory(tmp_path: Path) -> None:
    rig = new_rig(12, compact_segments_min=2)
    rig.settings = replace(rig.settings, retention=RetentionSettings("/retained"))
    rig.die(power_loss=False)
    store = rig.activate("b")
    rig.queue()
    written: list[Row] = []
    for _ in range(120):
        message = Message(rig.stream.randbytes(6_000), address="x")
        message.assign_id(store.next_id())
        store.store_message(message, rig.address_ids[0], (rig.queue_ids[0],))
        store.store_acknowledges(rig.queue_ids[0], (message.message_id,))
        rig.settle()
    directory, retained = put(rig, tmp_path / "store"), tmp_path / "retained"
    retained.mkdir()
    for path in rig.volume.paths():
        if path.startswith("/retained/"):
            (retained / path.rsplit("/", 1)[1]).write_bytes(rig.volume.content(path))
    assert len(list(retained.iterdir())) > 3
    bare = stream_of(directory)
    assert bare.initialOffset()["sequence"] > 50
    stream = stream_of(directory, retention=str(retained))
    assert stream.initialOffset()["sequence"] == 0
    batches, end = drain(stream, stream.initialOffset(), 50_000)
    written = [row for _, _, rows in batches for row in rows]
    assert [sequence for _, sequence in written] == list(range(1, end["sequence"] + 1))
    only = stream_of(retained, layout="retention")
    batches, end = drain(only, only.initialOffset(), 50_000)
    assert [row for _, _, rows in batches for row in rows] == written[: end["sequence"]]
    # a segment that moves between planning and reading
    parts = stream.partitions(only.initialOffset(), end)
    shutil.move(retained / sorted(each.name for each in retained.iterdir())[0], tmp_path / "gone")
    with pytest.raises((BrokerError, FileNotFoundError)):
        list(stream.read(parts[0]))


def test_commits_marks_and_readers_start_no_batch(tmp_path: Path) -> None:
    rig = new_rig(13)
    act(rig, 20)
    store = rig.store
    assert store is not None
    store.readers.register("r", store.readers.confirmed, 1 << 30)
    rig.settle()
    directory = put(rig, tmp_path / "store")
    node = FakeNode()
    node.confirmed = store.readers.confirmed
    stream = stream_of(directory, node=node, reader="r")
    assert stream.initialOffset()["sequence"] == 7, "at the position of the reader"
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    store.readers.commit("r", store.readers.confirmed)
    rig.settle()
    store.check_disk()
    rig.settle()
    node.confirmed = store.readers.confirmed
    assert node.confirmed.sequence > end["sequence"]
    put(rig, directory)
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    act(rig, 1)
    node.confirmed = store.readers.confirmed
    put(rig, directory)
    assert stream.latestOffset(end, ReadAllAvailable())["sequence"] == node.confirmed.sequence


def test_a_commit_that_no_node_takes_is_repeated(tmp_path: Path) -> None:
    rig = new_rig(14)
    act(rig, 20)
    directory = put(rig, tmp_path / "store")
    node = FakeNode()
    stream = stream_of(directory, node=node, reader="r")
    at = {"epoch": 1, "node_id": NODE_ID, "sequence": 9}
    stream.commit(at)
    assert node.committed == []
    node.confirmed = LogPosition(1, 12)
    assert stream.latestOffset(at, ReadAllAvailable())["sequence"] == 12
    assert node.committed == [9]


def test_names_of_queues_are_those_of_the_log(tmp_path: Path) -> None:
    rig = new_rig(15)
    act(rig, 50)
    directory = tmp_path / "store"
    stream = stream_of(put(rig, directory), schema=NAMED, table="messages")
    at = stream.initialOffset()
    _, at = drain(stream, at, 1 << 30)
    rig.queue()
    queue = rig.queue_ids[-1]
    assert rig.store is not None
    name = rig.store.state.queues[queue].name
    for _ in range(3):
        message = Message(b"b", address="x")
        message.assign_id(rig.store.next_id())
        rig.store.store_message(message, rig.address_ids[0], (queue,))
        rig.settle()
    put(rig, directory)
    batches, _ = drain(stream, at, 1 << 30)
    assert {row[1] for _, _, rows in batches for row in rows} >= {name}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "references"}, "a stream does not read"),
        ({"mode": "quarantine"}, "mode fail"),
        ({"nodes": "many"}, "the log of one node"),
        ({"reader": "r"}, "needs option servers"),
        ({"paths": '["/a","/b"]'}, "several copies"),
        ({"layout": "retention", "retention": "/r"}, "layout=retention"),
        ({"maxBytesPerBatch": "0"}, "no positive number"),
        ({"readerMaxBytes": "some"}, "readerMaxBytes"),
        ({"startingOffset": "soon"}, "startingOffset"),
        ({"startingOffset": '{"epoch": 1}'}, "startingOffset has the offset"),
        ({"tabel": "records"}, "unknown option 'tabel'.*maxBytesPerBatch"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_stream_options({"path": "/a"} | options if "paths" not in options else options)


def test_a_checkpoint_of_another_source_is_refused(tmp_path: Path) -> None:
    rig = new_rig(16)
    act(rig, 5)
    stream = stream_of(put(rig, tmp_path / "store"))
    for offset in (
        {"n": 1},
        {"epoch": 1, "node_id": NODE_ID, "sequence": "5"},
        {"epoch": -1, "node_id": "", "sequence": 1},
    ):
        with pytest.raises(ConfigError, match="not one of a stream of journals"):
            stream.latestOffset(offset, ReadAllAvailable())
