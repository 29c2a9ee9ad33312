"""Wrong passwords cost the user at the address they came from, and for a bounded time."""

from __future__ import annotations

import pytest

from understudy.errors import AuthenticationFailed
from understudy.security.login_guard import (
    FAILURES_OF_ADDRESS_MAX,
    FAILURES_OF_USER_MAX,
    REMEMBERED_MAX,
    WINDOW_MS,
    LoginGuard,
    network_of,
)
from understudy.testing.manual_time import ManualTime


def test_a_host_that_failed_too_often_waits() -> None:
    """The wait is for one user: other users at the same address do not wait, nor does the user at another address."""
    time = ManualTime()
    guard = LoginGuard(time)
    for _ in range(FAILURES_OF_USER_MAX):
        guard.check("10.0.0.1", "ann")
        guard.failed("10.0.0.1", "ann")
        time.advance(100)
    with pytest.raises(AuthenticationFailed, match=r"10\.0\.0\.1"):
        guard.check("10.0.0.1", "ann")
    with pytest.raises(AuthenticationFailed):
        guard.check("10.0.0.1", "ann", proved=True)
    guard.check("10.0.0.1", "ben")
    guard.check("10.0.0.2", "ann")
    time.advance(WINDOW_MS - 100 * FAILURES_OF_USER_MAX)
    guard.check("10.0.0.1", "ann")


def test_an_address_has_a_wider_limit() -> None:
    """A client that tries a new user each time; connections that have logged in do not count with them."""
    guard = LoginGuard(ManualTime())
    for number in range(FAILURES_OF_ADDRESS_MAX):
        guard.check("10.0.0.1", f"user {number}")
        guard.failed("10.0.0.1", f"user {number}")
    with pytest.raises(AuthenticationFailed):
        guard.check("10.0.0.1", "ann")
    guard.check("10.0.0.1", "ann", proved=True)
    guard.check("10.0.0.2", "ann")


def test_a_wrong_password_now_and_then_refuses_nothing() -> None:
    """One in 0.8 s, without end."""
    time = ManualTime()
    guard = LoginGuard(time)
    for _ in range(100):
        guard.failed("10.0.0.1", "ann")
        time.advance(800)
        guard.check("10.0.0.1", "ann")


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::1]", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("?", "?"),
    ],
)
def test_failures_of_an_ipv6_network_are_counted_together(host: str, network: str) -> None:
    assert network_of(host) == network


def test_memory_is_bounded() -> None:
    guard = LoginGuard(ManualTime())
    for number in range(REMEMBERED_MAX + 10):
        guard.failed(f"host {number}", "u" * 4_000)
    assert guard.remembered == 2 * REMEMBERED_MAX
