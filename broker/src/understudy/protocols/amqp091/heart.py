"""Heartbeats of a connection (AMQP 0-9-1 s. 4.2.7): sent when nothing else is, and awaited for two intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable

from understudy.ports import Connection, Timer, Timers
from understudy.wire.amqp091.frames import HEARTBEAT

log = logging.getLogger(__name__)


class Heart:
    """Sends and awaits heartbeats."""

    __slots__ = ("_connection", "_interval_ms", "_is_blocked", "_silent", "_timer", "_timers", "received", "sent")

    def __init__(self, connection: Connection, timers: Timers, is_blocked: Callable[[], bool]) -> None:
        """Args:
        connection: The socket.
        timers: Make the next beat.
        is_blocked: Whether the socket is not read now.
        """
        self._connection = connection
        self._is_blocked = is_blocked
        self._timers = timers
        self._timer: Timer | None = None
        self._interval_ms = 0
        self._silent = 0
        """Half intervals since something was received."""
        self.sent = False
        """Whether something was sent since the last beat."""
        self.received = False
        """Whether something was received since the last beat."""

    def begin(self, interval_s: int) -> None:
        """Beat from now on.

        Args:
            interval_s: Interval in seconds; 0: no heartbeat is sent or awaited.
        """
        if interval_s:
            self._interval_ms = interval_s * 1000
            self._timer = self._timers.call_later(self._interval_ms // 2, self._beat)

    def _beat(self) -> None:
        connection = self._connection
        if not self.sent:
            connection.send(HEARTBEAT)
        self.sent = False
        self._silent = 0 if self.received or self._is_blocked() else self._silent + 1
        self.received = False
        if self._silent >= 4:
            log.warning("connection dropped: no heartbeat", extra={"peer": connection.peer})
            self._timer = None
            connection.abort()
            return
        self._timer = self._timers.call_later(self._interval_ms // 2, self._beat)

    def end(self) -> None:
        """Stop beating."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
