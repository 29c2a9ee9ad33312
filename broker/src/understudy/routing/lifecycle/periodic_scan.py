"""Something that is looked for now and then: expired messages, queues that are not needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from understudy.ports import Timer, Timers

_END: Final = object()
#: Pause between two steps, for other work.
_PAUSE_MS: Final = 1


class PeriodicScan:
    """Calls once per period, counted from the end of the last scan. A scan of many things is an iterator of steps: each
    of them may take about 0.5 ms of the loop, as clients wait meanwhile (ADR 0215).
    """

    __slots__ = ("_call", "_period_ms", "_steps", "_timer", "_timers")

    def __init__(self, timers: Timers, period_ms: int, call: Callable[[], Iterator[None] | None]) -> None:
        """Begin without a scan; with a period below one there is none.

        Args:
            timers: Begin the steps.
            period_ms: Pause between two scans.
            call: The whole scan, or the steps of it.
        """
        self._steps: Iterator[None] | None = None
        """The rest of a scan; None: the next one has not begun."""
        self._timers = timers
        self._period_ms = period_ms
        self._call = call
        self._timer: Timer | None = None
        self._arm()

    def _arm(self) -> None:
        if self._period_ms > 0:
            self._timer = self._timers.call_later(self._period_ms, self._fire)

    def _fire(self) -> None:
        steps = self._steps or self._call()
        self._steps = None if steps is None or next(steps, _END) is _END else steps
        if self._steps is None:
            self._arm()
        elif self._period_ms > 0:
            self._timer = self._timers.call_later(_PAUSE_MS, self._fire)

    def close(self) -> None:
        """Stop scanning."""
        self._period_ms = -1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
