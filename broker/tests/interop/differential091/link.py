"""One connection of AMQP 0-9-1 over a socket, method by method, with the properties as their bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import NamedTuple

from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import PROTOCOL_HEADER, FrameDecoder, FrameType, content_frames, method_frame
from understudy.wire.amqp091.layout import Method, decode_method
from understudy.wire.amqp091.properties import decode_header

#: Only against a broker that does not answer.
_ANSWER_S = 10
_FRAME_BYTES_MAX = 131_072
_CAPABILITIES = {"consumer_cancel_notify": True, "basic.nack": True, "publisher_confirms": True}


class Received(NamedTuple):
    """A method of the broker, with its content."""

    channel: int
    method: Method
    properties: bytes = b""
    """The encoded list."""
    body: bytes = b""


class Link:
    """An open connection."""

    def __init__(self, port: int) -> None:
        """Connect and log in. Raises OSError."""
        self._socket = socket.create_connection(("127.0.0.1", port), _ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder(_FRAME_BYTES_MAX)
        self._contents: dict[int, tuple[Method, bytes, int, bytes]] = {}
        try:
            self._open()
        except BaseException:
            self._socket.close()
            raise

    def _open(self) -> None:
        self._socket.sendall(PROTOCOL_HEADER)
        self.receive()
        self.send(0, m.ConnectionStartOk({"capabilities": _CAPABILITIES}, "PLAIN", b"\0guest\0guest", "en_US"))
        tune = self.receive().method
        if not isinstance(tune, m.ConnectionTune):
            raise ConnectionError(f"the login was answered with {tune}")
        self.send(0, m.ConnectionTuneOk(tune.channel_max, _FRAME_BYTES_MAX, 0))
        self.send(0, m.ConnectionOpen("/"))
        opened = self.receive().method
        if not isinstance(opened, m.ConnectionOpenOk):
            raise ConnectionError(f"the virtual host was answered with {opened}")

    def send(self, channel: int, method: Method, properties: bytes = b"", body: bytes = b"") -> None:
        """Send a method, with its content if it has one."""
        self.send_all(channel, ((method, properties, body),))

    def send_all(self, channel: int, requests: Iterable[tuple[Method, bytes, bytes]]) -> None:
        """Send methods with their properties and bodies in one piece."""
        self._socket.sendall(
            b"".join(
                content_frames(method, properties, body, channel, _FRAME_BYTES_MAX)
                if method.has_content
                else method_frame(method, channel)
                for method, properties, body in requests
            )
        )

    def receive(self) -> Received:
        """The next method. Raises ConnectionError: the broker has closed the socket. TimeoutError: it is silent."""
        while True:
            frame = self._decoder.next()
            if frame is None:
                data = self._socket.recv(65_536)
                if not data:
                    raise ConnectionError("the broker has closed the socket")
                self._decoder.receive(data)
            elif frame.type == FrameType.METHOD:
                method = decode_method(frame.payload)
                if not method.has_content:
                    return Received(frame.channel, method)
                self._contents[frame.channel] = (method, b"", -1, b"")
            elif frame.type != FrameType.HEARTBEAT:
                whole = self._content(frame.channel, frame.type, frame.payload)
                if whole is not None:
                    return whole

    def _content(self, channel: int, kind: int, payload: bytes) -> Received | None:
        method, properties, size_bytes, body = self._contents.pop(channel)
        if kind == FrameType.HEADER:
            size_bytes, properties = decode_header(payload)
        else:
            body += payload
        if len(body) == size_bytes:
            return Received(channel, method, properties, body)
        self._contents[channel] = (method, properties, size_bytes, body)
        return None

    def close(self) -> None:
        """Close the connection, and wait until the broker has closed it."""
        try:
            self.send(0, m.ConnectionClose(200, "end"))
            while not isinstance(self.receive().method, m.ConnectionCloseOk):
                continue
        except ConnectionError:
            pass
        self._socket.close()

    def drop(self) -> None:
        """Close the socket after a connection.close of the broker was answered."""
        self._socket.close()
