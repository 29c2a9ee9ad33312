"""What an operator changes of queues and addresses, and that a restart finds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.routing import FakeStore, World, callback_of, text
from understudy.config.model import RoutingType
from understudy.errors import InvalidQueueConfiguration, InvalidSelector, UnexpectedRoutingType
from understudy.routing.changes import change_queue, change_routing_types, pause_queue, resume_queue
from understudy.routing.queue import Queue


def change(world: World, queue: Queue, **changes: object) -> None:
    change_queue(world.office, queue, replace(queue.configuration, **changes))  # type: ignore[arg-type]


def restarted(world: World) -> World:
    """A node that finds what this one wrote."""
    state = world.store.state()
    store = FakeStore()
    store.addresses, store.queues = dict(world.store.addresses), dict(world.store.queues)
    store.bodies, store.references = world.store.bodies, world.store.references
    again = World(store=store)
    again.office.restore(state)
    return again


def test_limits_and_filter_change_and_last() -> None:
    world = World()
    queue = world.queue()
    change(world, queue, max_consumers=1, filter="n = 1", exclusive=True, purge_on_no_consumers=False)
    found = restarted(world).office.find_queue("q")
    assert found is not None
    assert (found.configuration.max_consumers, found.exclusive) == (1, True)
    assert found.filter is not None
    assert found.filter.text == "n = 1"


def test_a_new_filter_counts_for_what_is_sent_from_now_on() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.send(text("before", properties={"n": 2}))
    change(world, queue, filter="n = 1")
    session.send(text("refused", properties={"n": 2}))
    session.send(text("taken", properties={"n": 1}))
    assert [queue.read(reference).body for _, reference in queue.browse((9, -1))] == [b"before", b"taken"]


def test_purging_begins_when_it_is_asked_for() -> None:
    world = World()
    queue = world.queue()
    world.session().send(text("a"))
    change(world, queue, purge_on_no_consumers=True)
    world.session().send(text("b"))
    assert queue.message_count == 1, "without consumers nothing more comes in"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"durable": False}, InvalidQueueConfiguration),
        ({"name": "r"}, InvalidQueueConfiguration),
        ({"address": "elsewhere"}, InvalidQueueConfiguration),
        ({"last_value": True}, InvalidQueueConfiguration),
        ({"max_consumers": 1}, InvalidQueueConfiguration),
        ({"routing_type": RoutingType.MULTICAST}, UnexpectedRoutingType),
        ({"filter": "n = "}, InvalidSelector),
    ],
)
def test_what_cannot_change_changes_nothing(changes: dict[str, object], error: type[Exception]) -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.create_consumer(0, "q")
    session.create_consumer(1, "q")
    before, written = queue.configuration, world.store.last_sequence
    with pytest.raises(error):
        change(world, queue, **changes)
    assert queue.configuration == before
    assert world.store.last_sequence == written


def test_the_same_again_writes_nothing() -> None:
    world = World()
    queue = world.queue()
    written = world.store.last_sequence
    change_queue(world.office, queue, queue.configuration)
    assert world.store.last_sequence == written


def test_a_queue_may_change_its_routing_type_where_the_address_takes_it() -> None:
    world = World()
    queue = world.queue()
    address = queue.address
    change_routing_types(world.office, address, {RoutingType.ANYCAST, RoutingType.MULTICAST})
    change(world, queue, routing_type=RoutingType.MULTICAST)
    world.session().send(text("a", properties={"_AMQ_ROUTING_TYPE": 0}))
    assert queue.message_count == 1
    with pytest.raises(UnexpectedRoutingType, match="multicast queue 'q'"):
        change_routing_types(world.office, address, {RoutingType.ANYCAST})
    with pytest.raises(UnexpectedRoutingType, match="no routing type"):
        change_routing_types(world.office, address, set())
    change_routing_types(world.office, address, {RoutingType.MULTICAST})
    assert restarted(world).office.directory.addresses["q"].routing_types == {RoutingType.MULTICAST}


def test_a_pause_holds_deliveries_and_may_outlast_a_restart() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.create_consumer(0, "q")
    session.receive_consumer_credits(0, -1)
    pause_queue(world.office, queue, persist=False)
    session.send(text("a"))
    world.turn()
    assert callback_of(session).delivered == []
    found = restarted(world).office.find_queue("q")
    assert found is not None
    assert not found.paused
    pause_queue(world.office, queue, persist=True)
    found = restarted(world).office.find_queue("q")
    assert found is not None
    assert found.paused
    resume_queue(world.office, queue)
    world.turn()
    assert callback_of(session).bodies() == [b"a"]
    found = restarted(world).office.find_queue("q")
    assert found is not None
    assert not found.paused
