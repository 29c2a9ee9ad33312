"""Ports that several servers of a process share: their requests for an HTTP upgrade name the server (ADR 0073).

Source: reference/000 of the mission (one HTTP endpoint for a server and its colocated backups), artemis-ha s. 5. One
of the acceptors at a place listens for all of them. A request without a name is for the server whose acceptor has no
``activemqServerName``: the main one. Not here: the request (``wire.core.http_upgrade``) and its layer
(``runtime.net.upgrade``).
"""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Protocol, TypeVar

from understudy.config.model import AcceptorConfiguration
from understudy.wire.core.http_upgrade import UpgradeRefused


class SharedAcceptor(Protocol):
    """An acceptor with ``httpUpgradeEnabled=true``."""

    configuration: AcceptorConfiguration
    server: str
    """Name of the server that has the acceptor."""
    is_named: bool
    """Whether the acceptor takes only requests that name its server."""

    @property
    def is_open(self) -> bool:
        """Whether the acceptor takes connections; before that, it has only reserved its place."""
        ...

    def listen_for_all(self) -> None:
        """The acceptor that had the place has closed: take it, and listen there once this one is open."""
        ...


A = TypeVar("A", bound=SharedAcceptor)
_Place = tuple[str, int]


class Endpoints:
    """The open acceptors of a process that take HTTP upgrades, and the names of its servers."""

    def __init__(self) -> None:
        self.servers: set[str] = set()
        """Names of the servers of the process, active or not."""
        self._open: dict[_Place, list[SharedAcceptor]] = {}
        """Acceptors of each place, of which the first one listens."""

    def join(self, acceptor: SharedAcceptor) -> bool:
        """Add an acceptor to its place; return whether it has to bind and listen, because no other one listens there.

        Raises:
            OSError: another acceptor takes the same requests.
        """
        place = _place(acceptor)
        others = self._open.get(place, [])
        for other in others if acceptor.configuration.port else ():
            if other.server == acceptor.server or (not other.is_named and not acceptor.is_named):
                text = f"server {other.server!r} of this process takes requests there"
                raise OSError(errno.EADDRINUSE, text)
        self._open.setdefault(place, []).append(acceptor)
        return not others or not acceptor.configuration.port

    def leave(self, acceptor: SharedAcceptor) -> None:
        """Remove an acceptor that does not listen any more. Does nothing if it was removed before."""
        place = _place(acceptor)
        here = self._open.get(place, [])
        if acceptor not in here:
            return
        listened = here[0] is acceptor
        here.remove(acceptor)
        if not here:
            del self._open[place]
        elif listened and acceptor.configuration.port:
            here[0].listen_for_all()

    def find(self, at: A, server: str | None) -> A:
        """The acceptor that a request is for.

        Args:
            at: The acceptor that has got it.
            server: Name in the request; None: the main server.

        Raises:
            UpgradeRefused: there is no such server here, or it is not active.
        """
        if server == at.server or (server is None and not at.is_named):
            return at
        for other in self._open.get(_place(at), ()) if at.configuration.port else ():
            meant = server == other.server or (server is None and not other.is_named)
            if meant and other.is_open and isinstance(other, type(at)):
                return other
        if server is None or server in self.servers:
            text = "the main server" if server is None else f"server {server!r}"
            raise UpgradeRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"{text} of this process is not active")
        raise UpgradeRefused(HTTPStatus.NOT_FOUND, f"no server {server!r} here")


def _place(acceptor: SharedAcceptor) -> _Place:
    return acceptor.configuration.host.lower(), acceptor.configuration.port
