"""A node that waits for its last replica sends clients of AMQP 0-9-1 elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from support.core import FakeConnection
from understudy.cluster.membership.client_endpoints import ClientEndpoint, NodeEndpoints
from understudy.errors import RemoteProtocolError
from understudy.limits import LOGIN_TIMEOUT_MS
from understudy.ports import Security
from understudy.protocols.amqp091.waiting_connection import WaitingAmqp091Connection
from understudy.testing.manual_time import ManualTime
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import PROTOCOL_HEADER, FrameDecoder, FrameType, encode_frame, method_frame
from understudy.wire.amqp091.layout import Method, decode_method
from understudy.wire.core.packets import ClientEndpoints

START_OK = method_frame(m.ConnectionStartOk({}, "PLAIN", b"\0u\0p", "en_US"), 0)


def refused(*hosts: str, tls: bool = False) -> tuple[FakeConnection, list[Method]]:
    """The connection of a client, and the methods that it gets."""
    endpoints = NodeEndpoints()
    for host in hosts:
        stated = ClientEndpoint("AMQP091", False, host, 5672), ClientEndpoint("AMQP091", True, host, 5671)
        endpoints.learn(host, ClientEndpoints(host, True, stated))
    connection: Any = FakeConnection("client")
    if tls:
        connection.security = Security.TLS
    handler = WaitingAmqp091Connection(connection, endpoints, ManualTime())
    assert not handler.receive_data(PROTOCOL_HEADER)
    assert not handler.receive_data(START_OK[:5])
    assert not handler.receive_data(START_OK[5:])
    assert not handler.receive_data(START_OK), "a closed connection reads nothing"
    decoder = FrameDecoder(1 << 16)
    decoder.receive(b"".join(connection.sent))
    found = []
    while (frame := decoder.next()) is not None:
        found.append(decode_method(frame.payload))
    return connection, found


@pytest.mark.parametrize(
    ("hosts", "tls", "text"),
    [
        ((), False, ""),
        (("b", "::1"), False, "; known hosts: b:5672,[::1]:5672"),
        (("b",), True, "; known hosts: b:5672,amqps:b:5671"),
    ],
)
def test_a_client_is_refused_with_the_known_hosts(hosts: tuple[str, ...], tls: bool, text: str) -> None:
    connection, (start, close) = refused(*hosts, tls=tls)
    assert isinstance(start, m.ConnectionStart)
    assert close == m.ConnectionClose(320, f"CONNECTION_FORCED - the node is passive{text}")
    assert connection.closed


def test_the_text_has_whole_entries() -> None:
    _, (_, close) = refused(*(f"{number}".rjust(60, "h") for number in range(9)))
    assert isinstance(close, m.ConnectionClose)
    assert len(close.reply_text) <= 255
    assert close.reply_text.endswith("h2:5672")


@pytest.mark.parametrize(
    "frames",
    [encode_frame(FrameType.HEADER, 0, b""), encode_frame(FrameType.METHOD, 1, b""), b"\x01\0\0\xff\xff\xff\xff"],
)
def test_other_frames_end_the_connection(frames: bytes) -> None:
    connection: Any = FakeConnection("client")
    handler = WaitingAmqp091Connection(connection, NodeEndpoints(), ManualTime())
    with pytest.raises(RemoteProtocolError):
        handler.receive_data(PROTOCOL_HEADER + frames)


def test_a_silent_client_is_given_up() -> None:
    connection: Any = FakeConnection("client")
    time = ManualTime()
    handler = WaitingAmqp091Connection(connection, NodeEndpoints(), time)
    handler.check()
    time.advance(LOGIN_TIMEOUT_MS)
    with pytest.raises(RemoteProtocolError):
        handler.check()
    with pytest.raises(RemoteProtocolError):
        handler.receive_data(PROTOCOL_HEADER[:4])
