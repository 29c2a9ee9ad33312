"""Liveness of a connection: when the broker was heard last, when the next ping is due, when its silence is too long.

Source: artemis-core s. 7.2 (pings, connection TTL); ``silenceTimeout`` is ours (ADR 0060). Not here: time limits of
calls (``calls``) and of sends (``connection``).
"""

from __future__ import annotations

from understudy.client.core.url.options import ClientOptions


def heartbeat_s(options: ClientOptions) -> int:
    """Interval in seconds of heartbeats with which the silence of a broker is noticed in time; 0: none are needed.

    Each side sends one in each half of the interval and gives the other one up after two intervals (AMQP 0-9-1).
    """
    limits_ms = [options.connection_ttl_ms] if options.connection_ttl_ms >= 0 else []
    if options.ha and options.reconnect_attempts == -1 and options.silence_timeout_ms > 0:
        limits_ms.append(options.silence_timeout_ms)
    return max(1, min(limits_ms) // 1000) if limits_ms else 0


class Life:
    """The silence of the broker at the other end of one transport."""

    def __init__(self, options: ClientOptions) -> None:
        """Args:
        options: Time limits.
        """
        self.use(options)
        self.received_ms = 0
        """Time in ms at which data was received last, by the monotonic clock."""
        self.ping_ms: int | None = None
        """Time in ms at which the next ping is due; None: pings are off, or the connection does not work yet."""
        self._checked_ms = self._awake_since_ms = 0

    def use(self, options: ClientOptions) -> None:
        """Set the time limits of the watch, which begins with the next ``begin``."""
        self._ttl_ms = options.connection_ttl_ms
        self._silence_ms: int | None = None
        periods = [options.client_failure_check_period_ms] if options.client_failure_check_period_ms >= 0 else []
        # a client that never gives up loses nothing by an attempt that comes too early
        if options.ha and options.reconnect_attempts == -1 and options.silence_timeout_ms > 0:
            self._silence_ms = options.silence_timeout_ms
            periods.append(max(1, options.silence_timeout_ms // 4))
        self._period_ms = min(periods, default=None)

    def begin(self, now_ms: int, *, period_max_ms: int | None = None) -> None:
        """The connection works.

        Args:
            now_ms: Monotonic time.
            period_max_ms: Longest time between two pings that the protocol allows.
        """
        periods = [each for each in (self._period_ms, period_max_ms) if each is not None]
        self._period_ms = min(periods, default=None)
        self._checked_ms = self._awake_since_ms = now_ms
        if self._period_ms is not None:
            self.ping_ms = now_ms + self._period_ms

    def too_long(self, now_ms: int) -> int | None:
        """The limit that the silence has exceeded, milliseconds; None: none."""
        if 0 <= self._ttl_ms < now_ms - self.received_ms:
            return self._ttl_ms
        if self._silence_ms is None or self._period_ms is None:
            return None
        if now_ms - self._checked_ms > 2 * self._period_ms:
            # this process was stopped or busy, so that it could not receive: this is no silence of the broker
            self._awake_since_ms = now_ms
        self._checked_ms = now_ms
        silent_since_ms = max(self.received_ms, self._awake_since_ms)
        return self._silence_ms if now_ms - silent_since_ms > self._silence_ms else None

    def ping_due(self, now_ms: int) -> bool:
        """Whether a ping is due now; then the next one is a period later."""
        if self.ping_ms is None or self._period_ms is None or now_ms < self.ping_ms:
            return False
        self.ping_ms = now_ms + self._period_ms
        return True

    def next_deadline_ms(self) -> int | None:
        """When to call ``too_long`` and ``ping_due`` next."""
        moments = [self.ping_ms] if self.ping_ms is not None else []
        if self._ttl_ms >= 0:
            moments.append(self.received_ms + self._ttl_ms + 1)
        if self._silence_ms is not None:
            moments.append(max(self.received_ms, self._awake_since_ms) + self._silence_ms + 1)
        return min(moments, default=None)
