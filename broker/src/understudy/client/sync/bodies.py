"""Received messages of the blocking client. Part of ``sync``."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

from understudy.client.aio import bodies as aio_bodies
from understudy.client.aio.bodies import READ_BODY_BYTES_MAX
from understudy.client.core.body_stream import BodyStream
from understudy.client.core.consumer import ConsumerState, MakeReceived, ReceivedMessage
from understudy.errors import LimitExceeded
from understudy.message import Message

T = TypeVar("T")
_CHUNK_BYTES = 1024 * 1024


class Runner(Protocol):
    """The client's thread."""

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class BodyReader:
    """The body of a received message as a stream of bytes, read by ``read`` or by iteration."""

    def __init__(self, thread: Runner, reader: aio_bodies.BodyReader) -> None:
        self._thread = thread
        self._reader = reader

    def read(self, length: int = -1) -> bytes:
        """At most ``length`` of the next bytes, or with -1 all that are left; empty at the end. Blocks.

        Raises:
            ConnectionLost: the connection failed first; the message is delivered again.
            IllegalState: its consumer has gone on to the next message.
        """
        return self._thread.run(self._reader.read(length))

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read(_CHUNK_BYTES):
            yield data


class Received(ReceivedMessage):
    """A received message of the blocking client."""

    __slots__ = ("_reader", "_thread")

    _thread: Runner

    @property
    def body_stream(self) -> BodyReader:
        """The body, to be read piece by piece with bounded memory."""
        reader: BodyReader | None = getattr(self, "_reader", None)
        if reader is None:
            reader = self._reader = BodyReader(self._thread, aio_bodies.BodyReader(self))
        return reader

    def read_body(self, limit_bytes: int = READ_BODY_BYTES_MAX) -> bytes:
        """The whole body.

        Raises:
            LimitExceeded: it is larger than ``limit_bytes``.
            ConnectionLost: the connection failed first; the message is delivered again.
        """
        pieces: list[bytes] = []
        size_bytes = 0
        for piece in self.body_stream:
            size_bytes += len(piece)
            if size_bytes > limit_bytes:
                raise LimitExceeded(f"message {self.message_id} has a body of more than {limit_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def save_to(self, path: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> int:
        """Write the body to a file; returns its size in bytes.

        Args:
            progress: Called with the number of bytes written so far after each chunk of 1 MiB.

        Raises:
            OSError: the file cannot be written.
            ConnectionLost: the connection failed first; the message is delivered again.
        """
        size_bytes = 0
        with open(path, "wb") as file:
            for piece in self.body_stream:
                file.write(piece)
                size_bytes += len(piece)
                if progress is not None:
                    progress(size_bytes)
        return size_bytes


def maker(thread: Runner) -> MakeReceived:
    """Makes received messages whose bodies are read on that thread."""

    def make(
        message: Message, delivery_count: int, size_bytes: int, consumer: ConsumerState, stream: BodyStream | None
    ) -> Received:
        received = Received(message, delivery_count, size_bytes, consumer, stream)
        received._thread = thread
        return received

    return make
