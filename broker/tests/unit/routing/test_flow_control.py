"""Arithmetic of consumer credit: bytes (artemis-core s. 6.3) and messages (AMQP 1.0 s. 2.6.7)."""

from __future__ import annotations

from understudy.routing.queues.flow_control import CREDITS_MAX, UNLIMITED, ByteCredits, MessageCredits


def bytes_of(balance: int, *grants: int) -> int:
    flow = ByteCredits()
    flow.credits = balance
    for amount in grants:
        flow.grant(amount)
    return flow.credits


def test_bytes_are_added_and_reset_and_unlimited() -> None:
    assert bytes_of(10, 5) == 15
    assert bytes_of(-300, 100) == -200
    assert bytes_of(10, 0) == 0
    assert bytes_of(10, -1) == UNLIMITED


def test_unlimited_bytes_stay_unlimited_until_they_are_reset() -> None:
    assert bytes_of(UNLIMITED - 10_000_000, 5) > CREDITS_MAX
    assert bytes_of(UNLIMITED, 0) == 0


def test_no_sum_of_grants_becomes_unlimited() -> None:
    assert bytes_of(0, *[(1 << 31) - 1] * 10_000) == CREDITS_MAX


def test_other_negative_numbers_of_bytes_add_nothing() -> None:
    assert bytes_of(7, -5) == 7


def test_messages_are_set_not_added() -> None:
    flow = MessageCredits()
    flow.grant(5)
    flow.grant(3)
    assert flow.credits == 3
    flow.grant(-1)
    assert flow.credits == 0
    flow.grant(1 << 62)
    assert flow.credits == CREDITS_MAX


def test_drain_takes_back_the_rest_once() -> None:
    flow = MessageCredits()
    flow.grant(4)
    assert (flow.drain(), flow.drain()) == (4, 0)
    negative = ByteCredits()
    negative.credits = -20
    assert (negative.drain(), negative.credits) == (0, 0)
