"""Packets of producing, consuming and local transactions (artemis-core s. 4.3, 4.4).

The most frequent of them are read and written by ``codec`` without the generic code; their
``read_body`` and ``write_body`` here implement the same layouts for every version.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, ClassVar, Final

from understudy.dataclass import dataclass
from understudy.errors import RemoteProtocolError
from understudy.message import BODY_END_BIAS, Message
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core.layout import (
    I8,
    I32,
    I64,
    Encoding,
    Flag,
    Name,
    NameOrNull,
    Packet,
    Rest,
    SimpleString,
    SimpleStringOrNull,
    SizedBytes,
    Text,
)

#: First channel versions in which a send has a correlation id, and a producer id.
CORRELATION_SINCE: Final = 130
SENDER_SINCE: Final = 134

_EMPTY_BODY = struct.pack(">i", BODY_END_BIAS)


def _write_message(writer: Writer, message: Message) -> None:
    writer.raw(message.encoded)


def _read_message(reader: Reader) -> Message:
    return Message.decode(reader.rest())


#: A message has no length field: it extends up to the fixed fields at the end of the packet.
MessageField = Annotated[Message, Encoding(_read_message, _write_message)]


def message_of_header(header: bytes, body: bytes = b"", *, trusted: bool = False) -> Message:
    """The message for the header of a large message, with ``body`` if it is known.

    Args:
        header: See ``SessionSendLarge``.
        body: All of it.
        trusted: The same as for ``Message.decode``.

    Raises:
        RemoteProtocolError: the header does not have the layout of artemis-core s. 5.
        LimitExceeded: as ``Message.decode``.
    """
    if not body:
        return Message.decode(_EMPTY_BODY + header, trusted=trusted)
    encoded = b"".join((struct.pack(">i", len(body) + BODY_END_BIAS), body, header))
    return Message.decode(encoded, trusted=trusted)


def header_of_message(message: Message) -> bytes:
    """The header that announces a message as a large one: the message without its body."""
    return message.encoded[message.header_offset :]


@dataclass(slots=True)
class CreateProducer(Packet):
    TYPE: ClassVar[int] = -20
    producer_id: I32
    address: NameOrNull = None
    """None for an anonymous producer."""


@dataclass(slots=True)
class RemoveProducer(Packet):
    TYPE: ClassVar[int] = -21
    producer_id: I32


@dataclass(slots=True)
class ProducerRequestCredits(Packet):
    """Request for credits; answered by ``ProducerCredits`` or ``ProducerFailCredits`` when available. Also one for an
    address that is too long for a message: a client without credits waits, and never sends the message that is refused.
    """

    TYPE: ClassVar[int] = 79
    credits: I32
    """Number of bytes that the producer asks for."""
    address: SimpleString


@dataclass(slots=True)
class ProducerCredits(Packet):
    TYPE: ClassVar[int] = 80
    credits: I32
    """Number of bytes that the producer may send."""
    address: SimpleString


@dataclass(slots=True)
class ProducerFailCredits(Packet):
    """The address is full and its policy is to fail."""

    TYPE: ClassVar[int] = 82
    credits: I32
    """Number of bytes that the producer may send although the address is full."""
    address: SimpleString


@dataclass(slots=True)
class SessionSend(Packet):
    """A message for the broker."""

    TYPE: ClassVar[int] = 71
    message: MessageField
    requires_response: Flag = False
    correlation_id: I64 = -1
    """Copied to the response; -1 from peers before 130."""
    sender_id: I32 = -1
    """The producer's id; -1 from peers before 134."""

    def write_body(self, writer: Writer, version: int) -> None:
        writer.raw(self.message.encoded)
        _write_send_tail(writer, self.requires_response, self.correlation_id, self.sender_id, version)

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> SessionSend:
        tail = reader.end - send_tail_bytes(version)
        if tail < reader.offset:
            raise RemoteProtocolError(f"{reader.remaining} bytes are too few for a message")
        message = Message.decode(reader.data, reader.offset, tail)
        reader.offset = tail
        return cls(message, *_read_send_tail(reader, version))


def send_tail_bytes(version: int) -> int:
    """Number of bytes after the message in a ``SessionSend``."""
    return 13 if version >= SENDER_SINCE else 9 if version >= CORRELATION_SINCE else 1


def _write_send_tail(
    writer: Writer, requires_response: bool, correlation_id: int, sender_id: int, version: int
) -> None:
    writer.boolean(requires_response)
    if version >= CORRELATION_SINCE:
        writer.i64(correlation_id)
    if version >= SENDER_SINCE:
        writer.i32(sender_id)


def _read_send_tail(reader: Reader, version: int) -> tuple[bool, int, int]:
    requires_response = reader.boolean()
    correlation_id = reader.i64() if version >= CORRELATION_SINCE and reader.remaining else -1
    sender_id = reader.i32() if version >= SENDER_SINCE and reader.remaining else -1
    return requires_response, correlation_id, sender_id


@dataclass(slots=True)
class SessionSendLarge(Packet):
    """Announces a large message; its body follows in ``SessionSendContinuation`` packets."""

    TYPE: ClassVar[int] = 72
    header: Rest
    """The message without body and body length; see ``message_of_header``."""


@dataclass(slots=True)
class SessionSendContinuation(Packet):
    """A piece of a large message."""

    TYPE: ClassVar[int] = 73
    body: SizedBytes
    continues: Flag
    """False for the last piece."""
    message_body_size: I64 = -1
    """Bytes of the whole body, -1 if unknown; sent only with the last piece."""
    requires_response: Flag = False
    correlation_id: I64 = -1
    sender_id: I32 = -1

    def write_body(self, writer: Writer, version: int) -> None:
        writer.sized_bytes(self.body)
        writer.boolean(self.continues)
        if not self.continues:
            writer.i64(self.message_body_size)
        _write_send_tail(writer, self.requires_response, self.correlation_id, self.sender_id, version)

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> SessionSendContinuation:
        body = reader.sized_bytes()
        continues = reader.boolean()
        size = -1 if continues else reader.i64()
        return cls(body, continues, size, *_read_send_tail(reader, version))


@dataclass(slots=True)
class CreateConsumer(Packet):
    """Answered by ``QueueQueryResponseV3`` if a response is required."""

    TYPE: ClassVar[int] = 40
    GROUPS: ClassVar[tuple[str, ...]] = ("priority",)
    SINCE: ClassVar[Mapping[str, int]] = {"priority": 130}
    consumer_id: I64
    """Chosen by the client, unique in its session."""
    queue_name: Name
    filter: SimpleStringOrNull = None
    browse_only: Flag = False
    requires_response: Flag = True
    priority: I32 = 0
    """Priority of the consumer; a queue serves higher ones first."""


@dataclass(slots=True)
class ConsumerClose(Packet):
    TYPE: ClassVar[int] = 74
    consumer_id: I64


@dataclass(slots=True)
class FlowToken(Packet):
    """Credits for a consumer."""

    TYPE: ClassVar[int] = 70
    consumer_id: I64
    credits: I32
    """Bytes added to the credits of the consumer; -1 for unlimited, 0 sets the credits to 0."""


@dataclass(slots=True)
class ForceConsumerDelivery(Packet):
    """Requests a marker message as soon as no message is left to deliver."""

    TYPE: ClassVar[int] = 78
    consumer_id: I64
    sequence: I64


@dataclass(slots=True)
class ReceiveMessage(Packet):
    """Delivery of one message to a consumer."""

    TYPE: ClassVar[int] = 75
    message: MessageField
    consumer_id: I64
    delivery_count: I32
    """1 for the first."""

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> ReceiveMessage:
        tail = reader.end - 12
        if tail < reader.offset:
            raise RemoteProtocolError(f"{reader.remaining} bytes are too few for a message")
        message = Message.decode(reader.data, reader.offset, tail, trusted=True)
        reader.offset = tail
        return cls(message, reader.i64(), reader.i32())


@dataclass(slots=True)
class ReceiveLargeMessage(Packet):
    """Announces a large delivery."""

    TYPE: ClassVar[int] = 76
    consumer_id: I64
    delivery_count: I32
    large_message_size: I64
    """Bytes of the body."""
    header: Rest
    """Encoded head of the message, as in ``SessionSendLarge.header``."""


@dataclass(slots=True)
class ReceiveContinuation(Packet):
    """A piece of a large delivery."""

    TYPE: ClassVar[int] = 77
    body: SizedBytes
    continues: Flag
    consumer_id: I64


@dataclass(slots=True)
class Acknowledge(Packet):
    """Acknowledges all messages delivered to a consumer up to and including one."""

    TYPE: ClassVar[int] = 41
    consumer_id: I64
    message_id: I64
    requires_response: Flag = False


@dataclass(slots=True)
class IndividualAcknowledge(Packet):
    """Acknowledgement of exactly one message."""

    TYPE: ClassVar[int] = 81
    consumer_id: I64
    message_id: I64
    requires_response: Flag = False


class Settlement(IntEnum):
    """Outcome that a ``Settle`` asks for."""

    RELEASE = 0
    """The message returns to its place in the queue; the delivery does not count."""
    FAIL = 1
    """Back to its place in the queue; the delivery counts, so that the limit of deliveries applies."""
    REJECT = 2
    """To the dead letter address at once."""


@dataclass(slots=True)
class Settle(Packet):
    """End of one delivery without an acknowledgement, a packet that Artemis does not have (ADR 0143)."""

    TYPE: ClassVar[int] = -120
    consumer_id: I64
    message_id: I64
    settlement: I8
    requires_response: Flag = False
    undeliverable_here: Flag = False
    """Do not deliver the message to this consumer again."""
    delay_ms: I64 = -1
    """Time in ms until the message is delivered again; -1 for that of the address settings."""


@dataclass(slots=True)
class Expired(Packet):
    """The client found that a message has expired."""

    TYPE: ClassVar[int] = 42
    consumer_id: I64
    message_id: I64


@dataclass(slots=True)
class SessionStart(Packet):
    TYPE: ClassVar[int] = 67


@dataclass(slots=True)
class SessionStop(Packet):
    TYPE: ClassVar[int] = 68


@dataclass(slots=True)
class SessionClose(Packet):
    TYPE: ClassVar[int] = 69


@dataclass(slots=True)
class Commit(Packet):
    TYPE: ClassVar[int] = 43
    GROUPS: ClassVar[tuple[str, ...]] = ("correlation_id",)
    SINCE: ClassVar[Mapping[str, int]] = {"correlation_id": 132}
    correlation_id: I64 = -1
    """-1 if the peer sent none, which also peers of 136 do (artemis-core s. 6.1)."""


@dataclass(slots=True)
class Rollback(Packet):
    TYPE: ClassVar[int] = 44
    consider_last_message_as_delivered: Flag = False


@dataclass(slots=True)
class AddMetadata(Packet):
    TYPE: ClassVar[int] = 104
    key: Text
    value: Text

    @property
    def counts_as_command(self) -> bool:
        """False: these packets have no command id (artemis-core s. 7.1)."""
        return False


@dataclass(slots=True)
class AddMetadataV2(Packet):
    TYPE: ClassVar[int] = 105
    key: Text
    value: Text
    requires_confirmation: Flag = True

    @property
    def counts_as_command(self) -> bool:
        """False: these packets have no command id (artemis-core s. 7.1)."""
        return self.requires_confirmation


@dataclass(slots=True)
class UniqueAddMetadata(AddMetadataV2):
    """Metadata of a session that is refused if another session has the same key and value."""

    TYPE: ClassVar[int] = 106
