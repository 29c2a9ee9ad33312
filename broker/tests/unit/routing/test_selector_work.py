"""Selectors share the time of the loop: no turn does more work for them than ``SELECTOR_STEPS_PER_TURN``, and all
consumers make progress.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.core import CoreNode
from support.routing import World, callback_of, text
from understudy.errors import InvalidSelector
from understudy.limits import SELECTOR_STEPS_MAX
from understudy.management.operations import queue_messages
from understudy.routing import post_office
from understudy.routing.addresses import address as addresses
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.updates import change_queue
from understudy.routing.filter import Filter, parse_filter
from understudy.selector.work import WORK
from understudy.session.prefixes import NO_PREFIXES, AddressPrefixes
from understudy.terms import RoutingType
from understudy.wire.core import packets
from understudy.wire.core.codec import encode

#: As much work as one selector may do, and it takes nothing.
HEAVY = " OR ".join(["n = -1"] * (SELECTOR_STEPS_MAX // 4))
LIGHT = "n = 7"
MESSAGES = 60
PER_TURN = 5_000


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_office, "SELECTOR_STEPS_PER_TURN", PER_TURN)


def world_of(*queues: str) -> World:
    world = World()
    for name in queues:
        world.queue(name)
        for number in range(MESSAGES):
            world.session().sends.send(text(f"{number}", name, properties={"n": number}))
    return world


def most_work(world: World, done: Callable[[], bool]) -> tuple[int, int]:
    """Turns until it is done, and the most steps of one of them."""
    turns = most = 0
    while not done():
        before = WORK.steps
        world.turn()
        turns, most = turns + 1, max(most, WORK.steps - before)
        assert turns < 1000
    return turns, most


def test_the_heaviest_selector_takes_many_turns_and_no_long_one() -> None:
    world = world_of("q")
    session = world.session()
    for number in range(10):
        session.consumers.create(number, "q", HEAVY)
        session.consumers.receive_credits(number, -1)
    turns, most = most_work(world, lambda: not world.office.dirty)
    assert turns >= 10 * MESSAGES * SELECTOR_STEPS_MAX // PER_TURN // 2
    assert most < PER_TURN + 2 * SELECTOR_STEPS_MAX
    assert callback_of(session).bodies() == []


def test_what_a_heavy_selector_takes_costs_its_share_too() -> None:
    world = world_of("q")
    session = world.session()
    session.consumers.create(0, "q", f"{HEAVY} OR n >= 0")
    session.consumers.receive_credits(0, -1)
    _, most = most_work(world, lambda: not world.office.dirty)
    assert most < PER_TURN + 2 * SELECTOR_STEPS_MAX
    assert len(callback_of(session).bodies()) == MESSAGES


def test_other_clients_are_served_meanwhile() -> None:
    """A consumer without a selector in the same turn, one with a light one in the next."""
    world = world_of("heavy", "light", "plain")
    attacker, light, plain = world.session(), world.session(), world.session()
    attacker.consumers.create(0, "heavy", HEAVY)
    light.consumers.create(0, "light", LIGHT)
    plain.consumers.create(0, "plain")
    for session in (attacker, light, plain):
        session.consumers.receive_credits(0, -1)
    world.turn()
    assert len(callback_of(plain).bodies()) == MESSAGES
    world.turn()
    assert callback_of(light).bodies() == [b"7"]
    assert world.office.dirty, "the heavy one goes on"


def test_a_forced_delivery_waits_for_its_turn() -> None:
    world = world_of("q")
    session = world.session()
    for number in range(10):
        session.consumers.create(number, "q", HEAVY)
    world.turn()
    before = WORK.steps
    for number in range(10):
        session.consumers.receive_credits(number, -1)
        session.consumers.force_delivery(number, number)
    assert WORK.steps - before < PER_TURN + 2 * SELECTOR_STEPS_MAX
    seen = callback_of(session)
    _, most = most_work(world, lambda: len(seen.forced) == 10)
    assert most < PER_TURN + 2 * SELECTOR_STEPS_MAX


def test_browsers_share_too() -> None:
    world = world_of("q")
    session = world.session()
    world.turn()
    before = WORK.steps
    for number in range(10):
        session.consumers.create(number, "q", f"{HEAVY} OR {LIGHT}", browse_only=True)
        session.consumers.receive_credits(number, -1)
        session.consumers.force_delivery(number, number)
    assert WORK.steps - before < PER_TURN + 2 * SELECTOR_STEPS_MAX
    seen = callback_of(session)
    _, most = most_work(world, lambda: len(seen.forced) == 10)
    assert most < PER_TURN + 2 * SELECTOR_STEPS_MAX
    assert seen.bodies() == [b"7"] * 10


def test_management_goes_through_a_queue_in_slices_of_the_same_size() -> None:
    world = world_of("q")
    queue = world.office.queues()[0]
    steps = queue_messages.count(queue, queue_messages.wanted_by(queue, f"{HEAVY} OR {LIGHT}"))
    slices = 0
    with pytest.raises(StopIteration) as ended:
        while True:
            world.turn()
            before = WORK.steps
            slices += 1
            try:
                next(steps)
            finally:
                assert WORK.steps - before < PER_TURN + 2 * SELECTOR_STEPS_MAX
    assert ended.value.value == 1
    assert slices > 10


@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize("window", [-1, 100_000])
def test_messages_that_must_pass_heavy_filters_are_taken_a_few_at_a_time(window: int, prefixed: bool) -> None:
    """Messages that came together wait for further turns, and so do later ones; nothing more is read meanwhile."""
    node = CoreNode()
    world = node.world
    for name, selector in (("heavy", f"{HEAVY} OR n >= 0"), ("plain", None)):
        world.office.directory.create_queue(
            QueueConfiguration(name, address=name, routing_type=RoutingType.ANYCAST, filter=selector)
        )
    client, other = node.client(), node.client()
    prefixes = AddressPrefixes((("queue://", RoutingType.ANYCAST),)) if prefixed else NO_PREFIXES
    client.handler._prefixes = prefixes
    client.create_session(window=window)
    other.create_session("another")
    client.received()
    sends = [
        packets.SessionSend(text(f"{number}", "heavy", properties={"n": number}), True, number + 1, 1)
        for number in range(MESSAGES)
    ]
    world.turn()
    before = WORK.steps
    client.handler.receive_data(b"".join(encode(packet, 10) for packet in (*sends, packets.QueueQuery("heavy"))))
    assert WORK.steps - before < PER_TURN + 2 * SELECTOR_STEPS_MAX
    assert client.handler.congested()
    heavy, plain = world.office.directory.find_queue("heavy"), world.office.directory.find_queue("plain")
    assert heavy is not None
    assert plain is not None
    turns = 0
    while client.handler.congested():
        other.send_message("through", turns + 1, "plain")
        turns += 1
        assert plain.message_count == turns, "others are served in every turn"
        before = WORK.steps
        world.clock.advance(1)
        assert WORK.steps - before < PER_TURN + 2 * SELECTOR_STEPS_MAX
        assert turns < 1000
    assert turns >= MESSAGES * SELECTOR_STEPS_MAX // PER_TURN // 2
    answers = [packet for packet in client.received() if not isinstance(packet, packets.PacketsConfirmed)]
    assert [packet.correlation_id for packet in answers[:-1]] == [*range(1, MESSAGES + 1)]
    assert isinstance(answers[-1], packets.QueueQueryResponseV3)
    assert answers[-1].message_count == heavy.message_count == MESSAGES


def test_a_session_may_end_while_its_messages_wait() -> None:
    node = CoreNode()
    node.world.office.directory.create_queue(
        QueueConfiguration("heavy", address="heavy", routing_type=RoutingType.ANYCAST, filter=f"{HEAVY} OR n >= 0")
    )
    client = node.client()
    client.create_session(window=-1)
    node.world.turn()
    sends = [packets.SessionSend(text("m", "heavy", properties={"n": 1}), True, n + 1, 1) for n in range(MESSAGES)]
    client.handler.receive_data(b"".join(encode(packet, 10) for packet in sends))
    client.lose()
    node.world.clock.advance(10)
    queue = node.world.office.directory.find_queue("heavy")
    assert queue is not None
    assert 0 < queue.message_count < MESSAGES


def test_the_filters_of_an_address_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "ADDRESS_FILTER_STEPS_MAX", 5 * Filter(LIGHT).steps)
    world = World()

    def queue(number: int, selector: str | None = LIGHT) -> None:
        world.office.directory.create_queue(
            QueueConfiguration(f"{number}", address="t", routing_type=RoutingType.MULTICAST, filter=selector)
        )

    for number in range(5):
        queue(number)
    with pytest.raises(InvalidSelector):
        queue(5)
    queue(5, None)
    with pytest.raises(InvalidSelector):
        wanted = QueueConfiguration("5", address="t", filter=LIGHT)
        change_queue(world.office, world.office.directory.queues["5"], wanted)
    world.office.directory.delete_queue("0")
    queue(6)


def test_a_filter_that_the_log_has_is_taken_whatever_it_costs() -> None:
    """An earlier version accepted the filter."""
    heavier = f"{HEAVY} OR {HEAVY}"
    with pytest.raises(InvalidSelector):
        parse_filter(heavier)
    world = World()
    queue = world.queue("q")
    stored = QueueConfiguration("old", address="q", routing_type=RoutingType.ANYCAST, filter=heavier)
    restored = world.office.directory.adopt_queue(99, stored.filled(queue.address.settings), queue.address)
    assert restored.filter is not None
