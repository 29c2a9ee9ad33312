"""OpenWire 9, for ActiveMQ classic, in its loose encoding without cache: every send asks for its response.

Source: the OpenWire specification of ActiveMQ. Queues come into being when they are used.
"""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Sequence

from benchmarks.content import DIGITS, NUMBER, Content, connection_name, properties, unique_text
from benchmarks.load import Consumer, Patch, Producer, RunFailed

#: As clients ask for by default.
_PREFETCH = 1000
#: Command ids of messages; the driver takes lower ones for answers to earlier commands.
_FIRST_COMMAND = 1000
_WIRE_FORMAT, _CONNECTION, _CONSUMER, _PRODUCER, _SESSION = 1, 3, 5, 6, 4
_ACK, _BYTES_MESSAGE = 22, 24
_QUEUE, _MESSAGE_ID, _CONNECTION_ID, _SESSION_ID, _CONSUMER_ID, _PRODUCER_ID = 100, 110, 120, 121, 122, 123
_ERRORS = (16, 31)
_CUMULATIVE = 2
#: Types of values in a map.
_LONG, _STRING = 6, 9


def _text(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    raw = value.encode()
    return b"\x01" + struct.pack(">H", len(raw)) + raw


def _object(kind: int, fields: bytes) -> bytes:
    return b"\x01" + bytes((kind,)) + fields


def _sized(command: bytes) -> bytes:
    return struct.pack(">I", len(command)) + command


def _command(kind: int, number: int, fields: bytes, *, answered: bool = True) -> bytes:
    return _sized(struct.pack(">BI?", kind, number, answered) + fields)


def _properties(content: Content) -> bytes:
    """The field for properties: a map of primitive values, as bytes."""
    values: dict[str, str | int] = properties(connection_name()) if content.shape.properties else {}
    if content.shape.duplicate_id:
        values["_AMQ_DUPL_ID"] = unique_text()
    if not values:
        return b"\0"
    encoded = struct.pack(">i", len(values))
    for name, value in values.items():
        encoded += struct.pack(">H", len(name)) + name.encode()
        if isinstance(value, str):
            encoded += struct.pack(">BH", _STRING, len(value)) + value.encode()
        else:
            encoded += struct.pack(">Bq", _LONG, value)
    return b"\x01" + struct.pack(">I", len(encoded)) + encoded


class OpenWireLink:
    """One OpenWire connection of the benchmark."""

    protocol = "openwire"

    def __init__(self, port: int) -> None:
        self.port = port

    def declare(self, queues: Sequence[str], *, durable: bool = True) -> None:
        """Check only that the broker answers: OpenWire creates queues by itself."""
        _Client(self.port).socket.close()

    def producer(self, queue: str, content: Content) -> Producer:
        client = _Client(self.port)
        producer = _object(_PRODUCER_ID, _text(client.connection) + struct.pack(">qq", 1, 1))
        destination = _object(_QUEUE, _text(queue))
        client.ask(_command(_PRODUCER, 3, producer + destination + b"\0" + b"\0" + struct.pack(">i", 0)))
        message_id = b"\x01" + bytes((_MESSAGE_ID,)) + producer
        begin = producer + destination + b"\0\0" + message_id
        fields = (
            begin
            + struct.pack(">qq", 0, 0)  # the producer's sequence, the broker's
            + b"\0"  # original transaction
            + b"\0" + struct.pack(">i", 0)  # group and its sequence
            + b"\0" + struct.pack(">?qB", content.durable, 0, 4)  # correlation id, persistent, expiration, priority
            + b"\0" + struct.pack(">q", 0)  # reply-to, timestamp
            + b"\0"  # type
            + b"\x01" + struct.pack(">I", content.body_bytes) + content.body
            + _properties(content)
            + b"\0\0\0"  # data structure, target consumer, compressed
            + struct.pack(">i", 0)  # redelivery counter
            + b"\0" + struct.pack(">q", 0)  # broker path, arrival
            + _text("bench" if content.shape.properties else None)  # user id; the message id above is unique
            + b"\0\0\0"  # from a bridge, droppable, cluster
            + struct.pack(">qq", 0, 0)  # times in and out of the broker
        )  # fmt: skip
        frame = _command(_BYTES_MESSAGE, 0, fields)
        sequence = 10 + len(begin)
        patches = [
            Patch(5, base=_FIRST_COMMAND, kind="I"),
            Patch(sequence, base=1),
            Patch(frame.index(NUMBER), body=True),
        ]
        if content.shape.duplicate_id:
            patches.append(Patch(frame.index(DIGITS.encode()), kind="X"))
        return Producer(client.socket, frame, tuple(patches))

    def consumer(self, queue: str, number: int, prefetch: int = 0) -> Consumer:
        client = _Client(self.port)
        consumer = _object(_CONSUMER_ID, _text(client.connection) + struct.pack(">qq", 1, 1))
        destination = _object(_QUEUE, _text(queue))
        start = _command(
            _CONSUMER,
            3,
            consumer
            + b"\0"  # browser
            + destination
            + struct.pack(">ii", _PREFETCH, 0)  # prefetch, most pending
            + b"\x01\0\0"  # dispatch without waiting, selector, subscription
            + b"\0\0\0\0"  # no local, exclusive, retroactive, priority
            + b"\0\0\0\0\0\0",  # broker path, predicate, network, optimised, no range, network path
            answered=False,
        )
        acknowledgement = struct.pack(">BI?", _ACK, 0, False) + destination + b"\0" + consumer + bytes((_CUMULATIVE,))
        return Consumer(client.socket, start, acknowledgement)


class _Client:
    """A connection with session 1."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self._input = b""
        self.connection = f"ID:{uuid.uuid4()}"
        # no options: loose encoding, no cache
        options = struct.pack(">I", 0)
        wire_format = b"ActiveMQ" + struct.pack(">I", 9) + b"\x01" + struct.pack(">I", len(options)) + options
        self.socket.sendall(_sized(bytes((_WIRE_FORMAT,)) + wire_format))
        connection = _object(_CONNECTION_ID, _text(self.connection))
        # client id, password, user, broker path, then flags of old and new: manageable, fault tolerant, …, address
        self.ask(_command(_CONNECTION, 1, connection + _text(self.connection) + b"\0\0\0" + b"\0\x01\x01\0\0\0"))
        session = _object(_SESSION_ID, _text(self.connection) + struct.pack(">q", 1))
        self.ask(_command(_SESSION, 2, session))

    def ask(self, data: bytes) -> None:
        """Send a command and wait for its response."""
        self.socket.sendall(data)
        while True:
            while len(self._input) >= 5 and len(self._input) >= 4 + int.from_bytes(self._input[:4], "big"):
                size = 4 + int.from_bytes(self._input[:4], "big")
                frame, self._input = self._input[:size], self._input[size:]
                if frame[4] == 30:
                    return
                if frame[4] in _ERRORS:
                    raise RunFailed(f"the broker reports: {frame[10:300].decode(errors='replace')}")
            received = self.socket.recv(65536)
            if not received:
                raise ConnectionError("the broker closed the connection")
            self._input += received
