"""Logins at a directory (LDAP): which searches are made, and which roles a user has.

A lookup finds the entry of the user, proves the password by a bind as that entry, and searches the roles (Artemis
manual, "Security", *LDAPLoginModule*; RFC 4515 for filters, RFC 4514 for names). Two rules are stricter than those of
Artemis: a filter that finds two users proves neither, and names of entries are escaped in every filter.

Not here: connections (``runtime.logins.ldap``). Invariant: no character of a user name has a meaning in a filter,
and a bind never has an empty name or password, which a server would take for an anonymous one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from understudy.config.logins.ldap_login import LdapLogin, Search
from understudy.dataclass import dataclass
from understudy.errors import ConnectionFailed
from understudy.limits import LDAP_EXPANDED_MAX, LDAP_ROLES_MAX

#: Pattern of one attribute and value of a distinguished name, up to the separator after it.
_ASSERTION: Final = re.compile(r"""((?:\\.|"(?:\\.|[^"\\])*"|[^,;+"\\])*)(?:[,;+]|$)""", re.DOTALL)
_ESCAPED: Final = re.compile(r"((?:\\[0-9a-fA-F]{2})+)|\\(.)", re.DOTALL)


class DirectoryUnavailable(ConnectionFailed):
    """A directory gave no usable answer; the text names the login module and the server. Clients never get it."""

    code = "directory-unavailable"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that a search found."""

    name: str
    attributes: Mapping[str, Sequence[str]]
    """Values by name of the attribute as it was asked for."""


class DirectorySession(Protocol):
    """A connection to a directory for one lookup. Every call blocks and raises DirectoryUnavailable."""

    def search(self, search: Search, matching: str, attributes: Sequence[str], limit: int) -> Sequence[Entry]:
        """The entries that a search finds.

        Args:
            search: Where to search.
            matching: Used in the place of the filter of ``search``.
            attributes: Names of attributes to return.
            limit: Maximum number of entries; more are an error.
        """
        ...

    def binds(self, name: str, password: str) -> bool:
        """Whether the password is that of the entry."""
        ...

    def close(self) -> None:
        """Close the connection to the directory server."""
        ...


class Directory(Protocol):
    """Directory servers of one login module."""

    options: LdapLogin

    def open(self) -> DirectorySession:
        """A new session at the first server that answers; blocks. Raises DirectoryUnavailable."""
        ...


def look_up(directory: Directory, user: str, password: str | None) -> frozenset[str] | None:
    """The roles of a user, or None: there is no such user or the password is wrong. Blocks.

    Args:
        directory: Where to look.
        user: User name of the login.
        password: Password of the login; None: the user has been proved otherwise, and only roles are wanted.

    Raises:
        DirectoryUnavailable: no server answered, or an answer cannot be used.
    """
    if not user.strip() or password == "" or not _is_text(user) or not _is_text(password or ""):
        return None
    session = directory.open()
    try:
        return _Lookup(directory.options, session).roles_of(user, password)
    finally:
        session.close()


def escaped(value: str) -> str:
    """A value as part of a filter: everything except ASCII letters and digits as ``\\xx``."""
    return "".join(
        character
        if character.isascii() and character.isalnum()
        else "".join(f"\\{byte:02x}" for byte in character.encode())
        for character in value
    )


def values_of(name: str, attribute: str) -> Iterator[str]:
    """The values that an attribute has in a distinguished name, in their order."""
    place = 0
    while place < len(name):
        match = _ASSERTION.match(name, place)
        if match is None:
            return
        keyword, equals, value = match[1].partition("=")
        if equals and keyword.strip().lower() == attribute.lower():
            yield _unescaped(_trimmed(value))
        place = match.end()


def _trimmed(value: str) -> str:
    text = value.strip()
    if text.endswith("\\") and value != value.rstrip():
        # the last space was an escaped one
        text += value[len(value.rstrip())]
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _unescaped(value: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[2]
        return bytes.fromhex(match[1].replace("\\", "")).decode("utf-8", "replace")

    return _ESCAPED.sub(character, value)


def _is_text(value: str) -> bool:
    """Whether a text can be part of a request: no lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


class _Lookup:
    def __init__(self, options: LdapLogin, session: DirectorySession) -> None:
        self._options = options
        self._session = session

    def roles_of(self, user: str, password: str | None) -> frozenset[str] | None:
        entry = self._find(user)
        if entry is None or not entry.name.strip():
            return None
        if password is not None and not self._session.binds(entry.name, password):
            return None
        return frozenset((*self._named_by(entry), *self._searched(entry.name, user)))

    def _find(self, user: str) -> Entry | None:
        """The entry of a user; None: there is none, or more than one."""
        options = self._options
        if options.users is None:
            return Entry(user, {})
        wanted = () if options.user_role_name is None else (options.user_role_name,)
        found = self._session.search(options.users, options.users.filter.fill(escaped(user)), wanted, 2)
        if len(found) > 1:
            raise DirectoryUnavailable(
                f"{options.place} userSearchMatching finds more than one entry for user {user!r}",
                hint="a filter that finds each user once",
            )
        return found[0] if found else None

    def _named_by(self, entry: Entry) -> Iterator[str]:
        """Roles in the entry of the user."""
        options = self._options
        if options.user_role_name is None:
            return
        for value in entry.attributes.get(options.user_role_name, ())[:LDAP_ROLES_MAX]:
            if options.role_name is None:
                yield value
            else:
                yield from values_of(value, options.role_name)

    def _searched(self, name: str, user: str) -> Iterator[str]:
        """Roles whose entries a search finds, and those that they are members of."""
        options = self._options
        if options.roles is None:
            return
        seen: set[str] = set()
        waiting: deque[str] = deque()
        for entry in self._role_entries(options.roles.filter.fill(escaped(name), escaped(user))):
            yield from self._role(entry)
            seen.add(entry.name)
            waiting.append(entry.name)
        while waiting and options.expand is not None:
            for entry in self._role_entries(options.expand.fill(escaped(waiting.popleft()))):
                if entry.name in seen:
                    continue
                if len(seen) >= LDAP_EXPANDED_MAX:
                    raise DirectoryUnavailable(f"{options.place} user {user!r} has more than {LDAP_EXPANDED_MAX} roles")
                yield from self._role(entry)
                seen.add(entry.name)
                waiting.append(entry.name)

    def _role_entries(self, matching: str) -> Sequence[Entry]:
        options = self._options
        assert options.roles is not None
        wanted = () if options.role_name is None else (options.role_name,)
        return self._session.search(options.roles, matching, wanted, LDAP_ROLES_MAX)

    def _role(self, entry: Entry) -> Iterator[str]:
        name = self._options.role_name
        if name is None:
            yield entry.name
        else:
            yield from entry.attributes.get(name, ())[:1]
