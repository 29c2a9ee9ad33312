"""The storage server of a simulated cluster and the ports it gives to each node's process.

One ``SimVolume`` (``sim_disk``), which every host mounts as an owner of its own. ``ProcessDisk``
stands between a process and its host's mount. It adds the properties of the process and not of the
medium: no effect after death, every change in the trace, and the crash in the middle: an armed
``CrashPoint`` kills the process at one of its next operations, before or after it took effect, so
that code which does ten disk calls in a row without yielding is cut at each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeVar

from understudy.dataclass import dataclass
from understudy.ports import (
    Disk,
    Executor,
    Fence,
    File,
    FileLock,
    HoldableLogWriter,
    LogWriter,
    Operation,
    OperationApplier,
    Space,
    Timer,
    Timers,
    Worker,
)
from understudy.runtime.base.environment import Environment
from understudy.store.log.operations import is_batch
from understudy.store.log.reading.follower import recover
from understudy.store.state import StoreState
from understudy.testing.sim.broken_disk import BrokenDisk
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.environment import SimClock, SimEntropy, SimTimers, Skew
from understudy.testing.sim.loop import Death, ProcessKilled, SimLoop, SimProcess
from understudy.testing.sim.syncs import sync_each
from understudy.testing.sim.writer import SimLogWriter, SimWorker

T = TypeVar("T")

_CAPACITY_BYTES: Final = 1 << 40


@dataclass(slots=True)
class StorageConditions:
    """Parameters of the storage; may be changed during a run."""

    step_ms_max: int = 2
    """Longest write or sync."""


class CrashPoint:
    """Kills or stops a process at one of its next disk operations."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream
        self._countdown = 0
        self._crash: Callable[[], None] | None = None
        self._counts: Callable[[str], bool] | None = None
        self._pause: Callable[[], None] | None = None
        self._until_pause = 0
        self.disk = BrokenDisk()
        """Fails operations of the process instead."""

    def arm(self, operations: int, crash: Callable[[], None], counts: Callable[[str], bool] | None = None) -> None:
        """Call ``crash``, which must kill the process, at the ``operations``-th operation from now.

        Args:
            counts: Called with the text of each operation: whether it is one of those.
        """
        self._countdown, self._crash, self._counts = operations, crash, counts

    def pause(self, operations: int, pause: Callable[[], None]) -> None:
        """Call ``pause`` before the ``operations``-th operation from now; the operation is carried out."""
        self._pause, self._until_pause = pause, operations

    def disarm(self) -> None:
        """Cancel the crash and the pause."""
        self._crash = self._pause = None

    def around(self, event: str, operation: Callable[[], T]) -> T:
        """Execute one operation of the disk, unless the crash point kills the process before it."""
        if self._pause is not None:
            self._until_pause -= 1
            if self._until_pause <= 0:
                pause, self._pause = self._pause, None
                pause()
        if self._crash is None or (self._counts is not None and not self._counts(event)):
            return operation()
        self._countdown -= 1
        if self._countdown > 0:
            return operation()
        if self._stream.random() < 0.5:
            operation()
        crash, self._crash = self._crash, None
        crash()
        raise ProcessKilled("at a disk operation")


class ProcessDisk:
    """Disk of one process, which kills the process at an armed crash point. Implements ``ports.Disk``."""

    def __init__(self, inner: Disk, process: SimProcess, loop: SimLoop, crash_point: CrashPoint) -> None:
        self._inner = inner
        self._process = process
        self._loop = loop
        self._crash_point = crash_point

    def change(self, event: str, operation: Callable[[], T]) -> T:
        """Carry out an operation that changes the medium."""
        self._process.check_alive()
        self.note(event)
        self._crash_point.disk.check(event)
        return self._crash_point.around(event, operation)

    def note(self, event: str) -> None:
        """Put an event into the trace."""
        self._loop.record(f"{self._process.label} disk {event}")

    def look(self) -> Disk:
        """The mount, for an operation that changes nothing."""
        self._process.check_alive()
        self._crash_point.disk.check("read")
        return self._inner

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if create:
            return ProcessFile(self.change(f"create {path}", lambda: self._inner.open(path, create=True)), self)
        return ProcessFile(self.look().open(path, read_only=read_only), self)

    def list(self, directory: str) -> list[str]:
        return self.look().list(directory)

    def exists(self, path: str) -> bool:
        return self.look().exists(path)

    def make_directory(self, path: str) -> None:
        self.change(f"make-directory {path}", lambda: self._inner.make_directory(path))

    def rename(self, source: str, target: str) -> None:
        self.change(f"rename {source} {target}", lambda: self._inner.rename(source, target))

    def link(self, source: str, target: str) -> None:
        self.change(f"link {source} {target}", lambda: self._inner.link(source, target))

    def remove(self, path: str) -> None:
        self.change(f"remove {path}", lambda: self._inner.remove(path))

    def remove_directory(self, path: str) -> None:
        self.change(f"remove-directory {path}", lambda: self._inner.remove_directory(path))

    def sync_directory(self, path: str) -> None:
        self.change(f"sync-directory {path}", lambda: self._inner.sync_directory(path))

    sync_files = staticmethod(sync_each)

    def within(self, directory: str) -> AbstractContextManager[Disk]:
        return nullcontext(self)

    def space(self, path: str) -> Space:
        return self.look().space(path)

    def modified_ns(self, path: str) -> int:
        return self.look().modified_ns(path)

    def touch(self, path: str) -> None:
        self.change(f"touch {path}", lambda: self._inner.touch(path))


class ProcessFile:
    """File of one process. Implements ``ports.File``."""

    __slots__ = ("_disk", "_inner", "path")

    def __init__(self, inner: File, disk: ProcessDisk) -> None:
        self.path = inner.path
        self._inner = inner
        self._disk = disk

    def size(self) -> int:
        self._disk.look()
        return self._inner.size()

    def read(self, offset: int, length: int) -> bytes:
        self._disk.look()
        return self._inner.read(offset, length)

    def forget_cached(self, offset: int, length: int) -> None:
        self._disk.look()
        self._inner.forget_cached(offset, length)

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        self._disk.look()
        return self._inner.data_ranges(offset)

    def write(self, offset: int, buffers: Sequence[bytes]) -> None:
        length = sum(map(len, buffers))
        self._disk.change(f"write {self.path} {offset}+{length}", lambda: self._inner.write(offset, buffers))

    def allocate(self, length: int) -> None:
        self._disk.change(f"allocate {self.path} {length}", lambda: self._inner.allocate(length))

    def truncate(self, length: int) -> None:
        self._disk.change(f"truncate {self.path} {length}", lambda: self._inner.truncate(length))

    def links(self) -> int:
        self._disk.look()
        return self._inner.links()

    def begin_sync(self, offset: int, length: int) -> None:
        self._disk.look()
        self._inner.begin_sync(offset, length)

    def sync(self) -> None:
        self._disk.change(f"sync {self.path}", self._inner.sync)

    def close(self) -> None:
        # also for files that the interpreter drops after the end of the process: its kernel closes them as well
        self._inner.close()


class ProcessLock:
    """File lock of one process. Implements ``ports.FileLock``."""

    def __init__(self, inner: FileLock, path: str, disk: ProcessDisk) -> None:
        self._inner = inner
        self._path = path
        self._disk = disk
        self._held = False

    def try_acquire(self) -> bool:
        self._disk.look()
        taken = self._inner.try_acquire()
        if taken and not self._held:
            self._disk.note(f"lock {self._path}")
        self._held = taken
        return taken

    def release(self) -> None:
        self._disk.look()
        if self._held:
            self._disk.note(f"unlock {self._path}")
        self._held = False
        self._inner.release()

    def verify(self) -> bool:
        self._disk.look()
        return self._inner.verify()


class ObservedLogWriter:
    """A node's log writer that reports every end that the node learns of to an observer.

    Implements ``ports.HoldableLogWriter``.
    """

    def __init__(
        self,
        inner: LogWriter,
        loop: SimLoop,
        executor: Executor,
        fence: Fence,
        heard: Callable[[float], None],
    ) -> None:
        """
        Args:
            inner: Does the work.
            fence: Asked at the end of each batch.
            heard: Called when the medium had finished a batch, right after the node was.
        """
        self._inner = inner
        self._loop = loop
        self._executor = executor
        self._fence = fence
        self._heard = heard
        self._held: list[Callable[[], None]] | None = None

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held, None
        for begin in held or ():
            begin()

    def _begin(self, begin: Callable[[], None]) -> None:
        if self._held is None:
            begin()
        else:
            self._held.append(begin)

    def submit(self, operations: Sequence[Operation], done: Callable[[BaseException | None], None]) -> None:
        if not is_batch(operations):
            self._begin(lambda: self._inner.submit(operations, lambda error: self._executor.completed(done, error)))
            return

        def finished(error: BaseException | None) -> None:
            finished_s = self._loop.time()
            self._executor.completed(self._end, done, error)
            if error is None:
                self._heard(finished_s)

        self._begin(lambda: self._inner.submit(operations, finished))

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._begin(lambda: self._inner.run(work, lambda error: self._executor.completed(done, error)))

    def _end(self, done: Callable[[BaseException | None], None], error: BaseException | None) -> None:
        done(self._fence.why_not_confirm() if error is None else error)

    def close(self) -> None:
        self.release()
        self._inner.close()


class ObservedWorker:
    """A node's worker whose ends are called by the executor of the node."""

    def __init__(self, inner: Worker, executor: Executor) -> None:
        """Args:
        inner: Does the work.
        """
        self._inner = inner
        self._executor = executor

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Call ``work``, then have the executor call ``done``."""
        self._inner.run(work, lambda error: self._executor.completed(done, error))

    def close(self) -> None:
        """Accept no further work."""
        self._inner.close()


class _StorageTimers:
    """Makes the steps of a log writer take as long as the storage's conditions say."""

    def __init__(self, timers: Timers, conditions: StorageConditions, stream: random.Random) -> None:
        self._timers = timers
        self._conditions = conditions
        self._stream = stream

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._timers.call_later(self._stream.randint(0, self._conditions.step_ms_max), callback)


class SharedStorage:
    """The storage server of one simulated pair: its volume, locks and ports."""

    def __init__(self, loop: SimLoop, conditions: StorageConditions) -> None:
        self.conditions = conditions
        self.volume = SimVolume(_CAPACITY_BYTES)
        self._loop = loop
        self._faults = loop.random("storage")

    def environment(
        self, process: SimProcess, skew: Skew, crash_point: CrashPoint, heard: Callable[[float], None]
    ) -> Environment:
        """Environment of one process of a node: disk, clock, network and entropy.

        Args:
            heard: Called when the medium had finished a batch, right after the node has heard of it.
        """
        loop = self._loop
        clock, timers = SimClock(loop, skew), SimTimers(loop, skew)
        disk = ProcessDisk(self.volume.disk(process.host), process, loop, crash_point)
        stream = loop.random(f"log writer {process.label}")
        steps = _StorageTimers(timers, self.conditions, stream)

        def log_writer(executor: Executor, applier: OperationApplier, fence: Fence) -> HoldableLogWriter:
            return ObservedLogWriter(self.make_log_writer(steps, stream, applier), loop, executor, fence, heard)

        def worker(executor: Executor) -> Worker:
            return ObservedWorker(SimWorker(timers, loop.random(f"worker {process.label}")), executor)

        return Environment(
            clock=clock,
            timers=timers,
            entropy=SimEntropy(loop.random(f"entropy {process.label}")),
            disk=disk,
            log_writer=log_writer,
            file_lock=lambda path: self.make_lock(process, path, disk),
            worker=worker,
            lookups=worker,
        )

    def make_log_writer(self, timers: Timers, stream: random.Random, applier: OperationApplier) -> LogWriter:
        """The log writer of one activation. Tests plant bugs here."""
        return SimLogWriter(timers, stream, applier)

    def make_lock(self, process: SimProcess, path: str, disk: ProcessDisk) -> FileLock:
        """The lock of a path for a process. Tests plant bugs here."""
        return ProcessLock(self.volume.lock(path, process.host), path, disk)

    def process_died(self, process: SimProcess, death: Death) -> None:
        """Keep written data, as the kernel of the process does, or drop unsynced data after a power loss."""
        if death is Death.POWER_LOST:
            self.volume.power_loss(self._faults, process.host)
        else:
            self.volume.crash_process(process.host)

    def expire_leases(self, host: str) -> None:
        """The storage server releases the locks of a host whose lease has expired."""
        for path in [path for path, lock in self.volume.locks.items() if lock.owner == host]:
            self._loop.record(f"lease of {host} on {path} expired")
            self.volume.revoke_lock(path)

    def fill(self) -> None:
        """Take away all free space but a little."""
        self.volume.capacity_bytes = self.volume.used_bytes() + 4096

    def free(self) -> None:
        """Give the reserved space of the volume back."""
        self.volume.capacity_bytes = _CAPACITY_BYTES

    def log_state(self, directory: str, *, quarantine: bool = False) -> StoreState:
        """The state in the log, read as a starting node reads it; no other node may be writing.

        Args:
            quarantine: Pass over damaged records, whether or not they were set aside.

        Raises:
            StoreError: it cannot be read.
        """
        follower = recover(self.volume.disk("auditor"), directory, quarantine=quarantine)
        follower.close()
        return follower.state
