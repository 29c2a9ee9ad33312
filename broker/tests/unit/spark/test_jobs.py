"""Goal: a job refuses what the reference refuses, and reports torn tails as it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from understudy.errors import LedgerDamaged
from understudy.ledger import Kind, Report, Row, encode
from understudy.spark.jobs.jobs import RemainingMessages, audit

pytestmark = pytest.mark.spark

GOOD = encode(Row(Kind.SENT, "p", 0, "a", 1))


def test_a_damaged_line_ends_the_audit_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(GOOD * 50 + GOOD[:9])
    bad.write_text(GOOD * 99 + "\n" + GOOD.replace("SENT", "LOST") + GOOD)
    with pytest.raises(LedgerDamaged, match="bad:101: no ledger row: unknown kind 'LOST'"):
        audit(spark, [good, bad])


def test_torn_tails_are_said_and_left_out(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "torn"
    path.write_text(GOOD * 3 + GOOD[:9])
    found = audit(spark, [path])
    assert found.torn == {str(path): 4}
    assert (found.report.counts.sent, found.report.counts.messages) == (3, 1)


def test_nothing_at_all_is_a_clean_report(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_text("")
    assert audit(spark, [path]).report == Report()


def test_a_damaged_remaining_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path, remaining = tmp_path / "ledger", tmp_path / "remaining"
    path.write_text(GOOD)
    remaining.write_text('{"producer":"p","number":1}\n{"producer":"p","number":"1"}\n')
    with pytest.raises(LedgerDamaged, match="remaining:2"):
        audit(spark, [path], remaining=RemainingMessages(remaining))
