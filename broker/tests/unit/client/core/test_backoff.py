"""Delays between the deliveries of a message whose work fails."""

from __future__ import annotations

import pytest

from understudy.client.core.consumer.backoff import Backoff, delay_after


def test_each_delay_is_the_one_before_times_the_factor_up_to_the_longest() -> None:
    backoff = Backoff(first_s=1, factor=3, longest_s=20)
    assert [backoff.delay_s(count) for count in (1, 2, 3, 4, 5)] == [1, 3, 9, 20, 20]


def test_any_number_of_deliveries_has_a_delay() -> None:
    assert Backoff().delay_s(2**31) == 300
    assert Backoff(first_s=2, factor=1).delay_s(2**31) == 2
    assert Backoff(first_s=2).delay_s(0) == 2, "a broker that counts no deliveries"


@pytest.mark.parametrize("values", [{"first_s": -1}, {"longest_s": -1}, {"factor": 0.5}, {"factor": float("nan")}])
def test_values_without_a_meaning_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Backoff"):
        Backoff(**values)


def test_a_plain_delay_is_the_same_after_every_delivery() -> None:
    assert [delay_after(each, 3) for each in (None, 5, Backoff(1))] == [None, 5, 4]
