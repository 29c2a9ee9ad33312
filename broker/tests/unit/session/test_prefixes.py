"""Prefixes of an acceptor: cut off wherever a client gives a name, and they choose the routing type.

Goal: no layer below the session sees a prefix; method: a world whose session has some.
"""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from support.sends import sends_of
from understudy.message import ROUTING_TYPE
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.session.prefixes import NO_PREFIXES, AddressPrefixes, prefixes_of
from understudy.session.session import ServerSession
from understudy.terms import RoutingType

PREFIXES = prefixes_of(("queue/", "jms.queue."), ("topic/", "queue/of/"))


@pytest.mark.parametrize(
    ("name", "plain", "routing_type"),
    [
        ("queue/a", "a", RoutingType.ANYCAST),
        ("jms.queue.a", "a", RoutingType.ANYCAST),
        ("topic/a::q", "a::q", RoutingType.MULTICAST),
        ("queue/of/a", "a", RoutingType.MULTICAST),
        ("queue/queue/a", "queue/a", RoutingType.ANYCAST),
        ("a", "a", None),
        ("Queue/a", "Queue/a", None),
        ("", "", None),
    ],
)
def test_a_prefix_is_cut_off_once_and_the_longest_counts(
    name: str, plain: str, routing_type: RoutingType | None
) -> None:
    assert PREFIXES.split(name) == (plain, routing_type)
    assert PREFIXES.plain(name) == plain


def test_without_prefixes_nothing_is_cut_and_no_message_copied() -> None:
    assert not NO_PREFIXES
    assert prefixes_of() == AddressPrefixes()
    message = text("m", "queue/a")
    assert NO_PREFIXES.unprefixed(message) is message
    world = World()
    world.session().sends.send(text("m", "queue/a"))
    assert list(world.office.directory.addresses) == ["queue/a"]


def session_of(world: World, **options: object) -> ServerSession:
    return world.session(prefixes=PREFIXES, **options)


def test_a_send_uses_the_address_without_the_prefix_and_its_routing_type() -> None:
    world = World()
    anycast = world.queue("any", address="t")
    multicast = world.queue("many", address="t", routing_type=RoutingType.MULTICAST)
    session = session_of(world)
    session.sends.send(text("1", "queue/t"))
    assert (anycast.message_count, multicast.message_count) == (1, 0)
    session.sends.send(text("2", "topic/t", properties={ROUTING_TYPE: int(RoutingType.ANYCAST)}))
    assert (anycast.message_count, multicast.message_count) == (1, 1)
    session.sends.send(text("3", "t"))
    assert (anycast.message_count, multicast.message_count) == (2, 2)
    session.sends.send(text("4", "topic/t::any"))
    session.sends.send(text("5", "topic/t::many"))
    assert (anycast.message_count, multicast.message_count) == (2, 3)
    assert list(world.office.directory.addresses) == ["t"]


def test_the_prefix_of_each_message_of_a_batch_is_cut_once() -> None:
    world = World()
    inner, outer = world.queue("inner"), world.queue("queue/inner")
    session = session_of(world)
    session.sends.send_batch(sends_of([text("1", "queue/inner"), text("2", "queue/inner")]), 0, None)
    session.sends.send_batch(sends_of([text("3", "queue/queue/inner"), text("4", "inner")]), 0, None)
    assert (inner.message_count, outer.message_count) == (3, 1)


def test_what_a_send_makes_is_of_the_type_of_the_prefix() -> None:
    world = World({"#": {"default_address_routing_type": RoutingType.MULTICAST}})
    session = session_of(world, default_address="topic/news")
    session.sends.send(text("1", "queue/orders"))
    session.sends.send(text("2", None))
    addresses = world.office.directory.addresses
    assert addresses["orders"].routing_types == {RoutingType.ANYCAST}
    assert [queue.name for queue in world.office.queues()] == ["orders"]
    assert addresses["news"].routing_types == {RoutingType.MULTICAST}


def test_consumers_queues_and_queries() -> None:
    world = World()
    session = session_of(world)
    session.queues.create_address("topic/t", [RoutingType.ANYCAST])
    assert world.office.directory.addresses["t"].routing_types == {RoutingType.MULTICAST}
    session.queues.create_queue(
        QueueConfiguration(name="queue/q", address="queue/t", routing_type=RoutingType.MULTICAST)
    )
    queue = world.office.directory.queues["q"]
    assert (queue.address.name, queue.routing_type) == ("t", RoutingType.ANYCAST)
    session.queues.create_shared_queue(QueueConfiguration(name="s", address="topic/t"))
    session.queues.create_shared_queue(QueueConfiguration(name="s", address="topic/t"))
    assert world.office.directory.queues["s"].routing_type is RoutingType.MULTICAST
    found = session.queues.query_queue("queue/q")
    assert (found.exists, found.name, found.address) == (True, "q", "t")
    assert session.queues.query_queue("queue/missing").name == "missing"
    assert set(session.queues.query_address("topic/t").queue_names) == {"q", "s"}
    session.consumers.create(1, "queue/t::q")
    session.consumers.receive_credits(1, -1)
    session.sends.send(text("m", "queue/t"))
    world.turn()
    assert callback_of(session).bodies() == [b"m"]
    session.consumers.close(1)
    session.queues.delete_queue("queue/q")
    assert "q" not in world.office.directory.queues


def test_credits_are_answered_under_the_name_that_was_asked_for() -> None:
    world = World({"t": {"max_size_bytes": 1000}})
    world.queue("q", address="t")
    session = session_of(world)
    session.sends.request_credits("queue/t", 500)
    assert callback_of(session).credits == [("queue/t", 500)]
    session.sends.send(text("m", "queue/t"), world.answers.of("m"))
    assert world.answers.seen == [("m", None)]
