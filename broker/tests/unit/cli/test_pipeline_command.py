"""Goal: ``understudy pipeline audit`` gives what ``ledger check`` gives. The session is the test's own."""

from __future__ import annotations

import importlib.util
import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.support.copies import act, fork, go_on, write_out
from tests.support.store import StoreHarness

from understudy.cli.data.commands import data
from understudy.cli.data.ledger import ledger
from understudy.cli.pipeline import spark_job
from understudy.cli.pipeline.commands import pipeline
from understudy.errors import ConfigError
from understudy.ledger import Kind, Row, encode
from understudy.message import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Borrowed:
    """The shared session under a ``stop`` that leaves it running."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.stopped = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def borrowed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Borrowed:
    session = Borrowed(spark)
    monkeypatch.setattr(spark_job, "open_session", lambda *arguments, **more: session)
    return session


def test_audit_and_check_print_the_same_json(borrowed: Borrowed, tmp_path: Path) -> None:
    path, remaining = tmp_path / "p", tmp_path / "remaining"
    rows = [Row(kind, "p", number, "a", 100 * number) for number in range(4) for kind in (Kind.SENT, Kind.CONFIRMED)]
    rows += [Row(Kind.SENT, "e", 0, "a", 900), Row(Kind.CONFIRMED, "e", 0, "a", 950, node="n", node_id="i", epoch=1)]
    rows += [Row(Kind.SENT, "e", 1, "a", 700), Row(Kind.CONFIRMED, "e", 1, "a", 800, node="m", node_id="i", epoch=2)]
    rows += [Row(Kind.DELIVERED, "p", number, "a", 900, "c", "q", number + 1, 1) for number in (1, 0)]
    path.write_text("".join(map(encode, rows)) + "{")
    remaining.write_text('{"producer":"p","number":3}\n')
    options = [str(path), "--json", "--window-ms", "50", "--remaining-file", str(remaining)]
    for more in (["--members"], []):
        audited = CliRunner().invoke(pipeline, ["audit", *options, *more])
        checked = CliRunner().invoke(ledger, ["check", *options, *more])
        assert json.loads(audited.stdout) == json.loads(checked.stdout)
        assert (audited.exit_code, checked.exit_code) == (1, 1)
    assert "had confirmed at 800 ms" in audited.stdout
    assert borrowed.stopped


def test_a_damaged_ledger_is_a_configuration_error_with_its_place(borrowed: Borrowed, tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("x\n" + encode(Row(Kind.SENT, "p", 0, "a", 1)))
    result = CliRunner().invoke(pipeline, ["audit", str(path)])
    assert isinstance(result.exception, ConfigError)
    assert f"{path}:1:" in str(result.exception)
    assert borrowed.stopped


def test_output_of_spark_is_shown_only_if_it_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Processes of Spark write to the descriptor, not to ``sys.stderr``."""
    path = tmp_path / "p"
    path.write_text("")

    def started(*arguments: object, **more: object) -> Borrowed:
        os.write(2, b"Traceback of a worker\n")
        return Borrowed(spark)

    monkeypatch.setattr(spark_job, "open_session", started)
    assert CliRunner().invoke(pipeline, ["audit", str(path)]).exit_code == 0
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"

    def broken(*arguments: object, **more: object) -> Borrowed:
        os.write(2, b"OutOfMemoryError\n")
        raise RuntimeError("no session")

    monkeypatch.setattr(spark_job, "open_session", broken)
    failed = CliRunner().invoke(pipeline, ["audit", str(path)])
    assert isinstance(failed.exception, RuntimeError)
    assert failed.stderr == "OutOfMemoryError\n"


def test_without_pyspark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p"
    path.write_text("")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(pipeline, ["audit", str(path)])
    assert isinstance(result.exception, ConfigError)
    assert "understudy[spark]" in str(result.exception)


# --- reports of an audit ----------------------------------------------------------------------------------------------


def store_with_two_live_messages(directory: Path) -> str:
    """A journal with messages 0 to 3 of producer <p>, of which 1 and 3 are acknowledged."""
    rig = StoreHarness(random.Random(3))
    rig.activate("a")
    rig.address()
    rig.queue()
    assert rig.store is not None
    for number in range(4):
        message = Message(b"x", address="a", properties={"ledger_producer": "<p>", "ledger_number": number})
        message.assign_id(rig.store.next_id())
        rig.store.store_message(message, rig.address_ids[0], tuple(rig.queue_ids))
        if number % 2:
            rig.store.store_acknowledges(rig.queue_ids[0], (message.message_id,))
    rig.settle()
    return str(write_out(rig, directory))


def test_an_audit_with_a_journal_writes_a_report_that_shows_every_change(borrowed: Borrowed, tmp_path: Path) -> None:
    path, report, page = tmp_path / "ledger", tmp_path / "report.jsonl", tmp_path / "page.html"
    path.write_text("".join(encode(Row(k, "<p>", n, "a", n)) for n in range(4) for k in (Kind.SENT, Kind.CONFIRMED)))
    store = store_with_two_live_messages(tmp_path / "store")
    options = ["--journal", store, "--json", "--report", str(report), "--html", str(page)]
    result = CliRunner().invoke(pipeline, ["audit", str(path), *options])
    assert [finding["number"] for finding in json.loads(result.stdout)["lost"]] == [1, 3]
    assert result.exit_code == 1
    verified = CliRunner().invoke(pipeline, ["verify-report", str(report)])
    assert verified.exit_code == 0
    assert verified.stdout.strip() in page.read_text()
    assert "<td>&lt;p&gt;</td>" in page.read_text()
    lines = report.read_text().splitlines(keepends=True)
    assert any('"section": "lost"' in line and "never delivered" in line for line in lines)
    forged = [*lines[:3], lines[3].replace('"section": "', '"section": "x'), *lines[4:]]
    for number, bad in ((4, forged), (3, lines[:2] + lines[3:]), (len(lines) - 1, lines[:-1])):
        report.write_text("".join(bad))
        result = CliRunner().invoke(pipeline, ["verify-report", str(report)])
        assert isinstance(result.exception, ConfigError)
        assert f"{report}:{number}:" in str(result.exception)


# --- verdict ----------------------------------------------------------------------------------------------------------


def test_verdict_answers_as_data_compare_and_exports_messages_of_one_side(borrowed: Borrowed, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(11))
    rig.activate("a")
    act(rig, 80)
    both = fork(rig, random.Random(12))
    both.right.settings = both.left.settings
    go_on(both.left, 60)
    go_on(both.right, 30)
    stores = [str(write_out(side, tmp_path / name)) for side, name in ((both.left, "left"), (both.right, "right"))]
    compared = CliRunner().invoke(data, ["compare", *stores, "--json"])
    judged = CliRunner().invoke(pipeline, ["verdict", *stores, "--json", "--export", str(tmp_path / "out")])
    assert (judged.exit_code, compared.exit_code) == (1, 1)
    found, expected = json.loads(judged.stdout), json.loads(compared.stdout)
    assert {name: found[name] for name in expected} == expected
    assert found["damage"] == []
    assert [each["records"] for each in found["checked"]] == [each["last_sequence"] for each in expected["copies"]]
    (pair,) = expected["pairs"]
    other = "right_only" if expected["newest"] == [stores[0]] else "left_only"
    (export,) = found["exports"]
    assert export["messages"] == pair[other]["replay_messages"] > 0
    assert json.loads(Path(export["file"]).read_text().splitlines()[-1])["end"]


def test_verdict_finds_damage_that_seals_do_not_show(borrowed: Borrowed, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(5))
    rig.activate("a")
    act(rig, 200)
    one, other = (write_out(rig, tmp_path / name) for name in ("one", "other"))
    path = min(other.glob("segment-*.log"))
    content = bytearray(path.read_bytes())
    content[6000] ^= 1
    path.write_bytes(content)
    compared = CliRunner().invoke(data, ["compare", str(one), str(other), "--json"])
    assert compared.exit_code == 0
    judged = CliRunner().invoke(pipeline, ["verdict", str(one), str(other), "--json"])
    assert judged.exit_code == 1
    (place,) = json.loads(judged.stdout)["damage"]
    assert (place["directory"], place["file"]) == (str(other), path.name)
    assert place["offset"] <= 6000 < place["offset"] + place["length"]
