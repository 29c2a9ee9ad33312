"""Redistribution of one queue: what moves, when, and that a crash neither loses nor doubles it (artemis-ha s. 7.7)."""

from __future__ import annotations

from typing import Any

import pytest

from support.routing import World, callback_of, text
from understudy.cluster.balancing.redistribution import Redistribution, State
from understudy.cluster.balancing.remote_bindings import RemoteBindings
from understudy.config.model import AddressSettingsConfiguration
from understudy.limits import REDISTRIBUTED_WAITING_MAX
from understudy.message import DELIVERIES, GROUP_ID, ROUTE_TO, SCHEDULED_DELIVERY, Message
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.filter import parse_filter
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import RemoteBinding, queue_ids
from understudy.terms import MessageLoadBalancing, RoutingType

NODE = "11111111-2222-3333-4444-555555555555"


class Redistributing:
    """A node with the queue ``q`` and one other node that has such a queue."""

    def __init__(self, *, delay_ms: int = 0, automatic: bool = True) -> None:
        settings = {"#": {"redistribution_delay": delay_ms}}
        self.world = World(settings, automatic=automatic)
        self.office = self.world.office
        self.bindings = RemoteBindings(self.office.directory, lambda address: MessageLoadBalancing.ON_DEMAND)
        self.redistribution = Redistribution(self.office, self.bindings, self.world.clock)
        self.queue = self.world.queue("q")
        self.flow = self.office.directory.create_queue(
            QueueConfiguration("sf", "sf", RoutingType.MULTICAST, internal=True), may_create_address=True
        )
        self.binding = RemoteBinding(
            "q" + NODE, "q", "q", remote_id=11, binding_id=5, distance=1, queue=self.flow, filter=None
        )
        self.bindings.add(self.binding)

    def send(self, *bodies: str, **properties: Any) -> None:
        session = self.world.session()
        for body in bodies:
            session.sends.send(text(body, properties=properties))
        self.world.turn()

    def want(self, selector: str | None = None) -> None:
        """A consumer comes at the other node."""
        self.binding.consumers.add(selector, parse_filter(selector))
        self.bindings.tell(lambda listener: listener.remote_consumer_added(self.binding, selector))

    def unwant(self) -> None:
        """The consumers at the other node leave."""
        self.binding.consumers.clear()
        self.bindings.tell(lambda listener: listener.remote_consumer_removed(self.binding, None))

    def move(self, by_ms: int = 50) -> None:
        """Let time pass, and turns."""
        self.world.clock.advance(by_ms)
        self.world.turn()

    def bodies(self, queue: Queue) -> list[str]:
        return [self._read(queue, reference).body.decode() for _, reference in queue.browse((9, -1))]

    def _read(self, queue: Queue, reference: Any) -> Message:
        found = queue.read_waiting(reference)
        assert found is not None
        return found

    @property
    def state(self) -> State:
        state = self.redistribution.by_queue[self.queue].state
        assert isinstance(state, State)
        return state


def test_messages_move_in_order_with_new_ids_and_the_id_of_their_queue() -> None:
    node = Redistributing()
    node.send("a", "b", "c")
    before = [reference.message_id for _, reference in node.queue.browse((9, -1))]
    node.want()
    node.move()
    assert node.queue.message_count == 0
    assert node.bodies(node.flow) == ["a", "b", "c"]
    for _, reference in node.flow.browse((9, -1)):
        message = node.flow.read(reference)
        assert queue_ids(message.properties[ROUTE_TO + "sf"]) == [11]
        assert message.message_id not in before
        assert message.address == "q"
    assert node.world.store.survivors(node.queue) == []
    assert len(node.world.store.survivors(node.flow)) == 3
    assert node.state is State.WATCHING


def test_without_a_sync_a_restart_finds_each_message_once() -> None:
    node = Redistributing(automatic=False)
    node.send("a", "b")
    node.world.sync()
    original = node.world.store.survivors(node.queue)
    node.want()
    node.move()
    assert node.world.store.survivors(node.queue) == original
    assert node.world.store.survivors(node.flow) == []
    node.world.sync()
    assert node.world.store.survivors(node.queue) == []
    assert len(node.world.store.survivors(node.flow)) == 2


@pytest.mark.parameter("redistribution-delay")
def test_the_delay_is_waited_for_and_a_consumer_that_comes_meanwhile_keeps_the_messages() -> None:
    node = Redistributing(delay_ms=1_000)
    node.send("a")
    node.want()
    assert node.state is State.DELAYED
    node.move(900)
    session = node.world.session()
    session.consumers.create(0, "q")
    assert node.state is State.IDLE
    node.move(5_000)
    assert node.queue.message_count == 1
    session.consumers.close(0)
    assert node.state is State.DELAYED
    node.move(1_000)
    assert node.bodies(node.flow) == ["a"]


def test_a_negative_delay_keeps_messages_here_until_the_settings_change() -> None:
    node = Redistributing(delay_ms=-1)
    node.send("a")
    node.want()
    assert node.state is State.IDLE
    node.world.settings.add(AddressSettingsConfiguration("#", redistribution_delay=0))
    node.office.apply_settings()
    node.move()
    assert node.bodies(node.flow) == ["a"]


def test_groups_and_messages_for_local_filters_stay() -> None:
    node = Redistributing()
    session = node.world.session()
    session.consumers.create(0, "q", "colour = 'red'")
    node.send("red", colour="red")
    node.send("blue", colour="blue")
    node.send("group", colour="blue", **{GROUP_ID: "g"})
    node.want()
    node.move()
    assert node.bodies(node.flow) == ["blue"]
    assert sorted(node.bodies(node.queue)) == ["group", "red"]


def test_only_messages_that_a_consumer_elsewhere_wants_move() -> None:
    node = Redistributing()
    node.send("small", size=1)
    node.send("big", size=9)
    node.want("size > 5")
    node.move()
    assert node.bodies(node.flow) == ["big"]
    assert node.bodies(node.queue) == ["small"]


def test_messages_that_come_later_move_too_and_none_after_the_last_consumer_elsewhere_left() -> None:
    node = Redistributing()
    node.want()
    node.move()
    # as in OFF_WITH_REDISTRIBUTION: the balancer of ON_DEMAND would send it there at once
    node.bindings._balancers["q"].mode = MessageLoadBalancing.OFF_WITH_REDISTRIBUTION
    node.send("later")
    node.move(20_000)
    assert node.bodies(node.flow) == ["later"]
    node.unwant()
    assert node.state is State.IDLE
    node.send("stays")
    node.move(20_000)
    assert node.bodies(node.queue) == ["stays"]


def test_a_long_queue_waits_for_the_other_node() -> None:
    node = Redistributing()
    session = node.world.session()
    for _ in range(REDISTRIBUTED_WAITING_MAX + 700):
        session.sends.send(text("x", durable=False))
    node.world.turn()
    node.want()
    node.move(5_000)
    assert node.flow.message_count == REDISTRIBUTED_WAITING_MAX
    assert node.queue.message_count == 700


@pytest.mark.parametrize("how", ["deleted", "closed"])
def test_a_deleted_queue_and_a_node_that_ends_move_nothing(how: str) -> None:
    node = Redistributing()
    node.send("a")
    node.want()
    if how == "deleted":
        node.office.directory.delete_queue("q")
    else:
        node.redistribution.close()
    node.move(10_000)
    assert node.flow.message_count == 0


def test_a_crash_after_any_write_leaves_each_message_in_one_of_the_queues() -> None:
    node = Redistributing(automatic=False)
    bodies = [f"{number}:".ljust(5_000, "x") for number in range(300)]
    node.send(*bodies)
    node.world.sync()
    store = node.world.store
    jobs = store.writer._jobs

    def found() -> list[str]:
        held = store.references
        ids = [each for queue in (node.queue, node.flow) for each in held.get(queue.queue_id, {})]
        return sorted(store.recorded[each].body.decode() for each in ids)

    node.want()
    node.world.clock.advance(1)
    writes = 0
    while node.flow.message_count < len(bodies):
        store.flush()
        if not jobs:
            node.world.clock.advance(1)
            continue
        work, done = jobs.popleft()
        work()
        done(None)
        writes += 1
        assert found() == sorted(bodies)
    assert writes > 3, "several segments"
    assert node.bodies(node.flow) == bodies
    assert store.survivors(node.queue) == []


def test_messages_that_need_more_than_a_run_keep_their_place() -> None:
    node = Redistributing(automatic=False)
    session = node.world.session()
    for number in range(10):
        long = "x" * (300_000 if number == 4 else 1)
        properties = {SCHEDULED_DELIVERY: 1} if number == 7 else {}
        session.sends.send(text(f"{number}{long}", properties=properties))
    node.world.sync()
    node.want()
    node.move()
    node.world.sync()
    assert [body[0] for body in node.bodies(node.flow)] == list("0123456789")
    assert node.queue.message_count == 0
    assert len(node.world.store.survivors(node.flow)) == 10


def test_bodies_out_of_memory_move_and_stay_out_of_memory() -> None:
    node = Redistributing()
    node.world.settings.add(
        AddressSettingsConfiguration("#", redistribution_delay=0, max_size_bytes=1_000, max_size_messages=-1)
    )
    node.office.apply_settings()
    bodies = [f"{number}" for number in range(400)]
    node.send(*bodies)
    held = node.office.memory.held_bytes
    node.want()
    node.move()
    assert node.bodies(node.flow) == bodies
    assert node.office.memory.held_bytes <= held + 1_500


def test_a_full_disk_keeps_messages_where_they_are_until_there_is_space() -> None:
    node = Redistributing()
    node.send("a", "b")
    node.want()
    node.world.store.full = True
    node.move()
    assert node.bodies(node.queue) == ["a", "b"]
    assert node.bodies(node.flow) == []
    assert (node.queue.message_count, node.queue.delivering_count) == (2, 0)
    node.world.store.full = False
    node.move(10_000)
    assert node.bodies(node.flow) == ["a", "b"]


def test_space_at_the_other_way_is_used_soon() -> None:
    node = Redistributing()
    session = node.world.session()
    for _ in range(REDISTRIBUTED_WAITING_MAX + 700):
        session.sends.send(text("x", durable=False))
    node.world.turn()
    node.want()
    node.move(100)
    assert node.queue.message_count == 700
    node.flow.purge()
    node.move(300)
    assert node.queue.message_count == 0


def test_a_large_message_moves_with_its_body() -> None:
    node = Redistributing(automatic=False)
    session = node.world.session()
    session.sends.send(text("before"))
    session.uploads.begin(Message(b"", address="q", durable=True))
    session.uploads.finish(b"piece" * 1_000, 5_000, None, lambda: None)
    for _ in range(5):
        node.world.sync()
    session.sends.send(text("after"))
    node.world.sync()
    node.want()
    node.move()
    node.world.sync()
    messages = [node._read(node.flow, reference) for _, reference in node.flow.browse((9, -1))]
    assert [each.is_large for each in messages] == [False, True, False]
    assert node.queue.message_count == 0
    assert len(node.world.store.survivors(node.flow)) == 3


@pytest.mark.parametrize("selector", [None, "n = 1"])
def test_the_delivery_count_leaves_with_the_message(selector: str | None) -> None:
    node = Redistributing()
    node.send("failed", "new", "other", n=1)
    session = node.world.session(transacted=True)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, 1)
    node.world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.rollback()
    session.close(failed=False)
    assert [reference.delivery_count for _, reference in node.queue.browse((9, -1))] == [1, 0, 0]
    node.want(selector)
    node.move()
    assert node.bodies(node.flow) == ["failed", "new", "other"]
    found = [node.flow.read(reference).properties.get(DELIVERIES) for _, reference in node.flow.browse((9, -1))]
    assert found == [1, None, None]


def test_a_message_of_another_member_fails_as_often_as_it_may_altogether() -> None:
    world = World({"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 3}})
    queue, dead = world.queue("q"), world.queue("DLQ")
    member = world.session(of_cluster=True)
    ids = queue.queue_id.to_bytes(8, "big")
    member.sends.send(text("poison", properties={ROUTE_TO: ids, DELIVERIES: 2}))
    ((_, reference),) = queue.browse((9, -1))
    assert (reference.delivery_count, dict(queue.read(reference).properties)) == (2, {})
    assert [each.delivery_count for each in world.store.references[queue.queue_id].values()] == [2]
    session = world.session(transacted=True)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    assert callback_of(session).counts() == [3]
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.rollback()
    assert (queue.message_count, dead.message_count) == (0, 1)


def test_an_ordinary_client_cannot_say_how_often_its_message_was_delivered() -> None:
    world = World()
    queue = world.queue("q")
    world.session().sends.send(text("m", properties={DELIVERIES: 9}))
    assert [reference.delivery_count for _, reference in queue.browse((9, -1))] == [0]
