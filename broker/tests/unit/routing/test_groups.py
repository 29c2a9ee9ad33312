"""Message groups: marked firsts, buckets, and groups met where consumers have selectors."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from understudy.message import GROUP_ID
from understudy.session.session import ServerSession


def consumer(world: World, selector: str | None = None) -> ServerSession:
    session = world.session()
    session.create_consumer(0, "q", selector)
    session.receive_consumer_credits(0, -1)
    return session


def send(world: World, *groups: str, sequence: int | None = None) -> None:
    session = world.session()
    for group in groups:
        extra = {} if sequence is None else {"_AMQ_GROUP_SEQUENCE": sequence}
        session.send(text(group, properties={GROUP_ID: group, **extra}))
    world.turn()


def firsts(session: ServerSession) -> list[tuple[bytes, object]]:
    return [(message.body, message.properties.get("first")) for _, message, _ in callback_of(session).delivered]


def test_the_first_of_a_group_for_a_consumer_is_marked() -> None:
    world = World()
    world.queue(group_first_key="first")
    session = consumer(world)
    send(world, "a", "b", "a")
    assert firsts(session) == [(b"a", True), (b"b", True), (b"a", None)]
    send(world, "a", sequence=-1)
    send(world, "a")
    assert firsts(session)[3:] == [(b"a", None), (b"a", True)], "a closed group begins anew"
    other = consumer(world)
    session.close(failed=False)
    world.turn()
    assert firsts(other)[0] == (b"a", True)
    stored = [message.properties for messages in world.store.references.values() for message in messages.values()]
    assert not any("first" in properties for properties in stored), "only the delivery is marked"


def test_no_buckets_means_no_groups() -> None:
    world = World()
    queue = world.queue(group_buckets=0)
    first, second = consumer(world), consumer(world)
    send(world, *"aaaa")
    assert len(firsts(first)) == len(firsts(second)) == 2
    assert not queue.grouping


@pytest.mark.parametrize("buckets", [1, 3])
def test_groups_of_one_bucket_have_one_consumer(buckets: int) -> None:
    world = World()
    queue = world.queue(group_buckets=buckets)
    sessions = [consumer(world) for _ in range(4)]
    send(world, *(f"g{number}" for number in range(40)))
    assert len(queue.group_owners) <= buckets
    assert sum(bool(firsts(session)) for session in sessions) <= buckets


def test_groups_hold_where_consumers_have_selectors() -> None:
    """A queue with a selector never took the plain way, where groups used to be noticed."""
    world = World()
    world.queue()
    first, second = consumer(world, "a IS NULL"), consumer(world)
    send(world, *"gggg")
    assert sorted([len(firsts(first)), len(firsts(second))]) == [0, 4]


def test_a_closed_group_is_free_for_those_who_passed_over_it() -> None:
    """Its owner has no credits left, and nobody else may stand idle because of that."""
    world = World()
    world.queue()
    owner, other = consumer(world), consumer(world)
    callback_of(owner).frame_bytes = 1
    owner.receive_consumer_credits(0, 0)
    owner.receive_consumer_credits(0, 1)
    other.receive_consumer_credits(0, 0)
    producer = world.session()
    for body in ("first", "last", "next"):
        extra = {"_AMQ_GROUP_SEQUENCE": -1} if body == "last" else {}
        producer.send(text(body, properties={GROUP_ID: "g", **extra}))
    world.turn()
    other.receive_consumer_credits(0, -1)
    world.turn()
    assert (callback_of(owner).bodies(), callback_of(other).bodies()) == ([b"first"], [])
    owner.receive_consumer_credits(0, 1)
    world.turn()
    world.turn()
    assert (callback_of(owner).bodies(), callback_of(other).bodies()) == ([b"first", b"last"], [b"next"])
