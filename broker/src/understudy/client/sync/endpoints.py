"""Producers, consumers and browsers of the blocking client. Part of ``sync``."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, cast

from understudy.client import aio
from understudy.client.aio.bodies import Body
from understudy.client.core.consumer import ReceivedMessage
from understudy.client.core.large_sends import Readable
from understudy.client.sync.bodies import Received
from understudy.client.sync.thread import LoopThread
from understudy.errors import ObjectClosed
from understudy.message import Message
from understudy.properties import PropertyValue


class Producer:
    """Sends messages from any thread; their order is kept, also across failovers."""

    def __init__(self, thread: LoopThread, producer: aio.Producer) -> None:
        self._thread = thread
        self._producer = producer
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], asyncio.Future[None]], Future[None]]] = deque()
        self._scheduled = False

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def in_flight(self) -> int:
        """Number of sends without an outcome, those handed over to the client's thread included."""
        return self._producer.in_flight + len(self._waiting)

    def send(self, body: Body, **fields: Any) -> None:
        """Send and wait for the broker's confirmation; arguments as for ``send_nowait``.

        Raises:
            SendOutcomeUnknown: the connection was lost before the confirmation and could not be restored, or the
                message could not be sent again: ``duplicate_ids`` is off, or its body cannot be read a second time.
            AddressFull: the address is full and its policy is FAIL.
        """
        self._thread.run(self._producer.send(body, **fields))

    def send_nowait(
        self,
        body: Body,
        *,
        address: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        durable: bool = True,
        priority: int = 4,
        time_to_live_ms: int = 0,
        deliver_at_ms: int = 0,
        group_id: str | None = None,
        last_value_key: str | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> Future[None]:
        """Send without waiting; the future is done when the broker has confirmed (durable messages, see the URL's
        blockOnDurableSend), or else when the message is written. Errors of the call itself come with the future too.

        Args:
            body: A whole ``Message``; bytes, text or a map to make one of; or a stream (a path, an open binary file
                or an iterable of bytes), which is sent as a large message of bytes.
            address: For a producer without one.
            time_to_live_ms: Milliseconds until the message expires; 0 for never.
            deliver_at_ms: Epoch milliseconds before which it is not delivered; 0 for at once.
            group_id: Messages of one group are delivered to one consumer, in order. Replaces the URL's groupID.
            last_value_key: In a last-value queue the message replaces the one with the same key.
            duplicate_id: The broker drops a message whose id it knows; in a transaction the commit fails with
                ``DuplicateIdRejected``.
        """
        return self._send_soon(
            lambda: self._producer.send_nowait(
                body,
                address=address,
                properties=properties,
                durable=durable,
                priority=priority,
                time_to_live_ms=time_to_live_ms,
                deliver_at_ms=deliver_at_ms,
                group_id=group_id,
                last_value_key=last_value_key,
                duplicate_id=duplicate_id,
            )
        )

    def send_large_nowait(self, message: Message, body: Readable | Iterable[bytes]) -> Future[None]:
        """Send a message whose body is read from a stream; the future as of ``send_nowait``.

        Args:
            message: Everything but the body; a body in it is not sent.
            body: An open binary file or an iterable of bytes, read in pieces while it is sent.
        """
        return self._send_soon(lambda: self._producer.send_large_nowait(message, body))

    def _send_soon(self, send: Callable[[], asyncio.Future[None]]) -> Future[None]:
        future: Future[None] = Future()
        with self._lock:
            self._waiting.append((send, future))
            idle, self._scheduled = not self._scheduled, True
        if idle:
            self._thread.loop.call_soon_threadsafe(self._send_waiting)
        return future

    def _send_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._scheduled = False
                    return
                send, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    send().add_done_callback(_outcome_to(future))
                except Exception as error:
                    future.set_exception(error)

    def wait_sendable(self) -> None:
        """Wait until fewer sends than the window are open, the socket takes bytes and producerMaxRate allows one more.

        Raises:
            ObjectClosed: the producer is closed.
        """
        self._thread.run(self._producer.wait_sendable())

    def close(self) -> None:
        """Accept no more messages; those already sent are still carried out."""
        self._thread.call(self._producer.close)


def _outcome_to(future: Future[None]) -> Callable[[asyncio.Future[None]], None]:
    def done(sent: asyncio.Future[None]) -> None:
        error = ObjectClosed("the send was cancelled") if sent.cancelled() else sent.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(None)

    return done


class Consumer:
    """Receives messages, one by one or by iteration, which ends when the consumer is closed."""

    def __init__(self, thread: LoopThread, consumer: aio.Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Received]:
        return self

    def __next__(self) -> Received:
        try:
            received = self.receive()
        except ObjectClosed:
            received = None
        if received is None:
            raise StopIteration
        return received

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._consumer.queue

    @property
    def buffered(self) -> int:
        """Number of messages that ``take`` would return without waiting."""
        return self._consumer.buffered

    def take(self) -> Received | None:
        """The next message that has arrived, or None; does not ask the broker and obeys consumerMaxRate."""
        return cast("Received | None", self._thread.call(self._consumer.take))

    def receive(self, timeout_s: float | None = None) -> Received | None:
        """The next message; None when none came within ``timeout_s`` seconds. None as the timeout: no limit.

        Waits through failovers.

        Raises:
            ObjectClosed: the consumer was closed.
            QueueNotFound: its queue was deleted.
            LimitExceeded: a compressed message that is too large to be assembled was skipped.
        """
        return cast("Received | None", self._thread.run(self._consumer.receive(timeout_s)))

    def receive_nowait(self) -> Received | None:
        """The next message, or None if the broker says that the queue has none for this consumer."""
        return cast("Received | None", self._thread.run(self._consumer.receive_nowait()))

    def handle(self, handler: Callable[[Received], None]) -> None:
        """Call the handler for every message, on the calling thread, until the consumer is closed.

        In AUTO mode a message is acknowledged when its handler has returned. An error of the handler ends the loop and
        is raised; the message stays unacknowledged.
        """
        for received in self:
            handler(received)

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Acknowledge a message as the session's mode says; True once confirmed, False if it comes again."""
        return self._thread.run(self._consumer.acknowledge(message))

    def close(self) -> None:
        """Stop receiving; messages that arrived and were not received return to the queue."""
        self._thread.run(self._consumer.close())


class Browser:
    """The messages of a queue, none consumed; each iteration starts at the first, as does one after a failover."""

    def __init__(self, thread: LoopThread, browser: aio.Browser) -> None:
        self._thread = thread
        self._browser = browser

    def __iter__(self) -> Iterator[Received]:
        messages = self._browser.__aiter__()
        try:
            while True:
                try:
                    yield self._thread.run(_next_of(messages))
                except StopAsyncIteration:
                    return
        finally:
            self._thread.run(messages.aclose())


async def _next_of(messages: Any) -> Received:
    return cast(Received, await messages.__anext__())
