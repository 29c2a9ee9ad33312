"""The queues of other members as one node knows them."""

from __future__ import annotations

import pytest

from support.grouping import THERE, GroupingNode
from understudy.message import Message
from understudy.properties import Properties
from understudy.terms import RoutingType


@pytest.mark.parametrize("local_first", [True, False])
def test_the_queue_that_came_first_gets_the_first_message(local_first: bool) -> None:
    """Artemis does the same. The mode is ``STRICT``, so consumers do not matter."""
    node = GroupingNode("REMOTE")
    directory = node.world.office.directory
    if local_first:
        node.world.queue("q", routing_type=RoutingType.MULTICAST)
    node.remote()
    if not local_first:
        assert directory.find_address("q") is not None
        node.world.queue("q", routing_type=RoutingType.MULTICAST)
    balancer = directory.addresses["q"].balancer
    assert balancer is not None
    message = Message(b"", address="q", properties=Properties(), message_id=7)
    names = [balancer.route(message)[1][0].name for _ in range(4)]
    assert names == (["q", f"sf.{THERE}"] * 2 if local_first else [f"sf.{THERE}", "q"] * 2)


def test_an_address_that_is_deleted_by_force_loses_the_queues_of_others_until_they_are_announced_again() -> None:
    node = GroupingNode("REMOTE")
    directory = node.world.office.directory
    node.world.queue("q", routing_type=RoutingType.MULTICAST)
    node.remote()
    directory.delete_address("q", force=True)
    assert "q" not in directory.queues
    assert directory.find_address("q") is None
    assert node.bindings.by_name == {}
    node.remote()
    address = directory.find_address("q")
    assert address is not None
    assert address.balancer is not None
    message = Message(b"", address="q", properties=Properties(), message_id=7)
    assert [queue.name for queue in address.balancer.route(message)[1]] == [f"sf.{THERE}"]
