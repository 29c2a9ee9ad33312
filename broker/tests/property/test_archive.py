"""The archive has exactly the confirmed messages of the journals, each once.

Goal: equal to records read one by one, for histories with transactions, restarts, consolidation, large messages, torn
tails and copies that diverged, archived several times while they go on; and to the model of the store's harness where
nothing was dropped. Method: several stores of the harness, all of one node id, are archived together, so that their ids
collide as those of diverged copies do.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.support.archives import Key, archived_rows, check_rows, encoded_of, expected_messages
from tests.support.copies import act, live, restart, write_out
from tests.support.journals import plain_records, read_table
from tests.support.store import NODE_ID, StoreHarness

from understudy.spark.archive.archives import Settings, archive

pytestmark = pytest.mark.spark


class Going:
    """A store whose history goes on, and copies of it at several times."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.seed = seed
        self.directory = directory
        self.stream = random.Random(seed)
        self.compacts = seed % 2 == 1
        self.rig = StoreHarness(
            self.stream, compact_segments_min=2 * self.compacts, compact_percent=75, with_large=seed % 3 == 0
        )
        self.rig.activate("a")
        self.copies = 0
        self.whole = True
        """No segment has left the log yet: every record is in the next copy."""

    def copy(self, operations: int) -> str:
        """Some more operations, sometimes after a restart, and a copy of the store."""
        if self.copies and self.stream.random() < 0.6:
            self.rig.prepared = {}
            restart(self.rig)
        act(self.rig, operations)
        self.copies += 1
        store = str(write_out(self.rig, self.directory / f"{self.seed}-{self.copies}"))
        self.whole = self.whole and not self.compacts and next(plain_records(store)).frame.sequence == 1
        return store

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


def tear(store: str, stream: random.Random) -> None:
    """Other bytes in a record of the last batch, which was never synced."""
    rows = read_table(store, "records", ["segment", "offset", "length", "batch", "kind"])
    last = rows[-1]
    if last["kind"] == "SEAL":
        return
    batch = [row for row in rows if row["segment"] == last["segment"] and row["batch"] == last["batch"]]
    # without its EPOCH record a segment is damaged, not torn
    torn = stream.choice([row for row in batch if row["kind"] != "EPOCH"] or [None])
    if torn is None:
        return
    path = next(Path(store).glob(f"segment-{last['segment']:012d}-*.log"))
    content = bytearray(path.read_bytes())
    content[torn["offset"] + torn["length"] - 1] ^= 0x55
    path.write_bytes(content)


def options(stores: list[str], **more: int) -> Settings:
    """Bodies of large messages lie in the stores here."""
    large = tuple(f"{store}/large" for store in stores if Path(store, "large").is_dir())
    return Settings(large_directories=large, **more)


def check_growing_archives(spark: SparkSession, directory: Path, seeds: list[int], operations: int) -> tuple[int, int]:
    """Files that were merged, and messages that only a copy of the consolidator showed."""
    merged = 0
    rigs = [Going(seed, directory) for seed in seeds]
    output = directory / "archive"
    stores: list[str] = []
    for turn in range(3):
        copies = [rig.copy(operations) for rig in rigs]
        if turn == 1:
            for rig, copy in zip(rigs, copies, strict=True):
                tear(copy, rig.stream)
        stores += copies
        # the run before was of other directories: an archive keeps the messages that its journals have lost since
        read = copies if turn else stores
        report = archive(spark, read, output, options(stores, compact_files=turn, file_bytes=40_000))
        merged += report.files_merged
        rows = archived_rows(output)
        expected = expected_messages(stores)
        check_rows(rows, expected)
        now = expected_messages(read)
        assert (report.rows, report.archived + report.known) == (len(rows), len(now.confirmed))
        assert report.unconfirmed == len(now.unconfirmed)
        keys = {(row["node_id"], row["message_id"], encoded_of(row)) for row in rows}
        for rig in rigs if turn != 1 else ():
            # a torn copy lacks the last messages
            alive = {message_id for _, message_id in live(rig.rig.model)}
            assert {key for key in rig.confirmed() if key[1] in alive} <= keys
            assert not rig.whole or rig.confirmed() <= keys
        assert keys <= set().union(*(rig.confirmed() for rig in rigs))
    again = archive(spark, stores, output, options(stores, compact_files=0, keep_ms=0))
    assert (again.archived, again.changed, again.rows) == (0, False, report.rows)
    published = {(output / "data").resolve().name} if report.rows else set()
    assert {path.name for path in (output / "generations").iterdir()} == published
    return merged, sum(row["moved"] for row in rows)


def test_an_archive_grows_with_its_journals(spark: SparkSession, tmp_path: Path) -> None:
    merged, moved = check_growing_archives(spark, tmp_path, list(range(8, 16)), 120)
    assert merged > 0
    assert moved > 0


@pytest.mark.long
@settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)  # fmt: skip
@given(
    seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=6, unique=True),
    operations=st.integers(0, 250),
)
def test_archives_of_any_histories(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seeds: list[int], operations: int
) -> None:
    check_growing_archives(spark, tmp_path_factory.mktemp("archive"), seeds, operations)
