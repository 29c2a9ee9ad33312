"""Outgoing connections of a broker to other brokers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final, cast

from understudy.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from understudy.ports import OutputSealer, Security
from understudy.runtime.base.addresses import address_text, security_of
from understudy.runtime.base.turn import Turn
from understudy.tls.contexts import client_context, reason_of
from understudy.tls.settings import TlsSettings
from understudy.wire.core.http_upgrade import UpgradeExchange
from understudy.wire.core.peer import Link
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

#: Timeout of a dial.
CONNECT_TIMEOUT_S: Final = 5.0
#: Time for the answer to an HTTP upgrade, as in Artemis (artemis-core s. 1.4).
UPGRADE_TIMEOUT_S: Final = 30.0


def _exchange(connector: TransportConfiguration) -> UpgradeExchange | None:
    """Make the exchange of an HTTP upgrade. Raises LocalProtocolError: its parameters cannot be sent in a request."""
    if not connector.http_upgrade:
        return None
    return UpgradeExchange(connector.host, connector.port, connector.parameters, os.urandom(16))


class LoopDialer:
    """Implements ``wire.core.peer.Dialer`` on the running loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: Turn,
        tls_of: Callable[[TransportConfiguration], TlsSettings | None] = lambda connector: None,
    ) -> None:
        """Args:
        loop: Where connections are made.
        turn: Flushes their output.
        tls_of: TLS settings for a connector; None: plain text.
        """
        self._loop = loop
        self._turn = turn
        self._tls_of = tls_of
        self._tasks: set[asyncio.Task[None]] = set()

    def dial(self, connector: TransportConfiguration, link: Link) -> None:
        """Connect on the loop; the link is called with the result."""
        task = self._loop.create_task(self._dial(connector, link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, connector: TransportConfiguration, link: Link) -> None:
        settings = self._tls_of(connector)
        options: dict[str, Any] = {}
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if settings is not None:
                    # the files are read for each connection, so that changed ones are used
                    context = await self._loop.run_in_executor(None, client_context, settings)
                    options = {"ssl": context, "server_hostname": settings.sni_host or connector.host}
                await self._loop.create_connection(
                    lambda: ClientConnection(link, self._turn, _exchange(connector)),
                    connector.host,
                    connector.port,
                    **options,
                )
        except (OSError, TimeoutError, ConfigError, LocalProtocolError) as error:
            place = f"tcp://{connector.host}:{connector.port}"
            link.disconnected(f"{place}: {reason_of(error) or type(error).__name__}")


class ClientConnection(asyncio.Protocol):
    """One dialled socket; implements ``ports.Connection``. Also implements ``ports.SealableConnection``."""

    upgrade_without_name = False

    def __init__(self, link: Link, turn: Turn, exchange: UpgradeExchange | None = None) -> None:
        """Args:
        link: Called with everything that happens.
        turn: Flushes the output.
        exchange: Comes before the protocol of the link; None: there is no HTTP upgrade.
        """
        self._link = link
        self._turn = turn
        self._exchange = exchange
        self._timer: asyncio.TimerHandle | None = None
        """Aborts a connection whose HTTP upgrade is not answered."""
        self._reason: str | None = None
        """Reason why the HTTP upgrade has failed."""
        self._transport: asyncio.Transport | None = None
        self._peer = self._local = "?"
        self.security = Security.NONE
        self._sealer: OutputSealer | None = None
        self._out: list[bytes] = []
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio: report the connection to the link, or request the HTTP upgrade."""
        self._transport = cast(asyncio.Transport, transport)
        self._peer = address_text(transport, "peername")
        self._local = address_text(transport, "sockname")
        self.security = security_of(transport)
        if self._exchange is None:
            self._link.connected(self)
            return
        self._transport.write(self._exchange.request)
        self._timer = asyncio.get_running_loop().call_later(
            UPGRADE_TIMEOUT_S, self._upgrade_failed, "no answer in time"
        )

    def data_received(self, data: bytes) -> None:
        """Called by asyncio: pass the bytes to the link."""
        if self._closing:
            return
        if self._exchange is None:
            self._link.receive_data(data)
            return
        try:
            rest = self._exchange.receive(data)
        except RemoteProtocolError as error:
            self._upgrade_failed(str(error))
            return
        if rest is not None:
            self._exchange = None
            self._stop_timer()
            self._link.connected(self)
            if rest:
                self._link.receive_data(rest)

    def _upgrade_failed(self, reason: str) -> None:
        self._reason = reason
        self.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio: report the reason to the link."""
        self._closing = True
        self._transport = None
        self._stop_timer()
        self._link.disconnected(self._reason or (str(exc) if exc else "closed by the peer"))

    certificate_subject = None

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def local(self) -> str:
        return self._local

    def seal(self, sealer: OutputSealer) -> None:
        self.flush()
        self._sealer = sealer

    def send(self, data: bytes) -> None:
        if not self._closing:
            if not self._out:
                self._turn.mark_dirty(self)
            self._out.append(data)

    def outgoing_bytes(self) -> int:
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return waiting + sum(map(len, self._out))

    def flush(self) -> None:
        """Write the buffered bytes to the socket."""
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._transport.writelines(out if self._sealer is None else self._sealer.seal(out))

    def close(self) -> None:
        if not self._closing:
            self.flush()
            self._closing = True
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
