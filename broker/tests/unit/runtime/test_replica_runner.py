"""Goal: a replica executes small batches on the loop while its disk is fast, everything else on a thread, in order, and
reports each end later and once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from understudy.errors import DiskFailed
from understudy.runtime.base.journal_writer import AT_ONCE_BYTES_MAX, AT_ONCE_NS_MAX
from understudy.runtime.process.critical_analyzer import CriticalPath
from understudy.runtime.replica.runner import ReplicaRunner, WorkerRunner

Done = Callable[[BaseException | None], None]


class Rig:
    """A runner with a worker that works when asked to, and a clock that the jobs move."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.jobs: list[tuple[Callable[[], None], Done]] = []
        self.later: list[tuple[Done, BaseException | None]] = []
        self.path = CriticalPath("replica")
        self.runner = ReplicaRunner(self, self, self, self.path, lambda: self.now_ns)  # type: ignore[arg-type]
        self.ended: list[BaseException | None] = []

    def run(self, work: Callable[[], None], done: Done) -> None:
        self.jobs.append((work, done))

    def call_soon(self, completed: Callable[..., None], done: Done, error: BaseException | None) -> None:
        assert completed == self.completed
        self.later.append((done, error))

    def completed(self, done: Done, error: BaseException | None) -> None:
        done(error)

    def batch(self, took_ns: int, size_bytes: int = 100, error: Exception | None = None) -> str:
        """One batch to its end; where it was executed."""

        def work() -> None:
            assert self.path.since_ns
            self.now_ns += took_ns
            if error is not None:
                raise error

        self.runner.run_batch(work, self.ended.append, size_bytes)
        before = len(self.ended)
        place = "thread" if self.jobs else "loop"
        for made, done in self.jobs:
            made()
            done(None)
        for done, failure in self.later:
            done(failure)
        self.jobs, self.later = [], []
        assert self.path.since_ns == 0
        assert len(self.ended) == before + 1
        return place


def test_batches_are_executed_on_the_loop_once_the_disk_has_been_fast() -> None:
    rig = Rig()
    places = [rig.batch(100_000) for _ in range(5)]
    assert places[0] == "thread"
    assert places[-1] == "loop"


def test_a_slow_batch_sends_the_next_ones_to_the_thread() -> None:
    rig = Rig()
    for _ in range(5):
        rig.batch(100_000)
    assert rig.batch(3 * AT_ONCE_NS_MAX) == "loop"
    assert rig.batch(100_000) == "thread"


def test_large_batches_and_other_jobs_are_for_the_thread() -> None:
    rig = Rig()
    for _ in range(5):
        rig.batch(100_000)
    assert rig.batch(100_000, AT_ONCE_BYTES_MAX + 1) == "thread"
    rig.runner.run(lambda: None, rig.ended.append)
    assert len(rig.jobs) == 1


def test_an_error_on_the_loop_is_given_to_the_end() -> None:
    rig = Rig()
    for _ in range(5):
        rig.batch(100_000)
    error = DiskFailed("no")
    assert rig.batch(1, error=error) == "loop"
    assert rig.ended[-1] is error


def test_a_worker_alone_executes_everything_on_its_thread() -> None:
    rig = Rig()
    WorkerRunner(rig).run_batch(lambda: pytest.fail("on the loop"), rig.ended.append, 1)  # type: ignore[arg-type]
    assert len(rig.jobs) == 1
