"""The content of one channel that is arriving: a method, its header, and its body in frames."""

from __future__ import annotations

from typing import NamedTuple

from understudy.limits import FRAME_BYTES_MAX
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import Frame, FrameType
from understudy.wire.amqp091.layout import Method, decode_method
from understudy.wire.amqp091.properties import decode_header


def method_of(frame: Frame) -> Method:
    """The method of a frame. Raises Amqp091Error: it is a frame of another type, or cannot be read."""
    if frame.type != FrameType.METHOD:
        raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, f"a frame of type {frame.type} on channel {frame.channel}")
    return decode_method(frame.payload)


class Content(NamedTuple):
    """A method with its content."""

    method: Method
    properties: bytes
    """Encoded property list."""
    body: bytes
    size_bytes: int
    """Size of the body, also of one that was too large to be kept."""

    @property
    def skipped(self) -> bool:
        """Whether the body was too large and is not kept."""
        return self.size_bytes > FRAME_BYTES_MAX


class ContentState:
    """The frames of one channel that belong to a content."""

    def __init__(self) -> None:
        self._method: Method | None = None
        self._properties: bytes | None = None
        self._size_bytes = 0
        self._received_bytes = 0
        self._pieces: list[bytes] = []

    def receive(self, frame: Frame) -> Method | Content | None:
        """Take a frame of the channel.

        Returns:
            A method without a content, or a whole content; None: frames of a content follow.

        Raises:
            Amqp091Error: the frame cannot be expected, or cannot be read.
        """
        if frame.type == FrameType.HEADER:
            return self._header(frame.payload)
        if frame.type == FrameType.BODY:
            return self._body(frame.payload)
        method = method_of(frame)
        if self._method is not None:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a method between the frames of a content")
        if not method.has_content:
            return method
        self._method = method
        return None

    def _header(self, payload: bytes) -> Content | None:
        if self._method is None or self._properties is not None:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a content header without its method")
        self._size_bytes, self._properties = decode_header(payload)
        return self._whole()

    def _body(self, payload: bytes) -> Content | None:
        if self._properties is None:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a content body without its header")
        self._received_bytes += len(payload)
        if self._received_bytes > self._size_bytes:
            raise Amqp091Error(ReplyCode.FRAME_ERROR, "a content body that is longer than its header says")
        if self._size_bytes <= FRAME_BYTES_MAX:
            self._pieces.append(payload)
        return self._whole()

    def _whole(self) -> Content | None:
        if self._received_bytes < self._size_bytes or self._method is None or self._properties is None:
            return None
        content = Content(self._method, self._properties, b"".join(self._pieces), self._size_bytes)
        self.clear()
        return content

    def clear(self) -> None:
        """Drop the content that is arriving."""
        self._method = self._properties = None
        self._size_bytes = self._received_bytes = 0
        self._pieces = []
