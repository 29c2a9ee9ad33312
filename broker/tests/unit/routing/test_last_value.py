"""Last-value queues: of each key only the newest message waits, and what a crash leaves is cleared up."""

from __future__ import annotations

import random

import pytest

from support.routing import Answers, World, callback_of, text
from support.store import StoreHarness
from understudy.message import LAST_VALUE, SCHEDULED_DELIVERY, Message
from understudy.routing.queues import last_value
from understudy.routing.queues import level as levels
from understudy.routing.queues.queue import Queue
from understudy.routing.restore import restore, settle
from understudy.session.session import ServerSession
from understudy.store.messages.pages import Pages
from understudy.testing.sim.disk import SimVolume


def value(body: str, key: object = "k", **options: object) -> Message:
    properties = {LAST_VALUE: key, **options.pop("properties", {})}  # type: ignore[dict-item]
    return text(body, properties=properties, **options)


def waits(queue: Queue) -> list[bytes]:
    return [queue.read(reference).body for _, reference in queue.browse((9, -1))]


def reader(world: World, **options: object) -> ServerSession:
    session = world.session(**options)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    return session


def ids(session: ServerSession) -> list[int]:
    return [message.message_id for _, message, _ in callback_of(session).delivered]


def test_the_newest_of_each_key_waits_and_messages_without_a_key_stay() -> None:
    world = World()
    queue = world.queue(last_value=True)
    session = world.session()
    for message in (value("1"), value("2", "other"), text("3"), value("4"), text("5"), value("6", 7), value("7", "7")):
        session.sends.send(message)
    assert waits(queue) == [b"2", b"3", b"4", b"5", b"7"], "the key is compared as text"
    assert (queue.message_count, queue.messages_replaced) == (5, 2)
    assert world.store.survivors(queue) == [reference.message_id for _, reference in queue.browse((9, -1))]


def test_the_key_is_the_property_the_queue_names() -> None:
    world = World({"q": {"default_last_value_key": "code"}})
    queue = world.queue()
    session = world.session()
    for body, properties in (("1", {"code": "A"}), ("2", {LAST_VALUE: "B", "code": "C"}), ("3", {"code": "A"})):
        session.sends.send(text(body, properties=properties))
    assert waits(queue) == [b"2", b"3"]
    session.sends.send(text("4", properties={LAST_VALUE: "A"}))
    assert waits(queue) == [b"2", b"4"], "where it is missing the usual one counts"


def test_nothing_is_replaced_before_the_newer_value_is_durable() -> None:
    world = World(automatic=False)
    queue = world.queue(last_value=True)
    world.sync()
    session, answers = world.session(), Answers()
    session.sends.send(value("old"), answers.of("old"))
    world.sync()
    session.sends.send(value("new"), answers.of("new"))
    assert waits(queue) == [b"old"]
    assert len(world.store.live(queue)) == 2, "the end of the old one is not even written"
    world.store.sync()
    assert answers.names == ["old", "new"]
    assert waits(queue) == [b"new"]
    assert len(world.store.survivors(queue)) == 1


def test_a_newer_priority_replaces_an_older_one() -> None:
    world = World()
    queue = world.queue(last_value=True)
    session = world.session()
    session.sends.send(value("high", priority=9))
    session.sends.send(value("low", priority=0))
    assert waits(queue) == [b"low"]


def test_a_delivery_that_fails_comes_back_unless_a_newer_value_waits() -> None:
    world = World()
    queue = world.queue(last_value=True)
    producer, consumer = world.session(), reader(world, transacted=True)
    producer.sends.send(value("1"))
    world.turn()
    consumer.rollback()
    world.turn()
    assert callback_of(consumer).bodies() == [b"1", b"1"]
    consumer.consumers.receive_credits(0, 0)
    consumer.consumers.stop()
    producer.sends.send(value("2"))
    consumer.rollback()
    assert waits(queue) == [b"2"]
    assert (queue.message_count, queue.delivering_count, queue.messages_replaced) == (1, 0, 1)
    assert len(world.store.survivors(queue)) == 1


def test_two_values_that_come_back_leave_the_newer() -> None:
    world = World()
    queue = world.queue(last_value=True)
    producer, first = world.session(), reader(world)
    second = world.session()
    producer.sends.send(value("1"))
    world.turn()
    first.consumers.stop()
    second.consumers.create(0, "q")
    second.consumers.receive_credits(0, -1)
    producer.sends.send(value("2"))
    world.turn()
    assert (callback_of(first).bodies(), callback_of(second).bodies()) == ([b"1"], [b"2"])
    second.consumers.stop()
    first.close(failed=True)
    assert waits(queue) == [b"1"], "nothing newer waits"
    second.close(failed=True)
    assert waits(queue) == [b"2"]
    assert queue.messages_replaced == 1


def test_a_replaced_delivered_message_is_acknowledged_normally() -> None:
    world = World()
    queue = world.queue(last_value=True)
    producer, consumer = world.session(), reader(world, transacted=True)
    producer.sends.send(value("1"))
    world.turn()
    producer.sends.send(value("2"))
    world.turn()
    assert callback_of(consumer).bodies() == [b"1", b"2"]
    consumer.acknowledge(0, ids(consumer)[-1])
    consumer.commit()
    assert (queue.message_count, queue.messages_acknowledged, queue.messages_replaced) == (0, 2, 0)
    assert world.store.survivors(queue) == []


def test_transactions_replace_when_they_commit() -> None:
    world = World()
    queue = world.queue(last_value=True)
    plain, transacted = world.session(), world.session(transacted=True)
    transacted.sends.send(value("in transaction"))
    plain.sends.send(value("plain"))
    assert waits(queue) == [b"plain"]
    transacted.commit()
    assert waits(queue) == [b"in transaction"], "it became visible last"
    transacted.sends.send(value("never"))
    transacted.rollback()
    assert waits(queue) == [b"in transaction"]


def test_a_scheduled_value_replaces_when_its_time_comes() -> None:
    world = World()
    queue = world.queue(last_value=True)
    session = world.session()
    session.sends.send(value("later", properties={SCHEDULED_DELIVERY: world.clock.now_ms + 100}))
    session.sends.send(value("now"))
    assert waits(queue) == [b"now"]
    assert queue.message_count == 2
    world.clock.advance(100)
    assert waits(queue) == [b"later"]
    assert (queue.message_count, queue.scheduled_count) == (1, 0)


def test_a_postponed_redelivery_does_not_replace_a_newer_value() -> None:
    world = World({"q": {"redelivery_delay": 50}})
    queue = world.queue(last_value=True)
    producer, consumer = world.session(), reader(world, transacted=True)
    producer.sends.send(value("1"))
    world.turn()
    consumer.acknowledge(0, ids(consumer)[-1])
    consumer.consumers.stop()
    consumer.rollback()
    producer.sends.send(value("2"))
    assert queue.scheduled_count == 1
    world.clock.advance(50)
    assert waits(queue) == [b"2"]
    assert queue.message_count == 1


def test_an_expired_value_leaves_its_key_free() -> None:
    world = World({"q": {"expiry_address": "EXP"}})
    queue, expired = world.queue(last_value=True), world.queue("EXP")
    session = world.session()
    session.sends.send(value("old", expiration=world.clock.now_ms + 10))
    world.clock.advance(20)
    assert queue.expire_overdue(world.clock.now_ms) == 1
    session.sends.send(value("new"))
    assert (waits(queue), waits(expired), queue.messages_replaced) == ([b"new"], [b"old"], 0)


def test_non_destructive_consumers_see_every_newer_value() -> None:
    world = World()
    queue = world.queue(last_value=True, non_destructive=True)
    producer, consumer = world.session(), reader(world)
    for body in ("1", "2"):
        producer.sends.send(value(body))
        world.turn()
    assert callback_of(consumer).bodies() == [b"1", b"2"]
    consumer.acknowledge(0, ids(consumer)[-1])
    assert waits(queue) == [b"2"]
    assert callback_of(reader(world)).bodies() == [b"2"]


@pytest.mark.parametrize("limit", [-1, 0])
def test_values_that_leave_memory_are_replaced_too(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are replaced in blocks, in page files and after empty blocks were joined: a million updates cost no more
    than one.
    """
    for name, small in {
        "BLOCK": 2,
        "OBJECT_BLOCKS": 2,
        "SHORT_BLOCKS": 3,
        "OPEN_BLOCKS": 1,
        "MEMORY_BLOCKS": 2,
    }.items():
        monkeypatch.setattr(levels, f"_{name}", small)
    monkeypatch.setattr(last_value, "_KEYS_MIN", 4)
    world = World({"q": {"max_size_bytes": limit}}, pages=Pages(SimVolume().disk("a"), "/paging", 1))
    queue = world.queue(last_value=True)
    session = world.session()
    random_keys = random.Random(5)
    newest: dict[str, bytes] = {}
    for number in range(600):
        key = str(random_keys.randrange(20) if number % 3 else 0)
        newest.pop(key, None)
        newest[key] = str(number).encode()
        session.sends.send(value(str(number), key, durable=number % 2 == 0))
    assert waits(queue) == list(newest.values())
    assert queue.message_count == 20
    level = queue.pending.level(4)
    assert len(level.blocks) <= 2 * queue.message_count + 2
    assert callback_of(reader(world)).bodies() == list(newest.values())


def test_keys_of_consumed_messages_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_value, "_KEYS_MIN", 8)
    world = World()
    queue = world.queue(last_value=True)
    producer, consumer = world.session(), reader(world)
    for number in range(100):
        producer.sends.send(value("m", str(number)))
        world.turn()
        consumer.acknowledge(0, ids(consumer)[-1])
    assert queue.kind is not None
    assert queue.kind.last_values is not None
    assert len(queue.kind.last_values) <= 9


def test_a_takeover_keeps_the_newest_of_what_a_crash_left() -> None:
    """Between a newer value and the end of the older one in the log lies a batch; a crash there leaves
    both."""
    rig = StoreHarness(random.Random(3))
    world = World(store=rig.activate("a"))
    queue = world.queue(last_value=True)
    session, answers = world.session(), Answers()
    for number in range(6):
        session.sends.send(value(str(number), str(number % 2)), answers.of(str(number)))
    assert rig.store is not None
    while rig.store.context.durable < rig.store.last_sequence:
        rig.store.flush()
        rig.time.advance(10)
        if len(answers.names) == 6:
            break
    assert waits(queue) == [b"4", b"5"]
    rig.die(power_loss=True)
    store = rig.activate("b")
    successor = World(store=store)
    assert restore(successor.office, store.state) == 6, "no end of the old ones was synced"
    settle(successor.office, "$.internal.")
    restored = successor.office.directory.queues["q"]
    assert waits(restored) == [b"4", b"5"]
    successor.session().sends.send(value("6", "0"))
    store.flush()
    while store.context.durable < store.last_sequence:
        rig.time.advance(10)
        store.flush()
    assert waits(restored) == [b"5", b"6"]
    rig.die(power_loss=False)
    store = rig.activate("c")
    assert restore(World(store=store).office, store.state) == 2


def test_a_returned_value_does_not_replace_one_committed_later() -> None:
    """The later one may have the lower id: it was sent earlier, in a transaction."""
    world = World()
    queue = world.queue(last_value=True)
    sender = world.session(transacted=True)
    sender.sends.send(value("committed later"))
    world.session().sends.send(value("first"))
    taker = reader(world, transacted=True)
    taker.consumers.receive_credits(0, 0)
    sender.commit()
    assert waits(queue) == [b"committed later"]
    taker.rollback()
    assert waits(queue) == [b"committed later"]
    assert (queue.message_count, queue.messages_replaced) == (1, 1)


def test_keys_of_scheduled_messages_that_never_come_are_not_kept() -> None:
    pages = Pages(SimVolume().disk("a"), "/paging", 1)
    world = World({"#": {"max_size_bytes": 0}}, pages=pages)
    queue = world.queue(last_value=True)
    later = {SCHEDULED_DELIVERY: world.clock.now_ms + 100}
    for durable in (True, False):
        world.session().sends.send(value("later", properties=later, durable=durable))
    for part in world.office.scheduled.remove(queue):
        queue.forget(part)
    assert queue.kind is not None
    assert queue.kind.last_values is not None
    assert not queue.kind.last_values._coming
    for durable in (True, False):
        world.session().sends.send(value("later still", properties=later, durable=durable))
    world.clock.advance(200)
    assert waits(queue) == [b"later still"]
