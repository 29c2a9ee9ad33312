"""The prefix of internal names: the default, one that is configured, and that of a store of an earlier version."""

from __future__ import annotations

import pytest

from support.routing import World
from understudy.config.model import Configuration
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.internal_names import DEFAULT, FORMER_DEFAULT, internal_prefix
from understudy.routing.restore import settle
from understudy.terms import RoutingType


def test_the_default_is_that_of_the_configuration() -> None:
    assert Configuration().internal_naming_prefix == DEFAULT == "$.artemis.internal."


@pytest.mark.parametrize("configured", [DEFAULT, "own."])
def test_a_new_store_has_the_configured_prefix(configured: str) -> None:
    assert internal_prefix(World().office.directory, configured) == configured


def test_a_store_keeps_the_former_default_while_it_has_such_names() -> None:
    """Messages that wait for another member would not be sent to it any more."""
    directory = World().office.directory
    name = f"{FORMER_DEFAULT}sf.my-cluster.11111111-2222-3333-4444-555555555555"
    directory.create_queue(
        QueueConfiguration(name, name, RoutingType.MULTICAST, internal=True), may_create_address=True
    )
    assert internal_prefix(directory, DEFAULT) == FORMER_DEFAULT
    assert internal_prefix(directory, "own.") == "own."
    directory.delete_queue(name)
    directory.delete_address(name)
    assert internal_prefix(directory, DEFAULT) == DEFAULT


def test_resources_of_a_retroactive_address_stay_those_of_the_store() -> None:
    world = World({"a": {"retroactive_message_count": 3}})
    world.office.directory.create_address("a", {RoutingType.MULTICAST})
    settle(world.office, FORMER_DEFAULT)
    before = sorted(world.office.directory.queues)
    assert [name.startswith(FORMER_DEFAULT) for name in before] == [True, True]
    settle(world.office, DEFAULT)
    assert sorted(world.office.directory.queues) == before
