"""createQueue and updateQueue with a parameter for each attribute."""

from __future__ import annotations

import pytest

from support.managed import ManagedWorld
from understudy.management.operations.queue_forms import OPERATIONS

_ALL = [
    "a",
    "ANYCAST",
    "q",
    "n > 1",
    True,
    3,
    False,
    True,
    True,
    4,
    "first",
    False,
    None,
    False,
    2,
    5,
    True,
    6,
    7,
    True,
    8,
]
"""The longest form."""


def form(*left_out: int) -> list[object]:
    return [value for index, value in enumerate(_ALL) if index not in left_out]


@pytest.mark.parametrize(
    ("values", "ring", "first"),
    [
        (form(), 8, "first"),
        (form(20), -1, "first"),
        (form(20, 10), -1, ""),
        (form(20, 10, 16, 17, 18), -1, ""),
    ],
)
def test_every_form_creates_the_same_queue(values: list[object], ring: int, first: str) -> None:
    node = ManagedWorld()
    shown = node.ask("broker", "createQueue", *values)
    assert shown.startswith("Queue [name=q, address=a, routingType=ANYCAST, filter=n > 1, durable=true, maxConsumers=3")
    queue = node.office.directory.find_queue("q")
    assert queue is not None
    full = queue.configuration
    assert (full.exclusive, full.group_buckets, full.consumers_before_dispatch) == (True, 4, 2)
    assert (full.ring_size, full.group_first_key or "") == (ring, first)
    if len(values) > 16:
        assert (full.auto_delete, full.auto_delete_delay, full.auto_delete_message_count) == (True, 6, 7)


def test_without_its_address_it_needs_leave_to_make_it() -> None:
    node = ManagedWorld()
    refused = [False if index == 19 else value for index, value in enumerate(_ALL)]
    assert "no address 'a'" in node.refused("broker", "createQueue", *refused)


def test_the_longest_update_changes_the_arguments_that_are_not_null() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    values = ["q", "ANYCAST", None, 4, None, True, None, None, None, None, None, None, "somebody", 9]
    assert "maxConsumers=4" in node.ask("broker", "updateQueue", *values)
    queue = node.office.directory.find_queue("q")
    assert queue is not None
    assert (queue.configuration.ring_size, queue.configuration.exclusive, queue.filter) == (9, True, None)
    assert node.ask("broker", "updateQueue", *values[:13])
    assert node.ask("broker", "updateQueue", *values[:8], *values[9:13]), "the form that knows no key of groups"
    assert node.ask("broker", "updateQueue", "q", None, 5, None, None, None)
    assert queue.configuration.max_consumers == 5


def test_no_two_forms_have_the_same_parameters() -> None:
    shapes = [(row.name, tuple(parameter.kind for parameter in row.parameters)) for row in OPERATIONS]
    assert len(set(shapes)) == len(shapes)
