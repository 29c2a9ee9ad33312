"""The client connections of a node, of all protocols, and the state in which the node takes no new sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from understudy.errors import BrokerError, SessionRejected
from understudy.session.connection_scope import ConnectionScope
from understudy.session.session import ServerSession


class ClientConnection(Protocol):
    """A connection as management sees it, whatever its protocol."""

    scope: ConnectionScope

    def open_sessions(self) -> Collection[ServerSession]:
        """Open sessions of the connection."""
        ...

    def fail(self, error: BrokerError) -> None:
        """Close the connection because of an error; its sessions end with it."""

    def end_session(self, session: ServerSession) -> None:
        """Close one of its sessions; the client is informed as far as the protocol allows."""


class ConnectionListener(Protocol):
    """Called when clients connect and disconnect."""

    def connection_added(self, scope: ConnectionScope) -> None:
        """Called when a client has connected."""

    def connection_removed(self, scope: ConnectionScope) -> None:
        """Called when the connection of a client has ended."""


class ConnectionRegistry:
    """The open connections, and the number of open sessions."""

    def __init__(self, listener: ConnectionListener | None = None) -> None:
        self.listener = listener
        self.connections: dict[ClientConnection, None] = {}
        """Connections in the order in which they were accepted."""
        self.total = 0
        """Number of connections since the activation."""
        self.session_count = 0
        self.stale_acknowledgements = 0
        """Number of acknowledgements of AMQP 0-9-1 that were ignored because they belong to deliveries of before
        (ADR 0195)."""
        """Number of open sessions; includes CORE sessions that wait to be reattached."""
        self.accepting = True
        """False while the node stops: new sessions are rejected, so that clients try another node."""
        self.scale_down_target: str | None = None
        """While the node stops: id of the node that gets its messages, to which clients are sent; None: none does."""
        self.critical_stop = False
        """Whether the node stops because of an error."""
        self.on_idle: Callable[[], None] | None = None
        """Called when the last session has ended."""

    def __len__(self) -> int:
        return len(self.connections)

    def opened(self, connection: ClientConnection) -> None:
        """Add a new connection."""
        self.connections[connection] = None
        self.total += 1
        if self.listener is not None:
            self.listener.connection_added(connection.scope)

    def ended(self, connection: ClientConnection) -> None:
        """Remove a connection that has ended."""
        self.connections.pop(connection, None)
        if self.listener is not None:
            self.listener.connection_removed(connection.scope)

    def check_accepting(self) -> None:
        """Raises SessionRejected while the node stops."""
        if not self.accepting:
            raise SessionRejected("the server is stopping")

    def session_opened(self) -> None:
        """Count a new session."""
        self.session_count += 1

    def session_ended(self) -> None:
        """Count a session that has ended."""
        self.session_count -= 1
        self.check_idle()

    def check_idle(self) -> None:
        """Call ``on_idle`` if no session is open."""
        if self.on_idle is not None and not self.session_count:
            self.on_idle()
