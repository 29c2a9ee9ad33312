"""Connections of the asyncio client, and the factory that makes them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import TracebackType

from understudy.client.aio.discovery import discover
from understudy.client.aio.link import Link, exclusive
from understudy.client.aio.requests import close_session, prove_login
from understudy.client.aio.session import Session
from understudy.client.core.connection.discovery import check_trust
from understudy.client.core.connection.listeners import FailoverListener, FailureListener
from understudy.client.core.connection.tracing import NO_TRACING, Tracing
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.channel import SessionOptions
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.options import ClientUrl, Connector, ServingNode
from understudy.client.core.url.parsing import parse_url, with_failover
from understudy.client.host import Surroundings, creation_place
from understudy.client.tls import tls_context
from understudy.texts import counted


class ConnectionFactory:
    """Makes connections to one URL, spread over its connectors and the topology learnt from earlier connections, as
    ``connectionLoadBalancingPolicyClassName`` says (artemis-ha s. 8).
    """

    def __init__(
        self,
        url: str | ClientUrl,
        user: str | None = None,
        password: str | None = None,
        *,
        failover: bool | None = None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        """Read the URL; nothing is connected yet.

        Args:
            url: URL as ``docs/use/client-url.md`` describes it, or one that was parsed.
            user: User of the login; None for that of the URL.
            password: Password of the login; None for that of the URL.
            failover: True for ``ha=true`` and ``reconnectAttempts=-1``, False for no attempt after a loss; None for the
                URL's own way, which is True for several hosts, and as soon as the broker has announced a backup, unless
                it says otherwise.
            tracing: Makes spans of messages, such as ``understudy.client.otel.OpenTelemetry()``.

        Raises:
            ConfigError: the URL cannot be used; names the parameter.

        Concurrency: a factory may be shared by several tasks.
        """
        self._url = with_failover(parse_url(url) if isinstance(url, str) else url, failover)
        self._user = user
        self._password = password
        self._tracing = tracing
        self.surroundings = Surroundings()
        """Clock and randomness of its connections; a simulation sets its own."""
        self._count: int | None = None
        self._learnt: tuple[Connector, ...] = ()

    async def connect(self) -> Connection:
        """Make a connection, and wait until a broker has answered on it.

        Returns:
            The connection. Close it when it is not needed any more.

        Raises:
            Unreachable: no broker answered in ``initialConnectAttempts`` rounds over the connectors, or none broadcast
                within discoveryInitialWaitTimeout.
            AuthenticationFailed: the user or password that is given is wrong.
            IncompatibleVersion: the broker is too old.
            ConfigError: a TLS file cannot be used; or the password would be sent to an address that is known from a
                datagram only (``sslEnabled``, ``trustDiscovery``; ADR 0014).

        Failover: a connector that is lost while the first connection is made is followed by the next one.

        Concurrency: several tasks may connect at a time. A call that is cancelled while it waits leaves nothing open.
        """
        url = self._url
        if url.discovery is not None:
            found = await discover(url)
            check_trust(found, url.options, self._password or url.options.password)
            url = replace(url, connectors=found)
        for tls in {each.tls for each in url.connectors}:
            if tls is not None:
                tls_context(tls)
        start = self._start()
        if self._learnt and url.options.use_topology_for_load_balancing:
            known = {each.place for each in self._learnt}
            others = tuple(each for each in url.connectors if each.place not in known)
            turn = start % len(self._learnt)
            url = replace(url, connectors=self._learnt[turn:] + self._learnt[:turn] + others)
            start = 0
        link = Link(url, self._user, self._password, self.surroundings, self._tracing, start)
        try:
            await link.ask(link.core.connect)
            if link.core.sessions.has_login:
                await prove_login(link)
        except BaseException:
            link.close()
            raise
        self._learnt = link.core.link.topology.primaries()
        return Connection(link, creation_place())

    def _start(self) -> int:
        """Which connector comes first, as the load-balancing policy says (artemis-ha s. 8)."""
        policy = self._url.options.load_balancing_policy
        if policy == "FirstElement":
            return 0
        if policy == "Random" or self._count is None:
            self._count = int.from_bytes(self.surroundings.entropy(2), "big")
        start = self._count
        if policy == "RoundRobin":
            self._count += 1
        return start


async def connect(
    url: str | ClientUrl,
    user: str | None = None,
    password: str | None = None,
    *,
    failover: bool | None = None,
    tracing: Tracing = NO_TRACING,
) -> Connection:
    """Make one connection, and wait until a broker has answered on it.

    Args:
        url: URL as ``docs/use/client-url.md`` describes it, or one that was parsed.
        user: User of the login; None for that of the URL.
        password: Password of the login; None for that of the URL.
        failover: True for ``ha=true`` and ``reconnectAttempts=-1``, False for no attempt after a loss; None for the
            URL's own way, which is True for several hosts, and as soon as the broker has announced a backup, unless it
            says otherwise.
        tracing: Makes spans of messages, such as ``understudy.client.otel.OpenTelemetry()``.

    Returns:
        The connection. Close it when it is not needed any more.

    Raises:
        Unreachable: no broker answered in ``initialConnectAttempts`` rounds over the connectors, or none broadcast
            within discoveryInitialWaitTimeout.
        AuthenticationFailed: the user or password that is given is wrong.
        IncompatibleVersion: the broker is too old.
        ConfigError: the URL or a TLS file cannot be used; or the password would be sent to an address that is known
            from a datagram only (``sslEnabled``, ``trustDiscovery``; ADR 0014).

    Failover: a connector that is lost while the first connection is made is followed by the next one.

    Concurrency: several tasks may connect at a time. A call that is cancelled while it waits leaves nothing open.
    """
    return await ConnectionFactory(url, user, password, failover=failover, tracing=tracing).connect()


class Connection:
    """A connection that fails over as its URL says (docs/use/client.md, "Failover").

    Close it, or use it in ``async with``.

    Several tasks may share it. It is not safe to use from other threads than that of its event loop.
    """

    def __init__(self, link: Link, created_at: str) -> None:
        self._link = link
        self.created_at = created_at
        """File and line that made it, for the warning about a connection that was never closed."""
        self._closed = False
        link.opened(self)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._closed:
            await self._close(failed=kind is not None)

    def __del__(self) -> None:
        self.warn_if_open()
        if not self._closed and self._link.usable:
            self._link.soon(self._link.close)

    def warn_if_open(self) -> None:
        """Issue a ``ResourceWarning`` with the place that made the connection, unless it was closed.

        Failover and concurrency: no effect; called when the object is destroyed.
        """
        if not self._closed:
            warnings.warn(f"connection made at {self.created_at} was never closed", ResourceWarning, 2, self)

    def __repr__(self) -> str:
        core = self._link.core
        state = "closed" if self._closed or core.closed is not None else core.state.value
        return f"<Connection to {core.connector}, {state}, {counted(len(core.sessions), 'session')}>"

    @property
    def node_id(self) -> str | None:
        """Id of the node that serves the sessions; both servers of a pair have it. None before the first answer."""
        return self._link.core.node_id

    @property
    def connector(self) -> Connector | None:
        """The connector in use, or the one that was dialled last during a failover."""
        return self._link.core.connector

    @property
    def serving_node(self) -> ServingNode:
        """The node that serves the sessions, and its epoch; empty before the first session.

        During a failover it is the node of before. Of two confirmations of one node id the one with the higher epoch
        was made later.
        """
        return self._link.core.link.serving_node

    @property
    def failovers(self) -> int:
        """Number of failovers completed so far."""
        return self._link.core.failovers

    @property
    def failing_over(self) -> bool:
        """Whether the connection is lost and a new one is being tried."""
        return self._link.core.failing_over

    @exclusive
    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call a function after each failure of the connection (artemis-ha s. 8).

        Args:
            listener: Called with the error, whether a new connection works, and that as a ``FailureCode``: True and
                FAILOVER when the sessions go on, False and DISCONNECT when no attempt is left and everything is closed.
                An error that it raises is logged.

        Failover: the listener is called when the failover has ended.

        Concurrency: any task may call this. The listener is called by the event loop and must not block.
        """
        self._link.core.listeners.of_failures.append(listener)

    @exclusive
    def remove_failure_listener(self, listener: FailureListener) -> None:
        """Stop calling a failure listener.

        Args:
            listener: Listener as it was added.

        Raises:
            ValueError: it is not registered.

        Failover and concurrency: any task may call this at any time; a call that has begun is not stopped.
        """
        self._link.core.listeners.of_failures.remove(listener)

    @exclusive
    def add_failover_listener(self, listener: FailoverListener) -> None:
        """Call a function when a failure is detected and when its failover has ended (artemis-ha s. 8).

        Args:
            listener: Called with a ``FailoverEvent``. An error that it raises is logged.

        Failover: the listener is called when it begins and when it ends.

        Concurrency: any task may call this. The listener is called by the event loop and must not block.
        """
        self._link.core.listeners.of_failovers.append(listener)

    @exclusive
    def remove_failover_listener(self, listener: FailoverListener) -> None:
        """Stop calling a failover listener.

        Args:
            listener: Listener as it was added.

        Raises:
            ValueError: it is not registered.

        Failover and concurrency: any task may call this at any time; a call that has begun is not stopped.
        """
        self._link.core.listeners.of_failovers.remove(listener)

    async def session(
        self, acknowledge: AcknowledgeMode | str = AcknowledgeMode.AUTO, *, transacted: bool = False, xa: bool = False
    ) -> Session:
        """Make a session and start it.

        Args:
            acknowledge: ``AcknowledgeMode`` or its value: "auto", "client", "individual", "dups-ok", "pre" or
                "transacted".
            transacted: The same as ``acknowledge="transacted"``.
            xa: Whether its transactions are the branches of ``Session.xa``.

        Returns:
            The session.

        Raises:
            AuthenticationFailed: user or password are wrong.
            ValueError: no such acknowledge mode.
            SessionRejected: the node was still starting after callTimeout.
            ObjectClosed: the connection is closed.
            ConnectionLost, FailoverTimedOut: the connection was lost and no other came back.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the session is asked for again at the new connection.

        Concurrency: several tasks may call it. A call that is cancelled while it waits leaves no session open.

        Source: artemis-core s. 4.1, 6.1 and 7.3.
        """
        mode = AcknowledgeMode.TRANSACTED if transacted or xa else AcknowledgeMode(acknowledge)
        core = self._link.core
        early = mode is AcknowledgeMode.PRE_ACKNOWLEDGE or core.options.pre_acknowledge
        options = SessionOptions(mode, xa, early)
        state: SessionState = await self._link.ask(lambda waiter: core.sessions.open(options, waiter))
        return Session(self, self._link, state, creation_place())

    async def close(self) -> None:
        """Close the sessions, as ``Session.close`` does, and the connection. Closing twice does nothing.

        A ``with`` block that is left by an error gives the messages in work back first (docs/use/client.md).

        Raises:
            CallTimedOut: the broker did not answer within callTimeout; the connection is closed nevertheless.

        Failover: a connection that is failing over is closed at once, without waiting; sends without a confirmation end
        with ``SendOutcomeUnknown``.

        Concurrency: any task may close it; calls of other tasks that wait raise ``ObjectClosed``.
        """
        if not self._closed:
            await self._close(failed=False)

    @exclusive
    async def _close(self, *, failed: bool) -> None:
        self._closed = True
        core = self._link.core
        try:
            for session in core.sessions:
                if core.closed is None and not core.failing_over:
                    await close_session(self._link, session, failed=failed)
        finally:
            self._link.close()

    @exclusive
    def abandon(self) -> None:
        """Drop the connection without closing the sessions. The broker rolls back their open work and delivers what
        was not acknowledged again.

        Failover: a failover under way ends.

        Concurrency: any task may call it; calls of other tasks that wait raise ``ObjectClosed``.
        """
        self._closed = True
        self._link.close()
