"""Arithmetic of consumer credits (artemis-core s. 6.3)."""

from __future__ import annotations

from understudy.session.credits import CREDITS_MAX, UNLIMITED, credited


def test_add_reset_unlimited() -> None:
    assert credited(10, 5) == 15
    assert credited(-300, 100) == -200
    assert credited(10, 0) == 0
    assert credited(10, -1) == UNLIMITED


def test_unlimited_stays_so_until_it_is_reset() -> None:
    assert credited(UNLIMITED - 10_000_000, 5) > CREDITS_MAX
    assert credited(UNLIMITED, 0) == 0


def test_a_peer_cannot_count_itself_to_unlimited() -> None:
    balance = 0
    for _ in range(10_000):
        balance = credited(balance, (1 << 31) - 1)
    assert balance == CREDITS_MAX


def test_other_negative_numbers_add_nothing() -> None:
    assert credited(7, -5) == 7
