"""Opening a socket: name look-up, connect and TLS handshake, on a thread that ends with it.

A name cannot be looked up without blocking, and several dials may be under way at a time (ADR 0043).
"""

from __future__ import annotations

import secrets
import socket
import threading
from typing import Protocol

from understudy.client.core.connection.upgrade import upgrade_of
from understudy.client.core.url.options import Connector
from understudy.client.host import tune
from understudy.client.tls import tls_context
from understudy.errors import BrokerError, RemoteProtocolError


class Dialled(Protocol):
    """The connection that dials. Called on the thread of the dial, without a lock."""

    def dialled(self, dial: Dial, connection: socket.socket) -> None:
        """The socket is open."""
        ...

    def not_dialled(self, dial: Dial, error: Exception) -> None:
        """Report that the connection could not be opened."""
        ...


class Dial:
    """One dial under way."""

    def __init__(self, link: Dialled, connector: Connector, attempt: int) -> None:
        self.connector = connector
        self.attempt = attempt
        """The number that the core gave it."""
        self.cancelled = False
        """Whether the outcome is not wanted any more."""
        self._link = link
        threading.Thread(target=self._run, name=f"understudy-client-dial-{connector}", daemon=True).start()

    def _run(self) -> None:
        try:
            connection = self._open()
        except (OSError, ValueError, BrokerError) as error:
            self._link.not_dialled(self, error)
        else:
            self._link.dialled(self, connection)

    def _open(self) -> socket.socket:
        connector, tls = self.connector, self.connector.tls
        source = None
        if connector.local_address is not None or connector.local_port:
            source = (connector.local_address or "0.0.0.0", connector.local_port)
        # The core gives the dial up after the same time; without it a thread to a host that has vanished would stay.
        timeout_s = connector.connect_timeout_ms / 1000
        connection = socket.create_connection((connector.host, connector.port), timeout_s, source)
        try:
            tune(connection, connector)
            if tls is not None:
                context = tls_context(tls)
                connection = context.wrap_socket(connection, server_hostname=tls.sni_host or connector.host)
            _upgrade(connection, connector)
        except BaseException:
            connection.close()
            raise
        return connection


def _upgrade(connection: socket.socket, connector: Connector) -> None:
    """Request the HTTP upgrade, if there is one.

    Raises:
        OSError: no answer within the time limit of the socket, or the connection has ended.
        BrokerError: the server refuses it.
    """
    exchange = upgrade_of(connector, secrets.token_bytes(16))
    if exchange is None:
        return
    connection.sendall(exchange.request)
    rest = None
    while rest is None:
        # byte by byte: the broker speaks only when it is asked, but what follows would be lost here
        data = connection.recv(1)
        if not data:
            raise RemoteProtocolError("the server has closed the connection instead of an answer to the HTTP upgrade")
        rest = exchange.receive(data)
