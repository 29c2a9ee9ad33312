"""The asyncio shell's transports, timer and flush: ``Link`` of a ``ClientState``, on any event loop.

Only the running loop's clock, transports, futures and tasks are used. Part of ``aio``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from understudy.client.core.connection import ClientState
from understudy.client.core.options import ClientUrl, Connector
from understudy.client.core.session import SessionState
from understudy.client.tls import tls_context
from understudy.errors import ConfigError, ConnectionLost, Unreachable

_log = logging.getLogger("understudy.client")


def system_wall_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


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
    """One socket's life; everything goes to the shell with the number of its dial."""

    def __init__(self, shell: LoopLink, attempt: int) -> None:
        self._shell = shell
        self._attempt = attempt

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._shell.made(transport, self._attempt)  # type: ignore[arg-type]  # a stream transport

    def data_received(self, data: bytes) -> None:
        self._shell.core.receive_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shell.lost(self._attempt, exc)

    def pause_writing(self) -> None:
        self._shell.pause(True)

    def resume_writing(self) -> None:
        self._shell.pause(False)


class LoopLink:
    """The ``Link`` of a ``ClientState``: transports, the timer, the flush at the end of a turn."""

    def __init__(
        self,
        url: ClientUrl,
        user: str | None,
        password: str | None,
        wall_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
        start: int,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = _Clock(self.loop, wall_ms)
        self.entropy = entropy
        self.core = ClientState(url, self, self.clock, _Entropy(entropy), user=user, password=password, start=start)
        self._transport: asyncio.Transport | None = None
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._paused = False
        self._room: list[asyncio.Future[None]] = []

    # Link

    def dial(self, connector: Connector, attempt: int) -> None:
        self._dialling[attempt] = self.loop.create_task(self._dial(connector, attempt))

    def cancel(self, attempt: int) -> None:
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
            transport, _ = await self.loop.create_connection(
                lambda: _Transport(self, attempt), connector.host, connector.port, **options
            )
            _tune(transport, connector)
        except (OSError, ValueError, ConfigError) as error:
            self._dialling.pop(attempt, None)
            self.core.transport_lost(attempt, Unreachable(f"{connector}: {error}"))

    def hang_up(self) -> None:
        for attempt in tuple(self._dialling):
            self.cancel(attempt)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.pause(False)

    def wants_flush(self) -> None:
        self.loop.call_soon(self._flush)

    def wake_at(self, moment_ms: int) -> None:
        if self._timer is not None:
            if self._timer_ms <= moment_ms:
                return
            self._timer.cancel()
        self._timer_ms = moment_ms
        delay_ms = max(0, moment_ms - self.clock.monotonic_ms())
        self._timer = self.loop.call_later(delay_ms / 1000, self._wake)

    def log(self, event: str, text: str) -> None:
        _log.info("%s: %s", event, text)

    # transports and time

    def made(self, transport: asyncio.Transport, attempt: int) -> None:
        if self._dialling.pop(attempt, None) is None:
            # cancelled in the same turn of the loop in which it was answered
            transport.abort()
            return
        self._transport = transport
        self.core.transport_up(attempt)

    def lost(self, attempt: int, error: Exception | None) -> None:
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
        self._paused = paused
        self.core.pump.socket(writable=not paused)
        if not paused:
            for future in take_all(self._room):
                resolve(future)

    @property
    def writable(self) -> bool:
        return not self._paused

    async def wait_writable(self) -> None:
        if self._paused:
            future = self.loop.create_future()
            self._room.append(future)
            await future

    async def ask(self, start: Callable[[asyncio.Future[Any]], None]) -> Any:
        """Start something that ends in a future, and wait for it."""
        future: asyncio.Future[Any] = self.loop.create_future()
        start(future)
        return await future

    def forget_session(self, session: SessionState) -> None:
        """Close a session whose object the application lost."""
        if session.closed is None and not self.loop.is_closed():
            session.close(self.loop.create_future())

    def close(self) -> None:
        self._flush()
        self.core.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def take_all(futures: list[asyncio.Future[None]]) -> list[asyncio.Future[None]]:
    taken = futures[:]
    futures.clear()
    return taken


def resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _tune(transport: asyncio.BaseTransport, connector: Connector) -> None:
    """Socket options that the URL asks for; asyncio itself sets TCP_NODELAY."""
    wanted = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 0 if not connector.tcp_no_delay else None),
        (socket.SOL_SOCKET, socket.SO_SNDBUF, connector.tcp_send_buffer_size or None),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, connector.tcp_receive_buffer_size or None),
    ]
    own = transport.get_extra_info("socket")
    for level, option, value in wanted:
        if value is not None and own is not None:
            own.setsockopt(level, option, value)
