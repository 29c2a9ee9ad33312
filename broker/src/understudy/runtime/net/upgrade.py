"""HTTP upgrade at an acceptor: the layer that answers the request.

An acceptor with ``httpUpgradeEnabled=true`` takes the request beside plain connections. The request may name the server
and the acceptor that are meant: the connection then belongs to that one.

Source: artemis-core s. 1.4; ADR 0069. Not here: the request and its answers (``wire.core.http_upgrade``), and the
servers that share a port (``runtime.net.endpoints``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, cast

from understudy.config.colocated import SERVER_NAME
from understudy.config.model import AcceptorConfiguration
from understudy.dataclass import dataclass
from understudy.ports import SealableConnection
from understudy.protocols.handlers import ConnectionHandler, Handlers
from understudy.runtime.net.detection import LayerBeforeProtocol, Layered
from understudy.runtime.net.endpoints import Endpoints
from understudy.session.prefixes import AddressPrefixes
from understudy.wire.core.http_upgrade import (
    UpgradeRefused,
    UpgradeRequest,
    accepted,
    read_request,
    refused,
    split_head,
)
from understudy.wire.detect import Protocol as Wire

log = logging.getLogger(__name__)

MakeLayer = Callable[[Layered], ConnectionHandler]
"""Makes the layer above the socket or TLS of a connection: the detection of its protocol."""
Dispatch = Callable[[Layered, UpgradeRequest], MakeLayer]
"""Gives the connection to the acceptor that is meant, and returns its next layer. Raises UpgradeRefused: there is none.
"""


@dataclass(frozen=True, slots=True)
class UpgradeServer:
    """The server of an acceptor, for requests for an HTTP upgrade."""

    name: str
    endpoints: Endpoints | None = None
    """Acceptors of the process that share ports; None: none does."""


class Upgradable(Protocol):
    """An acceptor that takes HTTP upgrades. Implements ``SharedAcceptor``."""

    configuration: AcceptorConfiguration
    is_open: bool

    def upgraded(self, connection: Layered) -> ConnectionHandler:
        """The layer of a connection after its upgrade."""
        ...

    def listen_for_all(self) -> None: ...


class Upgrades:
    """The HTTP upgrades at one acceptor. Implements ``endpoints.SharedAcceptor``."""

    def __init__(self, acceptor: Upgradable, server: UpgradeServer) -> None:
        """Args:
        acceptor: Acceptor with ``httpUpgradeEnabled=true``.
        """
        self.acceptor = acceptor
        self.configuration = acceptor.configuration
        name = acceptor.configuration.parameters.get(SERVER_NAME)
        self.is_named = name is not None
        self.server = server.name if name is None else str(name)
        self._endpoints = Endpoints() if server.endpoints is None else server.endpoints
        self.listen_for_all = acceptor.listen_for_all

    @property
    def is_open(self) -> bool:
        return self.acceptor.is_open

    def join(self) -> bool:
        """Add the acceptor to the shared place. Returns and raises as ``Endpoints.join``."""
        return self._endpoints.join(self)

    def leave(self) -> None:
        """The acceptor does not listen any more."""
        self._endpoints.leave(self)

    def first_handlers(self, handlers: Handlers) -> Handlers:
        """Protocols of the clients that connect to the port: a client that names no server wants the main one."""
        return {**({} if self.is_named else handlers), Wire.HTTP: self._layer}

    def _layer(self, connection: SealableConnection, prefixes: AddressPrefixes) -> ConnectionHandler:
        return UpgradeLayer(cast(Layered, connection), self._dispatch, self.configuration.handshake_timeout_ms)

    def _dispatch(self, connection: Layered, request: UpgradeRequest) -> MakeLayer:
        meant = self._endpoints.find(self, request.server)
        if request.endpoint not in (None, meant.configuration.name):
            raise UpgradeRefused(HTTPStatus.NOT_FOUND, f"no endpoint {request.endpoint!r} here")
        if meant is not self and not connection.move_to(meant.acceptor):
            text = f"server {meant.server!r} takes no more connections"
            raise UpgradeRefused(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return meant.acceptor.upgraded


class UpgradeLayer(LayerBeforeProtocol):
    """Waits for the request of a client and answers it. Implements ``ConnectionHandler``."""

    def __init__(self, connection: Layered, dispatch: Dispatch, timeout_ms: int) -> None:
        """Args:
        connection: The layer below; gets the next one.
        dispatch: Finds the acceptor that is meant.
        timeout_ms: The connection is aborted if the request is not complete by then; 0: never.
        """
        super().__init__(connection, timeout_ms, "complete upgrade request")
        self._dispatch = dispatch
        self._data = b""

    def receive_data(self, data: bytes | memoryview) -> bool:
        """See ``ConnectionHandler``. The next layer gets all bytes after the request."""
        self._data += data
        connection = self._connection
        try:
            found = split_head(self._data)
            if found is None:
                return False
            self._stop_timer()
            head, rest = found
            request = read_request(head)
            make = self._dispatch(connection, request)
            connection.upgrade_without_name = request.server is None
        except UpgradeRefused as error:
            self._stop_timer()
            log.warning(
                "upgrade refused", extra={"peer": connection.peer, "status": error.status.value, "reason": str(error)}
            )
            connection.send(refused(error))
            connection.close()
            return False
        connection.send(accepted(request))
        handler = connection.handler = make(connection)
        return handler.receive_data(rest) if rest else False
