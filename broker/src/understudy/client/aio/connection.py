"""Connections of the asyncio client, and the factory that makes them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from understudy.client.aio.discovery import discover
from understudy.client.aio.link import LoopLink, system_wall_ms
from understudy.client.aio.session import Session, close_session, creation_place
from understudy.client.core.consumer import AcknowledgeMode
from understudy.client.core.discovery import check_trust
from understudy.client.core.listeners import FailoverListener, FailureListener
from understudy.client.core.options import ClientUrl, Connector
from understudy.client.core.session import SessionOptions, SessionState
from understudy.client.core.url import parse_url
from understudy.client.tls import tls_context


class ConnectionFactory:
    """Makes connections to one URL, spread over its connectors and what their topology taught."""

    def __init__(
        self,
        url: str | ClientUrl,
        user: str | None = None,
        password: str | None = None,
        *,
        wall_ms: Callable[[], int] = system_wall_ms,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Raises:
        ConfigError: the URL cannot be used.
        """
        self._url = parse_url(url) if isinstance(url, str) else url
        self._user = user
        self._password = password
        self._wall_ms = wall_ms
        self._entropy = entropy
        self._count = int.from_bytes(entropy(2), "big")
        self._learnt: tuple[Connector, ...] = ()

    async def connect(self) -> Connection:
        """A new connection, once it works.

        Raises:
            Unreachable: there was no answer in ``initialConnectAttempts`` rounds, or broadcast in time.
            IncompatibleVersion: the broker is too old.
            ConfigError: a TLS file cannot be used; or our password would go to a place that only a
                datagram named (``sslEnabled``, ``trustDiscovery``).
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
        link = LoopLink(url, self._user, self._password, self._wall_ms, self._entropy, start)
        try:
            await link.ask(link.core.connect)
        except BaseException:
            link.close()
            raise
        self._learnt = tuple(node.primary for node in link.core.topology if node.primary is not None)
        return Connection(link, creation_place())

    def _start(self) -> int:
        """Which connector comes first, as the load-balancing policy says (artemis-ha s. 8)."""
        policy = self._url.options.load_balancing_policy
        if policy == "FirstElement":
            return 0
        if policy == "Random":
            self._count = int.from_bytes(self._entropy(2), "big")
        start = self._count
        if policy == "RoundRobin":
            self._count += 1
        return start


async def connect(
    url: str | ClientUrl,
    user: str | None = None,
    password: str | None = None,
    *,
    wall_ms: Callable[[], int] = system_wall_ms,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Connection:
    """One connection to ``url``; see ``ConnectionFactory.connect``.

    Args:
        wall_ms: Wall time, epoch milliseconds, for time stamps and expiry.
        entropy: That many random bytes, for names and duplicate ids.
    """
    return await ConnectionFactory(url, user, password, wall_ms=wall_ms, entropy=entropy).connect()


class Connection:
    """A connection that fails over as its URL says; close it, or use it as a context."""

    def __init__(self, link: LoopLink, created_at: str) -> None:
        self._link = link
        self.created_at = created_at
        """File and line, for the warning about a connection that was never closed."""
        self._closed = False

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        self.warn_if_open()
        if not self._closed and not self._link.loop.is_closed():
            self._link.loop.call_soon_threadsafe(self._link.close)

    def warn_if_open(self) -> None:
        """ResourceWarning with the place of creation, unless it was closed."""
        if not self._closed:
            warnings.warn(f"connection made at {self.created_at} was never closed", ResourceWarning, 2, self)

    @property
    def node_id(self) -> str | None:
        """Id of the node that carries our sessions."""
        return self._link.core.node_id

    @property
    def connector(self) -> Connector | None:
        """Where the connection is, or is being tried."""
        return self._link.core.connector

    @property
    def failovers(self) -> int:
        """Failovers completed so far."""
        return self._link.core.failovers

    @property
    def failing_over(self) -> bool:
        """Whether the connection is lost and a new one is being tried."""
        return self._link.core.failing_over

    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call ``listener(error, failed_over, code)`` after each failure: True and FAILOVER when a new
        connection works, False and DISCONNECT when none is left and everything is closed.
        """
        self._link.core.listeners.of_failures.append(listener)

    def remove_failure_listener(self, listener: FailureListener) -> None:
        """Stop calling this failure listener."""
        self._link.core.listeners.of_failures.remove(listener)

    def add_failover_listener(self, listener: FailoverListener) -> None:
        """Call ``listener(event)`` when a failure is detected and when its failover has ended."""
        self._link.core.listeners.of_failovers.append(listener)

    def remove_failover_listener(self, listener: FailoverListener) -> None:
        """Stop calling this failover listener."""
        self._link.core.listeners.of_failovers.remove(listener)

    async def session(
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
        mode = AcknowledgeMode.TRANSACTED if transacted or xa else AcknowledgeMode(acknowledge)
        core = self._link.core
        early = mode is AcknowledgeMode.PRE_ACKNOWLEDGE or core.options.pre_acknowledge
        options = SessionOptions(mode, xa, early)
        state: SessionState = await self._link.ask(lambda future: core.open_session(options, future))
        return Session(self, self._link, state, creation_place())

    async def close(self) -> None:
        """Close its sessions and the transport. While failing over nothing is waited for."""
        if self._closed:
            return
        self._closed = True
        core = self._link.core
        try:
            for session in tuple(core.sessions.values()):
                if core.closed is None and not core.failing_over:
                    await close_session(self._link, session)
        finally:
            self._link.close()

    def abandon(self) -> None:
        """Drop the transport now, without a word to the broker, which rolls back and delivers again."""
        self._closed = True
        self._link.close()
