"""Rows of the journal source are the records of the log, read one by one.

Goal: the same rows for every history, also after restarts, consolidation, torn tails and with any filter. Method:
histories of the store's harness are written out; the reader of the source is called without a running Spark.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.copies import act, restart, write_out
from tests.support.journals import plain_acknowledgements, plain_messages, plain_records, read_table
from tests.support.store import StoreHarness

from understudy.store.log.records import QueueRecord

pytestmark = pytest.mark.spark

RELAXED = settings(
    max_examples=20,
    deadline=None,
    # a failing example names its seed; making it smaller takes minutes
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


def history(seed: int, operations: int, restarts: int, directory: Path) -> str:
    """A store with some history, in a real directory."""
    stream = random.Random(seed)
    rig = StoreHarness(stream, compact_segments_min=stream.choice((0, 0, 2)), compact_percent=75, with_settings=True)
    rig.activate("a")
    act(rig, operations)
    for _ in range(restarts):
        restart(rig)
        act(rig, operations // 2)
    return str(write_out(rig, directory / "store"))


def picked(rows: list[dict[str, object]], like: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows with the columns of the reference only."""
    return [{name: row[name] for name in like[0]} for row in rows] if like else rows


@RELAXED
@given(seed=st.integers(0, 2**32), operations=st.integers(0, 400), restarts=st.integers(0, 2))
def test_tables_have_what_the_records_say(
    tmp_path_factory: pytest.TempPathFactory, seed: int, operations: int, restarts: int
) -> None:
    store = history(seed, operations, restarts, tmp_path_factory.mktemp("journal"))
    plain = list(plain_records(store))
    records = read_table(store, "records", partitionBytes=str(200_000))
    assert [(r["epoch"], r["sequence"], r["segment"], r["offset"], r["length"], r["type"]) for r in records] == [
        (p.epoch, p.frame.sequence, p.number, p.frame.offset, p.frame.length, p.frame.kind) for p in plain
    ]
    messages = plain_messages(store)
    columns = None if seed % 2 else list(messages[0]) if messages else None
    found = read_table(store, "messages", columns)
    assert picked([row | {"timestamp": row["timestamp"] and 1} for row in found], messages) == messages
    assert picked(read_table(store, "acknowledgements"), acks := plain_acknowledgements(store)) == acks
    names = {p.record.queue_id: p.record.name for p in plain if isinstance(p.record, QueueRecord)}
    if columns is None:
        assert all(row["queue"] == names[row["queue_id"]] for row in found if row["queue_id"] in names)
    bindings = read_table(store, "bindings")
    added = [row for row in bindings if row["kind"] == "queue" and row["source"] == "log" and not row["removed"]]
    assert [(row["id"], row["name"]) for row in added] == [
        (p.record.queue_id, p.record.name) for p in plain if isinstance(p.record, QueueRecord)
    ]


@RELAXED
@given(seed=st.integers(0, 2**32), data=st.data())
def test_conditions_drop_the_rows_that_do_not_satisfy_them(
    tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject
) -> None:
    store = history(seed, 250, seed % 3, tmp_path_factory.mktemp("journal"))
    everything = read_table(store, "messages", ["epoch", "sequence", "queue", "queue_id", "message_id", "body"])
    last = max((row["sequence"] for row in everything), default=1)
    low, high = sorted(data.draw(st.lists(st.integers(0, last), min_size=2, max_size=2)))
    queue = data.draw(st.sampled_from(sorted({row["queue"] or "" for row in everything}) or ["q"]))
    conditions = {
        "sequence": [("sequence", ">", low), ("sequence", "<=", high)],
        "epoch": [("epoch", "=", 1)],
        "queue": [("queue", "in", [queue, "none"])],
    }
    tests = {
        "sequence": lambda row: low < row["sequence"] <= high,
        "epoch": lambda row: row["epoch"] == 1,
        "queue": lambda row: row["queue"] == queue,
    }
    chosen = data.draw(st.sets(st.sampled_from(sorted(conditions)), min_size=1))
    where = [each for name in sorted(chosen) for each in conditions[name]]
    found = read_table(store, "messages", ["epoch", "sequence", "queue", "queue_id", "message_id", "body"], where)
    wanted = [row for row in everything if all(tests[name](row) for name in chosen)]
    assert found == wanted
    # the columns of conditions need not be read
    bodies = read_table(store, "messages", ["body"], where)
    assert [row["body"] for row in bodies] == [row["body"] for row in wanted]


@RELAXED
@given(seed=st.integers(0, 2**32), cut=st.floats(0, 1))
def test_a_torn_tail_ends_the_log_and_nothing_before_it(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cut: float
) -> None:
    """A write that was never synced: the bytes from somewhere in the last batch on are others."""
    store = history(seed, 60, 0, tmp_path_factory.mktemp("journal"))
    before = read_table(store, "records", ["segment", "offset", "length", "batch", "kind"])
    last = before[-1]
    if last["kind"] == "SEAL":
        return
    batch = [row for row in before if row["segment"] == last["segment"] and row["batch"] == last["batch"]]
    torn = batch[int(cut * (len(batch) - 1))]
    path = next(Path(store).glob(f"segment-{last['segment']:012d}-*.log"))
    content = bytearray(path.read_bytes())
    content[torn["offset"] + torn["length"] - 1] ^= 0x55
    path.write_bytes(content)
    kept = [row for row in before if (row["segment"], row["offset"]) < (torn["segment"], torn["offset"])]
    for mode in ("fail", "quarantine"):
        assert read_table(store, "records", ["segment", "offset", "length", "batch", "kind"], mode=mode) == kept
