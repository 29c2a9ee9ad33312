"""Routing and sessions over the real store on a simulated disk: what a takeover finds is what was
confirmed, in order, with counts, duplicate ids and bodies.
"""

from __future__ import annotations

import random

from support.routing import World, callback_of, text
from support.store import Rig
from understudy.config.model import RoutingType
from understudy.message import DUPLICATE_ID
from understudy.routing.configuration import QueueConfiguration


class Node:
    """A post office on the store of a rig."""

    def __init__(self, rig: Rig, owner: str, **settings: object) -> None:
        self.rig = rig
        store = rig.activate(owner)
        self.world = World({"#": settings}, store=store)
        self.restored = self.world.office.restore(store.state)

    def settle(self) -> None:
        """Turns of the loop until the log is on the medium and everything is delivered."""
        assert self.rig.store is not None
        store = self.rig.store
        while True:
            self.world.turn()
            store.flush()
            if store.context.durable >= store.last_sequence and not self.world.office.dirty:
                return
            self.rig.time.advance(10)

    def bodies(self, queue: str) -> tuple[list[bytes], list[int]]:
        session = self.world.session()
        session.create_consumer(0, queue)
        session.receive_consumer_credits(0, -1)
        self.settle()
        seen = callback_of(session)
        return seen.bodies(), seen.counts()


def test_a_takeover_finds_what_was_confirmed() -> None:
    rig = Rig(random.Random(1))
    node = Node(rig, "a")
    world = node.world
    world.queue()
    producer = world.session()
    for number in range(20):
        message = text(f"{number}", properties={DUPLICATE_ID: f"id-{number}"})
        producer.send(message, world.answers.of(str(number)))
    assert world.answers.names == []
    node.settle()
    assert world.answers.names == [str(number) for number in range(20)]
    reader = world.session(transacted=True)
    reader.create_consumer(0, "q")
    reader.receive_consumer_credits(0, -1)
    node.settle()
    ids = [message.message_id for _, message, _ in callback_of(reader).delivered]
    reader.acknowledge(0, ids[4])
    reader.commit(world.answers.of("commit"))
    reader.acknowledge(0, ids[7])
    transacted = world.session(transacted=True)
    transacted.send(text("open transaction"))
    node.settle()
    assert world.answers.error("commit") is None
    rig.die(power_loss=False)

    successor = Node(rig, "b")
    assert successor.restored == 15
    again = successor.world.session()
    again.send(text("19", properties={DUPLICATE_ID: "id-19"}), successor.world.answers.of("duplicate"))
    successor.settle()
    assert successor.world.answers.error("duplicate") is None
    assert successor.bodies("q")[0] == [str(number).encode() for number in range(5, 20)]


def test_failed_deliveries_and_dead_letters_survive() -> None:
    rig = Rig(random.Random(2))
    options = {"dead_letter_address": "DLQ", "max_delivery_attempts": 2}
    node = Node(rig, "a", **options)
    for name in ("q", "DLQ"):
        node.world.queue(name)
    node.world.session().send(text("m"))
    for owner in ("b", "c"):
        reader = node.world.session()
        reader.create_consumer(0, "q")
        reader.receive_consumer_credits(0, -1)
        node.settle()
        reader.close(failed=True)
        node.settle()
        rig.die(power_loss=False)
        node = Node(rig, owner, **options)
    queue = node.world.office.find_queue("q")
    assert queue is not None
    assert queue.message_count == 0
    bodies, counts = node.bodies("DLQ")
    assert (bodies, counts) == ([b"m"], [1])


def test_paged_bodies_are_read_back_from_the_log() -> None:
    rig = Rig(random.Random(3))
    node = Node(rig, "a", max_size_bytes=0)
    queue = node.world.queue("t", address="news", routing_type=RoutingType.MULTICAST)
    node.world.queue("u", address="news", routing_type=RoutingType.MULTICAST)
    producer = node.world.session()
    for number in range(50):
        producer.send(text(f"{number:0500}", "news"))
    node.settle()
    assert (queue.address.memory_bytes, queue.message_count) == (0, 50)
    expected = [f"{number:0500}".encode() for number in range(50)]
    assert node.bodies("t")[0] == expected
    assert node.bodies("u")[0] == expected
    rig.die(power_loss=False)
    assert Node(rig, "b").bodies("u")[0] == expected


def test_a_deleted_queue_stays_deleted() -> None:
    rig = Rig(random.Random(4))
    node = Node(rig, "a")
    node.world.queue("gone")
    node.world.queue("kept", address="gone")
    session = node.world.session()
    session.send(text("m", "gone"))
    session.queues.delete_queue("gone")
    session.queues.create_queue(QueueConfiguration(name="temporary", temporary=True))
    node.settle()
    rig.die(power_loss=False)
    successor = Node(rig, "b")
    assert sorted(successor.world.office.directory.queues) == ["kept"]
    assert sorted(successor.world.office.directory.addresses) == ["gone"]
