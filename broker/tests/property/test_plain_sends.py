"""Messages that came together against the same messages one by one: whatever they are, the outcome is the same.

Goal: same queues, same log, same order of deliveries and of answers, whatever is mixed (priorities, expirations,
duplicate ids, schedules, routing types, addresses that are limited, unknown or have two queues), and whatever is
durable when. Method: two worlds, the same steps; one takes runs, the other single messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.routing import FakeCallback, World
from support.sends import sends_of
from understudy.config.model import RoutingType
from understudy.errors import BrokerError
from understudy.message import Message
from understudy.properties import BYTE, Properties
from understudy.session.session import ServerSession
from understudy.wire.core.codec import FrameDecoder, encode_send
from understudy.wire.core.packets import SessionSend


class Answered:
    """Remembers which requests were answered, in order; ``RunAnswers`` and single answers alike."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def answer_one(self, correlation_id: int) -> Any:
        return partial(self._answer, correlation_id)

    def _answer(self, correlation_id: int, error: BrokerError | None) -> None:
        self.seen.append((correlation_id, type(error).__name__))

    def answer_run(self, correlation_ids: Sequence[int]) -> None:
        for correlation_id in correlation_ids:
            self._answer(correlation_id, None)


class Node:
    """One of the two worlds."""

    def __init__(self, max_size_bytes: int, consumers: int, *, runs: bool) -> None:
        self.world = World(
            {"limited": {"max_size_bytes": 300}, "#": {"max_size_bytes": max_size_bytes}}, automatic=False
        )
        for name in ("plain", "limited"):
            self.world.queue(name)
        self.world.queue("transient", durable=False)
        for name in ("t1", "t2"):
            self.world.queue(name, address="topic", routing_type=RoutingType.MULTICAST)
        self.callback = FakeCallback(runs=runs)
        self.session: ServerSession = self.world.session(callback=self.callback)
        for number, name in enumerate(["t1", "transient", "limited", *["plain"] * consumers]):
            self.session.create_consumer(number, name)
            self.session.receive_consumer_credits(number, 400 if number % 2 else -1)
        self.sync()
        self.answered = Answered()

    def sync(self) -> None:
        self.world.sync()
        self.world.turn()

    def take(self) -> None:
        """The client acknowledges what it has and gives credits for a little more."""
        for consumer in list(self.session.consumers.values()):
            if consumer.delivering:
                self.session.acknowledge(consumer.consumer_id, list(consumer.delivering)[-1])
            self.session.receive_consumer_credits(consumer.consumer_id, 300)
        self.world.turn()

    def view(self) -> Any:
        return (
            self.answered.seen,
            [(consumer, message.encoded, count) for consumer, message, count in self.callback.delivered],
            [type(error) for error in self.callback.errors],
            {
                queue.name: (queue.message_count, queue.messages_added, queue.incoming, queue.delivering_count)
                for queue in self.world.office.queues()
            },
            {
                address.name: (address.size_bytes, address.memory_bytes, address.message_count, address.messages_routed)
                for address in self.world.office.directory.addresses.values()
            },
            self.world.office.memory_bytes,
            self.world.office.memory_count,
            self.world.store.last_sequence,
            {queue: list(held) for queue, held in self.world.store.references.items()},
            self.world.store.duplicate_ids,
            [list(address.duplicate_ids) for address in self.world.office.directory.addresses.values()],
        )


def make(kind: int, durable: bool, priority: int, size: int, address: str) -> bytes:
    properties = Properties()
    if kind == 1:
        properties["_AMQ_DUPL_ID"] = ("id0", "id1", "id22", b"id0")[size % 4]
    elif kind == 2:
        properties["_AMQ_SCHED_DELIVERY"] = 1_900_000_000_000
    elif kind == 3:
        properties.set_typed("_AMQ_ROUTING_TYPE", BYTE, size % 2)
    elif kind == 4:
        properties["colour"] = "red"
    expiration = 1_950_000_000_000 if kind == 5 else 0
    message = Message(
        b"b" * size, address=address, durable=durable, priority=priority, expiration=expiration, properties=properties
    )
    return message.encoded


messages = st.builds(
    make,
    st.sampled_from((0, 0, 0, 0, 1, 2, 3, 4, 5)),
    st.booleans() | st.just(True),
    st.sampled_from((4, 4, 4, 4, 5)),
    st.sampled_from((0, 1, 2, 10, 200, 33_000)),
    st.sampled_from(("plain", "plain", "plain", "limited", "topic", "transient", "unknown")),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.lists(messages, min_size=1, max_size=12), st.booleans()),
        st.lists(messages, min_size=8, max_size=8).map(lambda many: ([many[0]] * 8, True)),
        st.sampled_from(("sync", "take")),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=200)
@given(steps, st.sampled_from((-1, 2_000)), st.sampled_from((1, 1, 2, 3)))
def test_together_is_one_by_one(todo: Any, max_size_bytes: int, consumers: int) -> None:
    together, single = (Node(max_size_bytes, consumers, runs=runs) for runs in (True, False))
    number = 0
    for step in todo:
        if isinstance(step, str):
            for node in (together, single):
                getattr(node, step)()
        else:
            encoded, wanted = step
            ids = list(range(number, number + len(encoded)))
            number += len(encoded)
            sends = sends_of([Message.decode(each) for each in encoded], ids)
            assert together.session.send_batch(sends, 0, together.answered if wanted else None) == sends.count
            for correlation_id, each in zip(ids, encoded, strict=True):
                done = single.answered.answer_one(correlation_id) if wanted else None
                single.session.send(Message.decode(each), done)
        assert together.view() == single.view()
    for _ in range(2):
        together.sync()
        single.sync()
    assert together.view() == single.view()


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
