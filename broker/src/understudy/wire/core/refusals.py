"""Frames that exceed a limit: skipped, with as much of them as the answer to their sender needs.

A frame whose length is known can be skipped whatever it contains, so one that asks for too much fails alone, and the
connection goes on. A frame above the limit of frames is skipped while it arrives: only its first and last bytes are
kept. Not here: which channels may have such frames (the owner of the decoder), or the answer
(``protocols.core.session``, ``client.core.session.state``).
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final

from understudy.errors import LimitExceeded, RemoteProtocolError
from understudy.message import BODY_END_BIAS, Message
from understudy.wire.buffer import Reader
from understudy.wire.core.layout import Packet
from understudy.wire.core.packets import (
    PACKET_TYPES,
    ReceiveMessage,
    SessionSend,
    SessionSendContinuation,
    send_tail_bytes,
)

#: Bytes of a frame before its body: length, type and channel.
_HEAD_BYTES: Final = 13
#: First bytes of a frame that are kept while it is skipped: also those of a length at the start of its body.
KEPT_HEAD_BYTES: Final = _HEAD_BYTES + 4
#: Last bytes that are kept: at most those of a ``SessionSendContinuation`` after its piece.
_KEPT_TAIL_BYTES: Final = 32
_RECEIVE_TAIL_BYTES: Final = 12
#: Fields that say whether the sender of a packet waits for an answer.
_ANSWER_FIELDS: Final = frozenset(("requires_response", "requires_confirmation"))

_HEAD = struct.Struct(">ibq")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class RefusedPacket(Packet):
    """A frame of a known type that was skipped because it, or something in it, exceeds a limit; made by the decoder."""

    __slots__ = ("error", "packet", "packet_type")

    TYPE: ClassVar[int] = 0

    def __init__(self, packet_type: type[Packet], error: LimitExceeded, packet: Packet | None) -> None:
        self.packet_type = packet_type
        self.error = error
        self.packet = packet
        """The packet with empty values in the place of those that exceed a limit; None: it could not be read so far."""

    @property
    def counts_as_command(self) -> bool:
        """Whether the skipped packet has a command id."""
        return self.packet is None or self.packet.counts_as_command

    @property
    def requires_response(self) -> bool:
        """Whether its sender waits for an answer, as far as a field says so. Assumed for a packet that has such a field
        and could not be read.
        """
        if self.packet is not None:
            return any(getattr(self.packet, name, False) for name in _ANSWER_FIELDS)
        return any(hasattr(self.packet_type, name) for name in _ANSWER_FIELDS)

    @property
    def correlation_id(self) -> int:
        """Correlation id of the refused request; -1 if it has none."""
        correlation_id: int = getattr(self.packet, "correlation_id", -1)
        return correlation_id


def refused_packet(type_number: int, data: bytes, start: int, end: int, version: int, error: LimitExceeded) -> Packet:
    """The ``RefusedPacket`` for a whole frame with the body ``data[start:end]`` in which something exceeds a limit.

    Raises:
        RemoteProtocolError: the body does not have the layout of the packet.
    """
    packet_type = PACKET_TYPES[type_number]
    if packet_type is SessionSend:
        return RefusedPacket(packet_type, error, _send_of(data, end, version))
    if packet_type is ReceiveMessage:
        message_id = _I64.unpack_from(data, start + 4 + _I32.unpack_from(data, start)[0] - BODY_END_BIAS)[0]
        return RefusedPacket(packet_type, error, _receive_of(data, end, message_id))
    reader = Reader(data[start - _HEAD_BYTES : end], _HEAD_BYTES, skips_excess=True)
    try:
        packet = packet_type.read_body(reader, version)
    except LimitExceeded:
        # more items than a list may have: those after them are not looked at
        return RefusedPacket(packet_type, error, None)
    return RefusedPacket(packet_type, error, packet)


def _send_of(data: bytes | bytearray, end: int, version: int) -> SessionSend:
    reader = Reader(bytes(data[end - send_tail_bytes(version) : end]))
    requires_response = reader.boolean()
    correlation_id = reader.i64() if reader.remaining else -1
    return SessionSend(Message(), requires_response, correlation_id, reader.i32() if reader.remaining else -1)


def _receive_of(data: bytes | bytearray, end: int, message_id: int) -> ReceiveMessage:
    reader = Reader(bytes(data[end - _RECEIVE_TAIL_BYTES : end]))
    return ReceiveMessage(Message(message_id=message_id), reader.i64(), reader.i32())


class SkippedFrame:
    """A frame above the limit of frames, on its way."""

    __slots__ = ("_error", "_head", "_left_bytes", "_tail", "channel_id", "packet_type", "size_bytes")

    def __init__(self, head: bytes, limit_bytes: int) -> None:
        """``head``: at least the first ``KEPT_HEAD_BYTES`` of it, whose type is known."""
        length, type_number, self.channel_id = _HEAD.unpack_from(head)
        self.size_bytes: int = length + 4
        self.packet_type = PACKET_TYPES[type_number]
        self._head = bytes(head[:KEPT_HEAD_BYTES])
        self._tail = bytearray()
        self._left_bytes: int = self.size_bytes
        self._error = LimitExceeded(
            f"a frame of {self.size_bytes} bytes, limit {limit_bytes}",
            hint="a message of that size has to be sent as a large message, in pieces",
        )

    def skip(self, data: bytes, offset: int) -> int:
        """Take the bytes of the frame from ``offset`` on. Returns the offset after them."""
        end: int = min(len(data), offset + self._left_bytes)
        self._left_bytes -= end - offset
        self._tail += memoryview(data)[max(offset, end - _KEPT_TAIL_BYTES) : end]
        del self._tail[:-_KEPT_TAIL_BYTES]
        return end

    @property
    def whole(self) -> bool:
        """Whether the whole frame has arrived."""
        return self._left_bytes == 0

    def packet(self, version: int) -> RefusedPacket:
        """The packet that stands for it.

        Raises:
            RemoteProtocolError: its last bytes do not have the layout of the packet.
        """
        tail, packet_type = self._tail, self.packet_type
        packet: Packet | None = None
        if packet_type is SessionSend:
            packet = _send_of(tail, len(tail), version)
        elif packet_type is ReceiveMessage:
            packet = _receive_of(tail, len(tail), 0)
        elif packet_type is SessionSendContinuation:
            piece_bytes = _I32.unpack_from(self._head, _HEAD_BYTES)[0]
            left = self.size_bytes - KEPT_HEAD_BYTES - piece_bytes
            if not 0 < left <= len(tail):
                raise RemoteProtocolError(f"a piece of {piece_bytes} bytes in a frame of {self.size_bytes} bytes")
            packet = SessionSendContinuation.read_body(Reader(_I32.pack(0) + bytes(tail[-left:])), version)
        return RefusedPacket(packet_type, self._error, packet)
