"""Memory that a client makes the server take: its bound, and its release after the connection.

Each test runs a real node and looks at its resident memory.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import Node, Pair, assert_serves
from understudy.limits import METADATA_CHARACTERS_MAX
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode

MIB = 1024 * 1024
#: Only against a test that hangs.
WAIT_S = 60


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    pair = Pair(tmp_path)
    try:
        pair.primary.start().wait_ready("active")
        yield pair.primary
    finally:
        pair.end()


def resident_mib(node: Node) -> float:
    assert node.process is not None
    for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def wait_until_below(node: Node, limit_mib: float) -> None:
    began = time.monotonic()
    while (now_mib := resident_mib(node)) > limit_mib:
        assert time.monotonic() - began < WAIT_S, f"{now_mib:.0f} MiB resident, expected at most {limit_mib:.0f}"
        time.sleep(0.05)


class Client:
    """A connection with a session, over a plain socket."""

    def __init__(self, node: Node, name: str = "s") -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.port), timeout=WAIT_S)
        self._decoder = FrameDecoder("client")
        self._answers: deque[p.Packet] = deque()
        self.socket.sendall(b"ARTEMIS")
        self.create_session(name, 10)

    def create_session(self, name: str, channel_id: int) -> None:
        create = p.CreateSession(name, channel_id, 136, "u", "p", 102_400, False, True, True, -1, False, None)
        self.socket.sendall(encode(create, 1))
        assert isinstance(self.answer(), p.CreateSessionResponse)

    def answer(self) -> p.Packet:
        while not self._answers:
            data = self.socket.recv(65536)
            assert data, "the node closed the connection"
            self._answers.extend(frame.packet for frame in self._decoder.receive_data(data))
        return self._answers.popleft()

    def ask(self, packet: p.Packet, channel_id: int = 10) -> p.Packet:
        self.socket.sendall(encode(packet, channel_id))
        return self.answer()


def test_half_a_frame_is_freed_with_its_connection(node: Node) -> None:
    """80 MB of a frame that never ends, then a closed socket, several times."""
    frame_bytes, sent_bytes = 90 * MIB, 80 * MIB
    before_mib = resident_mib(node)
    for _ in range(4):
        client = Client(node)
        with client.socket:
            client.socket.sendall((frame_bytes - 4).to_bytes(4) + bytes((71,)) + (10).to_bytes(8))
            piece = bytes(MIB)
            for _ in range(sent_bytes // MIB):
                client.socket.sendall(piece)
        wait_until_below(node, before_mib + 60)
    assert_serves(node)


def test_metadata_is_bounded_and_freed_with_its_connection(node: Node) -> None:
    """Sessions with as much metadata as is taken, on connections that are closed."""
    before_mib = resident_mib(node)
    per_session = METADATA_CHARACTERS_MAX // 1_100
    for number in range(2):
        client = Client(node, f"first {number}")
        with client.socket:
            for channel_id in range(11, 300):
                client.create_session(f"{number}-{channel_id}", channel_id)
                adds = (p.AddMetadataV2(f"key{entry}", "v" * 1_000, True) for entry in range(per_session))
                client.socket.sendall(b"".join(encode(packet, channel_id) for packet in adds))
                answers = [client.answer() for _ in range(per_session)]
                if any(isinstance(answer, p.ExceptionResponse) for answer in answers):
                    break
            else:
                raise AssertionError("no limit for a connection")
            answer = client.ask(p.AddMetadataV2("large", "v" * MIB, True))
            assert isinstance(answer, p.ExceptionResponse)
            assert "metadata" in (answer.message or "")
        wait_until_below(node, before_mib + 40)
    assert_serves(node)
