"""A bound on what wrong passwords cost: hashing is slow on purpose, and the loop has one thread.

A host that has just failed ``FAILURES_MAX`` times is refused without its password being looked at,
until the oldest of those failures is ``WINDOW_MS`` old. Successful logins, which are remembered by
the authenticator, are not slowed down by anybody else's failures.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from understudy.errors import AuthenticationFailed
from understudy.ports import Clock

#: Failed logins of one host within the window.
FAILURES_MAX: Final = 10
WINDOW_MS: Final = 10_000
#: Hosts remembered; beyond it those that failed longest ago are forgotten.
HOSTS_MAX: Final = 10_000


class LoginGuard:
    """See the module's text."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[int]] = OrderedDict()

    def check(self, host: str) -> None:
        """Raises AuthenticationFailed while the host has failed too often."""
        failures = self._failures.get(host)
        if failures is None:
            return
        now_ms = self._clock.monotonic_ms()
        while failures and now_ms - failures[0] >= WINDOW_MS:
            failures.popleft()
        if not failures:
            del self._failures[host]
        elif len(failures) >= FAILURES_MAX:
            wait_ms = WINDOW_MS - (now_ms - failures[0])
            raise AuthenticationFailed(f"{len(failures)} failed logins from {host}: wait {wait_ms} ms")

    def failed(self, host: str) -> None:
        """A login of the host failed."""
        failures = self._failures.setdefault(host, deque(maxlen=FAILURES_MAX))
        failures.append(self._clock.monotonic_ms())
        self._failures.move_to_end(host)
        if len(self._failures) > HOSTS_MAX:
            self._failures.popitem(last=False)
