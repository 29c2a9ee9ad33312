"""Counters, limits and sweeps of one queue."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from support.xa import XID, xa_session
from understudy.errors import MaxConsumersExceeded
from understudy.message import SCHEDULED_DELIVERY
from understudy.routing.queues.consumer import QueueConsumers


def test_counters_follow_a_message_through() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    for name in "abc":
        session.sends.send(text(name))
    assert (queue.message_count, queue.messages_added, queue.delivering_count) == (3, 3, 0)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    assert (queue.message_count, queue.delivering_count, queue.consumers.count) == (3, 3, 1)
    ids = [message.message_id for _, message, _ in callback_of(session).delivered]
    session.acknowledge(0, ids[1])
    assert (queue.message_count, queue.delivering_count, queue.messages_acknowledged) == (1, 1, 2)
    session.consumers.close(0)
    assert (queue.message_count, queue.delivering_count, queue.consumers.count) == (1, 0, 0)
    assert world.store.survivors(queue) == ids[2:]


def test_max_consumers() -> None:
    world = World()
    queue = world.queue(max_consumers=1)
    session = world.session()
    session.consumers.create(0, "q")
    with pytest.raises(MaxConsumersExceeded, match="limit 1"):
        session.consumers.create(1, "q")
    assert queue.consumers.count == 1
    session.consumers.create(2, "q", browse_only=True)
    session.consumers.close(0)
    session.consumers.create(1, "q")


def test_purge_on_no_consumers() -> None:
    world = World()
    queue = world.queue(purge_on_no_consumers=True)
    producer = world.session()
    producer.sends.send(text("no queue"), world.answers.of("no queue"))
    assert world.answers.error("no queue") is None
    assert queue.message_count == 0
    session = world.session()
    session.consumers.create(0, "q")
    producer.sends.send(text("kept"))
    producer.sends.send(text("later", properties={SCHEDULED_DELIVERY: world.clock.now_ms + 5_000}))
    assert (queue.message_count, queue.scheduled_count) == (2, 1)
    session.consumers.close(0)
    assert (queue.message_count, queue.scheduled_count, world.office.memory.held_bytes) == (0, 0, 0)
    assert world.store.survivors(queue) == []
    world.clock.advance(5_000)
    assert (queue.message_count, queue.messages_killed) == (0, 2)


@pytest.mark.parametrize("redelivery_delay", [0, 1_000])
@pytest.mark.parametrize("end", ["rollback", "close", "lost"])
def test_purge_on_no_consumers_drops_deliveries_that_return_after_the_last_consumer(
    end: str, redelivery_delay: int
) -> None:
    world = World({"q": {"redelivery_delay": redelivery_delay}})
    queue = world.queue(purge_on_no_consumers=True)
    session = world.session(transacted=True)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    producer = world.session()
    for body in ("held", "waits"):
        producer.sends.send(text(body))
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.consumers.close(0)
    assert (queue.message_count, queue.delivering_count) == (1, 1)
    if end == "rollback":
        session.rollback()
    else:
        session.close(failed=end == "lost")
    assert (queue.message_count, queue.delivering_count, queue.scheduled_count) == (0, 0, 0)
    assert (queue.messages_killed, world.store.survivors(queue), world.office.memory.held_bytes) == (2, [], 0)


def test_purge_on_no_consumers_drops_acknowledgements_of_a_prepared_branch_that_is_rolled_back() -> None:
    world = World()
    queue = world.queue(purge_on_no_consumers=True)
    session = xa_session(world)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.session().sends.send(text("m"))
    world.turn()
    session.branches.start(XID)
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    session.close(failed=False)
    assert (queue.message_count, queue.delivering_count) == (1, 1)
    world.session(xa=True).branches.roll_back(XID)
    assert (queue.message_count, queue.delivering_count, world.store.survivors(queue)) == (0, 0, [])


def test_a_purging_queue_keeps_deliveries_that_return_while_another_consumer_is_there() -> None:
    world = World()
    queue = world.queue(purge_on_no_consumers=True)
    session, other = world.session(transacted=True), world.session()
    for each in (session, other):
        each.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.session().sends.send(text("m"))
    world.turn()
    session.close(failed=True)
    assert (queue.message_count, queue.delivering_count) == (1, 0)


def test_expired_messages_are_found_without_a_consumer() -> None:
    world = World(message_expiry_scan_period_ms=1000)
    queue = world.queue()
    session = world.session()
    session.sends.send(text("keep"))
    session.sends.send(text("late", expiration=world.clock.now_ms + 5000))
    session.sends.send(text("soon", expiration=world.clock.now_ms + 500))
    assert queue.expiring_count == 2
    world.clock.advance(999)
    assert queue.message_count == 3
    world.clock.advance(1)
    assert (queue.message_count, queue.messages_expired, queue.expiring_count) == (2, 1, 1)
    world.clock.advance(4000)
    assert (queue.message_count, queue.expiring_count) == (1, 0)
    assert len(world.store.survivors(queue)) == 1


def test_a_paused_queue_takes_but_does_not_give() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    queue.pause()
    session.sends.send(text("a"))
    world.turn()
    assert callback_of(session).delivered == []
    queue.resume()
    world.turn()
    assert callback_of(session).bodies() == [b"a"]


def test_purge_leaves_messages_in_delivery() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, 1)
    for name in "abc":
        session.sends.send(text(name))
    world.turn()
    assert queue.purge() == 2
    assert (queue.message_count, queue.delivering_count) == (1, 1)
    session.consumers.close(0)
    assert queue.message_count == 1
    assert len(queue.pending) == 1


def test_consumers_that_leave_together_do_not_each_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with 10,000 consumers that disconnected held up the loop for seconds."""
    world = World()
    queue = world.queue("q")
    session = world.session()
    for number in range(200):
        session.consumers.create(number, "q")
    looked: list[QueueConsumers] = []
    each = QueueConsumers.__iter__
    monkeypatch.setattr(QueueConsumers, "__iter__", lambda self: looked.append(self) or each(self))
    session.close(failed=True)
    assert queue.consumers.count == 0
    assert looked == []
    assert not queue.selective


def test_the_last_selector_that_leaves_makes_the_queue_plain_again() -> None:
    world = World()
    queue = world.queue("q")
    session = world.session()
    session.consumers.create(1, "q")
    session.consumers.create(2, "q", selector_text="a = 1")
    assert queue.selective
    session.consumers.close(1)
    assert queue.selective
    session.consumers.create(3, "q")
    session.consumers.close(2)
    assert not queue.selective
