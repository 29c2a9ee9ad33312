"""Query results, against the worked example of artemis-core s. 12.4."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.restore import restore
from understudy.terms import RoutingType


def test_a_missing_queue_answers_the_defaults() -> None:
    found = World().session().queues.query_queue("q1")
    assert not found.exists
    assert (found.name, found.address, found.filter) == ("q1", "q1", None)
    assert (found.durable, found.temporary, found.consumer_count, found.message_count) == (True, False, 0, 0)
    assert (found.auto_create_queues, found.auto_created, found.purge_on_no_consumers) == (True, False, False)
    assert (found.routing_type, found.max_consumers) == (RoutingType.MULTICAST, -1)
    assert (found.exclusive, found.last_value, found.default_consumer_window_size) == (False, False, 1024 * 1024)
    assert (found.last_value_key, found.non_destructive) == (None, False)
    assert (found.consumers_before_dispatch, found.delay_before_dispatch) == (0, -1)
    assert (found.group_rebalance, found.group_buckets, found.auto_delete) == (False, -1, False)
    assert (found.auto_delete_delay, found.auto_delete_message_count) == (0, 0)
    assert (found.group_first_key, found.ring_size, found.enabled) == (None, -1, None)
    assert (found.group_rebalance_pause_dispatch, found.configuration_managed) == (False, False)


def test_a_full_name_is_split() -> None:
    found = World().session().queues.query_queue("a::q")
    assert (found.exists, found.address, found.name) == (False, "a", "q")


def test_an_existing_queue_describes_itself() -> None:
    world = World()
    world.queue("q", address="a", filter="x = 1", max_consumers=4, exclusive=True)
    session = world.session()
    session.sends.send(text("m", "a", properties={"x": 1}))
    session.consumers.create(0, "q")
    found = session.queues.query_queue("a::q")
    assert found.exists
    assert (found.name, found.address, found.filter) == ("q", "a", "x = 1")
    assert (found.durable, found.message_count, found.consumer_count) == (True, 1, 1)
    assert (found.routing_type, found.max_consumers, found.exclusive) == (RoutingType.ANYCAST, 4, True)


def test_a_queue_query_returns_every_flag() -> None:
    flags = {
        "last_value": True, "last_value_key": "code", "non_destructive": True, "ring_size": 9, "enabled": False,
        "consumers_before_dispatch": 2, "delay_before_dispatch": 70, "group_rebalance": True, "group_buckets": 8,
        "group_rebalance_pause_dispatch": True, "group_first_key": "first", "exclusive": True, "max_consumers": 4,
        "purge_on_no_consumers": True, "auto_delete": True, "auto_delete_delay": 30, "auto_delete_message_count": 5,
    }  # fmt: skip
    world = World()
    world.queue("q", **flags)
    successor = World(store=world.store)
    restore(successor.office, world.store.found())
    for found in (world.session().queues.query_queue("q"), successor.session().queues.query_queue("q")):
        assert {name: getattr(found, name) for name in flags} == flags


def test_addresses() -> None:
    world = World({"closed.#": {"auto_create_addresses": False, "auto_create_queues": False}})
    session = world.session()
    missing = session.queues.query_address("closed.x")
    assert (missing.exists, missing.queue_names) == (False, ())
    assert (missing.auto_create_addresses, missing.auto_create_queues) == (False, False)
    world.queue("q1", address="a")
    world.queue("q2", address="a")
    found = session.queues.query_address("a")
    assert found.exists
    assert found.queue_names == ("q1", "q2")
    assert (found.supports_anycast, found.supports_multicast) == (True, False)
    assert session.queues.query_address("a::q1").exists


def test_a_wildcard_address_has_the_queues_of_the_addresses_it_covers() -> None:
    world = World()
    for name in ("a", "a.b", "a.b.c", "b.c", "a.*"):
        world.queue(f"q {name}", address=name)
    queries = world.session().queues
    assert queries.query_address("a.*").queue_names == ("q a.*", "q a.b")
    assert set(queries.query_address("a.#").queue_names) == {"q a", "q a.b", "q a.b.c", "q a.*"}
    assert set(queries.query_address("#.c").queue_names) == {"q a.b.c", "q b.c"}
    assert not queries.query_address("#.c").exists
    assert queries.query_address("a.b").queue_names == ("q a.b",)
    world.office.directory.wildcard_routing = False
    assert queries.query_address("a.*").queue_names == ("q a.*",)


def test_a_full_name_without_an_address_is_the_queue_of_whatever_address() -> None:
    """Artemis does the same; the queue is queried, browsed, consumed from and deleted by that name."""
    world = World()
    world.queue("q", address="a")
    session = world.session()
    session.sends.send(text("m", "a"))
    found = session.queues.query_queue("::q")
    assert (found.exists, found.address, found.name) == (True, "a", "q")
    assert not session.queues.query_queue("::other").exists
    session.consumers.create(0, "::q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    assert [message.body for _, message, _ in callback_of(session).delivered] == [b"m"]
    session.consumers.close(0)
    session.queues.delete_queue("::q")
    assert world.office.queues() == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_queue_made_without_an_address_in_its_name_is_on_the_address_asked_for(shared: bool) -> None:
    world = World()
    session = world.session()
    configuration = QueueConfiguration("::q", "a", RoutingType.MULTICAST)
    (session.queues.create_shared_queue if shared else session.queues.create_queue)(configuration)
    assert [(queue.name, queue.address.name) for queue in world.office.queues()] == [("q", "a")]
