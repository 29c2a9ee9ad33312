"""Messages that another node of the cluster sends, with the ids of their queues (artemis-core s. 9.3)."""

from __future__ import annotations

import struct

import pytest

from support.routing import World, callback_of
from support.xa import XID
from understudy.errors import DiskFull
from understudy.message import (
    ACK_ROUTE_TO,
    BRIDGE_DUPLICATE_ID,
    DUPLICATE_ID,
    KEPT_DUPLICATE_ID,
    ROUTE_TO,
    ROUTING_TYPE,
    SCALE_DOWN_TO,
    Message,
)
from understudy.properties import Properties
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer, RemoteBinding, queue_ids
from understudy.session.session import ServerSession
from understudy.terms import DivertDefinition, MessageLoadBalancing, RoutingType


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
    node.node.sends.send(forwarded("m", first.queue_id, third.queue_id))
    assert node.depths() == {"b": 1, "d": 1}


def test_a_consumer_does_not_see_the_ids() -> None:
    node = Receiving()
    queue = node.queue("b")
    node.node.sends.send(forwarded("m", queue.queue_id))
    reader = node.world.session()
    reader.consumers.create(0, "b")
    reader.consumers.receive_credits(0, -1)
    node.world.turn()
    (delivered,) = callback_of(reader).delivered
    assert ROUTE_TO not in delivered[1].properties


def test_a_message_whose_queues_are_gone_is_routed_by_its_address() -> None:
    node = Receiving()
    gone = node.queue("b")
    node.directory.delete_queue("b")
    node.queue("b")
    node.node.sends.send(forwarded("m", gone.queue_id))
    assert node.depths() == {"b": 1}


@pytest.mark.parametrize("address", ["unknown", "a"])
def test_a_message_that_no_queue_takes_is_answered_and_counted(address: str) -> None:
    node = Receiving()
    node.node.sends.send(forwarded("m", 99, address=address), node.world.answers.of("m"))
    node.world.turn()
    assert node.world.answers.names == ["m"]
    assert node.world.answers.error("m") is None
    known = node.directory.addresses.get(address)
    assert (known is None) is (address == "unknown")
    assert known is None or known.messages_unrouted == 1
    assert node.depths() == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exclusive": True}, {"other": 1}),
        ({"exclusive": True, "filter": "x = 1"}, {"b": 1}),
        # copies were made where the message was sent
        ({"exclusive": False}, {"b": 1}),
    ],
)
def test_an_exclusive_divert_takes_it_before_the_named_queues(
    options: dict[str, object], expected: dict[str, int]
) -> None:
    node = Receiving()
    queue = node.queue("b")
    other = node.world.queue("other", routing_type=RoutingType.MULTICAST)
    node.world.office.diverts.create(DivertDefinition("d", "a", "other", **options))  # type: ignore[arg-type]
    assert queue.address.takes_for_members([queue]) is not options["exclusive"]
    for _ in range(2):
        node.node.sends.send(forwarded("m", queue.queue_id, duplicate=7), node.world.answers.of("m"))
    assert node.depths() == expected
    assert node.world.answers.names == ["m", "m"]
    for _, reference in other.browse((9, -1)):
        copy = other.read(reference).properties
        assert ROUTE_TO not in copy
        assert copy["_AMQ_ORIG_ADDRESS"] == "a"


def test_a_message_that_is_sent_again_is_dropped() -> None:
    node = Receiving()
    queue = node.queue("b")
    for _ in range(2):
        node.node.sends.send(forwarded("m", queue.queue_id, duplicate=7))
    assert node.depths() == {"b": 1}


def test_the_id_of_its_producer_does_not_count() -> None:
    """Without duplicate detection of bridges too: redistribution may bring a message back to its first member."""
    node = Receiving()
    queue = node.queue("b")
    node.world.session().sends.send(Message(b"m", address="a", properties=Properties({DUPLICATE_ID: "one"})))
    back = forwarded("m", queue.queue_id)
    back.properties[DUPLICATE_ID] = "one"
    node.node.sends.send(back.with_properties(back.properties))
    assert node.depths() == {"b": 2}


def test_a_client_cannot_name_queues() -> None:
    node = Receiving()
    one, _ = node.queue("b"), node.queue("c")
    node.world.session().sends.send(forwarded("m", one.queue_id))
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
    node.node.sends.send(forwarded("m", 77, queue.queue_id))
    assert node.depths() == {"b": 1, "sf": 1}
    (entry,) = flow.browse((9, -1))
    assert queue_ids(flow.read(entry[1]).properties[ROUTE_TO + "sf"]) == [42]


@pytest.mark.parametrize("asked", [None, RoutingType.ANYCAST])
@pytest.mark.parametrize("mode", list(MessageLoadBalancing))
def test_a_queue_is_made_here_only_if_the_messages_may_not_go_to_that_of_another_node(
    mode: MessageLoadBalancing, asked: RoutingType | None
) -> None:
    node = Receiving()
    flow = node.directory.create_queue(
        QueueConfiguration("sf", "sf", RoutingType.MULTICAST, internal=True), may_create_address=True
    )
    node.directory.create_address("far", {RoutingType.ANYCAST})
    balancer = Balancer(mode)
    name = "far" + "1" * 36
    balancer.add(RemoteBinding(name, "far", "far", remote_id=42, binding_id=77, distance=1, queue=flow, filter=None))
    node.directory.addresses["far"].balance_by(balancer)
    properties = Properties() if asked is None else Properties({ROUTING_TYPE: int(asked)})
    for number in range(3):
        node.world.session().sends.send(Message(b"%d" % number, address="far", properties=properties))
    leaves = mode in (MessageLoadBalancing.STRICT, MessageLoadBalancing.ON_DEMAND)
    assert node.depths() == {"sf" if leaves else "far": 3}


def test_an_address_that_only_a_wildcard_address_here_covers_is_made() -> None:
    node = Receiving()
    queue = node.directory.create_queue(QueueConfiguration("all", "news.#", RoutingType.MULTICAST))
    node.node.sends.send(forwarded("m", queue.queue_id, address="news.today"))
    assert node.depths() == {"all": 1}


def test_a_divert_does_not_see_the_message_again() -> None:
    """The member that its producer sent it to has diverted it (as Artemis: the ids decide alone)."""
    node = Receiving()
    queue = node.queue("b")
    node.directory.create_address("copies", {RoutingType.MULTICAST})
    node.directory.create_queue(QueueConfiguration("c", "copies", RoutingType.MULTICAST))
    node.world.office.diverts.create(DivertDefinition("d", address="a", forwarding_address="copies"))
    node.world.session().sends.send(Message(b"m", address="a"))
    node.node.sends.send(forwarded("m", queue.queue_id))
    assert node.depths() == {"b": 2, "c": 1}


def kept(ids: int, queue: str, duplicate: int = 0) -> Message:
    """A message that a node that is scaled down kept for a third one."""
    message = forwarded("m", ids, duplicate=duplicate)
    properties = message.properties.copy()
    properties[SCALE_DOWN_TO + queue] = properties.pop(ROUTE_TO)
    return message.with_properties(properties)


def test_a_message_for_a_third_node_waits_in_the_queue_that_leads_there() -> None:
    node = Receiving()
    flow = node.directory.create_queue(
        QueueConfiguration("sf", "sf", RoutingType.MULTICAST, internal=True), may_create_address=True
    )
    node.queue("b")
    for _ in range(2):
        node.node.sends.send(kept(42, "sf", duplicate=7))
    assert node.depths() == {"sf": 1}
    ((_, reference),) = flow.browse((9, -1))
    message = flow.read(reference)
    assert queue_ids(message.properties[ROUTE_TO + "sf"]) == [42]
    assert message.address == "a"
    assert message.properties[BRIDGE_DUPLICATE_ID][16:] == struct.pack(">q", 7), "the third node knows it by this id"


def test_a_message_that_two_nodes_have_kept_has_the_id_of_the_first_one() -> None:
    """A message that the second node sends again is recognised by the id of the first node, which may have sent it."""
    node = Receiving()
    flow = node.directory.create_queue(
        QueueConfiguration("sf", "sf", RoutingType.MULTICAST, internal=True), may_create_address=True
    )
    for duplicate in (8, 8, 9):
        message = kept(42, "sf", duplicate=duplicate)
        properties = message.properties.copy()
        properties[KEPT_DUPLICATE_ID] = b"of the first"
        node.node.sends.send(message.with_properties(properties))
    assert node.depths() == {"sf": 2}
    for _, reference in flow.browse((9, -1)):
        properties = flow.read(reference).properties
        assert properties[BRIDGE_DUPLICATE_ID] == b"of the first"
        assert KEPT_DUPLICATE_ID not in properties


@pytest.mark.parametrize("queue", ["b", "unknown"])
def test_only_a_queue_of_the_broker_can_keep_it(queue: str) -> None:
    node = Receiving()
    node.queue("b")
    node.node.sends.send(kept(42, queue))
    assert node.depths() == {"b": 1}, "it is routed by its address"


def test_ids_at_a_third_node_as_artemis_sends_them() -> None:
    node = Receiving()
    flow = node.directory.create_queue(
        QueueConfiguration("sf", "sf", RoutingType.MULTICAST, internal=True), may_create_address=True
    )
    balancer = Balancer(MessageLoadBalancing.ON_DEMAND)
    name = "far" + "1" * 36
    balancer.add(RemoteBinding(name, "a", "far", remote_id=42, binding_id=77, distance=1, queue=flow, filter=None))
    node.directory.addresses["a"].balance_by(balancer)
    node.node.sends.send(kept(42, ""))
    assert node.depths() == {"sf": 1}


def acknowledged_there(node: Receiving) -> tuple[Queue, ServerSession, ServerSession]:
    """A queue with a consumer, the session of that, and an XA session with a message taken out of the queue."""
    queue = node.queue("b")
    reader = node.world.session()
    reader.consumers.create(0, "b")
    reader.consumers.receive_credits(0, -1)
    session = node.world.session(of_cluster=True, xa=True, auto_commit_sends=False, auto_commit_acks=False)
    session.branches.start(XID)
    message = forwarded("m", queue.queue_id)
    properties = message.properties.copy()
    properties[ACK_ROUTE_TO] = properties[ROUTE_TO]
    session.sends.send(message.with_properties(properties), node.world.answers.of("sent"))
    node.world.turn()
    assert node.world.answers.names == ["sent"]
    assert callback_of(reader).delivered == []
    return queue, reader, session


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_its_branch_has_acknowledged_comes_only_if_that_is_rolled_back(*, commits: bool) -> None:
    node = Receiving()
    queue, reader, session = acknowledged_there(node)
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    node.world.turn()
    assert (queue.message_count, queue.delivering_count) == (1, 1)
    assert callback_of(reader).delivered == []
    if commits:
        session.branches.commit(XID, one_phase=False, done=node.world.answers.of("committed"))
    else:
        session.branches.roll_back(XID)
    node.world.turn()
    assert len(callback_of(reader).delivered) == (0 if commits else 1)
    assert queue.message_count == (0 if commits else 1)


def test_a_message_of_a_branch_that_was_cut_off_before_it_was_prepared_does_not_come() -> None:
    """The other node has the message and sends it again; the simulation found it delivered twice (members, 2815)."""
    node = Receiving()
    queue, reader, session = acknowledged_there(node)
    assert queue.message_count == 0
    session.close(failed=True)
    node.world.turn()
    assert callback_of(reader).delivered == []
    assert (queue.message_count, queue.incoming, queue.address.size_bytes) == (0, 0, 0)
    assert not any(node.world.store.found().references.values())


def test_a_full_disk_leaves_no_message_of_a_branch_that_cannot_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Receiving()
    queue, reader, session = acknowledged_there(node)
    message = forwarded("n", queue.queue_id)
    properties = message.properties.copy()
    properties[ACK_ROUTE_TO] = properties[ROUTE_TO]
    session.sends.send(message.with_properties(properties))
    session.branches.end(XID, failed=False)
    store, stored = node.world.office.store, []

    def store_message(*arguments: object, **options: object) -> object:
        if stored:
            raise DiskFull("full")
        stored.append(1)
        return old(*arguments, **options)

    old = store.store_message
    monkeypatch.setattr(store, "store_message", store_message)
    with pytest.raises(DiskFull):
        session.branches.prepare(XID)
    session.branches.roll_back(XID)
    node.world.turn()
    assert callback_of(reader).delivered == []
    assert (queue.message_count, queue.incoming) == (0, 0)


def test_duplicate_ids_of_another_node_count_here() -> None:
    node = Receiving()
    node.queue("b")
    office = node.world.office
    for address in ("a", "new"):
        office.learn_duplicate_ids(address, (b"one", b"\xff\x00"), node.world.answers.of(address))
    node.world.turn()
    assert node.world.answers.names == ["a", "new"]
    producer = node.world.session()
    for duplicate_id in ("one", b"\xff\x00", "two"):
        producer.sends.send(Message(b"m", address="a", properties=Properties({DUPLICATE_ID: duplicate_id})))
    assert node.depths() == {"b": 1}
    assert list(node.directory.addresses["new"].duplicate_ids) == [b"one", b"\xff\x00"]
