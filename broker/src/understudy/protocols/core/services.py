"""What every CORE connection of one active node shares."""

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

    def connection_added(self, scope: ConnectionScope) -> None: ...

    def connection_removed(self, scope: ConnectionScope) -> None: ...

    def login_refused(self, user: str | None, remote_address: str) -> None: ...

    def permission_refused(self, user: str, permission: Permission, address: str) -> None: ...


class PrincipalSecurity:
    """What one authenticated client may do; implements ``session.security.SessionSecurity``."""

    __slots__ = ("_listener", "_policy", "_principal")

    def __init__(
        self, policy: SecurityPolicy, principal: Principal, listener: ConnectionListener | None = None
    ) -> None:
        self._policy = policy
        self._principal = principal
        self._listener = listener

    @property
    def user(self) -> str:
        return self._principal.user

    @property
    def permission_ms(self) -> int:
        return self._policy.permission_ms

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        try:
            self._policy.check(self._principal, permission, address, queue)
        except NotAuthorized:
            if self._listener is not None:
                self._listener.permission_refused(self.user, permission, address)
            raise

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        return self._policy.allows(self._principal, permission, address, queue)


@dataclass(slots=True)
class CoreServices:
    """Given to each ``CoreConnection``; made by ``broker``."""

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
    """None when no cluster-connection is configured: cluster links are refused."""
    validated_users: ValidatedUsers = NO_VALIDATED_USERS
    """What is done with the user of every message."""
    connection_ttl_override_ms: int = -1
    accepting: bool = True
    """False while stopping: new sessions are rejected, clients try again elsewhere."""
    critical_stop: bool = False
    """Stopping because of an error."""
    on_idle: Callable[[], None] | None = None
    """Called when the last session has ended."""
    resend_budget: ResendBudget = field(default_factory=ResendBudget)
    connections: dict[CoreConnection, None] = field(default_factory=dict)
    """In the order they came."""
    management: Management | None = None
    """Carries out requests that are sent to the management address; None: there is no such address."""
    listener: ConnectionListener | None = None
    error_texts: ErrorTexts = field(default_factory=ErrorTexts)
    connections_total: int = 0
    """Clients that connected since the activation."""

    def opened(self, connection: CoreConnection) -> None:
        """A client has connected."""
        self.connections[connection] = None
        self.connections_total += 1
        if self.listener is not None:
            self.listener.connection_added(connection.scope)

    def ended(self, connection: CoreConnection) -> None:
        """A connection is gone."""
        self.connections.pop(connection, None)
        if self.listener is not None:
            self.listener.connection_removed(connection.scope)

    def session_ended(self) -> None:
        """One of the sessions is gone."""
        if self.on_idle is not None and not self.session_count():
            self.on_idle()

    def session_count(self) -> int:
        """Sessions of all connections, and those that wait for theirs."""
        return sum(len(connection.sessions) for connection in self.connections) + self.reattachments.detached_count
