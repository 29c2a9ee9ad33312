"""Transactions of one request, whose first request waits for the commit, beside the same requests that do not wait.

Goal: a client sees no difference, and the queues have the same messages, whatever it sends. Method: random programs of
sends, acknowledgements, credits, commits and rollbacks in a transacted session to two nodes, in one of which no request
waits; at the end the session is closed or its connection is cut.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.core import CoreNode, message
from understudy import limits
from understudy.message import DUPLICATE_ID
from understudy.wire.core import packets

#: Kind of a request and its number: of a message, or of a delivery that has come.
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["send"] * 4
            + ["acknowledge"] * 3
            + ["commit"] * 6
            + ["volatile", "again", "missing", "answered", "other", "large", "one", "unknown", "credits", "rollback"]
            + ["turn", "consumer"]
        ),
        st.integers(0, 3),
    ),
    max_size=24,
)


class Side:
    """A node with a client, in which the first request of a transaction waits or does not."""

    def __init__(self, *, waits: bool, automatic: bool = True) -> None:
        self.node = CoreNode(automatic=automatic)
        self.node.world.queue()
        self.node.world.queue("r")
        filler = self.node.client("10.0.0.2:2")
        filler.create_session("2" * 36, window=-1)
        for number in range(6):
            filler.send_message(f"before {number}")
        self.node.sync()
        self.client = self.node.client()
        self.client.create_session(window=-1, auto_commit_acks=False, auto_commit_sends=False)
        if not waits:
            self.client.handler.sessions[10]._may_wait = False
        self.client.consume()
        self.node.sync()
        self.ids: list[int] = []
        self.seen: list[Any] = []
        self.collect()

    def collect(self) -> None:
        """Note what the client has got. Ids of messages differ: a transaction takes one."""
        for packet in self.client.received():
            if isinstance(packet, packets.ReceiveMessage):
                self.ids.append(packet.message.message_id)
                self.seen.append((bytes(packet.message.body), packet.delivery_count))
            else:
                self.seen.append(packet)

    def step(self, kind: str, number: int, position: int) -> None:
        client = self.client
        if kind == "commit":
            client.send(packets.Commit(1000 + position))
        elif kind == "rollback":
            client.send(packets.Rollback(bool(number & 1)))
        elif kind == "credits":
            client.send(packets.FlowToken(0, 10_000))
        elif kind == "turn":
            self.node.sync()
        elif kind == "consumer":
            client.send(packets.ConsumerClose(0) if number else packets.CreateConsumer(7, "r", None, False, True, 0))
        elif kind in ("acknowledge", "one", "unknown"):
            delivered = self.ids[number % len(self.ids)] if self.ids and kind != "unknown" else 1 << 40
            one = packets.IndividualAcknowledge if kind == "one" else packets.Acknowledge
            client.send(one(0, delivered, number == 3))
        else:
            self.send(kind, number, position)
        self.collect()

    def send(self, kind: str, number: int, position: int) -> None:
        properties = {DUPLICATE_ID: f"id {number}"} if kind == "again" else {}
        address = {"missing": "missing", "other": "r"}.get(kind, "q")
        body = "x" * limits.LONE_WORK_BYTES_MAX if kind == "large" else f"message {position}"
        sent = message(body, address, durable=kind != "volatile", properties=properties)
        self.client.send(packets.SessionSend(sent, kind == "answered", position, 1))

    def end(self, *, cut: bool) -> tuple[Any, ...]:
        """Everything that the client has seen, and the queues after its end."""
        if cut:
            self.client.lose()
        else:
            self.client.send(packets.SessionClose())
        self.node.sync()
        self.collect()
        office = self.node.world.office
        queues = office.directory.queues
        return self.seen, self.client.connection.closed, {
            name: [
                (bytes(queue.read_waiting(reference).body), reference.delivery_count)
                for _, reference in queue.browse((9, -1))
            ]
            for name, queue in queues.items()
        }, {
            name: (queue.message_count, queue.delivering_count, queue.incoming, queue.messages_acknowledged)
            for name, queue in queues.items()
        }, {
            name: (each.size_bytes, each.message_count, each.messages_routed)
            for name, each in office.directory.addresses.items()
        }, (office.memory.held_bytes, office.memory.held_count)  # fmt: skip


@given(steps, st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_request_that_waits_for_its_commit_is_like_one_that_does_not(
    program: list[tuple[str, int]], automatic: bool, cut: bool
) -> None:
    sides = [Side(waits=waits, automatic=automatic) for waits in (True, False)]
    for side in sides:
        for position, (kind, number) in enumerate(program):
            side.step(kind, number, position)
    first, second = (side.end(cut=cut) for side in sides)
    assert first == second


@pytest.mark.parametrize("kind", ["send", "acknowledge"])
def test_a_request_with_its_commit_is_one_record_that_the_answer_waits_for(kind: str) -> None:
    side = Side(waits=True, automatic=False)
    context = side.node.world.office.store.context
    # the address has been asked for
    side.step("send", 0, 0)
    side.step("send", 1, 1)
    side.step("commit", 0, 2)
    side.node.sync()
    side.collect()
    side.seen.clear()
    before = context.appended
    side.step(kind, 0, 3)
    assert context.appended == before
    side.step("commit", 0, 4)
    assert context.appended == before + 1
    assert side.seen == []
    side.node.sync()
    side.collect()
    answers = [each for each in side.seen if isinstance(each, packets.NullResponse)]
    assert answers == [packets.NullResponse(1004)]


def test_a_request_that_waits_keeps_no_large_read() -> None:
    """Bytes after the message in the same read, of another channel, would be kept with it."""
    side = Side(waits=True)
    session = side.client.handler.sessions[10]
    side.step("large", 0, 0)
    assert session._first is None
    side.step("rollback", 0, 1)
    side.step("send", 0, 2)
    assert session._first is not None


def test_a_request_that_waits_is_rolled_back_with_its_session() -> None:
    side = Side(waits=True)
    side.step("send", 0, 0)
    side.step("commit", 0, 1)
    side.step("send", 0, 2)
    queue = side.node.world.office.directory.queues["q"]
    count = queue.message_count
    side.client.lose()
    side.node.sync()
    assert queue.message_count == count
