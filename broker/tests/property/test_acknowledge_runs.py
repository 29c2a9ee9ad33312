"""Acknowledgements of a consumer that come together, beside the same ones carried out one by one.

Goal: a client sees no difference, and the queues have the same messages, whatever it sends. Method: random programs of
acknowledgements of two consumers, commits, rollbacks and sends, several requests in each read, to two nodes, of which
one takes each acknowledgement alone; at the end the session is closed or its connection is cut.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.core import CoreNode, message
from understudy.wire.core import packets
from understudy.wire.core.codec import encode

MESSAGES = 12

requests = st.tuples(
    st.sampled_from(
        ["acknowledge"] * 12
        + ["run"] * 4
        + ["answered", "individual", "unknown", "commit", "rollback", "send", "credits"]
    ),
    st.integers(0, 2),
    st.integers(0, MESSAGES - 1),
)
programs = st.lists(st.lists(requests, max_size=8), max_size=5)


class Side:
    """A node with a client of two consumers and a browser."""

    def __init__(self, *, together: bool, transacted: bool, window: int, selectors: bool) -> None:
        self.node = CoreNode()
        self.node.world.queue()
        filler = self.node.client("10.0.0.2:2")
        filler.create_session("2" * 36, window=-1)
        for number in range(MESSAGES):
            filler.send_message(f"before {number}", properties={"n": number % 2})
        self.node.sync()
        self.client = self.node.client()
        self.client.create_session(window=window, auto_commit_acks=not transacted, auto_commit_sends=not transacted)
        self.client.handler.decoder.groups_acknowledges = together
        self.ids: dict[int, list[int]] = {0: [], 1: [], 2: []}
        self.seen: list[Any] = []
        for consumer_id in range(3):
            selector = f"n = {consumer_id}" if selectors and consumer_id < 2 else None
            self.client.send(packets.CreateConsumer(consumer_id, "q", selector, consumer_id == 2, False, 0))
            self.client.send(packets.FlowToken(consumer_id, 2_000))
        self.client.send(packets.SessionStart())
        self.node.sync()
        self.collect()

    def collect(self) -> None:
        """Note what the client has got. Ids of messages differ: a transaction takes one."""
        for packet in self.client.received():
            if isinstance(packet, packets.ReceiveMessage):
                self.ids[packet.consumer_id].append(packet.message.message_id)
                self.seen.append((packet.consumer_id, bytes(packet.message.body), packet.delivery_count))
            elif not isinstance(packet, packets.PacketsConfirmed):
                # a window is confirmed after the run in which it ends
                self.seen.append(packet)

    def read(self, group: list[tuple[str, int, int]]) -> None:
        """Requests that come in one read."""
        found: list[packets.Packet] = []
        for kind, consumer_id, number in group:
            ids = self.ids[consumer_id]
            delivered = ids[number % len(ids)] if ids and kind != "unknown" else 1 << 40
            if kind == "run":
                found += [packets.Acknowledge(consumer_id, each, False) for each in ids[number // 2 : number + 2]]
            elif kind in ("acknowledge", "answered", "unknown"):
                found.append(packets.Acknowledge(consumer_id, delivered, kind == "answered"))
            elif kind == "individual":
                found.append(packets.IndividualAcknowledge(consumer_id, delivered, False))
            elif kind == "commit":
                found.append(packets.Commit())
            elif kind == "rollback":
                found.append(packets.Rollback(bool(number & 1)))
            elif kind == "credits":
                found.append(packets.FlowToken(consumer_id, 500))
            else:
                found.append(
                    packets.SessionSend(message(f"sent {number}", properties={"n": number % 2}), True, number, 1)
                )
        self.client.handler.receive_data(b"".join(encode(each, 10) for each in found))
        self.node.sync()
        self.collect()

    def end(self, *, cut: bool) -> tuple[Any, ...]:
        """Everything that the client has seen, and the queue after its end."""
        received = self.client.handler.sessions[10].channel._received
        if cut:
            self.client.lose()
        else:
            self.client.send(packets.SessionClose())
        self.node.sync()
        self.collect()
        office = self.node.world.office
        queue = office.directory.queues["q"]
        waiting = [
            (bytes(queue.read_waiting(reference).body), reference.delivery_count)
            for _, reference in queue.browse((9, -1))
        ]
        counts = queue.message_count, queue.delivering_count, queue.messages_acknowledged
        memory = queue.address.size_bytes, office.memory.held_bytes, office.memory.held_count
        return self.seen, received, self.client.connection.closed, waiting, counts, memory


@given(programs, st.booleans(), st.sampled_from([-1, 100, 100_000]), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_acknowledgements_together_are_like_one_by_one(
    program: list[list[tuple[str, int, int]]], transacted: bool, window: int, selectors: bool, cut: bool
) -> None:
    sides = [
        Side(together=together, transacted=transacted, window=window, selectors=selectors) for together in (True, False)
    ]
    for side in sides:
        for group in program:
            side.read(group)
    first, second = (side.end(cut=cut) for side in sides)
    assert first == second


def test_a_read_of_acknowledgements_is_one_record() -> None:
    side = Side(together=True, transacted=False, window=-1, selectors=False)
    context = side.node.world.office.store.context
    before = context.appended
    side.read([("acknowledge", 0, number) for number in range(5)])
    assert context.appended == before + 1
    assert side.node.world.office.directory.queues["q"].messages_acknowledged == 5
