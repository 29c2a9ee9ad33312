"""Writes and syncs of the log, on the loop while the disk is fast, else in a thread.

A small batch is written and synced on the loop if nothing else is being written and recent syncs were fast: two changes
of thread would delay the confirmation by more than the sync of a fast disk. Everything else goes to one daemon thread,
by a queue there and ``call_soon_threadsafe`` back: one change of thread each way per batch and none per message, and
the next batch collects meanwhile. Either way ``done`` is called later, on the loop's thread, and never before the sync
has returned. The end of a batch counts only if the fence permits it (``ports.Fence``): a node that has lost its lock
confirms nothing (ADR 0004). The thread is a daemon so that a hung disk cannot keep a process from ending. ADR 0015.

Invariants: a batch is written on the loop only when the thread has nothing to do, so the order of jobs holds; a failed
write or sync is given to ``done`` and not tried again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final

from understudy.ports import Executor, Fence, Operation, OperationApplier
from understudy.runtime.base.logs import inheriting
from understudy.runtime.process.critical_analyzer import CriticalPath
from understudy.store.durations import BOUNDS_NS, Durations
from understudy.store.log.operations import Append, is_batch

_Done = Callable[[BaseException | None], None]
_Job = tuple[Callable[[], None] | None, Sequence[Operation], _Done]
"""Work, or None and operations; then what to call at the end."""

_boot_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)

#: Larger batches are for the thread: while they are written the loop can do as much work again.
AT_ONCE_BYTES_MAX: Final = 32 * 1024
#: The loop may stand still so long; a disk that was slower has to prove itself in the thread first.
AT_ONCE_NS_MAX: Final = 5_000_000
#: Weight of the past against one quick write; a slow one counts in full.
_PAST: Final = 7


class ThreadLogWriter:
    """Writes and syncs batches, on the loop while that is fast, else on a thread.

    Implements ``ports.HoldableLogWriter``.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        applier: OperationApplier,
        path: CriticalPath | None = None,
        fence: Fence | None = None,
        times: Durations | None = None,
    ) -> None:
        """Start the thread of the writer.

        Args:
            loop: Loop on which ``done`` is called.
            executor: Calls ``done``.
            applier: Executes the operations.
            path: Says since when a job has been under way.
            fence: Its objection makes a batch a failed one; None: every batch counts.
            times: Counts the durations of writes with their sync.
        """
        self._path = path or CriticalPath("a writer of the store")
        self._loop = loop
        self._executor = executor
        self._applier = applier
        self._fence = fence
        self._times = times or Durations()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._held: list[_Job] | None = None
        """Jobs that wait for ``release``; None: they do not wait."""
        self._jobs = 0
        """Jobs whose ``done`` has not been called yet."""
        self._batch_ns = AT_ONCE_NS_MAX + 1
        """Moving average of recent batch times; starts above the limit, so that the first batch uses the thread. Either
        thread sets it, never both at a time."""
        threading.Thread(target=inheriting(self._serve), name="journal-writer", daemon=True).start()

    def submit(self, operations: Sequence[Operation], done: _Done) -> None:
        assert not self._closed, "log writer used after close"
        self._jobs += 1
        first = operations[0]
        if (
            self._jobs == 1
            and type(first) is Append
            and self._held is None
            and self._batch_ns <= AT_ONCE_NS_MAX
            and first.size_bytes <= AT_ONCE_BYTES_MAX
        ):
            self._executor.soon(self._end, done, self._write(operations), True)
        else:
            self._put((None, operations, done))

    def _write(self, operations: Sequence[Operation]) -> BaseException | None:
        """Execute a batch, on either thread, and measure it."""
        began_ns = self._path.since_ns = time.monotonic_ns()
        try:
            self._applier.apply(operations)
        except BaseException as failure:  # ``done`` handles the error
            return failure
        finally:
            self._path.since_ns = 0
        took_ns = time.monotonic_ns() - began_ns
        self._batch_ns = max(took_ns, (_PAST * self._batch_ns + took_ns) // (_PAST + 1))
        times = self._times
        times.counts[bisect_left(BOUNDS_NS, took_ns)] += 1
        times.total_ns += took_ns
        return None

    def run(self, work: Callable[[], None], done: _Done) -> None:
        assert not self._closed, "log writer used after close"
        self._jobs += 1
        self._put((work, (), done))

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held, None
        for job in held or ():
            self._queue.put(job)

    def _put(self, job: _Job) -> None:
        if self._held is None:
            self._queue.put(job)
        else:
            self._held.append(job)

    def close(self) -> None:
        self.release()
        self._closed = True
        self._queue.put(None)

    def _end(self, done: _Done, error: BaseException | None, confirms: bool) -> None:
        self._jobs -= 1
        fence = self._fence
        if error is None and confirms and fence is not None and _boot_ns() > fence.proved_until_ms * 1_000_000:
            error = fence.why_not_confirm()
        done(error)

    def _serve(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            work, operations, done = job
            confirms = work is None and is_batch(operations)
            error = self._write(operations) if confirms else self._execute(work, operations)
            del work, operations, job
            try:
                self._loop.call_soon_threadsafe(self._executor.completed, self._end, done, error, confirms)
            except RuntimeError:
                # the loop is closed: no caller is left
                return

    def _execute(self, work: Callable[[], None] | None, operations: Sequence[Operation]) -> BaseException | None:
        self._path.since_ns = time.monotonic_ns()
        try:
            if work is not None:
                work()
            else:
                self._applier.apply(operations)
        except BaseException as failure:  # the error is handled on the loop's thread
            return failure
        finally:
            self._path.since_ns = 0
        return None
