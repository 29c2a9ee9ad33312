"""The choice between queues of this node and those of other nodes (artemis-ha s. 7.6)."""

from __future__ import annotations

import struct

import pytest

from support.routing import World
from understudy.message import ROUTE_TO, ROUTING_TYPE, Message
from understudy.properties import BYTE, Properties
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.filter import parse_filter
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer, RemoteBinding, queue_ids
from understudy.terms import MessageLoadBalancing, RoutingType

NODES = [f"{number}1111111-2222-3333-4444-555555555555" for number in range(4)]
OFF, STRICT = MessageLoadBalancing.OFF, MessageLoadBalancing.STRICT
ON_DEMAND, OFF_WITH = MessageLoadBalancing.ON_DEMAND, MessageLoadBalancing.OFF_WITH_REDISTRIBUTION


class Cluster:
    """One node with the address ``a``, its queues, and queues of other nodes."""

    def __init__(self, mode: MessageLoadBalancing, *local: str, routing: RoutingType = RoutingType.ANYCAST) -> None:
        self.world = World()
        self.routing = routing
        directory = self.world.office.directory
        self.address = directory.create_address("a", {RoutingType.ANYCAST, RoutingType.MULTICAST})
        for name in local:
            directory.create_queue(QueueConfiguration(name, "a", routing))
        self.flows = [
            directory.create_queue(
                QueueConfiguration(f"sf.{node}", f"sf.{node}", RoutingType.MULTICAST, internal=True),
                may_create_address=True,
            )
            for node in range(4)
        ]
        self.balancer = Balancer(mode)
        self.address.balance_by(self.balancer)

    def remote(
        self, node: int, remote_id: int, *consumers: str | None, name: str = "q", selector: str | None = None
    ) -> RemoteBinding:
        routing_name = "a" if self.routing is RoutingType.ANYCAST else name
        binding = RemoteBinding(
            name + NODES[node],
            "a",
            routing_name,
            remote_id=remote_id,
            binding_id=1_000 + remote_id,
            distance=1,
            queue=self.flows[node],
            filter=parse_filter(selector),
        )
        for each in consumers:
            binding.consumers.add(each, parse_filter(each))
        self.balancer.add(binding)
        return binding

    def route(self, kind: RoutingType | None = None, queue: str | None = None, **properties: object) -> list[str]:
        """Names of the queues of one message, those of other nodes with the remote ids."""
        made = Properties(properties)  # type: ignore[arg-type]
        if kind is not None:
            made.set_typed(ROUTING_TYPE, BYTE, int(kind))
        message, queues = self.balancer.route(Message(b"", address="a", properties=made, message_id=7), queue)
        assert message.message_id == 7
        return [each.name + self._ids(message, each) for each in queues]

    @staticmethod
    def _ids(message: Message, queue: Queue) -> str:
        value = message.properties.get(ROUTE_TO + queue.name)
        return "" if value is None else str(queue_ids(value))


def test_on_demand_prefers_consumers_wherever_they_are() -> None:
    cluster = Cluster(ON_DEMAND, "q")
    cluster.remote(0, 11)
    wanted = cluster.remote(1, 12, None)
    assert [cluster.route() for _ in range(3)] == [["sf.1[12]"]] * 3
    wanted.consumers.remove(None)
    assert [cluster.route() for _ in range(3)] == [["q"]] * 3


def test_a_consumer_counts_only_for_messages_that_its_filter_takes() -> None:
    cluster = Cluster(ON_DEMAND, "q")
    cluster.remote(0, 11, "size > 5")
    assert cluster.route(size=6) == ["sf.0[11]"]
    assert cluster.route(size=5) == ["q"]
    cluster.balancer.remote["q" + NODES[0]].consumers.add(None, None)
    assert cluster.route(size=5) == ["sf.0[11]"]


def test_strict_takes_turns_without_consumers() -> None:
    cluster = Cluster(STRICT, "q")
    cluster.remote(0, 11)
    cluster.remote(1, 12, None)
    assert [cluster.route()[0] for _ in range(6)] == ["q", "sf.0[11]", "sf.1[12]"] * 2


def test_turns_are_in_the_order_in_which_queues_came() -> None:
    cluster = Cluster(STRICT)
    cluster.remote(0, 11)
    cluster.world.office.directory.create_queue(QueueConfiguration("q", "a", RoutingType.ANYCAST))
    cluster.remote(1, 12)
    assert [cluster.route()[0] for _ in range(6)] == ["sf.0[11]", "q", "sf.1[12]"] * 2
    cluster.balancer.remove("q" + NODES[0])
    cluster.remote(0, 11)
    assert [cluster.route()[0] for _ in range(3)] == ["q", "sf.1[12]", "sf.0[11]"]
    cluster.world.office.directory.delete_queue("q")
    assert {cluster.route()[0] for _ in range(4)} == {"sf.1[12]", "sf.0[11]"}


@pytest.mark.parametrize("mode", [OFF, OFF_WITH])
def test_off_leaves_anycast_messages_here(mode: MessageLoadBalancing) -> None:
    cluster = Cluster(mode, "q")
    cluster.remote(0, 11, None)
    assert cluster.route(RoutingType.ANYCAST) == ["q"]
    assert cluster.route() == ["q"]


def test_multicast_goes_to_every_name_once_and_to_one_of_each_name() -> None:
    cluster = Cluster(ON_DEMAND, "mine", "shared", routing=RoutingType.MULTICAST)
    cluster.remote(0, 11, name="b")
    cluster.remote(0, 12, name="c")
    cluster.remote(0, 13, None, name="shared")
    cluster.remote(1, 14, name="d", selector="size > 5")
    assert cluster.route(RoutingType.MULTICAST, size=1) == ["mine", "sf.0" + str([13, 11, 12])]
    assert cluster.route(RoutingType.MULTICAST, size=9)[-1] == "sf.1[14]"


def test_off_sends_multicast_messages_to_other_nodes() -> None:
    cluster = Cluster(OFF, "mine", routing=RoutingType.MULTICAST)
    cluster.remote(0, 11, name="b")
    assert cluster.route(RoutingType.MULTICAST) == ["mine", "sf.0[11]"]
    assert cluster.route() == ["mine"]


def test_a_node_that_is_away_is_not_preferred_and_gets_what_only_it_has() -> None:
    cluster = Cluster(STRICT, "q")
    away = cluster.remote(0, 11, None)
    away.connected = False
    assert [cluster.route() for _ in range(3)] == [["q"]] * 3
    alone = Cluster(ON_DEMAND, routing=RoutingType.MULTICAST)
    alone.remote(0, 12, name="subscription").connected = False
    assert alone.route() == ["sf.0[12]"]


def test_a_named_queue_is_looked_for_on_all_nodes() -> None:
    cluster = Cluster(ON_DEMAND, "q", "other")
    cluster.remote(0, 11, None, name="far")
    assert cluster.route(queue="far") == ["sf.0[11]"]
    assert cluster.route(queue="other") == ["other"]
    assert cluster.route(queue="none") == []


def test_an_anycast_message_does_not_go_to_a_subscription() -> None:
    cluster = Cluster(ON_DEMAND, routing=RoutingType.MULTICAST)
    cluster.remote(0, 11, None, name="subscription")
    assert cluster.route(RoutingType.ANYCAST) == []


def test_redistribution_takes_turns_among_consumers_elsewhere() -> None:
    cluster = Cluster(ON_DEMAND, "q")
    queue = cluster.world.office.directory.queues["q"]
    message = Message(b"", address="a")
    assert not cluster.balancer.wanted_elsewhere(queue)
    bindings = [cluster.remote(0, 11, None), cluster.remote(1, 12), cluster.remote(2, 13, None)]
    assert cluster.balancer.wanted_elsewhere(queue)
    chosen = []
    for _ in range(4):
        found = cluster.balancer.redistribute(message, queue)
        assert found is not None
        cluster.balancer.served(found)
        chosen.append(found.remote_id)
    assert chosen == [11, 13, 11, 13]
    for each in bindings:
        each.connected = False
    assert cluster.balancer.redistribute(message, queue) is None


@pytest.mark.parametrize("mode", [OFF, STRICT])
def test_off_and_strict_do_not_redistribute(mode: MessageLoadBalancing) -> None:
    cluster = Cluster(mode, "q")
    cluster.remote(0, 11, None)
    assert not cluster.balancer.wanted_elsewhere(cluster.world.office.directory.queues["q"])


@pytest.mark.parametrize("value", [b"", b"1234567", "text", 5, None])
def test_damaged_ids_are_no_ids(value: bytes | str | int | None) -> None:
    assert queue_ids(value) == []
    assert queue_ids(struct.pack(">2q", 1, 2)) == [1, 2]


def test_without_other_nodes_the_address_routes_as_before() -> None:
    cluster = Cluster(ON_DEMAND, "q")
    assert cluster.address.plain_queues == ()
    cluster.address.balance_by(None)
    cluster.address.routing_types = {RoutingType.ANYCAST}
    cluster.address.refresh()
    assert [each.name for each in cluster.address.plain_queues] == ["q"]


def test_a_store_and_forward_queue_that_was_deleted_gets_nothing() -> None:
    cluster = Cluster(ON_DEMAND, "q")
    cluster.remote(0, 11, None)
    cluster.world.office.directory.delete_queue("sf.0")
    assert cluster.route() == ["q"]
    queue = cluster.world.office.directory.queues["q"]
    assert cluster.balancer.redistribute(Message(b"", address="a"), queue) is None
