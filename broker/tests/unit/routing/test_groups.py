"""Message groups: marked firsts, buckets, and groups met where consumers have selectors; sent and delivered one by one,
and together.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.routing import FakeCallback, World, callback_of, text
from support.sends import sends_of
from understudy.errors import DiskFailed
from understudy.management.operations.queue import QueueControl
from understudy.message import GROUP_ID
from understudy.routing.queues import delivery, groups
from understudy.routing.queues.groups import BUCKET_KEY, bucket_key
from understudy.routing.queues.queue import Queue
from understudy.session.consumer import ServerConsumer
from understudy.session.session import ServerSession


class Way:
    """How messages are sent and delivered."""

    together = False


@pytest.fixture(autouse=True, scope="module", params=[False, True], ids=["one by one", "together"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    Way.together = request.param
    yield
    Way.together = False


def consumer(world: World, selector: str | None = None) -> ServerSession:
    session = world.session(callback=FakeCallback(runs=Way.together))
    session.consumers.create(0, "q", selector)
    session.consumers.receive_credits(0, -1)
    return session


def send(world: World, *groups: str, sequence: int | None = None) -> None:
    session = world.session()
    extra = {} if sequence is None else {"_AMQ_GROUP_SEQUENCE": sequence}
    messages = [text(group, properties={GROUP_ID: group, **extra}) for group in groups]
    if Way.together:
        # without it the first of them would ask for permission, and the others follow it
        session.sends.permit("q")
        session.sends.send_batch(sends_of(messages), 0, None)
    else:
        for message in messages:
            session.sends.send(message)
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
    stored = [message.properties for message in world.store.recorded.values()]
    assert not any("first" in properties for properties in stored), "only the delivery is marked"


def test_no_buckets_means_no_groups() -> None:
    world = World()
    queue = world.queue(group_buckets=0)
    first, second = consumer(world), consumer(world)
    send(world, *"aaaa")
    assert len(firsts(first)) == len(firsts(second)) == 2
    assert not queue.groups.met


@pytest.mark.parametrize("buckets", [1, 3])
def test_groups_of_one_bucket_have_one_consumer(buckets: int) -> None:
    world = World()
    queue = world.queue(group_buckets=buckets)
    sessions = [consumer(world) for _ in range(4)]
    send(world, *(f"g{number}" for number in range(40)))
    assert len(queue.groups.owners) <= buckets
    assert sum(bool(firsts(session)) for session in sessions) <= buckets


def test_groups_hold_where_consumers_have_selectors() -> None:
    """A queue with a selector never took the plain way, where groups used to be noticed."""
    world = World()
    world.queue()
    first, second = consumer(world, "a IS NULL"), consumer(world)
    send(world, *"gggg")
    assert sorted([len(firsts(first)), len(firsts(second))]) == [0, 4]


def test_a_closed_group_is_free_for_consumers_that_passed_over_it() -> None:
    """The owner of the closed group has no credits left, and no other consumer may stand idle because of that."""
    world = World()
    world.queue()
    owner, other = consumer(world), consumer(world)
    callback_of(owner).frame_bytes = 1
    owner.consumers.receive_credits(0, 0)
    owner.consumers.receive_credits(0, 1)
    other.consumers.receive_credits(0, 0)
    producer = world.session()
    for body in ("first", "last", "next"):
        extra = {"_AMQ_GROUP_SEQUENCE": -1} if body == "last" else {}
        producer.sends.send(text(body, properties={GROUP_ID: "g", **extra}))
    world.turn()
    other.consumers.receive_credits(0, -1)
    world.turn()
    assert (callback_of(owner).bodies(), callback_of(other).bodies()) == ([b"first"], [])
    owner.consumers.receive_credits(0, 1)
    world.turn()
    world.turn()
    assert (callback_of(owner).bodies(), callback_of(other).bodies()) == ([b"first", b"last"], [b"next"])


def artemis_hash(group: str) -> int:
    """``SimpleString.hashCode`` without its sign, byte by byte."""
    value = 0
    for byte in group.encode("utf-16-le", "surrogatepass"):
        value = (31 * value + (byte - 256 if byte > 127 else byte)) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(1, 2**31 - 1))
def test_a_bucket_is_that_of_artemis(group: str, buckets: int) -> None:
    assert bucket_key(group, buckets) == f"{BUCKET_KEY}{artemis_hash(group) % buckets}"


def test_a_long_name_of_a_group_has_a_bucket_too() -> None:
    group = "long \u20ac" * 20_000
    assert bucket_key(group, 1009) == f"{BUCKET_KEY}{artemis_hash(group) % 1009}"


@pytest.mark.parametrize(("name", "bucket"), [("0", 0), ("2", 2), ("3", 0), ("-1", 2147483647 % 3)])
def test_a_bucket_is_named_by_its_key(name: str, bucket: int) -> None:
    assert bucket_key(f"{BUCKET_KEY}{name}", 3) == f"{BUCKET_KEY}{bucket}"


@pytest.mark.parametrize("name", ["", "x", "2147483648", "1_0", "\u0663"])
def test_a_name_that_is_no_bucket_number_is_a_group(name: str) -> None:
    group = f"{BUCKET_KEY}{name}"
    assert bucket_key(group, 1009) == f"{BUCKET_KEY}{artemis_hash(group) % 1009}"


def test_a_rebalance_starts_over_at_the_first_consumer() -> None:
    world = World()
    world.queue(group_rebalance=True)
    first, second = consumer(world), consumer(world)
    send(world, "a")
    assert [len(firsts(each)) for each in (first, second)] == [1, 0]
    third = consumer(world)
    send(world, "b", "c", "d")
    assert [[body for body, _ in firsts(each)] for each in (first, second, third)] == [[b"a", b"b"], [b"c"], [b"d"]]


@pytest.mark.parametrize("consumers", [1, 2])
def test_a_message_of_a_group_that_cannot_be_delivered_goes_back(consumers: int) -> None:
    world = World()
    queue = world.queue()
    sessions = [consumer(world) for _ in range(consumers)]
    send(world, "a")
    failure = patch.object(ServerConsumer, "deliver", side_effect=DiskFailed("gone"))
    with failure, pytest.raises(DiskFailed):
        send(world, "a", "b", "a")
    assert (queue.delivering_count, queue.message_count, len(queue.pending)) == (1, 4, 3)
    queue.prompt()
    world.turn()
    assert sorted(body for session in sessions for body, _ in firsts(session)) == [b"a", b"a", b"a", b"b"]
    assert [body for body, _ in firsts(sessions[0])].count(b"a") == 3


def test_messages_of_a_group_whose_owner_takes_none_are_kept_without_the_others() -> None:
    world = World()
    queue = world.queue()
    owner, other = consumer(world), consumer(world)
    send(world, "a", "b")
    owner.consumers.receive_credits(0, 0)
    send(world, *("a" + "b" * 19) * 2)
    assert [body for body, _ in firsts(other)] == [b"b"] * 39
    level = queue.pending.first_level()
    assert level is not None
    assert level.count == 2
    assert all(block.run is None for block in level.blocks), "the buffer of the run is not kept for two messages"
    owner.consumers.receive_credits(0, -1)
    world.turn()
    assert [body for body, _ in firsts(owner)] == [b"a"] * 3


def test_a_message_of_another_owner_among_others_is_left_for_it() -> None:
    """A consumer that can take all that came together does not get it because it owns the group of the first one."""
    world = World()
    world.queue()
    owner, other = consumer(world), consumer(world)
    send(world, "a", "b")
    owner.consumers.receive_credits(0, 0)
    send(world, *"bbabbab")
    assert [body for body, _ in firsts(other)] == [b"b"] * 6
    owner.consumers.receive_credits(0, -1)
    world.turn()
    assert [body for body, _ in firsts(owner)] == [b"a"] * 3


def passed_over() -> tuple[World, Queue, ServerSession, ServerSession]:
    """A queue with two messages of a group whose owner takes none, and another consumer that has looked at them."""
    world = World()
    queue = world.queue()
    owner, other = consumer(world), consumer(world)
    send(world, "a", "b")
    owner.acknowledge(0, callback_of(owner).delivered[0][1].message_id)
    owner.consumers.receive_credits(0, 0)
    send(world, *"bbaba")
    world.turn()
    assert [body for body, _ in firsts(other)] == [b"b"] * 4
    return world, queue, owner, other


def test_messages_of_an_owner_that_leaves_go_to_a_consumer_that_passed_over_them() -> None:
    world, queue, owner, other = passed_over()
    owner.close(failed=False)
    world.turn()
    assert [body for body, _ in firsts(other)][4:] == [b"a", b"a"]
    assert set(queue.groups.owners) == {"a", "b"}


@pytest.mark.parametrize("operation", ["reset_group", "reset_groups"])
def test_messages_of_a_group_that_is_reset_go_to_a_consumer_that_passed_over_them(operation: str) -> None:
    world, queue, _, other = passed_over()
    control = QueueControl(*cast("tuple[Any, Any]", (None, None)), queue)
    control.reset_group("a") if operation == "reset_group" else control.reset_groups()
    world.turn()
    assert [body for body, _ in firsts(other)][4:] == [b"a", b"a"]


def test_a_rebalance_frees_the_groups() -> None:
    world = World()
    world.queue(group_rebalance=True)
    first, second = consumer(world), consumer(world)
    send(world, "a", "b")
    assert [[body for body, _ in firsts(each)] for each in (first, second)] == [[b"a"], [b"b"]]
    consumer(world)
    send(world, "b")
    assert [[body for body, _ in firsts(each)] for each in (first, second)] == [[b"a", b"b"], [b"b"]]


def test_groups_beyond_the_most_share_an_owner_also_when_they_come_together() -> None:
    """Which of them has a name of its own depends on how many there are before it."""
    bucket = zlib.crc32(b"h") % 1024
    like = next(name for number in range(100_000) if zlib.crc32((name := f"g{number}").encode()) % 1024 == bucket)
    world = World()
    with patch.object(groups, "GROUPS_MAX", 2), patch.object(delivery, "GROUPS_MAX", 2):
        queue = world.queue()
        owner, other = consumer(world), consumer(world)
        send(world, "a", "b", "h")
        assert [body for body, _ in firsts(owner)] == [b"a", b"h"]
        owner.consumers.receive_credits(0, 0)
        queue.close_group("a")
        queue.close_group("b")
        send(world, "n", like)
        assert [body for body, _ in firsts(other)] == [b"b", b"n"]
        owner.consumers.receive_credits(0, -1)
        world.turn()
        send(world, like)
    assert [body for body, _ in firsts(owner)] == [b"a", b"h", like.encode(), like.encode()]
