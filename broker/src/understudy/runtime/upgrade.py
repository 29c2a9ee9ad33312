"""HTTP upgrade at an acceptor: the layer that answers the request.

An acceptor with ``httpUpgradeEnabled=true`` takes the request beside plain connections. The request may name the server
and the acceptor that are meant; others than these are refused.

Source: artemis-core s. 1.4; ADR 0069. Not here: the request and its answers (``wire.core.http_upgrade``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus

from understudy.protocols.handlers import ConnectionHandler
from understudy.runtime.detection import LayerBeforeProtocol, Layered
from understudy.wire.core.http_upgrade import (
    UpgradeRefused,
    UpgradeRequest,
    accepted,
    read_request,
    refused,
    split_head,
)

log = logging.getLogger(__name__)

MakeLayer = Callable[[Layered], ConnectionHandler]
"""Makes the layer above the socket or TLS of a connection: the detection of its protocol."""


class UpgradeLayer(LayerBeforeProtocol):
    """Waits for the request of a client and answers it. Implements ``ConnectionHandler``."""

    def __init__(self, connection: Layered, server: str, endpoint: str, make: MakeLayer, timeout_ms: int) -> None:
        """Args:
        connection: The layer below; gets the next one.
        server: Name of the node.
        endpoint: Name of the acceptor.
        make: Makes the next layer.
        timeout_ms: The connection is aborted if the request is not complete by then; 0: never.
        """
        super().__init__(connection, timeout_ms, "complete upgrade request")
        self._server = server
        self._endpoint = endpoint
        self._make = make
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
            self._check_request(request)
        except UpgradeRefused as error:
            self._stop_timer()
            log.warning(
                "upgrade refused", extra={"peer": connection.peer, "status": error.status.value, "reason": str(error)}
            )
            connection.send(refused(error))
            connection.close()
            return False
        connection.send(accepted(request))
        handler = connection.handler = self._make(connection)
        return handler.receive_data(rest) if rest else False

    def _check_request(self, request: UpgradeRequest) -> None:
        """Raises UpgradeRefused: another server or acceptor is meant."""
        if request.server not in (None, self._server):
            raise UpgradeRefused(HTTPStatus.NOT_FOUND, f"no server {request.server!r} here")
        if request.endpoint not in (None, self._endpoint):
            raise UpgradeRefused(HTTPStatus.NOT_FOUND, f"no endpoint {request.endpoint!r} here")
