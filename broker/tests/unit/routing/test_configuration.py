"""Queue configurations: defaults from the settings, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.config.model import RoutingType
from understudy.errors import InvalidQueueConfiguration
from understudy.limits import NAME_UNITS_MAX
from understudy.routing.configuration import QueueConfiguration, split_fqqn
from understudy.routing.settings import AddressSettings


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
    "options",
    [
        {"last_value": True},
        {"last_value_key": "k"},
        {"non_destructive": True},
        {"ring_size": 10},
        {"consumers_before_dispatch": 2},
        {"delay_before_dispatch": 100},
        {"enabled": False},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_is_not_carried_out_is_refused_not_ignored(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueueConfiguration, match="not available"):
        QueueConfiguration(name="q", **options).filled(AddressSettings())


@pytest.mark.parametrize("name", ["", "x" * (NAME_UNITS_MAX + 1)], ids=["empty", "long"])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(InvalidQueueConfiguration, match="name"):
        QueueConfiguration(name=name).filled(AddressSettings())


def test_temporary_and_durable_exclude_each_other() -> None:
    with pytest.raises(InvalidQueueConfiguration, match="temporary"):
        QueueConfiguration(name="q", temporary=True).filled(AddressSettings())


def test_fully_qualified_names() -> None:
    assert split_fqqn("a::q") == ("a", "q")
    assert split_fqqn("a") is None
