"""Ring queues, case by case as the manual tells them."""

from __future__ import annotations

from dataclasses import replace

from support.routing import World, callback_of, text
from understudy.message import SCHEDULED_DELIVERY
from understudy.routing.addresses.updates import change_queue
from understudy.routing.queues.queue import Queue
from understudy.routing.restore import restore, settle


def waits(queue: Queue) -> list[bytes]:
    return [queue.read(reference).body for _, reference in queue.browse((9, -1))]


def send(world: World, bodies: str, **options: object) -> None:
    session = world.session()
    for body in bodies:
        session.sends.send(text(body, **options))


def test_the_last_replaces_the_first() -> None:
    world = World()
    queue = world.queue(ring_size=3)
    send(world, "ABCD")
    assert waits(queue) == [b"B", b"C", b"D"]
    assert (queue.message_count, queue.messages_replaced, queue.messages_added) == (3, 1, 4)
    assert len(world.store.survivors(queue)) == 3
    assert world.office.memory.held_count == 3


def test_the_settings_of_the_address_make_a_ring() -> None:
    world = World({"q": {"default_ring_size": 1}})
    queue = world.queue()
    send(world, "AB")
    assert waits(queue) == [b"B"]


def test_a_message_in_delivery_is_not_counted_and_is_removed_when_it_returns() -> None:
    world = World()
    queue = world.queue(ring_size=3)
    consumer = world.session()
    consumer.consumers.create(0, "q")
    consumer.consumers.receive_credits(0, -1)
    for body in "ABCD":
        send(world, body)
        world.turn()
    assert (queue.message_count, queue.delivering_count) == (4, 4)
    consumer.close(failed=False)
    assert waits(queue) == [b"B", b"C", b"D"]
    assert (queue.message_count, queue.delivering_count, queue.messages_replaced) == (3, 0, 1)
    assert len(world.store.survivors(queue)) == 3


def test_a_rollback_into_a_full_ring_keeps_the_younger() -> None:
    world = World()
    queue = world.queue(ring_size=2)
    consumer = world.session(transacted=True)
    consumer.consumers.create(0, "q")
    consumer.consumers.receive_credits(0, -1)
    send(world, "AB")
    world.turn()
    consumer.consumers.stop()
    send(world, "CD")
    assert queue.message_count == 4
    consumer.rollback()
    assert waits(queue) == [b"C", b"D"]


def test_delayed_redeliveries_into_a_full_ring_keep_the_younger() -> None:
    """They come back one after the other."""
    world = World({"#": {"redelivery_delay": 1_000}})
    queue = world.queue(ring_size=2)
    consumer = world.session(transacted=True)
    consumer.consumers.create(0, "q")
    consumer.consumers.receive_credits(0, -1)
    for bodies in ("AB", "CD"):
        send(world, bodies)
        world.turn()
    consumer.rollback()
    consumer.close(failed=False)
    assert queue.scheduled_count == 4
    world.clock.advance(1_000)
    assert waits(queue) == [b"C", b"D"]
    assert len(world.store.survivors(queue)) == 2
    assert (queue.message_count, queue.messages_replaced) == (2, 2)


def test_a_scheduled_message_is_removed_when_the_ring_is_full() -> None:
    world = World()
    queue = world.queue(ring_size=3)
    send(world, "A", properties={SCHEDULED_DELIVERY: world.clock.now_ms + 100})
    send(world, "BCD")
    assert (queue.message_count, queue.scheduled_count) == (4, 1)
    world.clock.advance(100)
    assert waits(queue) == [b"B", b"C", b"D"]
    assert (queue.message_count, queue.scheduled_count) == (3, 0)
    assert len(world.store.survivors(queue)) == 3


def test_a_smaller_ring_is_reached_by_consuming() -> None:
    world = World()
    queue = world.queue(ring_size=4)
    send(world, "ABCD")
    change_queue(world.office, queue, replace(queue.configuration, ring_size=2))
    assert waits(queue) == [b"A", b"B", b"C", b"D"]
    send(world, "E")
    assert waits(queue) == [b"B", b"C", b"D", b"E"], "it does not grow"
    change_queue(world.office, queue, replace(queue.configuration, ring_size=-1))
    send(world, "FG")
    assert queue.message_count == 6


def test_an_ordinary_queue_can_become_a_ring() -> None:
    world = World()
    queue = world.queue()
    send(world, "ABC")
    change_queue(world.office, queue, replace(queue.configuration, ring_size=2))
    send(world, "D")
    assert waits(queue) == [b"B", b"C", b"D"]
    assert world.store.found().queues[queue.queue_id].settings["ring_size"] == 2


def test_non_destructive_consumers_keep_their_messages_of_a_ring() -> None:
    world = World()
    queue = world.queue(ring_size=2, non_destructive=True)
    consumer = world.session()
    consumer.consumers.create(0, "q")
    consumer.consumers.receive_credits(0, -1)
    send(world, "AB")
    world.turn()
    send(world, "C")
    world.turn()
    seen = callback_of(consumer)
    assert seen.bodies() == [b"A", b"B", b"C"]
    assert waits(queue) == [b"B", b"C"]
    consumer.acknowledge(0, seen.delivered[-1][1].message_id)
    assert (queue.message_count, queue.delivering_count) == (2, 0)


def test_a_restart_fills_the_ring_with_the_youngest() -> None:
    world = World()
    queue = world.queue(ring_size=2)
    consumer = world.session()
    consumer.consumers.create(0, "q")
    consumer.consumers.receive_credits(0, -1)
    send(world, "AB")
    world.turn()
    consumer.consumers.stop()
    send(world, "CD")
    assert len(world.store.survivors(queue)) == 4
    successor = World(store=world.store)
    restore(successor.office, world.store.found())
    settle(successor.office, "$.internal.")
    restored = successor.office.directory.queues["q"]
    assert waits(restored) == [b"C", b"D"]
    assert restored.configuration.ring_size == 2
    assert len(world.store.survivors(restored)) == 2
