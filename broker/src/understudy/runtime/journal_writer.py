"""Where writes and syncs are waited for: briefly on the loop, or in a thread for longer.

Implements ``ports.LogWriter``. A batch that is small, while nothing else is being written and the disk has been quick
of late, is written and synced at once: two changes of thread cost a client that waits for its confirmation more than
the sync of a good disk. Everything else goes to one daemon thread, by a queue there and ``call_soon_threadsafe`` back,
one hop each way per batch and nothing per message, and the next batch collects meanwhile. Either way ``done`` is
called later, on the loop's thread, and never before the sync has returned. The thread is a daemon because a hung disk
must not keep a process from ending that has decided to stop. ADR 0015.

Invariants: a batch is written at once only when the thread has nothing to do, so the order of jobs holds; a failed
write or sync is given to ``done`` and not tried again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from understudy.ports import File
from understudy.runtime.critical_analyzer import CriticalPath

_Done = Callable[[BaseException | None], None]

Soon = Callable[..., object]
"""Calls on the loop's own thread, not now but before the loop waits for anything: ``Turn.soon``."""

#: Larger batches are for the thread: while they are written the loop can do as much work again.
AT_ONCE_BYTES_MAX: Final = 32 * 1024
#: The loop may stand still so long; a disk that was slower has to prove itself in the thread first.
AT_ONCE_NS_MAX: Final = 5_000_000
#: Weight of the past against one quick write; a slow one counts in full.
_PAST: Final = 7


class ThreadLogWriter:
    """Writes and syncs batches, on the loop while that is fast, else on a thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, soon: Soon | None = None, path: CriticalPath | None = None
    ) -> None:
        """Starts the thread.

        Args:
            loop: Where every ``done`` is called.
            soon: Calls ``done`` of what was written on the loop's own thread; None: nothing is.
            path: Says since when a job has been under way.
        """
        self._path = path or CriticalPath("a writer of the store")
        self._loop = loop
        self._queue: SimpleQueue[tuple[Callable[[], None], _Done] | None] = SimpleQueue()
        self._closed = False
        self._soon = soon
        self._under_way = 0
        """Jobs whose end has not been told yet."""
        self._batch_ns = AT_ONCE_NS_MAX + 1
        """What a batch has taken of late; unknown counts as slow. Either thread sets it, never both at a time."""
        threading.Thread(target=self._serve, name="journal-writer", daemon=True).start()

    def submit(self, file: File, offset: int, buffers: Sequence[bytes], done: _Done) -> None:
        assert not self._closed, "log writer used after close"
        if (
            self._soon is not None
            and not self._under_way
            and self._batch_ns <= AT_ONCE_NS_MAX
            and sum(map(len, buffers)) <= AT_ONCE_BYTES_MAX
        ):
            self._under_way += 1
            self._soon(self._end, done, self._write(file, offset, buffers))
            return

        def work() -> None:
            error = self._write(file, offset, buffers)
            if error is not None:
                raise error

        self.run(work, done)

    def _write(self, file: File, offset: int, buffers: Sequence[bytes]) -> BaseException | None:
        began_ns = self._path.since_ns = time.monotonic_ns()
        try:
            file.write(offset, buffers)
            file.sync()
        except BaseException as failure:  # ``done`` decides what it means
            return failure
        finally:
            self._path.since_ns = 0
        took_ns = time.monotonic_ns() - began_ns
        self._batch_ns = max(took_ns, (_PAST * self._batch_ns + took_ns) // (_PAST + 1))
        return None

    def run(self, work: Callable[[], None], done: _Done) -> None:
        assert not self._closed, "log writer used after close"
        self._under_way += 1
        self._queue.put((work, done))

    def close(self) -> None:
        self._closed = True
        self._queue.put(None)

    def _end(self, done: _Done, error: BaseException | None) -> None:
        self._under_way -= 1
        done(error)

    def _serve(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            work, done = job
            error: BaseException | None = None
            self._path.since_ns = time.monotonic_ns()
            try:
                work()
            except BaseException as failure:  # the loop's thread decides what it means
                error = failure
            self._path.since_ns = 0
            del work, job
            try:
                self._loop.call_soon_threadsafe(self._end, done, error)
            except RuntimeError:
                # the loop is closed: no caller is left
                return
