"""Listening sockets of the management API: options are checked and addresses bound before the node activates.

Not here: the responses (``runtime.management.http``). Its modules take longer to import than a node to activate, so
they are loaded concurrently; connections made before that wait in the backlog of the sockets.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from understudy.errors import ConfigError
from understudy.runtime.net.listening import bound_socket
from understudy.texts import reason_of

#: Shortest token accepted. Characters.
TOKEN_CHARACTERS_MIN: Final = 16
#: Backlog of the listening sockets.
BACKLOG: Final = 100
PORT_MAX: Final = 65_535


class ManagementListener:
    """The address, the token and the sockets of one node's management API.

    Args:
        host: Address to listen on.
        port: 0 takes a free one; see ``port`` after ``listen``.
        token: The bearer token. Empty: only ``/health/*`` is served, the rest answers 401.
        allow_remote: Required for a host that is not loopback.

    Raises:
        ConfigError: the host is not loopback and that is not allowed, the port is invalid, or the token is too short.
    """

    def __init__(self, host: str, port: int, token: str, *, allow_remote: bool = False) -> None:
        if not allow_remote and not is_loopback(host):
            raise ConfigError(
                f"management would listen on {host}, which is not loopback",
                hint="allow it explicitly, and only with a TLS proxy or on a trusted network",
            )
        if port > PORT_MAX:
            raise ConfigError(f"management cannot listen on {host}:{port}: a port is at most {PORT_MAX}")
        if token and (len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable()):
            raise ConfigError(f"the management token must be at least {TOKEN_CHARACTERS_MIN} printable characters")
        self.host = host
        self.port = port
        self.token = token.encode()
        self.sockets: list[socket.socket] = []
        """Listening sockets, one per address of the host name."""

    @property
    def url(self) -> str:
        """URL for a client on this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def listen(self) -> None:
        """Bind the sockets and listen.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        try:
            found = socket.getaddrinfo(self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
                self.sockets.append(self._listening(family, address))
        except OSError as error:
            self.close()
            raise ConfigError(f"management cannot listen on {self.host}:{self.port}: {reason_of(error)}") from error
        self.port = self.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Close the sockets. Does nothing if there are none."""
        while self.sockets:
            self.sockets.pop().close()

    def _listening(self, family: int, address: tuple[object, ...]) -> socket.socket:
        listening = bound_socket(family, address)
        try:
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
        return listening


def is_loopback(host: str) -> bool:
    """Whether listening on ``host`` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
