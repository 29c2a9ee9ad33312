"""Scheduled messages and delayed redelivery."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from support.routing import World, callback_of, text
from support.sends import sends_of
from support.store import StoreHarness
from understudy.message import SCHEDULED_DELIVERY, Message
from understudy.properties import LONG, Properties
from understudy.routing.restore import restore
from understudy.store.messages.reference import RunSlice


def test_a_scheduled_message_waits_for_its_time() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    for name, delay in (("late", 100), ("soon", 50), ("past", -5)):
        session.sends.send(
            text(name, properties={SCHEDULED_DELIVERY: world.clock.now_ms + delay}), world.answers.of(name)
        )
    world.turn()
    seen = callback_of(session)
    assert seen.bodies() == [b"past"]
    assert world.answers.names == ["late", "soon", "past"], "taken is confirmed, whenever it is delivered"
    assert (queue.message_count, queue.scheduled_count) == (3, 2)
    world.clock.advance(99)
    world.turn()
    assert seen.bodies() == [b"past", b"soon"]
    world.clock.advance(1)
    world.turn()
    assert seen.bodies() == [b"past", b"soon", b"late"]
    assert (queue.message_count, queue.scheduled_count) == (3, 0)


def test_one_timer_for_the_earliest() -> None:
    world = World(message_expiry_scan_period_ms=-1, address_queue_scan_period_ms=-1)
    world.queue()
    session = world.session()
    assert world.clock.pending() == 0
    for delay in (500, 400, 600):
        session.sends.send(text("m", properties={SCHEDULED_DELIVERY: world.clock.now_ms + delay}))
    assert world.clock.pending() == 1
    assert len(world.office.scheduled) == 3


def test_a_wall_clock_set_back_means_waiting_again() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.sends.send(text("m", properties={SCHEDULED_DELIVERY: world.clock.now_ms + 100}))
    world.clock.step_wall(-1000)
    world.clock.advance(100)
    assert queue.scheduled_count == 1
    world.clock.advance(1000)
    assert queue.scheduled_count == 0


def test_redelivery_waits_and_comes_back_to_its_place() -> None:
    world = World({"#": {"redelivery_delay": 100, "redelivery_delay_multiplier": 2.0}})
    queue = world.queue()
    session = world.session(transacted=True)
    session.consumers.create(0, "q")
    callback_of(session).frame_bytes = 1
    producer = world.session()
    for name in "abc":
        producer.sends.send(text(name))
    session.consumers.receive_credits(0, 2)
    world.turn()
    seen = callback_of(session)
    session.acknowledge(0, seen.delivered[0][1].message_id)
    session.rollback()
    # "a" was consumed; "b" was only handed out, and waits too so that it does not overtake it
    assert (queue.scheduled_count, queue.delivering_count, queue.message_count) == (2, 0, 3)
    world.clock.advance(100)
    assert queue.scheduled_count == 0
    seen.delivered.clear()
    session.consumers.receive_credits(0, -1)
    world.turn()
    assert seen.bodies() == [b"a", b"b", b"c"]
    assert seen.counts() == [2, 1, 1]
    session.acknowledge(0, seen.delivered[0][1].message_id)
    session.rollback()
    world.clock.advance(199)
    assert queue.scheduled_count == 1
    world.clock.advance(1)
    assert queue.scheduled_count == 0


def restarted(rig: StoreHarness, after_ms: int) -> World:
    """The next node on the store, so many milliseconds after the start of time."""
    store = rig.activate(f"node-{after_ms}")
    world = World({"#": {"redelivery_delay": 100}}, store=store)
    world.clock.advance(after_ms)
    restore(world.office, store.state)
    return world


def settled(rig: StoreHarness, world: World) -> None:
    """Everything that was appended is durable and its consequences have happened."""
    for _ in range(5):
        world.turn()
        rig.settle_log()


@pytest.mark.parametrize("after_ms", [99, 100])
def test_a_redelivery_waits_over_a_restart(after_ms: int) -> None:
    """Artemis does the same for durable messages (``QueueImpl.checkRedelivery``)."""
    rig = StoreHarness(random.Random(1))
    world = restarted(rig, 0)
    world.queue()
    session = world.session(transacted=True)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    for name in "ab":
        world.session().sends.send(text(name, durable=True))
    settled(rig, world)
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.rollback()
    settled(rig, world)
    rig.die(power_loss=True)
    world = restarted(rig, after_ms)
    queue = world.office.directory.queues["q"]
    assert (queue.scheduled_count, queue.message_count) == (2 if after_ms < 100 else 0, 2)
    world.clock.advance(1)
    assert queue.scheduled_count == 0
    consumer = world.session()
    consumer.consumers.create(0, "q")
    consumer.consumers.receive_credits(0, -1)
    settled(rig, world)
    assert callback_of(consumer).bodies() == [b"a", b"b"]
    assert callback_of(consumer).counts() == [2, 1]


@pytest.mark.parametrize("failed", [False, True])
def test_the_end_of_a_session_delays_what_its_transaction_has_acknowledged(*, failed: bool) -> None:
    """Artemis does the same; the other messages go to the next consumer at once."""
    world = World({"#": {"redelivery_delay": 100}})
    queue = world.queue()
    session = world.session(transacted=True)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    for name in "abc":
        world.session().sends.send(text(name))
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.close(failed=failed)
    assert (queue.scheduled_count, len(queue.pending)) == (1, 2)


def test_closing_a_consumer_delays_nothing() -> None:
    world = World({"#": {"redelivery_delay": 100}})
    queue = world.queue()
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.session().sends.send(text("a"))
    world.turn()
    session.close(failed=True)
    assert queue.scheduled_count == 0
    assert len(queue.pending) == 1


def test_a_deleted_queue_takes_its_scheduled_messages_along() -> None:
    world = World()
    queue = world.queue()
    world.session().sends.send(text("m", properties={SCHEDULED_DELIVERY: world.clock.now_ms + 100}))
    world.office.directory.delete_queue("q")
    assert len(world.office.scheduled) == 0
    assert (world.office.memory.held_bytes, queue.message_count, queue.scheduled_count) == (0, 0, 0)
    world.clock.advance(200)


def send_together(world: World, times: list[int], *, durable: bool = True, name: str = "q") -> None:
    """Messages that come in one read, numbered from 0, each with its time of delivery."""
    session = world.session()
    session.sends.permit(name)
    messages = []
    for number, at_ms in enumerate(times):
        properties = Properties()
        properties.set_typed(SCHEDULED_DELIVERY, LONG, at_ms)
        messages.append(text(str(number), name, durable=durable, properties=properties))
    sends = sends_of(messages)
    assert session.sends.send_batch(sends, 0, None) == len(times)


def delivered_until(world: World, at_ms: int) -> list[bytes]:
    """The bodies that a consumer of the queue gets by then."""
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.clock.advance(at_ms - world.clock.now_ms)
    for _ in range(3):
        world.sync()
        world.turn()
    found = callback_of(session).bodies()
    session.close(failed=False)
    return found


@pytest.mark.parametrize("durable", [True, False])
def test_messages_of_one_read_wait_and_come_without_being_decoded(*, durable: bool) -> None:
    rig = StoreHarness(random.Random(1))
    world = restarted(rig, 0)
    queue = world.queue()
    now_ms = world.clock.now_ms
    with patch.object(Message, "decode", side_effect=AssertionError("decoded")):
        send_together(world, [now_ms + 100 + number // 8 for number in range(40)], durable=durable)
        settled(rig, world)
        assert (queue.scheduled_count, len(world.office.scheduled), queue.incoming) == (40, 40, 0)
        world.clock.advance(102)
        assert (queue.scheduled_count, len(queue.pending)) == (16, 24)
        world.clock.advance(2)
        assert (queue.scheduled_count, len(queue.pending)) == (0, 40)
    bodies = [reference.message.body for reference in queue.pending if reference.message is not None]
    assert bodies == [str(number).encode() for number in range(40)]


def test_messages_of_one_read_come_in_the_order_of_their_times() -> None:
    world = World()
    world.queue()
    now_ms = world.clock.now_ms
    times = [now_ms + 10 * (number * 7 % 5) for number in range(30)]
    send_together(world, times)
    send_together(world, [now_ms + 25] * 5)
    expected = sorted([*zip(times, range(30), strict=True), *((now_ms + 25, 30 + number) for number in range(5))])
    bodies = [str(number if number < 30 else number - 30).encode() for _, number in expected]
    assert delivered_until(world, now_ms + 50) == bodies


def test_single_messages_are_taken_out_of_those_that_wait_together() -> None:
    world = World()
    queue = world.queue()
    now_ms = world.clock.now_ms
    send_together(world, [now_ms + 100] * 10)
    world.sync()
    ids = [reference.message_id for reference in world.office.scheduled.of(queue)]
    for wanted in (ids[0], ids[4], ids[5], ids[9]):
        (reference,) = world.office.scheduled.take(queue, lambda each, wanted=wanted: each.message_id == wanted, 1)
        queue.due(reference)
    assert [reference.message_id for reference in world.office.scheduled.of(queue)] == [*ids[1:4], *ids[6:9]]
    assert (queue.scheduled_count, len(world.office.scheduled), len(queue.pending)) == (6, 6, 4)
    assert delivered_until(world, now_ms + 100) == [b"0", b"4", b"5", b"9", b"1", b"2", b"3", b"6", b"7", b"8"]


def test_few_messages_that_wait_longer_do_not_keep_the_buffer_of_the_others() -> None:
    world = World()
    queue = world.queue()
    now_ms = world.clock.now_ms
    send_together(world, [now_ms + 100] * 90 + [now_ms + 200] * 10)
    world.sync()
    world.clock.advance(100)
    assert queue.scheduled_count == 10
    (part,) = world.office.scheduled.remove(queue)
    assert isinstance(part, RunSlice)
    assert len(part.run.data) < 10 * 200, "a run of their own"


@pytest.mark.parametrize("paged", [True, False])
def test_messages_that_wait_together_are_purged(*, paged: bool) -> None:
    world = World({"#": {"max_size_bytes": 1 if paged else -1}})
    queue = world.queue()
    send_together(world, [world.clock.now_ms + 100] * 20)
    world.sync()
    assert (world.office.memory.held_bytes == 0) is paged
    assert queue.purge() == 20
    assert (queue.message_count, queue.scheduled_count, len(world.office.scheduled)) == (0, 0, 0)
    assert (world.office.memory.held_bytes, queue.address.size_bytes) == (0, 0)


@pytest.mark.parametrize("after_ms", [99, 100])
def test_messages_that_wait_together_wait_over_a_restart(after_ms: int) -> None:
    rig = StoreHarness(random.Random(1))
    world = restarted(rig, 0)
    world.queue()
    send_together(world, [world.clock.now_ms + 100] * 20)
    settled(rig, world)
    rig.die(power_loss=True)
    world = restarted(rig, after_ms)
    queue = world.office.directory.queues["q"]
    assert (queue.scheduled_count, queue.message_count) == (20 if after_ms < 100 else 0, 20)
    world.clock.advance(1)
    assert queue.scheduled_count == 0
