"""The layer of a connection that recognises its protocol and then puts the handler of that protocol in its place.

Every layer of a connection is a ``ConnectionHandler`` over a ``ports.Connection``: it gets the bytes of the layer below
and sends through it (ADR 0049). A layer that transforms bytes keeps the next one above itself; one that is done, like
this one, is replaced (``Layered.handler``).

Source: artemis-core s. 1.3. Limits before login: the first bytes must come within ``handshake-timeout``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from understudy.ports import SealableConnection
from understudy.protocols.handlers import ConnectionHandler, Handlers
from understudy.runtime.base.logs import MANAGEMENT
from understudy.session.prefixes import AddressPrefixes
from understudy.wire.detect import Protocol as Wire
from understudy.wire.detect import detect
from understudy.wire.refusals import refusal

log = logging.getLogger(__name__)


class Layered(SealableConnection, Protocol):
    """A connection whose layer above it can be replaced."""

    handler: ConnectionHandler | None

    def move_to(self, acceptor: Any) -> bool:
        """Belong to another acceptor of the process from now on; False: that takes no more connections."""
        ...


class LayerBeforeProtocol:
    """A layer that waits for the first bytes of a client, for a limited time. Implements ``ConnectionHandler`` but for
    ``receive_data``.
    """

    held_back = False
    held_up = False
    proved = False
    outlives_sessions = False

    def __init__(self, connection: Layered, timeout_ms: int, missing: str) -> None:
        """Args:
        connection: The layer below; gets the next layer.
        timeout_ms: The connection is aborted after that time; 0: never.
        missing: Name of the bytes that are waited for, for the log.
        """
        self._connection = connection
        self._missing = missing
        self._timer: asyncio.TimerHandle | None = None
        if timeout_ms > 0:
            self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._timed_out)

    def congested(self) -> bool:
        return False

    def resume_deliveries(self) -> None:
        """Do nothing: no message has been delivered."""

    def check(self) -> None:
        """Do nothing: the timer ends a silent connection."""

    def disconnect(self) -> None:
        """Do nothing: no protocol is known in which the client could be informed."""

    def prevent_reattachment(self) -> None:
        """Do nothing: the connection has no session."""

    def connection_lost(self, reason: str) -> None:
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self) -> None:
        connection = self._connection
        log.warning(
            "connection dropped: its first bytes did not come within the time limit",
            extra={"peer": connection.peer, "missing": self._missing},
        )
        connection.abort()


class Detection(LayerBeforeProtocol):
    """Makes the handler of the protocol of the first bytes. Implements ``ConnectionHandler``."""

    def __init__(self, connection: Layered, handlers: Handlers, prefixes: AddressPrefixes, timeout_ms: int) -> None:
        """No byte has come.

        Args:
            connection: The layer below; gets the handler of the protocol.
            handlers: Protocols that are served.
            prefixes: Prefixes of the acceptor, for the handler.
            timeout_ms: The connection is aborted after that time; 0: never.
        """
        super().__init__(connection, timeout_ms, "known protocol")
        self._handlers = handlers
        self._prefixes = prefixes
        self._first = b""

    def receive_data(self, data: bytes | memoryview) -> bool:
        """See ``ConnectionHandler``. The handler of the protocol gets all bytes that have come."""
        self._first += data
        wire = detect(self._first)
        if wire is Wire.NEED_MORE:
            return False
        self._stop_timer()
        connection = self._connection
        make_handler = self._handlers.get(wire)
        if make_handler is None:
            if wire is Wire.TLS:
                log.warning(
                    "connection closed: the client speaks TLS, this acceptor has none (sslEnabled)",
                    extra={"peer": connection.peer},
                )
                connection.close()
                return False
            answer = refusal(wire, self._first, MANAGEMENT.get(None), self._handlers)
            log.warning(
                "protocol not served",
                extra={"peer": connection.peer, "protocol": wire.name, "version": answer.version},
            )
            if answer.data:
                connection.send(answer.data)
            connection.close()
            return False
        handler = connection.handler = make_handler(connection, self._prefixes)
        return handler.receive_data(self._first)
