"""Bodies of the deepest queue leave memory before those of the messages that arrive."""

from __future__ import annotations

import pytest

from support.routing import FakeCallback, World, callback_of, text
from support.sends import sends_of
from understudy.routing.cold_bodies import COLD_BYTES_MIN
from understudy.session.session import ServerSession
from understudy.terms import RoutingType

BODY = "x" * 4_000
SIZE = text(BODY, address="deep").encode_size
RUN = 20
MULTICAST = RoutingType.MULTICAST
#: Messages of a queue that is deep enough to give up bodies.
DEPTH = 2 * COLD_BYTES_MIN // SIZE // RUN * RUN


def fill(session: ServerSession, address: str, count: int, *, durable: bool = True) -> None:
    for start in range(0, count, RUN):
        messages = [text(f"{each:08d}{BODY}", address=address, durable=durable) for each in range(start, start + RUN)]
        session.sends.send_batch(sends_of(messages), 0, None)


def receive(world: World, queue: str) -> list[int]:
    """Numbers of the messages that a consumer of runs gets, all of which it acknowledges."""
    session = world.session(callback=FakeCallback(runs=True))
    session.consumers.create(0, queue)
    session.consumers.receive_credits(0, -1)
    for _ in range(8):
        world.turn()
    found = [int(body[:8]) for body in callback_of(session).bodies()]
    session.acknowledge(0, callback_of(session).delivered[-1][1].message_id)
    session.close(failed=False)
    return found


def world_of(deep_queues: int = 1, **options: int) -> World:
    world = World(**options)
    for number in range(deep_queues):
        world.queue(f"deep{number}", address="deep", routing_type=MULTICAST)
    for number in range(3):
        world.queue(f"busy{number}", address="busy", routing_type=MULTICAST)
    return world


@pytest.mark.parametrize("limit", ["bodies", "global"])
@pytest.mark.parametrize("transacted", [False, True])
def test_a_busy_topic_keeps_its_bodies_beside_a_deep_queue(limit: str, transacted: bool) -> None:
    most = DEPTH * SIZE - SIZE
    world = world_of(global_max_size_bytes=most if limit == "global" else -1)
    if limit == "bodies":
        world.office.paging.bodies_max_bytes = most
    fill(world.session(), "deep", DEPTH)
    deep, busy = (world.office.directory.addresses[name] for name in ("deep", "busy"))
    session = world.session(transacted=transacted)
    fill(session, "busy", 100)
    if transacted:
        session.commit(lambda error: None)
    assert (busy.message_count, busy.paged_count) == (100, 0)
    assert deep.paged_count >= 100
    assert world.office.memory.held_bytes == deep.memory_bytes + busy.memory_bytes <= most + RUN * SIZE
    for name in ("busy0", "busy1", "busy2"):
        assert receive(world, name) == list(range(100))
    assert receive(world, "deep0") == list(range(DEPTH))
    for address in (deep, busy):
        assert (address.message_count, address.size_bytes, address.memory_bytes, address.paged_count) == (0, 0, 0, 0)
    assert (world.office.memory.held_bytes, world.office.memory.held_count) == (0, 0)


def test_the_last_messages_of_the_deep_queue_leave_first() -> None:
    world = world_of()
    world.office.paging.bodies_max_bytes = DEPTH * SIZE
    fill(world.session(), "deep", DEPTH)
    fill(world.session(), "busy", 60)
    bodies = [each.message is not None for each in world.office.directory.queues["deep0"].pending]
    assert bodies.count(False) >= 60
    assert bodies == sorted(bodies, reverse=True)


def test_messages_in_several_queues_stay_in_memory() -> None:
    """Their bodies leave with all queues or with none."""
    world = world_of(deep_queues=2)
    world.office.paging.bodies_max_bytes = DEPTH * SIZE
    fill(world.session(), "deep", DEPTH)
    deep, busy = (world.office.directory.addresses[name] for name in ("deep", "busy"))
    fill(world.session(), "busy", 60)
    assert (deep.paged_count, busy.paged_count) == (1, 60)
    assert receive(world, "deep0") == receive(world, "deep1") == list(range(DEPTH))
    assert receive(world, "busy0") == receive(world, "busy1") == receive(world, "busy2") == list(range(60))
    assert (world.office.memory.held_bytes, world.office.memory.held_count) == (0, 0)


def test_messages_that_a_single_queue_has_left_can_leave() -> None:
    """A subscriber that is away holds messages of a busy topic that all others have."""
    world = world_of(deep_queues=2)
    world.office.paging.bodies_max_bytes = 1 << 40
    fill(world.session(), "deep", DEPTH)
    assert receive(world, "deep1") == list(range(DEPTH))
    world.office.paging.bodies_max_bytes = DEPTH * SIZE
    fill(world.session(), "busy", 60)
    deep, busy = (world.office.directory.addresses[name] for name in ("deep", "busy"))
    assert deep.paged_count >= 60
    assert busy.paged_count == 0
    assert receive(world, "deep0") == list(range(DEPTH))
    assert (deep.memory_bytes, deep.paged_count) == (0, 0)


def test_only_bodies_that_the_log_has_leave() -> None:
    world = world_of(global_max_size_bytes=DEPTH * SIZE)
    fill(world.session(), "deep", DEPTH, durable=False)
    fill(world.session(), "busy", 60)
    deep, busy = (world.office.directory.addresses[name] for name in ("deep", "busy"))
    assert (deep.paged_count, busy.paged_count) == (0, 60)
    assert receive(world, "deep0") == list(range(DEPTH))


def test_an_address_that_blocks_gives_up_nothing_for_the_maximum_of_the_node() -> None:
    world = World({"deep": {"address_full_policy": "BLOCK"}}, global_max_size_bytes=DEPTH * SIZE)
    world.queue("deep0", address="deep", routing_type=MULTICAST)
    world.queue("busy0", address="busy", routing_type=MULTICAST)
    fill(world.session(), "deep", DEPTH)
    fill(world.session(), "busy", 60)
    deep, busy = (world.office.directory.addresses[name] for name in ("deep", "busy"))
    assert (deep.paged_count, busy.paged_count) == (0, 60)


def test_a_queue_that_is_filled_itself_loses_the_newest() -> None:
    """No block of it is made anew: what arrives has no body in memory from the start."""
    world = world_of()
    world.office.paging.bodies_max_bytes = DEPTH * SIZE
    session = world.session(transacted=True)
    fill(session, "deep", 2 * DEPTH)
    session.commit(lambda error: None)
    deep = world.office.directory.addresses["deep"]
    assert deep.memory_bytes <= DEPTH * SIZE
    assert receive(world, "deep0") == list(range(2 * DEPTH))
    assert (deep.memory_bytes, deep.paged_count, deep.size_bytes) == (0, 0, 0)


def test_returned_messages_stay_counted() -> None:
    """Deliveries that come back after bodies of their neighbours have left."""
    world = world_of()
    world.office.paging.bodies_max_bytes = 1 << 40
    fill(world.session(), "deep", DEPTH)
    session = world.session(callback=FakeCallback(runs=True))
    session.consumers.create(0, "deep0")
    session.consumers.receive_credits(0, 40 * SIZE)
    world.turn()
    world.office.paging.bodies_max_bytes = DEPTH * SIZE // 2
    fill(world.session(), "busy", 60)
    session.close(failed=False)
    deep = world.office.directory.addresses["deep"]
    assert deep.paged_count > 0
    assert receive(world, "deep0") == list(range(DEPTH))
    assert (deep.memory_bytes, deep.paged_count) == (0, 0)
