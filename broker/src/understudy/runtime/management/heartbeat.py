"""A timer of the event loop, twice a second: how late it is, is the lag of the loop; and the ids of messages are noted.

It runs while the management server runs. A node without management needs neither.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from understudy.store.durations import Durations

#: Time between two beats. Milliseconds.
PERIOD_MS: Final = 500


class Heartbeat:
    """Measures the lag of the loop.

    Args:
        each: Called at each beat.
        now_ns: Monotonic time.
    """

    def __init__(self, each: Callable[[], None], now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._each = each
        self._now_ns = now_ns
        self.lag = Durations()
        """Times between the due time of a beat and the beat."""
        self._due_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to beat, on the running loop."""
        self._due_ns = self._now_ns() + PERIOD_MS * 1_000_000
        self._timer = asyncio.get_running_loop().call_later(PERIOD_MS / 1000, self.beat)

    def beat(self) -> None:
        """Count the lag of this beat, and wait for the next one."""
        self.lag.add(max(0, self._now_ns() - self._due_ns))
        self._each()
        self.start()

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
