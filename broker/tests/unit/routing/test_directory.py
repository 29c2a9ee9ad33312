"""Addresses and queues: made, found, deleted, deployed."""

from __future__ import annotations

import pytest

from support.routing import FakeCallback, World, callback_of, text
from understudy.errors import (
    AddressExists,
    AddressHasBindings,
    AddressNotFound,
    InvalidQueueConfiguration,
    InvalidSelector,
    QueueExists,
    QueueInUse,
    QueueNotFound,
    SharedQueueMismatch,
    UnexpectedRoutingType,
)
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.terms import RoutingType


class Recorder:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def address_added(self, address: Address) -> None:
        self.seen.append(f"+{address.name}")

    def address_removed(self, address: Address) -> None:
        self.seen.append(f"-{address.name}")

    def queue_added(self, queue: Queue) -> None:
        self.seen.append(f"+{queue.address.name}::{queue.name}")

    def queue_removed(self, queue: Queue) -> None:
        self.seen.append(f"-{queue.address.name}::{queue.name}")

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        self.seen.append(f"+consumer {queue.name}")

    def queue_updated(self, queue: Queue) -> None:
        """Filters do not matter."""

    def settings_changed(self, address: Address) -> None:
        self.seen.append(f"settings of {address.name}")

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        self.seen.append(f"-consumer {queue.name}")


def test_a_queue_brings_its_address_and_listeners_hear_of_it() -> None:
    world = World()
    recorder = Recorder()
    world.office.directory.listeners.append(recorder)
    world.queue("q", address="a")
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.close(0)
    world.office.directory.delete_queue("q")
    world.office.directory.delete_address("a")
    assert recorder.seen == ["+a", "+a::q", "+consumer q", "-consumer q", "-a::q", "-a"]
    assert world.store.found().queues == {}
    assert world.store.found().addresses == {}


def test_names_are_taken_once() -> None:
    world = World()
    world.queue("q", address="a")
    with pytest.raises(QueueExists, match="q"):
        world.queue("q", address="b")
    with pytest.raises(AddressExists, match="a"):
        world.office.directory.create_address("a", {RoutingType.ANYCAST})
    assert "b" not in world.office.directory.addresses


def test_routing_types_are_added_if_the_settings_allow() -> None:
    world = World({"closed": {"auto_create_addresses": False}})
    world.queue("q", address="open")
    world.queue("t", address="open", routing_type=RoutingType.MULTICAST)
    assert world.office.directory.addresses["open"].routing_types == {RoutingType.ANYCAST, RoutingType.MULTICAST}
    world.office.directory.create_address("closed", {RoutingType.ANYCAST})
    with pytest.raises(UnexpectedRoutingType, match="multicast"):
        world.queue("u", address="closed", routing_type=RoutingType.MULTICAST)
    with pytest.raises(AddressNotFound, match="elsewhere"):
        World({"#": {"auto_create_addresses": False}}).queue("x", address="elsewhere")


def test_a_bad_filter_makes_nothing() -> None:
    world = World()
    before = world.store.last_sequence
    with pytest.raises(InvalidSelector):
        world.queue("q", filter="colour = = 'red'")
    assert world.office.directory.addresses == {}
    assert world.store.last_sequence == before


def test_a_number_that_no_client_could_read_makes_nothing() -> None:
    world = World()
    with pytest.raises(InvalidQueueConfiguration, match="max-consumers 2147483648 has more than 32 bits"):
        world.office.directory.create_queue(
            QueueConfiguration("q", "new", max_consumers=2**31), may_create_address=True
        )
    assert "new" not in world.office.directory.addresses


def test_lookup_by_plain_and_full_name() -> None:
    world = World()
    queue = world.queue("q", address="a")
    directory = world.office.directory
    assert directory.queue("q") is queue
    assert directory.queue("a::q") is queue
    assert directory.find_queue("b::q") is None
    with pytest.raises(QueueNotFound, match="b::q"):
        directory.queue("b::q")


def test_deleting_drops_messages_and_disconnects_consumers() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.consumers.create(7, "q")
    session.consumers.receive_credits(7, 1)
    for name in "ab":
        session.sends.send(text(name))
    world.turn()
    with pytest.raises(QueueInUse, match=r"1 consumer$"):
        world.office.directory.delete_queue("q")
    world.office.directory.delete_queue("q", disconnect=True)
    seen: FakeCallback = callback_of(session)
    assert seen.disconnected == [7]
    assert session.consumers.by_id == {}
    assert (queue.message_count, queue.delivering_count, world.office.memory.held_bytes) == (0, 0, 0)
    with pytest.raises(QueueNotFound):
        world.office.directory.delete_queue("q")


def test_addresses_with_queues_are_deleted_only_by_force() -> None:
    world = World()
    world.queue("q", address="a")
    with pytest.raises(AddressHasBindings, match=r"1 queue$"):
        world.office.directory.delete_address("a")
    world.office.directory.delete_address("a", force=True)
    assert world.office.directory.queues == {}
    with pytest.raises(AddressNotFound):
        world.office.directory.delete_address("a")


def test_temporary_queues_leave_nothing_in_the_log() -> None:
    world = World()
    before = world.store.last_sequence
    world.queue("t", durable=False, temporary=True)
    assert world.store.found().addresses == {}
    world.session().sends.send(text("m", "t"), world.answers.of("m"))
    assert world.answers.error("m") is None
    world.office.directory.delete_queue("t")
    assert world.office.directory.addresses == {}
    assert world.store.last_sequence == before


def test_a_durable_queue_on_the_address_of_a_temporary_one_brings_it_into_the_log() -> None:
    world = World()
    world.queue("t", durable=False, temporary=True)
    world.queue("q", address="t")
    assert [record.name for record in world.store.found().addresses.values()] == ["t"]
    world.office.directory.delete_queue("t")
    assert "t" in world.office.directory.addresses


def test_shared_queues_must_be_the_same() -> None:
    world = World()
    queue = world.queue("s", address="t", filter="a = 1")
    check = world.office.directory.check_shared
    check(queue, QueueConfiguration(name="s", address="t", filter=" a = 1 "))
    for other in (
        QueueConfiguration(name="s", address="u", filter="a = 1"),
        QueueConfiguration(name="s", address="t", filter="a = 2"),
    ):
        with pytest.raises(SharedQueueMismatch, match="exists"):
            check(queue, other)
    check(queue, QueueConfiguration(name="s", address="t", filter="a = 1", durable=False))


def test_an_unsaid_routing_type_is_that_of_the_settings() -> None:
    """Whatever the address takes (default-queue-routing-type); it gets the one it lacks."""
    world = World({"q": {"default_queue_routing_type": RoutingType.MULTICAST}})
    directory = world.office.directory
    address = directory.create_address("q", {RoutingType.ANYCAST})
    assert directory.create_queue(QueueConfiguration(name="q")).routing_type is RoutingType.MULTICAST
    assert address.routing_types == {RoutingType.ANYCAST, RoutingType.MULTICAST}


def test_an_address_that_came_with_its_queue_goes_with_it() -> None:
    """Unless it was made for itself, something is left of it, or the settings keep it."""
    world = World(
        {
            "kept": {"auto_delete_addresses": False},
            "later": {"auto_delete_addresses_delay": 1000},
            "#": {"auto_create_addresses": True},
        }
    )
    directory, session = world.office.directory, world.session()
    directory.create_address("asked", {RoutingType.ANYCAST})
    for name in ("asked", "kept", "later", "gone"):
        for queue in (name, f"{name}.second"):
            session.queues.create_queue(QueueConfiguration(name=queue, address=name, routing_type=RoutingType.ANYCAST))
        session.queues.delete_queue(f"{name}.second")
        assert name in directory.addresses
        session.queues.delete_queue(name)
    assert sorted(directory.addresses) == ["asked", "kept", "later"]


def test_a_temporary_queue_takes_no_address_with_it_that_lasts() -> None:
    world = World()
    directory = world.office.directory
    directory.create_address("lasts", {RoutingType.ANYCAST}, auto_created=True)
    for address in ("lasts", "passes"):
        directory.create_queue(
            QueueConfiguration(
                name="t", address=address, temporary=True, durable=False, routing_type=RoutingType.ANYCAST
            )
        )
        directory.delete_queue("t")
    assert sorted(directory.addresses) == ["lasts"]
