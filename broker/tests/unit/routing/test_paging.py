"""Bodies of waiting messages beyond their share of the memory stay in the log only."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from support.sends import sends_of
from understudy.session.session import ServerSession
from understudy.terms import RoutingType

BODY = "x" * 1_000
SIZE = text(BODY, address="a").encode_size
RUN = 40


def fill(session: ServerSession, runs: int, *, durable: bool = True) -> None:
    for number in range(runs):
        messages = [text(f"{number * RUN + each:08d}{BODY}", address="a", durable=durable) for each in range(RUN)]
        session.sends.send_batch(sends_of(messages), 0, None)


def receive(world: World, queue: str) -> list[int]:
    session = world.session()
    session.consumers.create(0, queue)
    session.consumers.receive_credits(0, -1)
    for _ in range(4):
        # one turn reads back a bounded number
        world.turn()
    found = [int(body[:8]) for body in callback_of(session).bodies()]
    for delivered in callback_of(session).delivered:
        session.acknowledge(0, delivered[1].message_id, None)
    return found


@pytest.mark.parametrize("queues", [1, 2])
def test_bodies_of_a_deep_queue_leave_memory_by_default(queues: int) -> None:
    world = World()
    names = [f"q{number}" for number in range(queues)]
    for name in names:
        world.queue(name, address="a", routing_type=RoutingType.MULTICAST)
    world.office.paging.bodies_max_bytes = 100 * SIZE
    fill(world.session(), 50)
    address = world.office.directory.addresses["a"]
    assert address.message_count == 50 * RUN
    assert 0 < address.memory_bytes <= (100 + RUN) * (SIZE + 8)
    assert world.office.memory.held_bytes == address.memory_bytes
    assert address.paged_count > 40 * RUN
    for name in names:
        assert receive(world, name) == list(range(50 * RUN))
    assert (address.message_count, address.size_bytes, address.memory_bytes, address.paged_count) == (0, 0, 0, 0)
    assert (world.office.memory.held_bytes, world.office.memory.held_count) == (0, 0)


def test_messages_that_only_memory_has_stay_there() -> None:
    world = World()
    world.queue("q", address="a")
    world.office.paging.bodies_max_bytes = SIZE
    fill(world.session(), 3, durable=False)
    address = world.office.directory.addresses["a"]
    assert address.memory_bytes == address.size_bytes > 0
    assert receive(world, "q") == list(range(3 * RUN))


def test_an_address_that_blocks_keeps_its_maximum() -> None:
    """The share is no limit of what a node takes: credits are given as before."""
    world = World({"#": {"address_full_policy": "BLOCK", "max_size_bytes": 1 << 30}})
    world.queue("q", address="a")
    world.office.paging.bodies_max_bytes = SIZE
    session = world.session()
    fill(session, 3)
    session.sends.request_credits("a", 70)
    assert callback_of(session).credits == [("a", 70)]
    assert world.office.directory.addresses["a"].size_bytes > SIZE
