"""Changes of the files of users and roles: a user is added, removed, or gets another password or other roles.

The functions take the texts of both files and return the new ones; comments and all other entries stay. Names and
meaning are those of the operations ``addUser``, ``removeUser`` and ``resetUser`` of Artemis. Passwords are always
stored as hashes. Not here: reading and writing the files (``runtime.logins.user_files``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from understudy.errors import ManagementError
from understudy.ports import Entropy
from understudy.security.authentication import CREDENTIAL_CHARACTERS_MAX, parse_roles
from understudy.security.authorization import UserTexts
from understudy.security.password_hashes import PasswordHash
from understudy.security.properties_file import entries, replaced

UserChange = Callable[[UserTexts], UserTexts]
"""Makes new texts of the files; raises ManagementError or ConfigError, and is called on any thread."""

#: Separates the name of a user from the mechanism in a key of Artemis with SCRAM keys.
_MECHANISM: Final = "|"


def listed(texts: UserTexts) -> dict[str, list[str]]:
    """Users of the files with their roles, in the order of the users file. Raises ConfigError."""
    roles = parse_roles(texts.roles, file=texts.roles_file)
    return {name: sorted(roles.get(name, ())) for name in _keys_by_user(texts)}


def added(texts: UserTexts, name: str, password: str, roles: Iterable[str], entropy: Entropy) -> UserTexts:
    """Add a user. Raises ManagementError: the user exists, or a name or the password cannot be stored."""
    wanted = _roles(roles)
    _check_name(name, "user")
    if name in _keys_by_user(texts):
        raise ManagementError(f"user {name!r} exists already", hint="change its password or roles instead")
    stored = str(PasswordHash.make(_checked_password(password), entropy))
    return _with_roles(_with_users(texts, {name: stored}), name, wanted)


def removed(texts: UserTexts, name: str) -> UserTexts:
    """Remove a user from both files. Raises ManagementError: there is none of the name."""
    keys = _existing(texts, name)
    return _with_roles(_with_users(texts, dict.fromkeys(keys)), name, ())


def reset(
    texts: UserTexts, name: str, password: str | None, roles: Iterable[str] | None, entropy: Entropy
) -> UserTexts:
    """Give a user another password, other roles, or both; None keeps the present ones.

    Raises:
        ManagementError: there is no such user, or a name or the password cannot be stored.
    """
    keys = _existing(texts, name)
    if password is not None:
        stored = str(PasswordHash.make(_checked_password(password), entropy))
        # keys of SCRAM belong to the earlier password
        values: dict[str, str | None] = {key: None for key in keys if key != name}
        texts = _with_users(texts, values | {name: stored})
    return texts if roles is None else _with_roles(texts, name, _roles(roles))


def _keys_by_user(texts: UserTexts) -> dict[str, list[str]]:
    """Keys of each user in the users file."""
    found: dict[str, list[str]] = {}
    for entry in entries(texts.users, texts.users_file):
        found.setdefault(entry.key.partition(_MECHANISM)[0], []).append(entry.key)
    return found


def _existing(texts: UserTexts, name: str) -> list[str]:
    keys = _keys_by_user(texts).get(name)
    if keys is None:
        raise ManagementError(f"there is no user {name!r} in the users file")
    return keys


def _with_users(texts: UserTexts, values: Mapping[str, str | None]) -> UserTexts:
    return replace(texts, users=replaced(texts.users, texts.users_file, values))


def _with_roles(texts: UserTexts, name: str, roles: Collection[str]) -> UserTexts:
    """The texts in which a user has exactly these roles; a role without users is removed."""
    values: dict[str, str | None] = {}
    missing = list(roles)
    for entry in entries(texts.roles, texts.roles_file):
        users = [each.strip() for each in entry.value.split(",") if each.strip()]
        has, wanted = name in users, entry.key in roles
        if wanted:
            missing.remove(entry.key)
        if has is not wanted:
            users = [*users, name] if wanted else [each for each in users if each != name]
            values[entry.key] = ",".join(users) or None
    values |= dict.fromkeys(missing, name)
    return replace(texts, roles=replaced(texts.roles, texts.roles_file, values))


def _roles(given: Iterable[str]) -> list[str]:
    """Names of roles, each once. Raises ManagementError: one of them cannot be stored."""
    roles = list(dict.fromkeys(each.strip(" ") for each in given))
    for each in roles:
        _check_name(each, "role")
    return roles


def _check_name(name: str, kind: str) -> None:
    if not name or name != name.strip() or not name.isprintable() or "," in name or _MECHANISM in name:
        raise ManagementError(
            f"{name[:100]!r} is no name of a {kind}", hint="a name is printable, without comma, | and outer spaces"
        )
    if len(name) > CREDENTIAL_CHARACTERS_MAX:
        raise ManagementError(f"the name of a {kind} has more than {CREDENTIAL_CHARACTERS_MAX} characters")


def _checked_password(password: str) -> str:
    if not password:
        raise ManagementError("the password is empty")
    if len(password) > CREDENTIAL_CHARACTERS_MAX:
        raise ManagementError(f"the password has more than {CREDENTIAL_CHARACTERS_MAX} characters")
    return password
