"""Frames of AMQP 0-9-1 (specification s. 4.2.3): type, channel, size, payload, end byte.

A frame is refused by its size before its payload is taken, so a decoder holds less than one frame beside the bytes of
the read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.layout import Method, encode_method
from understudy.wire.amqp091.properties import encode_header

T = TypeVar("T")

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
#: The header of AMQP 0-9, which is served as 0-9-1.
PROTOCOL_HEADER_0_9: Final = b"AMQP\x01\x01\x00\x09"
FRAME_END: Final = 0xCE
#: Bytes of a frame beside its payload; the negotiated maximum includes them.
OVERHEAD_BYTES: Final = 8
#: Bytes of a header frame beside its property list.
HEADER_FRAME_BYTES: Final = OVERHEAD_BYTES + 12
_HEAD = struct.Struct(">BHI")
_END: Final = bytes((FRAME_END,))
#: Layout of a basic.ack frame: type, channel, size, class, method, delivery tag, multiple, end.
_ACK = struct.Struct(">BHIHHQ?B")
#: Layout of the frame of a method that settles deliveries: type, channel, size and class; method, delivery tag, bits,
#: end.
_SETTLEMENT = struct.Struct(">9sHQBB")
#: Size of the payload of such a frame, and its class.
_SETTLEMENT_HEAD: Final = struct.pack(">IH", _SETTLEMENT.size - OVERHEAD_BYTES, 60)
_SETTLEMENT_HEAD_OFFSET: Final = 3


class FrameType(IntEnum):
    """Types of frames."""

    METHOD = 1
    HEADER = 2
    BODY = 3
    HEARTBEAT = 8


class Frame(NamedTuple):
    """One frame."""

    type: int
    channel: int
    payload: bytes


#: A heartbeat of the broker.
HEARTBEAT: Final = _HEAD.pack(FrameType.HEARTBEAT, 0, 0) + _END


class FrameDecoder:
    """Cuts the bytes of a connection into frames."""

    __slots__ = ("data", "later", "offset", "payload_max")

    def __init__(self, frame_max: int) -> None:
        """``frame_max``: largest frame in bytes."""
        self.data = b""
        """Bytes that are cut into frames."""
        self.offset = 0
        """Offset in ``data`` of the next frame."""
        self.later = bytearray()
        """Bytes that came later; they are moved into ``data`` once a whole frame is there."""
        self.payload_max = frame_max
        """Largest payload; clients count the overhead wrongly, so a payload may have the size of a frame."""

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept for the next call."""
        return len(self.data) - self.offset + len(self.later)

    def receive(self, data: bytes | memoryview) -> None:
        """Add received bytes."""
        if self.offset == len(self.data) and not self.later:
            self.data, self.offset = bytes(data), 0
        else:
            self.later += data

    def more(self) -> int:
        """Have all bytes in ``data``, those that came later too. Returns how many are kept."""
        if self.later:
            self.data = b"".join((memoryview(self.data)[self.offset :], self.later))
            self.offset = 0
            self.later = bytearray()
        return len(self.data) - self.offset

    @property
    def next_channel(self) -> int:
        """Channel of the frame that comes next; 0 until its head has come."""
        head = self.data[self.offset : self.offset + 3]
        if len(head) == 3:
            return head[1] << 8 | head[2]
        head += self.later[: 3 - len(head)]
        return int.from_bytes(head[1:], "big") if len(head) == 3 else 0

    def method_frame(self, ids: bytes) -> bytes | None:
        """The whole frame that comes next, if it is one of this method; it stays.

        Args:
            ids: Encoded numbers of class and method.
        """
        data, start = self.data, self.offset
        begin = start + _HEAD.size
        if not data.startswith(ids, begin) or data[start] != FrameType.METHOD:
            return None
        end = begin + int.from_bytes(data[start + 3 : begin], "big") + 1
        return data[start:end] if end <= len(data) else None

    def settlements(self, settlings: Mapping[tuple[int, int], T], count_max: int) -> list[tuple[T, list[int]]]:
        """The whole frames that come next and settle one delivery each, on one channel; they stay.

        Args:
            settlings: Value for each frame that is meant, by its method (the number in class basic) and bits.
            count_max: Most frames.

        Returns:
            Delivery tags in the order of their frames, those of neighbours that do the same together.
        """
        data, start = self.data, self.offset
        if not data.startswith(_SETTLEMENT_HEAD, start + _SETTLEMENT_HEAD_OFFSET) or data[start] != FrameType.METHOD:
            return []
        found: list[tuple[T, list[int]]] = []
        first = data[start : start + _SETTLEMENT_HEAD_OFFSET + len(_SETTLEMENT_HEAD)]
        count = min((len(data) - start) // _SETTLEMENT.size, count_max)
        same: tuple[int, int] | None = None
        frames = memoryview(data)[start : start + count * _SETTLEMENT.size]
        for head, method, tag, bits, end in _SETTLEMENT.iter_unpack(frames):
            if head != first or end != FRAME_END:
                break
            if (method, bits) != same:
                same = method, bits
                settling = settlings.get(same)
                if settling is None:
                    break
                tags: list[int] = []
                found.append((settling, tags))
            tags.append(tag)
        return found

    def skip_settlements(self, count: int) -> None:
        """Take frames that ``settlements`` has found."""
        self.offset += count * _SETTLEMENT.size

    def next(self) -> Frame | None:
        """The next whole frame; None: more bytes are needed.

        Raises:
            Amqp091Error: FRAME_ERROR: a frame that is too large or has no end byte.
        """
        end = self._next_end()
        if end > len(self.data) and self.later:
            if end <= self.offset + self.held_bytes:
                self.more()
                end = self._next_end()
            elif self.offset < len(self.data):
                # the rest is moved once, not with each of the pieces that come
                self.later[:0] = memoryview(self.data)[self.offset :]
                self.data, self.offset = b"", 0
        data, start = self.data, self.offset
        if end > len(data):
            return None
        if data[end - 1] != FRAME_END:
            raise Amqp091Error(ReplyCode.FRAME_ERROR, "a frame without its end byte")
        kind, channel, _ = _HEAD.unpack_from(data, start)
        self.offset = end
        return Frame(kind, channel, data[start + _HEAD.size : end - 1])

    def _next_end(self) -> int:
        """Offset in ``data`` after the next frame, as far as its size is known.

        Raises:
            Amqp091Error: FRAME_ERROR: the frame is too large.
        """
        start = self.offset
        head = self.data[start : start + _HEAD.size]
        if len(head) < _HEAD.size:
            head += self.later[: _HEAD.size - len(head)]
        if len(head) < _HEAD.size:
            return start + OVERHEAD_BYTES
        size: int = _HEAD.unpack(head)[2]
        if size > self.payload_max:
            raise Amqp091Error(ReplyCode.FRAME_ERROR, f"a frame with {size} bytes, limit {self.payload_max}")
        return start + size + OVERHEAD_BYTES

    def clear(self) -> None:
        """Drop everything that was received."""
        self.data, self.offset = b"", 0
        self.later.clear()


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return b"".join((_HEAD.pack(kind, channel, len(payload)), payload, _END))


def method_frame(method: Method, channel: int) -> bytes:
    """The frame of a method."""
    return encode_frame(FrameType.METHOD, channel, encode_method(method))


def ack_frame(channel: int, tag: int, *, multiple: bool) -> bytes:
    """The frame of a basic.ack, which confirms publishes."""
    return _ACK.pack(FrameType.METHOD, channel, _ACK.size - OVERHEAD_BYTES, 60, 80, tag, multiple, FRAME_END)


def content_frames(method: Method, properties: bytes, body: bytes, channel: int, frame_max: int) -> bytes:
    """The frames of a method with a content.

    Args:
        method: Comes before the content.
        properties: Encoded property list.
        body: Whole body.
        channel: Number of the channel.
        frame_max: Largest frame of the connection in bytes.
    """
    parts = [
        method_frame(method, channel),
        encode_frame(FrameType.HEADER, channel, encode_header(len(body), properties)),
    ]
    step = frame_max - OVERHEAD_BYTES
    parts += [encode_frame(FrameType.BODY, channel, body[start : start + step]) for start in range(0, len(body), step)]
    return b"".join(parts)
