"""Time until which a lock that is kept by leases is provably held, and the fence that follows from it.

A provider extends the lease with each answer of its service, counted from the moment before the request was sent,
less a margin for the rates of the two clocks. Batches of the log are confirmed before that time only. When it passes,
the lock is lost, even if the service would still keep it: another node may hold it from the end of the lease on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.errors import BrokerError, LockLost
from understudy.ports import Clock, Timer, Timers

_NOT_HELD: Final = -1


class Lease:
    """Lease of one lock. Implements ``ports.Fence``; ``why_not_confirm`` may be called on any thread."""

    def __init__(self, name: str, clock: Clock, timers: Timers, ended: Callable[[BrokerError], None]) -> None:
        """Make a lease that has not begun.

        Args:
            name: The lock and its provider, for errors.
            clock: Boot time.
            timers: Watch the end.
            ended: Called once for each lease that ends by itself or by ``lose``.
        """
        self._name = name
        self._clock = clock
        self._timers = timers
        self._ended = ended
        self._timer: Timer | None = None
        self._reason: BrokerError | None = None
        self.held = False
        """Whether the lease has begun and has not ended."""
        self.proved_until_ms = _NOT_HELD
        """Boot time until which the lock is provably held; negative if it is not held."""
        self.proved_at_ms = 0
        """Boot time of the last answer of the service."""

    def begin(self, until_ms: int) -> bool:
        """Called when the lock was acquired. Returns whether the time is still to come: if not, the lease has not
        begun."""
        self._reason = None
        self.held = self._clock.monotonic_ms() <= until_ms
        if self.held:
            self.proved_at_ms = self._clock.monotonic_ms()
            self.proved_until_ms = until_ms
            self._watch()
        return self.held

    @property
    def late_from_ms(self) -> int:
        """Boot time from which a renewal is late: half of the time of the last proof has passed without another."""
        return (self.proved_at_ms + self.proved_until_ms) // 2

    def extend(self, until_ms: int) -> None:
        """Called when the service has answered that the lock is held. Does nothing after the end of the lease."""
        self.check()
        if self.held and until_ms > self.proved_until_ms:
            self.proved_at_ms = self._clock.monotonic_ms()
            self.proved_until_ms = until_ms

    def shorten(self, until_ms: int) -> None:
        """The proof ends earlier than it seemed, because the service may count from an earlier time."""
        if self.held and until_ms < self.proved_until_ms:
            self.proved_until_ms = until_ms
            self._watch()

    def check(self) -> None:
        """End the lease if its time has passed."""
        if self.held and self._clock.monotonic_ms() > self.proved_until_ms:
            late_ms = self._clock.monotonic_ms() - self.proved_until_ms
            self.lose(f"{self._name}: the lease ended {late_ms} ms ago without an answer that renews it")

    def lose(self, reason: str) -> None:
        """The lock is not held any more; does nothing if the lease has ended already."""
        if self.held:
            error = LockLost(reason)
            self._end(error)
            self._ended(error)

    def release(self) -> None:
        """End the lease because the lock is given back."""
        self._end(LockLost(f"{self._name}: released"))

    def why_not_confirm(self) -> BrokerError | None:
        """None while the lock is provably held; else the reason. Asks nothing: the answers of the service have come
        or have not.
        """
        # read once: the thread of the loop may end the lease meanwhile
        until_ms = self.proved_until_ms
        now_ms = self._clock.monotonic_ms()
        if now_ms <= until_ms:
            return None
        if self._reason is not None or until_ms == _NOT_HELD:
            return self._reason or LockLost(f"{self._name}: not held")
        return LockLost(f"{self._name}: not provably held since {now_ms - until_ms} ms")

    def _end(self, reason: BrokerError) -> None:
        self.held = False
        self._reason = self._reason or reason
        self.proved_until_ms = _NOT_HELD
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # the lease includes the millisecond at its end
        left_ms = self.proved_until_ms - self._clock.monotonic_ms() + 1
        self._timer = self._timers.call_later(max(left_ms, 1), self._look)

    def _look(self) -> None:
        self._timer = None
        self.check()
        if self.held:
            self._watch()
