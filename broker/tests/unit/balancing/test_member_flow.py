"""The queues of another node as it reports them (artemis-core s. 9.3, artemis-ha s. 7.5)."""

from __future__ import annotations

from typing import Any

import pytest

from support.routing import World
from understudy.cluster.balancing.member_flow import MemberFlow
from understudy.cluster.balancing.notices import Notice, read_notice, selector_of
from understudy.cluster.balancing.remote_bindings import RemoteBindings
from understudy.config.cluster_addresses import covers, split_addresses
from understudy.config.model import ClusterConnectionConfiguration
from understudy.errors import InvalidSelector, RemoteProtocolError
from understudy.message import Message
from understudy.properties import Properties
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.filter import parse_filter
from understudy.routing.remote import RemoteBinding
from understudy.terms import MessageLoadBalancing, RoutingType

NODE = "11111111-2222-3333-4444-555555555555"
OWN = "66666666-2222-3333-4444-555555555555"


class Heard:
    """Implements ``RemoteListener``."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def remote_binding_added(self, binding: RemoteBinding) -> None:
        self.events.append(f"+{binding.queue_name}")

    def remote_binding_removed(self, binding: RemoteBinding) -> None:
        self.events.append(f"-{binding.queue_name}")

    def remote_consumer_added(self, binding: RemoteBinding, selector: str | None) -> None:
        self.events.append(f"+consumer {selector}")

    def remote_consumer_removed(self, binding: RemoteBinding, selector: str | None) -> None:
        self.events.append(f"-consumer {selector}")

    def remote_connected(self, binding: RemoteBinding) -> None:
        self.events.append(f"{binding.queue_name} {'connected' if binding.connected else 'away'}")


class Reporting:
    def __init__(self) -> None:
        self.world = World()
        directory = self.world.office.directory
        self.all = RemoteBindings(directory, lambda address: MessageLoadBalancing.ON_DEMAND)
        self.heard = Heard()
        self.all.listeners.append(self.heard)
        self.flow = self.another(NODE)

    def another(self, node_id: str) -> MemberFlow:
        queue = self.world.office.directory.create_queue(
            QueueConfiguration(f"sf.{node_id}", f"sf.{node_id}", RoutingType.MULTICAST, internal=True),
            may_create_address=True,
        )
        bridge: Any = None
        return MemberFlow(node_id, queue, bridge, self.all, own_node_id=OWN)

    def added(self, name: str = "q", queue_id: int = 11, distance: int = 0, selector: str | None = None) -> Notice:
        return Notice("BINDING_ADDED", name + NODE, name, name, queue_id, distance, selector)


def test_queues_and_consumers_come_change_and_go() -> None:
    node = Reporting()
    flow, name = node.flow, "q" + NODE
    flow.reset()
    flow.noticed(node.added(distance=1))
    flow.noticed(Notice("CONSUMER_CREATED", name, filter="a = 1"))
    flow.complete()
    binding = node.all.by_name[name]
    assert (binding.remote_id, binding.distance, binding.queue_name, binding.node_id) == (11, 2, "q", NODE)
    assert list(binding.consumers) == ["a = 1"]
    flow.noticed(Notice("BINDING_UPDATED", name, filter="b = 2"))
    assert binding.filter is not None
    assert binding.filter.text == "b = 2"
    flow.noticed(Notice("CONSUMER_CLOSED", name, filter="a = 1"))
    flow.noticed(Notice("BINDING_REMOVED", name))
    assert node.all.by_name == flow.bindings == {}
    assert node.heard.events == ["+q", "+consumer a = 1", "-consumer a = 1", "-q"]


def test_a_queue_of_this_node_that_a_neighbour_reports_is_left_aside() -> None:
    node = Reporting()
    node.flow.reset()
    node.flow.noticed(Notice("BINDING_ADDED", f"q{OWN}", "q", "q", 11, 1))
    node.flow.noticed(Notice("CONSUMER_CREATED", f"q{OWN}"))
    node.flow.noticed(node.added(distance=1))
    node.flow.complete()
    assert list(node.all.by_name) == [f"q{NODE}"]
    node.flow.noticed(Notice("BINDING_REMOVED", f"q{OWN}"))
    assert node.heard.events == ["+q"]


def test_after_a_loss_queues_are_away_until_they_are_reported_again() -> None:
    node = Reporting()
    flow = node.flow
    for name in ("kept", "gone"):
        flow.noticed(node.added(name))
    flow.noticed(Notice("CONSUMER_CREATED", "kept" + NODE))
    flow.lose_link()
    kept = node.all.by_name["kept" + NODE]
    assert not kept.connected
    assert kept.consumers.count == 0
    flow.reset()
    flow.noticed(node.added("kept"))
    flow.complete()
    assert kept.connected
    assert list(node.all.by_name) == ["kept" + NODE]


def test_a_queue_that_was_made_again_has_another_id() -> None:
    node = Reporting()
    node.flow.noticed(node.added(queue_id=11))
    node.flow.noticed(node.added(queue_id=12))
    assert node.all.by_name["q" + NODE].remote_id == 12


def test_a_queue_that_two_nodes_report_is_known_once() -> None:
    node = Reporting()
    other = node.another("22222222-2222-3333-4444-555555555555")
    node.flow.noticed(node.added())
    other.noticed(node.added(distance=1))
    other.noticed(Notice("BINDING_REMOVED", "q" + NODE))
    assert node.all.by_name["q" + NODE].queue is node.flow.queue


def test_changes_of_unknown_queues_are_ignored_and_a_filter_that_is_none_is_an_error() -> None:
    node = Reporting()
    for kind in ("BINDING_REMOVED", "BINDING_UPDATED", "CONSUMER_CREATED", "CONSUMER_CLOSED"):
        node.flow.noticed(Notice(kind, "q" + NODE))
    with pytest.raises(InvalidSelector):
        node.flow.noticed(node.added(selector="a ="))
    assert node.all.by_name == {}


def test_an_address_is_balanced_while_other_nodes_have_queues_of_it() -> None:
    node = Reporting()
    directory = node.world.office.directory
    node.flow.noticed(node.added())
    queue = node.world.queue("q")
    assert directory.addresses["q"].balancer is not None
    directory.delete_queue("q")
    directory.delete_address("q")
    assert node.world.queue("q") is not queue
    assert directory.addresses["q"].balancer is not None
    node.flow.noticed(Notice("BINDING_REMOVED", "q" + NODE))
    assert directory.addresses["q"].balancer is None
    node.flow.noticed(node.added())
    node.all.close()
    assert directory.addresses["q"].balancer is None


def test_a_queue_of_a_wildcard_address_elsewhere_gets_messages_of_all_addresses_that_it_covers() -> None:
    node = Reporting()
    directory = node.world.office.directory
    directory.create_address("news.before", {RoutingType.MULTICAST})
    node.flow.noticed(Notice("BINDING_ADDED", "all" + NODE, "news.#", "all", 11, 0))
    directory.create_address("news.after", {RoutingType.MULTICAST})
    directory.create_address("sport", {RoutingType.MULTICAST})
    session = node.world.session()
    for address in ("news.before", "news.after", "news.not.there", "sport"):
        session.sends.send(Message(b"m", address=address))
    node.world.turn()
    assert node.flow.queue.message_count == 3
    node.flow.noticed(Notice("BINDING_REMOVED", "all" + NODE))
    assert [name for name, each in directory.addresses.items() if each.balancer is not None] == []
    assert "news.not.there" not in directory.addresses


@pytest.mark.parametrize(
    "properties",
    [
        {"_AMQ_ClusterName": 5},
        {},
        {"_AMQ_ClusterName": ""},
        {"_AMQ_ClusterName": "q", "_AMQ_FilterString": 5},
        {"_AMQ_ClusterName": "q", "_AMQ_Address": "q", "_AMQ_RoutingName": "q", "_AMQ_Distance": 0},
        {"_AMQ_ClusterName": "q", "_AMQ_Address": "q", "_AMQ_RoutingName": "q", "_AMQ_Binding_ID": "x"},
    ],
)
def test_an_incomplete_report_is_refused(properties: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        read_notice(Properties({"_AMQ_NotifType": "BINDING_ADDED", **properties}))


def test_other_notifications_are_no_reports() -> None:
    assert read_notice(Properties({"_AMQ_NotifType": "SESSION_CREATED"})) is None
    assert read_notice(Properties()) is None


@pytest.mark.parametrize(
    ("addresses", "address", "expected"),
    [
        ("", "orders", True),
        ("ord", "orders", True),
        ("ord", "news", False),
        ("ord,!orders.old", "orders.old.1", False),
        ("!orders", "news", True),
        (" ord , news", "news", True),
        ("", "$.artemis.internal.sf.c.1", False),
        ("", "activemq.notifications", False),
        ("it's", "it's", True),
    ],
)
@pytest.mark.parameter("cluster-connection/address")
def test_the_selector_takes_the_addresses_of_the_cluster_connection(
    addresses: str, address: str, expected: bool
) -> None:
    cluster = ClusterConnectionConfiguration("c", "c", address=addresses)
    selector = parse_filter(
        selector_of(
            cluster,
            internal_prefix="$.artemis.internal.",
            management_address="activemq.management",
            notifications="activemq.notifications",
        )
    )
    assert selector is not None
    properties = {"_AMQ_NotifType": "BINDING_ADDED", "_AMQ_Distance": 0, "_AMQ_Address": address}
    assert selector.matches(Message(b"", properties=Properties(properties))) is expected
    properties["_AMQ_Distance"] = 1
    assert not selector.matches(Message(b"", properties=Properties(properties)))
    if address[0] not in "$a":
        assert covers(address, *split_addresses(addresses)) is expected
