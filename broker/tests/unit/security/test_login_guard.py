"""Wrong passwords cost their own host only, and for a bounded time."""

from __future__ import annotations

import pytest

from understudy.errors import AuthenticationFailed
from understudy.security.login_guard import FAILURES_MAX, HOSTS_MAX, WINDOW_MS, LoginGuard
from understudy.testing.manual_time import ManualTime


def test_a_host_that_failed_too_often_waits() -> None:
    time = ManualTime()
    guard = LoginGuard(time)
    for _ in range(FAILURES_MAX):
        guard.check("mallory")
        guard.failed("mallory")
        time.advance(100)
    with pytest.raises(AuthenticationFailed, match="mallory"):
        guard.check("mallory")
    guard.check("alice")
    time.advance(WINDOW_MS - 100 * FAILURES_MAX)
    guard.check("mallory")


def test_memory_is_bounded() -> None:
    guard = LoginGuard(ManualTime())
    for number in range(HOSTS_MAX + 10):
        guard.failed(f"host {number}")
    assert len(guard._failures) == HOSTS_MAX
