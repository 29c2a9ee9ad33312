"""The asyncio shell's transports, timer and flush: ``Link`` of a ``ClientState``, on any event loop.

Only the running loop's clock, transports, futures and tasks are used. Part of ``aio``.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from understudy.client.state import ClientState
from understudy.client.url import ClientUrl, Connector, TlsOptions
from understudy.errors import ConnectionLost, Unreachable

_log = logging.getLogger("understudy.client")


def system_wall_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


class _Clock:
    """The loop's clock and the wall's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_ms: Callable[[], int]) -> None:
        self._loop = loop
        self.wall_ms = wall_ms

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
        self._dialling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._paused = False
        self._room: list[asyncio.Future[None]] = []

    # Link

    def dial(self, connector: Connector, attempt: int) -> None:
        self._dialling = self.loop.create_task(self._dial(connector, attempt))

    async def _dial(self, connector: Connector, attempt: int) -> None:
        tls = connector.tls
        options: dict[str, Any] = {}
        try:
            if tls is not None:
                options = {"ssl": _ssl_context(tls), "server_hostname": tls.sni_host or connector.host}
            await self.loop.create_connection(
                lambda: _Transport(self, attempt), connector.host, connector.port, **options
            )
        except (OSError, ValueError) as error:
            self.core.transport_lost(attempt, Unreachable(f"{connector}: {error}"))

    def hang_up(self) -> None:
        if self._dialling is not None:
            self._dialling.cancel()
            self._dialling = None
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


def _ssl_context(tls: TlsOptions) -> ssl.SSLContext:
    """Raises OSError or ValueError if a store cannot be read."""
    context = ssl.create_default_context(cafile=tls.trust_store_path)
    if tls.key_store_path is not None:
        context.load_cert_chain(tls.key_store_path, password=tls.key_store_password)
    if tls.trust_all or not tls.verify_host:
        context.check_hostname = False
    if tls.trust_all:
        context.verify_mode = ssl.CERT_NONE
    return context
