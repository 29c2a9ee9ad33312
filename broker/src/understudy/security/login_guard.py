"""Limits for failed logins, which bound guessing and the cost of hashing.

Failures are counted for each pair of address and user, and with a higher limit for each address. While either count is
at its limit, a password is refused without being checked, until the oldest counted failure is ``WINDOW_MS`` old. So
guesses at the password of one user do not affect other users of the address, and guesses at the passwords of many
users cost a bounded amount of hashing. ``logins`` decides which logins are exempt.

An IPv6 address counts as its /64 network, which is what one host usually has.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import OrderedDict, deque
from typing import Final

from understudy.errors import AuthenticationFailed
from understudy.ports import Clock

#: Maximum number of failed logins of one user from one address within the window.
FAILURES_OF_USER_MAX: Final = 20
#: Maximum number of failed logins from one address within the window.
FAILURES_OF_ADDRESS_MAX: Final = 100
WINDOW_MS: Final = 10_000
#: Addresses, and pairs of address and user, that are counted; beyond it the oldest are dropped.
REMEMBERED_MAX: Final = 10_000


class LoginGuard:
    """Counter of failed logins, which refuses logins above a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._addresses = _Failures(FAILURES_OF_ADDRESS_MAX)
        self._users = _Failures(FAILURES_OF_USER_MAX)

    @property
    def remembered(self) -> int:
        """Number of addresses, and of pairs of address and user, with counted failures."""
        return len(self._addresses.times) + len(self._users.times)

    def check(self, host: str, user: str | None, *, proved: bool = False) -> None:
        """Check whether a password may be tried.

        Args:
            host: Address of the client.
            user: User name of the login.
            proved: The connection has logged in before: failures of other users are not counted.

        Raises:
            AuthenticationFailed: there were too many failures.
        """
        now_ms = self._clock.monotonic_ms()
        network = network_of(host)
        wait_ms = self._users.wait_ms((network, _short(user)), now_ms)
        if not wait_ms and not proved:
            wait_ms = self._addresses.wait_ms((network, b""), now_ms)
        if wait_ms:
            raise AuthenticationFailed(f"too many failed logins from {host}: wait {wait_ms} ms")

    def failed(self, host: str, user: str | None) -> None:
        """Count a failed login."""
        now_ms = self._clock.monotonic_ms()
        network = network_of(host)
        self._users.add((network, _short(user)), now_ms)
        self._addresses.add((network, b""), now_ms)


class _Failures:
    """Times of the latest failures by key."""

    __slots__ = ("_failures_max", "times")

    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max
        self.times: OrderedDict[tuple[str, bytes], deque[int]] = OrderedDict()

    def wait_ms(self, key: tuple[str, bytes], now_ms: int) -> int:
        """Time until a password may be tried; 0 = now."""
        times = self.times.get(key)
        if times is None:
            return 0
        while times and now_ms - times[0] >= WINDOW_MS:
            times.popleft()
        if not times:
            del self.times[key]
        return WINDOW_MS - (now_ms - times[0]) if len(times) >= self._failures_max else 0

    def add(self, key: tuple[str, bytes], now_ms: int) -> None:
        times = self.times.setdefault(key, deque(maxlen=self._failures_max))
        times.append(now_ms)
        self.times.move_to_end(key)
        if len(self.times) > REMEMBERED_MAX:
            self.times.popitem(last=False)


def network_of(host: str) -> str:
    """The key for counting failures: the /64 network of an IPv6 address, otherwise the host."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)


def _short(user: str | None) -> bytes:
    """Digest of a user name, which may be long."""
    return hashlib.sha256((user or "").encode("utf-8", "surrogatepass")).digest()[:16]
