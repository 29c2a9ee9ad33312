"""Large messages as packets: requests after the last piece, responses, frames of a delivery."""

from __future__ import annotations

import random

import pytest

from support.core import CoreNode
from support.large import Node, body_of, seen_by
from support.store import StoreHarness
from understudy.limits import LARGE_BACKLOG_BYTES_PAUSE, LARGE_MESSAGES_STORING_MAX
from understudy.message import Message
from understudy.protocols.core.connection import CoreConnection
from understudy.session.send_requests import SendRequests
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder, encode

CHANNEL = 10
PIECE = 100 * 1024


class Socket:
    """The outgoing half, read back as packets."""

    peer = "tester:1"
    certificate_subject = None
    upgrade_without_name = False

    def __init__(self) -> None:
        self.decoder = FrameDecoder("client")
        self.frames: list[tuple[packets.Packet, int]] = []
        self.closed = False

    def send(self, data: bytes) -> None:
        self.frames += [(frame.packet, frame.size_bytes) for frame in self.decoder.receive_data(data)]

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def took(self) -> list[packets.Packet]:
        frames, self.frames = self.frames, []
        return [packet for packet, _ in frames]


class Client:
    """One session over one connection."""

    def __init__(self, window: int = -1, auto_commit: bool = True) -> None:
        self.node = Node(StoreHarness(random.Random(1)), "a")
        self.node.world.queue("q")
        self.socket = Socket()
        core = CoreNode(world=self.node.world)
        self.connection = CoreConnection(core.core, self.socket)
        create = packets.CreateSession(
            "s", CHANNEL, 136, None, None, PIECE, False, auto_commit, auto_commit, window, False, None
        )
        self.connection.receive_data(encode(create, 1))
        self.send(packets.SessionStart())
        self.node.settle()
        self.socket.took()

    def send(self, *several: packets.Packet) -> None:
        for packet in several:
            self.connection.receive_data(encode(packet, CHANNEL))

    def large(self, body: bytes, *, correlation_id: int = 1, size: int | None = None, announce: bool = True) -> None:
        header = packets.header_of_message(Message(b"", address="q", properties={"n": correlation_id}))
        if announce:
            self.send(packets.SessionSendLarge(header))
        starts = list(range(0, len(body), PIECE)) or [0]
        for start in starts[:-1]:
            self.send(packets.SessionSendContinuation(body[start : start + PIECE], True, -1, False, 0, 1))
        last = body[starts[-1] :]
        self.send(
            packets.SessionSendContinuation(last, False, len(body) if size is None else size, True, correlation_id, 1)
        )


def small(text: str, correlation_id: int) -> packets.SessionSend:
    return packets.SessionSend(Message(text.encode(), address="q"), True, correlation_id, 1)


def test_a_large_message_is_confirmed_when_it_is_safe_and_what_follows_keeps_its_place() -> None:
    client = Client()
    client.large(body_of("m"))
    client.send(small("behind", 2))
    client.large(body_of("n", 1000), correlation_id=3)
    client.send(small("last", 4))
    assert client.socket.took() == []
    assert client.connection.congested(), "no chunk is added to those waiting in memory"
    client.node.settle()
    assert not client.connection.congested()
    answers = client.socket.took()
    assert [packet.correlation_id for packet in answers if isinstance(packet, packets.NullResponse)] == [1, 2, 3, 4]
    client.send(packets.CreateConsumer(0, "q", None, False, False, 0), packets.FlowToken(0, -1))
    client.node.settle()
    kinds = [type(packet).__name__ for packet in client.socket.took()]
    pieces = ["ReceiveContinuation"] * 6
    assert kinds == [
        "ReceiveLargeMessage", *pieces, "ReceiveMessage", "ReceiveLargeMessage", "ReceiveContinuation", "ReceiveMessage"
    ]  # fmt: skip


def answered(client: Client) -> list[int]:
    return [
        packet.correlation_id
        for packet in client.socket.took()
        if isinstance(packet, packets.NullResponse | packets.ExceptionResponse)
    ]


def test_large_messages_in_a_row_are_taken_while_the_first_is_made_safe_and_keep_their_order() -> None:
    client = Client()
    for number in range(1, LARGE_MESSAGES_STORING_MAX + 1):
        assert not client.connection.congested()
        client.large(body_of(f"m{number}", 1000), correlation_id=number)
    assert client.connection.congested(), "no more of them at a time"
    assert client.node.store.large.unfinished == LARGE_MESSAGES_STORING_MAX
    client.large(body_of("more", 1000), correlation_id=17)
    assert client.node.store.large.unfinished == LARGE_MESSAGES_STORING_MAX
    client.send(small("last", 18))
    client.node.settle()
    assert answered(client) == list(range(1, 19))
    assert not client.connection.congested()
    queue = client.node.world.office.directory.find_queue("q")
    assert queue is not None
    numbers = [reference.message.properties.get("n") for reference in queue.pending if reference.message is not None]
    assert numbers == [*range(1, 18), None]


def test_a_large_message_in_parts_after_one_that_is_made_safe_goes_on_afterwards() -> None:
    client = Client()
    body = body_of("second")
    client.large(body_of("first", 1000), correlation_id=1)
    client.send(packets.SessionSendLarge(packets.header_of_message(Message(b"", address="q"))))
    client.send(packets.SessionSendContinuation(body[:PIECE], True, -1, False, 0, 1))
    client.node.settle()
    assert answered(client) == [1]
    client.send(packets.SessionSendContinuation(body[PIECE:], False, len(body), True, 2, 1), small("third", 3))
    client.node.settle()
    assert answered(client) == [2, 3]


def test_an_end_while_several_are_made_safe_leaves_nothing() -> None:
    client = Client()
    for number in range(1, 4):
        client.large(body_of(f"m{number}"), correlation_id=number)
    client.connection.connection_lost("test")
    client.node.settle()
    assert client.socket.took() == []
    assert client.node.files() == []
    assert client.node.store.large.unfinished == 0


def test_a_session_that_confirms_commands_takes_one_at_a_time() -> None:
    client = Client(window=1)
    client.large(body_of("first", 1000), correlation_id=1)
    assert client.connection.congested()
    client.large(body_of("second", 1000), correlation_id=2)
    assert client.node.store.large.unfinished == 1
    client.node.settle()
    confirmed = [each.command_id for each in client.socket.took() if isinstance(each, packets.PacketsConfirmed)]
    assert confirmed == sorted(confirmed)
    assert confirmed[-1] == 4, "start, and then each announcement with its piece"


def test_a_delivery_equals_the_sent_message_and_every_frame_is_charged() -> None:
    client = Client()
    client.large(body_of("m"), size=777)
    client.node.settle()
    client.socket.took()
    client.send(packets.CreateConsumer(0, "q", None, False, False, 0), packets.FlowToken(0, 1_000_000))
    client.node.settle()
    frames = client.socket.frames
    first = frames[0][0]
    assert isinstance(first, packets.ReceiveLargeMessage)
    assert (first.large_message_size, first.delivery_count, first.consumer_id) == (600_000, 1, 0)
    header = packets.message_of_header(first.header)
    assert (header.properties["_AMQ_LARGE_SIZE"], header.properties["n"]) == (777, 1)
    pieces = [packet for packet, _ in frames[1:] if isinstance(packet, packets.ReceiveContinuation)]
    assert b"".join(piece.body for piece in pieces) == body_of("m")
    assert [piece.continues for piece in pieces] == [True] * 5 + [False]
    assert max(len(piece.body) for piece in pieces) == PIECE
    consumer = client.connection.sessions[CHANNEL].session.consumers.by_id[0]
    assert consumer.flow.credits == 1_000_000 - sum(size for _, size in frames)


def test_pieces_without_an_announcement_are_answered_with_an_error() -> None:
    client = Client()
    client.large(body_of("m"), announce=False)
    client.node.settle()
    (answer,) = client.socket.took()
    assert isinstance(answer, packets.ExceptionResponse)
    assert answer.correlation_id == 1
    client.send(small("next", 2))
    client.node.settle()
    assert [type(packet) for packet in client.socket.took()] == [packets.NullResponse]


def test_an_announcement_that_is_no_header_is_an_error_of_its_pieces() -> None:
    client = Client()
    client.send(packets.SessionSendLarge(b"\0" * 5))
    client.large(b"x" * 10, announce=False)
    client.node.settle()
    assert [type(packet) for packet in client.socket.took()] == [packets.ExceptionResponse]
    assert client.node.files() == []


def test_a_commit_after_a_large_message_waits_for_it() -> None:
    client = Client(auto_commit=False)
    client.large(body_of("m"))
    client.send(packets.Commit(9))
    assert client.socket.took() == []
    client.node.settle()
    answers = [packet.correlation_id for packet in client.socket.took() if isinstance(packet, packets.NullResponse)]
    assert answers == [1, 9]
    queue = client.node.world.office.directory.find_queue("q")
    assert queue is not None
    assert queue.message_count == 1


def test_the_last_piece_is_confirmed_as_a_command_only_when_it_is_done() -> None:
    client = Client(window=1)
    client.large(body_of("m", 1000))
    commands = [packet.command_id for packet in client.socket.took() if isinstance(packet, packets.PacketsConfirmed)]
    client.node.settle()
    later = [packet.command_id for packet in client.socket.took() if isinstance(packet, packets.PacketsConfirmed)]
    assert len(later) == 1
    assert later[0] == commands[-1] + 1


@pytest.mark.parametrize("goodbye", ["lost", "close"])
def test_an_end_in_the_middle_leaves_nothing(goodbye: str) -> None:
    client = Client()
    client.large(body_of("m"))
    if goodbye == "lost":
        client.connection.connection_lost("test")
        client.node.settle()
        assert client.socket.took() == []
        assert client.node.files() == []
    else:
        client.send(packets.SessionClose())
        client.node.settle()
        assert [type(packet) for packet in client.socket.took()] == [packets.NullResponse] * 2
        assert len(client.node.files()) == 1, "the session closes after the message, not before it"
    assert not client.connection.congested()


def test_a_protocol_error_after_a_large_message_closes_the_connection() -> None:
    client = Client()
    client.large(body_of("m"))
    client.send(packets.ClusterConnect("u", "p"))
    assert not client.socket.closed
    client.node.settle()
    assert client.socket.closed


def test_an_internal_error_after_a_large_message_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client()
    client.large(body_of("m"))
    client.send(small("x", 2))

    def breaks(*_: object) -> None:
        raise LookupError("of ours")

    monkeypatch.setattr(SendRequests, "send_batch", breaks)
    client.node.settle()
    assert client.socket.closed
    assert "internal error" in caplog.text


def test_a_slow_disk_holds_the_socket_up() -> None:
    client = Client()
    client.send(packets.SessionSendLarge(packets.header_of_message(Message(b"", address="q"))))
    sent = 0
    while not client.connection.congested():
        client.send(packets.SessionSendContinuation(bytes(PIECE), True, -1, False, 0, 1))
        sent += PIECE
    assert LARGE_BACKLOG_BYTES_PAUSE < sent <= LARGE_BACKLOG_BYTES_PAUSE + 2 * PIECE
    client.node.settle()
    assert not client.connection.congested()


# --- sessions that are reattached (ADR 0009) ---------------------------------------------------------


class Cut:
    """A client with a confirmation window that remembers its commands, as stock ones do."""

    def __init__(self) -> None:
        self.node = Node(StoreHarness(random.Random(1)), "a")
        self.node.world.queue("q")
        self.node.settle()
        self.core = CoreNode(world=self.node.world)
        self.client = self.core.client()
        self.client.create_session(window=10_000_000)
        self.commands: list[packets.Packet] = []
        self.received: list[packets.Packet] = []

    def send(self, *several: packets.Packet) -> None:
        for packet in several:
            self.commands.append(packet)
            self.client.send(packet)

    def take(self) -> None:
        self.received += [packet for packet in self.client.received() if packet.counts_as_command]

    def cut(self, *, noticed: bool = True) -> list[packets.Packet]:
        """Lose the connection, which the server notices or not, and ask for the session on another one."""
        self.take()
        if noticed:
            self.client.lose()
        self.client = self.core.client()
        answers = self.client.reattach(last_received=len(self.received) - 1)
        self.received += [each for each in answers if not isinstance(each, packets.ReattachSessionResponse)]
        return [each for each in answers if isinstance(each, packets.ReattachSessionResponse)]

    def go_on(self, answer: packets.ReattachSessionResponse) -> None:
        """Send what the server has not received, unchanged."""
        assert answer.reattached
        for packet in self.commands[answer.last_confirmed_command_id + 1 :]:
            self.client.send(packet)


def large_commands(body: bytes, correlation_id: int = 1) -> list[packets.Packet]:
    header = packets.header_of_message(Message(b"", address="q"))
    commands: list[packets.Packet] = [packets.SessionSendLarge(header)]
    for start in range(0, len(body), PIECE):
        last = start + PIECE >= len(body)
        commands.append(
            packets.SessionSendContinuation(
                body[start : start + PIECE], not last, len(body) if last else -1, last, correlation_id, 1
            )
        )
    return commands


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("sent", [1, 3, 6, 7, 8])
def test_a_large_send_continues_after_a_reattachment(sent: int, noticed: bool) -> None:
    cut = Cut()
    commands = [*large_commands(body_of("m")), small("behind", 2)]
    cut.send(*commands[:sent])
    answers = cut.cut(noticed=noticed)
    if sent >= 7:
        assert answers == [], "no answer before the outcome is known"
        cut.node.settle()
        answers = [each for each in cut.client.received() if isinstance(each, packets.ReattachSessionResponse)]
    (answer,) = answers
    assert answer.last_confirmed_command_id == sent - 1
    cut.go_on(answer)
    cut.send(*commands[sent:])
    cut.node.settle()
    queue = cut.node.world.office.directory.find_queue("q")
    assert queue is not None
    assert queue.message_count == 2
    reader = cut.node.consumer()
    cut.node.settle()
    assert seen_by(reader).large_bodies == [body_of("m")]
    assert [message.body for _, message, _ in seen_by(reader).delivered] == [b"behind"]


def test_a_large_delivery_continues_after_a_reattachment() -> None:
    cut = Cut()
    cut.send(*large_commands(body_of("m")))
    cut.node.settle()
    cut.take()
    cut.send(packets.SessionStart(), packets.CreateConsumer(0, "q", None, False, False, 0))
    cut.send(packets.FlowToken(0, 150_000))
    (answer,) = cut.cut()
    cut.go_on(answer)
    cut.send(packets.FlowToken(0, -1))
    cut.take()
    kinds = [each for each in cut.received if isinstance(each, packets.ReceiveLargeMessage)]
    assert len(kinds) == 1
    pieces = [each for each in cut.received if isinstance(each, packets.ReceiveContinuation)]
    assert b"".join(each.body for each in pieces) == body_of("m")


def test_a_session_that_is_not_reattached_takes_its_unfinished_message_along() -> None:
    cut = Cut()
    cut.send(*large_commands(body_of("m"))[:4])
    cut.node.settle()
    assert len(cut.node.files()) == 1
    cut.client.lose()
    cut.core.reattachments.close()
    cut.node.settle()
    assert cut.node.files() == []
