"""Messages of queues on their way to another node (docs/operate/scale-down.md)."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from support.routing import World, callback_of, text
from understudy.cluster.scale_down.messages import Companion, MovingMessages
from understudy.cluster.scale_down.work import Pause
from understudy.message import (
    BRIDGE_DUPLICATE_ID,
    DELIVERIES,
    KEPT_DUPLICATE_ID,
    ROUTE_TO,
    SCALE_DOWN_TO,
    SCHEDULED_DELIVERY,
    Message,
)
from understudy.properties import Properties
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.queues.queue import Queue
from understudy.terms import RoutingType

OWN = "00000000-0000-0000-0000-0000000000aa"


class Target:
    """A session at the target that takes everything."""

    writable = True

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> int:
        self.sent.append(message)
        return len(self.sent)


class Remote:
    """Queues at the target; their ids are 100 more than here, and some cannot be made."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: list[str] = []

    def id_of(self, queue: Queue) -> Any:
        self.asked.append(queue.name)
        if queue.name in self.refused:
            return None
        return 100 + queue.queue_id
        yield

    def find(self, name: str) -> Any:
        return 100
        yield


class Node:
    """A node with an address ``news`` of several subscriptions."""

    def __init__(self, *names: str, commit_interval: int = -1, automatic: bool = True, **filters: str) -> None:
        self.world = World(automatic=automatic)
        self.office = self.world.office
        self.office.directory.create_address("news", {RoutingType.MULTICAST})
        self.queues = {
            name: self.office.directory.create_queue(
                QueueConfiguration(name, "news", RoutingType.MULTICAST, filter=filters.get(name))
            )
            for name in names
        }
        self.moving = MovingMessages(self.office, self.world.clock, OWN, commit_interval)
        self.target, self.remote = Target(), Remote()

    def send(self, *bodies: str, address: str = "news", **fields: Any) -> None:
        session = self.world.session()
        for body in bodies:
            session.sends.send(text(body, address=address, **fields))
        self.world.turn()

    def move(self) -> None:
        """All of them, with a target that confirms at once."""
        work = self.moving.move_queues(self.target, self.remote)  # type: ignore[arg-type]
        confirmed = 0
        for pause in work:
            while pause is Pause.CONFIRMED and confirmed < len(self.target.sent):
                confirmed += 1
                self.moving.confirmed(confirmed)

    def ids(self, message: Message) -> list[str]:
        """The queues that a sent message is for."""
        by_id = {100 + queue.queue_id: name for name, queue in self.queues.items()}
        value = message.properties[ROUTE_TO]
        assert isinstance(value, bytes)
        return sorted(by_id[each] for (each,) in struct.iter_unpack(">q", value))


def test_a_message_of_several_queues_goes_once() -> None:
    node = Node("all", "again", "odd", odd="n = 1")
    node.send("even", properties={"n": 0})
    node.send("odd", properties={"n": 1})
    node.move()
    assert [(each.body, node.ids(each)) for each in node.target.sent] == [
        (b"even", ["again", "all"]),
        (b"odd", ["again", "all", "odd"]),
    ]
    assert [queue.message_count for queue in node.queues.values()] == [0, 0, 0]
    assert node.moving.moved == 2


def test_the_queue_with_most_messages_is_first_and_the_rest_of_others_follows() -> None:
    node = Node("few", "many")
    node.send("one")
    reader = node.world.session()
    reader.consumers.create(0, "few")
    reader.consumers.receive_credits(0, -1)
    node.world.turn()
    reader.acknowledge(0, node.queues["many"].pending.first_level().next_from(-1).message_id)  # type: ignore[union-attr]
    reader.close(failed=False)
    node.send("two", "three")
    node.move()
    assert [(each.body, node.ids(each)) for each in node.target.sent] == [
        (b"one", ["many"]),
        (b"two", ["few", "many"]),
        (b"three", ["few", "many"]),
    ]


def test_queues_in_another_order_send_their_messages_apart() -> None:
    """The positions differ: no message is lost, and each has an id of its own at the target."""
    node = Node("one", "two")
    node.send("a", "b")
    level = node.queues["two"].pending.first_level()
    assert level is not None
    first = level.pop()
    assert first is not None
    first.position = -1
    node.queues["two"].pending.append(first)
    node.move()
    sent = sorted((each.body, *node.ids(each)) for each in node.target.sent)
    assert [name for _, *names in sent for name in names].count("one") == 2
    assert [name for _, *names in sent for name in names].count("two") == 2
    assert len({each.properties[BRIDGE_DUPLICATE_ID] for each in node.target.sent}) == len(sent)


def test_a_companion_looks_no_further_than_the_message() -> None:
    node = Node("one", "two", two="n = 1")
    node.send("a", properties={"n": 0})
    node.send("b", "c", properties={"n": 1})
    references = [reference for _, reference in node.queues["one"].browse((9, -1))]
    companion = Companion(node.queues["two"])
    assert companion.take(references[0]) is None
    found = companion.take(references[1])
    assert found is not None
    assert found.message_id == references[1].message_id
    assert len(node.queues["two"].pending) == 1


def test_messages_are_sent_as_they_are_scheduled_ones_too() -> None:
    node = Node("all")
    at_ms = node.world.clock.wall_ms() + 10_000
    node.send("m", priority=8, properties={"n": 7, SCHEDULED_DELIVERY: at_ms})
    assert node.queues["all"].scheduled_count == 1
    node.move()
    (sent,) = node.target.sent
    assert (sent.body, sent.priority, sent.address, sent.properties["n"]) == (b"m", 8, "news", 7)
    assert sent.properties[SCHEDULED_DELIVERY] == at_ms
    assert node.queues["all"].scheduled_count == node.queues["all"].message_count == 0


def test_the_address_of_a_message_in_a_wildcard_queue_is_kept() -> None:
    node = Node()
    node.office.directory.create_queue(QueueConfiguration("all", "stocks.#", RoutingType.MULTICAST))
    node.send("m", address="stocks.one")
    node.move()
    assert [each.address for each in node.target.sent] == ["stocks.one"]


def test_messages_of_a_queue_that_cannot_be_made_stay() -> None:
    node = Node("one", "two")
    node.remote = Remote("two")
    node.send("m")
    node.move()
    assert [node.ids(each) for each in node.target.sent] == [["one"]]
    assert node.queues["two"].message_count == 1


def test_durable_subscriptions_are_made_also_without_messages() -> None:
    node = Node("empty")
    node.world.queue("work")
    node.move()
    assert node.remote.asked == ["empty"]
    assert node.target.sent == []


def test_a_confirmed_message_leaves_all_of_its_queues_in_one_transaction() -> None:
    node = Node("one", "two", automatic=False)
    node.send("m")
    node.world.sync()
    queues, store = list(node.queues.values()), node.world.store
    work = node.moving.move_queues(node.target, node.remote)  # type: ignore[arg-type]
    while next(work) is not Pause.CONFIRMED:
        pass
    node.moving.confirmed(1)
    node.moving.remove_confirmed()
    assert [len(store.survivors(queue)) for queue in queues] == [1, 1]
    node.world.sync()
    assert [len(store.survivors(queue)) for queue in queues] == [0, 0]


def test_unconfirmed_messages_return_to_their_places() -> None:
    node = Node("one", "two")
    node.send("a", "b", "c")
    work = node.moving.move_queues(node.target, node.remote)  # type: ignore[arg-type]
    while next(work) is not Pause.CONFIRMED:
        pass
    node.moving.confirmed(1)
    assert node.moving.in_doubt
    node.moving.give_back()
    work.close()
    for queue in node.queues.values():
        bodies = [queue.read(reference).body for _, reference in queue.browse((9, -1))]
        assert (bodies, queue.message_count, queue.delivering_count) == ([b"b", b"c"], 2, 0)
    assert node.moving.in_doubt, "the target may have them"
    node.target = Target()
    node.move()
    assert not node.moving.in_doubt
    assert [each.body for each in node.target.sent] == [b"b", b"c"]


@pytest.mark.parameter("scale-down/commit-interval")
def test_commit_interval_limits_the_messages_of_one_transaction() -> None:
    node = Node("one", "two", commit_interval=2)
    node.send(*"abcde")
    commits: list[int] = []
    store = node.office.store
    old = store.store_commit
    store.store_commit = lambda tx_id: commits.append(tx_id) or old(tx_id)  # type: ignore[method-assign, func-returns-value]
    node.move()
    assert len(commits) == 3


def test_a_message_moves_with_the_delivery_count_of_each_queue() -> None:
    """A message goes once for all queues with the same delivery count, and again for a queue with another count."""
    node = Node("one", "two", "three")
    node.send("m", "n")
    session = node.world.session(transacted=True)
    session.consumers.create(0, "one")
    session.consumers.receive_credits(0, 1)
    node.world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.rollback()
    session.close(failed=False)
    node.move()
    found = [(each.body, node.ids(each), each.properties.get(DELIVERIES)) for each in node.target.sent]
    assert sorted(found) == [(b"m", ["one"], 1), (b"m", ["three", "two"], None), (b"n", ["one", "three", "two"], None)]
    assert len({each.properties[BRIDGE_DUPLICATE_ID] for each in node.target.sent}) == 3


@pytest.mark.parametrize("leads_to_target", [True, False])
def test_a_message_that_was_kept_before_keeps_the_id_by_which_its_last_node_knows_it(leads_to_target: bool) -> None:
    """The first node that kept it may have sent it there. The target that keeps it now knows it by another id."""
    node = Node()
    name = "sf"
    queue = node.office.directory.create_queue(
        QueueConfiguration(name, name, RoutingType.MULTICAST, internal=True), may_create_address=True
    )
    properties = Properties({SCALE_DOWN_TO + name: struct.pack(">q", 42), BRIDGE_DUPLICATE_ID: b"of the first"})
    node.world.session(of_cluster=True).sends.send(Message(b"m", address="news", properties=properties))
    node.world.turn()
    assert queue.message_count == 1
    for _ in node.moving.move_kept(node.target, node.remote, queue, leads_to_target):  # type: ignore[arg-type]
        continue
    (sent,) = node.target.sent
    own, kept = sent.properties[BRIDGE_DUPLICATE_ID], sent.properties.get(KEPT_DUPLICATE_ID)
    if leads_to_target:
        assert (own, kept) == (b"of the first", None)
    else:
        assert isinstance(own, bytes)
        assert (own[:16], kept) == (bytes.fromhex(OWN.replace("-", "")), b"of the first")
