"""The silence of a replica, as its active node measures it (ADR 0060)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.ports import Clock, Timer, Timers

#: Checks within the limit.
CHECKS: Final = 8


class SilenceWatch:
    """Calls when a replica was silent for too long: its host or the network has failed without closing anything."""

    def __init__(self, limit_ms: int, clock: Clock, timers: Timers, lost: Callable[[int], None]) -> None:
        """Begin without a watched connection.

        Args:
            limit_ms: Longest silence; 0 and less: no limit.
            clock: Measures whether the checks are in time.
            lost: Called with the silence in milliseconds, once per ``begin``.
        """
        self._limit_ms = limit_ms
        self._period_ms = max(1, limit_ms // CHECKS)
        self._clock = clock
        self._timers = timers
        self._lost = lost
        self._timer: Timer | None = None
        self._checked_ms = self._awake_since_ms = 0
        """Time in ms at which the last check was; since when the checks have been in time."""

    def begin(self, silent_ms: Callable[[], int]) -> None:
        """Watch a connection for silence."""
        self.end()
        if self._limit_ms > 0:
            self._checked_ms = self._awake_since_ms = self._clock.monotonic_ms()
            self._check(silent_ms)

    def _check(self, silent_ms: Callable[[], int]) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms > 2 * self._period_ms:
            # this process was stopped or busy, so that it could not receive: this is no silence of the replica
            self._awake_since_ms = now_ms
        self._checked_ms = now_ms
        found_ms = min(silent_ms(), now_ms - self._awake_since_ms)
        if found_ms > self._limit_ms:
            self._lost(found_ms)
        else:
            self._timer = self._timers.call_later(self._period_ms, lambda: self._check(silent_ms))

    def end(self) -> None:
        """End the watch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
