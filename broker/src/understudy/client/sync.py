"""The blocking client: the same names as ``aio``, without ``await``, safe from any thread.

One daemon thread per process runs an event loop for all connections (``sync_thread``); every call
here is carried out there and waited for.

Failure listeners and callbacks run on that thread and must not call back into this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

from understudy.client import aio
from understudy.client.aio_bodies import Body
from understudy.client.aio_link import system_wall_ms
from understudy.client.aio_session import DEFAULT_WINDOW, creation_place
from understudy.client.consumer_state import AcknowledgeMode
from understudy.client.listeners import FailoverListener, FailureListener
from understudy.client.options import ClientUrl, Connector
from understudy.client.sync_bodies import Received, maker
from understudy.client.sync_endpoints import Browser, Consumer, Producer
from understudy.client.sync_session import Session
from understudy.client.sync_thread import LoopThread, loop_thread

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
        thread = loop_thread()
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

    def __init__(self, thread: LoopThread, connection: aio.Connection) -> None:
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

    def add_failover_listener(self, listener: FailoverListener) -> None:
        """See ``aio.Connection.add_failover_listener``; called on the client's thread."""
        self._thread.call(self._connection.add_failover_listener, listener)

    def remove_failover_listener(self, listener: FailoverListener) -> None:
        """See ``aio.Connection.remove_failover_listener``."""
        self._thread.call(self._connection.remove_failover_listener, listener)

    def session(
        self, acknowledge: AcknowledgeMode | str = AcknowledgeMode.AUTO, *, transacted: bool = False, xa: bool = False
    ) -> Session:
        """See ``aio.Connection.session``."""
        session = self._thread.run(self._connection.session(acknowledge, transacted=transacted, xa=xa))
        session.created_at = creation_place()
        session.make_received = maker(self._thread)
        return Session(self._thread, session)

    def close(self) -> None:
        """See ``aio.Connection.close``."""
        self._thread.run(self._connection.close())

    def abandon(self) -> None:
        """See ``aio.Connection.abandon``."""
        self._thread.call(self._connection.abandon)
