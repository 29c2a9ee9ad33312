"""Heartbeats of a connection (AMQP 0-9-1 s. 4.2.7): sent when nothing else is, and awaited for two intervals.

The Java client on Netty ends a connection on which it has read nothing for one interval. So a heartbeat is sent after
half an interval without output, at most three quarters of an interval after the last output.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from understudy.ports import Connection, Timer, Timers
from understudy.wire.amqp091.frames import HEARTBEAT

log = logging.getLogger(__name__)

#: Checks per interval.
CHECKS: Final = 4
#: Checks in a row without output after which a heartbeat is sent.
QUIET_CHECKS: Final = 2
#: Checks in a row without input after which the connection ends.
SILENT_CHECKS: Final = 8


class Heart:
    """Sends and awaits heartbeats."""

    __slots__ = (
        "_connection",
        "_interval_ms",
        "_is_blocked",
        "_quiet",
        "_silent",
        "_timer",
        "_timers",
        "received",
        "sent",
    )

    def __init__(self, connection: Connection, timers: Timers, is_blocked: Callable[[], bool]) -> None:
        """Args:
        connection: The socket.
        timers: Make the next check.
        is_blocked: Whether the socket is not read now.
        """
        self._connection = connection
        self._is_blocked = is_blocked
        self._timers = timers
        self._timer: Timer | None = None
        self._interval_ms = 0
        self._quiet = 0
        """Checks in a row without output."""
        self._silent = 0
        """Checks in a row without input."""
        self.sent = False
        """Whether something was sent since the last check."""
        self.received = False
        """Whether something was received since the last check."""

    def begin(self, interval_s: int) -> None:
        """Send and await heartbeats from now on.

        Args:
            interval_s: Interval in seconds; 0: no heartbeat is sent or awaited.
        """
        if interval_s:
            self._interval_ms = interval_s * 1000
            self._timer = self._timers.call_later(self._interval_ms // CHECKS, self._check)

    def _check(self) -> None:
        connection = self._connection
        self._quiet = 0 if self.sent else self._quiet + 1
        self.sent = False
        if self._quiet >= QUIET_CHECKS:
            self._quiet = 0
            connection.send(HEARTBEAT)
        self._silent = 0 if self.received or self._is_blocked() else self._silent + 1
        self.received = False
        if self._silent >= SILENT_CHECKS:
            log.warning("connection dropped: no heartbeat", extra={"peer": connection.peer})
            self._timer = None
            connection.abort()
            return
        self._timer = self._timers.call_later(self._interval_ms // CHECKS, self._check)

    def end(self) -> None:
        """Stop sending and awaiting them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
