"""A clock and timers moved by hand, for unit tests: no sleep, no loop."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class ManualTimer:
    """One call that ``ManualTime`` will make."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Remove the pending call."""
        self.callback = None


class ManualTime:
    """Implements ``ports.Clock`` and ``ports.Timers``; time passes only in ``advance``."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        """Args:
        wall_ms: Wall time, epoch milliseconds, when the monotonic clock is 0.
        monotonic_ms: Present monotonic time.
        """
        self.now_ms = monotonic_ms
        """Monotonic time. A test that sets it moves both clocks and calls nothing, as if the process had stopped."""
        self._wall_ms = wall_ms
        self._order = itertools.count()
        self._pending: list[tuple[int, int, ManualTimer]] = []

    def wall_ns(self) -> int:
        """Wall time, epoch nanoseconds."""
        return self.wall_ms() * 1_000_000

    def wall_ms(self) -> int:
        """Wall time, epoch milliseconds."""
        return self._wall_ms + self.now_ms

    def monotonic_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return self.now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> ManualTimer:
        """Call ``callback`` once ``delay_ms`` milliseconds have passed."""
        timer = ManualTimer(callback)
        heapq.heappush(self._pending, (self.now_ms + delay_ms, next(self._order), timer))
        return timer

    def advance(self, duration_ms: int) -> None:
        """Let that much time pass, calling what falls due, in order."""
        until_ms = self.now_ms + duration_ms
        while self._pending and self._pending[0][0] <= until_ms:
            due_ms, _, timer = heapq.heappop(self._pending)
            self.now_ms = max(self.now_ms, due_ms)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self.now_ms = until_ms

    def step_wall(self, by_ms: int) -> None:
        """Set the wall clock forward or back; the monotonic clock and pending calls are not affected."""
        self._wall_ms += by_ms

    def stop_process(self, duration_ms: int) -> None:
        """Let that much time pass without a call; those that fall due come at the next ``advance``."""
        self.now_ms += duration_ms

    def pending(self) -> int:
        """Calls still to come."""
        return sum(timer.callback is not None for _, _, timer in self._pending)
