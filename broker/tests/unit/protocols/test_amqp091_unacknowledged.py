"""Outstanding deliveries of a channel of AMQP 0-9-1, in ranges of tags."""

from __future__ import annotations

import pytest

from understudy.protocols.amqp091.unacknowledged import DeliveredRange, Unacknowledged


def outstanding(*ranges: tuple[int, int]) -> Unacknowledged:
    """Deliveries of one consumer by first and last tag; the id of a message is its tag and 100."""
    made = Unacknowledged()
    for first, last in ranges:
        # ids in a list are not joined with those before
        made.add(first, 1, [tag + 100 for tag in range(first, last + 1)])
    return made


def tags(ranges: Unacknowledged | list[DeliveredRange]) -> list[int]:
    return [tag for each in ranges for tag in range(each.first_tag, each.end_tag)]


def test_a_delivery_is_found_with_its_message() -> None:
    found = outstanding((1, 3), (5, 8)).find(6)
    assert found is not None
    assert found.message_id(6) == 106
    assert found.consumer_id == 1


@pytest.mark.parametrize("tag", [0, 4, 9])
def test_a_tag_that_is_not_outstanding_is_not_found(tag: int) -> None:
    assert outstanding((1, 3), (5, 8)).find(tag) is None


def test_the_first_tag_is_that_of_the_oldest_delivery() -> None:
    deliveries = outstanding((2, 3), (5, 8))
    assert deliveries.first_tag == 2
    deliveries.take_through(3)
    assert deliveries.first_tag == 5
    deliveries.take_all()
    assert deliveries.first_tag is None


@pytest.mark.parametrize(
    ("tag", "taken"),
    [
        (0, []),
        (2, [1, 2]),
        (4, [1, 2, 3]),
        (5, [1, 2, 3, 5]),
        (1000, [1, 2, 3, 5, 6, 7, 8]),
    ],
)
def test_deliveries_before_a_tag_are_taken_also_if_it_is_not_outstanding(tag: int, taken: list[int]) -> None:
    deliveries = outstanding((1, 3), (5, 8))
    assert tags(deliveries.take_before(tag)) == taken
    assert tags(deliveries) == [each for each in [1, 2, 3, 5, 6, 7, 8] if each not in taken]
    assert len(deliveries) == 7 - len(taken)


def test_nothing_is_taken_through_a_tag_that_is_not_outstanding() -> None:
    deliveries = outstanding((1, 3), (5, 8))
    assert deliveries.take_through(4) == []
    assert len(deliveries) == 7
