"""Non-destructive queues: each consumer sees all messages and takes none."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from support.large import Node, body_of, header_of
from support.routing import FakeCallback, World, callback_of, text
from support.store import StoreHarness
from understudy.errors import DiskFull
from understudy.management.operations import queue_messages
from understudy.message import GROUP_ID
from understudy.routing.addresses.updates import change_queue
from understudy.routing.lifecycle import redelivery
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import act_on
from understudy.routing.restore import restore
from understudy.session.outcomes import EXPIRED, REJECTED
from understudy.session.session import ServerSession
from understudy.terms import RoutingType


def consumer(world: World, selector: str | None = None, credit_bytes: int = -1, **options: object) -> ServerSession:
    session = world.session(**options)
    session.consumers.create(0, "q", selector)
    session.consumers.receive_credits(0, credit_bytes)
    return session


def send(world: World, bodies: str, **options: object) -> None:
    session = world.session()
    for body in bodies:
        session.sends.send(text(body, **options))


def seen(session: ServerSession) -> str:
    return b"".join(callback_of(session).bodies()).decode()


def last_id(session: ServerSession) -> int:
    return callback_of(session).delivered[-1][1].message_id


def test_each_consumer_sees_everything_from_the_start_and_nothing_twice() -> None:
    world = World()
    queue = world.queue(non_destructive=True)
    send(world, "AB")
    first, second = consumer(world), consumer(world)
    world.turn()
    send(world, "C")
    world.turn()
    late = consumer(world)
    world.turn()
    world.turn()
    assert [seen(each) for each in (first, second, late)] == ["ABC"] * 3
    assert (queue.message_count, queue.delivering_count) == (3, 9)


def test_an_acknowledgement_ends_the_loan_and_nothing_else() -> None:
    world = World()
    queue = world.queue(non_destructive=True)
    send(world, "AB")
    session, transacted = consumer(world), consumer(world, transacted=True)
    world.turn()
    written = world.store.last_sequence
    session.acknowledge(0, last_id(session))
    transacted.acknowledge(0, last_id(transacted))
    transacted.commit()
    assert world.store.last_sequence == written, "nothing about it is worth a record"
    assert (queue.message_count, queue.delivering_count, queue.messages_acknowledged) == (2, 0, 0)
    assert len(world.store.survivors(queue)) == 2
    world.turn()
    assert (seen(session), seen(transacted)) == ("AB", "AB")
    pre = consumer(world, pre_acknowledge=True)
    world.turn()
    assert (seen(pre), queue.message_count, queue.delivering_count) == ("AB", 2, 0)


def test_higher_priorities_and_selectors_and_credits_count_for_each() -> None:
    world = World()
    world.queue(non_destructive=True)
    session = world.session()
    for number in range(6):
        session.sends.send(text(str(number), priority=number % 2 * 5, properties={"odd": number % 2}))
    everything, odd, slow = consumer(world), consumer(world, "odd = 1"), consumer(world, credit_bytes=1)
    world.turn()
    assert [seen(each) for each in (everything, odd, slow)] == ["135024", "135", "1"]
    slow.consumers.receive_credits(0, -1)
    world.turn()
    session.sends.send(text("9", priority=9))
    world.turn()
    assert seen(slow) == "1350249"


def test_a_returned_message_is_offered_again_to_the_same_consumer() -> None:
    world = World()
    queue = world.queue(non_destructive=True)
    send(world, "ABC")
    session, other = consumer(world, transacted=True), consumer(world)
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[1][1].message_id)
    session.rollback()
    send(world, "D")
    world.turn()
    assert seen(session) == "ABC" + "ABC" + "D"
    assert callback_of(session).counts() == [1, 1, 1, 2, 2, 1, 1]
    assert seen(other) == "ABCD"
    assert queue.delivering_count == 8
    session.close(failed=False)
    assert queue.delivering_count == 4
    late = consumer(world)
    world.turn()
    assert callback_of(late).counts() == [1, 1, 1, 1], "failures count for the consumer that failed"


@pytest.mark.parametrize("kind", [{}, {"last_value": True, "last_value_key": "key"}])
def test_failed_deliveries_of_a_consumer_do_not_take_a_message_from_the_others(kind: dict[str, object]) -> None:
    world = World({"q": {"dead_letter_address": "DLQ", "max_delivery_attempts": 2}})
    queue, dead = world.queue(non_destructive=True, **kind), world.queue("DLQ")
    send(world, "A", properties={"key": "k"})
    session, other = consumer(world, transacted=True), consumer(world, transacted=True)
    for _ in range(4):
        world.turn()
        session.acknowledge(0, last_id(session))
        session.rollback()
    world.turn()
    assert (seen(session), callback_of(session).counts()) == ("AA", [1, 2]), "it is not tried there again"
    assert (queue.message_count, dead.message_count, queue.messages_killed) == (1, 0, 0)
    for _ in range(4):
        crashing = consumer(world, transacted=True)
        world.turn()
        crashing.close(failed=True)
    world.turn()
    assert (seen(other), callback_of(other).counts()) == ("A", [1])
    late = consumer(world)
    world.turn()
    assert (seen(late), queue.message_count, dead.message_count) == ("A", 1, 0)
    assert world.store.survivors(queue) == [last_id(late)]


def test_a_message_that_one_consumer_rejects_stays_for_the_others() -> None:
    world = World({"q": {"dead_letter_address": "DLQ"}})
    queue, dead = world.queue(non_destructive=True), world.queue("DLQ")
    send(world, "A")
    session, other = consumer(world), consumer(world)
    world.turn()
    session.settle(0, last_id(session), REJECTED)
    world.turn()
    assert (seen(session), seen(other)) == ("A", "A")
    assert (queue.message_count, queue.delivering_count, dead.message_count) == (1, 1, 0)


def test_a_consumer_whose_clock_is_ahead_does_not_expire_a_message_for_the_others() -> None:
    world = World({"q": {"expiry_address": "EXP"}})
    queue, expired = world.queue(non_destructive=True), world.queue("EXP")
    send(world, "A", expiration=world.clock.now_ms + 10)
    session = consumer(world)
    world.turn()
    session.settle(0, last_id(session), EXPIRED)
    assert (queue.message_count, queue.delivering_count, expired.message_count) == (1, 0, 0)


def test_expiry_takes_what_consumers_do_not() -> None:
    world = World({"q": {"expiry_address": "EXP"}})
    queue, expired = world.queue(non_destructive=True), world.queue("EXP")
    send(world, "A", expiration=world.clock.now_ms + 10)
    send(world, "B")
    session = consumer(world)
    world.turn()
    world.clock.advance(20)
    late = consumer(world)
    world.turn()
    assert (seen(session), seen(late)) == ("AB", "B")
    assert (queue.message_count, expired.message_count) == (1, 1)
    session.acknowledge(0, last_id(session))
    assert queue.delivering_count == 1
    send(world, "C", expiration=world.clock.now_ms + 10)
    world.turn()
    world.clock.advance(20)
    session.settle(0, last_id(session), EXPIRED)
    assert (queue.message_count, expired.message_count, queue.delivering_count) == (1, 2, 2)
    late.settle(0, last_id(late), EXPIRED)
    assert (queue.message_count, expired.message_count, queue.delivering_count) == (1, 2, 1), "it is gone already"


def test_groups_and_exclusive_consumers() -> None:
    world = World()
    queue = world.queue(non_destructive=True)
    send(world, "AB", properties={GROUP_ID: "g"})
    first, second = consumer(world), consumer(world)
    world.turn()
    assert (seen(first), seen(second)) == ("AB", "AB"), "each consumer sees all messages, groups or not"
    change_queue(world.office, queue, replace(queue.configuration, exclusive=True))
    send(world, "C")
    world.turn()
    assert (seen(first), seen(second)) == ("ABC", "AB")
    first.close(failed=False)
    world.turn()
    assert seen(second) == "ABC"


def test_a_queue_can_become_non_destructive_and_ordinary_again() -> None:
    world = World()
    queue = world.queue()
    send(world, "AB")
    session = consumer(world)
    world.turn()
    change_queue(world.office, queue, replace(queue.configuration, non_destructive=True))
    send(world, "C")
    world.turn()
    assert seen(session) == "ABC"
    first = callback_of(session).delivered[0][1].message_id
    session.acknowledge(0, first)
    assert (queue.message_count, queue.delivering_count) == (2, 2), (
        "messages delivered before are acknowledged as before"
    )
    change_queue(world.office, queue, replace(queue.configuration, non_destructive=False))
    world.turn()
    assert seen(session) == "ABCC"


def bodies_after_restart(queue: Queue, world: World) -> str:
    successor = World(store=world.store)
    restore(successor.office, world.store.found())
    restored = successor.office.directory.queues[queue.name]
    assert restored.configuration.non_destructive
    session = consumer(successor)
    successor.turn()
    return seen(session)


def test_after_a_restart_every_consumer_begins_at_the_start() -> None:
    world = World()
    queue = world.queue(non_destructive=True)
    send(world, "ABC")
    session = consumer(world)
    world.turn()
    session.acknowledge(0, last_id(session))
    assert bodies_after_restart(queue, world) == "ABC"


def test_the_file_of_a_large_message_stays_while_a_consumer_has_it() -> None:
    node = Node(StoreHarness(random.Random(2)), "a")
    world = node.world
    queue = world.queue(non_destructive=True, routing_type=RoutingType.ANYCAST)
    node.settle()
    node.send(world.session(), header_of("one"), body_of("one"))
    node.settle()
    reader = node.consumer()
    node.settle()
    assert callback_of(reader).large_bodies == [body_of("one")]
    ((_, message, _),) = callback_of(reader).large
    held = node.store.large.references
    assert held(message.large.file_id) == 2
    queue.purge()
    assert held(message.large.file_id) == 1
    reader.acknowledge(0, message.message_id)
    assert held(message.large.file_id) == 0
    node.outlive()
    assert node.files() == []


def test_a_message_that_cannot_be_removed_is_not_delivered_again() -> None:
    """Neither to the consumer that holds a copy, which would then hold two, nor to one that acknowledged its copy."""
    world = World({"#": {"expiry_address": "EXP"}})
    queue = world.queue(non_destructive=True)
    world.queue("EXP")
    send(world, "A", expiration=world.clock.now_ms + 100)
    holder, done = consumer(world), consumer(world)
    world.turn()
    done.acknowledge(0, last_id(done))
    world.store.full = True
    steps = act_on(queue, lambda _: True, queue_messages.expire(world.office, queue))
    with pytest.raises(DiskFull):
        list(steps)
    world.clock.advance(200)
    holder.settle(0, last_id(holder), EXPIRED)
    world.turn()
    assert (queue.scheduled_count, queue.delivering_count) == (1, 0)
    world.clock.advance(redelivery.TRY_AGAIN_MS)
    world.turn()
    assert (seen(holder), seen(done)) == ("A", "A")
    assert (queue.message_count, queue.delivering_count) == (1, 0)


@pytest.mark.parametrize("runs", [False, True])
def test_a_loan_ends_when_its_message_is_handed_out_for_good(runs: bool) -> None:
    """The queue ceases to be non-destructive while a consumer holds a copy, then delivers the same message to it."""
    world = World()
    queue = world.queue(non_destructive=True)
    reader = consumer(world, callback=FakeCallback(runs=runs))
    send(world, "A")
    world.turn()
    assert (queue.delivering_count, queue.message_count) == (1, 1)
    change_queue(world.office, queue, replace(queue.configuration, non_destructive=False))
    world.turn()
    assert (seen(reader), queue.delivering_count) == ("AA", 1)
    reader.acknowledge(0, last_id(reader))
    assert (queue.delivering_count, queue.message_count, queue.address.message_count) == (0, 0, 0)
