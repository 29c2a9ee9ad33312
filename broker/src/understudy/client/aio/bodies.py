"""Bodies of the asyncio client: what an application sends from, and how it reads what it received.

Part of ``aio``. Not here: pieces and credits (``large_sends``, ``body_stream``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import BinaryIO, Final, cast

from understudy.client.core.body_stream import BodyStream
from understudy.client.core.consumer import ReceivedMessage
from understudy.client.core.large_sends import (
    BodySource,
    BytesSource,
    FileSource,
    IterableSource,
    LargeBodySend,
    Readable,
    compressed_header,
    small_if_compressed,
    without_body,
)
from understudy.client.core.options import ClientOptions
from understudy.errors import IllegalState, LimitExceeded
from understudy.limits import FRAME_BYTES_MAX
from understudy.message import Message
from understudy.properties import PropertyValue

Body = Message | bytes | str | Mapping[str, PropertyValue] | os.PathLike[str] | Readable | Iterable[bytes] | None
"""A whole message; bytes, text or a map to make one of; or where the bytes of a large one come from:
the path of a file, an open binary file, or anything that gives bytes when iterated."""

#: Most bytes of a body that ``read_body`` puts together, unless told otherwise.
READ_BODY_BYTES_MAX: Final = FRAME_BYTES_MAX
_CHUNK_BYTES: Final = 256 * 1024


def is_stream(body: object) -> bool:
    """Whether a body is read while it is sent."""
    if body is None or isinstance(body, (Message, bytes, str, Mapping)):
        return False
    return isinstance(body, (os.PathLike, Iterable)) or hasattr(body, "read")


def open_source(body: object) -> tuple[BodySource, BinaryIO | None]:
    """Where the bytes of a stream come from, and the file to be closed afterwards if it was opened here.

    Raises:
        OSError: the file cannot be opened.
    """
    if isinstance(body, os.PathLike):
        file = open(body, "rb")  # noqa: SIM115  # closed when the send is through
        return FileSource(file), file
    if hasattr(body, "read"):
        return FileSource(cast(Readable, body)), None
    return IterableSource(cast("Iterable[bytes]", body)), None


def large_send(header: Message, source: BodySource, options: ClientOptions) -> tuple[Message, LargeBodySend | None]:
    """A message whose body comes from ``source``: its header and its pieces, or an ordinary message
    if compression makes it small.

    Raises:
        IllegalState: its properties alone are larger than a piece may be.
    """
    piece_bytes = options.min_large_message_size
    if len(header.encoded) >= piece_bytes:
        raise IllegalState(
            f"properties and address of {len(header.encoded)} bytes in a large message",
            hint=f"they must be smaller than minLargeMessageSize, {piece_bytes}",
        )
    compress = options.compress_large_message
    body = LargeBodySend(source, piece_bytes, compress=compress, level=options.compression_level)
    if not compress:
        return header, body
    small = small_if_compressed(header, body)
    return (small, None) if small is not None else (compressed_header(header), body)


def split_if_large(message: Message, options: ClientOptions) -> tuple[Message, LargeBodySend | None]:
    """A whole message, as a large one if its body is larger than minLargeMessageSize (artemis-core s. 6.2)."""
    if message.header_offset <= options.min_large_message_size:
        return message, None
    return large_send(without_body(message), BytesSource(message.body), options)


class BodyReader:
    """A body being read; iterate over it, or ``read``."""

    def __init__(self, message: ReceivedMessage) -> None:
        self._stream: BodyStream | None = message.stream
        self._rest = b"" if self._stream is not None else message.message.body
        self._waiter: asyncio.Future[None] | None = None

    async def read(self, length: int = -1) -> bytes:
        """At most ``length`` of the next bytes, or everything that is left; empty at the end.

        Raises:
            ConnectionLost: a failover came first; the message is delivered again.
            IllegalState: its consumer has gone on to the next message.
        """
        if length < 0:
            return b"".join([piece async for piece in self])
        stream = self._stream
        if stream is None:
            data, self._rest = self._rest[:length], self._rest[length:]
            return data
        while True:
            taken = stream.take(length) if length else b""
            if taken is not None:
                return taken
            self._waiter = asyncio.get_running_loop().create_future()
            stream.on_change = self._wake
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read(_CHUNK_BYTES):
            yield data


class Received(ReceivedMessage):
    """A received message. A large one (``stream`` is not None) has its body read, once, by one of
    ``read_body``, ``save_to`` or ``body_stream``, before its consumer is asked for the next message.
    """

    __slots__ = ("_reader",)

    @property
    def body_stream(self) -> BodyReader:
        """The body, to be read piece by piece with bounded memory."""
        reader: BodyReader | None = getattr(self, "_reader", None)
        if reader is None:
            reader = self._reader = BodyReader(self)
        return reader

    async def read_body(self, limit_bytes: int = READ_BODY_BYTES_MAX) -> bytes:
        """The whole body.

        Raises:
            LimitExceeded: it is larger than ``limit_bytes``; what was read of it is dropped.
            and what ``BodyReader.read`` raises.
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
        """Write the body to a new file, or over an old one. Returns its bytes.

        Args:
            path: Of the file.
            progress: Told the bytes written so far.
        """
        size_bytes = 0
        with open(path, "wb") as file:
            async for piece in self.body_stream:
                file.write(piece)
                size_bytes += len(piece)
                if progress is not None:
                    progress(size_bytes)
        return size_bytes
