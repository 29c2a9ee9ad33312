"""Which queues a message goes to, and what an address counts."""

from __future__ import annotations

from support.routing import World, callback_of, text
from understudy.routing.queues.queue import Queue
from understudy.terms import AddressFullPolicy, RoutingType


def names(queues: tuple[Queue, ...]) -> list[str]:
    return [queue.name for queue in queues]


def test_multicast_goes_to_every_matching_queue() -> None:
    world = World()
    for name, selector in (("all", None), ("red", "colour = 'red'"), ("blue", "colour = 'blue'")):
        world.queue(name, address="t", routing_type=RoutingType.MULTICAST, filter=selector)
    address = world.office.directory.addresses["t"]
    red = text("x", "t", properties={"colour": "red"})
    assert names(address.route(red, RoutingType.MULTICAST)) == ["all", "red"]
    assert names(address.route(text("x", "t"), None)) == ["all"]


def test_anycast_takes_turns() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.queue(name, address="x")
    address = world.office.directory.addresses["x"]
    assert [names(address.route(text("m", "x"), None)) for _ in range(4)] == [["a"], ["b"], ["c"], ["a"]]


def test_anycast_prefers_queues_with_consumers() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.queue(name, address="x")
    session = world.session()
    session.consumers.create(0, "b")
    address = world.office.directory.addresses["x"]
    assert [names(address.route(text("m", "x"), None)) for _ in range(3)] == [["b"], ["b"], ["b"]]


def test_a_message_without_routing_type_goes_both_ways() -> None:
    world = World()
    world.queue("q", address="x")
    world.queue("t", address="x", routing_type=RoutingType.MULTICAST)
    address = world.office.directory.addresses["x"]
    assert names(address.route(text("m", "x"), None)) == ["t", "q"]
    assert names(address.route(text("m", "x"), RoutingType.ANYCAST)) == ["q"]
    assert names(address.route(text("m", "x"), RoutingType.MULTICAST)) == ["t"]


def test_a_message_in_several_queues_counts_once() -> None:
    world = World()
    first, second = (world.queue(name, address="t", routing_type=RoutingType.MULTICAST) for name in ("a", "b"))
    session = world.session()
    address = first.address
    message = text("x" * 100, "t")
    session.sends.send(message)
    size = message.encode_size
    assert (address.size_bytes, address.message_count, address.memory_bytes) == (size, 1, size)
    for number, queue in enumerate((first, second)):
        session.consumers.create(number, queue.name)
        session.consumers.receive_credits(number, -1)
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    assert (address.size_bytes, address.message_count, world.office.memory.held_bytes) == (size, 1, size)
    session.acknowledge(1, callback_of(session).delivered[1][1].message_id)
    assert (address.size_bytes, address.message_count, world.office.memory.held_bytes) == (0, 0, 0)


def test_full_policies_apply_at_the_limit() -> None:
    for policy in (AddressFullPolicy.BLOCK, AddressFullPolicy.FAIL, AddressFullPolicy.DROP):
        world = World({"#": {"address_full_policy": policy, "max_size_messages": 2}})
        address = world.queue().address
        assert address.full_policy is None
        for _ in range(2):
            world.session().sends.send(text("m"))
        assert address.full_policy is policy
    world = World({"#": {"page_limit_messages": 1, "page_full_policy": "FAIL"}})
    address = world.queue().address
    world.session().sends.send(text("m"))
    assert address.full_policy is AddressFullPolicy.FAIL


def test_expirations_are_given_and_bounded() -> None:
    world = World(
        {
            "given": {"expiry_delay": 100},
            "bounded": {"min_expiry_delay": 50, "max_expiry_delay": 500},
            "low": {"min_expiry_delay": 50},
            "never": {"no_expiry": True},
        }
    )
    now = 1000

    def expiration(name: str, current: int) -> int:
        address = world.queue(f"{name}.{current}", address=name).address
        assert address.alters_messages
        return address.with_expiration(text("m", name, expiration=current), now).expiration

    assert [expiration("given", current) for current in (0, 1010)] == [1100, 1010]
    assert [expiration("bounded", current) for current in (0, 1010, 1200, 9000)] == [1500, 1050, 1200, 1500]
    assert expiration("low", 0) == 1050
    assert expiration("never", 1010) == 0
