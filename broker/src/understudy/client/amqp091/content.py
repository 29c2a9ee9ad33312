"""The content of one channel that is arriving: a method, its header, and its body in frames."""

from __future__ import annotations

from typing import NamedTuple

from understudy.limits import FRAME_BYTES_MAX
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.layout import Method
from understudy.wire.amqp091.properties import decode_header


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

    @property
    def open(self) -> bool:
        """Whether a method waits for its content."""
        return self._method is not None

    def begin(self, method: Method) -> None:
        """A method with a content has come."""
        self._method = method

    def header(self, payload: bytes) -> Content | None:
        """The header has come. Returns the content if it has no body. Raises Amqp091Error."""
        if self._method is None or self._properties is not None:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a content header without its method")
        self._size_bytes, self._properties = decode_header(payload)
        return self._whole()

    def body(self, payload: bytes) -> Content | None:
        """A part of the body has come. Returns the content if it is the last one. Raises Amqp091Error."""
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
