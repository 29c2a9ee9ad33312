"""Notifications to a service manager (sd_notify protocol); nothing is sent without one.

Services of Type=notify are started when READY=1 is sent: a primary with wait-for-activation sends it when
it is active, every other node when it has begun to follow (artemis-ha s. 1, 2.2).
"""

from __future__ import annotations

import asyncio
import os
import socket


def notify(state: str) -> None:
    """Send ``READY=1``, ``STATUS=...``, ``STOPPING=1`` or ``WATCHDOG=1``; errors are ignored."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto(state.encode(), address)
        except OSError:
            # the broker goes on when the service manager is gone
            return


class Watchdog:
    """Notifies the watchdog of the manager from the loop, at half the requested interval."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        wanted_us = os.environ.get("WATCHDOG_USEC", "")
        for_us = os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        self._period_s = int(wanted_us) / 2_000_000 if wanted_us.isdecimal() and for_us else 0.0

    def start(self) -> None:
        """Begin to notify, if the manager requests it."""
        if self._period_s > 0:
            notify("WATCHDOG=1")
            self._timer = self._loop.call_later(self._period_s, self.start)

    def stop(self) -> None:
        """Stop notifying the service manager."""
        if self._timer is not None:
            self._timer.cancel()
