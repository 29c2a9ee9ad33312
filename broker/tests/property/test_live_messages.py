"""Live messages by Spark are those of the store's own replay.

Goal: equal sets for every history, with transactions, removed queues, restarts and consolidation. Method: dozens of
stores of the store's harness are one query; each is recovered by the broker's code.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.copies import act, restart, write_out
from tests.support.store import StoreHarness

from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal.live import live_references
from understudy.store.log.reading.follower import recover

pytestmark = pytest.mark.spark


def some_history(seed: int, directory: Path) -> str:
    """A store with transactions, and often with a snapshot in place of its beginning."""
    stream = random.Random(seed)
    rig = StoreHarness(
        stream, compact_segments_min=stream.choice((0, 2, 2, 3)), compact_percent=75, with_large=seed % 3 == 0
    )
    rig.activate("a")
    act(rig, stream.choice((30, 200, 400)))
    for _ in range(stream.randrange(3)):
        rig.prepared = {}
        restart(rig)
        act(rig, stream.choice((0, 50, 150)))
    return str(write_out(rig, directory))


def test_live_messages_are_those_that_the_broker_recovers(spark: SparkSession, tmp_path: Path) -> None:
    stores = [some_history(seed, tmp_path / str(seed)) for seed in range(12)]
    found = {(row[0], row[1], row[2]) for row in live_references(spark, stores, minPartitions="2").collect()}
    expected, with_snapshot = set(), 0
    for store in stores:
        follower = recover(RealDisk(), store)
        follower.close()
        with_snapshot += any(path.suffix == ".snap" for path in Path(store).iterdir())
        expected |= {
            (store, queue_id, reference.message_id)
            for queue_id, references in follower.state.references.items()
            for reference in references.references()
        }
    assert found == expected
    assert len(expected) > 200
    assert with_snapshot > 2
