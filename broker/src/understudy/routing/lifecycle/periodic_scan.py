"""Something that is looked for now and then: expired messages, queues that are not needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.ports import Timer, Timers

#: Pause before the rest, in which others have their turn.
_SOON_MS: Final = 10


class PeriodicScan:
    """Calls once per period, counted from the end of the last call; sooner when that says True,
    because there was more to do than may be done at once.
    """

    __slots__ = ("_call", "_period_ms", "_timer", "_timers")

    def __init__(self, timers: Timers, period_ms: int, call: Callable[[], bool | None]) -> None:
        """Begin without a scan; with a period below one there is none."""
        self._timers = timers
        self._period_ms = period_ms
        self._call = call
        self._timer: Timer | None = None
        self._arm()

    def _arm(self) -> None:
        if self._period_ms > 0:
            self._timer = self._timers.call_later(self._period_ms, self._fire)

    def _fire(self) -> None:
        if self._call() and self._period_ms > _SOON_MS:
            self._timer = self._timers.call_later(_SOON_MS, self._fire)
        else:
            self._arm()

    def close(self) -> None:
        """Stop scanning."""
        self._period_ms = -1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
