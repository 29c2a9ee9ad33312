"""The promise of a replica not to take over for a while, as the replica keeps it (ADR 0116).

An active node that cannot prove its lock in time asks its replica in sync for it. Until its end the replica requests
neither the lock nor the permission, whether the connection still exists or not. The time counts from the receipt of
the request, so it ends later than at the active node, which counts from before the sending and less a margin.

The first of a series of promises is noted in the file ``server.replica.promise`` of the lock directory before it is
given: the length of the longest one, eight bytes, big-endian. A process that finds the note at its start waits as long,
because the process before it may have given a promise directly before its end. The note is removed some time after the
last promise has ended.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.ha.locks.replaced_file import read_file, replace_file
from understudy.limits import PROMISE_MS_MAX
from understudy.ports import Clock, Disk, Timer, Timers, Worker

log = logging.getLogger(__name__)

FILE_NAME: Final = "server.replica.promise"
_LAYOUT: Final = struct.Struct(">q")
#: Time after the end of the last promise before the note about it is removed.
REMOVE_AFTER_MS: Final = 5_000

Given = Callable[[BaseException | None], None]
"""Called once: None, or the error because of which there is no promise."""


class GivenPromise:
    """The promise of one node as a replica. Its files are written on another thread, one change at a time."""

    def __init__(self, disk: Disk, directory: str, worker: Worker, clock: Clock, timers: Timers) -> None:
        """No promise is given; the start of the process is now.

        Args:
            worker: Carries out the writes.
            clock: Boot time.
            timers: Used for the removal of the note.
        """
        self._disk = disk
        self._directory = directory
        self._worker = worker
        self._clock = clock
        self._timers = timers
        self.path = f"{directory}/{FILE_NAME}"
        self._started_ms = clock.monotonic_ms()
        self._loaded = False
        self._until_ms = 0
        self._noted_ms = 0
        """Length of a promise that the file covers."""
        self._changing = False
        self._waiting: list[Callable[[], None]] = []
        """Calls for the end of the change under way."""
        self._timer: Timer | None = None

    def left_ms(self) -> int:
        """Milliseconds until the end of the promise; 0: none is given.

        Raises:
            DiskFailed: the note of the process before cannot be read.
        """
        if not self._loaded:
            self._load()
        return max(0, self._until_ms - self._clock.monotonic_ms() + 1) if self._until_ms else 0

    def _load(self) -> None:
        data = read_file(self._disk, self.path, _LAYOUT.size + 1)
        if data is not None:
            noted_ms = _LAYOUT.unpack(data)[0] if len(data) == _LAYOUT.size else 0
            if not 0 < noted_ms <= PROMISE_MS_MAX:
                log.warning("a damaged note of a promise: the longest one is kept", extra={"file": self.path})
                noted_ms = PROMISE_MS_MAX
            self._noted_ms = noted_ms
            self._until_ms = max(self._until_ms, self._started_ms + noted_ms)
            self._remove_later()
        self._loaded = True

    def give(self, duration_ms: int, given: Given) -> None:
        """Promise not to take over for so long from now on; ``given`` is called once that is durable.

        Raises:
            DiskFailed: the note of the process before cannot be read.
        """
        self.left_ms()
        # the promise is kept even if the note cannot be written
        self._until_ms = max(self._until_ms, self._clock.monotonic_ms() + duration_ms)
        self._remove_later()
        self._note(duration_ms, given)

    def _note(self, duration_ms: int, given: Given) -> None:
        if self._changing:
            self._waiting.append(partial(self._note, duration_ms, given))
        elif duration_ms <= self._noted_ms:
            given(None)
        else:
            work = partial(replace_file, self._disk, self._directory, FILE_NAME, _LAYOUT.pack(duration_ms))
            self._change(work, duration_ms, given)

    def void(self) -> None:
        """Called when the active node has stopped, and asks this one to take over."""
        self._until_ms = 0

    def close(self) -> None:
        """The node ends: the note stays, if a promise is still given."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _remove_later(self) -> None:
        self.close()
        delay_ms = self._until_ms - self._clock.monotonic_ms() + REMOVE_AFTER_MS
        self._timer = self._timers.call_later(max(delay_ms, 1), self._remove)

    def _remove(self) -> None:
        self._timer = None
        if self._changing:
            self._waiting.append(self._remove)
        elif self._noted_ms and self.left_ms() == 0:
            self._change(self._remove_file, 0, lambda error: None)

    def _remove_file(self) -> None:
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
            self._disk.sync_directory(self._directory)

    def _change(self, work: Callable[[], None], noted_ms: int, done: Given) -> None:
        self._changing = True

        def changed(error: BaseException | None) -> None:
            self._changing = False
            # after an error the file may be there or not, with the old length or the new one
            self._noted_ms = noted_ms if error is None else 0
            done(error)
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

        self._worker.run(work, changed)
