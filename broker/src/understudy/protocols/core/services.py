"""Services shared by all CORE connections of one active node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from understudy.cluster.credentials import ClusterCredentials
from understudy.cluster.topology import Topology
from understudy.config.model import Permission
from understudy.errors import NotAuthorized
from understudy.ports import Clock, Entropy
from understudy.protocols.core.reattachment import Reattachments
from understudy.protocols.core.resend import ResendBudget
from understudy.routing.post_office import PostOffice
from understudy.security.authorization import Principal, SecurityPolicy
from understudy.security.logins import Logins
from understudy.session.connection_scope import ConnectionScope
from understudy.session.error_texts import ErrorTexts
from understudy.session.management import Management
from understudy.session.registry import SessionRegistry
from understudy.session.resource_registry import ResourceRegistry
from understudy.session.session import NO_VALIDATED_USERS
from understudy.session.validated_users import ValidatedUsers
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.protocols.core.connection import CoreConnection


class ConnectionListener(Protocol):
    """Called when clients connect, disconnect and are refused."""

    def connection_added(self, scope: ConnectionScope) -> None:
        """A client has connected."""

    def connection_removed(self, scope: ConnectionScope) -> None:
        """The connection of a client has ended."""

    def login_refused(self, user: str | None, remote_address: str) -> None:
        """A login failed."""

    def permission_refused(self, user: str, permission: Permission, address: str) -> None:
        """A client lacked a permission."""


class PrincipalSecurity:
    """Permissions of one authenticated client; implements ``session.security.SessionSecurity``."""

    __slots__ = ("_listener", "_policy", "_principal")

    def __init__(
        self, policy: SecurityPolicy, principal: Principal, listener: ConnectionListener | None = None
    ) -> None:
        self._policy = policy
        self._principal = principal
        self._listener = listener

    @property
    def user(self) -> str:
        """Name of the user."""
        return self._principal.user

    @property
    def permission_ms(self) -> int:
        """Time for which an answer of ``check`` may be reused, in milliseconds."""
        return self._policy.permission_ms

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        """Check a permission. Raises NotAuthorized."""
        try:
            self._policy.check(self._principal, permission, address, queue)
        except NotAuthorized:
            if self._listener is not None:
                self._listener.permission_refused(self.user, permission, address)
            raise

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        """Whether the client has a permission; not counted."""
        return self._policy.allows(self._principal, permission, address, queue)


@dataclass(slots=True)
class CoreServices:
    """Services given to each ``CoreConnection``; created by ``broker``."""

    node_id: str
    post_office: PostOffice
    store: MessageStore
    security: SecurityPolicy
    topology: Topology
    clock: Clock
    entropy: Entropy
    registry: SessionRegistry
    resources: ResourceRegistry
    reattachments: Reattachments
    logins: Logins
    credentials: ClusterCredentials | None
    """None when no cluster-connection is configured: connections of other nodes are refused."""
    validated_users: ValidatedUsers = NO_VALIDATED_USERS
    """How the validated user is added to messages."""
    connection_ttl_override_ms: int = -1
    accepting: bool = True
    """False while stopping: new sessions are rejected, so that clients try another node."""
    critical_stop: bool = False
    """Whether the node stops because of an error."""
    on_idle: Callable[[], None] | None = None
    """Called when the last session has ended."""
    resend_budget: ResendBudget = field(default_factory=ResendBudget)
    connections: dict[CoreConnection, None] = field(default_factory=dict)
    """Connections in the order in which they were accepted."""
    management: Management | None = None
    """Handles requests to the management address; None if there is no such address."""
    listener: ConnectionListener | None = None
    error_texts: ErrorTexts = field(default_factory=ErrorTexts)
    connections_total: int = 0
    """Number of connections since the activation."""

    def opened(self, connection: CoreConnection) -> None:
        """Add a new connection."""
        self.connections[connection] = None
        self.connections_total += 1
        if self.listener is not None:
            self.listener.connection_added(connection.scope)

    def ended(self, connection: CoreConnection) -> None:
        """Remove a connection that has ended."""
        self.connections.pop(connection, None)
        if self.listener is not None:
            self.listener.connection_removed(connection.scope)

    def session_ended(self) -> None:
        """A session has ended."""
        if self.on_idle is not None and not self.session_count():
            self.on_idle()

    def session_count(self) -> int:
        """Number of sessions, detached ones included."""
        return sum(len(connection.sessions) for connection in self.connections) + self.reattachments.detached_count
