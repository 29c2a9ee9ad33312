"""The ports of one simulated process: clocks that disagree, seeded entropy, a disk that fences the dead.

``ProcessDisk`` stands between a process and the storage its node uses. It adds what belongs to the
process, not to the medium: no effect after death, every operation in the trace, and the crash in
the middle: armed with a number of operations, it kills the process at that operation, before or
after it took effect, so that code which does ten disk calls in a row without yielding is cut at
each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from understudy.ports import Disk, File, Timer
from understudy.testing.sim_loop import ProcessKilled, SimLoop, SimProcess

#: Wall time at the start of every run: 2026-01-01 UTC, in milliseconds.
WALL_START_MS: Final = 1_767_225_600_000


@dataclass(frozen=True, slots=True)
class Skew:
    """How far a host's clocks are off."""

    wall_ms: int = 0
    """Added to wall time; may be negative."""
    boot_ms: int = 0
    """Reading of the monotonic clock at the start of the run."""
    rate: float = 1.0
    """Seconds its clocks and timers count per true second; a good crystal is off by 1e-5."""


class SimClock:
    """Implements ``ports.Clock`` with a host's skew."""

    def __init__(self, loop: SimLoop, skew: Skew) -> None:
        self._loop = loop
        self._skew = skew

    def wall_ms(self) -> int:
        return WALL_START_MS + self._skew.wall_ms + int(self._loop.time() * 1000 * self._skew.rate)

    def monotonic_ms(self) -> int:
        return self._skew.boot_ms + int(self._loop.time() * 1000 * self._skew.rate)


class SimTimers:
    """Implements ``ports.Timers`` by a host's clock."""

    def __init__(self, loop: SimLoop, skew: Skew) -> None:
        self._loop = loop
        self._skew = skew

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000 / self._skew.rate, callback)


class SimEntropy:
    """Implements ``ports.Entropy`` from the seed."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream

    def token(self, length_bytes: int) -> bytes:
        return self._stream.randbytes(length_bytes)


class CrashPoint:
    """Kills a process at one of its next disk operations."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream
        self._countdown: int | None = None
        self._crash: Callable[[], None] | None = None

    def arm(self, operations: int, crash: Callable[[], None]) -> None:
        """Call ``crash``, which must kill the process, at the ``operations``-th operation from now."""
        self._countdown, self._crash = operations, crash

    def disarm(self) -> None:
        self._countdown = self._crash = None

    def before(self) -> bool:
        """Count one operation; True when the crash comes right after it took effect."""
        if self._countdown is None:
            return False
        self._countdown -= 1
        if self._countdown > 0:
            return False
        if self._stream.random() < 0.5:
            self.crash()
        return True

    def crash(self) -> None:
        """Die now."""
        crash = self._crash
        self.disarm()
        if crash is not None:
            crash()
            raise ProcessKilled("at a disk operation")


class ProcessDisk:
    """Implements ``ports.Disk`` for one process; see the module's text."""

    def __init__(self, inner: Disk, process: SimProcess, loop: SimLoop, crash_point: CrashPoint) -> None:
        self._inner = inner
        self._process = process
        self._loop = loop
        self._crash_point = crash_point

    def effect(self, event: str, operation: Callable[[], object]) -> None:
        """Carry out an operation that changes the medium."""
        self._process.check_alive()
        dies_after = self._crash_point.before()
        operation()
        self._loop.record(f"{self._process.label} disk {event}")
        if dies_after:
            self._crash_point.crash()

    def check_alive(self) -> None:
        """Refuse the dead."""
        self._process.check_alive()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.check_alive()
        opened: list[File] = []

        def operation() -> None:
            opened.append(self._inner.open(path, create=create, read_only=read_only))

        if create:
            self.effect(f"create {path}", operation)
        else:
            operation()
        return ProcessFile(opened[0], self)

    def list(self, directory: str) -> list[str]:
        self.check_alive()
        return self._inner.list(directory)

    def exists(self, path: str) -> bool:
        self.check_alive()
        return self._inner.exists(path)

    def make_directory(self, path: str) -> None:
        self.effect(f"mkdir {path}", lambda: self._inner.make_directory(path))

    def rename(self, source: str, target: str) -> None:
        self.effect(f"rename {source} {target}", lambda: self._inner.rename(source, target))

    def remove(self, path: str) -> None:
        self.effect(f"remove {path}", lambda: self._inner.remove(path))

    def sync_directory(self, path: str) -> None:
        self.effect(f"sync-directory {path}", lambda: self._inner.sync_directory(path))

    def free_bytes(self, path: str) -> int:
        self.check_alive()
        return self._inner.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        self.check_alive()
        return self._inner.total_bytes(path)


class ProcessFile:
    """Implements ``ports.File`` for one process."""

    __slots__ = ("_disk", "inner")

    def __init__(self, inner: File, disk: ProcessDisk) -> None:
        self.inner = inner
        self._disk = disk

    @property
    def path(self) -> str:
        return self.inner.path

    def size(self) -> int:
        self._disk.check_alive()
        return self.inner.size()

    def read(self, offset: int, length: int) -> bytes:
        self._disk.check_alive()
        return self.inner.read(offset, length)

    def write(self, offset: int, buffers: Sequence[bytes]) -> None:
        length = sum(map(len, buffers))
        self._disk.effect(f"write {self.path} {offset}+{length}", lambda: self.inner.write(offset, buffers))

    def allocate(self, length: int) -> None:
        self._disk.effect(f"allocate {self.path} {length}", lambda: self.inner.allocate(length))

    def truncate(self, length: int) -> None:
        self._disk.effect(f"truncate {self.path} {length}", lambda: self.inner.truncate(length))

    def sync(self) -> None:
        self._disk.effect(f"sync {self.path}", self.inner.sync)

    def close(self) -> None:
        self.inner.close()
