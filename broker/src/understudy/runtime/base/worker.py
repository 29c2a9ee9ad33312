"""Threads for slow computations, such as password hashes, and for lookups at directories of users.

Implements ``ports.Worker``. The threads start with the first piece of work, so a broker without
security has none, and are daemons, so that they do not keep a process from exiting.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from understudy.ports import Executor
from understudy.runtime.base.logs import inheriting

_Done = Callable[[BaseException | None], None]


def worker_threads() -> int:
    """One thread for each processor, at most four: hashing releases the interpreter lock, and the kernel schedules the
    loop, which mostly waits, in between.
    """
    return min(4, os.cpu_count() or 1)


class ThreadWorker:
    """A few daemon threads for computations that would block the loop. Implements ``ports.Worker``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor, threads: int | None = None) -> None:
        """Args:
        loop: Where every ``done`` is called,
        executor: and by what.
        threads: Number of threads; by default ``worker_threads()``.
        """
        self._loop = loop
        self._executor = executor
        self._threads = threads if threads is not None else worker_threads()
        self._queue: SimpleQueue[tuple[Callable[[], None], _Done] | None] = SimpleQueue()
        self._started = 0

    def run(self, work: Callable[[], None], done: _Done) -> None:
        if self._started < self._threads:
            self._started += 1
            threading.Thread(target=inheriting(self._serve), name=f"worker-{self._started}", daemon=True).start()
        self._queue.put((work, done))

    def close(self) -> None:
        for _ in range(self._started):
            self._queue.put(None)

    def _serve(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            work, done = job
            error: BaseException | None = None
            try:
                work()
            except BaseException as failure:  # the caller handles the error
                error = failure
            del work, job
            try:
                self._loop.call_soon_threadsafe(self._executor.completed, done, error)
            except RuntimeError:
                # the loop is closed: there is no caller any more
                return
