"""Bad input of every job and both sources: one clear line for each, nothing written, and the inputs as they were.

Method: a table of stores that cannot be used, times the table of jobs and sources.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType
from tests.support import store as store_module
from tests.support.copies import write_out
from tests.support.store import StoreHarness
from tests.unit.spark.test_archives import Borrowed, state_of

from understudy.cli.main import exit_code_of
from understudy.cli.pipeline import spark_job
from understudy.cli.pipeline.commands import pipeline
from understudy.errors import BrokerError, ConfigError
from understudy.ids import NodeId
from understudy.ledger import Kind, Row, encode
from understudy.message import Message
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.spark.journal.source import read_journal
from understudy.spark.journal.stream_options import parse_stream_options
from understudy.spark.journal.stream_reader import JournalStream
from understudy.spark.queue.source import browse_queue
from understudy.store.log.format_version import FORMAT_VERSION

pytestmark = pytest.mark.spark

OTHER = NodeId("11111111-2222-4333-8444-555555555555")


def make_store(directory: Path, *, messages: int = 40) -> Path:
    rig = StoreHarness(random.Random(1))
    rig.activate("a")
    rig.address()
    rig.queue()
    store = rig.store
    assert store is not None
    for number in range(messages):
        message = Message(bytes(10_000), address="a", timestamp=number)
        message.assign_id(store.next_id())
        store.store_message(message, rig.address_ids[0], (rig.queue_ids[0],))
        rig.settle()
    return write_out(rig, directory)


def mixed(directory: Path, patch: pytest.MonkeyPatch) -> Path:
    """A segment of another node among those of the first one."""
    found = make_store(directory)
    with patch.context() as other_node:
        other_node.setattr(store_module, "NODE_ID", OTHER)
        other = make_store(directory.with_name("other"))
    segment = sorted(found.glob("segment-*.log"))[1]
    segment.write_bytes((other / segment.name).read_bytes())
    return found


def newer(directory: Path, patch: pytest.MonkeyPatch) -> Path:
    found = make_store(directory)
    segment = min(found.glob("segment-*.log"))
    content = bytearray(segment.read_bytes())
    content[8:10] = struct.pack("<H", FORMAT_VERSION + 1)
    content[12:16] = bytes(4)
    content[12:16] = struct.pack("<I", crc32(content[:4096]))
    segment.write_bytes(content)
    return found


def gap(directory: Path, patch: pytest.MonkeyPatch) -> Path:
    found = make_store(directory)
    sorted(found.glob("segment-*.log"))[1].unlink()
    return found


def unreadable(directory: Path, patch: pytest.MonkeyPatch) -> Path:
    """A link instead of a file: also root cannot be meant to follow it."""
    found = make_store(directory)
    segment = min(found.glob("segment-*.log"))
    segment.rename(segment.with_suffix(".moved"))
    segment.symlink_to(segment.with_suffix(".moved"))
    return found


def nothing(directory: Path, patch: pytest.MonkeyPatch) -> Path:
    directory.mkdir()
    return directory


@dataclass(frozen=True)
class Bad:
    """A store that cannot be used."""

    make: Callable[[Path, pytest.MonkeyPatch], Path]
    text: str
    in_use: bool = False


BAD = {
    "segments of two nodes": Bad(mixed, r"belongs to node|is of node"),
    "a newer format": Bad(newer, rf"format version {FORMAT_VERSION + 1}, this Understudy reads up to {FORMAT_VERSION}"),
    "segments missing in the middle": Bad(gap, r"are missing: no segment|is missing|are gone"),
    "a store in use": Bad(lambda directory, patch: make_store(directory), r"in use by a running broker", in_use=True),
    "a file that cannot be read": Bad(unreadable, r"segment-0.*(symbolic links|no regular file)"),
    "no journal": Bad(nothing, r"holds no journal"),
}


def jobs(directory: Path, bad: str, good: str) -> Iterator[tuple[str, list[str]]]:
    """Name and arguments of each job that reads journals."""
    ledger = directory / "ledger.jsonl"
    ledger.write_text(encode(Row(Kind.SENT, "p", 1, "a", 1)))
    yield "audit", ["audit", str(ledger), "--journal", bad]
    yield "verdict", ["verdict", good, bad, "--export", str(directory / "export")]
    yield "archive", ["archive", bad, "-o", str(directory / "archive")]
    yield "consolidate", ["consolidate", bad, "-o", str(directory / "new")]
    yield "flow", ["flow", bad, "--html", str(directory / "page.html"), "--parquet", str(directory / "tables")]


def sources(spark: SparkSession, bad: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The batch and the streaming source."""
    yield "batch source", lambda: read_journal(spark, bad, "records", ["sequence"]).collect()

    def stream() -> None:
        schema = StructType([StructField("sequence", LongType())])
        found = JournalStream(parse_stream_options({"path": bad, "table": "records", "inUse": "refuse"}), schema)
        start = found.initialOffset()
        end = found.latestOffset(start, found.getDefaultReadLimit())
        for part in found.partitions(start, end):
            list(found.read(part))

    yield "streaming source", stream


@pytest.mark.parametrize("name", BAD)
def test_a_store_that_cannot_be_used_is_one_line_for_every_job_and_source(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(spark_job, "open_session", lambda *given, **more: Borrowed(spark))
    case = BAD[name]
    good, bad = make_store(tmp_path / "good", messages=5), case.make(tmp_path / "bad", monkeypatch)
    lock = RealFileLock(f"{bad}/serverlock.1")
    if case.in_use:
        assert lock.try_acquire()
    try:
        all_jobs = list(jobs(tmp_path, str(bad), str(good)))
        before = state_of(tmp_path)
        for job, arguments in all_jobs:
            result = CliRunner().invoke(pipeline, arguments)
            if job == "verdict" and name == "segments missing in the middle":
                # a damaged copy is a finding of this job, and the records before the gap are exported
                assert isinstance(result.exception, SystemExit)
                assert result.exception.code == 1
                assert "record 11 is damaged or missing" in result.output
                shutil.rmtree(tmp_path / "export")
                assert state_of(tmp_path) == before
                continue
            text = check_line(job, result.exception, result.output)
            assert any_of(case.text, text), (job, text)
            assert state_of(tmp_path) == before, job
        for source, read in sources(spark, str(bad)):
            if source == "streaming source" and name in ("a store in use", "segments missing in the middle"):
                # a stream follows stores in use, and begins after the missing records
                continue
            with pytest.raises(BrokerError) as caught:
                read()
            assert any_of(case.text, check_line(source, caught.value, "")), source
            assert state_of(tmp_path) == before, source
    finally:
        if case.in_use:
            lock.release()


def any_of(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def check_line(job: str, error: BaseException | None, output: str) -> str:
    """The one line that says what is wrong."""
    if isinstance(error, SystemExit):
        # usage: click has written it
        assert error.code == 2, (job, output)
        return output.splitlines()[-1]
    assert isinstance(error, BrokerError), (job, error)
    assert exit_code_of(error) == 2 or not isinstance(error, ConfigError)
    assert "\n" not in str(error), job
    assert "Traceback" not in output
    return str(error)


@pytest.mark.parametrize("job", ["audit", "verdict", "archive", "replay", "consolidate", "flow"])
def test_an_unknown_option_is_one_line_before_spark_starts(tmp_path: Path, job: str) -> None:
    result = CliRunner().invoke(pipeline, [job, str(tmp_path), "--unknown"])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith("Error: No such option '--unknown'")


@pytest.mark.parametrize("source", ["batch", "stream", "queue"])
def test_an_unknown_option_of_a_source_is_named(spark: SparkSession, tmp_path: Path, source: str) -> None:
    store = str(make_store(tmp_path / "store", messages=3))
    with pytest.raises(ConfigError, match="unknown option 'tabel'") as caught:
        if source == "batch":
            read_journal(spark, store, tabel="records")
        elif source == "stream":
            parse_stream_options({"path": store, "tabel": "records"})
        else:
            browse_queue(spark, url="tcp://127.0.0.1:1", queue="q", tabel="records")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffset": "earliest"}, "is no JSON with node_id, epoch, sequence"),
        ({"endingOffset": json.dumps({"epoch": 1, "node_id": "n", "sequence": 1})}, "option startingOffset: None"),
        ({"retention": "/r", "layout": "retention"}, "belongs to a journal directory"),
    ],
)
def test_options_of_ranges_and_retention_that_do_not_fit(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], text: str
) -> None:
    store = str(make_store(tmp_path / "store", messages=3))
    with pytest.raises(ConfigError, match=text):
        read_journal(spark, store, **options)


def test_a_range_gives_the_records_between_two_offsets(spark: SparkSession, tmp_path: Path) -> None:
    store = str(make_store(tmp_path / "store"))
    node_id = read_journal(spark, store, columns=["node_id"]).first()["node_id"]  # type: ignore[index]
    start, end = (json.dumps({"epoch": 1, "node_id": node_id, "sequence": each}) for each in (5, 30))
    for table in ("records", "messages"):
        everything = [row.sequence for row in read_journal(spark, store, table, ["sequence"]).collect()]
        found = read_journal(spark, store, table, ["sequence"], startingOffset=start, endingOffset=end).collect()
        assert sorted(row.sequence for row in found) == sorted(each for each in everything if 5 < each <= 30)
    with pytest.raises(ConfigError, match="is not after"):
        read_journal(spark, store, startingOffset=end, endingOffset=start)
    with pytest.raises(ConfigError, match="table bindings is not read by offsets"):
        read_journal(spark, store, "bindings", startingOffset=start, endingOffset=end)
