"""When a queue begins to deliver: enough consumers, or long enough a wait; and the pause while groups
are dealt out again."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from understudy.message import GROUP_ID
from understudy.routing.queues.dispatch_gate import DispatchGate, Event, State
from understudy.routing.queues.queue import Queue
from understudy.session.session import ServerSession


def consumer(world: World) -> ServerSession:
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    return session


def gate_of(queue: Queue) -> DispatchGate:
    assert queue.kind is not None
    return queue.kind.gate


def test_nothing_is_delivered_before_there_are_enough_consumers() -> None:
    world = World()
    queue = world.queue(consumers_before_dispatch=2)
    for number in range(4):
        world.session().sends.send(text(str(number)))
    first = consumer(world)
    world.clock.advance(1_000_000)
    world.turn()
    assert callback_of(first).bodies() == []
    second = consumer(world)
    assert [len(callback_of(each).bodies()) for each in (first, second)] == [2, 2]
    second.close(failed=False)
    world.turn()
    assert len(callback_of(first).bodies()) == 4, "once open it stays open while there is a consumer"
    first.close(failed=False)
    assert gate_of(queue).state is State.CLOSED
    assert callback_of(consumer(world)).bodies() == []


def test_the_wait_for_them_has_an_end() -> None:
    world = World()
    world.queue(consumers_before_dispatch=3, delay_before_dispatch=100)
    world.session().sends.send(text("m"))
    first = consumer(world)
    world.clock.advance(60)
    second = consumer(world)
    world.clock.advance(39)
    world.turn()
    assert callback_of(first).bodies() + callback_of(second).bodies() == []
    world.clock.advance(1)
    world.turn()
    assert callback_of(first).bodies() + callback_of(second).bodies() == [b"m"]


def test_who_leaves_ends_the_wait() -> None:
    world = World()
    queue = world.queue(consumers_before_dispatch=2, delay_before_dispatch=100)
    consumer(world).close(failed=False)
    world.clock.advance(200)
    assert gate_of(queue).state is State.CLOSED
    world.session().sends.send(text("m"))
    late = consumer(world)
    assert callback_of(late).bodies() == []
    world.clock.advance(100)
    world.turn()
    assert callback_of(late).bodies() == [b"m"]


def test_a_delay_alone_delays_nothing() -> None:
    world = World()
    assert world.queue(delay_before_dispatch=100).kind is None
    world.session().sends.send(text("m"))
    assert callback_of(consumer(world)).bodies() == [b"m"]


@pytest.mark.parametrize("ended_by", ["acknowledgement", "close", "rollback"])
def test_dispatch_pauses_until_what_the_others_have_is_processed(ended_by: str) -> None:
    world = World()
    queue = world.queue(group_rebalance=True, group_rebalance_pause_dispatch=True)
    producer = world.session()

    def send(body: str, group: str) -> None:
        producer.sends.send(text(body, properties={GROUP_ID: group}))
        world.turn()

    first = consumer(world)
    send("a1", "a")
    send("b1", "b")
    second = consumer(world)
    send("a2", "a")
    send("b2", "b")
    assert gate_of(queue).state is State.PAUSED
    assert callback_of(second).bodies() == []
    assert callback_of(first).bodies() == [b"a1", b"b1"]
    if ended_by == "acknowledgement":
        first.acknowledge(0, callback_of(first).delivered[-1][1].message_id)
    elif ended_by == "rollback":
        first.rollback()
    else:
        first.close(failed=False)
    world.turn()
    assert gate_of(queue).state is State.OPEN
    got = callback_of(first).bodies()[2:] + callback_of(second).bodies()
    assert sorted(got) == sorted([b"a2", b"b2", *([] if ended_by == "acknowledgement" else [b"a1", b"b1"])])
    if ended_by == "acknowledgement":
        assert callback_of(second).bodies(), "the groups were dealt out again"


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_event_in_every_state(state: State, event: Event) -> None:
    gate = DispatchGate(World().queue(), World().clock)
    gate._state = state
    gate.fire(event)
    expected = {
        (State.CLOSED, Event.ENOUGH): State.OPEN,
        (State.OPEN, Event.REBALANCE): State.PAUSED,
        (State.PAUSED, Event.DRAINED): State.OPEN,
        (State.OPEN, Event.EMPTY): State.CLOSED,
        (State.PAUSED, Event.EMPTY): State.CLOSED,
    }
    assert gate.state is expected.get((state, event), state)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("late", ["credits", "start"])
def test_a_consumer_counts_once_it_can_take_messages(late: str, groups: bool) -> None:
    world = World()
    queue = world.queue(consumers_before_dispatch=2)
    for number in range(20):
        properties = {GROUP_ID: f"g{number % 4}"} if groups else {}
        world.session().sends.send(text(str(number), properties=properties))
    first = consumer(world)
    second = world.session(start=late == "credits")
    second.consumers.create(0, "q")
    if late == "start":
        second.consumers.receive_credits(0, -1)
    world.turn()
    assert (gate_of(queue).state, callback_of(first).bodies()) == (State.CLOSED, [])
    if late == "start":
        second.consumers.start()
    else:
        second.consumers.receive_credits(0, -1)
    world.turn()
    assert [len(callback_of(each).bodies()) for each in (first, second)] == [10, 10]


def test_credits_that_are_used_up_do_not_close_the_gate_again() -> None:
    world = World()
    queue = world.queue(consumers_before_dispatch=2)
    sessions = [world.session(), world.session()]
    for session in sessions:
        session.consumers.create(0, "q")
        session.consumers.receive_credits(0, 1)
    for number in range(4):
        world.session().sends.send(text(str(number)))
    world.turn()
    assert [len(callback_of(each).bodies()) for each in sessions] == [1, 1]
    sessions[0].consumers.receive_credits(0, -1)
    world.turn()
    assert gate_of(queue).state is State.OPEN
    assert len(callback_of(sessions[0]).bodies()) == 3
