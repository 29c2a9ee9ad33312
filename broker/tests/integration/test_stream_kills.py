"""A streaming query into Parquet whose driver and brokers are killed: every record of the log once, and no other.

Goal: after SIGKILLs of the whole query and of the active broker, the sink has each sequence of the log exactly once,
with the epoch and the type that the log has, and every message that was confirmed to its sender. The log is
consolidated all the time, so without the named reader records would be gone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.journals import plain_records
from tests.support.stream_job import StreamJob

from support.numbered_load import CONSOLIDATING, Load
from support.processes import Node, Pair
from support.replicated import ReplicatedPair, wait_in_sync
from understudy.message import Message
from understudy.store.log.records import RecordType, decode

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def jobs() -> Iterator[list[StreamJob]]:
    made: list[StreamJob] = []
    yield made
    for job in made:
        job.end()


def source_options(*nodes: Node) -> dict[str, str]:
    return {
        "table": "records",
        "columns": "epoch,sequence,kind,payload",
        "servers": ",".join(f"http://{node.host}:{node.http_port}" for node in nodes),
        "tokenFile": str(nodes[0].directory / "etc" / "management.token"),
        "reader": "stream",
        "maxBytesPerBatch": "1000000",
    }


def check(job: StreamJob, load: Load, journal: Path) -> None:
    """The rows against the sequences, the remaining log, and the confirmed messages."""
    rows = job.rows()
    counted = Counter(row["sequence"] for row in rows)
    assert set(counted) == set(range(min(counted), max(counted) + 1)), "records are missing"
    assert max(counted.values()) == 1, "records came twice"
    found = {row["sequence"]: (row["epoch"], row["kind"]) for row in rows}
    logged = list(plain_records(str(journal)))
    for each in (each for each in logged if each.frame.sequence in found):
        assert found[each.frame.sequence] == (each.epoch, RecordType(each.frame.kind).name)
    numbers: set[int] = set()
    for row in rows:
        if row["kind"] == "MESSAGE_ADD":
            record = decode(RecordType.MESSAGE_ADD, 0, row["payload"])
            properties = Message.decode(record.encoded).properties
            if "n" in properties:
                numbers.add(properties["n"])
    # the query began in the middle of the load
    wanted = {number for number in load.confirmed if number >= min(numbers)}
    assert wanted <= numbers
    assert len(wanted) > 300
    # the last run stops at the end that it found; its own commits come after that
    rest = {each.frame.kind for each in logged if each.frame.sequence > max(counted)}
    assert RecordType.MESSAGE_ADD not in rest, "it was not read to the end"


def test_kills_over_a_shared_store(tmp_path: Path, jobs: list[StreamJob]) -> None:
    stream = random.Random(20261123)
    pair = Pair(tmp_path, extra=CONSOLIDATING)
    load: Load | None = None
    try:
        pair.start()
        job = StreamJob(tmp_path, [pair.store / "journal"], source_options(pair.primary, pair.backup))
        jobs.append(job)
        load = Load(pair.url)
        job.start()
        job.wait_batches(2)
        job.kill()
        job.start()
        job.wait_batches(2)
        pair.primary.kill()
        pair.backup.wait_ready("active")
        job.wait_batches(2 + stream.randrange(4))
        # both at once
        pair.backup.kill()
        job.kill()
        pair.primary.start().wait_ready("active")
        pair.backup.start().wait_ready("passive")
        load.stop()
        job.drained()
        assert pair.primary.terminate() == 0
        check(job, load, pair.store / "journal")
        assert {row["epoch"] for row in job.rows()} == {1, 2, 3}
    finally:
        pair.end()
        if load is not None:
            load.give_up()


def test_kills_over_replication(
    tmp_path: Path, make_pair: Callable[..., ReplicatedPair], jobs: list[StreamJob]
) -> None:
    pair = make_pair(extra=CONSOLIDATING).start()
    copies = [node.directory / "data" / "journal" for node in (pair.primary, pair.backup)]
    job = StreamJob(tmp_path, copies, source_options(pair.primary, pair.backup))
    jobs.append(job)
    load = Load(pair.url)
    try:
        job.start()
        job.wait_batches(2)
        job.kill()
        job.start()
        job.wait_batches(2)
        pair.primary.kill()
        pair.backup.wait_ready("active")
        job.wait_batches(3)
        # the former primary copies the log of the other one while the query runs
        pair.primary.start()
        wait_in_sync(pair.backup, pair.primary, 1)
        job.wait_batches(2)
        job.kill()
        load.stop()
        job.drained()
        assert pair.primary.terminate() == 0
        assert pair.backup.terminate() == 0
        check(job, load, copies[1])
        assert len({row["epoch"] for row in job.rows()}) == 2
    finally:
        load.give_up()
