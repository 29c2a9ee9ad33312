"""At most so many messages a second."""

from __future__ import annotations

from understudy.client.core.session.rate import RateLimit, rate_limit


def test_messages_are_spread() -> None:
    limit = RateLimit(10)
    assert limit.delay_ms(0) == 0
    limit.count(0)
    assert limit.delay_ms(0) == 100
    assert limit.delay_ms(85) == 0, "a little early is on time"
    limit.count(85)
    assert limit.delay_ms(85) == 115


def test_an_idle_time_earns_nothing() -> None:
    limit = RateLimit(10)
    limit.count(0)
    limit.count(10_000)
    assert limit.delay_ms(10_000) == 100


def test_high_rates_need_no_wait_per_message() -> None:
    limit = RateLimit(10_000)
    for _ in range(150):
        assert limit.delay_ms(0) == 0
        limit.count(0)
    assert sum(1 for _ in range(100) if limit.count(0) or limit.delay_ms(0)) > 0, "and still hold"


def test_no_limit() -> None:
    assert rate_limit(-1) is None
    assert rate_limit(0) is None
    assert rate_limit(5) is not None
