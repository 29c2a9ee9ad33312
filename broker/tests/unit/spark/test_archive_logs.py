"""Job ``archive`` through a named reader and from retention directories: every confirmed message once.

Method: a simulated store goes on between the runs of the job, with transactions, take-overs and consolidation, and its
named readers answer as a node would. The reference is the model of the store.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.archives import Key, archived_rows, check_rows, encoded_of, expected_messages
from tests.support.copies import act, restart
from tests.support.journals import read_table
from tests.support.store import NODE_ID, StoreHarness
from tests.unit.spark.test_archives import state_of
from tests.unit.spark.test_streams import put

from understudy.errors import BrokerError, ConfigError, ConnectionFailed, ManagementError
from understudy.message import Message
from understudy.runtime.base.management_client import ManagementAddress
from understudy.spark.archive import logs as archive_logs
from understudy.spark.archive.archives import ArchiveReport, Settings, archive
from understudy.spark.archive.files import Target, write_messages
from understudy.spark.archive.logs import ReaderSettings
from understudy.spark.journal.broker_positions import BrokerPositions
from understudy.spark.journal.stream_offsets import StreamOffset, parse_offset
from understudy.store.named_readers import LogPosition
from understudy.store.retention import RetentionSettings

pytestmark = pytest.mark.spark

READER = ReaderSettings("archive", ("http://n",), max_bytes=1 << 40)


class Node:
    """The active node of a rig, as ``ActiveNode``."""

    def __init__(self, rig: StoreHarness) -> None:
        self.rig = rig
        self.fails = False
        """Whether it dies before a position is committed."""
        self.active = True

    def positions(self) -> BrokerPositions:
        if not self.active or self.rig.store is None:
            raise ConnectionFailed("no active node")
        confirmed, earliest = self.rig.store.readers.confirmed, self.rig.store.readers.earliest
        return BrokerPositions(_offset(confirmed), _offset(earliest), ManagementAddress("http://n", ""))

    def register(self, reader: str, position: str, max_bytes: int) -> StreamOffset:
        assert self.rig.store is not None
        given = parse_offset(json.loads(position))
        found = self.rig.store.readers.register(reader, LogPosition(given.epoch, given.sequence), max_bytes)
        self.rig.settle()
        return _offset(found.position)

    def commit(self, reader: str, offset: StreamOffset) -> StreamOffset:
        if self.fails:
            raise ConnectionFailed("the node is gone")
        assert self.rig.store is not None
        found = self.rig.store.readers.commit(reader, LogPosition(offset.epoch, offset.sequence))
        self.rig.settle()
        return _offset(found.position)


def _offset(position: LogPosition) -> StreamOffset:
    return StreamOffset(str(NODE_ID), position.epoch, position.sequence)


class Rig:
    """A store that goes on, with its directory, its node and its archive."""

    def __init__(
        self, spark: SparkSession, directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int, compacts: bool = True
    ) -> None:
        self.spark = spark
        self.directory = directory
        self.rig = StoreHarness(random.Random(seed), compact_segments_min=2 * compacts, compact_percent=75)
        self.rig.activate("a")
        self.node = Node(self.rig)
        self.archive = directory / "archive"
        monkeypatch.setattr(archive_logs, "ActiveNode", lambda servers, token_file: self.node)

    @property
    def store(self) -> str:
        return str(put(self.rig, self.directory / "store"))

    def send(self, body: bytes, tx_id: int = 0) -> int:
        store = self.rig.store
        assert store is not None
        message = Message(body, address="a", timestamp=1_763_900_000_000)
        message.assign_id(store.next_id())
        store.store_message(message, 4711, (self.rig.queue_ids[0],), tx_id=tx_id)
        self.rig.settle()
        return message.message_id

    def run(self, reader: ReaderSettings = READER, **settings: str) -> ArchiveReport:
        chosen = Settings(reader=reader, **settings)  # type: ignore[arg-type]
        return archive(self.spark, [self.store], self.archive, chosen)

    def confirmed(self) -> set[Key]:
        """Keys of the messages that are confirmed according to the model: those sent outside of transactions, and
        committed ones.
        """
        operations = self.rig.model.operations
        commits = {arguments[0] for _, name, arguments in operations if name == "commit"}
        return {
            (str(NODE_ID), arguments[1], self.rig.bodies[arguments[1]])
            for _, name, arguments in operations
            if name == "message" and (not arguments[0] or arguments[0] in commits)
        }

    def archived(self) -> set[Key]:
        rows = archived_rows(self.archive)
        keys = {(row["node_id"], row["message_id"], encoded_of(row)) for row in rows}
        assert len(keys) == len(rows), "a message is in the archive twice"
        return keys


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_reader_archives_every_confirmed_message_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rig = Rig(spark, tmp_path, monkeypatch, seed)
    last = 0
    for turn in range(5):
        act(rig.rig, 60)
        if turn % 2:
            rig.rig.prepared = {}
            restart(rig.rig)
            act(rig.rig, 10)
        # a run that is killed before it commits its position
        rig.node.fails = turn == 2
        report = rig.run()
        assert rig.archived() == rig.confirmed()
        assert report.reader is not None
        # a position that an open transaction holds is not committed again
        assert report.reader["committed"] is (turn != 2 or report.reader["position"]["sequence"] == last)
        assert report.reader["position"]["sequence"] >= last
        if turn:
            # not everything is read again, unless a transaction is open or the commit failed
            assert report.reader["from"]["sequence"] > 0
        last = report.reader["position"]["sequence"]
    again = rig.run()
    assert (again.archived, again.rows) == (0, report.rows)


@pytest.mark.parametrize("seed", [4, 9])
def test_the_first_run_takes_what_the_consolidated_log_has(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rig = Rig(spark, tmp_path, monkeypatch, seed)
    act(rig.rig, 300)
    restart(rig.rig)
    act(rig.rig, 200)
    store = rig.store
    reader = rig.run().reader
    assert reader is not None
    first = reader["from"]["sequence"]
    assert first <= rig.node.positions().earliest.sequence
    before = rig.archived()
    # segments before a gap are not read: of their messages, the snapshot has those that are still in a queue
    check_rows(archived_rows(rig.archive), expected_messages([store], first))
    act(rig.rig, 100)
    rig.rig.decide()
    rig.rig.settle()
    rig.run()
    assert before <= rig.archived()
    alive = {message_id for _, message_id in rig.rig.live}
    assert {key for key in rig.confirmed() if key[1] in alive} <= rig.archived() <= rig.confirmed()


def test_the_position_waits_for_open_transactions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(spark, tmp_path, monkeypatch, 6, compacts=False)
    rig.rig.address()
    rig.rig.queue()
    store = rig.rig.store
    assert store is not None
    rig.send(b"before")
    open_tx, other = store.next_id(), store.next_id()
    rig.send(b"rolled back", other)
    store.store_rollback(other)
    rig.send(b"open", open_tx)
    rig.send(b"after")

    def bodies() -> list[bytes]:
        return sorted(row["body"] for row in archived_rows(rig.archive))

    report = rig.run()
    assert report.reader is not None
    assert bodies() == [b"after", b"before"]
    assert report.unconfirmed == 2
    assert report.reader["position"]["sequence"] < report.reader["until"]["sequence"]
    held = report.reader["position"]
    rig.send(b"later")
    report = rig.run()
    assert report.reader is not None
    assert (report.known, report.archived) == (1, 1), "messages after the open transaction are read again"
    assert report.reader["position"] == held
    store.store_commit(open_tx)
    rig.rig.settle()
    report = rig.run()
    assert report.reader is not None
    assert bodies() == [b"after", b"before", b"later", b"open"]
    assert report.reader["position"] == report.reader["until"]
    # a transaction that was not prepared ends with its epoch
    rig.send(b"lost", store.next_id())
    restart(rig.rig)
    rig.send(b"next epoch")
    report = rig.run()
    assert report.reader is not None
    assert report.reader["position"] == report.reader["until"]
    assert bodies() == [b"after", b"before", b"later", b"next epoch", b"open"]


def test_records_that_no_reader_held_are_said_to_be_missing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(spark, tmp_path, monkeypatch, 7)
    rig.rig.address()
    rig.rig.queue()
    store = rig.rig.store
    assert store is not None
    rig.send(b"first")
    rig.run()
    store.readers.remove("archive")
    for number in range(60):
        store.store_acknowledges(rig.rig.queue_ids[0], (rig.send(bytes(6_000)),))
        rig.rig.settle()
        if number == 1:
            # records that are still in the log are no gap, although no reader held it
            assert rig.run().archived == 2
            store.readers.remove("archive")
    rows = archived_rows(rig.archive)
    link = (rig.archive / "data").readlink()
    with pytest.raises(ConfigError, match=r"the records \d+ to \d+ of node .* are gone: the archive has read"):
        rig.run()
    assert (archived_rows(rig.archive), (rig.archive / "data").readlink()) == (rows, link)
    report = rig.run(replace(READER, accept_gap=True))
    assert 0 < report.archived < 58


def test_without_an_active_node_or_with_a_dropped_reader_nothing_is_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(spark, tmp_path, monkeypatch, 8)
    act(rig.rig, 20)
    rig.node.active = False
    with pytest.raises(ConnectionFailed, match="no active node"):
        rig.run()
    assert not rig.archive.exists()
    rig.node.active = True

    def refuse(*given: object) -> StreamOffset:
        raise ManagementError("reader 'archive' was dropped at sequence 5")

    monkeypatch.setattr(rig.node, "register", refuse)
    with pytest.raises(ManagementError, match="was dropped"):
        rig.run()
    assert not rig.archive.exists()


# --- retention directories --------------------------------------------------------------------------------------------


def retained_rig(spark: SparkSession, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, Path]:
    """A store most of whose segments have left the log; transactions begin in one segment and end in another one."""
    rig = Rig(spark, directory, monkeypatch, 12)
    rig.rig.settings = replace(rig.rig.settings, retention=RetentionSettings("/retained"))
    rig.rig.die(power_loss=False)
    store = rig.rig.activate("b")
    rig.rig.address()
    rig.rig.queue()
    pending: list[int] = []
    for number in range(120):
        tx_id = store.next_id() if number % 10 == 0 else 0
        message_id = rig.send(rig.rig.stream.randbytes(6_000), tx_id)
        pending += [tx_id] if tx_id else []
        if len(pending) > 2:
            store.store_commit(pending.pop(0))
        if not tx_id:
            store.store_acknowledges(rig.rig.queue_ids[0], (message_id,))
        rig.rig.settle()
    retained = directory / "retained"
    retained.mkdir()
    for path in rig.rig.volume.paths():
        if path.startswith("/retained/"):
            (retained / path.rsplit("/", 1)[1]).write_bytes(rig.rig.volume.content(path))
    assert len(list(retained.iterdir())) > 3
    return rig, retained


def test_segments_in_a_retention_directory_are_archived_with_their_journal_and_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, retained = retained_rig(spark, tmp_path, monkeypatch)
    before = state_of(retained)
    bare = archive(spark, [rig.store], tmp_path / "bare")
    alone = archive(spark, [], tmp_path / "archive", Settings(retention=str(retained)))
    assert 0 < alone.archived < 118
    whole = archive(spark, [rig.store], tmp_path / "archive", Settings(retention=str(retained)))
    assert bare.rows < whole.rows
    # 120 messages, of which two transactions are open
    assert (whole.rows, whole.unconfirmed, whole.known) == (118, 2, alone.archived)
    assert whole.archived == 118 - alone.archived
    assert {row["address"] for row in archived_rows(tmp_path / "archive")} == {"a"}
    assert state_of(retained) == before


def test_a_reader_begins_with_segments_that_have_left_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, retained = retained_rig(spark, tmp_path, monkeypatch)
    report = rig.run(retention=str(retained))
    assert (report.rows, report.unconfirmed) == (118, 2)
    assert rig.rig.store is not None
    assert rig.rig.store.readers.earliest.sequence > 50, "the node does not have them"
    assert rig.run(retention=str(retained)).archived == 0


def test_a_segment_that_leaves_the_log_while_it_is_archived_is_found(tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(20))
    rig.activate("a")
    act(rig, 30)
    store = put(rig, tmp_path / "store")
    retained = tmp_path / "retained"
    retained.mkdir()
    columns = ["directory", "file", "offset", "length", "segment", "epoch", "node_id", "message_id", "size",
               "sequence", "moved"]  # fmt: skip
    given = {"date": "d", "address_key": "k", "file_number": 0, "content_hash": 1, "address": "a", "queues": []}
    rows = [row | given for row in read_table(str(store), "messages", columns)]
    seen = {(row["file"], row["offset"]): row for row in rows}
    (tmp_path / "out").mkdir()
    shutil.move(store / rows[0]["file"], retained / rows[0]["file"])
    target = Target(str(tmp_path / "out"), 1, {str(store): ()}, 1 << 20, 1 << 30)
    with pytest.raises(BrokerError, match="disappeared"):
        list(write_messages(target, seen.values()))
    written = list(write_messages(replace(target, retention=str(retained)), seen.values()))
    assert sum(each.rows for each in written) == len(seen)
