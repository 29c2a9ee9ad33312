"""Job ``verdict``: copies of one node's journal against each other.

Which copy is newest, where they split and what each has alone is decided by ``tools.compare``, as for ``understudy data
compare``: it reads seals, the first segment that differs, and the state at the end. Spark checks every byte of every
copy against its digests and crcs in parallel, which is nearly all of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt
from understudy.ports import Disk
from understudy.spark.journal.source import read_journal
from understudy.tools.compare import Comparison, compare
from understudy.tools.log_copy import bare_message

#: Damaged places that a verdict lists for one copy.
LISTED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """Bytes of a copy that are no valid records."""

    directory: str
    file: str
    offset: int
    length: int
    message: str


@dataclass(frozen=True, slots=True)
class CheckedCopy:
    """Result of checking the bytes of one copy."""

    directory: str
    segments: int
    records: int
    record_bytes: int
    damaged: int
    """Number of damaged places."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answers of the job."""

    comparison: Comparison
    checked: tuple[CheckedCopy, ...]
    damage: tuple[DamagedPlace, ...]
    """At most LISTED_MAX of each copy, in the order of the log."""

    @property
    def ok(self) -> bool:
        """Whether the copies agree as far as each goes, and no byte is damaged."""
        return not self.comparison.diverged and not self.comparison.damaged and not self.damage


def verdict(
    spark: SparkSession,
    disk: Disk,
    directories: Sequence[str],
    *,
    sample: int = 0,
    in_use: bool = False,
    progress: Callable[[str], None] = lambda doing: None,
) -> Verdict:
    """Compare copies of one node's journal.

    Args:
        spark: A session of ``open_session``.
        disk: Where they are; only read.
        directories: At least two.
        sample: Messages of each replay set to list.
        in_use: Read a copy although a broker runs on it.
        progress: Called with each step.

    Raises:
        StoreError: a copy cannot be read, or is of another node.
    """
    progress("checking every byte")
    options = {"mode": "quarantine", "inUse": "read" if in_use else "refuse"}
    columns = ["directory", "segment", "file", "offset", "length", "damage"]
    checked: dict[str, CheckedCopy] = {}
    damage: list[DamagedPlace] = []
    # copies are opened one after the other, so that an unreadable copy is named before the others are read
    for directory in directories:
        try:
            records = read_journal(spark, [directory], "records", columns, (), **options)
        except JournalCorrupt as error:
            # the first record of an epoch or a header: which segments are the log is not known
            checked[directory] = CheckedCopy(directory, 0, 0, 0, 1)
            damage.append(DamagedPlace(directory, error.file, error.offset, 0, bare_message(error)))
            continue
        checked[directory], places = _check(records, directory)
        damage += places
    comparison = compare(disk, directories, sample=sample, progress=progress)
    return Verdict(comparison, tuple(checked.values()), tuple(damage))


def _check(records: DataFrame, directory: str) -> tuple[CheckedCopy, list[DamagedPlace]]:
    bad = F.col("damage").isNotNull()
    counts = records.agg(
        F.countDistinct("segment").alias("segments"),
        F.count_if(~bad).alias("records"),
        F.coalesce(F.sum(F.when(~bad, F.col("length"))), F.lit(0)).alias("record_bytes"),
        F.count_if(bad).alias("damaged"),
    ).first()
    assert counts is not None, "an aggregate without groups has one row"
    rows = records.where(bad).orderBy("segment", "offset").limit(LISTED_MAX).collect() if counts["damaged"] else []
    copy = CheckedCopy(directory, counts["segments"], counts["records"], counts["record_bytes"], counts["damaged"])
    return copy, [DamagedPlace(directory, r["file"], r["offset"], r["length"], r["damage"]) for r in rows]
