"""Snapshots of job ``consolidate`` are those of the broker's consolidator, and a broker starts from them.

Method: histories of the store's harness, with transactions, large messages, removed queues, settings, restarts
(epochs), consolidation and torn tails. The snapshot of the job is compared with the one that ``SnapshotBuilder`` makes
at the same position: everything in it, and byte for byte where the order of queues is the same, which the format leaves
open. The new store is then recovered as a broker does, and compared with a model that replays every operation.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.copies import act, restart, write_out
from tests.support.seeds import seeds
from tests.support.snapshots import broker_snapshot, canonical, read
from tests.support.store import StoreHarness
from tests.support.store_model import contents_of, order_of

from understudy.errors import ConfigError
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal.log_plan import parse_options, plan_logs
from understudy.spark.state.consolidations import Segments, Settings, consolidate
from understudy.store.log.reading.follower import Follower
from understudy.tools.log_copy import CopyState, LogCopy

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_IDS = 5


@dataclass
class History:
    """A store and the contents by its model."""

    store: Path
    contents: dict[str, Any]


def some_history(seed: int, directory: Path) -> History:
    """A store; every third has a torn tail after its last record."""
    stream = random.Random(seed)
    rig = StoreHarness(
        stream,
        id_cache_size=_IDS,
        compact_segments_min=stream.choice((0, 2, 2, 3)),
        compact_percent=75,
        with_large=seed % 3 == 0,
        with_settings=True,
    )
    rig.activate("a")
    act(rig, stream.choice((200, 400)))
    for _ in range(stream.randrange(3)):
        rig.prepared = {}
        restart(rig)
        act(rig, stream.choice((0, 50, 150)))
    contents = rig.model.contents()
    store = write_out(rig, directory)
    if seed % 3 == 1:
        tear(store, stream)
    return History(store, contents)


def tear(store: Path, stream: random.Random) -> None:
    """Bytes of a record that was not written whole, after the last one."""
    last = LogCopy(RealDisk(), str(store)).extents[-1]
    with (store / last.name).open("r+b") as file:
        file.seek(last.end)
        file.write(stream.randbytes(100))


def inventory(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for root, _, names in os.walk(directory):
        for name in names:
            path = Path(root, name)
            found[str(path)] = (path.stat().st_mtime_ns, path.stat().st_nlink, path.read_bytes())
    return found


def recovered(store: Path) -> dict[str, Any]:
    follower = Follower(RealDisk(), str(store), id_cache_size=_IDS)
    follower.finish()
    assert not follower.rejected
    contents = contents_of(follower.state)
    follower.close()
    return contents | {"order": order_of(contents)}


@pytest.mark.parametrize(
    "seed", [*seeds(10, 3), *(pytest.param(seed, marks=pytest.mark.long) for seed in seeds(7, 4, 12, 15))]
)
def test_a_snapshot_is_that_of_the_broker(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    history = some_history(seed, tmp_path / "store")
    before = inventory(history.store)
    plan = plan_logs(parse_options({"path": str(history.store)}))[0]
    output = tmp_path / "all"
    report = consolidate(spark, str(history.store), output, Settings(Segments.ALL, id_cache_size=_IDS))
    made = output / "journal" / report.snapshot
    header, _ = read(made)
    (tmp_path / "broker").mkdir()
    own = broker_snapshot(
        history.store, tmp_path / "broker", header.number, plan.snapshot, header.created_ms, id_cache_size=_IDS
    )
    assert canonical(made) == canonical(own)
    assert made.name == own.name
    assert made.stat().st_size == own.stat().st_size
    assert inventory(history.store) == before
    expected = history.contents | {"order": order_of(history.contents)}
    assert recovered(history.store) == expected
    assert recovered(output / "journal") == expected
    assert report.references == sum(each.count for each in read(made)[1].references.values())


def test_a_broker_starts_from_the_needed_segments(spark: SparkSession, tmp_path: Path) -> None:
    history = some_history(9, tmp_path / "store")
    output = tmp_path / "needed"
    report = consolidate(spark, str(history.store), output, Settings(id_cache_size=_IDS))
    journal = output / "journal"
    assert recovered(journal) == history.contents | {"order": order_of(history.contents)}
    assert LogCopy(RealDisk(), str(journal), full=True).state in (CopyState.WHOLE, CopyState.CUT)
    assert report.segments_copied <= report.segments
    assert not (tmp_path / ".needed.new").exists()


def test_a_snapshot_is_byte_for_byte_that_of_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    # in this history every queue gets its first live message before the next one does, so that no order is left open
    history = some_history(218, tmp_path / "store")
    plan = plan_logs(parse_options({"path": str(history.store)}))[0]
    output = tmp_path / "all"
    report = consolidate(spark, str(history.store), output, Settings(Segments.ALL, id_cache_size=_IDS))
    made = output / "journal" / report.snapshot
    header, _ = read(made)
    (tmp_path / "broker").mkdir()
    own = broker_snapshot(
        history.store, tmp_path / "broker", header.number, plan.snapshot, header.created_ms, id_cache_size=_IDS
    )
    orders = [list(read(path)[1].references) for path in (made, own)]
    assert orders[0] == orders[1], "another seed is needed: the order of the queues is left open in this history"
    assert len(orders[0]) > 3
    assert made.read_bytes() == own.read_bytes()


@pytest.mark.long
def test_a_snapshot_alone_serves_a_copy_of_the_store(spark: SparkSession, tmp_path: Path) -> None:
    history = some_history(8, tmp_path / "store")
    output = tmp_path / "alone"
    report = consolidate(spark, str(history.store), output, Settings(Segments.NONE, id_cache_size=_IDS))
    (made,) = (output / "journal").iterdir()
    assert made.name == report.snapshot
    shutil.copytree(history.store, tmp_path / "copy")
    shutil.copy(made, tmp_path / "copy")
    assert recovered(tmp_path / "copy") == history.contents | {"order": order_of(history.contents)}


def test_an_output_that_cannot_be_made_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    history = some_history(0, tmp_path / "store")
    before = inventory(history.store)
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").write_text("x")
    for place, text in (
        (taken, "is not empty"),
        (history.store / "inside", "only read"),
        (tmp_path / "missing" / "below", "is no directory"),
    ):
        with pytest.raises(ConfigError, match=text):
            consolidate(spark, str(history.store), place)
    assert inventory(history.store) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "taken"]


def test_a_log_of_one_segment_has_nothing_to_consolidate(spark: SparkSession, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(1))
    rig.activate("a")
    act(rig, 3)
    with pytest.raises(ConfigError, match="no segment of the log is finished"):
        consolidate(spark, str(write_out(rig, tmp_path / "store")), tmp_path / "new")
    assert not (tmp_path / "new").exists()
