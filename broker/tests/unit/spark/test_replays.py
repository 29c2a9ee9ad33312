"""Messages that ``pipeline replay`` chooses are those that plain Python finds in the files, in order; refusals."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.support.archives import archived_rows, encoded_of
from tests.support.copies import write_out
from tests.support.store import StoreHarness

from understudy.cli.pipeline import spark_job
from understudy.cli.pipeline.commands import pipeline
from understudy.errors import ConfigError
from understudy.message import LargeBody, LargeMessage, Message
from understudy.selector import parse_selector
from understudy.spark.archive.archives import Settings, archive
from understudy.spark.archive.replays import Selection, choose, message_of
from understudy.wildcards import matches

pytestmark = pytest.mark.spark

NOW_MS = 1_763_900_000_123
DAY_MS = 86_400_000


class Borrowed:
    """The shared session under a ``stop`` that leaves it running."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Not of the shared one."""


@pytest.fixture
def borrowed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_job, "open_session", lambda *given, **more: Borrowed(spark))


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of 60 messages on three days to four addresses, in two steps, and one without its body."""
    directory = tmp_path_factory.mktemp("replays")
    stream = random.Random(5)
    rig = StoreHarness(stream)
    rig.activate("a")
    rig.address()
    rig.queue()
    assert rig.store is not None
    for turn in range(2):
        for number in range(30):
            message = Message(
                b"%d" % number, address=stream.choice(("orders.eu", "orders.us", "prices", "12")),
                timestamp=NOW_MS + stream.randrange(3 * DAY_MS) if number % 10 else 0, priority=number % 10,
                properties={"n": number, "region": stream.choice(("north", "south"))},
            )  # fmt: skip
            message.assign_id(rig.store.next_id())
            rig.store.store_message(message, 4711, (rig.queue_ids[0],))
        if turn:
            large = LargeMessage.of(Message(b"", address="prices"), LargeBody(9, 100, 1), 100)
            large.assign_id(rig.store.next_id())
            rig.store.store_message(large, 4711, (rig.queue_ids[0],), large=True)
        rig.settle()
        store = str(write_out(rig, directory / f"store{turn}"))
        archive(spark, [store], directory / "archive", Settings(compact_files=0))
    return directory / "archive"


def plain(made: Path, selection: Selection) -> list[bytes]:
    """The encoded messages that fit, in the order of their keys."""
    found = []
    for row in sorted(archived_rows(made), key=lambda row: (row["node_id"], row["message_id"])):
        sent = row["timestamp"]
        sent_ms = None if sent is None else round(sent.timestamp() * 1000)
        if selection.start_ms is not None and (sent_ms is None or sent_ms < selection.start_ms):
            continue
        if selection.stop_ms is not None and (sent_ms is None or sent_ms >= selection.stop_ms):
            continue
        if selection.addresses and not any(matches(each, row["address"]) for each in selection.addresses):
            continue
        message = Message.decode(encoded_of(row))
        if selection.filter and not parse_selector(selection.filter).matches(message):
            continue
        if row["body_state"] == "inline":
            found.append(message.encoded)
    return found


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(start_ms=NOW_MS + DAY_MS),
        Selection(stop_ms=NOW_MS + DAY_MS + 1),
        Selection(start_ms=NOW_MS + DAY_MS // 2, stop_ms=NOW_MS + 2 * DAY_MS, addresses=("orders.*",)),
        Selection(addresses=("#.us", "12"), filter="region = 'north' AND n > 3"),
        Selection(filter="JMSPriority >= 7 OR JMSTimestamp = 0"),
        Selection(stop_ms=1),
    ],
)
def test_chosen_messages_are_those_of_plain_python_in_order(
    spark: SparkSession, made: Path, selection: Selection
) -> None:
    expected = plain(made, selection)
    with choose(spark, made, selection) as chosen:
        assert [message_of(row).encoded for row in chosen.rows()] == expected
        # the same at each call: a client that reconnects reads them again
        assert [message_of(row).encoded for row in chosen.rows()] == expected
        assert chosen.total == len(expected)
        assert chosen.addresses == {
            address: sum(Message.decode(each).address == address for each in expected) for address in chosen.addresses
        }
    assert expected or selection.stop_ms == 1


def test_a_boundary_of_time_belongs_to_the_range_that_begins_there(spark: SparkSession, made: Path) -> None:
    times = sorted({row["timestamp"] for row in archived_rows(made) if row["timestamp"] is not None})
    middle = round(times[len(times) // 2].timestamp() * 1000)
    with choose(spark, made, Selection(stop_ms=middle)) as before, choose(spark, made, Selection(middle)) as after:
        assert before.total + after.total == sum(row["timestamp"] is not None for row in archived_rows(made))
        assert round(times[len(times) // 2].timestamp() * 1000) in {message_of(row).timestamp for row in after.rows()}


def test_the_identity_of_a_choice_is_that_of_its_messages(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    """Not of the files: the archive may be compacted, or grow elsewhere, between a replay and its rest."""
    archive(spark, [str(made.parent / "store1")], tmp_path / "other", Settings(file_bytes=3_000))
    chosen = Selection(filter="n < 15")
    with choose(spark, made, chosen) as one, choose(spark, tmp_path / "other", chosen) as other:
        assert (one.content, one.total) == (other.content, other.total)
    with choose(spark, made, Selection(filter="n < 14")) as less:
        assert less.content != one.content


def test_messages_without_their_body_are_left_out_and_said(spark: SparkSession, made: Path) -> None:
    with choose(spark, made, Selection()) as chosen:
        assert chosen.left_out == {"missing": 1}
        assert chosen.total == 60


@pytest.mark.usefixtures("borrowed")
def test_a_dry_run_counts_and_needs_no_broker(made: Path) -> None:
    found = CliRunner().invoke(pipeline, ["replay", str(made), "--dry-run", "--json", "--address", "orders.#"])
    summary = json.loads(found.stdout)
    orders = [row for row in archived_rows(made) if row["address"].startswith("orders")]
    assert (found.exit_code, summary["messages"], summary["left_out"]) == (0, len(orders), {})
    assert summary["addresses"].keys() == {"orders.eu", "orders.us"}
    found = CliRunner().invoke(pipeline, ["replay", str(made), "--dry-run", "--json", "--to-address", "x::y"])
    assert (found.exit_code, json.loads(found.stdout)["addresses"]) == (1, {"x": 60})
    assert json.loads(found.stdout)["left_out"] == {"missing": 1}


@pytest.mark.usefixtures("borrowed")
def test_the_progress_of_another_replay_is_refused(made: Path, tmp_path: Path) -> None:
    cases = {
        "{}": "is no progress of a replay",
        "x": "is no progress of a replay",
        '{"source": "1", "target": "2", "confirmed": 3}': "is the progress of a replay of other messages",
    }
    for text, message in cases.items():
        file = tmp_path / "progress"
        file.write_text(text)
        result = CliRunner().invoke(
            pipeline, ["replay", str(made), "--resume", str(file), "--url", "tcp://127.0.0.1:1"]
        )
        assert isinstance(result.exception, ConfigError)
        assert str(result.exception).startswith(f"{file}: {message}")
        assert file.read_text() == text


def test_wrong_usage_is_refused_before_spark_starts(made: Path, tmp_path: Path) -> None:
    for arguments, text in (
        ([str(made), "--filter", "n >"], "--filter: "),
        ([str(made), "--from", "yesterday"], "--from: Invalid isoformat string"),
        ([str(made), "--rate", "0"], "Invalid value for '--rate'"),
        ([str(made), "--to-address", ""], "an address is needed"),
        ([str(tmp_path / "none")], "does not exist"),
    ):
        result = CliRunner().invoke(pipeline, ["replay", *arguments])
        assert result.exit_code == 2
        assert text in result.output
    for arguments, text in (
        ([str(tmp_path)], "is no archive: it has no archive.json"),
        ([str(made.parent / "store0")], "is no archive: it has files"),
        ([str(made), "--resume", str(tmp_path / "none" / "file")], "its directory does not exist"),
    ):
        result = CliRunner().invoke(pipeline, ["replay", *arguments])
        assert isinstance(result.exception, ConfigError)
        assert text in str(result.exception)


def test_an_archive_without_messages_gives_none(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    report = archive(spark, [str(made.parent / "store0")], tmp_path / "archive", Settings(addresses=("nothing",)))
    assert (report.generation, report.changed, report.rows) == (0, False, 0)
    with choose(spark, tmp_path / "archive", Selection(start_ms=int(datetime.now(UTC).timestamp()))) as chosen:
        assert (chosen.total, list(chosen.rows())) == (0, [])
