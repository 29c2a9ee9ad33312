"""Authentication: users, salted password hashes, and the roles of each user.

Users and roles are given as the text of Artemis' ``artemis-users.properties`` (``user = ENC(...)``) and
``artemis-roles.properties`` (``role = user, user``). A stored password is a hash (``password_hashes``); plain ones are
refused unless the caller allows them. A check takes equally long for a wrong password and for an unknown user, and a
success is cached for a short time (security-invalidation-interval) as a keyed digest, so that the password of many
clients that reconnect at once is hashed once. A hash of Artemis is replaced by a scrypt hash at the first login with
the correct password.

Hashing is slow by design (tens of milliseconds). ``begin`` never does it: it answers from the cache or
returns a ``PasswordCheck``, which is run on another thread (``logins``). If directories can prove passwords as well
(``login_modules``), a check has a second part, which waits for their answers.

Not here: permissions (``authorization``), and reading the files. Invariant: no password is
kept after its check, compared in variable time, or included in a message.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import AuthenticationFailed, ConfigError, SessionRejected
from understudy.ports import Clock, Entropy
from understudy.security.certificate_users import CertificateUsers, make_certificate_users
from understudy.security.login_modules import Decision, LoginModule, decide, decide_without_directory
from understudy.security.password_hashes import (
    DEFAULT_PARAMETERS,
    HASH_BYTES,
    SALT_BYTES,
    ArtemisHash,
    HashParameters,
    PasswordHash,
    StoredPassword,
    stored_password,
)
from understudy.security.properties_file import entries
from understudy.tls.certificates import DistinguishedName

log = logging.getLogger(__name__)

#: Longest user name or password that is accepted. Characters.
CREDENTIAL_CHARACTERS_MAX: Final = 4096
#: Number of correct passwords remembered as keyed digests until the users file is read again.
RIGHT_PASSWORDS_MAX: Final = 10_000

Rehashed = Callable[[str, ArtemisHash, PasswordHash], None]
"""Called on any thread with a user, the hash of Artemis that verified its password, and the hash to replace it."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user and its roles."""

    user: str
    roles: frozenset[str] = frozenset()
    by_certificate: bool = False
    """Whether a certificate proved the user, whose roles are then in another file than those of passwords."""
    of_cluster: bool = False
    """Another broker that has proved the cluster password; it has every permission, as in Artemis."""
    by_directory: bool = False
    """Whether only a directory proved the user: users and roles files say nothing about it."""
    directory_roles: frozenset[str] = frozenset()
    """The part of ``roles`` that a directory gave to a user of the users file."""


def parse_users(
    text: str,
    *,
    file: str,
    entropy: Entropy,
    allow_plain: bool = False,
    parameters: HashParameters = DEFAULT_PARAMETERS,
) -> dict[str, StoredPassword]:
    """Stored passwords by user, from the text of a users file.

    Args:
        text: ``user = ENC(scrypt:N:r:p:salt:hash)``, or ``user = ENC(iterations:salt:hash)`` of Artemis, one per line.
        file: Name of the file, for messages.
        entropy: Salts for plain passwords.
        allow_plain: Also accept plain passwords; they are hashed at once.
        parameters: Cost of hashing them.

    Raises:
        ConfigError: an invalid line; names file and line, never the password.
    """
    users: dict[str, StoredPassword] = {}
    for entry in entries(text, file):
        user, value = entry.key, entry.value
        if len(user) > CREDENTIAL_CHARACTERS_MAX or len(value) > CREDENTIAL_CHARACTERS_MAX:
            raise ConfigError(f"longer than {CREDENTIAL_CHARACTERS_MAX} characters", file=file, line=entry.line)
        if not value:
            raise ConfigError(f"user {user!r} has no password", file=file, line=entry.line)
        if allow_plain and not value.startswith("ENC("):
            users[user] = PasswordHash.make(value, entropy, parameters)
        else:
            users[user] = stored_password(entry, file)
    return users


def parse_roles(text: str, *, file: str) -> dict[str, frozenset[str]]:
    """Roles by user, from the text of a roles file: ``role = user, user``, one per line.

    Raises:
        ConfigError: an invalid line; names file and line.
    """
    roles: dict[str, set[str]] = {}
    for entry in entries(text, file):
        for user in entry.value.split(","):
            if user.strip():
                roles.setdefault(user.strip(), set()).add(entry.key)
    return {user: frozenset(names) for user, names in roles.items()}


def parse_certificate_users(users: str, *, users_file: str, roles: str, roles_file: str) -> CertificateUsers:
    """Users of certificates, from the texts of cert-users.properties and cert-roles.properties.

    Raises:
        ConfigError: an invalid line; names file and line.
    """
    lines = ((entry.line, entry.key, entry.value) for entry in entries(users, users_file))
    return make_certificate_users(lines, parse_roles(roles, file=roles_file), users_file)


@dataclass(frozen=True, slots=True)
class LoginCache:
    """Limits of the cache of successful checks; 0 in one of them: there is no cache."""

    size: int = 1000
    """Maximum number of cached logins (element authentication-cache-size)."""
    lifetime_ms: int = 10_000
    """security-invalidation-interval, counted from the check."""


DEFAULT_CACHE: Final = LoginCache()


@dataclass(frozen=True, slots=True)
class Guest:
    """The user of clients without user name and password (guest-login)."""

    principal: Principal
    on_wrong_credentials: bool = False
    """Whether a client with wrong credentials logs in as the guest, too (guest-login-on-wrong-credentials)."""


@dataclass(frozen=True, slots=True)
class OtherLogins:
    """Logins that are checked elsewhere than in the users file."""

    guest: Guest | None = None
    """The user of a login without user name and password; None refuses such a login."""
    certificates: CertificateUsers | None = None
    """Users of verified certificates of clients; None: a certificate is no login."""
    modules: tuple[LoginModule, ...] = ()
    """Login modules that prove passwords, if one of them asks a directory; empty: the users file alone."""


NO_OTHERS: Final = OtherLogins()


class PasswordCheck:
    """A check of one password that requires computing a hash, asking a directory, or both."""

    __slots__ = (
        "_authenticator",
        "_decision",
        "_known",
        "_new",
        "_password",
        "_rehashed",
        "_right",
        "_salt",
        "_stored",
        "_user",
        "asks_directory",
        "key",
        "was_right",
    )

    def __init__(self, authenticator: Authenticator, user: str, password: str, key: bytes) -> None:
        self._authenticator = authenticator
        self._user = user
        self._password = password
        stored = authenticator.stored(user)
        self._known = stored is not None
        self._stored = stored or authenticator.decoy
        self._salt = authenticator.new_salt() if isinstance(self._stored, ArtemisHash) else b""
        self._rehashed = authenticator.rehashed
        self._new: PasswordHash | None = None
        self._right = False
        self._decision: Decision | None = None
        self.asks_directory = not authenticator.has_users_file
        """Whether the next ``run`` waits for a directory instead of computing."""
        self.key = key
        """Key that is equal for the same user and password; it reveals neither."""
        self.was_right = authenticator.was_right(key)
        """Whether this password was correct at an earlier check. It is checked again nevertheless."""

    def run(self) -> bool | None:
        """Whether the password is correct. Slow; may be called on any thread, uses no shared state.

        Returns:
            None if a directory decides: then ``run`` must be called once more, on a thread that may wait.
        """
        modules = self._authenticator.modules
        if self.asks_directory:
            self._decision = decide(modules, self._user, self._password, self._right)
            return self._decision.proved
        self._right = self._verify()
        if not modules:
            return self._right
        self._decision = decide_without_directory(modules, self._user, self._right)
        self.asks_directory = self._decision is None
        return None if self._decision is None else self._decision.proved

    def _verify(self) -> bool:
        stored = self._stored
        # The decoy is hashed first and its result is ignored: the order of these two operands matters.
        right = stored.verify(self._password) and self._known
        if isinstance(stored, ArtemisHash):
            # computed also if the password is wrong, so that the time tells neither that nor the kind of the hash
            new = PasswordHash.salted(self._password, self._salt, self._authenticator.parameters)
            if right:
                self._new = new
                if self._rehashed is not None:
                    self._rehashed(self._user, stored, new)
        return right

    def finish(self, right: bool) -> Principal:
        """The principal, which is cached from now on.

        Args:
            right: Result of ``run``.

        Raises:
            AuthenticationFailed: unknown user or wrong password; the message does not say which.
            SessionRejected: no directory answered, so nothing is known about the password.
        """
        self._password = ""
        unavailable = () if self._decision is None else self._decision.unavailable
        for reason in unavailable:
            log.warning("a directory gave no answer for a login", extra={"user": self._user, "detail": reason})
        if not right and unavailable:
            raise SessionRejected("the directory of users gave no answer, try again")
        if not right:
            self._authenticator.forget(self.key)
            return self._authenticator.refuse(f"user {self._user!r} is unknown or the password is wrong")
        if self._new is not None:
            self._authenticator.replace(self._user, self._stored, self._new)
        return self._authenticator.remember(self._user, self.key, self._decision)


class Authenticator:
    """Checks users and passwords against a fixed set; a changed file requires a new instance."""

    def __init__(
        self,
        users: Mapping[str, StoredPassword],
        roles: Mapping[str, frozenset[str]],
        entropy: Entropy,
        clock: Clock,
        *,
        cache: LoginCache = DEFAULT_CACHE,
        others: OtherLogins = NO_OTHERS,
        rehashed: Rehashed | None = None,
    ) -> None:
        """Args:
        users: Stored passwords by user.
        roles: Roles by user; users without a role may be missing.
        entropy: Source of the key of the cache and of the decoy's salt.
        clock: Used for the age of cache entries.
        cache: Limits of the cache of successful checks.
        others: Logins besides those of the users file.
        rehashed: Keeps the scrypt hash that replaces one of Artemis; None: it is used until the file is read again.

        Raises:
            ConfigError: the guest is one of the users.
        """
        guest, modules = others.guest, others.modules
        if guest is not None and guest.principal.user in users:
            raise ConfigError(f"guest-user {guest.principal.user!r} is in the users file", path="core/guest-user")
        self._guest = guest
        self._certificates = others.certificates
        self._users = dict(users)
        self._principals = {user: Principal(user, roles.get(user, frozenset())) for user in users}
        self._key = entropy.token(32)
        self._clock = clock
        self._cache = cache
        self._verified: OrderedDict[bytes, tuple[Principal, int]] = OrderedDict()
        """Token to principal and the monotonic time at which it expires; the most recently used at the end."""
        self._right: OrderedDict[bytes, None] = OrderedDict()
        """Tokens of passwords that were correct, the latest at the end. They authenticate nothing: such a password is
        checked even when ``login_guard`` would refuse it because of failed logins."""
        self._entropy = entropy
        self.modules = modules
        self.has_users_file = not modules or any(each.directory is None for each in modules)
        """Whether the users file proves passwords."""
        self.rehashed = rehashed
        costs = Counter(each.parameters for each in users.values() if isinstance(each, PasswordHash))
        self.parameters = costs.most_common(1)[0][0] if costs else DEFAULT_PARAMETERS
        """Cost of new hashes: that of most users."""
        self.decoy = PasswordHash(self.parameters, entropy.token(SALT_BYTES), entropy.token(HASH_BYTES))
        """A hash that matches no password: unknown users are checked against it, so that the time is the same."""

    @property
    def known_count(self) -> int:
        """Number of successful checks in the cache."""
        return len(self._verified)

    def stored(self, user: str) -> StoredPassword | None:
        """The stored password of a user; None if there is no such user."""
        return self._users.get(user)

    def new_salt(self) -> bytes:
        """A salt for a new hash. Called on the loop."""
        return self._entropy.token(SALT_BYTES)

    def replace(self, user: str, old: StoredPassword, new: PasswordHash) -> None:
        """Use a new hash for a user from now on, if the stored one is still the old one."""
        if self._users.get(user) == old:
            self._users[user] = new

    def principal(self, user: str) -> Principal | None:
        """Look up a user with its roles; None if there is no such user."""
        if self._guest is not None and user == self._guest.principal.user:
            return self._guest.principal
        return self._principals.get(user)

    def principals(self) -> list[Principal]:
        """The users of the users file, those of certificates, and the guest."""
        certificates = () if self._certificates is None else self._certificates.users()
        found = [*self._principals.values(), *(self.certificate_principal(user) for user in certificates)]
        guest = [] if self._guest is None else [self._guest.principal]
        return [each for each in (*found, *guest) if each is not None]

    def certificate_principal(self, user: str) -> Principal | None:
        """A user that logs in by certificate, with its roles; None if there is no such user."""
        certificates = self._certificates
        if certificates is None or not certificates.known(user):
            return None
        return Principal(user, certificates.roles.get(user, frozenset()), by_certificate=True)

    def takes_certificate(self, certificate: DistinguishedName) -> bool:
        """Whether a client with this verified certificate can log in without a password."""
        return self._certificates is not None and self._certificates.user_of(certificate) is not None

    def begin(
        self, user: str | None, password: str | None, certificate: DistinguishedName | None = None
    ) -> Principal | PasswordCheck:
        """The principal, if its certificate or a cached check proves it; else the check to run.

        Args:
            user: User name of the login.
            password: Password of the login. Without one, the user of the certificate logs in, whatever the user name.
            certificate: Subject of the verified certificate of the client.

        Raises:
            AuthenticationFailed: user name or password are missing or too long, or the certificate has no user.
        """
        if not password and certificate is not None and self._certificates is not None:
            found = self._certificates.user_of(certificate)
            if found is not None:
                return Principal(found, self._certificates.roles.get(found, frozenset()), by_certificate=True)
            if self._guest is None:
                return self.refuse(f"no user for the client certificate {certificate.text!r}")
        if self._guest is not None and not user and not password:
            return self._guest.principal
        if user is None or password is None:
            return self.refuse("user name and password are required")
        if len(user) > CREDENTIAL_CHARACTERS_MAX or len(password) > CREDENTIAL_CHARACTERS_MAX:
            raise AuthenticationFailed(f"user name or password longer than {CREDENTIAL_CHARACTERS_MAX} characters")
        token = self._token(user, password)
        known = self._verified.get(token)
        if known is not None:
            if self._clock.monotonic_ms() < known[1]:
                self._verified.move_to_end(token)
                return known[0]
            del self._verified[token]
        return PasswordCheck(self, user, password, token)

    def refuse(self, reason: str) -> Principal:
        """Handle wrong credentials: return the guest if that is configured, else raise AuthenticationFailed."""
        if self._guest is not None and self._guest.on_wrong_credentials:
            return self._guest.principal
        raise AuthenticationFailed(reason)

    def was_right(self, token: bytes) -> bool:
        """Whether a password was correct at its last check, regardless of the time since."""
        return token in self._right

    def forget(self, token: bytes) -> None:
        """Remove the token of a password that was found wrong."""
        self._right.pop(token, None)

    def remember(self, user: str, token: bytes, decision: Decision | None) -> Principal:
        """The principal of a user whose check succeeded, which is cached.

        Args:
            decision: Decision of the login modules; None: the users file alone proved the password.
        """
        self._right[token] = None
        self._right.move_to_end(token)
        if len(self._right) > RIGHT_PASSWORDS_MAX:
            self._right.popitem(last=False)
        principal = self._principal(user, decision)
        if self._cache.size > 0 and self._cache.lifetime_ms > 0:
            # use does not renew an entry: a password that was changed is accepted no longer than this
            self._verified[token] = (principal, self._clock.monotonic_ms() + self._cache.lifetime_ms)
            if len(self._verified) > self._cache.size:
                self._verified.popitem(last=False)
        return principal

    def _principal(self, user: str, decision: Decision | None) -> Principal:
        if decision is None:
            return self._principals[user]
        if not decision.by_users_file:
            return Principal(user, decision.roles, by_directory=True)
        roles = self._principals[user].roles | decision.roles
        return Principal(user, roles, directory_roles=decision.roles)

    def _token(self, user: str, password: str) -> bytes:
        """Keyed digest of user and password, which reveals neither."""
        name = user.encode("utf-8", "surrogatepass")
        text = len(name).to_bytes(4, "big") + name + password.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, "sha256")
