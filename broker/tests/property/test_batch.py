"""Messages that came together against the same messages one by one: whatever they are, the outcome is the same.

Goal: same queues, same log, same order of deliveries and of answers, same counts, whatever is mixed (priorities,
expirations, duplicate ids, schedules, groups, routing types, addresses that are limited, unknown, have several queues
or are covered by a wildcard address), in a transaction or not, whatever is durable when, given back or expired.
Method: two worlds, the same steps; one takes runs, the other single messages. What several sessions send between two
looks at the worlds comes in one turn and is gathered (ADR 0038).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.routing import FakeCallback, World
from support.sends import sends_of
from understudy.errors import BrokerError
from understudy.message import Message
from understudy.properties import BYTE, Properties
from understudy.session import transaction
from understudy.session.outcomes import ACCEPTED
from understudy.session.session import ServerSession
from understudy.store.messages.pages import Pages
from understudy.terms import RoutingType
from understudy.testing.sim.disk import SimVolume
from understudy.wire.core.codec import FrameDecoder, encode_send
from understudy.wire.core.packets import SessionSend

SETTINGS = {
    "#": {"expiry_address": "expired", "dead_letter_address": "dead", "max_delivery_attempts": 2},
    "limited": {"max_size_bytes": 300},
    "counted": {"max_size_messages": 5},
    "few": {"page_limit_messages": 4, "page_full_policy": "DROP"},
    "failing": {"address_full_policy": "FAIL", "max_size_bytes": 500},
    "blocking": {"address_full_policy": "BLOCK", "max_size_messages": 3, "max_size_bytes_reject_threshold": 900},
    "dropping": {"address_full_policy": "DROP", "max_size_bytes": 400, "max_size_messages": 6},
    "wild.#": {"address_full_policy": "DROP", "max_size_messages": 30},
}
ADDRESSES = (*("plain",) * 4, *SETTINGS, *("topic",) * 3, "wild.a", "wild.b", "transient", "unknown")


class Answered:
    """Remembers which requests were answered, in order; ``RunAnswers`` and single answers alike."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def answer_run(self, correlation_ids: Sequence[int], error: BrokerError | None = None) -> None:
        self.seen += [(correlation_id, type(error).__name__) for correlation_id in correlation_ids]


class Node:
    """One of the two worlds, with one session that commits each message alone and one that is transacted."""

    def __init__(self, max_size_bytes: int, consumers: int, node_max: tuple[int, int], *, runs: bool) -> None:
        """``node_max``: bytes and messages in memory; -1: no limit."""
        self.world = World(
            {**SETTINGS, "#": SETTINGS["#"] | {"max_size_bytes": max_size_bytes}},
            automatic=False,
            pages=Pages(SimVolume().disk("a"), "/paging", 1),
            global_max_size_bytes=node_max[0],
            global_max_messages=node_max[1],
        )
        for name in ("plain", "limited", "counted", "few", "failing", "blocking", "dropping", "expired", "dead"):
            self.world.queue(name)
        self.world.queue("transient", durable=False)
        for name in ("t1", "t2", "t3"):
            self.world.queue(name, address="topic", routing_type=RoutingType.MULTICAST, durable=name != "t3")
        for name, address in (("w1", "wild.#"), ("w2", "wild.#"), ("w3", "wild.a")):
            self.world.queue(name, address=address, routing_type=RoutingType.MULTICAST)
        self.callback = FakeCallback(runs=runs)
        self.answered = Answered()
        self.sessions: list[ServerSession] = [
            self.world.session(callback=self.callback, transacted=transacted) for transacted in (False, True, False)
        ]
        names = ["t1", "transient", "limited", "t3", "w1", "failing", *["plain"] * consumers]
        for number, name in enumerate(names):
            session = self.sessions[number % 2]
            session.consumers.create(number, name)
            session.consumers.receive_credits(number, 400 if number % 3 else -1)
        self.sync()

    def sync(self) -> None:
        self.world.sync()
        self.world.turn()

    def take(self, number: int = 0) -> None:
        """The client acknowledges its messages and gives credits for a few more."""
        for consumer in list(self.sessions[number].consumers.by_id.values()):
            if consumer.delivering:
                self.sessions[number].acknowledge(consumer.consumer_id, list(consumer.delivering)[-1])
            self.sessions[number].consumers.receive_credits(consumer.consumer_id, 300)
        self.world.turn()

    def take_in_transaction(self) -> None:
        self.take(1)

    def take_one(self) -> None:
        """Each client acknowledges one message in the middle."""
        for session in self.sessions:
            for consumer in session.consumers.by_id.values():
                ids = list(consumer.delivering)
                if ids:
                    session.settle(consumer.consumer_id, ids[len(ids) // 2], ACCEPTED)

    def commit(self) -> None:
        self.sessions[1].commit(partial(self.answered.answer_run, (-1,)))

    def roll_back(self) -> None:
        self.sessions[1].rollback(done=partial(self.answered.answer_run, (-2,)))

    def moment(self) -> None:
        self.world.clock.advance(600)
        self.world.turn()

    def scan(self) -> None:
        """Long enough for the periodic search for expired messages."""
        self.world.clock.advance(30_000)
        self.world.turn()

    def view(self, *, single_rows: bool = False) -> Any:
        """The observable state at the end of a turn. ``single_rows`` includes waiting messages, which turns runs into
        single messages.
        """
        office, store = self.world.office, self.world.store
        store.flush(gather=True)
        # the id of a transaction is taken from the same numbers, earlier or later
        known = {message.message_id for _, message, _ in self.callback.delivered}
        live = {queue.queue_id: store.live(queue) for queue in office.queues()}
        known.update(each for held in live.values() for each in held)
        waiting = {
            queue.name: [
                (each.message_id, each.expiration, each.durable, each.location is None, each.message is None,
                 each.size_bytes, each.priority, each.delivery_count)
                for each in queue.pending
            ]
            for queue in office.queues()
            if single_rows
        }  # fmt: skip
        known.update(each[0] for held in waiting.values() for each in held)
        later = {
            queue.name: [
                (each.message_id, at_ms, each.scheduled_ms, each.location is None, each.message is None)
                for at_ms, each in office.scheduled.due_times(queue)
            ]
            for queue in office.queues()
        }
        known.update(each[0] for held in later.values() for each in held)
        rank = {message_id: number for number, message_id in enumerate(sorted(known))}
        return (
            self.answered.seen,
            [
                (consumer, rank[message.message_id], message.body, dict(message.properties.items()), count)
                for consumer, message, count in self.callback.delivered
            ],
            [type(error) for error in self.callback.errors],
            {name: [(rank[each[0]], *each[1:]) for each in held] for name, held in waiting.items()},
            {name: [(rank[each[0]], *each[1:]) for each in held] for name, held in later.items()},
            len(office.scheduled),
            {
                queue.name: (
                    queue.message_count, queue.messages_added, queue.incoming, queue.delivering_count,
                    queue.expiring_count, queue.messages_acknowledged, queue.messages_expired, queue.messages_killed,
                    queue.scheduled_count,
                    {name: consumer.consumer_id for name, consumer in queue.groups.owners.items()},
                )
                for queue in office.queues()
            },
            {
                address.name: (
                    address.size_bytes, address.memory_bytes, address.message_count, address.paged_count,
                    address.messages_routed, address.messages_dropped, address.messages_unrouted,
                    {block: list(counts) for block, counts in address.shared.counts.items()} != {},
                )
                for address in office.directory.addresses.values()
            },
            (office.memory.held_bytes, office.memory.held_count, self.sessions[1].state.work.count),
            store.last_sequence,
            {queue: sorted(rank[each] for each in held) for queue, held in live.items()},
            {key: list(ids) for key, ids in store.found().duplicate_ids.items()} if single_rows else {},
            [list(address.duplicate_ids) for address in office.directory.addresses.values()],
        )  # fmt: skip


def make(kind: int, durable: bool, priority: int, size: int, address: str) -> bytes:
    properties = Properties()
    expiration = 0
    if kind == 1:
        properties["_AMQ_DUPL_ID"] = ("id0", "id1", "id22", b"id0")[size % 4]
    elif kind == 2:
        properties["_AMQ_SCHED_DELIVERY"] = (1_000_700, 1_000_200, 1_900_000_000_000, 1_001_500, 999_000)[size % 5]
    elif kind == 3:
        properties.set_typed("_AMQ_ROUTING_TYPE", BYTE, size % 2)
    elif kind == 4:
        properties["colour"] = "red"
    elif kind == 5:
        expiration = (1_950_000_000_000, 1_000_500, 1_001_000, 1_002_000, -1)[size % 5]
    elif kind == 6:
        properties["_AMQ_GROUP_ID"] = ("g", "h", "i", "j", 5)[size % 5]
        if size == 10:
            properties["_AMQ_GROUP_SEQUENCE"] = -1
    message = Message(
        b"b" * size, address=address, durable=durable, priority=priority, expiration=expiration, properties=properties
    )
    return message.encoded


messages = st.builds(
    make,
    st.sampled_from((0, 0, 0, 0, 1, 2, 2, 3, 4, 5, 5)),
    st.booleans() | st.just(True),
    st.sampled_from((4, 4, 4, 4, 5)),
    st.sampled_from((0, 1, 2, 3, 10, 200, 33_000)),
    st.sampled_from(ADDRESSES),
)
#: Few queues are grouped: their messages are looked at one by one.
grouped = st.builds(
    make, st.sampled_from((0, 6)), st.just(True), st.just(4), st.sampled_from((0, 1, 2, 10)), st.just("plain")
)
STEPS = ("sync", "sync", "take", "take_in_transaction", "take_one", "commit", "roll_back", "moment", "scan")
SENDERS = st.sampled_from((0, 0, 1, 2, 2))
#: Whether the turn ends after a step; sends of several steps before that are gathered.
ENDS = st.booleans()
steps = st.lists(
    st.one_of(
        st.tuples(st.lists(messages, min_size=1, max_size=12), st.booleans(), SENDERS, ENDS),
        st.tuples(st.lists(messages, min_size=1, max_size=1), st.just(True), SENDERS, st.just(False)),
        st.lists(messages, min_size=8, max_size=8).map(lambda many: ([many[0]] * 8, True, 0, True)),
        st.tuples(messages.map(lambda each: [each] * 9), st.booleans(), SENDERS, ENDS),
        st.tuples(st.lists(grouped, min_size=1, max_size=8), st.booleans(), SENDERS, ENDS),
        st.sampled_from(STEPS),
    ),
    max_size=18,
)


def check(todo: Any, max_size_bytes: int, consumers: int, most: int, node_max: tuple[int, int]) -> None:
    """Take these steps in both worlds; ``most``: messages of one transaction."""
    with patch.object(transaction, "TRANSACTION_MESSAGES_MAX", most):
        together, single = (Node(max_size_bytes, consumers, node_max, runs=runs) for runs in (True, False))
        number = 0
        for step in todo:
            if isinstance(step, str):
                for node in (together, single):
                    getattr(node, step)()
            else:
                encoded, wanted, sender, ends = step
                ids = list(range(number, number + len(encoded)))
                number += len(encoded)
                sends = sends_of([Message.decode(each) for each in encoded], ids)
                answers = together.answered if wanted else None
                assert together.sessions[sender].sends.send_batch(sends, 0, answers) == sends.count
                for correlation_id, each in zip(ids, encoded, strict=True):
                    done = partial(single.answered.answer_run, (correlation_id,)) if wanted else None
                    single.sessions[sender].sends.send(Message.decode(each), done)
                if not ends:
                    continue
            assert together.view() == single.view()
        for node in (together, single):
            node.commit()
            node.sync()
            node.sync()
        assert together.view(single_rows=True) == single.view(single_rows=True)


@settings(deadline=None, max_examples=examples(200))
@given(
    steps, st.sampled_from((-1, 2_000)), st.sampled_from((1, 1, 2, 3)), st.sampled_from((1_000, 10)),
    st.sampled_from(((-1, -1), (20_000, 100), (1_500, -1), (-1, 15))),
)  # fmt: skip
def test_together_is_one_by_one(
    todo: Any, max_size_bytes: int, consumers: int, most: int, node_max: tuple[int, int]
) -> None:
    check(todo, max_size_bytes, consumers, most, node_max)


@pytest.mark.parametrize("seed", range(40))
def test_much_together_is_one_by_one(seed: int) -> None:
    """Long programs, in which addresses fill up and transactions grow."""
    stream = random.Random(seed)
    todo: list[Any] = []
    of_groups = stream.choice((0.05, 0.05, 0.5, 0.9))
    of_times = stream.choice((0, 0.05, 0.9, 1))
    favourites = [stream.choice(ADDRESSES) for _ in range(3)]
    for _ in range(60):
        if stream.random() < 0.4:
            todo.append(stream.choice(STEPS))
            continue
        address = stream.choice(favourites if stream.random() < 0.6 else ADDRESSES)
        durable, sender = stream.random() < 0.8, stream.choice((0, 0, 0, 1, 1, 2))
        encoded = []
        for _ in range(1 if stream.random() < 0.3 else stream.randrange(1, 24)):
            kind = stream.choice((0,) * 12 + (4, 5, 5, 5, 5) + (1, 2, 3) * (stream.random() < 0.3))
            if stream.random() < of_times:
                kind = 2
            if stream.random() < of_groups:
                kind = 6
            priority, size = stream.choice((4,) * 12 + (5,)), stream.choice((0, 1, 2, 3, 11, 50, 51, 52, 53))
            if stream.random() < 0.02:
                size = 10
            encoded.append(make(kind, durable, priority, size, address))
        todo.append((encoded, stream.random() < 0.5, sender, stream.random() < 0.5))
    node_max = stream.choice(((-1, -1), (20_000, 200), (20_000, 200), (2_500, -1), (-1, 30)))
    check(todo, stream.choice((-1, 2_000)), stream.choice((1, 1, 2, 3)), stream.choice((1_000, 1_000, 30)), node_max)


@settings(deadline=None)
@given(
    st.lists(st.tuples(messages, st.booleans(), st.sampled_from((10, 10, 11))), max_size=12),
    st.lists(st.integers(1, 400), max_size=30),
)
def test_grouped_frames_are_the_same_sends(sends: Any, cuts: list[int]) -> None:
    data = b"".join(
        encode_send(Message.decode(encoded), channel, requires_response=wanted, correlation_id=number)
        for number, (encoded, wanted, channel) in enumerate(sends)
    )
    decoder = FrameDecoder("client")
    decoder.groups_sends = True
    found = []
    size_bytes = offset = 0
    for cut in [*cuts, len(data)]:
        for frame in decoder.receive_data(data[offset : offset + cut]):
            size_bytes += frame.size_bytes
            packet: Any = frame.packet
            if isinstance(packet, SessionSend):
                found.append(
                    (packet.message.encoded, packet.requires_response, frame.channel_id, packet.correlation_id)
                )
            else:
                batch = packet.sends
                for row, correlation_id in enumerate(batch.correlation_ids):
                    found.append((batch.encoded(row), batch.requires_response, frame.channel_id, correlation_id))
        offset += cut
    assert found == [(encoded, wanted, channel, number) for number, (encoded, wanted, channel) in enumerate(sends)]
    assert size_bytes == len(data)
