"""Numbers in front of the texts of errors."""

from __future__ import annotations

import pytest

from understudy.errors import BrokerError, DiskFull, QueueExists
from understudy.management.doors.error_numbers import NUMBERS, numbered


def test_errors_have_the_numbers_of_artemis() -> None:
    assert numbered(QueueExists(), "queue 'q' already exists") == "AMQ229019: queue 'q' already exists"
    assert numbered(DiskFull(), "no space") == "no space", "an error without a number gets none"


@pytest.mark.parametrize("kind", NUMBERS)
def test_no_number_means_two_things(kind: type[BrokerError]) -> None:
    assert [other for other, number in NUMBERS.items() if number == NUMBERS[kind]] == [kind]
