"""Bounded waiting: repeat a question until the answer is good or the time is over.

The clock and the pause are arguments, so tests wait in no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

PAUSE_S = 0.2


@dataclass(frozen=True)
class Clock:
    """Monotonic seconds and a way to let them pass."""

    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Waited(Generic[Answer]):
    """How the waiting ended: the last answer, whether it was good, and how long it took."""

    answer: Answer
    met: bool
    elapsed_ms: int


def wait_until(
    ask: Callable[[], Answer],
    good: Callable[[Answer], bool],
    timeout_s: float,
    clock: Clock,
    hopeless: Callable[[Answer], bool] | None = None,
) -> Waited[Answer]:
    """Ask at least once, then until ``good``, until ``hopeless``, or until ``timeout_s`` is over."""
    started_s = clock.now_s()
    while True:
        answer = ask()
        elapsed_s = clock.now_s() - started_s
        met = good(answer)
        if met or elapsed_s >= timeout_s or (hopeless is not None and hopeless(answer)):
            return Waited(answer, met, round(elapsed_s * 1000))
        clock.pause(min(PAUSE_S, max(0.0, timeout_s - elapsed_s)))
