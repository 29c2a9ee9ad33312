"""Access control of clients: their permissions, and reports of violations."""

from __future__ import annotations

from typing import Protocol

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, NotAuthorized
from understudy.ports import Clock, Worker
from understudy.security.authentication import Principal
from understudy.security.authorization import SecurityPolicy
from understudy.security.login_guard import LoginGuard
from understudy.security.logins import Logins
from understudy.security.refusal_log import RefusalLog
from understudy.session.connection_scope import ConnectionScope
from understudy.terms import Permission


class AccessListener(Protocol):
    """Called when a login or a request of a client is refused."""

    def login_refused(self, user: str | None, scope: ConnectionScope) -> None:
        """Called when a login failed on a connection."""

    def permission_refused(self, user: str, permission: Permission, address: str) -> None:
        """A client lacked a permission."""


class PrincipalSecurity:
    """Permissions of one authenticated client; implements ``session.callback.SessionSecurity``."""

    __slots__ = ("_listener", "_policy", "_principal")

    def __init__(self, policy: SecurityPolicy, principal: Principal, listener: AccessListener | None = None) -> None:
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
        """Whether the client has a permission; not reported as a violation."""
        return self._policy.allows(self._principal, permission, address, queue)


@dataclass(frozen=True, slots=True)
class LoginWorkers:
    """Threads for checks of passwords."""

    computing: Worker
    asking: Worker | None = None
    """Threads for checks that ask a directory; None: no check does."""


class Access:
    """Authentication and authorisation of the clients of a node."""

    def __init__(
        self,
        policy: SecurityPolicy,
        clock: Clock,
        workers: LoginWorkers,
        listener: AccessListener | None = None,
    ) -> None:
        """Args:
        policy: Users, roles and permissions.
        clock: Used for the time after failed logins.
        workers: Check passwords.
        listener: Called for violations.
        """
        self.policy = policy
        self.logins = Logins(policy, LoginGuard(clock), workers.computing, lookups=workers.asking)
        """Password checks, and the number of failed logins."""
        self.listener = listener
        self._refusals = RefusalLog(clock)

    def permissions(self, principal: Principal) -> PrincipalSecurity:
        """Permissions of a client that has logged in."""
        return PrincipalSecurity(self.policy, principal, self.listener)

    def validated_user(self, principal: Principal) -> str | None:
        """The user name of a login; None if passwords are not checked."""
        return principal.user if self.policy.checks else None

    def login_refused(self, user: str | None, scope: ConnectionScope, error: BrokerError) -> None:
        """Report a failed login on a connection, and log it."""
        self._refusals.note(user, scope.remote_address, scope.connection_id, error)
        if self.listener is not None:
            self.listener.login_refused(user, scope)
