"""Messages of members of a cluster that came together, against the same messages one by one.

Goal: each queue, here and at the ways to other members, gets the same messages in the same order with the same ids of
remote queues, takes its turn after the same number of messages, and answers come in the same order, whatever the mode,
the consumers and filters of the queues, and the messages are; in a transaction or not. The same for messages that a
member or a bridge sends: known and unknown queues, ids that were seen before.
Method: two worlds, the same steps; one takes runs, the other single messages. Message ids differ, because a run gives
them queue by queue, so queues are compared by bodies and properties.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from support.routing import FakeCallback, World
from support.sends import sends_of
from understudy.errors import BrokerError
from understudy.message import BRIDGE_DUPLICATE_ID, DUPLICATE_ID, GROUP_ID, ROUTE_TO, ROUTING_TYPE, Message
from understudy.properties import BYTE, Properties
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.filter import parse_filter
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer, RemoteBinding
from understudy.terms import MessageLoadBalancing, RoutingType

_I64 = struct.Struct(">q")
NODES = [f"{number}1111111-2222-3333-4444-555555555555" for number in range(3)]
ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


class Answers:
    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def answer_run(self, correlation_ids: Any, error: BrokerError | None = None) -> None:
        self.seen += [(each, type(error).__name__) for each in correlation_ids]

    def internal_error(self, bug: Exception) -> None:
        raise bug


class Member:
    """A node with the address ``a``, queues of it here and at other members, and a session."""

    def __init__(self, plan: dict[str, Any], *, runs: bool) -> None:
        self.world = World(plan["settings"], automatic=False)
        self.runs = runs
        kind = plan["kind"]
        directory = self.world.office.directory
        self.address = directory.create_address("a", plan["types"])
        self.local: list[Queue] = []
        for number, (durable, selector, consumers) in enumerate(plan["local"]):
            queue = directory.create_queue(
                QueueConfiguration(f"q{number}", "a", kind, durable=durable, filter=selector)
            )
            self.local.append(queue)
            for each in consumers:
                session = self.world.session(callback=FakeCallback(runs=True))
                session.consumers.create(0, queue.name, each)
        self.flows = [
            directory.create_queue(
                QueueConfiguration(f"sf.{node}", f"sf.{node}", MULTICAST, internal=True), may_create_address=True
            )
            for node in range(3)
        ]
        self.balancer = Balancer(plan["mode"])
        self.address.balance_by(self.balancer)
        for number, (node, name, selector, consumers) in enumerate(plan["remote"]):
            binding = RemoteBinding(
                f"{name}{number}{NODES[node]}", "a", "a" if kind is ANYCAST else name, remote_id=100 + number,
                binding_id=1_000 + number, distance=1, queue=self.flows[node], filter=parse_filter(selector),
            )  # fmt: skip
            binding.connected = consumers is not None
            for each in consumers or ():
                binding.consumers.add(each, parse_filter(each))
            self.balancer.add(binding)
        self.answers = Answers()
        self.session = self.world.session(callback=FakeCallback(runs=True), of_cluster=plan["of_cluster"])
        # what a session sends first asks for permission, alone
        self.session.sends.permit("a")

    def send(self, messages: list[Message], *, transacted: bool) -> None:
        sends = self.session.sends
        if transacted:
            self.session.state.auto_commit_sends = False
        if self.runs:
            batch = sends_of(messages)
            row = 0
            while row < batch.count:
                row = sends.send_batch(batch, row, self.answers)
        else:
            for number, message in enumerate(messages):
                sends.send(Message.decode(message.encoded), partial(self.answers.answer_run, (number,)))
        if transacted:
            self.session.commit(lambda error: None)
            self.session.state.auto_commit_sends = True
        self.world.sync()

    def seen(self) -> Any:
        queues = {}
        for queue in (*self.local, *self.flows):
            found = []
            for _, reference in queue.browse((9, -1)):
                message = queue.read_waiting(reference)
                assert message is not None
                found.append((message.body, dict(message.properties), message.priority, message.durable))
            queues[queue.name] = found
        counts = [(each.message_count, each.incoming) for each in (*self.local, *self.flows)]
        memory = self.world.office.memory
        ids = sorted(self.address.duplicate_ids)
        # one that never moved may not be known yet
        turns = {name: turn for name, turn in self.balancer._turns.items() if turn}
        return (
            queues, counts, self.answers.seen, turns, ids, memory.held_count, memory.held_bytes,
            self.address.messages_routed, self.address.messages_unrouted,
        )  # fmt: skip


selectors = st.sampled_from((None, None, None, "n = 1"))
local = st.tuples(st.booleans() | st.just(True), selectors, st.lists(selectors, max_size=2))
remote = st.tuples(
    st.integers(0, 2), st.sampled_from(("q0", "q1", "x", "y")), selectors, st.none() | st.lists(selectors, max_size=2)
)
plans = st.fixed_dictionaries(
    {
        "settings": st.sampled_from((None, {"a": {"max_size_messages": 4}}, {"a": {"max_size_bytes": 900}})),
        "kind": st.sampled_from((ANYCAST, MULTICAST)),
        "types": st.sampled_from(({ANYCAST}, {MULTICAST}, {ANYCAST, MULTICAST})),
        "local": st.lists(local, max_size=2),
        "mode": st.sampled_from(list(MessageLoadBalancing)),
        "remote": st.lists(remote, min_size=1, max_size=4),
        "of_cluster": st.booleans(),
    }
).filter(lambda plan: plan["kind"] in plan["types"])


def properties(entries: dict[str, Any], routing: int | None) -> Properties:
    made = Properties(entries)
    if routing is not None:
        made.set_typed(ROUTING_TYPE, BYTE, routing)
    return made


entries = st.sampled_from(
    (
        *({},) * 6, {"n": 1}, {DUPLICATE_ID: b"one"}, {DUPLICATE_ID: b"two"}, {GROUP_ID: "g"},
        {BRIDGE_DUPLICATE_ID: bytes(24)}, {BRIDGE_DUPLICATE_ID: bytes(23) + b"2"},
    )
)  # fmt: skip
messages = st.builds(
    Message,
    st.binary(max_size=8),
    address=st.just("a"),
    durable=st.booleans() | st.just(True),
    priority=st.just(4) | st.integers(3, 5),
    properties=st.builds(properties, entries, st.none() | st.none() | st.sampled_from((0, 1))),
)
#: Neighbours are mostly alike.
reads = st.lists(st.tuples(messages, st.integers(1, 9)), min_size=1, max_size=4).map(
    lambda pairs: [message for message, count in pairs for _ in range(count)]
)


@given(plans, st.lists(st.tuples(reads, st.booleans()), min_size=1, max_size=3))
@example(
    {"settings": None, "kind": ANYCAST, "types": {ANYCAST}, "local": [(True, None, [None])], "of_cluster": False,
     "mode": MessageLoadBalancing.STRICT, "remote": [(0, "x", None, []), (1, "x", None, [])]},
    [([Message(bytes((number,)), address="a") for number in range(20)], False)],
)  # fmt: skip
@example(
    {"settings": None, "kind": MULTICAST, "types": {MULTICAST}, "local": [(True, None, [None])], "of_cluster": False,
     "mode": MessageLoadBalancing.ON_DEMAND,
     "remote": [(0, "q0", None, [None]), (1, "x", None, [None]), (2, "x", None, [None])]},
    [([Message(bytes((number,)), address="a", properties=properties({}, 0)) for number in range(20)], True)],
)  # fmt: skip
@example(
    # q0 gets every message, the members get x in turn
    {"settings": None, "kind": MULTICAST, "types": {MULTICAST}, "local": [(True, None, [None])], "of_cluster": False,
     "mode": MessageLoadBalancing.ON_DEMAND, "remote": [(0, "x", None, [None]), (1, "x", None, [None])]},
    [([Message(bytes((number,)), address="a", properties=properties({}, 0)) for number in range(20)], False)],
)  # fmt: skip
@example(
    # the way to one member is that of y, always, and of x, every other time
    {"settings": None, "kind": MULTICAST, "types": {MULTICAST}, "local": [], "of_cluster": False,
     "mode": MessageLoadBalancing.STRICT,
     "remote": [(0, "y", None, [None]), (0, "x", None, [None]), (1, "x", None, [None])]},
    [([Message(bytes((number,)), address="a", properties=properties({}, 0)) for number in range(20)], True)],
)  # fmt: skip
def test_runs_and_single_messages_go_to_the_same_queues(
    plan: dict[str, Any], steps: list[tuple[list[Message], bool]]
) -> None:
    alone, together = Member(plan, runs=False), Member(plan, runs=True)
    for number, (batch, transacted) in enumerate(steps):
        batch = [each.replace(properties=each.properties) for each in batch]
        for count, each in enumerate(batch):
            each.properties["number"] = 100 * number + count
        batch = [each.with_properties(each.properties) for each in batch]
        for member in (alone, together):
            member.send(batch, transacted=transacted)
        assert together.seen() == alone.seen()


ids_of_queues = st.lists(st.sampled_from(("here 0", "here 1", "third", "gone")), min_size=1, max_size=2)


@given(
    plans,
    st.lists(st.tuples(ids_of_queues, st.booleans(), st.integers(1, 6), st.integers(0, 3), st.booleans()), max_size=5),
)
@example(
    {"settings": None, "kind": ANYCAST, "types": {ANYCAST}, "local": [(True, None, [])], "of_cluster": True,
     "mode": MessageLoadBalancing.ON_DEMAND, "remote": [(0, "x", None, [])]},
    [(["here 0"], True, 6, 0, False), (["here 0"], True, 6, 3, False)],
)  # fmt: skip
def test_messages_of_a_member_go_to_the_queues_that_it_names(plan: dict[str, Any], drawn: Any) -> None:
    plan = plan | {"of_cluster": True, "settings": None}
    alone, together = Member(plan, runs=False), Member(plan, runs=True)
    for member in (alone, together):
        places = {"third": 1_000, "gone": 9_999}
        places |= {f"here {number}": queue.queue_id for number, queue in enumerate(member.local)}
        batch = []
        number = 0
        for names, durable, count, back, marked in drawn:
            number = max(0, number - back)
            wanted = b"".join(_I64.pack(places.get(name, 9_999)) for name in names)
            for _ in range(count):
                own: dict[str, Any] = {
                    "n": number,
                    ROUTE_TO: wanted,
                    BRIDGE_DUPLICATE_ID: bytes(16) + _I64.pack(number),
                }
                if marked:
                    own = {DUPLICATE_ID: "of the producer", "_AMQ_ROUTE_TOelse": b"x", **own}
                batch.append(Message(b"%d" % number, address="a", durable=durable, properties=own))
                number += 1
        if batch:
            member.send(batch, transacted=False)
    assert together.seen() == alone.seen()
