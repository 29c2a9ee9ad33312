"""A stream of a live queue into Parquet whose driver and brokers are killed: nothing lost, and once by id.

Goal: after SIGKILLs of the whole query at random moments, and of the active broker while a batch is held, the sink
has every message that was confirmed to its sender, and exactly one for each ``id`` after ``dropDuplicates``, as
docs/use/pipeline.md says. A failover alone doubles nothing.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.stream_job import StreamJob

from support.nodes import Nodes
from support.processes import Node, Pair
from understudy.client import sync

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


class Load:
    """Sends numbered messages until it is stopped."""

    def __init__(self, url: str, pause_s: float = 0.03) -> None:
        self.confirmed: list[int] = []
        self._url, self._pause_s = url, pause_s
        self._enough = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with sync.connect(self._url) as connection, connection.session() as session:
                producer = session.producer("numbers")
                number = 0
                while not self._enough.wait(self._pause_s):
                    producer.send(f"number {number}", properties={"n": number})
                    self.confirmed.append(number)
                    number += 1
        except BaseException as failure:
            self._failure = failure

    def stop(self) -> None:
        self._enough.set()
        self._thread.join(120)
        assert self._failure is None, self._failure


@pytest.fixture
def pair(nodes: Nodes) -> Pair:
    made = nodes.pair().start()
    with sync.connect(made.url) as connection, connection.session() as session:
        session.create_queue("numbers")
    return made


def stream_job(directory: Path, pair: Pair) -> StreamJob:
    options = {"url": pair.url, "queue": "numbers", "maxMessages": "200", "columns": "id,message_id,text"}
    return StreamJob(directory, [], options, source="understudy.queue")


def texts_by_id(job: StreamJob) -> tuple[dict[str, str], int]:
    """The sink without duplicates, and how many there were."""
    rows = job.rows()
    found = {row["id"]: row["text"] for row in rows}
    assert all(found[row["id"]] == row["text"] for row in rows), "one id has two contents"
    return found, len(rows) - len(found)


def check(job: StreamJob, load: Load, node: Node) -> int:
    """Everything confirmed is there once; the number of copies that were dropped by id."""
    found, copies = texts_by_id(job)
    counted = Counter(found.values())
    missing = [number for number in load.confirmed if f"number {number}" not in counted]
    assert not missing, f"lost: {missing[:10]}"
    assert max(counted.values()) == 1
    # a send that was repeated after a failover has its duplicate id, and there is no other sender
    assert len(counted) == len(load.confirmed)
    facts = node.queue("numbers")
    assert facts is not None
    assert facts["message_count"] == 0
    return copies


def test_drivers_that_are_killed_lose_nothing(pair: Pair, tmp_path: Path) -> None:
    stream = random.Random(20261124)
    job = stream_job(tmp_path, pair)
    load = Load(pair.url)
    try:
        for _ in range(5):
            job.start()
            job.wait_batches(1)
            # nothing to wait for: the driver dies at any moment of its work
            time.sleep(stream.uniform(0, 1.5))
            job.kill()
        load.stop()
        job.drained()
        copies = check(job, load, pair.primary)
        # at most the batch that was held at each kill
        assert copies <= 5 * 200
    finally:
        load._enough.set()
        job.end()


def test_a_failover_between_a_batch_and_its_commit_doubles_nothing(pair: Pair, tmp_path: Path) -> None:
    stream = random.Random(20261125)
    job = stream_job(tmp_path, pair)
    load = Load(pair.url)
    try:
        job.start()
        job.wait_batches(2)
        for _ in range(3):
            planned = len(list((job.checkpoint / "offsets").glob("[0-9]*")))
            deadline = time.monotonic() + 60
            # a batch is planned, and its commit is still to come
            while len(list((job.checkpoint / "offsets").glob("[0-9]*"))) == planned:
                assert time.monotonic() < deadline, job.tail()
                time.sleep(stream.uniform(0, 0.01))
            pair.primary.kill()
            pair.backup.wait_ready("active")
            # the primary takes the store back, which is another failover
            pair.primary.start().wait_ready("active")
            pair.backup.wait_ready("passive")
            job.wait_batches(2)
        load.stop()
        job.wait_batches(2)
        deadline = time.monotonic() + 120
        while (facts := pair.primary.queue("numbers")) is None or facts["message_count"]:
            assert time.monotonic() < deadline, (facts, job.tail())
            time.sleep(0.1)
        assert check(job, load, pair.primary) == 0
    finally:
        load._enough.set()
        job.end()
