"""Executes the operations that a replica receives: small batches on the loop while the disk is fast, else on a thread.

Two changes of thread delay the answer to the active node, and with it the client, by more than the sync of a fast disk
takes (as in ``runtime.base.journal_writer``). Both classes implement
``store.replication.replica_log.Runner``.

Invariant: one job at a time is given to it, so the order of jobs holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from understudy.ports import Executor, Worker
from understudy.runtime.base.journal_writer import AT_ONCE_BYTES_MAX, AT_ONCE_NS_MAX
from understudy.runtime.process.critical_analyzer import CriticalPath

_Done = Callable[[BaseException | None], None]

#: Weight of the past against one quick job; a slow one counts in full.
_PAST: Final = 7


class WorkerRunner:
    """Runs everything on a thread. Implements ``Runner``."""

    def __init__(self, worker: Worker) -> None:
        """``worker``: has the thread."""
        self.run = worker.run

    def run_batch(self, work: Callable[[], None], done: _Done, size_bytes: int) -> None:
        self.run(work, done)


class ReplicaRunner:
    """Runner of the steps of one replica. Implements ``Runner``."""

    def __init__(
        self,
        worker: Worker,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        path: CriticalPath,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """
        Args:
            worker: Runs the jobs that are not run on the loop.
            loop: Where ``done`` of the others is called,
            executor: and by what.
            path: Says since when a job has been under way.
            now_ns: Measures the jobs.
        """
        self._worker = worker
        self._loop = loop
        self._executor = executor
        self._path = path
        self._now_ns = now_ns
        self._took_ns = AT_ONCE_NS_MAX + 1
        """Moving average of recent batches; starts above the limit, so that the first one uses the thread."""

    def run(self, work: Callable[[], None], done: _Done) -> None:

        def watched() -> None:
            self._watched(work)

        self._worker.run(watched, done)

    def run_batch(self, work: Callable[[], None], done: _Done, size_bytes: int) -> None:
        if self._took_ns > AT_ONCE_NS_MAX or size_bytes > AT_ONCE_BYTES_MAX:
            self._worker.run(lambda: self._measured(work), done)
            return
        error: BaseException | None = None
        try:
            self._measured(work)
        except BaseException as failure:  # ``done`` handles the error
            error = failure
        # not within the turn in which the batch was received: the loop would stay awake after it, as that of an active
        # node does after a sync, and the next batch comes only after the answer has travelled to the client
        self._loop.call_soon(self._executor.completed, done, error)

    def _watched(self, work: Callable[[], None]) -> int:
        """Execute the work and return the time at which it began."""
        began_ns = self._path.since_ns = self._now_ns()
        try:
            work()
        finally:
            self._path.since_ns = 0
        return began_ns

    def _measured(self, work: Callable[[], None]) -> None:
        began_ns = self._watched(work)
        took_ns = self._now_ns() - began_ns
        self._took_ns = max(took_ns, (_PAST * self._took_ns + took_ns) // (_PAST + 1))
