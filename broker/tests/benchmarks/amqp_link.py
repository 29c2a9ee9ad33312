"""AMQP 0-9-1, for RabbitMQ: channels in confirm mode, deliveries under a prefetch, cumulative acknowledgements.

Source: the AMQP 0-9-1 specification, and RabbitMQ's extension for publisher confirms.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from benchmarks.content import DIGITS, NUMBER, Content, connection_name, properties, unique_text
from benchmarks.load import Consumer, Patch, Producer, RunFailed

#: Deliveries that may be unacknowledged; about the bytes of a CORE consumer's window.
_PREFETCH = 1000
_FRAME_END = b"\xce"
#: Largest frame, as clients negotiate it by default.
_FRAME_BYTES_MAX = 131_072
_METHOD, _HEADER, _BODY = 1, 2, 3


def _short(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


def _long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + _FRAME_END


def _method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return _frame(_METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def _basic_properties(content: Content) -> bytes:
    """Content type and delivery mode, as clients send them, and the properties of the shape. The broker checks that the
    user id is the name of the user, so here the message id is the unique value.
    """
    shape = content.shape
    flags, fields = 0x9000, _short("application/octet-stream")
    table = b""
    if shape.properties:
        for name, value in properties(connection_name()).items():
            table += _short(name)
            table += b"S" + _long(value.encode()) if isinstance(value, str) else b"l" + struct.pack(">q", value)
    if shape.duplicate_id:
        table += _short("_AMQ_DUPL_ID") + b"S" + _long(unique_text().encode())
    if table:
        flags |= 0x2000
        fields += _long(table)
    fields += b"\x02" if content.durable else b"\x01"
    if shape.properties:
        flags |= 0x0090
        fields += _short(unique_text()) + _short("guest")
    return struct.pack(">H", flags) + fields


class AmqpLink:
    """One AMQP 0-9-1 connection of the benchmark."""

    protocol = "amqp"

    def __init__(self, port: int, queue_type: str) -> None:
        self.port = port
        self.queue_type = queue_type

    def declare(self, queues: Sequence[str], *, durable: bool = True) -> None:
        """Make durable queues; quorum queues cannot be anything else."""
        client = _Client(self.port)
        table = b""
        if self.queue_type != "classic":
            table = _short("x-queue-type") + b"S" + _long(self.queue_type.encode())
        for queue in queues:
            client.ask(_method(1, 50, 10, b"\0\0" + _short(queue) + b"\x02" + _long(table)), (50, 11))
        client.socket.close()

    def producer(self, queue: str, content: Content) -> Producer:
        client = _Client(self.port)
        client.ask(_method(1, 85, 10, b"\0"), (85, 11))
        frame = self.publish(queue, content)
        patches = [Patch(frame.index(NUMBER), body=True)]
        at = frame.find(DIGITS.encode())
        while at >= 0:
            patches.append(Patch(at, kind="X"))
            at = frame.find(DIGITS.encode(), at + 1)
        return Producer(client.socket, frame, tuple(patches))

    def publish(self, queue: str, content: Content) -> bytes:
        """The frames of a message."""
        body = content.body
        step = _FRAME_BYTES_MAX - 8
        return b"".join(
            (
                _method(1, 60, 40, b"\0\0" + _short("") + _short(queue) + b"\0"),
                _frame(_HEADER, 1, struct.pack(">HHQ", 60, 0, len(body)) + _basic_properties(content)),
                *(_frame(_BODY, 1, body[offset : offset + step]) for offset in range(0, len(body), step)),
            )
        )

    def consumer(self, queue: str, number: int, prefetch: int = 0) -> Consumer:
        client = _Client(self.port)
        client.ask(_method(1, 60, 10, struct.pack(">IHB", 0, prefetch or _PREFETCH, 0)), (60, 11))
        # no-wait, so that nothing but deliveries comes
        start = _method(1, 60, 20, b"\0\0" + _short(queue) + _short(f"c{number}") + b"\x08" + _long(b""))
        return Consumer(client.socket, start)


class _Client:
    """A connection with channel 1, as far as it is needed to arrange things."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self._input = b""
        self.ask(b"AMQP\0\0\x09\x01", (10, 10))
        login = _long(b"") + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US")
        self.ask(_method(0, 10, 11, login), (10, 30))
        # no heartbeats: runs are short
        self.socket.sendall(_method(0, 10, 31, struct.pack(">HIH", 2047, _FRAME_BYTES_MAX, 0)))
        self.ask(_method(0, 10, 40, _short("/") + b"\0\0"), (10, 41))
        self.ask(_method(1, 20, 10, b"\0"), (20, 11))

    def ask(self, data: bytes, answer: tuple[int, int]) -> None:
        self.socket.sendall(data)
        while True:
            while len(self._input) >= 12 and len(self._input) >= 8 + int.from_bytes(self._input[3:7], "big"):
                size = 8 + int.from_bytes(self._input[3:7], "big")
                frame, self._input = self._input[:size], self._input[size:]
                method = struct.unpack_from(">HH", frame, 7)
                if method == answer:
                    return
                if method in ((10, 50), (20, 40)):
                    raise RunFailed(f"the broker closes: {frame[14 : 14 + frame[13]].decode(errors='replace')}")
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._input += data
