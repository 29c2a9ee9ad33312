"""Sessions whose messages wait for a decision about their group: order, other sessions, limits (ADR 0071)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.core import NAME, Client, CoreNode, message
from support.grouping import HERE, GroupingNode
from support.large import Node
from support.store import StoreHarness
from understudy.errors import RemoteProtocolError
from understudy.limits import GROUP_HELD_BYTES_OF_SESSION_MAX
from understudy.message import GROUP_ID
from understudy.routing.queues.queue import Queue
from understudy.wire.core import packets
from understudy.wire.core.codec import encode

OTHER = NAME.replace("0a0b", "1a1b")


class Grouped(CoreNode):
    """A node with a REMOTE handler; ``answer`` plays the LOCAL one."""

    def __init__(self) -> None:
        super().__init__()
        self.grouping = GroupingNode("REMOTE", world=self.world, timeout_ms=100)
        self.queue: Queue = self.world.queue("q")

    def answer(self, *groups: str) -> None:
        for group in groups:
            self.grouping.heard("PROPOSAL_RESPONSE", f"{group}.q", "q" + HERE)
        self.world.turn()

    def bodies(self) -> list[str]:
        self.world.turn()
        return [self.queue.read(each).body.decode() for _, each in self.queue.browse((9, -1))]


@pytest.fixture
def node() -> Grouped:
    return Grouped()


def open_session(node: Grouped, **options: Any) -> Client:
    client = node.client()
    client.create_session(**options)
    return client


def send(client: Client, body: str, group: str | None, number: int = 1, channel_id: int = 10) -> None:
    made = message(body, properties={} if group is None else {GROUP_ID: group})
    client.send(packets.SessionSend(made, True, number, 1), channel_id)


def answered(client: Client) -> list[int]:
    return [each.correlation_id for each in client.received() if isinstance(each, packets.NullResponse)]


def test_what_a_client_sends_after_a_waiting_message_waits_too(node: Grouped) -> None:
    client = open_session(node)
    send(client, "plain", None, 1)
    send(client, "one", "g", 2)
    send(client, "two", None, 3)
    send(client, "three", "h", 4)
    send(client, "four", "g", 5)
    assert node.bodies() == ["plain"]
    assert answered(client) == [1]
    node.answer("g")
    assert node.bodies() == ["plain", "one", "two"]
    assert answered(client) == [2, 3]
    node.answer("h")
    assert node.bodies() == ["plain", "one", "two", "three", "four"]
    assert answered(client) == [4, 5]
    assert node.grouping.groups.waiting == 0
    assert client.handler.uploading == {}


def test_messages_that_came_together_wait_from_the_first_undecided_one_on(node: Grouped) -> None:
    node.answer("known")
    client = open_session(node)
    groups = ["known", "known", "new", "known", "new", "newer", None, "known"]
    frames = []
    for number, group in enumerate(groups):
        made = message(f"{number}", properties={} if group is None else {GROUP_ID: group})
        frames.append(encode(packets.SessionSend(made, True, number, 1), 10))
    client.handler.receive_data(b"".join(frames))
    assert node.bodies() == ["0", "1"]
    node.answer("new")
    assert node.bodies() == ["0", "1", "2", "3", "4"]
    node.answer("newer")
    assert node.bodies() == [f"{number}" for number in range(8)]
    assert answered(client) == list(range(8))
    address = node.world.office.directory.addresses["q"]
    assert address.messages_routed == 8, "none was taken twice"


def test_sessions_that_wait_for_one_group_go_on_in_the_order_in_which_they_came(node: Grouped) -> None:
    clients = []
    for number in range(3):
        clients.append(open_session(node, name=NAME.replace("0a0b", f"{number}a0b")))
        send(clients[-1], f"{number}", "g")
    node.answer("g")
    assert node.bodies() == ["0", "1", "2"]


def test_other_sessions_of_the_client_go_on(node: Grouped) -> None:
    client = open_session(node)
    client.create_session(OTHER, channel_id=11)
    send(client, "waits", "g")
    assert not client.handler.congested()
    send(client, "goes", None, 7, 11)
    assert node.bodies() == ["goes"]
    assert answered(client) == [7]


def test_a_client_that_sends_much_while_it_waits_is_not_read_and_not_silent_for_that(node: Grouped) -> None:
    client = open_session(node)
    send(client, "waits", "g")
    sent = 1
    while not client.handler.congested():
        send(client, "x" * 50_000, "g")
        sent += 1
        assert sent < 100, "nothing limits it"
    assert sent * 50_000 < 2 * GROUP_HELD_BYTES_OF_SESSION_MAX
    for _ in range(5):
        # longer than its connection TTL
        node.world.clock.now_ms += 30_000
        client.handler.check()
    node.answer("g")
    assert not client.handler.congested()
    assert len(node.bodies()) == sent
    node.world.clock.now_ms += 30_000
    client.handler.check()
    node.world.clock.now_ms += 70_000
    with pytest.raises(RemoteProtocolError, match="connection-ttl"):
        client.handler.check()


def test_small_messages_are_limited_by_their_number(node: Grouped) -> None:
    client = open_session(node)
    send(client, "waits", "g")
    frame = encode(packets.FlowToken(0, 1), 10)
    for _ in range(3_000):
        client.handler.receive_data(frame)
    assert client.handler.congested()


def test_a_client_that_leaves_while_its_message_waits_is_forgotten(node: Grouped) -> None:
    client = open_session(node, window=-1)
    send(client, "waits", "g")
    client.lose()
    other = open_session(node, name=OTHER)
    send(other, "stays", "g")
    node.answer("g")
    assert node.bodies() == ["stays"]


def test_a_session_that_is_reattached_goes_on_where_it_waited(node: Grouped) -> None:
    client = open_session(node)
    send(client, "one", "g", 1)
    client.lose()
    again = node.client()
    again.reattach(last_received=-1)
    node.answer("g")
    assert node.bodies() == ["one"]


def test_a_commit_waits_for_the_messages_of_its_transaction(node: Grouped) -> None:
    client = open_session(node, auto_commit_sends=False, auto_commit_acks=False)
    send(client, "one", "g", 1)
    client.send(packets.Commit(2))
    assert answered(client) == []
    node.answer("g")
    assert answered(client) == [1, 2]
    assert node.bodies() == ["one"]


def test_credits_are_used_once(node: Grouped) -> None:
    client = open_session(node)
    send(client, "one", "g", 1)
    session = next(iter(client.handler.sessions.values())).session
    assert [each.used_bytes for each in session.sends._targets.values()] == [0]
    node.answer("g")
    (target,) = session.sends._targets.values()
    assert target.used_bytes == len(message("one", properties={GROUP_ID: "g"}).encoded)


def test_after_the_last_proposal_messages_are_taken_in_order(node: Grouped) -> None:
    client = open_session(node)
    for number, group in enumerate(["g", None, "g", "h"]):
        send(client, f"{number}", group, number)
    node.world.clock.advance(999)
    assert node.bodies() == []
    node.world.clock.advance(1)
    assert node.bodies() == ["0", "1", "2"]
    node.world.clock.advance(1_000)
    assert node.bodies() == ["0", "1", "2", "3"]
    assert node.grouping.groups.counts.ungrouped == 3


def test_large_messages_wait_and_so_does_what_follows() -> None:
    large = Node(StoreHarness(random.Random(1)), "a")
    queue = large.world.queue("q")
    core = CoreNode(world=large.world)
    grouping = GroupingNode("REMOTE", world=large.world, timeout_ms=100)
    client = core.client()
    create = packets.CreateSession(NAME, 10, 136, None, None, 102_400, False, True, True, -1, False, None)
    client.handler.receive_data(encode(create, 1))
    large.settle()
    client.received()

    def send_large(group: str, number: int) -> None:
        header = packets.header_of_message(message("", properties={GROUP_ID: group}))
        for packet in (
            packets.SessionSendLarge(header),
            packets.SessionSendContinuation(bytes(150_000), True),
            packets.SessionSendContinuation(bytes(50_000), False, 200_000, True, number, 1),
        ):
            client.handler.receive_data(encode(packet, 10))
        large.settle()

    send_large("g", 1)
    send_large("h", 2)
    made = packets.SessionSend(message("after", properties={GROUP_ID: "g"}), True, 3, 1)
    client.handler.receive_data(encode(made, 10))
    large.settle()
    assert (answered(client), queue.message_count) == ([], 0)
    assert not client.handler.congested()
    for group, expected in (("h", []), ("g", [1, 2, 3])):
        grouping.heard("PROPOSAL_RESPONSE", f"{group}.q", "q" + HERE)
        large.settle()
        assert answered(client) == expected
    assert queue.message_count == 3
    assert client.handler.uploading == {}
