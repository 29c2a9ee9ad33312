"""Taking over what the log says."""

from __future__ import annotations

from support.routing import World, callback_of, text
from understudy.message import DUPLICATE_ID, SCHEDULED_DELIVERY
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.restore import restore
from understudy.session.outcomes import ACCEPTED
from understudy.terms import RoutingType


def successor(world: World, settings: dict[str, dict[str, object]] | None = None) -> World:
    """The next node on the same log."""
    following = World(settings, store=world.store)
    following.clock.now_ms = world.clock.now_ms
    restore(following.office, world.store.found())
    return following


def bodies(world: World, queue: str) -> list[bytes]:
    session = world.session()
    session.consumers.create(0, queue)
    session.consumers.receive_credits(0, -1)
    world.turn()
    return callback_of(session).bodies()


def test_messages_come_back_in_order_without_bodies_in_memory() -> None:
    world = World()
    world.queue()
    session = world.session()
    for name in "abc":
        session.sends.send(text(name))
    session.sends.send(text("lost", durable=False))
    following = successor(world)
    queue = following.office.directory.find_queue("q")
    assert queue is not None
    assert queue.message_count == 3
    assert queue.address.memory_bytes == 0
    assert queue.address.size_bytes == 3 * text("a").encode_size
    assert bodies(following, "q") == [b"a", b"b", b"c"]


def test_acknowledged_and_uncommitted_ones_do_not() -> None:
    world = World()
    world.queue()
    session = world.session()
    for name in "ab":
        session.sends.send(text(name))
    world.session(transacted=True).sends.send(text("open"))
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    assert bodies(successor(world), "q") == [b"b"]


def test_delivery_counts_of_failed_deliveries_survive() -> None:
    world = World()
    world.queue()
    session = world.session()
    session.sends.send(text("a"))
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    session.close(failed=True)
    following = successor(world)
    reader = following.session()
    reader.consumers.create(0, "q")
    reader.consumers.receive_credits(0, -1)
    following.turn()
    assert callback_of(reader).counts() == [2]


def test_queues_keep_their_requested_settings() -> None:
    world = World()
    world.queue(
        "t", address="news", routing_type=RoutingType.MULTICAST, filter="a = 1", max_consumers=4, auto_created=True
    )
    world.queue("gone", durable=False)
    following = successor(world, {"#": {"default_max_consumers": 9, "default_last_value_queue": True}})
    queue = following.office.directory.find_queue("t")
    assert queue is not None
    assert queue.filter is not None
    assert queue.filter.text == "a = 1"
    assert queue.configuration.max_consumers == 4
    assert queue.configuration.auto_created
    assert queue.configuration.auto_delete
    assert queue.routing_type is RoutingType.MULTICAST
    assert following.office.directory.find_queue("gone") is None


def test_neighbours_in_the_log_keep_what_sets_them_apart() -> None:
    world = World()
    made = [
        QueueConfiguration(name, "a", RoutingType.MULTICAST, filter=text_of, max_consumers=consumers, durable=durable)
        for name, text_of, consumers, durable in (
            ("same-1", None, 2, True),
            ("same-2", None, 2, True),
            ("filtered", "x = 1", 2, True),
            ("few", None, 1, True),
            ("same-3", None, 2, True),
        )
    ]
    for each in made:
        world.office.directory.create_queue(each)
    before = {queue.name: queue.configuration for queue in world.office.directory.queues.values()}
    after = successor(world).office.directory
    assert {queue.name: queue.configuration for queue in after.queues.values()} == before
    assert {queue.name: queue.address.name for queue in after.queues.values()} == dict.fromkeys(before, "a")


def test_duplicate_ids_are_still_known() -> None:
    world = World()
    world.queue()
    world.session().sends.send(text("a", properties={DUPLICATE_ID: "1"}))
    following = successor(world)
    following.session().sends.send(text("a", properties={DUPLICATE_ID: "1"}), following.answers.of("again"))
    assert following.answers.error("again") is None
    assert bodies(following, "q") == [b"a"]


def test_scheduled_messages_go_on_waiting() -> None:
    world = World()
    world.queue()
    session = world.session()
    session.sends.send(text("later", properties={SCHEDULED_DELIVERY: world.clock.now_ms + 100}))
    session.sends.send(text("now"))
    following = successor(world)
    queue = following.office.directory.find_queue("q")
    assert queue is not None
    assert (queue.message_count, queue.scheduled_count) == (2, 1)
    following.clock.advance(100)
    assert bodies(following, "q") == [b"now", b"later"]


def test_messages_in_several_queues_count_once() -> None:
    world = World()
    for name in "ab":
        world.queue(name, address="t", routing_type=RoutingType.MULTICAST)
    world.session().sends.send(text("m", "t"))
    following = successor(world)
    address = following.office.directory.addresses["t"]
    assert (address.size_bytes, address.message_count) == (text("m", "t").encode_size, 1)
    for name in "ab":
        queue = following.office.directory.find_queue(name)
        assert queue is not None
        queue.purge()
    assert (address.size_bytes, address.message_count) == (0, 0)


def test_messages_in_some_queues_of_several_count_once_each() -> None:
    """Whichever queue has settled which message: the counts are those of the node before."""
    world = World()
    queues = [world.queue(name, address="t", routing_type=RoutingType.MULTICAST) for name in "abc"]
    session = world.session()
    for number in range(200):
        session.sends.send(text("x" * number, "t"))
    # the first ones of a, some from the middle of b, few of c: no queue holds all that another does
    for queue, done in zip(queues, (range(50), range(40, 120), range(10, 20)), strict=True):
        reader = world.session()
        reader.consumers.create(0, queue.name)
        reader.consumers.receive_credits(0, -1)
        world.turn()
        ids = [message.message_id for _, message, _ in callback_of(reader).delivered]
        for number in done:
            reader.settle(0, ids[number], ACCEPTED)
        reader.close(failed=False)
    before = world.office.directory.addresses["t"]
    following = successor(world)
    address = following.office.directory.addresses["t"]
    assert (address.size_bytes, address.message_count) == (before.size_bytes, before.message_count)
    assert address.paged_count == address.message_count
    for name in "cab":
        queue = following.office.directory.find_queue(name)
        assert queue is not None
        queue.purge()
    assert (address.size_bytes, address.message_count, address.paged_count) == (0, 0, 0)


def test_priorities_and_expirations_are_kept() -> None:
    world = World()
    world.queue()
    session = world.session()
    session.sends.send(text("low", priority=1))
    session.sends.send(text("high", priority=8, expiration=world.clock.now_ms + 50))
    following = successor(world)
    queue = following.office.directory.find_queue("q")
    assert queue is not None
    assert queue.expiring_count == 1
    assert bodies(following, "q") == [b"high", b"low"]


def test_a_message_released_early_takes_no_other_ones_place_after_a_restart() -> None:
    """Released by an operator, failed, and scheduled again by a restart before its time: it comes back after all
    others, whatever position it had.
    """
    world = World()
    world.queue()
    producer = world.session()
    producer.sends.send(text("early", properties={SCHEDULED_DELIVERY: world.clock.now_ms + 100}))
    queue = world.office.directory.find_queue("q")
    assert queue is not None
    for reference in world.office.scheduled.take(queue, lambda _: True, 1):
        queue.due(reference)
    session = world.session(transacted=True)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.close(failed=True)
    for name in "ab":
        producer.sends.send(text(name))
    following = successor(world)
    queue = following.office.directory.find_queue("q")
    assert queue is not None
    assert (queue.message_count, queue.scheduled_count) == (3, 1)
    following.clock.advance(100)
    assert len(queue.pending) == 3
    assert bodies(following, "q") == [b"a", b"b", b"early"]
