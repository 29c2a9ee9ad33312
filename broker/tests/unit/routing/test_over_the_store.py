"""Routing and sessions over the real store on a simulated disk: what a takeover finds is what was
confirmed, in order, with counts, duplicate ids and bodies.
"""

from __future__ import annotations

import random
import struct
from zlib import crc32

import pytest

from support.routing import World, callback_of, text
from support.store import DIRECTORY, StoreHarness
from understudy.errors import StoreVersionUnsupported
from understudy.message import DUPLICATE_ID
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.restore import restore
from understudy.store.messages.pages import Pages
from understudy.terms import RoutingType


class Node:
    """A post office on the store of a rig."""

    def __init__(
        self, rig: StoreHarness, owner: str, office: dict[str, object] | None = None, **settings: object
    ) -> None:
        self.rig = rig
        store = rig.activate(owner)
        self.world = World({"#": settings}, store=store, **(office or {}))
        self.restored = restore(self.world.office, store.state)

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
        session.consumers.create(0, queue)
        session.consumers.receive_credits(0, -1)
        self.settle()
        seen = callback_of(session)
        return seen.bodies(), seen.counts()


def test_a_takeover_finds_the_confirmed_messages() -> None:
    rig = StoreHarness(random.Random(1))
    node = Node(rig, "a")
    world = node.world
    world.queue()
    producer = world.session()
    for number in range(20):
        message = text(f"{number}", properties={DUPLICATE_ID: f"id-{number}"})
        producer.sends.send(message, world.answers.of(str(number)))
    assert world.answers.names == []
    node.settle()
    assert world.answers.names == [str(number) for number in range(20)]
    reader = world.session(transacted=True)
    reader.consumers.create(0, "q")
    reader.consumers.receive_credits(0, -1)
    node.settle()
    ids = [message.message_id for _, message, _ in callback_of(reader).delivered]
    reader.acknowledge(0, ids[4])
    reader.commit(world.answers.of("commit"))
    reader.acknowledge(0, ids[7])
    transacted = world.session(transacted=True)
    transacted.sends.send(text("open transaction"))
    node.settle()
    assert world.answers.error("commit") is None
    rig.die(power_loss=False)

    successor = Node(rig, "b")
    assert successor.restored == 15
    again = successor.world.session()
    again.sends.send(text("19", properties={DUPLICATE_ID: "id-19"}), successor.world.answers.of("duplicate"))
    successor.settle()
    assert successor.world.answers.error("duplicate") is None
    assert successor.bodies("q")[0] == [str(number).encode() for number in range(5, 20)]


def test_failed_deliveries_and_dead_letters_survive() -> None:
    rig = StoreHarness(random.Random(2))
    options = {"dead_letter_address": "DLQ", "max_delivery_attempts": 2}
    node = Node(rig, "a", **options)
    for name in ("q", "DLQ"):
        node.world.queue(name)
    node.world.session().sends.send(text("m"))
    for owner in ("b", "c"):
        reader = node.world.session()
        reader.consumers.create(0, "q")
        reader.consumers.receive_credits(0, -1)
        node.settle()
        reader.close(failed=True)
        node.settle()
        rig.die(power_loss=False)
        node = Node(rig, owner, **options)
    queue = node.world.office.directory.find_queue("q")
    assert queue is not None
    assert queue.message_count == 0
    bodies, counts = node.bodies("DLQ")
    assert (bodies, counts) == ([b"m"], [1])


def test_paged_bodies_are_read_back_from_the_log() -> None:
    rig = StoreHarness(random.Random(3))
    node = Node(rig, "a", max_size_bytes=0)
    queue = node.world.queue("t", address="news", routing_type=RoutingType.MULTICAST)
    node.world.queue("u", address="news", routing_type=RoutingType.MULTICAST)
    producer = node.world.session()
    for number in range(50):
        producer.sends.send(text(f"{number:0500}", "news"))
    node.settle()
    assert (queue.address.memory_bytes, queue.message_count) == (0, 50)
    expected = [f"{number:0500}".encode() for number in range(50)]
    assert node.bodies("t")[0] == expected
    assert node.bodies("u")[0] == expected
    rig.die(power_loss=False)
    assert Node(rig, "b").bodies("u")[0] == expected


def test_a_deleted_queue_stays_deleted() -> None:
    rig = StoreHarness(random.Random(4))
    node = Node(rig, "a")
    node.world.queue("gone")
    node.world.queue("kept", address="gone")
    session = node.world.session()
    session.sends.send(text("m", "gone"))
    session.queues.delete_queue("gone")
    session.queues.create_queue(QueueConfiguration(name="temporary", temporary=True))
    node.settle()
    rig.die(power_loss=False)
    successor = Node(rig, "b")
    assert sorted(successor.world.office.directory.queues) == ["kept"]
    assert sorted(successor.world.office.directory.addresses) == ["gone"]


def test_the_newest_duplicate_ids_survive_as_many_as_the_cache_holds() -> None:
    """id-cache-size, with ids of durable messages, of others (persist-id-cache) and of a transaction."""
    rig = StoreHarness(random.Random(5), id_cache_size=4)
    node = Node(rig, "a", office={"id_cache_size": 4})
    node.world.queue()
    producer, transacted = node.world.session(), node.world.session(transacted=True)
    for number in range(4):
        producer.sends.send(text("m", properties={DUPLICATE_ID: f"id-{number}"}))
    producer.sends.send(text("m", durable=False, properties={DUPLICATE_ID: "not durable"}))
    transacted.sends.send(text("m", properties={DUPLICATE_ID: "committed"}))
    transacted.commit(node.world.answers.of("commit"))
    transacted.sends.send(text("m", properties={DUPLICATE_ID: "never committed"}))
    node.settle()
    rig.die(power_loss=False)

    successor = Node(rig, "b", office={"id_cache_size": 4})
    address = successor.world.office.directory.addresses["q"]
    again = [b"id-0", b"id-1", b"never committed"]
    assert [each in address.duplicate_ids for each in again] == [False, False, False]
    known = [b"id-2", b"id-3", b"not durable", b"committed"]
    assert [each in address.duplicate_ids for each in known] == [True, True, True, True]
    # messages that are not durable are gone
    assert successor.bodies("q")[0] == [b"m"] * 5


def test_without_persist_id_cache_only_the_log_of_messages_remembers() -> None:
    rig = StoreHarness(random.Random(6))
    node = Node(rig, "a", office={"persist_id_cache": False})
    node.world.queue()
    node.world.session().sends.send(text("m", durable=False, properties={DUPLICATE_ID: "not durable"}))
    node.settle()
    assert b"not durable" in node.world.office.directory.addresses["q"].duplicate_ids
    rig.die(power_loss=False)
    successor = Node(rig, "b", office={"persist_id_cache": False})
    assert b"not durable" not in successor.world.office.directory.addresses["q"].duplicate_ids


def test_a_log_of_a_newer_version_is_refused_before_anything_is_changed() -> None:
    rig = StoreHarness(random.Random(7))
    node = Node(rig, "a")
    node.world.queue()
    node.settle()
    rig.die(power_loss=False)
    (path, *_) = (path for path in rig.volume.paths() if "segment-" in path)
    file = rig.disk("surgeon").open(path)
    block = bytearray(file.read(0, 4096))
    struct.pack_into("<H", block, 8, 99)
    struct.pack_into("<I", block, 12, 0)
    struct.pack_into("<I", block, 12, crc32(block))
    file.write(0, (bytes(block),))
    before = {path: rig.volume.content(path) for path in rig.volume.paths()}
    with pytest.raises(StoreVersionUnsupported, match="version 99") as caught:
        rig.activate("b")
    assert path in str(caught.value)
    assert {path: rig.volume.content(path) for path in rig.volume.paths()} == before


def test_paged_messages_that_the_log_has_and_others_wait_in_one_queue() -> None:
    """Reading ahead must not take the place of a message in a page file for one in the log, or the other way."""
    rig = StoreHarness(random.Random(1))
    pages = Pages(rig.disk("a"), f"{DIRECTORY}/paging", 1)
    node = Node(rig, "a", {"pages": pages}, max_size_bytes=0)
    world = node.world
    world.queue()
    producer = world.session()
    kinds = [True, False, False, True, True, False]
    for number, durable in enumerate(kinds):
        producer.sends.send(text(str(number), durable=durable))
    node.settle()
    (address,) = world.office.directory.addresses.values()
    assert address.paged_count == len(kinds)
    assert node.bodies("q")[0] == [b"0", b"1", b"2", b"3", b"4", b"5"]
