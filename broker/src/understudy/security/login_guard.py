"""Limits on wrong passwords: how often they may be tried, and how much hashing they cost.

Failures are counted for each address and user, and with a wider limit for each address. While either count is at its
limit, a password is refused without being looked at, until the oldest failure that counts is ``WINDOW_MS`` old. So
guesses at one user's password do not refuse other users of the address, and guesses at many
users' passwords cost a bounded amount of hashing. Which logins need not ask at all is decided in ``logins``.

An IPv6 address counts as its /64 network, which is what one host usually has.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import OrderedDict, deque
from typing import Final

from understudy.errors import AuthenticationFailed
from understudy.ports import Clock

#: Failed logins of one user from one address within the window.
FAILURES_OF_USER_MAX: Final = 20
#: Failed logins from one address within the window.
FAILURES_OF_ADDRESS_MAX: Final = 100
WINDOW_MS: Final = 10_000
#: Addresses, and users at addresses, that are remembered; beyond it those that failed longest ago are forgotten.
REMEMBERED_MAX: Final = 10_000


class LoginGuard:
    """Counts failed logins."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._addresses = _Failures(FAILURES_OF_ADDRESS_MAX)
        self._users = _Failures(FAILURES_OF_USER_MAX)

    @property
    def remembered(self) -> int:
        """Addresses, and users at addresses, with failures that may still count."""
        return len(self._addresses.times) + len(self._users.times)

    def check(self, host: str, user: str | None, *, proved: bool = False) -> None:
        """Whether a password may be looked at.

        Args:
            host: Address of the client.
            user: The user name it sent.
            proved: The connection has logged in before: only the failures of this user count.

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
        """A login failed."""
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
        """How long until a password may be looked at; 0 = now."""
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
    """The address that failures count for: of IPv6 its /64 network, otherwise the host itself."""
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
    """Stands for a user's name, which can be long."""
    return hashlib.sha256((user or "").encode("utf-8", "surrogatepass")).digest()[:16]
