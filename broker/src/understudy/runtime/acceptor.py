"""Listening sockets: detect the protocol, feed the handler, flush once per turn.

Facts: core-protocol s. 1.2, 1.3. Everything a stranger can do here is bounded before login: time
to show eight bytes of a protocol, connections without a login, connections at all, frame size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from understudy.config.model import AcceptorConfiguration
from understudy.errors import BrokerError
from understudy.limits import (
    CONNECTIONS_BEFORE_LOGIN_MAX,
    OUTGOING_BYTES_MAX,
    OUTGOING_BYTES_PAUSE,
)
from understudy.ports import Connection
from understudy.runtime.turn import Turn
from understudy.wire.detect import Protocol as Wire
from understudy.wire.detect import detect

log = logging.getLogger(__name__)


class ConnectionHandler(Protocol):
    """What speaks on a connection once its protocol is known."""

    held_back: bool
    """It has more to send and waits until the socket has taken what it got."""

    def resume_deliveries(self) -> None: ...

    def congested(self) -> bool: ...

    def receive_data(self, data: bytes) -> None: ...

    def connection_lost(self, reason: str) -> None: ...

    def check(self) -> None: ...

    def disconnect(self) -> None: ...


HandlerFactory = Callable[[Connection], ConnectionHandler]


class Acceptor:
    """One configured acceptor of an active node."""

    def __init__(
        self,
        configuration: AcceptorConfiguration,
        turn: Turn,
        make_handler: HandlerFactory,
        congested: Callable[[], bool],
        check_period_ms: int,
    ) -> None:
        self._check_period_ms = check_period_ms
        self.configuration = configuration
        self.turn = turn
        self.make_handler = make_handler
        self.congested = congested
        self.handshake_timeout_ms = configuration.handshake_timeout_ms
        self.connections_max = configuration.connections_allowed
        # dicts, not sets: what is done to all of them is done in the order in which they came
        self.connections: dict[ServerConnection, None] = {}
        self.paused: dict[ServerConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._check_timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ServerConnection(self),
            self.configuration.host,
            self.configuration.port,
            backlog=self.configuration.backlog,
        )
        self._check_timer = loop.call_later(self._check_period_ms / 1000, self._check)

    def stop_listening(self) -> None:
        """Take no new connections; the present ones go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """Say goodbye to everybody and close; waits shortly for what was sent to leave."""
        self.stop_listening()
        if self._check_timer is not None:
            self._check_timer.cancel()
        for connection in list(self.connections):
            connection.say_goodbye()
        for _ in range(20):
            if not self.connections:
                return
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()

    def resume_paused(self) -> None:
        """The journal has caught up: read again, except where a large message is still being written."""
        for connection in [each for each in self.paused if not each.congested()]:
            del self.paused[connection]
            connection.resume_reading()

    def unknown_connections(self) -> int:
        """Connections whose protocol is not known yet."""
        return sum(connection.handler is None for connection in self.connections)

    def _check(self) -> None:
        for connection in list(self.connections):
            connection.check()
        self._check_timer = asyncio.get_running_loop().call_later(self._check_period_ms / 1000, self._check)


class ServerConnection(asyncio.Protocol):
    """One accepted socket; implements ``ports.Connection``."""

    def __init__(self, acceptor: Acceptor) -> None:
        self.handler: ConnectionHandler | None = None
        self._acceptor = acceptor
        self._turn = acceptor.turn
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self._first = b""
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._closing = False
        self._handshake_timer: asyncio.TimerHandle | None = None

    # --- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=OUTGOING_BYTES_PAUSE // 2)
        name = transport.get_extra_info("peername")
        self._peer = f"{name[0]}:{name[1]}" if name else "?"
        acceptor = self._acceptor
        if (
            len(acceptor.connections) >= acceptor.connections_max
            or acceptor.unknown_connections() >= CONNECTIONS_BEFORE_LOGIN_MAX
        ):
            log.warning("connection refused: too many", extra={"peer": self._peer})
            self._transport.abort()
            return
        acceptor.connections[self] = None
        if acceptor.handshake_timeout_ms > 0:
            self._handshake_timer = asyncio.get_running_loop().call_later(
                acceptor.handshake_timeout_ms / 1000, self._handshake_timed_out
            )

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            if self.handler is None:
                data = self._detect(data)
            if data and self.handler is not None:
                self.handler.receive_data(data)
        except BrokerError as error:
            log.warning("connection dropped", extra={"peer": self._peer, "code": error.code, "error": str(error)})
            self.close()
        self._turn.request()
        if (self._acceptor.congested() or self.congested()) and self._transport is not None and not self._closing:
            self._acceptor.paused[self] = None
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._acceptor.connections.pop(self, None)
        self._acceptor.paused.pop(self, None)
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        if self.handler is not None:
            handler, reason = self.handler, str(exc) if exc else "closed"
            self._turn.guarded(lambda: handler.connection_lost(reason))
            self._turn.request()
        self._transport = None

    # --- ports.Connection ----------------------------------------------------------------------

    @property
    def peer(self) -> str:
        return self._peer

    def send(self, data: bytes) -> None:
        if self._closing:
            return
        if not self._out:
            self._turn.mark_dirty(self)
        self._out.append(data)
        self._out_bytes += len(data)

    def outgoing_bytes(self) -> int:
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._out_bytes + waiting

    def close(self) -> None:
        if self._closing:
            return
        self.flush()
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # --- the shell's side ----------------------------------------------------------------------

    def flush(self) -> None:
        """Hand what is buffered to the kernel, once per turn."""
        if not self._out or self._transport is None:
            return
        out, self._out, self._out_bytes = self._out, [], 0
        self._transport.writelines(out)
        self._resume_handler()
        if self._transport.get_write_buffer_size() > OUTGOING_BYTES_MAX:
            log.warning("peer does not read", extra={"peer": self._peer})
            self.abort()

    def congested(self) -> bool:
        """Whether what this peer sent has not been written yet."""
        return self.handler is not None and self.handler.congested()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.resume_reading()

    def resume_writing(self) -> None:
        self._resume_handler()

    def _resume_handler(self) -> None:
        handler = self.handler
        if handler is not None and handler.held_back and self.outgoing_bytes() < OUTGOING_BYTES_PAUSE // 2:
            self._turn.guarded(handler.resume_deliveries)
            self._turn.request()

    def say_goodbye(self) -> None:
        if self.handler is not None:
            self._turn.guarded(self.handler.disconnect)
        self.close()

    def check(self) -> None:
        """Liveness, every connection-ttl-check-interval."""
        if self.handler is None or self._closing:
            return
        try:
            self.handler.check()
        except BrokerError as error:
            log.warning("connection dropped", extra={"peer": self._peer, "code": error.code, "error": str(error)})
            self.abort()

    def _detect(self, data: bytes) -> bytes:
        self._first += data
        wire = detect(self._first)
        if wire is Wire.NEED_MORE:
            return b""
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        if wire is not Wire.CORE:
            log.warning("protocol not served", extra={"peer": self._peer, "protocol": wire.name})
            self.close()
            return b""
        self.handler = self._acceptor.make_handler(self)
        first, self._first = self._first, b""
        return first

    def _handshake_timed_out(self) -> None:
        log.warning("connection dropped: it never showed a protocol", extra={"peer": self._peer})
        self.abort()
