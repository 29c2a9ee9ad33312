"""Authentication: users, salted password hashes, and the roles of each user.

Users and roles are given as the text of Artemis' ``artemis-users.properties`` (``user = ENC(...)``) and
``artemis-roles.properties`` (``role = user, user``). A stored password is
``ENC(scrypt:N:r:p:salt:hash)``, salt and hash in hexadecimal; plain ones are refused unless the
caller allows them. A check takes equally long for a wrong password and for an unknown user, and a
success is cached for a short time (security-invalidation-interval) as a keyed digest, so that
the password of many clients that reconnect at once is hashed once.

Hashing is slow by design (tens of milliseconds). ``begin`` never does it: it answers from the cache or
returns a ``PasswordCheck``, which is run on another thread (``logins``).

Not here: permissions (``authorization``), and reading the files. Invariant: no password is
kept after its check, compared in variable time, or included in a message.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import AuthenticationFailed, ConfigError
from understudy.ports import Clock, Entropy
from understudy.security.certificate_users import CertificateUsers, make_certificate_users
from understudy.tls.certificates import DistinguishedName

#: Longest user name or password that is accepted. Characters.
CREDENTIAL_CHARACTERS_MAX: Final = 4096
#: Number of correct passwords remembered as keyed digests until the users file is read again.
RIGHT_PASSWORDS_MAX: Final = 10_000
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
#: scrypt memory is 128 * N * r bytes; more than this is refused in a users file.
_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
_PARALLEL_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user and its roles."""

    user: str
    roles: frozenset[str] = frozenset()
    by_certificate: bool = False
    """Whether its certificate proved the user; its roles are in another file then."""
    of_cluster: bool = False
    """Another broker that has proved the cluster password; it has every permission, as in Artemis."""


@dataclass(frozen=True, slots=True)
class HashParameters:
    """Cost of a scrypt hash (RFC 7914): memory is 128 * n * r bytes, time n * r * p."""

    n: int = 2**14
    """A power of two."""
    r: int = 8
    p: int = 1

    def complaint(self) -> str | None:
        """The reason why these parameters are not usable, or None."""
        if self.n < 2 or self.n & (self.n - 1) or self.r < 1 or self.p < 1:
            return "N must be a power of two of at least 2, r and p at least 1"
        if 128 * self.n * self.r > _MEMORY_BYTES_MAX or self.p > _PARALLEL_MAX:
            return f"more than {_MEMORY_BYTES_MAX} bytes of memory or p above {_PARALLEL_MAX}"
        return None


DEFAULT_PARAMETERS: Final = HashParameters()
"""About 16 MiB and some tens of milliseconds for one check."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A stored password."""

    parameters: HashParameters
    salt: bytes
    digest: bytes

    @classmethod
    def make(cls, password: str, entropy: Entropy, parameters: HashParameters = DEFAULT_PARAMETERS) -> PasswordHash:
        """The hash of a password with a new salt."""
        salt = entropy.token(_SALT_BYTES)
        return cls(parameters, salt, _derive(password, salt, parameters))

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """Parse a hash in the form of ``str``. Raises ValueError, whose message does not contain the text."""
        if not (text.startswith("ENC(") and text.endswith(")")):
            raise ValueError("the password is not hashed")
        parts = text[4:-1].split(":")
        if len(parts) != 6 or parts[0] != "scrypt":
            raise ValueError("the password hash is not of the form ENC(scrypt:N:r:p:salt:hash)")
        try:
            parameters = HashParameters(*(_cost(part) for part in parts[1:4]))
            salt, digest = bytes.fromhex(parts[4]), bytes.fromhex(parts[5])
        except ValueError:
            raise ValueError("the password hash has parts that are no numbers") from None
        complaint = parameters.complaint()
        if complaint is not None:
            raise ValueError(f"the cost of the password hash is unusable: {complaint}")
        if len(salt) < 8 or len(digest) != _HASH_BYTES:
            raise ValueError(f"the password hash wants a salt of 8 bytes or more and {_HASH_BYTES} bytes of hash")
        return cls(parameters, salt, digest)

    def __str__(self) -> str:
        cost = self.parameters
        return f"ENC(scrypt:{cost.n}:{cost.r}:{cost.p}:{self.salt.hex()}:{self.digest.hex()})"

    def verify(self, password: str) -> bool:
        """Whether it is the hash of this password; the time does not depend on the result."""
        return hmac.compare_digest(_derive(password, self.salt, self.parameters), self.digest)


def _cost(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError("no number")
    return int(text)


def _derive(password: str, salt: bytes, parameters: HashParameters) -> bytes:
    return hashlib.scrypt(
        # A peer can send a lone surrogate, which must be a wrong password, not an internal error.
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=parameters.n,
        r=parameters.r,
        p=parameters.p,
        maxmem=_MEMORY_BYTES_MAX + 1024 * 1024,
        dklen=_HASH_BYTES,
    )


def _properties(text: str, file: str) -> Iterator[tuple[int, str, str]]:
    """(line, key, value) of a properties file: ``key = value`` or ``key: value``, ``#`` and ``!`` for comments."""
    seen: dict[str, int] = {}
    for line, raw in enumerate(text.splitlines(), 1):
        entry = raw.strip()
        if not entry or entry[0] in "#!":
            continue
        place = min((found for sign in "=:" if (found := entry.find(sign)) >= 0), default=-1)
        key, value = entry[:place].strip(), entry[place + 1 :].strip()
        if place < 0 or not key:
            raise ConfigError("no 'name = value'", file=file, line=line)
        if key in seen:
            raise ConfigError(f"{key!r} is repeated, first on line {seen[key]}", file=file, line=line)
        seen[key] = line
        yield line, key, value


def parse_users(
    text: str,
    *,
    file: str,
    entropy: Entropy,
    allow_plain: bool = False,
    parameters: HashParameters = DEFAULT_PARAMETERS,
) -> dict[str, PasswordHash]:
    """Password hashes by user, from the text of a users file.

    Args:
        text: ``user = ENC(scrypt:N:r:p:salt:hash)``, one per line.
        file: Name of the file, for messages.
        entropy: Salts for plain passwords.
        allow_plain: Also accept plain passwords; they are hashed at once.
        parameters: Cost of hashing them.

    Raises:
        ConfigError: an invalid line; names file and line, never the password.
    """
    users: dict[str, PasswordHash] = {}
    for line, user, value in _properties(text, file):
        if len(user) > CREDENTIAL_CHARACTERS_MAX or len(value) > CREDENTIAL_CHARACTERS_MAX:
            raise ConfigError(f"longer than {CREDENTIAL_CHARACTERS_MAX} characters", file=file, line=line)
        if not value:
            raise ConfigError(f"user {user!r} has no password", file=file, line=line)
        if allow_plain and not value.startswith("ENC("):
            users[user] = PasswordHash.make(value, entropy, parameters)
            continue
        try:
            users[user] = PasswordHash.parse(value)
        except ValueError as error:
            raise ConfigError(
                f"user {user!r}: {error}", file=file, line=line, hint="store ENC(scrypt:N:r:p:salt:hash)"
            ) from None
    return users


def parse_roles(text: str, *, file: str) -> dict[str, frozenset[str]]:
    """Roles by user, from the text of a roles file: ``role = user, user``, one per line.

    Raises:
        ConfigError: an invalid line; names file and line.
    """
    roles: dict[str, set[str]] = {}
    for _, role, value in _properties(text, file):
        for user in value.split(","):
            if user.strip():
                roles.setdefault(user.strip(), set()).add(role)
    return {user: frozenset(names) for user, names in roles.items()}


def parse_certificate_users(users: str, *, users_file: str, roles: str, roles_file: str) -> CertificateUsers:
    """Users of certificates, from the texts of cert-users.properties and cert-roles.properties.

    Raises:
        ConfigError: an invalid line; names file and line.
    """
    return make_certificate_users(_properties(users, users_file), parse_roles(roles, file=roles_file), users_file)


@dataclass(frozen=True, slots=True)
class Guest:
    """The user of clients without user name and password (guest-login)."""

    principal: Principal
    on_wrong_credentials: bool = False
    """Whether a client with wrong credentials logs in as the guest, too (guest-login-on-wrong-credentials)."""


class PasswordCheck:
    """A check of one password that requires computing a hash."""

    __slots__ = ("_authenticator", "_hash", "_known", "_password", "_user", "key", "was_right")

    def __init__(self, authenticator: Authenticator, user: str, password: str, key: bytes) -> None:
        self._authenticator = authenticator
        self._user = user
        self._password = password
        stored = authenticator.stored(user)
        self._known = stored is not None
        self._hash = stored or authenticator.decoy
        self.key = key
        """Equal for the same user and password; reveals neither."""
        self.was_right = authenticator.was_right(key)
        """Whether this password was correct at an earlier check. It is checked again nevertheless."""

    def run(self) -> bool:
        """Whether the password is correct. Slow; may be called on any thread, uses no shared state."""
        # The decoy is hashed first and its result is ignored: the order of these two operands matters.
        return self._hash.verify(self._password) and self._known

    def finish(self, right: bool) -> Principal:
        """The principal, which is cached from now on.

        Args:
            right: Result of ``run``.

        Raises:
            AuthenticationFailed: unknown user or wrong password; the message does not say which.
        """
        self._password = ""
        if not right:
            self._authenticator.forget(self.key)
            return self._authenticator.refuse(f"user {self._user!r} is unknown or the password is wrong")
        return self._authenticator.remember(self._user, self.key)


class Authenticator:
    """Checks users and passwords against a fixed set; a changed file requires a new instance."""

    def __init__(
        self,
        users: Mapping[str, PasswordHash],
        roles: Mapping[str, frozenset[str]],
        entropy: Entropy,
        clock: Clock,
        *,
        cache_size: int = 1000,
        cache_ms: int = 10_000,
        guest: Guest | None = None,
        certificates: CertificateUsers | None = None,
    ) -> None:
        """Args:
        users: Hashes by user.
        roles: Roles by user; users without a role may be missing.
        entropy: Source of the key of the cache and of the decoy's salt.
        clock: For the age of cache entries.
        cache_size: Successful checks in the cache (authentication-cache-size); 0 = none.
        cache_ms: Lifetime of an entry from its check on (security-invalidation-interval); 0 = no cache.
        guest: The user of a login without user name and password; None refuses such a login.
        certificates: Users of verified certificates of clients; None: a certificate is no login.

        Raises:
            ConfigError: the guest is one of the users.
        """
        if guest is not None and guest.principal.user in users:
            raise ConfigError(f"guest-user {guest.principal.user!r} is in the users file", path="core/guest-user")
        self._guest = guest
        self._certificates = certificates
        self._users = dict(users)
        self._principals = {user: Principal(user, roles.get(user, frozenset())) for user in users}
        self._key = entropy.token(32)
        self._clock = clock
        self._cache_size = cache_size
        self._cache_ms = cache_ms
        self._verified: OrderedDict[bytes, tuple[Principal, int]] = OrderedDict()
        """Token to principal and the monotonic time at which it expires; the most recently used at the end."""
        self._right: OrderedDict[bytes, None] = OrderedDict()
        """Tokens of passwords that were correct, the latest at the end. They authenticate nothing: such a password is
        checked even when ``login_guard`` would refuse it because of failed logins."""
        costs = Counter(each.parameters for each in users.values())
        cost = costs.most_common(1)[0][0] if costs else DEFAULT_PARAMETERS
        self.decoy = PasswordHash(cost, entropy.token(_SALT_BYTES), entropy.token(_HASH_BYTES))
        """A hash that matches no password: unknown users are checked against it, so that the time is the same."""

    @property
    def known_count(self) -> int:
        """Number of successful checks in the cache."""
        return len(self._verified)

    def stored(self, user: str) -> PasswordHash | None:
        """The stored hash of a user's password; None if there is no such user."""
        return self._users.get(user)

    def principal(self, user: str) -> Principal | None:
        """A user with its roles; None if there is no such user."""
        if self._guest is not None and user == self._guest.principal.user:
            return self._guest.principal
        return self._principals.get(user)

    def certificate_principal(self, user: str) -> Principal | None:
        """A user that logs in by certificate, with its roles; None if there is no such user."""
        certificates = self._certificates
        if certificates is None or not certificates.known(user):
            return None
        return Principal(user, certificates.roles.get(user, frozenset()), by_certificate=True)

    def begin(
        self, user: str | None, password: str | None, certificate: DistinguishedName | None = None
    ) -> Principal | PasswordCheck:
        """The principal, if its certificate or a cached check proves it; else the check to run.

        Args:
            user: User name of the login.
            password: Of the login. Without one, the user of the certificate logs in, whatever the user name.
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

    def remember(self, user: str, token: bytes) -> Principal:
        """The principal of a user whose check succeeded, which is cached."""
        self._right[token] = None
        self._right.move_to_end(token)
        if len(self._right) > RIGHT_PASSWORDS_MAX:
            self._right.popitem(last=False)
        principal = self._principals[user]
        if self._cache_size > 0 and self._cache_ms > 0:
            # use does not renew an entry: a password that was changed is accepted no longer than this
            self._verified[token] = (principal, self._clock.monotonic_ms() + self._cache_ms)
            if len(self._verified) > self._cache_size:
                self._verified.popitem(last=False)
        return principal

    def _token(self, user: str, password: str) -> bytes:
        """Keyed digest of user and password, which reveals neither."""
        name = user.encode("utf-8", "surrogatepass")
        text = len(name).to_bytes(4, "big") + name + password.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, "sha256")
