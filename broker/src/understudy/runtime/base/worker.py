"""Threads for slow computations, such as password hashes, and for lookups at directories of users.

Implements ``ports.Worker``. The threads start with the first piece of work, so a broker without security has none, and
are daemons, so that they do not keep a process from exiting. The exit waits a short time for computations under way:
the libraries that they use take their memory down then, and a thread that went on in them would end the process with a
segmentation fault.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from understudy.ports import Executor
from understudy.runtime.base.logs import inheriting

_Done = Callable[[BaseException | None], None]
#: Longest wait of the exit of the process for computations, in seconds; a password hash takes some 0.1 s.
EXIT_WAIT_S: Final = 2.0


class _Running:
    """The jobs that all workers of the process carry out at present."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._exiting = False

    def begin(self) -> bool:
        """Whether a job may begin; not once the process exits."""
        with self._changed:
            if self._exiting:
                return False
            self._count += 1
            return True

    def end(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until no job is under way, at most ``EXIT_WAIT_S``; none begins from now on."""
        with self._changed:
            self._exiting = True
            self._changed.wait_for(lambda: self._count == 0, EXIT_WAIT_S)


_running = _Running()
atexit.register(_running.wait)


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
            if not _running.begin():
                return
            work, done = job
            error: BaseException | None = None
            try:
                work()
            except BaseException as failure:  # the caller handles the error
                error = failure
            finally:
                _running.end()
            del work, job
            try:
                self._loop.call_soon_threadsafe(self._executor.completed, done, error)
            except RuntimeError:
                # the loop is closed: there is no caller any more
                return
