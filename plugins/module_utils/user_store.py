"""One user and its roles in the files of users and roles of an instance.

The files are those of ``credentials``; here a single entry is changed, and every other line, comments included, stays
as it is. A hash that fits the wanted password stays, so that a second run changes nothing although salts are random.
Pure.

Faults never quote a password or a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ansible_collections.understudy.broker.plugins.module_utils.credentials import (
    SALT_BYTES,
    Entropy,
    fits,
    hash_problem,
    make_hash,
    name_problem,
    password_problem,
)

USERS_FILE = "artemis-users.properties"
ROLES_FILE = "artemis-roles.properties"


@dataclass(frozen=True)
class Wish:
    """The user as it should be."""

    name: str
    present: bool = True
    password: str | None = field(default=None, repr=False)
    password_hash: str | None = field(default=None, repr=False)
    roles: tuple[str, ...] | None = None
    """All its roles, or those to add; None leaves them as they are."""
    append: bool = False
    update_password: bool = True
    """Whether the password of an existing user is changed."""


@dataclass(frozen=True)
class UserPlan:
    """Both files as they should be."""

    users: str
    roles: str
    before: Mapping[str, object] = field(default_factory=dict)
    """Roles of the user, and whether the password differs; empty: there is no such user."""
    after: Mapping[str, object] = field(default_factory=dict)
    roles_of_user: tuple[str, ...] = ()
    problem: str = ""


class Unreadable(ValueError):
    """A file has a line that is no entry, or two for one name; the message names file and line."""


def entries(text: str, file: str) -> dict[str, str]:
    """Values by name.

    Raises:
        Unreadable
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = _entry(line)
        if entry is None:
            continue
        name, value = entry
        if not name or name in found:
            problem = f"{name!r} is repeated" if name else "no 'name = value'"
            raise Unreadable(f"{file}:{number}: {problem}; correct the file first")
        found[name] = value
    return found


def _entry(line: str) -> tuple[str, str] | None:
    """Name and value of a line; None for a comment or an empty line; an empty name for what is no entry."""
    text = line.strip()
    if not text or text[0] in "#!":
        return None
    place = min((found for sign in "=:" if (found := text.find(sign)) >= 0), default=-1)
    return (text[:place].strip(), text[place + 1 :].strip()) if place > 0 else ("", "")


def with_entry(text: str, name: str, value: str | None) -> str:
    """The text with one entry changed, added at its end, or (None) removed; all other lines stay."""
    lines: list[str] = []
    wanted = value
    for line in text.splitlines(keepends=True):
        entry = _entry(line)
        if entry is None or entry[0] != name:
            lines.append(line)
        elif wanted is not None:
            lines.append(line if entry[1] == wanted else f"{name} = {wanted}\n")
            wanted = None
    if wanted is not None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        lines.append(f"{name} = {wanted}\n")
    return "".join(lines)


def roles_of(name: str, roles: Mapping[str, str]) -> tuple[str, ...]:
    """Roles that name a user."""
    return tuple(sorted(role for role, members in roles.items() if name in _members(members)))


def _members(value: str) -> list[str]:
    return [member.strip() for member in value.split(",") if member.strip()]


def plan_user(users: str, roles: str, wish: Wish, reserved: Iterable[str], entropy: Entropy) -> UserPlan:
    """Both files with the user as wished.

    Args:
        users: Text of the users file.
        roles: Text of the roles file.
        wish: The user.
        reserved: Names that no user may have, such as that of the cluster's own login.
        entropy: Gives random bytes for a salt.

    Raises:
        Unreadable
    """
    stored, groups = entries(users, USERS_FILE), entries(roles, ROLES_FILE)
    problem = _problem(wish, wish.name in stored, reserved)
    if problem:
        return UserPlan(users, roles, problem=problem)
    present = roles_of(wish.name, groups)
    value = _stored_value(wish, stored.get(wish.name), entropy)
    wanted = _wanted_roles(wish, present)
    changed = roles
    for role in sorted(groups.keys() | set(wanted)):
        members = _members(groups.get(role, ""))
        if (role in wanted) != (wish.name in members):
            joined = (
                sorted({*members, wish.name}) if role in wanted else [each for each in members if each != wish.name]
            )
            changed = with_entry(changed, role, ",".join(joined))
    before: dict[str, object] = {} if wish.name not in stored else {"roles": list(present)}
    after: dict[str, object] = {"roles": list(wanted)} if wish.present else {}
    if before and after and value != stored[wish.name]:
        before["password"], after["password"] = "the former one", "the given one"
    return UserPlan(with_entry(users, wish.name, value), changed, before, after, tuple(wanted))


def _problem(wish: Wish, exists: bool, reserved: Iterable[str]) -> str:
    where = f"user {wish.name!r}"
    if name_problem(wish.name):
        return f"{where}: the name {name_problem(wish.name)}"
    if wish.name in reserved:
        return f"{where}: is the cluster's own login, which is no user of the files"
    for role in wish.roles or ():
        if name_problem(role):
            return f"{where}: the name of the role {role!r} {name_problem(role)}"
    if not wish.present:
        return ""
    if wish.password is None and wish.password_hash is None:
        return "" if exists else f"{where}: a new user needs password or password_hash"
    if wish.password is not None:
        problem = password_problem(wish.password)
        if problem or wish.password.lower() == wish.name.lower():
            return f"{where}: the password {problem or 'is the name of the user'}"
    elif hash_problem(str(wish.password_hash)):
        return f"{where}: password_hash {hash_problem(str(wish.password_hash))}"
    return ""


def _stored_value(wish: Wish, stored: str | None, entropy: Entropy) -> str | None:
    """The value of the users file; None: no entry."""
    if not wish.present:
        return None
    if stored is not None and (not wish.update_password or (wish.password is None and wish.password_hash is None)):
        return stored
    if wish.password_hash is not None:
        return wish.password_hash
    password = str(wish.password)
    return stored if stored is not None and fits(password, stored) else make_hash(password, entropy(SALT_BYTES))


def _wanted_roles(wish: Wish, present: tuple[str, ...]) -> list[str]:
    if not wish.present:
        return []
    if wish.roles is None:
        return sorted(present)
    return sorted({*wish.roles, *(present if wish.append else ())})
