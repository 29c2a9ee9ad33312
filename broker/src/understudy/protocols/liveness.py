"""Timeouts of a connection: silence (connection TTL) and the time until its login."""

from __future__ import annotations

from typing import Final

from understudy.errors import RemoteProtocolError
from understudy.limits import LOGIN_TIMEOUT_MS
from understudy.ports import Clock

#: Connection TTL of a client that has not chosen one (artemis-core s. 7.2). Milliseconds.
DEFAULT_CONNECTION_TTL_MS: Final = 60_000


class Liveness:
    """When data was last received on a connection. Checked every ``connection-ttl-check-interval``."""

    __slots__ = ("_clock", "_last_data_ms", "_opened_ms", "_overridden", "received", "ttl_ms")

    def __init__(self, clock: Clock, override_ms: int) -> None:
        """``override_ms``: connection-ttl-override; -1 = none."""
        self._clock = clock
        self._opened_ms = self._last_data_ms = clock.monotonic_ms()
        self._overridden = override_ms >= 0
        self.ttl_ms = override_ms if override_ms >= 0 else DEFAULT_CONNECTION_TTL_MS
        """Maximum time without data in milliseconds; 0 or less = no limit."""
        self.received = False
        """Set by the connection when data is received; reset by ``silent_ms``."""

    def choose(self, ttl_ms: int) -> None:
        """The client asks for a TTL; without effect if the configuration overrides it."""
        if not self._overridden:
            self.ttl_ms = ttl_ms

    def silent_ms(self) -> int:
        """Time since the first call after the last data; precise to the time between two calls."""
        now_ms = self._clock.monotonic_ms()
        if self.received:
            self.received = False
            self._last_data_ms = now_ms
        return now_ms - self._last_data_ms

    def check_silence(self) -> None:
        """Raises RemoteProtocolError: nothing was received for longer than the TTL."""
        silent_ms = self.silent_ms()
        if 0 < self.ttl_ms < silent_ms:
            raise RemoteProtocolError(f"nothing received for {silent_ms} ms (connection-ttl)")

    def check_login(self) -> None:
        """Check a connection without a login. Raises RemoteProtocolError: it has had too much time for it."""
        if self._clock.monotonic_ms() - self._opened_ms > LOGIN_TIMEOUT_MS:
            raise RemoteProtocolError(f"no login within {LOGIN_TIMEOUT_MS} ms")
