"""The layer of a connection that recognises its protocol."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from understudy.protocols.handlers import ConnectionHandler
from understudy.runtime.net.detection import Detection
from understudy.session.prefixes import AddressPrefixes
from understudy.wire.detect import Protocol

PREFIXES = AddressPrefixes()


class Socket:
    """The layer below."""

    peer = "127.0.0.1:1"
    certificate_subject = None
    upgrade_without_name = False

    def __init__(self) -> None:
        self.handler: ConnectionHandler | None = None
        self.ended: list[str] = []
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")


class Handler:
    """Handler of a protocol that keeps its input and says that input is left over."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def receive_data(self, data: bytes) -> bool:
        self.received.append(data)
        return True


def detection(socket: Socket, handler: Handler, timeout_ms: int = 0) -> Detection:
    layer = Detection(
        socket, {Protocol.CORE: lambda connection, prefixes: cast(ConnectionHandler, handler)}, PREFIXES, timeout_ms
    )
    socket.handler = layer
    return layer


def test_the_handler_of_the_protocol_takes_its_place_and_gets_every_byte() -> None:
    socket, handler = Socket(), Handler()
    layer = detection(socket, handler)
    assert not layer.receive_data(memoryview(b"ARTE"))
    assert socket.handler is layer
    assert layer.receive_data(memoryview(b"MIS and more")), "what the handler says of left-over input is passed on"
    assert socket.handler is cast(ConnectionHandler, handler)
    assert handler.received == [b"ARTEMIS and more"]
    assert (socket.ended, socket.sent) == ([], [])


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x00\x05hello", b"x" * 9])
def test_a_protocol_that_is_not_served_closes_the_connection(first: bytes, caplog: pytest.LogCaptureFixture) -> None:
    socket, handler = Socket(), Handler()
    layer = detection(socket, handler)
    assert not layer.receive_data(first)
    assert (socket.ended, handler.received) == (["close"], [])
    assert socket.handler is layer
    assert [each[:8] for each in socket.sent] == ([b"HTTP/1.1"] if first.startswith(b"GET") else [])
    assert ("the client speaks TLS" if first.startswith(b"\x16") else "protocol not served") in caplog.text


@pytest.mark.parametrize("end", ["timeout", "detected", "lost"])
def test_a_client_that_shows_no_protocol_in_time_is_dropped_and_no_other(end: str) -> None:
    socket = Socket()

    async def wait() -> None:
        layer = detection(socket, Handler(), timeout_ms=1)
        if end == "detected":
            layer.receive_data(b"ARTEMIS\0")
        elif end == "lost":
            layer.connection_lost("closed")
        fired = asyncio.Event()
        # due after the timer of the layer
        asyncio.get_running_loop().call_later(0.002, fired.set)
        await fired.wait()

    asyncio.run(wait())
    assert socket.ended == (["abort"] if end == "timeout" else [])
