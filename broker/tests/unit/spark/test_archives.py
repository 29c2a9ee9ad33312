"""Job ``archive``: partitions, chosen addresses, bodies of large messages, refusals; nothing is written on failure."""

from __future__ import annotations

import json
import os
import random
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.support import store as store_module
from tests.support.archives import archived_rows, check_rows, expected_messages, plain_key
from tests.support.copies import write_out
from tests.support.store import StoreHarness

from understudy.cli.pipeline import spark_job
from understudy.cli.pipeline.commands import pipeline
from understudy.errors import (
    BrokerError,
    ConfigError,
    DiskFailed,
    JournalCorrupt,
    StoreInUse,
    StoreVersionUnsupported,
    WrongNode,
)
from understudy.ids import NodeId
from understudy.message import LargeBody, LargeMessage, Message
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.spark.archive import archives
from understudy.spark.archive import files as archive_files
from understudy.spark.archive.archives import ArchiveReport, Settings, archive
from understudy.spark.archive.files import Target, merge_files
from understudy.spark.archive.layout import DataFile
from understudy.spark.archive.rows import address_expression, address_key
from understudy.spark.journal.source import read_archive
from understudy.store.log.format_version import FORMAT_VERSION
from understudy.wildcards import matches

pytestmark = pytest.mark.spark

os_open = os.open
OTHER = NodeId("11111111-2222-4333-8444-555555555555")
DAY_MS = 86_400_000
NOW_MS = 1_763_900_000_000


def rig_with_queue(seed: int = 1) -> StoreHarness:
    rig = StoreHarness(random.Random(seed))
    rig.activate("a")
    rig.address()
    rig.queue()
    return rig


def send(rig: StoreHarness, message: Message, tx_id: int = 0) -> int:
    assert rig.store is not None
    message.assign_id(rig.store.next_id())
    # an address without a binding: the name is that in the message
    rig.store.store_message(message, 4711, (rig.queue_ids[0],), tx_id=tx_id)
    return message.message_id


def send_large(rig: StoreHarness, large: LargeBody) -> None:
    assert rig.store is not None
    message = LargeMessage.of(Message(b"", address="l"), large, large.size_bytes)
    message.assign_id(rig.store.next_id())
    rig.store.store_message(message, 4711, (rig.queue_ids[0],), large=True)


def out(rig: StoreHarness, directory: Path) -> str:
    rig.settle()
    return str(write_out(rig, directory))


def simple_store(directory: Path, messages: int = 20, seed: int = 1) -> str:
    rig = rig_with_queue(seed)
    for number in range(messages):
        send(rig, Message(b"%d" % number, address="a", timestamp=NOW_MS))
    return out(rig, directory)


def state_of(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file, and the directories."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in directory.rglob("*")
    }


# --- partitions and columns -------------------------------------------------------------------------------------------


def test_partitions_are_days_and_addresses_that_every_reader_reads_back(spark: SparkSession, tmp_path: Path) -> None:
    rig = rig_with_queue()
    addresses = ["12", "1e5", "2026-11-23", "a/b", "../x", "ä" * 60, "null", "a", "A", "", None, "\n", "x=y"]
    for place, address in enumerate(addresses):
        send(rig, Message(b"%d" % place, address=address, timestamp=NOW_MS + place * DAY_MS))
    odd = [0, -5, 1, 253_402_300_799_999, 2**62]
    for timestamp in odd:
        send(rig, Message(b"t", address="t", timestamp=timestamp))
    store = out(rig, tmp_path / "store")
    report = archive(spark, [store], tmp_path / "archive")
    assert (report.archived, report.rows, report.generation) == (len(addresses) + len(odd), report.found, 1)
    rows = archived_rows(tmp_path / "archive")
    days = [datetime.fromtimestamp(NOW_MS / 1000 + place * 86_400, UTC).date() for place in range(len(addresses))]
    found = {(row["address"], row["date"], row["address_key"]) for row in rows if row["address"] != "t"}
    assert found == {
        # the source gives an empty name as null
        (address or None, str(day), plain_key(address))
        for address, day in zip(addresses, days, strict=True)
    }
    dates = sorted(row["date"] for row in rows if row["address"] == "t")
    assert dates == ["1970-01-01", "9999-12-31", *["__HIVE_DEFAULT_PARTITION__"] * 3]
    read = spark.read.parquet(str(tmp_path / "archive" / "data"))
    assert dict(read.dtypes)["address_key"] == "string"
    assert dict(read.dtypes)["date"] == "date"
    assert read.count() == len(rows)
    one = read.where((F.col("date") == F.lit(days[0])) & (F.col("address") == "12")).collect()
    assert [bytes(row["body"]) for row in one] == [b"0"]
    for path in (tmp_path / "archive").rglob("*.parquet"):
        assert path.stat().st_mode & 0o077 == 0


@given(st.lists(st.text("ab.\n-/ä\U0001f600", max_size=60), min_size=1, max_size=20))
@settings(max_examples=5)
def test_address_keys_are_those_of_plain_python(spark: SparkSession, addresses: list[str]) -> None:
    frame = spark.createDataFrame([(each,) for each in addresses], "address string")
    found = [row[0] for row in frame.select(address_key(F.col("address"))).collect()]
    assert found == [plain_key(each) for each in addresses]


WORDS = st.lists(st.sampled_from(["a", "b", "", "*", "#", "a-b", "[a]", "\\", "$x"]), min_size=1, max_size=5)


@given(WORDS, st.lists(st.sampled_from(["a", "b", "", "a-b", "[a]", "\\", "$x", "ä"]), min_size=1, max_size=5))
@settings(max_examples=500)
def test_expressions_of_matches_match_as_the_broker_does(pattern: list[str], words: list[str]) -> None:
    match, address = ".".join(pattern), ".".join(words)
    found = re.fullmatch(address_expression([match]), address) is not None
    assert found == matches(match, address)


def test_only_chosen_addresses_are_archived_and_others_later(spark: SparkSession, tmp_path: Path) -> None:
    rig = rig_with_queue()
    for address in ("orders.eu", "orders.us.new", "orders", "prices", "or(ders"):
        send(rig, Message(b"x", address=address, timestamp=NOW_MS))
    store = out(rig, tmp_path / "store")

    def run(*addresses: str) -> tuple[int, int, set[str]]:
        report = archive(spark, [store], tmp_path / "archive", Settings(addresses=addresses))
        return report.found, report.archived, {row["address"] for row in archived_rows(tmp_path / "archive")}

    assert run("orders.*", "or(ders") == (2, 2, {"orders.eu", "or(ders"})
    assert run("orders.#") == (3, 2, {"orders.eu", "or(ders", "orders", "orders.us.new"})
    assert run() == (5, 1, {"orders.eu", "or(ders", "orders", "orders.us.new", "prices"})


def test_small_files_become_one_and_large_ones_stay(spark: SparkSession, tmp_path: Path) -> None:
    rig = rig_with_queue()
    first: set[Path] = set()
    output, chosen = tmp_path / "archive", Settings(file_bytes=60_000, compact_files=3)
    for turn, size in enumerate((40_000, 100, 100)):
        send(rig, Message(random.Random(turn).randbytes(size), address="a", timestamp=NOW_MS))
        store = out(rig, tmp_path / f"store{turn}")
        archive(spark, [store], output, chosen)
        if not turn:
            first = {path.name for path in (output / "data").resolve().rglob("*.parquet")}
    assert len(list((output / "data").resolve().rglob("*.parquet"))) == 3
    send(rig, Message(b"last", address="a", timestamp=NOW_MS))
    report = archive(spark, [out(rig, tmp_path / "last")], output, chosen)
    assert (report.files_written, report.files_merged, report.files, report.rows) == (1, 3, 2, 4)
    assert first < {path.name for path in (output / "data").resolve().rglob("*.parquet")}
    check_rows(archived_rows(output), expected_messages([str(tmp_path / "last")]))


def test_frame_of_an_archive_is_read_while_later_runs_merge_its_files(spark: SparkSession, tmp_path: Path) -> None:
    rig = rig_with_queue()
    output = tmp_path / "archive"

    def run(turn: int, settings: Settings) -> ArchiveReport:
        send(rig, Message(b"%d" % turn, address="a", timestamp=NOW_MS))
        return archive(spark, [out(rig, tmp_path / f"store{turn}")], output, settings)

    with pytest.raises(ConfigError, match="is no archive"):
        read_archive(spark, str(output))
    for turn in range(3):
        run(turn, Settings(compact_files=0))
    frame = read_archive(spark, str(output))
    merged = run(3, Settings(compact_files=2))
    assert (merged.files_merged, merged.files, merged.generations_kept) == (4, 1, 3)
    assert sorted(bytes(row["body"]) for row in frame.collect()) == [b"0", b"1", b"2"]
    assert read_archive(spark, str(output)).count() == 4
    # a run that keeps nothing says how many it has removed
    last = run(4, Settings(compact_files=0, keep_ms=0))
    assert (last.generations_removed, last.generations_kept) == (3, 0)
    with pytest.raises(ConfigError, match="files of the scheme s3a: are not read or written here"):
        archive(spark, [str(tmp_path / "store0")], Path("s3a://bucket/x"), Settings())
    assert not Path("s3a:").exists()


def test_messages_of_a_partition_are_cut_into_files_of_the_aimed_size(spark: SparkSession, tmp_path: Path) -> None:
    rig = rig_with_queue()
    for number in range(30):
        send(rig, Message(random.Random(number).randbytes(4000), address="a", timestamp=NOW_MS))
    report = archive(
        spark, [out(rig, tmp_path / "store")], tmp_path / "archive", Settings(file_bytes=20_000, compact_files=0)
    )
    sizes = [path.stat().st_size for path in (tmp_path / "archive" / "data").resolve().rglob("*.parquet")]
    assert (report.files, report.rows) == (len(sizes), 30)
    assert 6 <= len(sizes) <= 7
    assert max(sizes) < 40_000


# --- large messages ---------------------------------------------------------------------------------------------------


def test_bodies_of_large_messages_are_archived_or_said_to_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    rig = rig_with_queue()
    bodies = tmp_path / "large-messages"
    bodies.mkdir()
    body = random.Random(1).randbytes(3_000_000)
    for file_id, content in ((1, body), (2, None), (3, body[:-1] + b"?"), (4, body), (5, b"")):
        size = 5_000_000 if file_id == 4 else len(body) if file_id != 5 else 0
        send_large(rig, LargeBody(file_id, size, crc32(body) if file_id != 5 else 0))
        if content is not None:
            (bodies / f"{file_id}.large").write_bytes(content)
    store = out(rig, tmp_path / "journal")
    report = archive(spark, [store], tmp_path / "archive", Settings(large_bytes_max=4_000_000))
    assert report.without_body == {"missing": 1, "damaged": 1, "too large": 1}
    assert not report.complete
    rows = {row["large_file_id"]: row for row in archived_rows(tmp_path / "archive")}
    assert {file_id: row["body_state"] for file_id, row in rows.items()} == {
        1: "file", 2: "missing", 3: "damaged", 4: "too large", 5: "file",
    }  # fmt: skip
    assert (rows[1]["body"], rows[5]["body"], rows[3]["body"]) == (body, b"", None)
    check_rows(rows.values(), expected_messages([store]))


# --- failures ---------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    kind: type[BrokerError]
    match: str
    directories: list[str]
    output: Path
    settings: Settings


def cases(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    output, usual = directory / "archive", Settings()
    good = simple_store(directory / "good")
    monkeypatch.setattr(store_module, "NODE_ID", OTHER)
    other = simple_store(directory / "other")
    monkeypatch.undo()
    yield Case(WrongNode, "is of node .*, .* of node", [good, other], output, usual)
    newer = Path(simple_store(directory / "newer"))
    segment = min(newer.glob("segment-*.log"))
    content = bytearray(segment.read_bytes())
    content[8:10] = struct.pack("<H", FORMAT_VERSION + 1)
    content[12:16] = bytes(4)
    content[12:16] = struct.pack("<I", crc32(content[:4096]))
    segment.write_bytes(content)
    refused = f"format version {FORMAT_VERSION + 1}, this Understudy reads up to {FORMAT_VERSION}"
    yield Case(StoreVersionUnsupported, refused, [str(newer)], output, usual)
    rig = rig_with_queue()
    for number in range(60):
        send(rig, Message(bytes(20_000), address="a", timestamp=number))
    gap = Path(out(rig, directory / "gap"))
    sorted(gap.glob("segment-*.log"))[1].unlink()
    yield Case(JournalCorrupt, "are missing: no segment between", [str(gap)], output, usual)
    yield Case(ConfigError, "holds no journal", [str(directory)], output, usual)
    yield Case(ConfigError, "cannot be read: No such file", [str(directory / "none")], output, usual)
    yield Case(ConfigError, "a directory is given twice", [good, good], output, usual)
    yield Case(ConfigError, "is no archive: it has files and no archive.json", [good], directory / "other", usual)
    yield Case(ConfigError, "the archive would lie in a journal", [good], Path(good) / "archive", usual)
    unreadable = Path(simple_store(directory / "unreadable"))
    segment = min(unreadable.glob("segment-*.log"))
    segment.rename(segment.with_suffix(".moved"))
    segment.symlink_to(segment.with_suffix(".moved"))
    yield Case(BrokerError, "segment-0.*(symbolic links|no regular file)", [str(unreadable)], output, usual)
    newer_archive = directory / "newer-archive"
    newer_archive.mkdir()
    (newer_archive / "archive.json").write_text('{"format": "understudy archive", "schema_version": 9}')
    yield Case(ConfigError, "schema version 9, this Understudy has 1", [good], newer_archive, usual)


def test_bad_input_is_one_line_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    for count, case in enumerate(cases(tmp_path, monkeypatch), 1):  # noqa: B007  counted below
        before = state_of(tmp_path)
        with pytest.raises(case.kind, match=case.match) as caught:
            archive(spark, case.directories, case.output, case.settings)
        assert "\n" not in str(caught.value)
        assert state_of(tmp_path) == before
    assert count == 10


def test_a_store_in_use_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = simple_store(tmp_path / "store")
    lock = RealFileLock(f"{store}/serverlock.1")
    assert lock.try_acquire()
    try:
        before = state_of(tmp_path)
        with pytest.raises(StoreInUse, match="in use by a running broker"):
            archive(spark, [store], tmp_path / "archive")
        assert state_of(tmp_path) == before
    finally:
        lock.release()


def test_stores_of_several_nodes_are_archived_together_if_asked_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [simple_store(tmp_path / "one")]
    monkeypatch.setattr(store_module, "NODE_ID", OTHER)
    stores.append(simple_store(tmp_path / "two"))
    report = archive(spark, stores, tmp_path / "archive", Settings(many_nodes=True))
    assert report.rows == 40
    check_rows(archived_rows(tmp_path / "archive"), expected_messages(stores))


def test_damage_names_its_place_and_leaves_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    rig = rig_with_queue()
    for number in range(60):
        send(rig, Message(bytes(20_000), address="a", timestamp=number))
    store = Path(out(rig, tmp_path / "store"))
    segment = min(store.glob("segment-*.log"))
    content = bytearray(segment.read_bytes())
    content[40_000] ^= 1
    segment.write_bytes(content)
    before = state_of(tmp_path)
    result = run_command(spark, ["archive", str(store), "-o", str(tmp_path / "archive")])
    assert isinstance(result[1], ConfigError)
    assert re.search(rf"{segment} at offset [0-9]+: record [0-9]+ is damaged", str(result[1]))
    assert "\n" not in str(result[1])
    assert state_of(tmp_path) == before


def test_missing_rows_publish_nothing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(spark, [simple_store(tmp_path / "one")], tmp_path / "archive")
    published = os.readlink(tmp_path / "archive" / "data")
    more = simple_store(tmp_path / "two", 25, seed=2)
    counted = archives.rows_in
    monkeypatch.setattr(archives, "rows_in", lambda path: counted(path) - 1)
    with pytest.raises(BrokerError, match=r"[0-9]+ messages were written, [0-9]+ were selected; nothing"):
        archive(spark, [more], tmp_path / "archive")
    assert os.readlink(tmp_path / "archive" / "data") == published
    assert len(archived_rows(tmp_path / "archive")) == 20
    assert os.listdir(tmp_path / "archive" / "generations") == [Path(published).name]


def test_a_journal_that_changes_meanwhile_publishes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Path(simple_store(tmp_path / "store"))
    written = archives._Run._write

    def start_a_broker(run: archives._Run, *arguments: object) -> object:
        found = written(run, *arguments)  # type: ignore[arg-type]
        rig = rig_with_queue()
        act_on(rig)
        for path in store.glob("*"):
            path.unlink()
        for path in write_out(rig, tmp_path / "new").glob("*"):
            path.rename(store / path.name)
        return found

    monkeypatch.setattr(archives._Run, "_write", start_a_broker)
    with pytest.raises(StoreInUse, match="a journal was changed while it was read"):
        archive(spark, [str(store)], tmp_path / "archive")
    assert not (tmp_path / "archive").exists()


def test_a_full_disk_in_a_task_is_one_line_and_publishes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    store = simple_store(tmp_path / "store")
    archive(spark, [store], tmp_path / "archive")
    (source,) = (tmp_path / "archive" / "data").resolve().rglob("*.parquet")
    placed = DataFile(source.name, 20, source.stat().st_size)
    target = Target(str(tmp_path / "none"), 2, {}, 0, 1000)
    with pytest.raises(DiskFailed, match=r"/none cannot be written: No such file or directory"):
        merge_files(target, str(source.parent), "p", [placed])
    full = Target("/dev", 2, {}, 0, 1000)
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(DiskFailed, match="/dev cannot be written: No space"),
    ):
        patch.setattr(archive_files.os, "open", lambda path, flags, mode: os_open("/dev/full", os.O_WRONLY))
        merge_files(full, str(source.parent), "p", [placed])


def act_on(rig: StoreHarness) -> None:
    send(rig, Message(b"x", address="a"))
    rig.settle()


# --- the command ------------------------------------------------------------------------------------------------------


class Borrowed:
    """The shared session under a ``stop`` that leaves it running."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Not of the shared one."""


def run_command(spark: SparkSession, arguments: list[str]) -> tuple[int, BaseException | None, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_job, "open_session", lambda *given, **more: Borrowed(spark))
        result = CliRunner().invoke(pipeline, arguments)
    return result.exit_code, result.exception, result.stdout


def test_the_command_reports_as_text_and_json_and_says_incomplete_bodies(spark: SparkSession, tmp_path: Path) -> None:
    rig = rig_with_queue()
    send(rig, Message(b"x", address="a", timestamp=NOW_MS))
    assert rig.store is not None
    send(rig, Message(b"open", address="a", timestamp=NOW_MS), tx_id=rig.store.next_id())
    store = out(rig, tmp_path / "store")
    output = tmp_path / "archive"
    code, _, text = run_command(spark, ["archive", store, "-o", str(output), "--json"])
    found = json.loads(text)
    assert code == 0
    assert found == {
        "archive": str(output), "generation": 1, "changed": True, "found": 2, "unconfirmed": 1, "known": 0,
        "archived": 1, "rows": 1, "files": 1, "size": found["size"], "files_written": 1, "files_merged": 0,
        "generations_kept": 0, "generations_removed": 0, "without_body": {}, "complete": True, "reader": None,
    }  # fmt: skip
    code, _, text = run_command(spark, ["archive", store, "-o", str(output)])
    assert code == 0
    assert text.splitlines()[0] == "journals: 2 messages: 0 archived, 1 in the archive before, 1 not confirmed"
    assert "generation 1 (unchanged)" in text
    assert "generations: 0 removed, 0 former kept" in text
    send_large(rig, LargeBody(9, 10, 1))
    code, _, text = run_command(spark, ["archive", out(rig, tmp_path / "more"), "-o", str(output)])
    assert code == 3
    assert "generations: 0 removed, 1 former kept" in text
    assert "bodies missing: 1 large messages are archived without their body" in text


def test_wrong_usage_is_refused_before_spark_starts(tmp_path: Path) -> None:
    store = simple_store(tmp_path / "store")
    for arguments, text in (
        ([store], "Missing option '-o'"),
        ([store, "-o", str(tmp_path / "a"), "--adress", "x"], "No such option '--adress'"),
        ([store, store, "-o", str(tmp_path / "a")], "a directory is given twice"),
        ([str(tmp_path), "-o", str(tmp_path / "a")], "holds no journal"),
        ([store, "-o", str(tmp_path / "a"), "--nodes", "two"], "'two' is not one of 'one', 'many'"),
        (["-o", str(tmp_path / "a")], "Missing argument 'DIRECTORY...', or option '--retention' alone"),
        ([store, "-o", str(tmp_path / "a"), "--reader", "r"], "--reader and --server belong together"),
        ([store, "-o", str(tmp_path / "a"), "--server", "http://n"], "--reader and --server belong together"),
        (["--retention", store, "-o", "a", "--reader", "r", "--server", "http://n"], "Missing argument 'DIRECTORY...'"),
        (["--retention", str(tmp_path), "-o", str(tmp_path / "a")], "holds no journal"),
        ([store, "-o", str(tmp_path / "a"), "--reader-max-bytes", "much"], "--reader-max-bytes"),
    ):
        result = CliRunner().invoke(pipeline, ["archive", *arguments])
        assert result.exit_code == 2
        assert text in result.output
    assert not (tmp_path / "a").exists()
