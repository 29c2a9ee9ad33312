"""The asyncio shell's transports, timer and flush: the ``core.connection.Link`` of one connection, on any event loop.

Only the running loop's clock, transports, futures and tasks are used. The names that the other modules of this package
use of this one are those of ``sync.link``: from them the modules of the blocking client are generated.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from understudy.client.core.connection.state import ClientState
from understudy.client.core.connection.tracing import Tracing
from understudy.client.core.connection.upgrade import upgrade_of
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.options import ClientUrl, Connector
from understudy.client.host import Surroundings, dial_error, tune
from understudy.client.tls import tls_context
from understudy.errors import ConfigError, ConnectionLost, LocalProtocolError, RemoteProtocolError
from understudy.wire.core.http_upgrade import UpgradeExchange

_log = logging.getLogger("understudy.client")
M = TypeVar("M", bound=Callable[..., Any])
R = TypeVar("R")


def exclusive(method: M) -> M:
    """Mark a method that uses the state of its connection: in the blocking client it holds the connection's lock."""
    return method


async def run_handler(handler: Callable[[R], object], received: R) -> Any:
    """Call the application's handler of a message, and await its result if that can be awaited."""
    result = handler(received)
    return await result if isinstance(result, Awaitable) else result


class _Clock:
    """The loop's clock and the wall's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_ms: Callable[[], int]) -> None:
        self._loop = loop
        self.wall_ms = wall_ms

    def wall_ns(self) -> int:
        return self.wall_ms() * 1_000_000

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


class _Entropy:
    def __init__(self, token: Callable[[int], bytes]) -> None:
        self.token = token


class _Transport(asyncio.Protocol):
    """The life of one socket; everything goes to the link with the number of its dial."""

    def __init__(self, link: Link, attempt: int, upgrade: UpgradeExchange | None) -> None:
        self._link = link
        self._attempt = attempt
        self._upgrade = upgrade
        self._upgrading: asyncio.Transport | None = None
        self._refused: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        if self._upgrade is None:
            self._link.made(stream, self._attempt)
        else:
            self._upgrading = stream
            stream.write(self._upgrade.request)

    def data_received(self, data: bytes) -> None:
        if self._upgrading is None or self._upgrade is None:
            self._link.core.receive_data(data)
            return
        try:
            rest = self._upgrade.receive(data)
        except RemoteProtocolError as error:
            self._refused = error
            self._upgrading.abort()
            return
        if rest is not None:
            stream, self._upgrading = self._upgrading, None
            self._link.made(stream, self._attempt)
            if rest:
                self._link.core.receive_data(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost(self._attempt, self._refused or exc)

    def pause_writing(self) -> None:
        self._link.pause(True)

    def resume_writing(self) -> None:
        self._link.pause(False)


class Signal:
    """Wakes the tasks that wait for a change."""

    def __init__(self, link: Link) -> None:
        self._loop = link.loop
        self._waiters: list[Future[None]] = []

    def set(self) -> None:
        """Something has changed: wake everything that waits now."""
        _resolve_all(self._waiters)

    async def wait(self, deadline_s: float | None = None) -> None:
        """Wait for the next ``set``, at most until a moment of ``Link.now_s``."""
        future: Future[None] = self._loop.create_future()
        self._waiters.append(future)
        timer = None if deadline_s is None else self._loop.call_at(deadline_s, _resolve, future)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()


def end_span(future: Future[None], ended: Callable[[Any], None]) -> None:
    """Call the function with the future when the send has its outcome, before the application gets the outcome."""
    future.add_done_callback(ended)


class Link:
    """Transports, the timer and the flush at the end of a turn of one connection."""

    def __init__(
        self,
        url: ClientUrl,
        user: str | None,
        password: str | None,
        surroundings: Surroundings,
        tracing: Tracing,
        start: int,
    ) -> None:
        """Args:
        start: Which connector of the URL to dial first.
        """
        self.loop = asyncio.get_running_loop()
        self.new_future: Callable[[], Future[Any]] = self.loop.create_future
        """Makes the future of a send."""
        self.clock = _Clock(self.loop, surroundings.wall_ms)
        self.entropy = entropy = surroundings.entropy
        self.tracing = tracing
        self.core = ClientState(url, self, self.clock, _Entropy(entropy), user=user, password=password, start=start)
        self._transport: asyncio.Transport | None = None
        self._attempt = 0
        """Number of the dial that has opened the transport; 0: there is none."""
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._paused = False
        self._space: list[Future[None]] = []

    # called by the core

    def dial(self, connector: Connector, attempt: int) -> None:
        """Open a transport for the core."""
        self._dialling[attempt] = self.loop.create_task(self._dial(connector, attempt))

    def cancel(self, attempt: int) -> None:
        """Stop opening that transport."""
        task = self._dialling.pop(attempt, None)
        if task is not None:
            task.cancel()

    async def _dial(self, connector: Connector, attempt: int) -> None:
        tls = connector.tls
        options: dict[str, Any] = {}
        try:
            if tls is not None:
                options = {"ssl": tls_context(tls), "server_hostname": tls.sni_host or connector.host}
            if connector.local_address is not None or connector.local_port:
                options["local_addr"] = (connector.local_address or "0.0.0.0", connector.local_port)
            upgrade = upgrade_of(connector, self.entropy(16))
            transport, _ = await self.loop.create_connection(
                lambda: _Transport(self, attempt, upgrade), connector.host, connector.port, **options
            )
            connection = transport.get_extra_info("socket")
            if connection is not None:
                tune(connection, connector)
        except (OSError, ValueError, ConfigError, LocalProtocolError) as error:
            self._dialling.pop(attempt, None)
            self.core.transport_lost(attempt, dial_error(connector, error))

    def hang_up(self) -> None:
        """Drop the transport and every dial under way."""
        for attempt in tuple(self._dialling):
            self.cancel(attempt)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._attempt = 0
        self.pause(False)

    def wants_flush(self) -> None:
        """The core has bytes to send."""
        self.loop.call_soon(self._flush)

    def wake_at(self, moment_ms: int) -> None:
        """Call the core at that monotonic moment, if not before."""
        if self._timer is not None:
            if self._timer_ms <= moment_ms:
                return
            self._timer.cancel()
        self._timer_ms = moment_ms
        delay_ms = max(0, moment_ms - self.clock.monotonic_ms())
        self._timer = self.loop.call_later(delay_ms / 1000, self._wake)

    def notify(self, call: Callable[[], None]) -> None:
        """Call a listener of the application."""
        call()

    def log(self, event: str, text: str, *, warning: bool = False) -> None:
        """Write a line to the log."""
        _log.log(logging.WARNING if warning else logging.INFO, "%s: %s", event, text)

    # transports and time

    def made(self, transport: asyncio.Transport, attempt: int) -> None:
        """Take the transport that a dial has opened, or abort it if the dial was cancelled meanwhile."""
        if self._dialling.pop(attempt, None) is None:
            # cancelled in the same turn of the loop in which it was answered
            transport.abort()
            return
        self._transport = transport
        self._attempt = attempt
        self.core.transport_up(attempt)

    def lost(self, attempt: int, error: Exception | None) -> None:
        """The transport of a dial has ended; ``error`` is the reason, None for an orderly end."""
        self._dialling.pop(attempt, None)
        if attempt == self._attempt:
            # a transport that ends while it is paused is not resumed: the next one takes bytes
            self.hang_up()
        reason = f": {error}" if error is not None else ""
        self.core.transport_lost(attempt, ConnectionLost(f"the connection to {self.core.connector} ended{reason}"))

    def _flush(self) -> None:
        data = self.core.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def _wake(self) -> None:
        self._timer = None
        moment_ms = self.core.handle_deadline()
        if moment_ms is not None:
            self.wake_at(moment_ms)

    def pause(self, paused: bool) -> None:
        """Pause or resume sending, as the transport's buffer is above or below its high-water mark."""
        self._paused = paused
        self.core.link.pump.socket(writable=not paused)
        if not paused:
            _resolve_all(self._space)

    # called by the endpoints

    @property
    def writable(self) -> bool:
        """Whether the socket takes bytes."""
        return not self._paused

    async def wait_writable(self) -> None:
        """Wait until the socket takes bytes."""
        if self._paused:
            future = self.loop.create_future()
            self._space.append(future)
            await future

    def now_s(self) -> float:
        """Monotonic seconds, with fractions."""
        return self.loop.time()

    def now_ms(self) -> float:
        """Monotonic milliseconds, with fractions."""
        return self.loop.time() * 1000

    async def sleep(self, delay_ms: float) -> None:
        """Wait that long."""
        await asyncio.sleep(delay_ms / 1000)

    async def ask(self, start: Callable[[Future[Any]], None]) -> Any:
        """Start something that ends in a waiter, and wait for its outcome."""
        future: Future[Any] = self.loop.create_future()
        start(future)
        return await future

    def poll(self) -> bool:
        """Read from the socket; whether bytes had arrived. The event loop reads in any case: always False."""
        return False

    def opened(self, connection: object) -> None:
        """The application has a connection on this link. The asyncio shell does not need to know it."""

    @property
    def usable(self) -> bool:
        """Whether the link can still do something: its loop is not closed."""
        return not self.loop.is_closed()

    def soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call from the loop; safe in a finalizer, which may run on any thread. Only if ``usable``."""
        self.loop.call_soon_threadsafe(call, *arguments)

    def forget_session(self, session: SessionState) -> None:
        """Close a session whose object the application lost; its messages in work are given back."""
        if session.closed is None:
            session.close(self.loop.create_future(), failed=True)

    def close(self) -> None:
        """End at once; pending output is given to the transport first."""
        self.core.leave()
        self._flush()
        self.core.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _resolve_all(futures: list[Future[None]]) -> None:
    taken = futures[:]
    futures.clear()
    for future in taken:
        _resolve(future)


def _resolve(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
