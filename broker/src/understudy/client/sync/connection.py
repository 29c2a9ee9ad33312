"""Connections of the blocking client, and the factory that makes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

from understudy.client import aio
from understudy.client.aio.link import system_wall_ms
from understudy.client.aio.session import creation_place
from understudy.client.core.consumer import AcknowledgeMode
from understudy.client.core.listeners import FailoverListener, FailureListener
from understudy.client.core.options import ClientUrl, Connector
from understudy.client.sync.bodies import maker
from understudy.client.sync.session import Session
from understudy.client.sync.thread import LoopThread, loop_thread


class ConnectionFactory:
    """Makes blocking connections to one URL, spread over its connectors and the topology learnt from them."""

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
        """A new connection, once a broker has answered. Blocks.

        Raises:
            Unreachable: no broker answered in ``initialConnectAttempts`` rounds, or broadcast in time.
            IncompatibleVersion: the broker is too old.
            ConfigError: a TLS file cannot be used; or the password would be sent to an address that was learnt
                from a datagram only (``sslEnabled``, ``trustDiscovery``).
        """
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
    """One connection to ``url``; errors as of ``ConnectionFactory.connect``.

    Args:
        wall_ms: Wall time in epoch milliseconds, for time stamps and expiry.
        entropy: Returns the given number of random bytes, for names and duplicate ids.
    """
    return ConnectionFactory(url, user, password, wall_ms=wall_ms, entropy=entropy).connect()


class Connection:
    """A connection that fails over as its URL says, safe from any thread. Close it, or use it in ``with``."""

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
        """Id of the node that serves the sessions; None before the first answer."""
        return self._connection.node_id

    @property
    def connector(self) -> Connector | None:
        """The connector in use, or the one being tried during a failover."""
        return self._connection.connector

    @property
    def failovers(self) -> int:
        """Number of failovers completed so far."""
        return self._connection.failovers

    @property
    def failing_over(self) -> bool:
        """Whether the connection is lost and a new one is being tried."""
        return self._connection.failing_over

    @property
    def created_at(self) -> str:
        """File and line where the connection was made, for the warning about a connection that was not closed."""
        return self._connection.created_at

    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call ``listener(error, failed_over, code)`` after each failure, on the client's thread.

        ``failed_over`` is True, with code FAILOVER, when a new connection works; False, with DISCONNECT, when the
        attempts are exhausted and everything is closed.
        """
        self._thread.call(self._connection.add_failure_listener, listener)

    def remove_failure_listener(self, listener: FailureListener) -> None:
        """Stop calling this failure listener.

        Raises:
            ValueError: it is not registered.
        """
        self._thread.call(self._connection.remove_failure_listener, listener)

    def add_failover_listener(self, listener: FailoverListener) -> None:
        """Call ``listener(event)``, on the client's thread, when a failure is detected and when a failover ends."""
        self._thread.call(self._connection.add_failover_listener, listener)

    def remove_failover_listener(self, listener: FailoverListener) -> None:
        """Stop calling this failover listener.

        Raises:
            ValueError: it is not registered.
        """
        self._thread.call(self._connection.remove_failover_listener, listener)

    def session(
        self, acknowledge: AcknowledgeMode | str = AcknowledgeMode.AUTO, *, transacted: bool = False, xa: bool = False
    ) -> Session:
        """A new session, started.

        Args:
            acknowledge: "auto", "client", "individual", "dups-ok", "pre" or "transacted".
            transacted: The same as ``acknowledge="transacted"``.
            xa: Its transactions are the branches of ``Session.xa``.

        Raises:
            AuthenticationFailed: user or password are wrong.
        """
        session = self._thread.run(self._connection.session(acknowledge, transacted=transacted, xa=xa))
        session.created_at = creation_place()
        session.make_received = maker(self._thread)
        return Session(self._thread, session)

    def close(self) -> None:
        """Close the sessions and the transport. During a failover, close at once without waiting for it."""
        self._thread.run(self._connection.close())

    def abandon(self) -> None:
        """Drop the transport without closing the sessions; the broker rolls back their work and delivers again."""
        self._thread.call(self._connection.abandon)
