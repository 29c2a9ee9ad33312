"""CORE, for Artemis and Understudy: every message asks for its own response, as a client with a send handler does."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from typing import TypeVar

from benchmarks.load import BODY, NUMBER, Consumer, Patch, Producer, RunFailed
from understudy.message import Message, MessageType
from understudy.wire.core import packets
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode, encode_send

P = TypeVar("P", bound=packets.Packet)

_VERSION = 134
_CHANNEL = 10
_ANYCAST = 1
#: The default of a client's consumerWindowSize.
_CONSUMER_WINDOW_BYTES = 1024 * 1024
_PRODUCER_CREDIT_BYTES = 1 << 30


class CoreLink:
    """One CORE connection of the benchmark."""

    protocol = "core"

    def __init__(self, port: int) -> None:
        self.port = port

    def declare(self, queues: Sequence[str]) -> None:
        """Make durable queues."""
        with _Client(self.port) as client:
            for queue in queues:
                client.ask(packets.CreateAddress(queue, (_ANYCAST,)), packets.NullResponse)
                client.ask(packets.CreateQueueV2(queue, queue, routing_type=_ANYCAST), packets.NullResponse)

    def producer(self, queue: str, *, durable: bool) -> Producer:
        client = _Client(self.port)
        client.ask(packets.ProducerRequestCredits(_PRODUCER_CREDIT_BYTES, queue), packets.ProducerCredits)
        message = Message(BODY, address=queue, type=MessageType.BYTES, durable=durable)
        frame = encode_send(message, _CHANNEL, requires_response=True, correlation_id=0, sender_id=0, version=_VERSION)
        return Producer(client.socket, frame, (Patch(frame.index(NUMBER), body=True), Patch(len(frame) - 12)))

    def consumer(self, queue: str, number: int) -> Consumer:
        client = _Client(self.port)
        create = packets.CreateConsumer(number, queue, None, False, True, 0)
        client.ask(create, packets.queue_query_response_type(_VERSION))
        start = encode(packets.SessionStart(), _CHANNEL, _VERSION) + encode(
            packets.FlowToken(number, _CONSUMER_WINDOW_BYTES), _CHANNEL, _VERSION
        )
        return Consumer(client.socket, start)


class _Client:
    """A session, as far as it is needed to arrange things."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self._decoder = FrameDecoder("client")
        self._decoder.version = _VERSION
        self.socket.sendall(MAGIC)
        name = str(uuid.uuid4())
        create = packets.CreateSession(name, _CHANNEL, _VERSION, user="bench", password="bench")
        self.ask(create, packets.CreateSessionResponse, 1)

    def ask(self, packet: packets.Packet, kind: type[P], channel_id: int = _CHANNEL) -> P:
        self.socket.sendall(encode(packet, channel_id, _VERSION))
        while True:
            data = self.socket.recv(65536)
            if not data:
                raise RunFailed(f"{type(packet).__name__}: the broker closed the connection")
            for frame in self._decoder.receive_data(data):
                if isinstance(frame.packet, packets.ExceptionResponse):
                    raise RunFailed(f"{type(packet).__name__}: {frame.packet}")
                if isinstance(frame.packet, kind):
                    return frame.packet

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
