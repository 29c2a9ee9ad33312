"""Messages that are redistributed in runs, against the same messages one by one.

Goal: each queue, here and at the ways to other members, has the same messages in the same order with the same ids of
remote queues, whatever the messages, the consumers and filters at either side, the limits of memory and the shape in
which the messages wait (runs, objects, rows without bodies); turns, counts and memory are the same; what a restart
would find is what the queues have.
Method: two worlds, the same steps; in one of them each message is looked at and ``moved_sends`` takes none, so that
each is decided about, and leaves, alone. Message ids differ, because a run is one transaction, so queues are compared
by bodies and properties.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from support.routing import FakeCallback, World
from support.sends import sends_of
from understudy.cluster.balancing import redistribution
from understudy.cluster.balancing.redistribution import Redistribution
from understudy.cluster.balancing.remote_bindings import RemoteBindings
from understudy.kernel import moved_sends
from understudy.message import DUPLICATE_ID, GROUP_ID, ROUTE_TO, ROUTING_TYPE, SCHEDULED_DELIVERY, Message
from understudy.properties import BYTE, Properties
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.filter import parse_filter
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer, RemoteBinding
from understudy.terms import AddressFullPolicy, MessageLoadBalancing, RoutingType

NODES = [f"{number}1111111-2222-3333-4444-555555555555" for number in range(3)]


class Answers:
    def answer_run(self, correlation_ids: Any, error: Exception | None = None) -> None:
        pass

    def internal_error(self, bug: Exception) -> None:
        raise bug


class Member:
    """A node with the queue ``q``, and queues of other members that share its messages."""

    def __init__(self, plan: dict[str, Any]) -> None:
        settings = {"#": {"redistribution_delay": 0}, "q": {"redistribution_delay": 0, **plan["settings"]}}
        self.world = World(settings, automatic=False)
        self.office = self.world.office
        self.mode = MessageLoadBalancing.OFF_WITH_REDISTRIBUTION
        self.bindings = RemoteBindings(self.office.directory, lambda address: self.mode)
        self.redistribution = Redistribution(self.office, self.bindings, self.world.clock)
        multicast = plan["multicast"]
        kind = RoutingType.MULTICAST if multicast else RoutingType.ANYCAST
        self.queue = self.world.queue("q", address="q", routing_type=kind, durable=plan["durable"])
        #: gets the same messages, and keeps them
        self.other = self.world.queue("other", address="q", routing_type=kind) if multicast else None
        self.remote: list[tuple[RemoteBinding, list[str | None]]] = []
        for number, (selector, consumers) in enumerate(plan["remote"]):
            flow = self.office.directory.create_queue(
                QueueConfiguration(f"sf{number}", f"sf{number}", RoutingType.MULTICAST, internal=True),
                may_create_address=True,
            )
            binding = RemoteBinding(
                "q" + NODES[number], "q", "q", remote_id=100 + number, binding_id=number, distance=1, queue=flow,
                filter=parse_filter(selector),
            )  # fmt: skip
            self.remote.append((binding, consumers))
        self.session = self.world.session(callback=FakeCallback(runs=True))
        self.session.sends.permit("q")
        self.consumer = self.world.session(callback=FakeCallback(runs=True))
        self.consumes = False

    def send(self, messages: list[Message], *, together: bool) -> None:
        if together:
            batch = sends_of(messages)
            row = 0
            while row < batch.count:
                row = self.session.sends.send_batch(batch, row, Answers())
        else:
            for message in messages:
                self.session.sends.send(Message.decode(message.encoded))
        self.world.sync()

    def want(self) -> None:
        for binding, consumers in self.remote:
            if "q" not in self.bindings._balancers or binding.name not in self.bindings._balancers["q"].remote:
                # not before, so that messages wait as runs
                self.bindings.add(binding)
            for each in consumers:
                binding.consumers.add(each, parse_filter(each))
            self.bindings.tell(lambda listener, binding=binding: listener.remote_consumer_added(binding, None))

    def unwant(self) -> None:
        for binding, _ in self.remote:
            if not self.bindings._balancers:
                return
            binding.consumers.clear()
            self.bindings.tell(lambda listener, binding=binding: listener.remote_consumer_removed(binding, None))

    def consume(self, selector: str | None, *, returned: bool) -> None:
        """A consumer comes or leaves here; ``returned``: it gets messages, which wait again when it leaves."""
        if self.consumes:
            self.consumer.consumers.close(0)
        else:
            self.consumer.consumers.create(0, "q", selector)
            if returned:
                self.consumer.consumers.receive_credits(0, 300)
        self.consumes = not self.consumes
        self.world.turn()

    def move(self) -> None:
        for _ in range(3):
            self.world.clock.advance(5)
            self.world.sync()

    def check_store(self) -> None:
        """A restart would find the messages that are in the queues."""
        for queue in self.queues:
            if not queue.delivering_count:
                waiting = [reference.message_id for _, reference in queue.browse((9, -1)) if reference.durable]
                assert self.world.store.survivors(queue) == sorted(waiting)

    @property
    def queues(self) -> list[Queue]:
        flows = (binding.queue for binding, _ in self.remote)
        return [self.queue, *flows, *([] if self.other is None else [self.other])]

    def seen(self) -> Any:
        found: dict[Any, list[Any]] = defaultdict(list)
        queues = self.queues
        for queue in queues:
            for _, reference in queue.browse((9, -1)):
                message = queue.read_waiting(reference)
                assert message is not None
                found[queue.name].append(
                    (message.body, dict(message.properties), message.priority, message.durable, message.expiration)
                )
        counts = [(each.message_count, each.incoming, each.delivering_count, each.expiring_count) for each in queues]
        sizes = [(each.address.size_bytes, each.address.message_count, each.address.memory_bytes) for each in queues]
        memory = self.office.memory
        balancers = self.bindings._balancers
        turns = {name: turn for name, turn in balancers["q"]._turns.items() if turn} if balancers else {}
        moved = {queue.name: each.moved for queue, each in self.redistribution.by_queue.items()}
        duplicates = sorted(self.office.directory.addresses["q"].duplicate_ids)
        return dict(found), counts, sizes, memory.held_count, memory.held_bytes, turns, moved, duplicates


selectors = st.sampled_from((None, None, None, "n = 1", "n > 0"))
plans = st.fixed_dictionaries(
    {
        "settings": st.sampled_from(
            (
                {}, {}, {"max_size_messages": 3, "address_full_policy": AddressFullPolicy.PAGE},
                {"max_size_bytes": 500, "address_full_policy": AddressFullPolicy.PAGE},
            )
        ),
        "multicast": st.booleans(),
        "durable": st.just(True) | st.booleans(),
        "remote": st.lists(st.tuples(selectors, st.lists(selectors, max_size=2)), min_size=1, max_size=3),
    }
)  # fmt: skip


def properties(entries: dict[str, Any], routing: int | None) -> Properties:
    made = Properties(entries)
    if routing is not None:
        made.set_typed(ROUTING_TYPE, BYTE, routing)
    return made


def numbered(message: Message, number: int) -> Message:
    changed = message.properties.copy()
    changed["number"] = number
    return message.with_properties(changed)


entries = st.sampled_from(
    (
        *({},) * 4, {"n": 1}, {"n": 2}, {DUPLICATE_ID: b"one"}, {DUPLICATE_ID: "two"}, {GROUP_ID: "g"},
        {SCHEDULED_DELIVERY: 1}, {ROUTE_TO + "sf0": bytes(8)},
    )
)  # fmt: skip
messages = st.builds(
    Message,
    st.binary(max_size=8),
    address=st.just("q"),
    durable=st.booleans() | st.just(True),
    priority=st.just(4) | st.integers(3, 5),
    expiration=st.just(0) | st.just(1 << 50),
    properties=st.builds(properties, entries, st.none() | st.none() | st.sampled_from((0, 1))),
)
#: Neighbours are mostly alike.
reads = st.lists(st.tuples(messages, st.integers(1, 9)), min_size=1, max_size=4).map(
    lambda pairs: [message for message, count in pairs for _ in range(count)]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), reads, st.booleans()),
        st.tuples(st.just("consume"), selectors, st.booleans()),
        st.sampled_from((("want",), ("unwant",), ("move",))),
    ),
    min_size=1,
    max_size=6,
)
_PLAIN = [Message(b"a", address="q", durable=True), *[Message(b"b", address="q", durable=True)] * 20]


@given(plans, steps)
@example({"settings": {}, "multicast": False, "durable": True, "remote": [(None, [None])]}, [("send", _PLAIN, True)])
@example(
    {"settings": {}, "multicast": False, "durable": True, "remote": [(None, [None]), (None, [None])]},
    [("send", _PLAIN, True), ("want",), ("move",), ("send", _PLAIN[:3], True)],
)
@example(
    {"settings": {}, "multicast": False, "durable": True, "remote": [(None, ["n = 1"]), (None, ["n = 2"])]},
    [("send", [
        *[Message(b"1", address="q", durable=True, properties=Properties({"n": 1}))] * 3,
        *[Message(b"2", address="q", durable=True, properties=Properties({"n": 2}))] * 2,
        Message(b"g", address="q", durable=True, properties=Properties({"n": 2, GROUP_ID: "g"})),
        *[Message(b"2", address="q", durable=False, properties=Properties({"n": 2}))] * 2,
    ], True)],
)  # fmt: skip
@example(
    {"settings": {}, "multicast": True, "durable": True, "remote": [(None, [None])]},
    [("send", [*_PLAIN[:5], Message(b"g", address="q", durable=True, properties=Properties({GROUP_ID: "g"})),
               *_PLAIN[:5], Message(b"s", address="q", durable=True, properties=Properties({SCHEDULED_DELIVERY: 1})),
               *_PLAIN[:5]], True)],
)  # fmt: skip
@example(
    {"settings": {"max_size_messages": 3, "address_full_policy": AddressFullPolicy.PAGE}, "multicast": True,
     "durable": True, "remote": [(None, [None])]},
    [("send", _PLAIN, True), ("consume", None, True), ("consume", None, True), ("want",), ("move",)],
)  # fmt: skip
def test_runs_and_single_messages_leave_alike(plan: dict[str, Any], drawn: list[Any]) -> None:
    alone, together = Member(plan), Member(plan)
    for number, (step, *arguments) in enumerate([*drawn, ("want",), ("move",)]):
        if step == "send":
            batch, runs = arguments
            batch = [numbered(each, 100 * number + count) for count, each in enumerate(batch)]
        for member in (alone, together):
            with ExitStack() as stack:
                if member is alone:
                    stack.enter_context(patch.object(redistribution, "moved_sends", _none))
                    stack.enter_context(patch.object(Balancer, "redistribution_turns", lambda balancer, queue: None))
                if step == "send":
                    member.send(batch, together=runs)
                elif step == "consume":
                    member.consume(arguments[0], returned=arguments[1])
                else:
                    getattr(member, step)()
        assert together.seen() == alone.seen()
    alone.check_store()
    together.check_store()


def _none(*arguments: Any) -> Any:
    return moved_sends([], b"", 0)
