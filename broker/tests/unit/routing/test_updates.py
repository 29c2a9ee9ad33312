"""Updates of an existing queue: changed, unchanged and refused settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.routing import World, callback_of, text
from understudy.errors import InvalidQueueConfiguration, InvalidSelector, UnexpectedRoutingType
from understudy.routing.addresses.updates import (
    change_queue,
    change_routing_types,
    pause_address,
    pause_queue,
    resume_address,
    resume_queue,
)
from understudy.routing.queues.queue import Queue
from understudy.routing.restore import restore
from understudy.terms import DivertDefinition, RoutingType


def change(world: World, queue: Queue, **changes: object) -> None:
    change_queue(world.office, queue, replace(queue.configuration, **changes))  # type: ignore[arg-type]


def test_everything_that_may_change_does_and_is_found_after_a_restart() -> None:
    world = World()
    queue = world.queue()
    changes = {
        "max_consumers": 4, "purge_on_no_consumers": False, "exclusive": True, "group_rebalance": True,
        "group_rebalance_pause_dispatch": True, "group_buckets": 8, "group_first_key": "first",
        "last_value_key": "code", "non_destructive": True, "consumers_before_dispatch": 2, "delay_before_dispatch": 70,
        "ring_size": 9, "enabled": False, "filter": "a = 1",
    }  # fmt: skip
    change(world, queue, **changes)
    for settings in ({}, {"#": {"default_last_value_key": "other", "default_ring_size": 1}}):
        successor = World(settings, store=world.store)
        restore(successor.office, world.store.found())
        restored = successor.office.directory.queues["q"]
        for found in (queue, restored):
            full = found.configuration
            assert {name: getattr(full, name) for name in changes} == changes
            assert full.last_value
            assert found.filter is not None
            assert not found.enabled


def test_settings_that_a_client_left_out_do_not_follow_later_address_settings() -> None:
    world = World()
    world.queue()
    later = World({"q": {"default_last_value_key": "code", "default_group_first_key": "f"}}, store=world.store)
    restore(later.office, world.store.found())
    full = later.office.directory.queues["q"].configuration
    assert (full.last_value, full.last_value_key, full.group_first_key) == (False, None, None)


def test_the_same_again_writes_nothing() -> None:
    world = World()
    queue = world.queue(ring_size=3, filter="a = 1")
    written = world.store.last_sequence
    change(world, queue, ring_size=3)
    assert world.store.last_sequence == written


def test_a_disabled_queue_takes_no_messages_and_delivers_those_it_has() -> None:
    world = World()
    queue, other = world.queue("q"), world.queue("other", address="q")
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    change(world, queue, enabled=False)
    for address in ("q", "q", "q::q"):
        session.sends.send(text("m", address))
    assert (queue.message_count, other.message_count) == (0, 2)
    change(world, queue, enabled=True)
    session.sends.send(text("m"))
    world.turn()
    assert callback_of(session).bodies() == [b"m"]
    assert callback_of(session).errors == []


def test_messages_for_disabled_queues_only_are_dropped_and_confirmed() -> None:
    world = World()
    queue = world.queue(enabled=False)
    world.session().sends.send(text("m"), world.answers.of("m"))
    assert world.answers.error("m") is None
    assert (queue.message_count, queue.address.messages_unrouted) == (0, 1)


def test_a_queue_named_by_its_sender_takes_no_more_than_it_takes_otherwise() -> None:
    world = World()
    queue = world.queue(purge_on_no_consumers=True)
    world.session().sends.send(text("m", "q::q"))
    assert queue.message_count == 0


def test_a_filter_comes_and_goes() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    change(world, queue, filter="a = 1")
    session.sends.send(text("dropped"))
    session.sends.send(text("taken", properties={"a": 1}))
    change(world, queue, filter="")
    assert queue.configuration.filter is None
    session.sends.send(text("taken too"))
    assert queue.message_count == 2


def test_becoming_a_last_value_queue_and_an_ordinary_one_again() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    for number in range(3):
        session.sends.send(text(str(number), properties={"code": "k"}))
    change(world, queue, last_value_key="code")
    assert (queue.message_count, queue.messages_replaced) == (1, 2)
    session.sends.send(text("3", properties={"code": "k"}))
    assert queue.message_count == 1
    change(world, queue, last_value=False)
    assert queue.configuration.last_value_key is None
    session.sends.send(text("4", properties={"code": "k"}))
    assert queue.message_count == 2


def test_a_refused_update_changes_nothing() -> None:
    world = World()
    queue = world.queue()
    for number in range(2):
        world.session().consumers.create(number, "q")
    before = queue.configuration
    with pytest.raises(InvalidQueueConfiguration, match="more than 1"):
        change(world, queue, max_consumers=1)
    with pytest.raises(InvalidQueueConfiguration, match="group-buckets 4294967296 has more than 32 bits"):
        change(world, queue, group_buckets=2**32)
    with pytest.raises(InvalidQueueConfiguration, match="durable cannot be changed"):
        change_queue(world.office, queue, replace(before, durable=False))
    with pytest.raises(UnexpectedRoutingType):
        change(world, queue, routing_type=RoutingType.MULTICAST)
    with pytest.raises(InvalidSelector):
        change(world, queue, filter="a =")
    assert queue.configuration == before
    assert world.store.found().queues[queue.queue_id].settings.get("max_consumers") == -1


def test_routing_types_of_an_address() -> None:
    world = World()
    address = world.queue().address
    change_routing_types(world.office, address, [RoutingType.ANYCAST, RoutingType.MULTICAST])
    assert world.store.found().addresses[address.address_id].routing_types == (0, 1)
    with pytest.raises(UnexpectedRoutingType, match="anycast queue 'q'"):
        change_routing_types(world.office, address, [RoutingType.MULTICAST])
    with pytest.raises(UnexpectedRoutingType, match="no routing type"):
        change_routing_types(world.office, address, [])


def test_a_run_of_messages_goes_the_short_way_to_ordinary_queues_only() -> None:
    world = World()
    queue = world.queue()
    address = queue.address
    assert address.plain_queues == (queue,)
    world.office.diverts.create(DivertDefinition("d", "q", "copy"))
    assert address.plain_queues == ()
    world.office.diverts.destroy("d")
    assert address.plain_queues == (queue,)
    for changes in ({"enabled": False}, {"purge_on_no_consumers": True}, {"filter": "a = 1"}):
        change(world, queue, **changes)
        assert address.plain_queues == ()
        change(world, queue, enabled=True, purge_on_no_consumers=False, filter="")
        assert address.plain_queues == (queue,)
    change(world, queue, ring_size=2)
    assert address.plain_queues == ()


def paused_after_a_restart(world: World) -> bool:
    successor = World(store=world.store)
    restore(successor.office, world.store.found())
    return successor.office.directory.queues["q"].paused


def test_a_pause_holds_deliveries_and_may_outlast_a_restart() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    pause_queue(world.office, queue, persist=False)
    session.sends.send(text("a"))
    world.turn()
    assert callback_of(session).delivered == []
    assert not paused_after_a_restart(world)
    pause_queue(world.office, queue, persist=True)
    assert paused_after_a_restart(world)
    resume_queue(world.office, queue)
    world.turn()
    assert callback_of(session).bodies() == [b"a"]
    assert not paused_after_a_restart(world)


def test_a_paused_address_pauses_its_queues_and_those_bound_later() -> None:
    world = World()
    queue = world.queue("q")
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    pause_address(world.office, queue.address, persist=False)
    later = world.queue("later", address="q")
    session.sends.send(text("a"))
    world.turn()
    assert callback_of(session).delivered == []
    assert later.paused
    resume_queue(world.office, queue)
    world.turn()
    assert callback_of(session).delivered == [], "a queue cannot be resumed while its address is paused"
    resume_address(world.office, queue.address)
    world.turn()
    assert callback_of(session).bodies() == [b"a"]
    assert not later.paused


@pytest.mark.parametrize("persist", [False, True])
def test_only_a_persisted_pause_of_an_address_is_found_after_a_restart(persist: bool) -> None:
    world = World()
    queue = world.queue("q")
    pause_address(world.office, queue.address, persist=persist)
    successor = World(store=world.store)
    restore(successor.office, world.store.found())
    assert successor.office.directory.addresses["q"].paused is persist
    assert successor.office.directory.queues["q"].paused is persist
    resume_address(successor.office, successor.office.directory.addresses["q"])
    third = World(store=world.store)
    restore(third.office, world.store.found())
    assert not third.office.directory.queues["q"].paused
