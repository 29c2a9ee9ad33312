"""Stored passwords of users: salted hashes, as ``ENC(...)`` in the users file.

``ENC(scrypt:N:r:p:salt:hash)`` is the form that Understudy writes. ``ENC(iterations:salt:hash)`` is the form of
Artemis (PBKDF2WithHmacSHA1, 64 bytes): such a hash is verified as it is, and the same check makes a scrypt hash of the
password, which replaces it when the password is correct. All salts and hashes are in hexadecimal.

Source: PBKDF2 of RFC 8018, scrypt of RFC 7914, the users file of Artemis (user manual, *Password Masking*).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.ports import Entropy
from understudy.security.properties_file import Entry

SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
#: scrypt memory is 128 * N * r bytes; more than this is refused in a users file.
_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
_PARALLEL_MAX: Final = 16
#: Most iterations of a hash of Artemis, which writes 1,024; one check takes some seconds with this number.
_ITERATIONS_MAX: Final = 5_000_000
_ARTEMIS_HASH_BYTES: Final = 64
#: Marks the mechanism in the key, or the parts of the value, of an entry for SCRAM in Artemis.
_SCRAM_MARK: Final = "|SCRAM-"


@dataclass(frozen=True, slots=True)
class HashParameters:
    """Cost of a scrypt hash (RFC 7914): memory is 128 * n * r bytes, time n * r * p."""

    n: int = 2**14
    """A power of two."""
    r: int = 8
    p: int = 1

    def complaint(self) -> str | None:
        """Reason why these parameters of a hash cannot be used, or None."""
        if self.n < 2 or self.n & (self.n - 1) or self.r < 1 or self.p < 1:
            return "N must be a power of two of at least 2, r and p at least 1"
        if 128 * self.n * self.r > _MEMORY_BYTES_MAX or self.p > _PARALLEL_MAX:
            return f"more than {_MEMORY_BYTES_MAX} bytes of memory or p above {_PARALLEL_MAX}"
        return None


DEFAULT_PARAMETERS: Final = HashParameters()
"""About 16 MiB and some tens of milliseconds for one check."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A password stored as a scrypt hash."""

    parameters: HashParameters
    salt: bytes
    digest: bytes

    @classmethod
    def make(cls, password: str, entropy: Entropy, parameters: HashParameters = DEFAULT_PARAMETERS) -> PasswordHash:
        """The hash of a password with a new salt."""
        return cls.salted(password, entropy.token(SALT_BYTES), parameters)

    @classmethod
    def salted(cls, password: str, salt: bytes, parameters: HashParameters = DEFAULT_PARAMETERS) -> PasswordHash:
        """The hash of a password with a given salt."""
        return cls(parameters, salt, _derive(password, salt, parameters))

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """Parse a hash in the form of ``str``. Raises ValueError, whose message does not contain the text."""
        parts = _parts(text)
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
        if len(salt) < 8 or len(digest) != HASH_BYTES:
            raise ValueError(f"the password hash wants a salt of 8 bytes or more and {HASH_BYTES} bytes of hash")
        return cls(parameters, salt, digest)

    def __str__(self) -> str:
        cost = self.parameters
        return f"ENC(scrypt:{cost.n}:{cost.r}:{cost.p}:{self.salt.hex()}:{self.digest.hex()})"

    def verify(self, password: str) -> bool:
        """Whether ``password`` has this hash; the time of the comparison does not depend on the result."""
        return hmac.compare_digest(_derive(password, self.salt, self.parameters), self.digest)


@dataclass(frozen=True, slots=True)
class ArtemisHash:
    """A password stored by Artemis: PBKDF2 with HMAC-SHA-1 and 64 bytes, ``ENC(iterations:salt:hash)``."""

    iterations: int
    salt: bytes
    digest: bytes

    @classmethod
    def parse(cls, text: str) -> ArtemisHash:
        """Parse a hash as Artemis writes it. Raises ValueError, whose message does not contain the text."""
        parts = _parts(text)
        try:
            iterations, salt, digest = _cost(parts[0]), bytes.fromhex(parts[1]), bytes.fromhex(parts[2])
        except ValueError:
            raise ValueError("the password hash has parts that are no numbers") from None
        if not 1 <= iterations <= _ITERATIONS_MAX:
            raise ValueError(f"the password hash has {iterations} iterations, from 1 to {_ITERATIONS_MAX} are verified")
        if not salt or len(digest) != _ARTEMIS_HASH_BYTES:
            raise ValueError(f"the password hash wants a salt and {_ARTEMIS_HASH_BYTES} bytes of hash")
        return cls(iterations, salt, digest)

    def __str__(self) -> str:
        return f"ENC({self.iterations}:{self.salt.hex()}:{self.digest.hex()})"

    def verify(self, password: str) -> bool:
        """Whether ``password`` has this hash; the time of the comparison does not depend on the result."""
        found = hashlib.pbkdf2_hmac("sha1", _encoded(password), self.salt, self.iterations, _ARTEMIS_HASH_BYTES)
        return hmac.compare_digest(found, self.digest)


StoredPassword = PasswordHash | ArtemisHash


def stored_password(entry: Entry, file: str) -> StoredPassword:
    """The stored password of an entry of a users file.

    Raises:
        ConfigError: the entry has no usable hash; names file, line and next step, never the password.
    """
    try:
        return ArtemisHash.parse(entry.value) if len(_parts(entry.value)) == 3 else PasswordHash.parse(entry.value)
    except ValueError as error:
        text, hint = _complaint(entry, str(error), file)
        raise ConfigError(text, file=file, line=entry.line, hint=hint) from None


def is_plain(entry: Entry) -> bool:
    """Whether the value of an entry of a users file is the password itself."""
    return bool(entry.value) and not entry.value.startswith("ENC(") and not is_scram(entry)


def is_scram(entry: Entry) -> bool:
    """Whether an entry of a users file is one of the SCRAM login module of Artemis: keys instead of a password."""
    return _SCRAM_MARK in entry.key


def _complaint(entry: Entry, reason: str, file: str) -> tuple[str, str]:
    """The text of the error about an entry without a usable hash, and the next step."""
    if is_scram(entry):
        name = entry.key.partition(_SCRAM_MARK)[0]
        return (
            f"user {name!r}: SCRAM keys cannot be used, because no password can be verified with them",
            f"replace the entry by the line that `understudy user hash {name}` prints for the user's password",
        )
    if is_plain(entry):
        return (
            f"user {entry.key!r}: the password is not hashed",
            f"`understudy user convert {file}` replaces every plain password of the file by its hash",
        )
    return f"user {entry.key!r}: {reason}", f"store the line that `understudy user hash {entry.key}` prints"


def _parts(text: str) -> list[str]:
    if not (text.startswith("ENC(") and text.endswith(")")):
        raise ValueError("the password is not hashed")
    return text[4:-1].split(":")


def _cost(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError("no number")
    return int(text)


def _derive(password: str, salt: bytes, parameters: HashParameters) -> bytes:
    return hashlib.scrypt(
        _encoded(password),
        salt=salt,
        n=parameters.n,
        r=parameters.r,
        p=parameters.p,
        maxmem=_MEMORY_BYTES_MAX + 1024 * 1024,
        dklen=HASH_BYTES,
    )


def _encoded(password: str) -> bytes:
    # A peer can send a lone surrogate, which must be a wrong password, not an internal error.
    return password.encode("utf-8", "surrogatepass")
