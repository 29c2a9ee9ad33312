"""Messages that another node of the cluster sends, with the ids of their queues (artemis-core s. 9.3)."""

from __future__ import annotations

import struct

import pytest

from support.routing import World, callback_of
from understudy.config.model import MessageLoadBalancing, RoutingType
from understudy.message import BRIDGE_DUPLICATE_ID, DUPLICATE_ID, ROUTE_TO, Message
from understudy.properties import Properties
from understudy.routing.configuration import QueueConfiguration
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer, RemoteBinding, queue_ids


def forwarded(body: str, *ids: int, address: str = "a", duplicate: int = 0) -> Message:
    properties = Properties({ROUTE_TO: struct.pack(f">{len(ids)}q", *ids)})
    if duplicate:
        properties[BRIDGE_DUPLICATE_ID] = bytes(16) + struct.pack(">q", duplicate)
    return Message(body.encode(), address=address, properties=properties)


class Receiving:
    def __init__(self) -> None:
        self.world = World()
        self.directory = self.world.office.directory
        self.directory.create_address("a", {RoutingType.MULTICAST, RoutingType.ANYCAST})
        self.node = self.world.session(of_cluster=True)

    def queue(self, name: str, **options: object) -> Queue:
        return self.directory.create_queue(
            QueueConfiguration(name, "a", RoutingType.MULTICAST, **options)  # type: ignore[arg-type]
        )

    def depths(self) -> dict[str, int]:
        self.world.turn()
        return {queue.name: queue.message_count for queue in self.directory.queues.values() if queue.message_count}


def test_only_the_named_queues_get_the_message_whatever_their_filters() -> None:
    node = Receiving()
    first, _, third = node.queue("b"), node.queue("c"), node.queue("d", filter="x = 1")
    node.node.send(forwarded("m", first.queue_id, third.queue_id))
    assert node.depths() == {"b": 1, "d": 1}


def test_a_consumer_does_not_see_the_ids() -> None:
    node = Receiving()
    queue = node.queue("b")
    node.node.send(forwarded("m", queue.queue_id))
    reader = node.world.session()
    reader.create_consumer(0, "b")
    reader.receive_consumer_credits(0, -1)
    node.world.turn()
    (delivered,) = callback_of(reader).delivered
    assert ROUTE_TO not in delivered[1].properties


def test_a_message_whose_queues_are_gone_is_routed_by_its_address() -> None:
    node = Receiving()
    gone = node.queue("b")
    node.directory.delete_queue("b")
    node.queue("b")
    node.node.send(forwarded("m", gone.queue_id))
    assert node.depths() == {"b": 1}


@pytest.mark.parametrize("address", ["unknown", "a"])
def test_a_message_that_no_queue_takes_is_answered_and_counted(address: str) -> None:
    node = Receiving()
    node.node.send(forwarded("m", 99, address=address), node.world.answers.of("m"))
    node.world.turn()
    assert node.world.answers.names == ["m"]
    assert node.world.answers.error("m") is None
    known = node.directory.addresses.get(address)
    assert (known is None) is (address == "unknown")
    assert known is None or known.messages_unrouted == 1
    assert node.depths() == {}


def test_a_message_that_is_sent_again_is_dropped() -> None:
    node = Receiving()
    queue = node.queue("b")
    for _ in range(2):
        node.node.send(forwarded("m", queue.queue_id, duplicate=7))
    assert node.depths() == {"b": 1}


def test_the_id_of_its_producer_does_not_count() -> None:
    """Without duplicate detection of bridges too: redistribution may bring a message back to its first member."""
    node = Receiving()
    queue = node.queue("b")
    node.world.session().send(Message(b"m", address="a", properties=Properties({DUPLICATE_ID: "one"})))
    back = forwarded("m", queue.queue_id)
    back.properties[DUPLICATE_ID] = "one"
    node.node.send(back.with_properties(back.properties))
    assert node.depths() == {"b": 2}


def test_a_client_cannot_name_queues() -> None:
    node = Receiving()
    one, _ = node.queue("b"), node.queue("c")
    node.world.session().send(forwarded("m", one.queue_id))
    assert node.depths() == {"b": 1, "c": 1}


def test_the_id_of_a_queue_further_away_sends_the_message_on() -> None:
    node = Receiving()
    flow = node.directory.create_queue(
        QueueConfiguration("sf", "sf", RoutingType.MULTICAST, internal=True), may_create_address=True
    )
    balancer = Balancer(MessageLoadBalancing.ON_DEMAND)
    name = "far" + "1" * 36
    balancer.add(RemoteBinding(name, "a", "far", remote_id=42, binding_id=77, distance=1, queue=flow, filter=None))
    node.directory.addresses["a"].balance_by(balancer)
    queue = node.queue("b")
    node.node.send(forwarded("m", 77, queue.queue_id))
    assert node.depths() == {"b": 1, "sf": 1}
    (entry,) = flow.browse((9, -1))
    assert queue_ids(flow.read(entry[1]).properties[ROUTE_TO + "sf"]) == [42]


def test_an_address_that_only_a_wildcard_address_here_covers_is_made() -> None:
    node = Receiving()
    queue = node.directory.create_queue(QueueConfiguration("all", "news.#", RoutingType.MULTICAST))
    node.node.send(forwarded("m", queue.queue_id, address="news.today"))
    assert node.depths() == {"all": 1}
