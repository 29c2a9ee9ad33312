"""Slow and many (docs/operate/security.md, class 14): trickles, floods of connections, greedy clients.

Each test runs a real node and an honest client beside the attack; what bounds the attacker is a
limit with a name, not luck.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress

import pytest

from support import forked
from support.nodes import Nodes
from support.processes import COMMAND, Node, assert_serves
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode

#: connectionsAllowed of the node.
ALLOWED = 40


@pytest.fixture
def node(nodes: Nodes) -> Node:
    return nodes.active(acceptor=f"?handshake-timeout=2;connectionsAllowed={ALLOWED}").primary


class Client:
    """A session over a plain socket."""

    def __init__(self, node: Node) -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.port), timeout=60)
        self._decoder = FrameDecoder("client")
        self.socket.sendall(
            b"ARTEMIS"
            + encode(p.CreateSession("greedy", 10, 136, "u", "p", 102_400, False, True, True, -1, False, None), 1)
        )
        self.wait_for(p.CreateSessionResponse)

    def send(self, *packets: p.Packet) -> None:
        self.socket.sendall(b"".join(encode(packet, 10) for packet in packets))

    def wait_for(self, kind: type[p.Packet]) -> p.Packet:
        while True:
            data = self.socket.recv(65536)
            assert data, "the node hung up"
            for frame in self._decoder.receive_data(data):
                if isinstance(frame.packet, kind):
                    return frame.packet


def closed_within(stranger: socket.socket, seconds: float = 60) -> bool:
    stranger.settimeout(seconds)
    try:
        while stranger.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize("first", [b"", b"A", b"AR"], ids=["nothing", "one byte", "two bytes"])
def test_a_trickle_before_the_magic_is_cut_off(node: Node, first: bytes) -> None:
    """A byte now and then does not extend the handshake-timeout of 2 s."""
    with socket.create_connection(("127.0.0.1", node.port)) as stranger:
        stranger.sendall(first)
        rest = b"ARTEMI"[len(first) :]
        sent = 0
        # each before the time would be over if the one before had extended it
        while sent < len(rest) and not closed_within(stranger, 1.7):
            with suppress(ConnectionError):
                stranger.sendall(rest[sent : sent + 1])
            sent += 1
        assert sent < len(rest), "every byte was waited for"
    assert "its first bytes did not come within the time limit" in node.tail()
    assert_serves(node)


def test_a_flood_of_silent_connections_displaces_itself(node: Node) -> None:
    """Three times as many as the acceptor allows, in every state before a login: clients still come in."""
    topology = b"ARTEMIS" + encode(p.Ping(-1), 0) + encode(p.SubscribeTopologyV2(False, 136), 0)
    with ExitStack() as stack:
        for number in range(3 * ALLOWED):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", node.port), timeout=60))
            stranger.sendall((b"", b"ART", b"ARTEMIS" + encode(p.Ping(-1), 0), topology)[number % 4])
            if number in (ALLOWED - 1, 2 * ALLOWED):
                assert_serves(node)
        assert_serves(node)
        facts = node.facts()
        assert isinstance(facts["connections"], int)
        assert facts["connections"] <= ALLOWED
    assert "too many that have not logged in" in node.log.read_text()


def test_connections_that_ask_and_never_read_hold_up_no_login(node: Node) -> None:
    """SUBSCRIBE_TOPOLOGY again and again, without reading the answers: each is cut off after a few frames."""
    subscribe = encode(p.SubscribeTopologyV2(False, 136), 0)
    with ExitStack() as stack:
        strangers = []
        for _ in range(8):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", node.port), timeout=60))
            strangers.append(stranger)
            with suppress(OSError):
                stranger.sendall(b"ARTEMIS" + subscribe * 10_000)
        assert_serves(node)
        for stranger in strangers:
            assert closed_within(stranger)
    assert "before a login" in node.log.read_text()


def test_a_connection_that_has_logged_in_is_never_displaced(node: Node) -> None:
    with ExitStack() as stack:
        clients = [Client(node) for _ in range(ALLOWED)]
        for client in clients:
            stack.enter_context(client.socket)
        for _ in range(5):
            late = stack.enter_context(socket.create_connection(("127.0.0.1", node.port), timeout=60))
            assert closed_within(late), "the acceptor is full of clients that are known"
        for client in clients:
            client.send(p.QueueQuery("q"))
            client.wait_for(p.QueueQueryResponseV3)
    assert "connection refused: too many" in node.log.read_text()


def test_a_frame_that_trickles_after_the_login_holds_up_no_other_connection(node: Node) -> None:
    client = Client(node)
    frame = encode(p.QueueQuery("q" * 100), 10)
    with client.socket:
        for byte in frame[:6]:
            client.socket.sendall(bytes((byte,)))
            time.sleep(0.05)
        assert_serves(node)
        client.socket.sendall(frame[6:])
        client.wait_for(p.QueueQueryResponseV3)


def test_a_consumer_that_never_acknowledges_gets_no_more_than_its_credits(node: Node) -> None:
    url = f"tcp://127.0.0.1:{node.port}"
    command = [str(COMMAND), "produce", "--url", url, "--queue", "held", "--count", "500", "--size", "1000"]
    forked.run(command, check=True, capture_output=True)
    client = Client(node)
    with client.socket:
        client.send(p.CreateConsumer(1, "held", None, False, True, 0), p.FlowToken(1, 20_000), p.SessionStart())
        client.wait_for(p.ReceiveMessage)
        queue = node.queue("held")
        assert queue is not None
        assert isinstance(queue["delivering_count"], int)
        assert 0 < queue["delivering_count"] < 40
        assert queue["message_count"] == 500
    assert_serves(node)


def test_consumers_producers_and_sessions_are_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits have numbers no honest client reaches; the answer names the limit, and the rest goes on."""
    from understudy.limits import CONSUMERS_PER_SESSION_MAX, SESSIONS_PER_CONNECTION_MAX

    client = Client(node)
    with client.socket:
        client.send(p.CreateQueueV2("many", "many", None, True, False, True, routing_type=1))
        client.wait_for(p.NullResponse)
        step = 500
        for start in range(0, CONSUMERS_PER_SESSION_MAX, step):
            client.send(
                *(p.CreateConsumer(number, "many", None, False, False, 0) for number in range(start, start + step))
            )
        client.send(p.CreateConsumer(CONSUMERS_PER_SESSION_MAX + 1, "many", None, False, True, 0))
        answer = client.wait_for(p.ExceptionResponse)
        assert isinstance(answer, p.ExceptionResponse)
        assert str(CONSUMERS_PER_SESSION_MAX) in (answer.message or "")
        for number in range(SESSIONS_PER_CONNECTION_MAX + 1):
            create = p.CreateSession(f"s{number}", 100 + number, 136, "u", "p", 1, False, True, True, -1, False, None)
            client.socket.sendall(encode(create, 1))
        answer = client.wait_for(p.ExceptionResponse)
        assert isinstance(answer, p.ExceptionResponse)
        assert str(SESSIONS_PER_CONNECTION_MAX) in (answer.message or "")
    assert_serves(node)


def test_temporary_queues_of_a_flood_go_with_their_connection(node: Node) -> None:
    client = Client(node)
    with client.socket:
        for number in range(2000):
            client.send(p.CreateQueueV2(f"t{number}", f"t{number}", None, False, True, False, routing_type=1))
        client.send(p.QueueQuery("t1999"))
        answer = client.wait_for(p.QueueQueryResponseV3)
        assert isinstance(answer, p.QueueQueryResponseV3)
        assert answer.exists
    began = time.monotonic()
    while node.queue("t1999") is not None or node.queue("t0") is not None:
        assert time.monotonic() - began < 60
        time.sleep(0.05)
    assert_serves(node)
