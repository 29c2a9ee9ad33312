"""Sessions of the blocking client. Part of ``sync``."""

from __future__ import annotations

from types import TracebackType
from typing import Unpack

from understudy.client import aio
from understudy.client.aio_session import DEFAULT_WINDOW
from understudy.client.consumer_state import ReceivedMessage
from understudy.client.destinations import QueueAttributes, RoutingType
from understudy.client.sync_endpoints import Browser, Consumer, Producer
from understudy.client.sync_thread import LoopThread
from understudy.client.sync_xa import XaBranches
from understudy.wire.core.packets import BindingQueryResponse, QueueQueryResponse


class Session:
    """See ``aio.Session``."""

    def __init__(self, thread: LoopThread, session: aio.Session) -> None:
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
        **attributes: Unpack[QueueAttributes],
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
                **attributes,
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
        shared: bool = False,
        durable: bool = True,
        filter: str | None = None,  # noqa: A002  # the field's standard name
        window_bytes: int | None = None,
    ) -> Consumer:
        """See ``aio.Session.subscriber``."""
        consumer = self._thread.run(
            self._session.subscriber(
                address, name=name, shared=shared, durable=durable, filter=filter, window_bytes=window_bytes
            )
        )
        return Consumer(self._thread, consumer)

    def subscription_queue(self, name: str, *, durable: bool = True) -> str:
        """See ``aio.Session.subscription_queue``."""
        return self._session.subscription_queue(name, durable=durable)

    def unsubscribe(self, name: str) -> None:
        """See ``aio.Session.unsubscribe``."""
        self._thread.run(self._session.unsubscribe(name))

    def browser(
        self,
        queue: str,
        *,
        filter: str | None = None,  # noqa: A002  # the field's standard name
    ) -> Browser:
        """See ``aio.Session.browser``."""
        return Browser(self._thread, self._thread.run(self._session.browser(queue, filter=filter)))
