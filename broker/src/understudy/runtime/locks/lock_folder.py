"""Lock manager over a directory that both nodes reach (artemis-ha s. 4.1, ``FileBasedLockManager``).

The lock of an id is a lock on the whole file ``<locks-folder>/<id>``, its number the file ``<locks-folder>/ML:<id>``:
eight bytes, a big-endian signed number; a missing or empty file is 0. A number is changed under a lock of its own
file. The directory must be on a file system whose locks are kept by a server, such as NFSv4; a local one serves nodes
of one host. File calls run on a thread of their own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from understudy.errors import BrokerError, DiskFailed, LockLost, LockManagerUnavailable
from understudy.ha.locks.distributed_lock import Finished, Held, ManagerListener, Read
from understudy.ha.shared.lock_proof import LockProof
from understudy.ports import Clock, Disk, Executor, FileLock, Timer, Timers
from understudy.runtime.base.worker import ThreadWorker

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_NUMBER: Final = struct.Struct(">q")
#: Interval in ms at which a held lock is verified without a confirmation that asks for it.
CHECK_MS: Final = 1_000
#: Age of the last check with an answer from which the file server is late.
LATE_MS: Final = 2 * CHECK_MS
#: Attempts to lock the file of a number, and the pause between two.
_NUMBER_TRIES: Final = 100
_NUMBER_PAUSE_S: Final = 0.02


class _Answering:
    """A request without an answer so far. Implements ``ha.locks.distributed_lock.Request``."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """End the request without an answer."""
        self.cancelled = True


class FolderLockManager:
    """Access of one node to the directory of locks. Implements ``ha.locks.distributed_lock.LockManager``."""

    def __init__(
        self,
        folder: str,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        *,
        disk: Disk,
        file_lock: Callable[[str], FileLock],
        clock: Clock,
        timers: Timers,
    ) -> None:
        """Begin in the state before ``start``.

        Args:
            folder: Absolute path; it must exist.
            loop: Used for the answers,
            executor: and what calls them.
            disk: Reads and writes the numbers.
            file_lock: Makes the lock of a path.
            clock: Boot time.
            timers: Used for the checks of held locks.
        """
        self.folder = folder
        self.disk = disk
        self.file_lock = file_lock
        self.clock = clock
        self.timers = timers
        self._loop = loop
        self._executor = executor
        self._worker: ThreadWorker | None = None
        self._locks: dict[str, FolderLock] = {}

    @property
    def name(self) -> str:
        """Provider and directory, for messages."""
        return f"file {self.folder}"

    def start(self, listener: ManagerListener) -> None:
        self.stop()
        # a single thread executes requests in order
        worker = self._worker = ThreadWorker(self._loop, self._executor, 1)

        def looked(error: BaseException | None) -> None:
            if worker is not self._worker:
                return
            if error is None:
                listener.available()
            else:
                listener.unavailable(self.no_answer(error))

        worker.run(self._look, looked)

    def _look(self) -> None:
        if not os.path.isdir(self.folder):
            raise DiskFailed("locks-folder is not a directory that exists")

    def stop(self) -> None:
        worker, self._worker = self._worker, None
        locks, self._locks = self._locks, {}
        for lock in locks.values():
            release = lock.give_up()
            if worker is not None:
                worker.run(release, lambda error: None)
        if worker is not None:
            worker.close()

    def lock(self, lock_id: str) -> FolderLock:
        found = self._locks.get(lock_id)
        if found is None:
            found = self._locks[lock_id] = FolderLock(self, lock_id, self.path(lock_id))
        return found

    def number(self, number_id: str) -> FolderNumber:
        return FolderNumber(self, self.path(f"ML:{number_id}"))

    def path(self, name: str) -> str:
        """Path of a file in the directory. Raises DiskFailed: the name leads out of it."""
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise DiskFailed(f"{self.folder}: {name!r} is no name of a file")
        return f"{self.folder}/{name}"

    def no_answer(self, error: BaseException) -> LockManagerUnavailable:
        """The error of a request that could not be carried out."""
        return LockManagerUnavailable(f"{self.name}: {error}")

    def run(self, work: Callable[[], _T], answer: Callable[[_T | BrokerError], None]) -> None:
        """Call ``work`` on the thread, and ``answer`` with its result or an error."""
        worker = self._worker
        result: list[_T] = []

        def done(error: BaseException | None) -> None:
            if worker is self._worker:
                answer(result[0] if error is None else self.no_answer(error))

        if worker is None:
            self.timers.call_later(0, partial(answer, LockManagerUnavailable(f"{self.name}: not started")))
        else:
            worker.run(lambda: result.append(work()), done)


class FolderLock:
    """A lock on a file. Implements ``ha.locks.distributed_lock.DistributedLock``."""

    def __init__(self, manager: FolderLockManager, lock_id: str, path: str) -> None:
        """Begin without holding the lock."""
        self._manager = manager
        self._name = f"lock {lock_id} of {manager.name}"
        self._file = manager.file_lock(path)
        self._held = False
        self._checked_ms = 0
        """Boot time of the request of the last check with an answer."""
        self._timer: Timer | None = None
        self._attempt: _Answering | None = None
        self.lost: Callable[[BrokerError], None] | None = None
        self.fence = LockProof(_HeldFile(self), manager.clock)
        self.fence.proved_until_ms = -1

    @property
    def late_from_ms(self) -> int:
        return self._checked_ms + LATE_MS

    def why_lost(self) -> str | None:
        """Reason for which the lock is not provably held, or None. Called on any thread."""
        if not self._held:
            return f"{self._name}: not held"
        return None if self._file.verify() else f"{self._name}: the lock of the file is not ours any more"

    def try_acquire(self, answer: Held) -> _Answering:
        assert not self._held, "release it first"
        attempt, sent_ms = _Answering(), self._manager.clock.monotonic_ms()
        self._attempt = attempt

        def tried(result: bool | BrokerError) -> None:
            if attempt.cancelled:
                if result is True and self._attempt is attempt:
                    self._manager.run(self._file.release, lambda released: None)
                return
            if result is True:
                # not proved by the attempt, whose answer may be old: the first confirmation asks
                self._held = True
                self._checked_ms = sent_ms
                self._check_later()
            answer(result)

        self._manager.run(self._file.try_acquire, tried)
        return attempt

    def verify(self, answer: Held) -> _Answering:
        request = _Answering()

        def looked(result: str | BrokerError | None) -> None:
            if not request.cancelled:
                answer(result if isinstance(result, BrokerError) else result is None)

        self._manager.run(self.why_lost, looked)
        return request

    def release(self, answer: Finished) -> None:
        self.give_up()
        self._manager.run(self._file.release, lambda result: answer(result))

    def give_up(self) -> Callable[[], None]:
        """Note that the lock is not held any more; returns the call that releases the file."""
        self._held = False
        self.fence.withdraw()
        self.fence.proved_until_ms = -1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self._file.release

    def _check_later(self) -> None:
        self._timer = self._manager.timers.call_later(CHECK_MS, self._check)

    def _check(self) -> None:
        self._timer = None
        self._manager.run(self.why_lost, partial(self._checked, self._manager.clock.monotonic_ms()))

    def _checked(self, sent_ms: int, reason: str | BrokerError | None) -> None:
        if not self._held:
            return
        if reason is None:
            self._checked_ms = sent_ms
        if reason is None or isinstance(reason, BrokerError):
            # without an answer the lock is not lost; nothing is confirmed meanwhile
            self._check_later()
            return
        self.give_up()
        if self.lost is not None:
            self.lost(LockLost(reason))


class _HeldFile:
    """Locked file whose lock can be proved. Implements ``ha.shared.lock_proof.ProvableLock``."""

    def __init__(self, lock: FolderLock) -> None:
        self._lock = lock

    def lost(self) -> str | None:
        return self._lock.why_lost()


class FolderNumber:
    """A number in a file. Implements ``ha.locks.distributed_lock.DistributedNumber``."""

    def __init__(self, manager: FolderLockManager, path: str) -> None:
        """Begin without reading the file."""
        self._manager = manager
        self._path = path

    def get(self, answer: Read) -> _Answering:
        return self._run(self._read, answer)

    def set(self, value: int, answer: Finished) -> _Answering:
        return self._run(partial(self._locked, partial(self._write, value)), answer)

    def compare_and_set(self, expected: int, value: int, answer: Held) -> _Answering:
        return self._run(partial(self._locked, partial(self._swap, expected, value)), answer)

    def _run(self, work: Callable[[], _T], answer: Callable[[_T | BrokerError], None]) -> _Answering:
        request = _Answering()

        def done(result: _T | BrokerError) -> None:
            if not request.cancelled:
                answer(result)

        self._manager.run(work, done)
        return request

    # --- on the thread -----------------------------------------------------------------------------

    def _read(self) -> int:
        try:
            file = self._manager.disk.open(self._path, read_only=True)
        except FileNotFoundError:
            return 0
        try:
            data = file.read(0, _NUMBER.size + 1)
        finally:
            file.close()
        if not data:
            return 0
        if len(data) != _NUMBER.size:
            raise DiskFailed(f"{self._path}: {len(data)} bytes instead of {_NUMBER.size}")
        value: int = _NUMBER.unpack(data)[0]
        return value

    def _write(self, value: int) -> None:
        file = self._manager.disk.open(self._path)
        try:
            file.write(0, [_NUMBER.pack(value)])
            file.sync()
        finally:
            file.close()
        self._manager.disk.sync_directory(self._manager.folder)

    def _swap(self, expected: int, value: int) -> bool:
        if self._read() != expected:
            return False
        self._write(value)
        return True

    def _locked(self, work: Callable[[], _T]) -> _T:
        """Carry out with the lock of the file, which acquiring creates."""
        lock = self._manager.file_lock(self._path)
        for _ in range(_NUMBER_TRIES):
            if lock.try_acquire():
                try:
                    return work()
                finally:
                    lock.release()
            time.sleep(_NUMBER_PAUSE_S)
        lock.release()
        raise DiskFailed(f"{self._path}: locked by another process")
