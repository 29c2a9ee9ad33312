"""Goal: ``understudy pipeline audit`` gives what ``ledger check`` gives. The session is the test's own."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from understudy.cli import pipeline as pipeline_module
from understudy.cli.ledger import ledger
from understudy.cli.pipeline import pipeline
from understudy.errors import ConfigError
from understudy.ledger import Kind, Row, encode

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
    monkeypatch.setattr(pipeline_module, "open_session", lambda *arguments, **more: session)
    return session


def test_audit_and_check_print_the_same_json(borrowed: Borrowed, tmp_path: Path) -> None:
    path, remaining = tmp_path / "p", tmp_path / "remaining"
    rows = [Row(kind, "p", number, "a", 100 * number) for number in range(4) for kind in (Kind.SENT, Kind.CONFIRMED)]
    rows += [Row(Kind.DELIVERED, "p", number, "a", 900, "c", "q", number + 1, 1) for number in (1, 0)]
    path.write_text("".join(map(encode, rows)) + "{")
    remaining.write_text('{"producer":"p","number":3}\n')
    options = [str(path), "--json", "--window-ms", "50", "--remaining-file", str(remaining)]
    audited = CliRunner().invoke(pipeline, ["audit", *options])
    checked = CliRunner().invoke(ledger, ["check", *options])
    assert (audited.exit_code, checked.exit_code) == (1, 1)
    expected = json.loads(checked.stdout)
    # the job judges messages; which node confirmed them is judged by the command only
    assert expected.pop("confirmed_by")["ok"]
    assert json.loads(audited.stdout) == expected
    assert borrowed.stopped


def test_a_damaged_ledger_is_a_configuration_error_with_its_place(borrowed: Borrowed, tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("x\n" + encode(Row(Kind.SENT, "p", 0, "a", 1)))
    result = CliRunner().invoke(pipeline, ["audit", str(path)])
    assert isinstance(result.exception, ConfigError)
    assert f"{path}:1:" in str(result.exception)
    assert borrowed.stopped


def test_without_pyspark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p"
    path.write_text("")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(pipeline, ["audit", str(path)])
    assert isinstance(result.exception, ConfigError)
    assert "understudy[spark]" in str(result.exception)
