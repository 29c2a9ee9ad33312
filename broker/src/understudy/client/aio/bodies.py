"""Received messages of the asyncio client, and how their bodies are read.

Not here: pieces and credits (``core.body_stream``).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from understudy.client.aio.link import Link, Signal, exclusive
from understudy.client.core.connection.tracing import Tracing
from understudy.client.core.consumer.backoff import Backoff, delay_after
from understudy.client.core.consumer.body_stream import BodyStream
from understudy.client.core.consumer.content import Content
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.client.core.session.outcomes import modification, rejection
from understudy.client.core.session.settlements import Settlements
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

    __slots__ = ("_link", "_reader", "_settlements")

    def _arrives_by(self, link: Link, settlements: Settlements) -> None:
        """Remember the connection that it came on, and what ends its delivery. Called by the consumer."""
        self._link = link
        self._settlements = settlements

    async def ack(self) -> bool:
        """Acknowledge the message as the session's mode says: AUTO and DUPS_OK, now instead of with the next one;
        CLIENT, everything that the session has received; INDIVIDUAL, this message; TRANSACTED, by the commit.

        Returns:
            True once the broker has confirmed it; at once in modes without a confirmation. False if the message was
            received before a failover, or its consumer or connection was lost before the answer: expect it again.

        Raises:
            IllegalState: it was given back before. A second acknowledgement only asks whether the first one is
                confirmed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: returns False, since the broker delivers the message again.

        Concurrency: any task may call it.

        Source: artemis-core s. 6.1 and 6.4.
        """
        return await self._ask(lambda waiter: self._settlements.acknowledge(self, waiter))

    async def reject(self, *, requeue: bool = True, delay_s: float | None = None) -> bool:
        """Give the message back, its delivery counted, or send it to the dead letter address of its queue. Other
        messages are not touched. In a transaction it takes effect with the commit.

        A broker of another kind can only count and give back all messages in work of the session.

        Args:
            requeue: Back to its place in the queue, where ``max-delivery-attempts`` applies; False for the dead letter
                address at once.
            delay_s: Seconds until it is delivered again; None for the redelivery delay of the address settings.

        Returns:
            True once the broker has confirmed it. False if the message was received before a failover, or its consumer
            or connection was lost before the answer: expect it again.

        Raises:
            IllegalState: the message was acknowledged or given back before, also by asking for the next one; the
                session's mode is PRE_ACKNOWLEDGE; or the broker is of another kind and cannot do it.
            ValueError: a negative delay, or a delay without ``requeue``.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: returns False, since the broker delivers the message again.

        Concurrency: any task may call it.
        """
        outcome = rejection(requeue=requeue, delay_s=delay_s)
        return await self._ask(lambda waiter: self._settlements.settle(self, outcome, waiter))

    async def modified(
        self, *, delivery_failed: bool = False, undeliverable_here: bool = False, delay_s: float | None = None
    ) -> bool:
        """Give the message back with the choices of the outcome *modified* of AMQP 1.0; Understudy only.

        Args:
            delivery_failed: Count the delivery.
            undeliverable_here: Do not deliver the message to this consumer again.
            delay_s: Seconds until it is delivered again; None for at once, or if the delivery counts for the redelivery
                delay of the address settings.

        Returns:
            As of ``reject``.

        Raises:
            IllegalState, ValueError, CallTimedOut: as of ``reject``.

        Failover and concurrency: as of ``reject``.
        """
        outcome = modification(delivery_failed=delivery_failed, undeliverable_here=undeliverable_here, delay_s=delay_s)
        return await self._ask(lambda waiter: self._settlements.settle(self, outcome, waiter))

    def process(self, *, dead_letter_after: int | None = None, delay_s: float | Backoff | None = None) -> Processing:
        """A block that works on the message: its end acknowledges, an error that leaves it gives the message back with
        its delivery counted. A block that has called ``ack``, ``reject`` or ``modified`` itself has ended the delivery.

        Args:
            dead_letter_after: Number of deliveries after which an error sends the message to the dead letter address;
                None for the ``max-delivery-attempts`` of the address settings alone.
            delay_s: Seconds until a message that was given back is delivered again; a ``Backoff`` for delays that grow
                with each delivery.

        Returns:
            The block, for ``async with``.

        Raises:
            IllegalState: the session is transacted (use ``Session.transaction``) or acknowledges early; or one of the
                arguments is given and the broker is of another kind.

        Failover: as of ``ack`` and ``reject``: the broker delivers the message again.

        Concurrency: each message is for one task; tasks that work on messages of one session use the mode "individual".
        """
        self._settlements.check_processing(self, plain=dead_letter_after is None and delay_s is None)
        return Processing(self, self._link.tracing, dead_letter_after, delay_s)

    async def read_content(self, limit_bytes: int = READ_BODY_BYTES_MAX) -> Content:
        """Read the whole body into memory if that has not come with the message; then ``content`` and ``text`` have it.

        Args:
            limit_bytes: Most bytes to put together.

        Returns:
            The content, as of ``content``.

        Raises:
            LimitExceeded, ConnectionLost, IllegalState, ObjectClosed, RemoteProtocolError: as of ``read_body``.

        Failover and concurrency: as of ``read_body``.
        """
        if self.stream is not None and self._whole is None:
            self.keep_whole(await self.read_body(limit_bytes))
        return self.content

    async def _ask(self, start: Callable[[Any], None]) -> bool:
        answer: bool = await self._link.ask(start)
        return answer

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


class Processing:
    """Work on one message in a block. Made by ``Received.process``."""

    def __init__(
        self, message: Received, tracing: Tracing, dead_letter_after: int | None, delay_s: float | Backoff | None
    ) -> None:
        self._message = message
        self._tracing = tracing
        self._dead_letter_after = dead_letter_after
        self._delay_s = delay_s
        self._span: AbstractContextManager[object] | None = None

    async def __aenter__(self) -> Received:
        self._span = self._tracing.processing(self._message, self._message.queue)
        self._span.__enter__()
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(kind, error, trace)
        message = self._message
        if message.settled:
            return
        if kind is None:
            await message.ack()
        elif self._dead_letter_after is not None and message.delivery_count >= self._dead_letter_after:
            await message.reject(requeue=False)
        else:
            await message.reject(delay_s=delay_after(self._delay_s, message.delivery_count))
