"""CORE, for Artemis and Understudy: every message asks for its own response, as a client with a send handler does."""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Sequence
from typing import TypeVar

from benchmarks.content import DIGITS, NUMBER, Content, connection_name, properties, unique_text
from benchmarks.load import Consumer, Patch, Producer, RunFailed
from understudy.message import DUPLICATE_ID, Message, MessageType
from understudy.properties import PropertyValue
from understudy.wire.core import packets
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode, encode_send

P = TypeVar("P", bound=packets.Packet)

_VERSION = 134
_CHANNEL = 10
_ANYCAST = 1
#: The default of a client's consumerWindowSize.
_CONSUMER_WINDOW_BYTES = 1024 * 1024
_PRODUCER_CREDIT_BYTES = 1 << 30
#: The default of a client's minLargeMessageSize: larger messages are sent in pieces of this size.
_LARGE_BYTES_MIN = 100 * 1024
#: In the place of the number in a user id.
_USER_NUMBER = b"user id."


class CoreLink:
    """One CORE connection of the benchmark."""

    protocol = "core"

    def __init__(self, port: int) -> None:
        self.port = port

    def declare(self, queues: Sequence[str], *, durable: bool = True) -> None:
        """Make durable queues."""
        with LinkClient(self.port) as client:
            for queue in queues:
                client.ask(packets.CreateAddress(queue, (_ANYCAST,)), packets.NullResponse)
                client.ask(packets.CreateQueueV2(queue, queue, routing_type=_ANYCAST), packets.NullResponse)

    def producer(self, queue: str, content: Content) -> Producer:
        client = LinkClient(self.port)
        client.ask(packets.ProducerRequestCredits(_PRODUCER_CREDIT_BYTES, queue), packets.ProducerCredits)
        user_id = uuid.uuid4().bytes[:8] + _USER_NUMBER if content.shape.properties else None
        values: dict[str, PropertyValue] = {}
        if content.shape.properties:
            values |= properties(connection_name())
        if content.shape.duplicate_id:
            values[DUPLICATE_ID] = unique_text()
        message = Message(
            content.body, address=queue, type=MessageType.BYTES, durable=content.durable, user_id=user_id,
            properties=values,
        )  # fmt: skip
        frame = _large(message) if 4 + content.body_bytes > _LARGE_BYTES_MIN else _whole(message)
        patches = [Patch(frame.index(NUMBER), body=True), Patch(len(frame) - 12)]
        if content.shape.properties:
            patches.append(Patch(frame.index(_USER_NUMBER)))
        if content.shape.duplicate_id:
            patches.append(Patch(frame.index(DIGITS.encode("utf-16-le")), kind="W"))
        return Producer(client.socket, frame, tuple(patches))

    def consumer(self, queue: str, number: int, prefetch: int = 0, *, auto_commit_acks: bool = True) -> Consumer:
        client = LinkClient(self.port, auto_commit_acks=auto_commit_acks)
        create = packets.CreateConsumer(number, queue, None, False, True, 0)
        client.ask(create, packets.queue_query_response_type(_VERSION))
        start = encode(packets.SessionStart(), _CHANNEL, _VERSION) + encode(
            packets.FlowToken(number, _CONSUMER_WINDOW_BYTES), _CHANNEL, _VERSION
        )
        return Consumer(client.socket, start)


def prepared_answers() -> bytes:
    """The responses to the requests of this link other than sends, for a server that gives the same one every time: for
    each the type of the request, a byte, and the whole frame of the response, on any channel.
    """
    done = packets.NullResponse()
    answers: dict[type[packets.Packet], packets.Packet] = {
        packets.CreateSession: packets.CreateSessionResponse(_VERSION),
        packets.CreateAddress: done,
        packets.CreateQueueV2: done,
        packets.ProducerRequestCredits: packets.ProducerCredits(_PRODUCER_CREDIT_BYTES, "any"),
        packets.CreateConsumer: packets.queue_query_response_type(_VERSION)(True),
    }
    return b"".join(
        struct.pack("b", request.TYPE) + encode(response, _CHANNEL, _VERSION) for request, response in answers.items()
    )


def _whole(message: Message) -> bytes:
    return encode_send(message, _CHANNEL, requires_response=True, correlation_id=0, sender_id=0, version=_VERSION)


def _large(message: Message) -> bytes:
    """The frames of a large message, as the client of Artemis cuts it; the last one asks for the response."""
    body = message.body
    frames = [encode(packets.SessionSendLarge(message.encoded[message.header_offset :]), _CHANNEL, _VERSION)]
    for offset in range(0, len(body), _LARGE_BYTES_MIN):
        last = offset + _LARGE_BYTES_MIN >= len(body)
        piece = packets.SessionSendContinuation(
            body[offset : offset + _LARGE_BYTES_MIN],
            not last,
            len(body) if last else -1,
            requires_response=last,
            correlation_id=0,
            sender_id=0,
        )
        frames.append(encode(piece, _CHANNEL, _VERSION))
    return b"".join(frames)


class LinkClient:
    """A session, as far as it is needed to arrange things."""

    def __init__(self, port: int, *, auto_commit: bool = True, auto_commit_acks: bool = True, xa: bool = False) -> None:
        """``auto_commit``, ``auto_commit_acks``: whether its sends, and its acknowledgements, take effect without a
        commit. ``xa``: whether they are part of XA branches.
        """
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self._decoder = FrameDecoder("client")
        self._decoder.version = _VERSION
        self.socket.sendall(MAGIC)
        name = str(uuid.uuid4())
        create = packets.CreateSession(
            name, _CHANNEL, _VERSION, user="bench", password="bench", auto_commit_sends=auto_commit,
            auto_commit_acks=auto_commit_acks, xa=xa,
        )  # fmt: skip
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

    def __enter__(self) -> LinkClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
