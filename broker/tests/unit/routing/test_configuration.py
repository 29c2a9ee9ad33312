"""Queue configurations: defaults from the settings, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.errors import InvalidQueueConfiguration
from understudy.limits import NAME_UNITS_MAX
from understudy.routing.addresses.configuration import QueueConfiguration, split_fqqn
from understudy.routing.addresses.settings import AddressSettings
from understudy.terms import RoutingType


def test_open_questions_are_answered_by_the_settings() -> None:
    settings = AddressSettings(
        default_queue_routing_type=RoutingType.ANYCAST, default_max_consumers=5, default_exclusive_queue=True
    )
    full = QueueConfiguration(name="q", filter="  ").filled(settings)
    assert full.address == "q"
    assert full.routing_type is RoutingType.ANYCAST
    assert full.max_consumers == 5
    assert full.exclusive is True
    assert full.filter is None
    asked = QueueConfiguration(name="q", max_consumers=1, exclusive=False).filled(settings)
    assert (asked.max_consumers, asked.exclusive) == (1, False)


def test_auto_delete_follows_how_the_queue_came_to_be() -> None:
    settings = AddressSettings()
    assert QueueConfiguration(name="q", auto_created=True).filled(settings).auto_delete is True
    assert QueueConfiguration(name="q").filled(settings).auto_delete is False
    assert QueueConfiguration(name="q", auto_delete=True).filled(settings).auto_delete is True


@pytest.mark.parametrize(
    ("asked", "last_value", "key"),
    [
        ({}, False, None),
        ({"last_value": True}, True, "_AMQ_LVQ_NAME"),
        ({"last_value_key": "code"}, True, "code"),
        ({"last_value": True, "last_value_key": "code"}, True, "code"),
    ],
)
def test_a_key_makes_a_last_value_queue(asked: dict[str, Any], last_value: bool, key: str | None) -> None:
    full = QueueConfiguration(name="q", **asked).filled(AddressSettings())
    assert (full.last_value, full.last_value_key) == (last_value, key)


def test_the_kind_of_a_queue_comes_from_its_address_unless_it_says_otherwise() -> None:
    settings = AddressSettings(
        default_last_value_key="code", default_non_destructive=True, default_ring_size=3,
        default_consumers_before_dispatch=2, default_delay_before_dispatch=50, default_group_first_key="first",
    )  # fmt: skip
    full = QueueConfiguration(name="q").filled(settings)
    assert (full.last_value, full.last_value_key, full.non_destructive) == (True, "code", True)
    assert (full.ring_size, full.bounded, full.group_first_key) == (3, True, "first")
    assert (full.consumers_before_dispatch, full.delay_before_dispatch) == (2, 50)
    own = QueueConfiguration(name="q", non_destructive=False, ring_size=-1).filled(settings)
    assert (own.non_destructive, own.bounded) == (False, False)


@pytest.mark.parametrize("name", ["", "x" * (NAME_UNITS_MAX + 1)], ids=["empty", "long"])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(InvalidQueueConfiguration, match="name"):
        QueueConfiguration(name=name).filled(AddressSettings())


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_consumers", 2**31), ("group_buckets", -(2**31) - 1), ("consumers_before_dispatch", 2**40),
     ("ring_size", 2**63), ("delay_before_dispatch", 2**63), ("auto_delete_delay", 2**64 - 1)],
)  # fmt: skip
def test_numbers_fit_into_the_answer_to_a_query(name: str, value: int) -> None:
    QueueConfiguration(name="q", max_consumers=2**31 - 1, group_buckets=-1, ring_size=2**63 - 1).check_numbers()
    configuration = QueueConfiguration(name="q", **{name: value})  # type: ignore[arg-type]  # by the name
    with pytest.raises(InvalidQueueConfiguration, match=f"{name.replace('_', '-')} {value} has more than"):
        configuration.check_numbers()


def test_temporary_and_durable_exclude_each_other() -> None:
    with pytest.raises(InvalidQueueConfiguration, match="temporary"):
        QueueConfiguration(name="q", temporary=True).filled(AddressSettings())


def test_fully_qualified_names() -> None:
    assert split_fqqn("a::q") == ("a", "q")
    assert split_fqqn("a") is None
