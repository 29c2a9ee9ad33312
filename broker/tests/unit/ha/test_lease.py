"""Leases: the time until which a lock is provably held, and the fence that follows from it."""

from __future__ import annotations

import pytest

from understudy.errors import BrokerError, LockLost
from understudy.ha.locks.lease import Lease
from understudy.testing.manual_time import ManualTime


class _Suspended(ManualTime):
    """Boot time that goes on while timers do not run."""

    def suspend(self, duration_ms: int) -> None:
        """The machine sleeps."""
        self.now_ms += duration_ms


@pytest.fixture
def time() -> _Suspended:
    return _Suspended()


@pytest.fixture
def ends() -> list[BrokerError]:
    return []


@pytest.fixture
def lease(time: _Suspended, ends: list[BrokerError]) -> Lease:
    return Lease("lock n of witness w:1", time, time, ends.append)


def test_nothing_is_confirmed_before_the_lease_begins(lease: Lease) -> None:
    assert not lease.held
    assert isinstance(lease.why_not_confirm(), LockLost)
    assert "not held" in str(lease.why_not_confirm())


def test_a_lease_ends_by_itself_and_says_so_once(lease: Lease, time: _Suspended, ends: list[BrokerError]) -> None:
    assert lease.begin(1_000)
    time.advance(1_000)
    assert lease.why_not_confirm() is None
    assert ends == []
    time.advance(1)
    assert lease.why_not_confirm() is ends[0]
    assert not lease.held
    time.advance(5_000)
    assert len(ends) == 1
    assert "witness w:1" in str(ends[0])


def test_an_extended_lease_goes_on(lease: Lease, time: _Suspended, ends: list[BrokerError]) -> None:
    lease.begin(1_000)
    time.advance(500)
    lease.extend(2_000)
    lease.extend(1_500)
    assert lease.proved_until_ms == 2_000, "an older answer does not shorten it"
    time.advance(1_500)
    assert lease.why_not_confirm() is None
    time.advance(1)
    assert len(ends) == 1


def test_a_lease_is_over_after_a_suspension_although_no_timer_ran(
    lease: Lease, time: _Suspended, ends: list[BrokerError]
) -> None:
    lease.begin(1_000)
    time.suspend(1_001)
    assert isinstance(lease.why_not_confirm(), LockLost)
    lease.extend(9_000)
    assert not lease.held, "an answer that was sent before the suspension comes too late"
    assert len(ends) == 1


def test_a_lease_that_is_over_before_its_answer_comes_does_not_begin(
    lease: Lease, time: _Suspended, ends: list[BrokerError]
) -> None:
    time.suspend(1_001)
    assert not lease.begin(1_000)
    assert ends == []
    assert isinstance(lease.why_not_confirm(), LockLost)


def test_a_shortened_lease(lease: Lease, time: _Suspended, ends: list[BrokerError]) -> None:
    lease.begin(1_000)
    lease.shorten(2_000)
    lease.shorten(300)
    time.advance(301)
    assert len(ends) == 1


def test_a_released_lease_ends_without_a_call(lease: Lease, time: _Suspended, ends: list[BrokerError]) -> None:
    lease.begin(1_000)
    lease.release()
    lease.lose("late")
    time.advance(5_000)
    assert ends == []
    assert "released" in str(lease.why_not_confirm())
    assert lease.begin(9_000)
    assert lease.why_not_confirm() is None
