"""Frames of AMQP 0-9-1 (specification s. 4.2.3): type, channel, size, payload, end byte.

A frame is refused by its size before its payload is taken, so a decoder holds less than one frame beside the bytes of
the read.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.layout import Method, encode_method
from understudy.wire.amqp091.properties import encode_header

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
#: The header of AMQP 0-9, which is served as 0-9-1.
PROTOCOL_HEADER_0_9: Final = b"AMQP\x01\x01\x00\x09"
FRAME_END: Final = 0xCE
#: Bytes of a frame beside its payload; the negotiated maximum includes them.
OVERHEAD_BYTES: Final = 8
_HEAD = struct.Struct(">BHI")
_END: Final = bytes((FRAME_END,))


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

    __slots__ = ("_buffer", "payload_max")

    def __init__(self, frame_max: int) -> None:
        """``frame_max``: largest frame in bytes."""
        self._buffer = bytearray()
        self.payload_max = frame_max
        """Largest payload; clients count the overhead wrongly, so a payload may have the size of a frame."""

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept for the next call."""
        return len(self._buffer)

    def receive(self, data: bytes | memoryview) -> None:
        """Add received bytes."""
        self._buffer += data

    def next(self) -> Frame | None:
        """The next whole frame; None: more bytes are needed.

        Raises:
            Amqp091Error: FRAME_ERROR: a frame that is too large or has no end byte.
        """
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        kind, channel, size = _HEAD.unpack_from(buffer)
        if size > self.payload_max:
            raise Amqp091Error(ReplyCode.FRAME_ERROR, f"a frame with {size} bytes, limit {self.payload_max}")
        end = _HEAD.size + size
        if len(buffer) <= end:
            return None
        if buffer[end] != FRAME_END:
            raise Amqp091Error(ReplyCode.FRAME_ERROR, "a frame without its end byte")
        payload = bytes(buffer[_HEAD.size : end])
        del buffer[: end + 1]
        return Frame(kind, channel, payload)

    def clear(self) -> None:
        """Drop everything that was received."""
        self._buffer.clear()


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return b"".join((_HEAD.pack(kind, channel, len(payload)), payload, _END))


def method_frame(method: Method, channel: int) -> bytes:
    """The frame of a method."""
    return encode_frame(FrameType.METHOD, channel, encode_method(method))


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
