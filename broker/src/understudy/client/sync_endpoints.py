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
from understudy.client.aio_bodies import Body
from understudy.client.consumer_state import ReceivedMessage
from understudy.client.large_sends import Readable
from understudy.client.sync_bodies import Received
from understudy.client.sync_thread import LoopThread
from understudy.errors import ObjectClosed
from understudy.message import Message
from understudy.properties import PropertyValue


class Producer:
    """See ``aio.Producer``."""

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
        """See ``aio.Producer.in_flight``; counts those handed over to the client's thread too."""
        return self._producer.in_flight + len(self._waiting)

    def send(self, body: Body, **fields: Any) -> None:
        """See ``aio.Producer.send``."""
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
        """See ``aio.Producer.send_nowait``; errors of the call itself come with the future too."""
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
        """See ``aio.Producer.send_large_nowait``; errors of the call itself come with the future too."""
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
        """See ``aio.Producer.wait_sendable``."""
        self._thread.run(self._producer.wait_sendable())

    def close(self) -> None:
        """See ``aio.Producer.close``."""
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
    """See ``aio.Consumer``."""

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
        """See ``aio.Consumer.queue``."""
        return self._consumer.queue

    @property
    def buffered(self) -> int:
        """See ``aio.Consumer.buffered``."""
        return self._consumer.buffered

    def take(self) -> Received | None:
        """See ``aio.Consumer.take``."""
        return cast("Received | None", self._thread.call(self._consumer.take))

    def receive(self, timeout_s: float | None = None) -> Received | None:
        """See ``aio.Consumer.receive``."""
        return cast("Received | None", self._thread.run(self._consumer.receive(timeout_s)))

    def receive_nowait(self) -> Received | None:
        """See ``aio.Consumer.receive_nowait``."""
        return cast("Received | None", self._thread.run(self._consumer.receive_nowait()))

    def handle(self, handler: Callable[[Received], None]) -> None:
        """See ``aio.Consumer.handle``; the handler runs on the calling thread."""
        for received in self:
            handler(received)

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """See ``aio.Consumer.acknowledge``."""
        return self._thread.run(self._consumer.acknowledge(message))

    def close(self) -> None:
        """See ``aio.Consumer.close``."""
        self._thread.run(self._consumer.close())


class Browser:
    """See ``aio.Browser``."""

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
