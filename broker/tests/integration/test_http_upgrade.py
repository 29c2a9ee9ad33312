"""HTTP upgrade at a real acceptor: by hand, beside plain connections; the stock client is in ``interop``."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest

from support.members import Members, url
from support.processes import Node
from understudy.client.sync import connect
from understudy.wire.core import packets
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode


@pytest.fixture
def node(tmp_path: Path):
    members = Members(tmp_path, 2)
    made = members.nodes[0]
    place = f"127.0.0.1:{made.port}"
    made.config.write_text(made.config.read_text().replace(f"{place}</acc", f"{place}?httpUpgradeEnabled=true</acc"))
    made.start().wait_ready("active")
    yield made
    members.end()


def ask(node: Node, *fields: str, rest: bytes = b"", cut: int = 0) -> tuple[bytes, socket.socket]:
    """The head of the answer, and the connection."""
    key = base64.b64encode(bytes(16)).decode()
    lines = ("GET / HTTP/1.1", "host: 127.0.0.1", "upgrade: activemq-remoting", "connection: upgrade", *fields)
    request = "\r\n".join((*lines, f"Sec-ActiveMQRemoting-Key: {key}", "", "")).encode() + rest
    connection = socket.create_connection(("127.0.0.1", node.port), 10)
    connection.sendall(request[:cut])
    connection.sendall(request[cut:])
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = connection.recv(1)
        if not data:
            break
        answer += data
    return answer, connection


@pytest.mark.parametrize("together", [True, False])
def test_core_begins_after_the_answer(node: Node, together: bool) -> None:
    begin = MAGIC + encode(packets.Ping(60_000), 0)
    answer, connection = ask(node, "activemqServerName: n0", rest=begin if together else b"", cut=30)
    assert answer.startswith(b"HTTP/1.1 101 ")
    if not together:
        connection.sendall(begin)
    connection.sendall(encode(packets.SubscribeTopologyV2(False, 136), 0))
    decoder, found = FrameDecoder(role="client"), []
    connection.settimeout(10)
    while not any(isinstance(each, packets.ClusterTopologyV2) for each in found):
        found += [frame.packet for frame in decoder.receive_data(connection.recv(65536))]
    connection.close()


@pytest.mark.parametrize(
    ("field", "status"), [("activemqServerName: other", b"404"), ("httpUpgradeEndpoint: other", b"404")]
)
def test_another_server_or_endpoint_is_refused_with_a_status(node: Node, field: str, status: bytes) -> None:
    answer, connection = ask(node, field)
    assert answer.split(b" ")[1] == status
    while connection.recv(4096):
        pass
    connection.close()


def test_plain_connections_are_served_at_the_same_port_and_a_slow_request_is_dropped(node: Node) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        session.producer("q").send("plain")
    with socket.create_connection(("127.0.0.1", node.port), 10) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n")
        slow.settimeout(30)
        try:
            assert slow.recv(1) == b""
        except ConnectionResetError:
            pass
