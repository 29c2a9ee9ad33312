"""Clocks that disagree, timers and seeded entropy: the smaller ports of one simulated process."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from understudy.dataclass import dataclass
from understudy.ports import Timer
from understudy.testing.sim.loop import SimLoop

#: Wall time at the start of every run: 2026-01-01 UTC, in milliseconds.
WALL_START_MS: Final = 1_767_225_600_000


@dataclass(slots=True)
class Skew:
    """Offset of a host's clocks; the wall clock may be set during a run."""

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

    def wall_ns(self) -> int:
        """Wall time, epoch nanoseconds."""
        return self.wall_ms() * 1_000_000

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
