"""The blocking client: the same names as ``aio``, without ``await``, safe from any thread.

One daemon thread per process runs an event loop for all connections; every call here is carried
out there and waited for. It starts with the first connection and ends with the interpreter, which
closes what was left open. A forked child starts its own; connections are not inherited.

Failure listeners and callbacks run on that thread and must not call back into this module.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from understudy.client import aio
from understudy.client.aio import DEFAULT_WINDOW, Body, creation_place
from understudy.client.aio_link import system_wall_ms
from understudy.client.consumer_state import AcknowledgeMode, ReceivedMessage
from understudy.client.destinations import RoutingType
from understudy.client.large_sends import Readable
from understudy.client.state import FailureListener
from understudy.client.sync_bodies import Received, maker
from understudy.client.sync_xa import XaBranches
from understudy.client.url import ClientUrl, Connector
from understudy.errors import IllegalState, ObjectClosed
from understudy.message import Message
from understudy.properties import PropertyValue
from understudy.wire.core.packets import BindingQueryResponse, QueueQueryResponse

__all__ = [
    "DEFAULT_WINDOW",
    "Body",
    "Browser",
    "Connection",
    "ConnectionFactory",
    "Consumer",
    "Producer",
    "Received",
    "Session",
    "connect",
]

T = TypeVar("T")
_EXIT_TIMEOUT_S: Final = 5.0


class _LoopThread:
    """The thread and its loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.connections: weakref.WeakSet[aio.Connection] = weakref.WeakSet()
        self._thread = threading.Thread(target=self._run, name="understudy-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine run there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalState("a blocking call from a callback of the client would wait for itself for ever")
        if self.loop.is_closed():
            work.close()
            raise ObjectClosed("the interpreter is exiting")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt ends the wait: end the work too
            raise

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a plain function called there."""

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def stop(self) -> None:
        """Close every connection left and end the thread."""
        if not self._thread.is_alive():
            return

        async def close_all() -> None:
            for connection in tuple(self.connections):
                connection.warn_if_open()
                connection.abandon()

        try:
            asyncio.run_coroutine_threadsafe(close_all(), self.loop).result(_EXIT_TIMEOUT_S)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_EXIT_TIMEOUT_S)


_lock = threading.Lock()
_thread: _LoopThread | None = None


def _loop_thread() -> _LoopThread:
    global _thread
    with _lock:
        if _thread is None:
            _thread = _LoopThread()
        return _thread


def _stop() -> None:
    global _thread
    with _lock:
        thread, _thread = _thread, None
    if thread is not None:
        thread.stop()


def _forget_after_fork() -> None:
    global _lock, _thread
    _lock = threading.Lock()
    _thread = None


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget_after_fork)


class ConnectionFactory:
    """See ``aio.ConnectionFactory``."""

    def __init__(
        self,
        url: str | ClientUrl,
        user: str | None = None,
        password: str | None = None,
        *,
        wall_ms: Callable[[], int] = system_wall_ms,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._factory = aio.ConnectionFactory(url, user, password, wall_ms=wall_ms, entropy=entropy)

    def connect(self) -> Connection:
        """See ``aio.ConnectionFactory.connect``."""
        thread = _loop_thread()
        connection = thread.run(self._factory.connect())
        connection.created_at = creation_place()
        thread.connections.add(connection)
        return Connection(thread, connection)


def connect(
    url: str | ClientUrl,
    user: str | None = None,
    password: str | None = None,
    *,
    wall_ms: Callable[[], int] = system_wall_ms,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Connection:
    """See ``aio.connect``."""
    return ConnectionFactory(url, user, password, wall_ms=wall_ms, entropy=entropy).connect()


class Connection:
    """See ``aio.Connection``."""

    def __init__(self, thread: _LoopThread, connection: aio.Connection) -> None:
        self._thread = thread
        self._connection = connection

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def node_id(self) -> str | None:
        """See ``aio.Connection.node_id``."""
        return self._connection.node_id

    @property
    def connector(self) -> Connector | None:
        """See ``aio.Connection.connector``."""
        return self._connection.connector

    @property
    def failovers(self) -> int:
        """See ``aio.Connection.failovers``."""
        return self._connection.failovers

    @property
    def failing_over(self) -> bool:
        """See ``aio.Connection.failing_over``."""
        return self._connection.failing_over

    @property
    def created_at(self) -> str:
        """See ``aio.Connection.created_at``."""
        return self._connection.created_at

    def add_failure_listener(self, listener: FailureListener) -> None:
        """See ``aio.Connection.add_failure_listener``; called on the client's thread."""
        self._thread.call(self._connection.add_failure_listener, listener)

    def remove_failure_listener(self, listener: FailureListener) -> None:
        """See ``aio.Connection.remove_failure_listener``."""
        self._thread.call(self._connection.remove_failure_listener, listener)

    def session(
        self, acknowledge: AcknowledgeMode | str = AcknowledgeMode.AUTO, *, transacted: bool = False, xa: bool = False
    ) -> Session:
        """See ``aio.Connection.session``."""
        session = self._thread.run(self._connection.session(acknowledge, transacted=transacted, xa=xa))
        session.make_received = maker(self._thread)
        return Session(self._thread, session)

    def close(self) -> None:
        """See ``aio.Connection.close``."""
        self._thread.run(self._connection.close())

    def abandon(self) -> None:
        """See ``aio.Connection.abandon``."""
        self._thread.call(self._connection.abandon)


class Session:
    """See ``aio.Session``."""

    def __init__(self, thread: _LoopThread, session: aio.Session) -> None:
        self._thread = thread
        self._session = session

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def rollback_only(self) -> bool:
        """See ``aio.Session.rollback_only``."""
        return self._session.rollback_only

    @property
    def xa(self) -> XaBranches:
        """See ``aio.Session.xa``."""
        return XaBranches(self._thread, self._session.xa)

    def close(self) -> None:
        """See ``aio.Session.close``."""
        self._thread.run(self._session.close())

    def start(self) -> None:
        """See ``aio.Session.start``."""
        self._thread.call(self._session.start)

    def stop(self) -> None:
        """See ``aio.Session.stop``."""
        self._thread.run(self._session.stop())

    def commit(self) -> None:
        """See ``aio.Session.commit``."""
        self._thread.run(self._session.commit())

    def rollback(self) -> None:
        """See ``aio.Session.rollback``."""
        self._thread.run(self._session.rollback())

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """See ``aio.Session.acknowledge``."""
        return self._thread.run(self._session.acknowledge(message))

    def add_metadata(self, key: str, value: str, *, unique: bool = False) -> None:
        """See ``aio.Session.add_metadata``."""
        self._thread.run(self._session.add_metadata(key, value, unique=unique))

    def query_queue(self, name: str) -> QueueQueryResponse:
        """See ``aio.Session.query_queue``."""
        return self._thread.run(self._session.query_queue(name))

    def query_address(self, name: str) -> BindingQueryResponse:
        """See ``aio.Session.query_address``."""
        return self._thread.run(self._session.query_address(name))

    def create_address(self, name: str, routing: RoutingType | str = RoutingType.ANYCAST) -> None:
        """See ``aio.Session.create_address``."""
        self._thread.run(self._session.create_address(name, routing))

    def create_queue(
        self,
        name: str,
        *,
        address: str | None = None,
        routing: RoutingType | str = RoutingType.ANYCAST,
        filter: str | None = None,  # noqa: A002  # the field's standard name
        durable: bool = True,
        temporary: bool = False,
        max_consumers: int = -1,
        purge_on_no_consumers: bool = False,
    ) -> None:
        """See ``aio.Session.create_queue``."""
        self._thread.run(
            self._session.create_queue(
                name,
                address=address,
                routing=routing,
                filter=filter,
                durable=durable,
                temporary=temporary,
                max_consumers=max_consumers,
                purge_on_no_consumers=purge_on_no_consumers,
            )
        )

    def create_temporary_queue(self) -> str:
        """See ``aio.Session.create_temporary_queue``."""
        return self._thread.run(self._session.create_temporary_queue())

    def delete_queue(self, name: str) -> None:
        """See ``aio.Session.delete_queue``."""
        self._thread.run(self._session.delete_queue(name))

    def producer(
        self,
        address: str | None = None,
        *,
        routing: RoutingType | str | None = RoutingType.ANYCAST,
        window: int = DEFAULT_WINDOW,
        duplicate_ids: bool = True,
        auto_create: bool = True,
    ) -> Producer:
        """See ``aio.Session.producer``."""
        producer = self._thread.run(
            self._session.producer(
                address, routing=routing, window=window, duplicate_ids=duplicate_ids, auto_create=auto_create
            )
        )
        return Producer(self._thread, producer)

    def consumer(
        self,
        queue: str,
        *,
        filter: str | None = None,  # noqa: A002  # the field's standard name
        priority: int = 0,
        window_bytes: int | None = None,
        routing: RoutingType | str = RoutingType.ANYCAST,
        auto_create: bool = True,
    ) -> Consumer:
        """See ``aio.Session.consumer``."""
        consumer = self._thread.run(
            self._session.consumer(
                queue,
                filter=filter,
                priority=priority,
                window_bytes=window_bytes,
                routing=routing,
                auto_create=auto_create,
            )
        )
        return Consumer(self._thread, consumer)

    def subscriber(
        self,
        address: str,
        *,
        name: str | None = None,
        filter: str | None = None,  # noqa: A002  # the field's standard name
        window_bytes: int | None = None,
    ) -> Consumer:
        """See ``aio.Session.subscriber``."""
        consumer = self._thread.run(
            self._session.subscriber(address, name=name, filter=filter, window_bytes=window_bytes)
        )
        return Consumer(self._thread, consumer)

    def browser(
        self,
        queue: str,
        *,
        filter: str | None = None,  # noqa: A002  # the field's standard name
    ) -> Browser:
        """See ``aio.Session.browser``."""
        return Browser(self._thread, self._thread.run(self._session.browser(queue, filter=filter)))


class Producer:
    """See ``aio.Producer``."""

    def __init__(self, thread: _LoopThread, producer: aio.Producer) -> None:
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
    ) -> Future[None]:
        """See ``aio.Producer.send_nowait``; errors of the call itself come with the future too."""

        def send() -> asyncio.Future[None]:
            return self._producer.send_nowait(
                body,
                address=address,
                properties=properties,
                durable=durable,
                priority=priority,
                time_to_live_ms=time_to_live_ms,
            )

        return self._hand_over(send)

    def send_large_nowait(self, message: Message, body: Readable | Iterable[bytes]) -> Future[None]:
        """See ``aio.Producer.send_large_nowait``; errors of the call itself come with the future too."""
        return self._hand_over(lambda: self._producer.send_large_nowait(message, body))

    def _hand_over(self, send: Callable[[], asyncio.Future[None]]) -> Future[None]:
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

    def __init__(self, thread: _LoopThread, consumer: aio.Consumer) -> None:
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

    def __init__(self, thread: _LoopThread, browser: aio.Browser) -> None:
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
