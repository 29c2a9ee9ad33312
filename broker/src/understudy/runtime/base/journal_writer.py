"""Writes and syncs of the log, on the loop while the disk is fast, else in a thread.

A small batch for which a client may wait is written and synced on the loop if nothing else is being written and recent
syncs were fast: two changes of thread would delay the confirmation by more than the sync of a fast disk. Another one
goes to the native thread of the kernel module, which writes, syncs and computes the digest without the interpreter and
reports the end by an eventfd (ADR 0197); without that module, and after other operations, it goes to a daemon thread,
by a queue there and ``call_soon_threadsafe`` back. Other operations always go to the daemon thread. The next batch
collects meanwhile.
``done`` is called later, on the loop's thread, and never before the sync has returned. The end of a batch counts only
if the fence permits it (``ports.Fence``): a node that has lost its lock confirms nothing (ADR 0004). The threads are
daemons so that a hung disk cannot keep a process from ending. ADR 0015.

Invariants: jobs are executed in the order in which they came, one at a time, but for those that make a segment or keep
the reserve: these are executed beside batches (``store.log.operations.is_beside_batches``). A failed write or sync is
given to ``done`` and not tried again, but for a write that met a full disk: the applier gives back the kept files and
writes once more. A file has no other owner while a batch is written to it, so its descriptor stays open.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple

from understudy.errors import DiskFull
from understudy.kernel.log import DONE, SYNC, WRITE, Outcome, batch_thread
from understudy.ports import BatchThread, BatchWrite, Executor, Fence, Operation, OperationApplier
from understudy.runtime.base.disk import RealFile
from understudy.runtime.base.logs import inheriting
from understudy.runtime.process.critical_analyzer import CriticalPath
from understudy.store.durations import BOUNDS_NS, Durations
from understudy.store.log.operations import Append, is_batch, is_beside_batches

_Done = Callable[[BaseException | None], None]


class _Job(NamedTuple):
    """A job of the daemon thread."""

    work: Callable[[], None] | None
    """Work; None: operations."""
    operations: Sequence[Operation]
    done: _Done
    beside: bool = False
    """Whether batches need not wait for it."""


class _Native(NamedTuple):
    """A batch that the native thread writes."""

    write: BatchWrite
    operations: Sequence[Operation]
    done: _Done


_boot_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
_DOING: Final = {WRITE: "cannot write", SYNC: "cannot sync"}

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
            fence: A check whose objection makes a batch a failed one; None: every batch counts.
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
        """Jobs whose ``done`` has not been called yet, without those beside batches."""
        self._batch_ns = AT_ONCE_NS_MAX + 1
        """Moving average of recent batch times; starts above the limit, so that the first batch uses the thread. Either
        thread sets it, never both at a time."""
        self._native: BatchThread | None = None
        """Thread for batches; None before the first one, and without the native kernel."""
        self._asked_native = False
        """Whether the native thread was asked for."""
        self._under_way: _Native | None = None
        """Batch of the native thread."""
        self._behind: list[_Job] = []
        """Jobs for the daemon thread that came after that batch."""
        threading.Thread(target=inheriting(self._serve), name="journal-writer", daemon=True).start()

    def submit(self, operations: Sequence[Operation], done: _Done) -> None:
        assert not self._closed, "log writer used after close"
        first = operations[0]
        if type(first) is not Append:
            beside = is_beside_batches(operations)
            self._jobs += not beside
            self._put(_Job(None, operations, done, beside))
            return
        self._jobs += 1
        if self._jobs > 1 or self._held is not None:
            self._put(_Job(None, operations, done))
            return
        try:
            write = self._applier.begin_batch(operations)
        except BaseException as failure:  # ``done`` handles the error
            self._executor.soon(self._end, done, failure, True)
            return
        at_once = first.hurries and self._batch_ns <= AT_ONCE_NS_MAX and first.size_bytes <= AT_ONCE_BYTES_MAX
        file = write.file if write is not None else None
        native = self._native if self._asked_native else self._native_thread()
        if write is None or native is None or type(file) is not RealFile:
            if at_once:
                self._executor.soon(self._end, done, self._write_on_loop(operations), True)
            else:
                self._put(_Job(None, operations, done))
            return
        self._path.loop_since_ns = time.monotonic_ns()
        if not at_once:
            self._under_way = _Native(write, operations, done)
            native.submit(file.descriptor, write.batch)
            return
        error, again = self._outcome(write, native.execute(file.descriptor, write.batch))
        if again:
            self._put(_Job(None, operations, done))
        else:
            self._executor.soon(self._end, done, error, True)

    def _native_thread(self) -> BatchThread | None:
        if not self._asked_native:
            self._asked_native = True
            self._native = batch_thread()
            if self._native is not None:
                self._loop.add_reader(self._native.fileno(), self._native_ended)
        return self._native

    def _native_ended(self) -> None:
        native, batch = self._native, self._under_way
        assert native is not None
        try:
            outcome = native.take()
            if outcome is None:
                return
            assert batch is not None
            error, again = self._outcome(batch.write, outcome)
        except BaseException as failure:  # ``done`` handles the error
            error, again = failure, False
        assert batch is not None
        self._under_way = None
        if again:
            self._queue.put(_Job(None, batch.operations, batch.done))
        for job in self._behind:
            self._queue.put(job)
        self._behind.clear()
        if self._closed:
            self._close_threads()
        if not again:
            self._executor.completed(self._end, batch.done, error, True)

    def _outcome(self, write: BatchWrite, outcome: Outcome) -> tuple[BaseException | None, bool]:
        """Take over how a batch ended.

        Returns:
            Its error, and whether the applier shall write it again because the disk is full.
        """
        self._path.loop_since_ns = 0
        failed, number, digest, skimmed, took_ns = outcome
        if failed == DONE:
            # ``_measured`` without the call
            self._batch_ns = max(took_ns, (_PAST * self._batch_ns + took_ns) // (_PAST + 1))
            times = self._times
            times.counts[bisect_left(BOUNDS_NS, took_ns)] += 1
            times.total_ns += took_ns
            write.end(write.batch, digest, skimmed, None)
            return None, False
        file = write.file
        assert isinstance(file, RealFile)
        error = file.failure(_DOING[failed], number)
        write.end(write.batch, digest, skimmed, error)
        return error, failed == WRITE and isinstance(error, DiskFull)

    def _write_on_loop(self, operations: Sequence[Operation]) -> BaseException | None:
        self._path.loop_since_ns = time.monotonic_ns()
        try:
            return self._write(operations)
        finally:
            self._path.loop_since_ns = 0

    def _write(self, operations: Sequence[Operation]) -> BaseException | None:
        """Execute a batch, on either thread, and measure it."""
        began_ns = time.monotonic_ns()
        try:
            self._applier.apply(operations)
        except BaseException as failure:  # ``done`` handles the error
            return failure
        self._measured(time.monotonic_ns() - began_ns)
        return None

    def _measured(self, took_ns: int) -> None:
        self._batch_ns = max(took_ns, (_PAST * self._batch_ns + took_ns) // (_PAST + 1))
        times = self._times
        times.counts[bisect_left(BOUNDS_NS, took_ns)] += 1
        times.total_ns += took_ns

    def run(self, work: Callable[[], None], done: _Done) -> None:
        assert not self._closed, "log writer used after close"
        self._jobs += 1
        self._put(_Job(work, (), done))

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held, None
        for job in held or ():
            self._put(job)

    def _put(self, job: _Job) -> None:
        if self._held is not None:
            self._held.append(job)
        elif self._under_way is not None and not job.beside:
            self._behind.append(job)
        else:
            self._queue.put(job)

    def close(self) -> None:
        self.release()
        self._closed = True
        if self._under_way is None:
            self._close_threads()

    def _close_threads(self) -> None:
        self._queue.put(None)
        native, self._native = self._native, None
        if native is not None:
            self._loop.remove_reader(native.fileno())
            native.close()

    def _end(self, done: _Done, error: BaseException | None, confirms: bool, beside: bool = False) -> None:
        self._jobs -= not beside
        fence = self._fence
        if error is None and confirms and fence is not None and _boot_ns() > fence.proved_until_ms * 1_000_000:
            error = fence.why_not_confirm()
        done(error)

    def _serve(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            work, operations, done, beside = job
            self._path.since_ns = time.monotonic_ns()
            confirms = work is None and is_batch(operations)
            error = self._write(operations) if confirms else self._execute(work, operations)
            self._path.since_ns = 0
            del work, operations, job
            try:
                self._loop.call_soon_threadsafe(self._executor.completed, self._end, done, error, confirms, beside)
            except RuntimeError:
                # the loop is closed: no caller is left
                return

    def _execute(self, work: Callable[[], None] | None, operations: Sequence[Operation]) -> BaseException | None:
        try:
            if work is not None:
                work()
            else:
                self._applier.apply(operations)
        except BaseException as failure:  # the error is handled on the loop's thread
            return failure
        return None
