"""The one thread that waits for the disk, so that the loop never does.

Implements ``ports.LogWriter``: a queue into a daemon thread, ``call_soon_threadsafe`` back. One
hop each way per batch, nothing per message. Daemon, because a hung disk must not keep a process
from ending that has decided to stop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from understudy.ports import File

#: Seconds after which a busy thread lets another one have the interpreter.
_SWITCH_INTERVAL_S: Final = 0.0002

_Done = Callable[[BaseException | None], None]


def let_the_writer_in() -> None:
    """Have the loop's thread give way to the writer at once, for the whole process; called once, at its start.

    The writer needs the interpreter for microseconds after each write and each sync. By default a busy loop keeps it
    waiting for 5 ms each time, many times what the disk took.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


class ThreadLogWriter:
    """See the module's text."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the thread.

        Args:
            loop: Where every ``done`` is called.
        """
        self._loop = loop
        self._queue: SimpleQueue[tuple[Callable[[], None], _Done] | None] = SimpleQueue()
        self._closed = False
        threading.Thread(target=self._serve, name="journal-writer", daemon=True).start()

    def submit(self, file: File, offset: int, buffers: Sequence[bytes], done: _Done) -> None:
        def work() -> None:
            file.write(offset, buffers)
            file.sync()

        self.run(work, done)

    def run(self, work: Callable[[], None], done: _Done) -> None:
        assert not self._closed, "log writer used after close"
        self._queue.put((work, done))

    def close(self) -> None:
        self._closed = True
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
            except BaseException as failure:  # the loop's thread decides what it means
                error = failure
            del work, job
            try:
                self._loop.call_soon_threadsafe(done, error)
            except RuntimeError:
                # the loop is closed: nobody is left to be told
                return
