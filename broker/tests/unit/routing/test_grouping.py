"""Routing of message groups that the members of a cluster share (artemis-ha s. 7.8)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from support.grouping import HERE, THERE, GroupingNode
from support.routing import World, text
from understudy.limits import GROUP_KEY_CHARACTERS_MAX
from understudy.message import GROUP_ID, Message
from understudy.routing.destinations import NamedQueue, undecided
from understudy.routing.grouping import group_key, group_of
from understudy.routing.response_order import ResponseOrder
from understudy.terms import DivertDefinition, RoutingType


class Decisions:
    """Implements ``GroupDecisions`` with answers of the test."""

    node_id = HERE

    def __init__(self) -> None:
        self.decided: dict[str, str] = {}
        self.asked: list[tuple[str, list[str], str]] = []

    def ask(self, key: str, queues: Collection[str], propose: Callable[[], str]) -> Any:
        if key in self.decided:
            return None
        self.asked.append((key, sorted(queues), propose()))
        return self

    def queue_of(self, key: str) -> str | None:
        return self.decided.get(key)


class Node(GroupingNode):
    def __init__(self) -> None:
        super().__init__("REMOTE", world=World())
        self.decisions = Decisions()
        self.bindings.decisions = self.decisions  # type: ignore[assignment]

    def waits(self, group: object = "g", address: str = "q", only: str | None = None) -> bool:
        directory = self.world.office.directory
        message = Message(b"", address=address, properties={} if group is None else {GROUP_ID: group})  # type: ignore[dict-item]
        named = None if only is None else NamedQueue(only, None)
        return undecided(directory, directory.addresses[address], message, named) is not None

    def send(self, body: str, address: str = "q", **properties: Any) -> None:
        message = text(body, address, properties={GROUP_ID: "g", **properties})
        self.world.office.send(message, ResponseOrder())
        self.world.turn()


@pytest.fixture
def node() -> Node:
    made = Node()
    made.world.queue("q")
    return made


def test_the_queue_that_would_get_the_message_is_proposed(node: Node) -> None:
    assert node.waits()
    node.remote()
    assert node.waits()
    assert node.waits()
    near, far = "q" + HERE, "q" + THERE
    assert [asked for _, asked, _ in node.decisions.asked] == [[near], [near, far], [near, far]]
    assert {proposed for *_, proposed in node.decisions.asked[1:]} == {near, far}, "in turn"
    assert {key for key, *_ in node.decisions.asked} == {"g.q"}


def test_messages_without_a_group_and_nodes_without_a_handler_ask_nothing(node: Node) -> None:
    assert not node.waits(None)
    assert not node.waits(7)
    node.bindings.decisions = None
    assert not node.waits()
    assert node.decisions.asked == []


def test_a_message_goes_to_the_decided_queue_whatever_the_turn(node: Node) -> None:
    far = node.remote()
    node.waits()
    node.decisions.decided["g.q"] = far.name
    for number in range(4):
        node.send(str(number))
    assert far.queue.message_count == 4
    node.decisions.decided["g.q"] = "q" + HERE
    for number in range(3):
        node.send(str(number))
    assert node.world.office.directory.queues["q"].message_count == 3


def test_a_message_that_cannot_wait_goes_to_a_queue_in_turn(node: Node) -> None:
    far = node.remote()
    for number in range(4):
        node.send(str(number))
    assert far.queue.message_count == node.world.office.directory.queues["q"].message_count == 2


def test_each_routing_name_of_a_topic_has_a_decision_of_its_own(node: Node) -> None:
    for name, selector in (("a", None), ("b", None), ("c", "n = 1")):
        node.world.queue(name, address="news", routing_type=RoutingType.MULTICAST, filter=selector)
    node.decisions.decided["g.a"] = "a" + HERE
    assert node.waits(address="news")
    assert [key for key, *_ in node.decisions.asked] == ["g.b"]
    node.decisions.decided["g.b"] = "b" + HERE
    assert not node.waits(address="news"), "no queue named c takes the message"


def test_a_filter_or_a_disabled_queue_comes_before_the_decision(node: Node) -> None:
    """Such a message goes to another queue of the name, without its group: it is not lost."""
    world = node.world
    world.queue("one", address="filtered", filter="n = 1")
    world.queue("two", address="filtered", filter="n = 2")
    assert node.bindings.balancer_of(world.office.directory.addresses["filtered"])
    node.decisions.decided["g.filtered"] = "one" + HERE
    for number in (1, 2, 1):
        node.send("m", "filtered", n=number)
    queues = world.office.directory.queues
    assert [queues[name].message_count for name in ("one", "two")] == [2, 1]


def test_only_the_named_queue_counts_for_address_and_queue(node: Node) -> None:
    world = node.world
    for name in ("a", "b"):
        world.queue(name, address="news", routing_type=RoutingType.MULTICAST)
    assert node.waits(address="news", only="b")
    assert [key for key, *_ in node.decisions.asked] == ["g.b"]


def test_addresses_that_diverts_lead_to_are_asked_for_too(node: Node) -> None:
    world = node.world
    world.queue("target")
    world.queue("other")
    for name, exclusive, selector in (("copy", False, "n = 1"), ("take", True, "n = 2")):
        world.office.diverts.create(
            DivertDefinition(
                name, address="q", forwarding_address="target", filter=selector, exclusive=exclusive, routing_name=name
            )
        )
    directory = world.office.directory

    def asked(number: int) -> list[str]:
        node.decisions.asked.clear()
        node.decisions.decided = {"g.q": "q" + HERE}
        message = Message(b"", address="q", properties={GROUP_ID: "g", "n": number})
        assert (undecided(directory, directory.addresses["q"], message, None) is not None) == bool(node.decisions.asked)
        return [key for key, *_ in node.decisions.asked]

    assert [asked(number) for number in (0, 1, 2)] == [[], ["g.target"], ["g.target"]]


def test_an_address_that_is_balanced_for_groups_alone_has_no_queues_by_that(node: Node) -> None:
    directory = node.world.office.directory
    address = directory.create_address("empty", {RoutingType.ANYCAST})
    node.bindings.balancer_of(address)
    assert not address.has_queues
    far = node.remote("empty")
    assert address.has_queues
    node.bindings.remove(far)
    assert not address.has_queues
    assert node.bindings.balancer_of(address) is address.balancer
    directory.delete_address("empty")
    assert directory.create_address("empty", {RoutingType.ANYCAST}).balancer is None


def test_a_long_name_becomes_a_prefix_and_a_digest() -> None:
    assert group_key("g", "q") == "g.q"
    names = [group_key("x" * 5_000 + end, "q") for end in ("a", "b")]
    assert [len(each) for each in names] == [GROUP_KEY_CHARACTERS_MAX] * 2
    assert names[0] != names[1]
    assert group_key("x" * 5_000 + "a", "q") == names[0]
    assert group_of(Message(b"", address="a", properties={GROUP_ID: "g"})) == "g"
