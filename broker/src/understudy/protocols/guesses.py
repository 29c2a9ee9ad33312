"""Limit of the unknown session names that clients of one host may ask for (ADR 0009)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from understudy.ports import Clock

#: Time in which the guesses of a host are counted.
_WINDOW_MS: Final = 60_000
#: Hosts whose guesses are counted, those of the last guesses.
_HOSTS_MAX: Final = 10_000


class Guesses:
    """Unknown session names that the clients of each host have asked for within a window of time."""

    def __init__(self, clock: Clock, most: int, window_ms: int = _WINDOW_MS) -> None:
        """Nothing is counted yet.

        Args:
            clock: Measures the window.
            most: Requests of one host within a window.
            window_ms: Length of a window in milliseconds.
        """
        self._clock = clock
        self._most = most
        self._window_ms = window_ms
        self._of_host: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Host to the beginning of its window and the number of unknown names requested since."""

    def exhausted(self, host: str) -> bool:
        """Whether nothing more is looked up for a host within its window."""
        return self._counted(host)[1] >= self._most

    def count(self, host: str) -> None:
        """Count a request for a name that is unknown, or that the client may not use."""
        began_ms, count = self._counted(host)
        self._of_host[host] = (began_ms, count + 1)
        self._of_host.move_to_end(host)
        if len(self._of_host) > _HOSTS_MAX:
            self._of_host.popitem(last=False)

    def _counted(self, host: str) -> tuple[int, int]:
        now_ms = self._clock.monotonic_ms()
        began_ms, count = self._of_host.get(host, (now_ms, 0))
        return (began_ms, count) if now_ms - began_ms < self._window_ms else (now_ms, 0)
