"""Authentication: users, salted password hashes, and the roles of each user.

Users and roles come as the text of Artemis' ``artemis-users.properties`` (``user = ENC(...)``) and
``artemis-roles.properties`` (``role = user, user``). A stored password is
``ENC(scrypt:N:r:p:salt:hash)``, salt and hash in hexadecimal; plain ones are refused unless the
caller allows them. Checking costs the same for a wrong password and for an unknown user, and a
success is remembered for a short while (security-invalidation-interval) as a keyed digest, so that
many clients coming back at once are not hashed again.

Hashing takes some tens of milliseconds on purpose. ``begin`` never does it: it answers from memory or
gives a ``PasswordCheck``, which is run outside of the loop (``logins``).

Not here: what a user may do (``authorization``), and reading the files. Invariant: no password is
kept beyond its check, compared in variable time, or put into a message.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from understudy.errors import AuthenticationFailed, ConfigError
from understudy.ports import Clock, Entropy

#: Longest user name or password that is looked at. Characters.
CREDENTIAL_CHARACTERS_MAX: Final = 4096
#: Passwords that were right, remembered as keyed digests until the users file is read again.
RIGHT_PASSWORDS_MAX: Final = 10_000
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
#: scrypt memory is 128 * N * r bytes; more than this is refused in a users file.
_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
_PARALLEL_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Principal:
    """A proven user and its roles; what permissions are checked for."""

    user: str
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HashParameters:
    """Cost of a scrypt hash (RFC 7914): memory is 128 * n * r bytes, time n * r * p."""

    n: int = 2**14
    """A power of two."""
    r: int = 8
    p: int = 1

    def complaint(self) -> str | None:
        """What is wrong with them, or None."""
        if self.n < 2 or self.n & (self.n - 1) or self.r < 1 or self.p < 1:
            return "N must be a power of two from 2 up, r and p from 1 up"
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
        """The hash of a password under a fresh salt."""
        salt = entropy.token(_SALT_BYTES)
        return cls(parameters, salt, _derive(password, salt, parameters))

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """The hash that ``str`` wrote. Raises ValueError, without the text in its message."""
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
        """Whether it is the hash of this password; takes the same time either way."""
        return hmac.compare_digest(_derive(password, self.salt, self.parameters), self.digest)


def _cost(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError("no number")
    return int(text)


def _derive(password: str, salt: bytes, parameters: HashParameters) -> bytes:
    return hashlib.scrypt(
        # A peer can send half of a surrogate pair; it must be a wrong password, not a crash.
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
            raise ConfigError(f"{key!r} stands twice, first on line {seen[key]}", file=file, line=line)
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
        text: ``user = ENC(scrypt:N:r:p:salt:hash)``, one a line.
        file: Its name, for messages.
        entropy: Salts for plain passwords.
        allow_plain: Take plain passwords too; they are hashed at once.
        parameters: Cost of hashing them.

    Raises:
        ConfigError: a line that cannot be used, with file and line, never with the password.
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
    """Roles by user, from the text of a roles file: ``role = user, user``, one a line.

    Raises:
        ConfigError: a line that cannot be used, with file and line.
    """
    roles: dict[str, set[str]] = {}
    for _, role, value in _properties(text, file):
        for user in value.split(","):
            if user.strip():
                roles.setdefault(user.strip(), set()).add(role)
    return {user: frozenset(names) for user, names in roles.items()}


@dataclass(frozen=True, slots=True)
class Guest:
    """The user of clients without user name and password (guest-login)."""

    principal: Principal
    on_wrong_credentials: bool = False
    """Whether clients with wrong ones are let in as the guest, too (guest-login-on-wrong-credentials)."""


class PasswordCheck:
    """One password whose hash has to be computed to find out whether it is right."""

    __slots__ = ("_authenticator", "_hash", "_known", "_password", "_user", "key", "was_right")

    def __init__(self, authenticator: Authenticator, user: str, password: str, key: bytes) -> None:
        self._authenticator = authenticator
        self._user = user
        self._password = password
        stored = authenticator.stored(user)
        self._known = stored is not None
        self._hash = stored or authenticator.decoy
        self.key = key
        """Equal for the same user with the same password, and says nothing of either."""
        self.was_right = authenticator.was_right(key)
        """Whether it was right before; it is checked again all the same."""

    def run(self) -> bool:
        """Whether it is right. Slow; may be called on any thread, and touches nothing shared."""
        # The decoy is hashed first and found wrong whatever it says: the order of these two counts.
        return self._hash.verify(self._password) and self._known

    def finish(self, right: bool) -> Principal:
        """The principal, from now on remembered for a while.

        Args:
            right: What ``run`` said.

        Raises:
            AuthenticationFailed: unknown user or wrong password; the message does not say which.
        """
        self._password = ""
        if not right:
            self._authenticator.forget(self.key)
            return self._authenticator.refuse(f"user {self._user!r} is unknown or the password is wrong")
        return self._authenticator.remember(self._user, self.key)


class Authenticator:
    """Checks users and passwords against a fixed set; a changed file makes a new one."""

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
    ) -> None:
        """Args:
        users: Hashes by user.
        roles: Roles by user; users of no role may be missing.
        entropy: The key of the memory of successes, and the decoy's salt.
        clock: For the age of those successes.
        cache_size: Successes remembered (authentication-cache-size); 0 = none.
        cache_ms: How long, from the check on (security-invalidation-interval); 0 = not at all.
        guest: The user of a login without user name and password; None refuses such a login.

        Raises:
            ConfigError: the guest is one of the users.
        """
        if guest is not None and guest.principal.user in users:
            raise ConfigError(f"guest-user {guest.principal.user!r} is in the users file", path="core/guest-user")
        self._guest = guest
        self._users = dict(users)
        self._principals = {user: Principal(user, roles.get(user, frozenset())) for user in users}
        self._key = entropy.token(32)
        self._clock = clock
        self._cache_size = cache_size
        self._cache_ms = cache_ms
        self._verified: OrderedDict[bytes, tuple[Principal, int]] = OrderedDict()
        """Token to principal and the monotonic time until which it counts; the one used last at the end."""
        self._right: OrderedDict[bytes, None] = OrderedDict()
        """Tokens of passwords that were right, the latest at the end. They prove nothing: they only are not refused
        unseen because of wrong ones (``login_guard``)."""
        costs = Counter(each.parameters for each in users.values())
        cost = costs.most_common(1)[0][0] if costs else DEFAULT_PARAMETERS
        self.decoy = PasswordHash(cost, entropy.token(_SALT_BYTES), entropy.token(_HASH_BYTES))
        """The hash of no password: an unknown user is checked against it, so that it takes as long."""

    @property
    def known_count(self) -> int:
        """Passwords whose check is remembered."""
        return len(self._verified)

    def stored(self, user: str) -> PasswordHash | None:
        """The hash of a user's password."""
        return self._users.get(user)

    def principal(self, user: str) -> Principal | None:
        """A user with its roles; None: there is no such user."""
        if self._guest is not None and user == self._guest.principal.user:
            return self._guest.principal
        return self._principals.get(user)

    def begin(self, user: str | None, password: str | None) -> Principal | PasswordCheck:
        """The principal of a user that was checked a short while ago, or the check that is needed.

        Raises:
            AuthenticationFailed: nothing that could be checked.
        """
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
        """What wrong credentials lead to: the guest, where that is configured. Raises AuthenticationFailed."""
        if self._guest is not None and self._guest.on_wrong_credentials:
            return self._guest.principal
        raise AuthenticationFailed(reason)

    def was_right(self, token: bytes) -> bool:
        """Whether a password was right at its last check, however long ago."""
        return token in self._right

    def forget(self, token: bytes) -> None:
        """A password was wrong."""
        self._right.pop(token, None)

    def remember(self, user: str, token: bytes) -> Principal:
        """The user's principal; the check need not be done again for a while."""
        self._right[token] = None
        self._right.move_to_end(token)
        if len(self._right) > RIGHT_PASSWORDS_MAX:
            self._right.popitem(last=False)
        principal = self._principals[user]
        if self._cache_size > 0 and self._cache_ms > 0:
            # using it does not renew it: a password that was taken away works no longer than this
            self._verified[token] = (principal, self._clock.monotonic_ms() + self._cache_ms)
            if len(self._verified) > self._cache_size:
                self._verified.popitem(last=False)
        return principal

    def _token(self, user: str, password: str) -> bytes:
        """Stands for a user with a password without giving away either."""
        name = user.encode("utf-8", "surrogatepass")
        text = len(name).to_bytes(4, "big") + name + password.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text, "sha256")
