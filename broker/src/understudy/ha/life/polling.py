"""The pending step of a policy that looks at something again and again."""

from __future__ import annotations

from collections.abc import Callable

from understudy.errors import BrokerError
from understudy.ports import Timer, Timers


class Polling:
    """Repeated step, of which at most one is pending; an error in a step ends the node."""

    def __init__(self, timers: Timers, fail: Callable[[BrokerError], None]) -> None:
        self._timers = timers
        self._fail = fail
        self._timer: Timer | None = None

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        """Take the step after the delay; it replaces the pending one."""
        self.cancel()
        self._timer = self._timers.call_later(delay_ms, lambda: self._take(step))

    def cancel(self) -> None:
        """Take no further step."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BrokerError as error:
            self._fail(error)
