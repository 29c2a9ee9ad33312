"""Queues and addresses that are not needed any more."""

from __future__ import annotations

from typing import Any

import pytest

from support.routing import World, callback_of, text
from understudy.errors import DiskFull
from understudy.management.operations import queue_messages
from understudy.message import ROUTING_TYPE

PERIOD_MS = 1000


def used_world(settings: dict[str, Any] | None = None, **options: Any) -> World:
    """A queue made on demand that had one message and one consumer."""
    world = World({"#": settings or {}}, address_queue_scan_period_ms=PERIOD_MS, **options)
    producer = world.session()
    producer.sends.send(text("m", properties={ROUTING_TYPE: 1}))
    world.sync()
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.close(failed=False)
    return world


def test_idle_for_two_sweeps_then_queue_and_address_go() -> None:
    world = used_world()
    world.clock.advance(PERIOD_MS)
    assert "q" in world.office.directory.queues
    world.clock.advance(PERIOD_MS)
    assert world.office.directory.queues == {}
    assert world.office.directory.addresses == {}


def test_an_address_with_a_delay_stays_for_that_long() -> None:
    world = used_world({"auto_delete_addresses_delay": 3 * PERIOD_MS})
    world.clock.advance(2 * PERIOD_MS)
    assert (world.office.directory.queues, list(world.office.directory.addresses)) == ({}, ["q"])
    world.clock.advance(3 * PERIOD_MS)
    assert list(world.office.directory.addresses) == ["q"]
    world.clock.advance(PERIOD_MS)
    assert world.office.directory.addresses == {}


@pytest.mark.parametrize("fate", ["expired", "killed", "purged", "acknowledged"])
def test_a_queue_was_used_if_messages_left_it_although_nothing_ever_consumed_there(fate: str) -> None:
    world = World(address_queue_scan_period_ms=PERIOD_MS, message_expiry_scan_period_ms=PERIOD_MS)
    expiration = world.clock.wall_ms() + 1 if fate == "expired" else 0
    world.session().sends.send(text("m", properties={ROUTING_TYPE: 1}, expiration=expiration))
    world.sync()
    queue = world.office.directory.queues["q"]
    if fate == "killed":
        for _ in queue_messages.remove(world.office, queue, lambda reference: True):
            pass
    elif fate == "purged":
        queue.purge()
    elif fate == "acknowledged":
        session = world.session(transacted=True)
        session.consumers.create(0, "q")
        session.consumers.receive_credits(0, -1)
        world.turn()
        session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
        session.commit()
        session.close(failed=False)
    world.clock.advance(3 * PERIOD_MS)
    assert world.office.directory.queues == {}


def test_a_consumer_between_two_sweeps_begins_the_wait_anew() -> None:
    world = used_world()
    world.clock.advance(PERIOD_MS + 1)
    world.turn()
    session = world.session()
    session.consumers.create(0, "q")
    session.close(failed=False)
    world.clock.advance(PERIOD_MS)
    assert "q" in world.office.directory.queues
    world.clock.advance(PERIOD_MS)
    assert world.office.directory.queues == {}


def test_an_activation_deletes_empty_auto_created_queues() -> None:
    world = World({"kept.address": {"auto_delete_addresses": False}, "kept.queue": {"auto_delete_queues": False}})
    for name in ("empty", "kept.address", "kept.queue", "full"):
        world.session().sends.send(text("m", name, properties={ROUTING_TYPE: 1}))
    world.queue("made.by.a.client")
    for name in ("empty", "kept.address", "kept.queue"):
        # as after a restart, which forgets the use of a queue
        queue = world.office.directory.queues[name]
        queue.purge()
        queue.messages_killed = 0
    world.office.auto_deletion.sweep_at_activation()
    assert sorted(world.office.directory.queues) == ["full", "kept.queue", "made.by.a.client"]
    assert sorted(world.office.directory.addresses) == ["full", "kept.address", "kept.queue", "made.by.a.client"]


def test_a_full_disk_leaves_them_to_the_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    world = used_world()

    def refuse(queue_id: int) -> int:
        raise DiskFull("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "delete_queue", refuse)
        world.office.auto_deletion.sweep_at_activation()
    assert "q" in world.office.directory.queues
    world.clock.advance(2 * PERIOD_MS)
    assert world.office.directory.queues == {}


def test_messages_consumers_and_deliveries_keep_it() -> None:
    world = used_world(automatic=False)
    session = world.session()
    session.sends.send(text("on its way"))
    world.clock.advance(5 * PERIOD_MS)
    assert "q" in world.office.directory.queues
    world.sync()
    world.clock.advance(5 * PERIOD_MS)
    assert world.office.directory.queues["q"].message_count == 1
    world.office.directory.queues["q"].purge()
    session.consumers.create(0, "q")
    world.clock.advance(5 * PERIOD_MS)
    assert "q" in world.office.directory.queues
    transacted = world.session(transacted=True)
    transacted.sends.send(text("in a transaction"))
    session.consumers.close(0)
    world.clock.advance(5 * PERIOD_MS)
    assert "q" in world.office.directory.queues
    transacted.rollback()
    world.clock.advance(2 * PERIOD_MS)
    assert world.office.directory.queues == {}


def test_a_delay_and_a_message_count() -> None:
    world = used_world({"auto_delete_queues_delay": 10 * PERIOD_MS, "auto_delete_queues_message_count": 1})
    world.session().sends.send(text("left"))
    world.clock.advance(10 * PERIOD_MS)
    assert "q" in world.office.directory.queues
    world.clock.advance(PERIOD_MS)
    assert world.office.directory.queues == {}


def test_a_delay_begins_when_the_last_consumer_leaves_also_after_a_time_without_traffic() -> None:
    settings = {"auto_delete_queues_delay": 10 * PERIOD_MS}
    world = World({"#": settings}, address_queue_scan_period_ms=PERIOD_MS)
    world.session().sends.send(text("m", properties={ROUTING_TYPE: 1}))
    world.sync()
    session = world.session()
    session.consumers.create(0, "q")
    world.clock.advance(60 * PERIOD_MS)
    session.close(failed=False)
    queue = world.office.directory.queues["q"]
    queue.purge()
    assert queue.consumers.left_ms == world.clock.wall_ms()
    world.clock.advance(9 * PERIOD_MS)
    assert "q" in world.office.directory.queues
    world.clock.advance(3 * PERIOD_MS)
    assert world.office.directory.queues == {}


def test_queues_and_addresses_have_the_time_at_which_they_were_made() -> None:
    world = World()
    world.clock.advance(60 * PERIOD_MS)
    queue = world.queue("made")
    assert queue.created_ms == queue.address.empty_since_ms == world.clock.wall_ms()


def test_unused_queues_and_those_not_auto_created_stay() -> None:
    world = World(address_queue_scan_period_ms=PERIOD_MS)
    world.queue("unused", auto_created=True)
    world.queue("configured")
    session = world.session()
    session.consumers.create(0, "configured")
    session.close(failed=False)
    world.clock.advance(10 * PERIOD_MS)
    assert sorted(world.office.directory.queues) == ["configured", "unused"]


def test_the_settings_may_keep_them() -> None:
    world = used_world({"auto_delete_queues": False})
    world.clock.advance(10 * PERIOD_MS)
    assert "q" in world.office.directory.queues
    world = used_world({"auto_delete_addresses": False})
    world.clock.advance(10 * PERIOD_MS)
    assert world.office.directory.queues == {}
    assert "q" in world.office.directory.addresses


def test_an_unused_queue_is_deleted_only_if_configured() -> None:
    world = World(
        {"unused": {"auto_delete_queues_skip_usage_check": True, "auto_delete_addresses_skip_usage_check": True}},
        address_queue_scan_period_ms=100,
    )
    for name in ("unused", "kept"):
        world.queue(name, auto_created=True)
    world.clock.advance(1000)
    assert set(world.office.directory.queues) == {"kept"}
    assert set(world.office.directory.addresses) == {"kept"}


def test_a_sweep_of_many_queues_pauses_and_skips_those_that_are_gone() -> None:
    world = World()
    names = [f"q{number}" for number in range(400)]
    for name in names:
        world.queue(name)
    steps = world.office.auto_deletion.sweep()
    next(steps)
    for name in names[200:]:
        world.office.directory.delete_queue(name)
    assert len(list(steps)) >= 2
    assert len(world.office.directory.queues) == 200
