"""Frames: ``i32 length, b8 type, i64 channel, body`` (artemis-core s. 1.1), to packets and back.

``FrameDecoder`` is fed the bytes of one connection in any portions and returns complete packets; ``encode``
makes one frame. Not here: the meaning of packets, the order in which a peer may send them, and sockets.

Invariants: the length of a frame is checked against the limit as soon as its four bytes are received; every
byte is copied a bounded number of times however the input is split; input that violates the
protocol raises ``RemoteProtocolError``, ``LimitExceeded`` or ``UnsupportedPacket``, and the decoder
raises the same error from then on. On channels that ``can_refuse`` names, a frame that exceeds a limit is
skipped and returned as a ``RefusedPacket`` instead.

The packets that make up most of the traffic are read and written by functions of their own, with one
``struct`` call for all fixed fields: this module accounts for most of the broker's cost of a message.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final, Literal, NamedTuple

from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, UnsupportedPacket
from understudy.kernel import Sends
from understudy.kernel.core import receives, split_commits, split_confirms, split_sends
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX, FRAME_BYTES_MAX, FRAME_COST
from understudy.message import Message
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core.packets import (
    PACKET_TYPES,
    VERSION,
    Acknowledge,
    ClusterAccept,
    ClusterProof,
    Commit,
    FlowToken,
    IndividualAcknowledge,
    NullResponse,
    Packet,
    ReceiveMessage,
    SessionSend,
)
from understudy.wire.core.refusals import KEPT_HEAD_BYTES, SkippedFrame, refused_packet
from understudy.wire.core.refusals import RefusedPacket as RefusedPacket
from understudy.wire.sealed import Opener

#: What a client sends before its first frame (artemis-core s. 1.2).
MAGIC: Final = b"ARTEMIS"
#: Length, type and channel.
FRAME_HEAD_BYTES: Final = 13
#: Bytes of a ``ReceiveMessage`` without its message.
RECEIVE_OVERHEAD_BYTES: Final = 25
#: Smallest value of the length field: type and channel.
LENGTH_MIN: Final = 9
_UNLIMITED: Final = sys.maxsize

_HEAD = struct.Struct(">ibq")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_SEND_TAIL = struct.Struct(">?qi")
_SEND_TAIL_130 = struct.Struct(">?q")
_RECEIVE_TAIL = struct.Struct(">qi")
_ACKNOWLEDGE = struct.Struct(">qq?")
_FLOW_TOKEN = struct.Struct(">qi")
_NULL_RESPONSE = struct.Struct(">ibqq")
_ENCODED_SEND_TAIL = struct.Struct(">bqi")

_TYPE_SEND: Final = SessionSend.TYPE
_TYPE_NULL_RESPONSE: Final = NullResponse.TYPE
_TYPE_ACKNOWLEDGE: Final = Acknowledge.TYPE
_TYPE_COMMIT: Final = Commit.TYPE
#: Bytes of an ``Acknowledge`` frame, and of it with a ``Commit`` frame without a correlation id.
_ACKNOWLEDGE_BYTES: Final = FRAME_HEAD_BYTES + _ACKNOWLEDGE.size
_PAIR_BYTES: Final = _ACKNOWLEDGE_BYTES + FRAME_HEAD_BYTES
#: Bytes of an ``Acknowledge`` frame before its message: those of the frame and the consumer.
_ACKNOWLEDGE_HEAD_BYTES: Final = FRAME_HEAD_BYTES + _I64.size
_ACKNOWLEDGE_LENGTH: Final = _I32.pack(_ACKNOWLEDGE_BYTES - _I32.size)


class Frame(NamedTuple):
    """One received packet."""

    channel_id: int
    packet: Packet
    size_bytes: int
    """Size of the frame with its length field, as counted by credits and confirmation windows."""


class SendBatch(Packet):
    """``SessionSend`` frames of one channel that were received together, often only one. Made only by the decoder."""

    __slots__ = ("held_bytes", "sends")

    TYPE: ClassVar[int] = SessionSend.TYPE

    sends: Sends
    held_bytes: int
    """Bytes that ``sends`` keeps: those of the whole read."""


class ConfirmBatch(Packet):
    """``NullResponse`` frames of one channel that were received together, often only one. Made only by the decoder."""

    __slots__ = ("correlation_ids",)

    TYPE: ClassVar[int] = NullResponse.TYPE

    correlation_ids: list[int]


class CommitBatch(Packet):
    """Pairs of an ``Acknowledge`` of one consumer and the ``Commit`` of its transaction, of one channel, that were
    received together: a client that acknowledges message by message sends nothing else. Made only by the decoder.
    """

    __slots__ = ("consumer_id", "message_ids")

    TYPE: ClassVar[int] = Commit.TYPE

    consumer_id: int
    message_ids: list[int]
    """The message of each acknowledgement, which stands for all deliveries up to it."""


class AcknowledgeBatch(Packet):
    """``Acknowledge`` frames of one consumer that were received together and want no response. Made only by the
    decoder, of two frames or more.
    """

    __slots__ = ("consumer_id", "message_ids")

    TYPE: ClassVar[int] = Acknowledge.TYPE

    consumer_id: int
    message_ids: list[int]
    """The message of each, which stands for all deliveries up to it."""


#: ``Frame(...)`` and ``SendBatch()`` without the Python-level call.
_frame: Callable[[tuple[int, Packet, int]], Frame] = partial(tuple.__new__, Frame)
_send_batch: Callable[[], SendBatch] = partial(object.__new__, SendBatch)
_confirm_batch: Callable[[], ConfirmBatch] = partial(object.__new__, ConfirmBatch)
_commit_batch: Callable[[], CommitBatch] = partial(object.__new__, CommitBatch)
_acknowledge_batch: Callable[[], AcknowledgeBatch] = partial(object.__new__, AcknowledgeBatch)


def _sends_at(data: bytes, offset: int, limit_bytes: int, count_max: int) -> tuple[SendBatch, int, int] | None:
    """The batch of sends at an offset, their number, and the offset after them; None: the first is decoded alone."""
    sends = split_sends(data, offset, limit_bytes, count_max)
    if sends is None:
        return None
    batch = _send_batch()
    batch.sends, batch.held_bytes = sends, len(data)
    return batch, sends.count, sends.end


def _confirms_at(data: bytes, offset: int, count_max: int) -> tuple[ConfirmBatch, int, int] | None:
    """The batch of responses with correlation ids at an offset; the result is that of ``_sends_at``."""
    ids = split_confirms(data, offset, count_max)
    if not ids:
        return None
    batch = _confirm_batch()
    batch.correlation_ids = ids
    return batch, len(ids), offset + len(ids) * _NULL_RESPONSE.size


def _commits_at(data: bytes, offset: int, count_max: int) -> tuple[CommitBatch, int, int] | None:
    """The batch of acknowledgements with a commit each at an offset; the result is that of ``_sends_at``."""
    if offset + _PAIR_BYTES > len(data) or data[offset + _ACKNOWLEDGE_BYTES + 4] != _TYPE_COMMIT:
        return None
    consumer_id, ids = split_commits(data, offset, count_max)
    if not ids:
        return None
    batch = _commit_batch()
    batch.consumer_id, batch.message_ids = consumer_id, ids
    return batch, len(ids), offset + len(ids) * _PAIR_BYTES


def _acknowledges_at(data: bytes, offset: int, count_max: int) -> tuple[AcknowledgeBatch, int, int] | None:
    """The batch of acknowledgements at an offset that want no response; the result is that of ``_sends_at``."""
    head = data[offset : offset + _ACKNOWLEDGE_HEAD_BYTES]
    if not data.startswith(head, offset + _ACKNOWLEDGE_BYTES) or head[:4] != _ACKNOWLEDGE_LENGTH:
        return None
    ids: list[int] = []
    end, available = offset + _ACKNOWLEDGE_BYTES, len(data)
    while len(ids) < count_max and end <= available and data.startswith(head, offset) and not data[end - 1]:
        ids += _I64.unpack_from(data, offset + _ACKNOWLEDGE_HEAD_BYTES)
        offset, end = end, end + _ACKNOWLEDGE_BYTES
    if len(ids) < 2:
        return None
    batch = _acknowledge_batch()
    (batch.consumer_id,) = _I64.unpack_from(head, FRAME_HEAD_BYTES)
    batch.message_ids = ids
    return batch, len(ids), offset


def encode(packet: Packet, channel_id: int, version: int = VERSION) -> bytes:
    """The frame of a packet for a peer of ``version``.

    Raises:
        LocalProtocolError: the value of a field does not fit its encoding.
    """
    writer = Writer()
    try:
        packet.write_body(writer, version)
        body = writer.getvalue()
        return _HEAD.pack(len(body) + LENGTH_MIN, packet.TYPE, channel_id) + body
    except (struct.error, AttributeError, TypeError, ValueError) as error:
        raise LocalProtocolError(f"{type(packet).__name__} for channel {channel_id}: {error}") from error


def encode_receive(message: Message, channel_id: int, consumer_id: int, delivery_count: int) -> bytes:
    """The frame of a ``ReceiveMessage``."""
    return receives([message.encoded], [delivery_count], channel_id, consumer_id)


def encode_null_response(channel_id: int, correlation_id: int = -1, version: int = VERSION) -> bytes:
    """The frame of a ``NullResponse``."""
    if version < 130:
        return _HEAD.pack(9, _TYPE_NULL_RESPONSE, channel_id)
    return _NULL_RESPONSE.pack(17, _TYPE_NULL_RESPONSE, channel_id, correlation_id)


def encode_send(
    message: Message,
    channel_id: int,
    requires_response: bool = False,
    correlation_id: int = 0,
    sender_id: int = -1,
    version: int = VERSION,
) -> bytes:
    """The frame of a ``SessionSend``."""
    encoded = message.encoded
    if version < 134:
        return encode(SessionSend(message, requires_response, correlation_id, sender_id), channel_id, version)
    return b"".join(
        (
            _HEAD.pack(len(encoded) + 22, _TYPE_SEND, channel_id),
            encoded,
            _ENCODED_SEND_TAIL.pack(-1 if requires_response else 0, correlation_id, sender_id),
        )
    )


def _decode_send(data: bytes, start: int, end: int, version: int) -> Packet:
    if version >= 134:
        tail = end - 13
        if tail < start:
            raise RemoteProtocolError(f"{end - start} bytes are too few for a message")
        requires_response, correlation_id, sender_id = _SEND_TAIL.unpack_from(data, tail)
        return SessionSend(Message.decode(data, start, tail), requires_response, correlation_id, sender_id)
    return SessionSend.read_body(Reader(data, start, end), version)


def _decode_receive(data: bytes, start: int, end: int, version: int) -> Packet:
    tail = end - 12
    if tail < start:
        raise RemoteProtocolError(f"{end - start} bytes are too few for a message")
    consumer_id, delivery_count = _RECEIVE_TAIL.unpack_from(data, tail)
    return ReceiveMessage(Message.decode(data, start, tail, trusted=True), consumer_id, delivery_count)


def _decode_acknowledge(data: bytes, start: int, end: int, version: int) -> Packet:
    if end - start < 17:
        raise RemoteProtocolError(f"{end - start} bytes of 17")
    return Acknowledge(*_ACKNOWLEDGE.unpack_from(data, start))


def _decode_individual_acknowledge(data: bytes, start: int, end: int, version: int) -> Packet:
    if end - start < 17:
        raise RemoteProtocolError(f"{end - start} bytes of 17")
    return IndividualAcknowledge(*_ACKNOWLEDGE.unpack_from(data, start))


def _decode_flow_token(data: bytes, start: int, end: int, version: int) -> Packet:
    if end - start < 12:
        raise RemoteProtocolError(f"{end - start} bytes of 12")
    return FlowToken(*_FLOW_TOKEN.unpack_from(data, start))


def _decode_correlated(
    packet_type: type[NullResponse] | type[Commit], data: bytes, start: int, end: int, version: int
) -> Packet:
    if start == end:
        return packet_type()
    if end - start < 8:
        raise RemoteProtocolError(f"{end - start} bytes of 8")
    return packet_type(_I64.unpack_from(data, start)[0])


def _decode_generic(packet_type: type[Packet], data: bytes, start: int, end: int, version: int) -> Packet:
    # A separate slice, so that offsets in errors count from the start of the frame.
    return packet_type.read_body(Reader(data[start - FRAME_HEAD_BYTES : end], FRAME_HEAD_BYTES), version)


_Decode = Callable[[bytes, int, int, int], Packet]
_DECODERS: Final[dict[int, _Decode]] = {
    **{number: partial(_decode_generic, packet_type) for number, packet_type in PACKET_TYPES.items()},
    SessionSend.TYPE: _decode_send,
    ReceiveMessage.TYPE: _decode_receive,
    Acknowledge.TYPE: _decode_acknowledge,
    IndividualAcknowledge.TYPE: _decode_individual_acknowledge,
    FlowToken.TYPE: _decode_flow_token,
    NullResponse.TYPE: partial(_decode_correlated, NullResponse),
    Commit.TYPE: partial(_decode_correlated, Commit),
}


#: Costs of frequent packets, counted towards ``turn_cost_max``; all others cost ``FRAME_COST``.
_COSTS: Final = dict.fromkeys((SessionSend.TYPE, Acknowledge.TYPE, IndividualAcknowledge.TYPE, FlowToken.TYPE), 1)
#: Types of the packets that a side sends last before its bytes are sealed, if they are: a call returns no packet after
#: one of these.
_BEFORE_SEALED: Final = (ClusterProof.TYPE, ClusterAccept.TYPE)
_COSTS.update(dict.fromkeys(_BEFORE_SEALED, _UNLIMITED))


class FrameDecoder:
    """Splits the bytes of one direction of a connection into frames."""

    __slots__ = (
        "_backlog_start",
        "_consumed_bytes",
        "_error",
        "_expects_magic",
        "_opener",
        "_pending",
        "_skipped",
        "_wanted_bytes",
        "backlog",
        "can_refuse",
        "frame_limit_bytes",
        "groups_acknowledges",
        "groups_confirms",
        "groups_sends",
        "turn_cost_max",
        "version",
    )

    def __init__(self, role: Literal["server", "client"] = "server", limit_bytes: int | None = None) -> None:
        """
        Args:
            role: Role of this side; a server skips the client's magic if the stream begins with it.
            limit_bytes: First value of ``frame_limit_bytes``; by default the limit before login for
                a server and the one within a session for a client.
        """
        self.version = VERSION
        """Channel version; set once the version of the peer is known, valid from the next ``receive_data``."""
        if limit_bytes is None:
            limit_bytes = FRAME_BYTES_BEFORE_LOGIN_MAX if role == "server" else FRAME_BYTES_MAX
        self.frame_limit_bytes = limit_bytes
        """Largest frame accepted, with its length field; raised after login, valid from the next ``receive_data``."""
        self.groups_sends = False
        """Whether ``SessionSend`` frames are returned as ``SendBatch``, from channel version 134 on."""
        self.groups_acknowledges = False
        """Whether acknowledgements that are followed by a commit each are returned as ``CommitBatch``, and neighbours
        that want no response as ``AcknowledgeBatch``, from channel version 134 on."""
        self.groups_confirms = False
        """Whether ``NullResponse`` frames with correlation ids are returned as ``ConfirmBatch``."""
        self.can_refuse: Callable[[int], bool] | None = None
        """Whether a frame of a channel that exceeds a limit fails alone; None: such a frame ends the connection."""
        self.turn_cost_max = _UNLIMITED
        """Maximum cost of the packets that one call returns: that of ``_COSTS``, and 1 for each message, or pair of an
        acknowledgement and a commit, of a batch."""
        self.backlog = b""
        """Input that is not decoded yet because ``turn_cost_max`` was reached; the next ``receive_data``, with or
        without further input, continues with it."""
        self._backlog_start = 0
        self._pending = bytearray()
        self._wanted_bytes = 0
        self._consumed_bytes = 0
        self._expects_magic = role == "server"
        self._error: RemoteProtocolError | None = None
        self._opener: Opener | None = None
        self._skipped: SkippedFrame | None = None
        """The frame of which the next input is the rest."""

    @property
    def pending_bytes(self) -> int:
        """Number of buffered bytes of an incomplete frame."""
        return len(self._pending)

    def open_with(self, opener: Opener) -> None:
        """The input after the last returned packet is sealed. To be called while that is handled, at a ``ClusterProof``
        or ``ClusterAccept``.

        Raises:
            ClusterSecurityError: as ``Opener.receive``, for input that has come already.
        """
        sealed = memoryview(self.backlog)[self._backlog_start :]
        self._consumed_bytes -= self._backlog_start
        self._opener = opener
        self._backlog_start = 0
        self.backlog = bytes(opener.receive(sealed))

    def close(self) -> None:
        """Release the incomplete frame, the undecoded input and the error, when the connection has ended."""
        self._pending = bytearray()
        self.backlog = b""
        self._error = None
        self._skipped = self.can_refuse = None

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """The packets that ``data`` completes, in order; the caller drops packets of unknown channels.

        Returns at most as many as ``turn_cost_max`` allows, and none after a packet that may be the last one before
        sealed bytes; ``backlog`` holds the rest.

        Raises:
            ClusterSecurityError: the input is sealed, and its code is wrong.
            RemoteProtocolError: the bytes violate the protocol. The connection must be closed; packets before
                the invalid one in the same call are dropped.
            LimitExceeded: a frame or something in it exceeds its limit.
            UnsupportedPacket: a frame of an unknown type, which ``packet_type`` holds.
        """
        if self._error is not None:
            raise self._error
        if self._opener is not None:
            data = self._opener.receive(data)  # type: ignore[arg-type]  # bytes or a view of bytes
        if self.backlog:
            return self._decode_backlog(data)
        pending = self._pending
        if pending:
            if len(data) < self._wanted_bytes - len(pending):
                pending += data
                return []
            # one copy of all bytes, so that the messages of all their frames are handled in one batch
            data = b"".join((pending, data))
            self._pending = bytearray()
        elif type(data) is not bytes:
            data = bytes(data)
        try:
            if self._expects_magic:
                return self._receive_magic(data)
            # a message that comes alone: without the loop over frames and what that needs
            if len(data) > FRAME_HEAD_BYTES and self.groups_sends and self._skipped is None and self.version >= 134:
                length, packet_type, channel_id = _HEAD.unpack_from(data)
                if packet_type == _TYPE_SEND and length + 4 == len(data):
                    sends = split_sends(data, 0, self.frame_limit_bytes, 1)
                    if sends is not None:
                        batch = _send_batch()
                        batch.sends, batch.held_bytes = sends, len(data)
                        self._consumed_bytes += length + 4
                        return [_frame((channel_id, batch, length + 4))]
            return self._decode(data, 0)
        except RemoteProtocolError as error:
            self._error = error
            self._pending = bytearray()
            raise

    def _decode_backlog(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        backlog, start, self.backlog = self.backlog, self._backlog_start, b""
        self._consumed_bytes -= start
        try:
            return self._decode(b"".join((backlog, data)) if data else backlog, start)
        except RemoteProtocolError as error:
            self._error = error
            raise

    def _receive_magic(self, data: bytes) -> list[Frame]:
        # As a length the magic would be over 1 GiB, so no frame starts with it.
        if data[:7] != MAGIC[: len(data)]:
            self._expects_magic = False
            return self._decode(data, 0)
        if len(data) < len(MAGIC):
            self._pending += data
            self._wanted_bytes = 0
            return []
        self._expects_magic = False
        return self._decode(data, len(MAGIC))

    def _decode(self, data: bytes, offset: int) -> list[Frame]:
        frames: list[Frame] = []
        append = frames.append
        unpack_head = _HEAD.unpack_from
        decoder_of = _DECODERS.get
        cost_of = _COSTS.get
        version = self.version
        limit = self.frame_limit_bytes
        grouped = self.groups_sends and version >= 134
        groups_acknowledges = self.groups_acknowledges and version >= 134
        available = len(data)
        packet_type = 0
        cost_left = self.turn_cost_max
        try:
            if self._skipped is not None:
                offset = self._skip(data, offset, frames)
            while available - offset >= FRAME_HEAD_BYTES:
                if cost_left <= 0:
                    self._consumed_bytes += offset
                    self.backlog, self._backlog_start = data, offset
                    return frames
                length, packet_type, channel_id = unpack_head(data, offset)
                size = length + 4
                if length < LENGTH_MIN or size > limit:
                    if not self._can_skip(data, offset, size, packet_type, channel_id):
                        break
                    self._skipped = SkippedFrame(data[offset : offset + KEPT_HEAD_BYTES], limit)
                    offset = self._skip(data, offset, frames)
                    cost_left -= FRAME_COST
                    continue
                end = offset + size
                if end > available:
                    break
                decode = decoder_of(packet_type)
                if decode is None:
                    raise UnsupportedPacket(f"type {packet_type}", packet_type=packet_type)
                batch: tuple[Packet, int, int] | None = None
                if grouped and packet_type == _TYPE_SEND:
                    batch = _sends_at(data, offset, limit, cost_left)
                elif packet_type == _TYPE_NULL_RESPONSE and self.groups_confirms:
                    batch = _confirms_at(data, offset, cost_left)
                elif packet_type == _TYPE_ACKNOWLEDGE and groups_acknowledges:
                    batch = _commits_at(data, offset, cost_left) or _acknowledges_at(data, offset, cost_left)
                if batch is not None:
                    packet, count, end = batch
                    append(_frame((channel_id, packet, end - offset)))
                    cost_left -= count
                else:
                    start = offset + FRAME_HEAD_BYTES
                    try:
                        packet = decode(data, start, end, version)
                    except LimitExceeded as error:
                        packet = self._refused(error, packet_type, channel_id, data, start, end)
                    append(_frame((channel_id, packet, size)))
                    cost_left -= cost_of(packet_type, FRAME_COST)
                offset = end
        except RemoteProtocolError as error:
            raise self._placed(error, offset, packet_type) from error
        self._consumed_bytes += offset
        if offset != available:
            if frames and frames[-1].packet.TYPE in _BEFORE_SEALED:
                self.backlog, self._backlog_start = data, offset
            else:
                self._keep(data, offset)
        return frames

    def _placed(self, error: RemoteProtocolError, offset: int, packet_type: int) -> RemoteProtocolError:
        """The error with the place in the stream at which the frame begins."""
        place = self._consumed_bytes + offset
        if isinstance(error, UnsupportedPacket):
            return UnsupportedPacket(f"packet at byte {place} of the stream: {error}", packet_type=packet_type)
        known = PACKET_TYPES.get(packet_type)
        name = known.__name__ if known is not None else "skipped frame"
        return type(error)(f"{name} at byte {place} of the stream: {error}")

    def _refused(
        self, error: LimitExceeded, packet_type: int, channel_id: int, data: bytes, start: int, end: int
    ) -> Packet:
        """The packet that stands for a frame in which something exceeds a limit. Raises the error if there is none."""
        if self.can_refuse is None or not self.can_refuse(channel_id):
            raise error
        return refused_packet(packet_type, data, start, end, self.version, error)

    def _can_skip(self, data: bytes, offset: int, size: int, packet_type: int, channel_id: int) -> bool:
        """Whether the frame at ``offset`` is above the limit, and enough of it is there to skip it."""
        return (
            self.can_refuse is not None
            and size > self.frame_limit_bytes
            and len(data) - offset >= KEPT_HEAD_BYTES
            and packet_type in PACKET_TYPES
            and self.can_refuse(channel_id)
        )

    def _skip(self, data: bytes, offset: int, frames: list[Frame]) -> int:
        """Skip bytes of the frame that is being skipped. Returns the offset after them."""
        skipped = self._skipped
        assert skipped is not None, "called for a skipped frame"
        offset = skipped.skip(data, offset)
        if skipped.whole:
            self._skipped = None
            frames.append(Frame(skipped.channel_id, skipped.packet(self.version), skipped.size_bytes))
        return offset

    def _keep(self, data: bytes, offset: int) -> None:
        """Buffer the incomplete frame at ``offset``, unless its length is invalid."""
        left = len(data) - offset
        self._wanted_bytes = FRAME_HEAD_BYTES
        if left >= 4:
            (length,) = _I32.unpack_from(data, offset)
            if length < LENGTH_MIN:
                raise RemoteProtocolError(f"frame of length {length} at byte {self._consumed_bytes} of the stream")
            if length + 4 <= self.frame_limit_bytes:
                self._wanted_bytes = length + 4
            elif self.can_refuse is not None and left < KEPT_HEAD_BYTES:
                # the head says whether the packet can be skipped
                self._wanted_bytes = KEPT_HEAD_BYTES
            else:
                raise LimitExceeded(
                    f"frame of {length + 4} bytes at byte {self._consumed_bytes} of the stream, "
                    f"limit {self.frame_limit_bytes}"
                )
        else:
            self._wanted_bytes = 4
        if left:
            # a slice of bytes would be one copy more: in a stream of large frames nearly all are cut
            self._pending += memoryview(data)[offset:]
