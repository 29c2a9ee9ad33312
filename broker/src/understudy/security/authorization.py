"""Authorization: permissions of roles on addresses, from the security-settings.

For an address the most specific match counts and nothing is inherited from less specific ones; a
setting for ``address::queue`` counts for that queue only, before any other; where nothing matches
no permission is granted (manual, "Role-based security for addresses").

Not here: which operation needs which permission (``session``). Invariant: an absent setting grants
nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from understudy.config.model import Configuration
from understudy.dataclass import dataclass
from understudy.errors import NotAuthorized
from understudy.ports import Clock, Entropy
from understudy.security.authentication import (
    Authenticator,
    Guest,
    LoginCache,
    OtherLogins,
    PasswordCheck,
    Principal,
    Rehashed,
    parse_certificate_users,
    parse_roles,
    parse_users,
)
from understudy.security.certificate_users import CertificateUsers
from understudy.security.login_modules import LoginModule
from understudy.security.password_hashes import DEFAULT_PARAMETERS, HashParameters
from understudy.security.settings import FQQN_SEPARATOR, SecuritySettings
from understudy.terms import Permission
from understudy.tls.certificates import DistinguishedName

__all__ = ["NoSecurity", "Permission", "Principal", "RoleSecurity", "SecurityPolicy", "security_policy"]


class SecurityPolicy(ABC):
    """Authentication and permissions of clients."""

    settings: SecuritySettings
    """Permissions by match; shown by management even if security is disabled."""
    permission_ms: int = 10_000
    """Time for which a session may reuse an answer of ``check`` (security-invalidation-interval)."""
    checks: bool = False
    """Whether permissions are checked; otherwise nothing is counted."""
    allowed_count: int = 0
    """Number of calls of ``check`` that granted the permission."""
    refused_count: int = 0
    """Number of calls of ``check`` that refused it."""

    asks_directory: bool = False
    """Whether logins may wait for a directory."""

    @property
    def known_logins(self) -> int:
        """Present entries of the cache of logins."""
        return 0

    @property
    def known_answers(self) -> int:
        """Present entries of the cache of permissions."""
        return 0

    def users(self) -> Sequence[Principal]:
        """Users that the files of the broker name; none without security."""
        return ()

    @abstractmethod
    def begin(
        self, user: str | None, password: str | None, certificate: DistinguishedName | None = None
    ) -> Principal | PasswordCheck:
        """The principal of a client, or the slow check that is required first.

        Args:
            user: User name of the login.
            certificate: Subject of the verified certificate of the client; None: it has none.

        Raises:
            AuthenticationFailed: the credentials are invalid.
        """

    def takes_certificate(self, certificate: DistinguishedName) -> bool:
        """Whether a client with this verified certificate can log in without a password."""
        return True

    def authenticate(self, user: str | None, password: str | None) -> Principal:
        """The principal of a client; blocks for the time of the check. Raises AuthenticationFailed."""
        found = self.begin(user, password)
        if isinstance(found, Principal):
            return found
        right = found.run()
        return found.finish(bool(found.run() if right is None else right))

    @abstractmethod
    def check(self, principal: Principal, permission: Permission, address: str, queue: str | None = None) -> None:
        """Check a permission. Raises NotAuthorized, which names user, permission and address."""

    @abstractmethod
    def allows(self, principal: Principal, permission: Permission, address: str, queue: str | None = None) -> bool:
        """Whether the principal has a permission. Not counted."""


class NoSecurity(SecurityPolicy):
    """security-enabled=false: user names are not verified, and every client has every permission."""

    def __init__(self, settings: SecuritySettings | None = None) -> None:
        self.settings = settings or SecuritySettings()

    def begin(
        self, user: str | None, password: str | None, certificate: DistinguishedName | None = None
    ) -> Principal | PasswordCheck:
        return Principal(user or "")

    def check(self, principal: Principal, permission: Permission, address: str, queue: str | None = None) -> None:
        return

    def allows(self, principal: Principal, permission: Permission, address: str, queue: str | None = None) -> bool:
        return True


class RoleSecurity(SecurityPolicy):
    """Users with passwords, and permissions by role."""

    checks = True

    def __init__(
        self,
        authenticator: Authenticator,
        settings: SecuritySettings,
        *,
        cache_size: int = 1000,
        permission_ms: int = 10_000,
    ) -> None:
        """Args:
        authenticator: Checks users and passwords.
        settings: The security-settings.
        cache_size: Answers in the cache (authorization-cache-size).
        permission_ms: Time for which sessions may reuse an answer (security-invalidation-interval).
        """
        self.permission_ms = permission_ms
        self._authenticator = authenticator
        self.asks_directory = any(each.directory is not None for each in authenticator.modules)
        self.settings = settings
        self._cache_size = cache_size
        self._answers: dict[tuple[Principal, Permission, str, str | None], bool] = {}
        self._users_changed = False
        # any change invalidates all cached answers
        settings.listeners.append(self._answers.clear)

    @property
    def known_logins(self) -> int:
        return self._authenticator.known_count

    @property
    def known_answers(self) -> int:
        return len(self._answers)

    def takes_certificate(self, certificate: DistinguishedName) -> bool:
        return self._authenticator.takes_certificate(certificate)

    def begin(
        self, user: str | None, password: str | None, certificate: DistinguishedName | None = None
    ) -> Principal | PasswordCheck:
        return self._authenticator.begin(user, password, certificate)

    def users(self) -> Sequence[Principal]:
        return self._authenticator.principals()

    def change_users(self, authenticator: Authenticator) -> None:
        """Replace users and roles. Open sessions have the new roles of their user from then on, and no permissions once
        the user is removed; cached logins are dropped.
        """
        self._authenticator = authenticator
        self._users_changed = True
        self.settings.notify()

    def _current(self, principal: Principal) -> Principal:
        """The principal with the roles that its user has now."""
        if not self._users_changed or principal.by_directory:
            return principal
        if principal.by_certificate:
            current = self._authenticator.certificate_principal(principal.user)
        else:
            current = self._authenticator.principal(principal.user)
            if current is not None and principal.directory_roles:
                current = Principal(principal.user, current.roles | principal.directory_roles)
        return current or Principal(principal.user)

    def check(self, principal: Principal, permission: Permission, address: str, queue: str | None = None) -> None:
        if self.allows(principal, permission, address, queue):
            self.allowed_count += 1
            return
        self.refused_count += 1
        if queue is None and FQQN_SEPARATOR in address:
            address, _, queue = address.partition(FQQN_SEPARATOR)
        where = f"address {address!r}" if queue is None else f"queue {queue!r} of address {address!r}"
        raise NotAuthorized(f"user {principal.user!r} has no permission {permission.value!r} on {where}")

    def allows(self, principal: Principal, permission: Permission, address: str, queue: str | None = None) -> bool:
        if queue is None and FQQN_SEPARATOR in address:
            address, _, queue = address.partition(FQQN_SEPARATOR)
        if principal.of_cluster:
            return True
        principal = self._current(principal)
        key = (principal, permission, address, queue)
        allowed = self._answers.get(key)
        if allowed is None:
            setting = self.settings.of(address, queue)
            allowed = setting is not None and not principal.roles.isdisjoint(setting.permissions.get(permission, ()))
            self._remember(key, allowed)
        return allowed

    def _remember(self, key: tuple[Principal, Permission, str, str | None], allowed: bool) -> None:
        if self._cache_size <= 0:
            return
        if len(self._answers) >= self._cache_size:
            # Drop the oldest entry: a dict keeps the order of insertion.
            del self._answers[next(iter(self._answers))]
        self._answers[key] = allowed


@dataclass(frozen=True, slots=True)
class CertificateTexts:
    """The files of users of certificates and their roles."""

    users: str
    users_file: str
    """Name of the users file, for messages of errors."""
    roles: str
    roles_file: str
    """Name of the roles file, for messages of errors."""


@dataclass(frozen=True, slots=True)
class UserTexts:
    """The files of users and roles."""

    users: str
    """Text of the users file."""
    users_file: str
    """Name of the users file, for messages."""
    roles: str
    """Text of the roles file."""
    roles_file: str
    """Name of the roles file, for messages."""
    certificates: CertificateTexts | None = None
    """Files of users of certificates; None: there are none, and a certificate is no login."""
    modules: tuple[LoginModule, ...] = ()
    """Login modules that prove passwords, if one of them asks a directory; empty: the users file alone."""


NO_USERS: Final = UserTexts("", "", "", "")
"""Empty files of users and roles, for a node without security."""


def security_policy(
    configuration: Configuration,
    entropy: Entropy,
    clock: Clock,
    texts: UserTexts,
    *,
    allow_plain: bool = False,
    parameters: HashParameters = DEFAULT_PARAMETERS,
    rehashed: Rehashed | None = None,
) -> SecurityPolicy:
    """The policy for a configuration.

    Args:
        configuration: Configuration with security-enabled, the settings and the cache sizes.
        clock: Used for the age of successful checks.
        texts: Users and roles; ignored if security is disabled.
        allow_plain: Accept plain passwords in the users file.
        parameters: Cost of hashing those.
        rehashed: Keeps the hash that replaces one of Artemis.

    Raises:
        ConfigError: an invalid file of users or roles.
    """
    settings = SecuritySettings(configuration.security_settings, configuration.wildcards)
    if not configuration.security_enabled:
        return NoSecurity(settings)
    return RoleSecurity(
        authenticator_of(
            configuration, entropy, clock, texts, allow_plain=allow_plain, parameters=parameters, rehashed=rehashed
        ),
        settings,
        cache_size=configuration.authorization_cache_size,
        permission_ms=configuration.security_invalidation_interval_ms,
    )


def authenticator_of(
    configuration: Configuration,
    entropy: Entropy,
    clock: Clock,
    texts: UserTexts,
    *,
    allow_plain: bool = False,
    parameters: HashParameters = DEFAULT_PARAMETERS,
    rehashed: Rehashed | None = None,
) -> Authenticator:
    """Users and roles from the texts of their files. Arguments and errors are those of ``security_policy``."""
    return Authenticator(
        parse_users(
            texts.users, file=texts.users_file, entropy=entropy, allow_plain=allow_plain, parameters=parameters
        ),
        parse_roles(texts.roles, file=texts.roles_file),
        entropy,
        clock,
        cache=LoginCache(configuration.authentication_cache_size, configuration.security_invalidation_interval_ms),
        others=OtherLogins(_guest(configuration), _certificate_users(texts.certificates), texts.modules),
        rehashed=rehashed,
    )


def _certificate_users(texts: CertificateTexts | None) -> CertificateUsers | None:
    if texts is None:
        return None
    return parse_certificate_users(
        texts.users, users_file=texts.users_file, roles=texts.roles, roles_file=texts.roles_file
    )


def _guest(configuration: Configuration) -> Guest | None:
    if not configuration.guest_login:
        return None
    principal = Principal(configuration.guest_user, frozenset({configuration.guest_role}))
    return Guest(principal, configuration.guest_login_on_wrong_credentials)
