"""Users of client certificates: the files cert-users.properties and cert-roles.properties of Artemis.

Source: manual, "TextFileCertificateLoginModule". A user has a distinguished name or, between slashes, a regular
expression that must match the whole name. Names are compared regardless of spaces, quotes and the case of keywords. A
regular expression is tried on the name as Artemis writes it (``CN=a, O=b``) and as RFC 2253 does (``CN=a,O=b``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import CERTIFICATE_USERS_MAX
from understudy.tls.certificates import DistinguishedName, normalised


@dataclass(frozen=True, slots=True)
class CertificateUsers:
    """Certificates that may log in."""

    names: Mapping[str, str]
    """User by normalised distinguished name."""
    patterns: tuple[tuple[str, re.Pattern[str]], ...]
    """Users with a regular expression, in the order of the file."""
    roles: Mapping[str, frozenset[str]]

    def user_of(self, subject: DistinguishedName) -> str | None:
        """The user of a certificate; None if there is none. A name goes before all regular expressions."""
        user = self.names.get(normalised(subject.rfc2253)) or self.names.get(normalised(subject.text))
        if user is not None:
            return user
        for candidate, pattern in self.patterns:
            if pattern.fullmatch(subject.text) or pattern.fullmatch(subject.rfc2253):
                return candidate
        return None

    def users(self) -> list[str]:
        """All users of the file, each once."""
        return list(dict.fromkeys((*self.names.values(), *(name for name, _ in self.patterns))))

    def known(self, user: str) -> bool:
        """Whether the file of users has the user."""
        return user in self.names.values() or any(user == name for name, _ in self.patterns)


def make_certificate_users(
    entries: Iterator[tuple[int, str, str]], roles: Mapping[str, frozenset[str]], file: str
) -> CertificateUsers:
    """The users of the lines of a file.

    Args:
        entries: Line, user, distinguished name or ``/regular expression/``.
        roles: Roles by user.
        file: Name of the file of users, for messages.

    Raises:
        ConfigError: an invalid line; names file and line.
    """
    names: dict[str, str] = {}
    patterns: list[tuple[str, re.Pattern[str]]] = []
    for line, user, value in entries:
        if len(names) + len(patterns) >= CERTIFICATE_USERS_MAX:
            raise ConfigError(f"more than {CERTIFICATE_USERS_MAX} users", file=file, line=line)
        if len(value) > 2 and value.startswith("/") and value.endswith("/"):
            try:
                patterns.append((user, re.compile(value[1:-1])))
            except re.error as error:
                raise ConfigError(f"{value!r} is no regular expression: {error}", file=file, line=line) from None
            continue
        if "=" not in value:
            raise ConfigError(f"user {user!r}: {value!r} is no distinguished name", file=file, line=line)
        name = normalised(value)
        if name in names:
            raise ConfigError(f"{value!r} belongs to {names[name]!r} and {user!r}", file=file, line=line)
        names[name] = user
    return CertificateUsers(names, tuple(patterns), roles)
