"""A directory of users without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from understudy.config.logins.ldap_login import LdapLogin, Search, read_ldap_login
from understudy.security.directory import DirectorySession, Entry

OPTIONS = {
    "connectionURL": "ldap://h",
    "authentication": "none",
    "userBase": "ou=people",
    "userSearchMatching": "(uid={0})",
    "roleBase": "ou=roles",
    "roleSearchMatching": "(|(member={0})(login={1}))",
    "roleName": "cn",
}


class FakeDirectory:
    """A directory that answers filters from a table, and lets ``right`` in. Implements ``Directory``."""

    def __init__(self, answers: Mapping[str, Sequence[Entry]], **options: str) -> None:
        merged = {name: value for name, value in {**OPTIONS, **options}.items() if value}
        self.options: LdapLogin = read_ldap_login(merged, "/etc", "login.config", 1)[0]
        self.answers = answers
        self.asked: list[tuple[str, str, tuple[str, ...]]] = []
        self.bound: list[str] = []
        self.open_count = 0

    def open(self) -> DirectorySession:
        self.open_count += 1
        return self

    def search(self, search: Search, matching: str, attributes: Sequence[str], limit: int) -> Sequence[Entry]:
        self.asked.append((search.base, matching, tuple(attributes)))
        return list(self.answers.get(matching, ()))[:limit]

    def binds(self, name: str, password: str) -> bool:
        self.bound.append(name)
        return password == "right"

    def close(self) -> None:
        self.open_count -= 1


def role(name: str) -> Entry:
    return Entry(f"cn={name},ou=roles", {"cn": [name, "another name"]})


ADA = Entry("uid=ada,ou=people", {})
ADA_ROLES = "(|(member=uid\\3dada\\2cou\\3dpeople)(login=ada))"
