"""Frames of one channel to its client.

While a large message is delivered piece by piece, no other frame of the channel may come between its body frames; other
frames wait until its end.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.limits import OUTGOING_BYTES_MAX
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.wire.amqp091.frames import OVERHEAD_BYTES, FrameType, content_frames, encode_frame, method_frame
from understudy.wire.amqp091.layout import Method
from understudy.wire.amqp091.properties import encode_header


class ChannelOutput:
    """Sends the frames of one channel, in order."""

    __slots__ = ("_collected", "_link", "_send_collected", "_waiting", "_waiting_bytes", "number")

    def __init__(self, link: ConnectionLink, number: int) -> None:
        self._link = link
        self.number = number
        """Number of the channel."""
        self._waiting: list[bytes] | None = None
        """Frames that wait for the end of a large message; None: none is delivered."""
        self._waiting_bytes = 0
        self._collected: list[bytes] = []
        """Pieces of a body whose message is sent when all of them are there."""
        self._send_collected: Callable[[bytes], int] | None = None
        """Sends that message with its body; None: pieces are sent as they come."""

    @property
    def in_large(self) -> bool:
        """Whether a large message is begun and not at its end."""
        return self._waiting is not None

    def move(self, link: ConnectionLink) -> None:
        """Use another connection; frames that wait for the end of a large message are dropped."""
        self._link = link
        self._waiting, self._waiting_bytes = None, 0
        self._collected, self._send_collected = [], None

    def send(self, method: Method) -> None:
        """Send a method without a content."""
        self.send_frames(method_frame(method, self.number))

    def send_content(self, method: Method, properties: bytes, body: bytes) -> int:
        """Send a method with its content. Returns the bytes of the frames."""
        frames = content_frames(method, properties, body, self.number, self._link.peer.frame_max)
        self.send_frames(frames)
        return len(frames)

    def send_frames(self, frames: bytes) -> None:
        """Send whole frames of the channel."""
        if self._waiting is None:
            self._link.send_bytes(frames)
            return
        self._waiting.append(frames)
        self._waiting_bytes += len(frames)
        if self._waiting_bytes > OUTGOING_BYTES_MAX:
            self._waiting.clear()
            self._link.kill("the client does not read a large message, and too much waits for its end")

    def begin_large(self, method: Method, properties: bytes, body_bytes: int) -> int:
        """Send a method and the header of a content whose body comes in pieces. Returns the bytes of the frames."""
        header = encode_frame(FrameType.HEADER, self.number, encode_header(body_bytes, properties))
        frames = method_frame(method, self.number) + header
        self._link.send_bytes(frames)
        self._waiting = []
        return len(frames)

    def collect_large(self, send: Callable[[bytes], int]) -> None:
        """Keep the pieces of a body, which come next.

        Args:
            send: Called with the whole body; sends the message and returns the bytes of its frames.
        """
        self._waiting, self._send_collected = [], send

    def send_piece(self, piece: bytes, *, last: bool) -> int:
        """Send the next piece of the body. Returns the bytes of the frames."""
        if self._send_collected is not None:
            return self._collect(piece, self._send_collected, last=last)
        step = self._link.peer.frame_max - OVERHEAD_BYTES
        frames = b"".join(
            encode_frame(FrameType.BODY, self.number, piece[start : start + step])
            for start in range(0, len(piece), step)
        )
        self._link.send_bytes(frames)
        if last:
            self._end_large()
        return len(frames)

    def _collect(self, piece: bytes, send: Callable[[bytes], int], *, last: bool) -> int:
        self._collected.append(piece)
        if not last:
            return 0
        body, self._collected, self._send_collected = b"".join(self._collected), [], None
        waiting, self._waiting = self._waiting, None
        sent_bytes = send(body)
        self._waiting = waiting
        self._end_large()
        return sent_bytes

    def _end_large(self) -> None:
        """Send the frames that have waited for the end of a large message."""
        waiting, self._waiting = self._waiting or [], None
        self._waiting_bytes = 0
        for each in waiting:
            self._link.send_bytes(each)
