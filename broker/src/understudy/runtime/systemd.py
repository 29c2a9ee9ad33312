"""Telling a service manager how the node is doing, by the sd_notify protocol; silent without one.

Type=notify services count as started when READY=1 comes: for a primary with wait-for-activation that
is when it serves, for every other node when it has begun to follow (artemis-ha s. 1, 2.2).
"""

from __future__ import annotations

import asyncio
import os
import socket


def notify(state: str) -> None:
    """Send ``READY=1``, ``STATUS=...``, ``STOPPING=1`` or ``WATCHDOG=1``; lost is lost."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto(state.encode(), address)
        except OSError:
            # the manager went away or is not ours: the broker does not depend on it
            return


class Watchdog:
    """Proves to the manager that the loop turns, at half the interval it asks for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        wanted_us = os.environ.get("WATCHDOG_USEC", "")
        for_us = os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        self._period_s = int(wanted_us) / 2_000_000 if wanted_us.isdecimal() and for_us else 0.0

    def start(self) -> None:
        if self._period_s > 0:
            notify("WATCHDOG=1")
            self._timer = self._loop.call_later(self._period_s, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
