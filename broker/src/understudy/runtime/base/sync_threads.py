"""Syncs of several files at the same time.

Each sync ends with a request to the medium to empty its cache. Requests that come at the same time are one for the
medium, those of one thread come one after the other; so a few threads share the files of a group.

The threads are daemons and belong to the process: a disk that hangs keeps neither the process from ending nor a group
on another disk from being synced, because the caller's thread takes files of its group as well.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from understudy.errors import DiskFailed, StoreError
from understudy.ports import File
from understudy.runtime.base.logs import inheriting

#: Syncs of one group at a time, with that of the caller's thread. With 8 a group of 16 files takes as long as with 16.
SYNCS_MAX: Final = 8


class _Threads:
    """Threads that execute calls; each is started when it is needed first."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._starting = threading.Lock()
        self._started = 0

    def execute(self, call: Callable[[], None], times: int) -> None:
        """Execute a call on so many threads."""
        with self._starting:
            while self._started < times:
                self._started += 1
                threading.Thread(target=inheriting(self._serve), name="sync", daemon=True).start()
        for _ in range(times):
            self._calls.put(call)

    def _serve(self) -> None:
        while True:
            self._calls.get()()


_THREADS: Final = _Threads()


def sync_together(files: Sequence[File]) -> Sequence[StoreError | None]:
    """Sync files and wait for all of them.

    Returns:
        The error of each file; None: it is synced.
    """
    errors: list[StoreError | None] = [None] * len(files)
    left = deque(range(len(files)))
    ended = threading.Semaphore(0)

    def sync_those_left() -> None:
        while True:
            try:
                index = left.popleft()
            except IndexError:
                return
            try:
                files[index].sync()
            except StoreError as error:
                errors[index] = error
            except BaseException as error:  # the thread serves other groups, too
                errors[index] = DiskFailed(f"cannot sync {files[index].path}: {error!r}")
            finally:
                ended.release()

    helpers = min(len(files), SYNCS_MAX) - 1
    if helpers > 0:
        _THREADS.execute(sync_those_left, helpers)
    sync_those_left()
    for _ in files:
        ended.acquire()
    return errors
