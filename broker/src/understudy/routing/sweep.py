"""Something that is looked for now and then: expired messages, queues that nobody needs."""

from __future__ import annotations

from collections.abc import Callable

from understudy.ports import Timer, Timers


class Sweep:
    """Calls once per period, counted from the end of the last call."""

    __slots__ = ("_call", "_period_ms", "_timer", "_timers")

    def __init__(self, timers: Timers, period_ms: int, call: Callable[[], None]) -> None:
        """A period below one means never."""
        self._timers = timers
        self._period_ms = period_ms
        self._call = call
        self._timer: Timer | None = None
        self._arm()

    def _arm(self) -> None:
        if self._period_ms > 0:
            self._timer = self._timers.call_later(self._period_ms, self._fire)

    def _fire(self) -> None:
        self._call()
        self._arm()

    def close(self) -> None:
        """No further calls."""
        self._period_ms = -1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
