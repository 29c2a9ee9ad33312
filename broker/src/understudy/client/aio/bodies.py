"""Received messages of the asyncio client, and how their bodies are read.

Not here: pieces and credits (``core.body_stream``).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import Final

from understudy.client.aio.link import Link, Signal, exclusive
from understudy.client.core.body_stream import BodyStream
from understudy.client.core.consumer import ReceivedMessage
from understudy.errors import LimitExceeded
from understudy.limits import FRAME_BYTES_MAX

#: Most bytes of a body that ``read_body`` puts together, unless told otherwise.
READ_BODY_BYTES_MAX: Final = FRAME_BYTES_MAX
_CHUNK_BYTES: Final = 256 * 1024


class BodyReader:
    """The body of one received message as a stream of bytes, read once, by ``read`` or by iteration.

    Memory is bounded: the broker sends a piece only for credits, which go back as the application reads
    (artemis-core s. 6.3). Use it from one task at a time.
    """

    def __init__(self, message: ReceivedMessage, link: Link | None) -> None:
        self._stream: BodyStream | None = message.stream
        self._rest = b"" if self._stream is not None else message.message.body
        self._link = link

    async def read(self, length: int = -1) -> bytes:
        """Read the next bytes of the body, and wait until some have arrived.

        Args:
            length: Most bytes to return; -1 for all that are left.

        Returns:
            At most ``length`` bytes, fewer if fewer have arrived; empty at the end of the body.

        Raises:
            ConnectionLost: the connection failed before the body was complete.
            IllegalState: its consumer was asked for the next message, or its session rolled back.
            ObjectClosed: its consumer or session was closed.
            RemoteProtocolError: it is marked as compressed and is not.

        Failover: the rest of the body does not come; a waiting call raises ``ConnectionLost`` and the broker delivers
        the message again from its beginning.

        Concurrency: one task at a time. A call that is cancelled while it waits loses no bytes.
        """
        if length < 0:
            pieces: list[bytes] = []
            while data := await self.read(_CHUNK_BYTES):
                pieces.append(data)
            return b"".join(pieces)
        stream, link = self._stream, self._link
        if stream is None or link is None:
            data, self._rest = self._rest[:length], self._rest[length:]
            return data
        return await _Reading(stream, link).read(length)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read(_CHUNK_BYTES):
            yield data


class _Reading:
    """One wait for bytes of a body that is still arriving."""

    def __init__(self, stream: BodyStream, link: Link) -> None:
        self._stream = stream
        self._link = link

    @exclusive
    async def read(self, length: int) -> bytes:
        stream = self._stream
        while True:
            taken = stream.take(length) if length else b""
            if taken is not None:
                return taken
            arrived = Signal(self._link)
            stream.on_change = arrived.set
            await arrived.wait()


class Received(ReceivedMessage):
    """A received message. The body of a large one (``stream`` is not None) is read once, by one of ``read_body``,
    ``save_to`` and ``body_stream``, before its consumer is asked for the next message.
    """

    __slots__ = ("_link", "_reader")

    def _arrives_by(self, link: Link) -> None:
        """Remember the connection on which the rest of the body arrives. Called by the consumer."""
        self._link = link

    @property
    def body_stream(self) -> BodyReader:
        """The body as a stream of bytes, read piece by piece with bounded memory; the same object at every access.

        Failover and concurrency: as of ``BodyReader.read``.
        """
        reader: BodyReader | None = getattr(self, "_reader", None)
        if reader is None:
            reader = self._reader = BodyReader(self, getattr(self, "_link", None))
        return reader

    async def read_body(self, limit_bytes: int = READ_BODY_BYTES_MAX) -> bytes:
        """Read the whole body into memory, and wait until all of it has arrived.

        Args:
            limit_bytes: Most bytes to put together.

        Returns:
            The body, decompressed if it travelled compressed.

        Raises:
            LimitExceeded: it is larger than ``limit_bytes``; the part that was read is dropped.
            ConnectionLost: the connection failed before the body was complete.
            IllegalState: its consumer was asked for the next message, or its session rolled back.
            ObjectClosed: its consumer or session was closed.
            RemoteProtocolError: it is marked as compressed and is not.

        Failover: raises ``ConnectionLost``; the broker delivers the message again from its beginning.

        Concurrency: one task at a time for one message.
        """
        pieces: list[bytes] = []
        size_bytes = 0
        async for piece in self.body_stream:
            size_bytes += len(piece)
            if size_bytes > limit_bytes:
                raise LimitExceeded(f"message {self.message_id} has a body of more than {limit_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    async def save_to(self, path: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> int:
        """Write the body to a file while it arrives. A file of this name is overwritten.

        Args:
            path: Path of the file.
            progress: Called with the number of bytes written so far, after each piece of at most 256 KiB.

        Returns:
            The size of the body in bytes.

        Raises:
            OSError: the file cannot be written.
            ConnectionLost: the connection failed before the body was complete; the file is incomplete.
            IllegalState: its consumer was asked for the next message, or its session rolled back.
            ObjectClosed: its consumer or session was closed.
            RemoteProtocolError: it is marked as compressed and is not.

        Failover: raises ``ConnectionLost``; the broker delivers the message again from its beginning.

        Concurrency: one task at a time for one message. The file is written by the calling task.
        """
        size_bytes = 0
        with open(path, "wb") as file:
            async for piece in self.body_stream:
                file.write(piece)
                size_bytes += len(piece)
                if progress is not None:
                    progress(size_bytes)
        return size_bytes
