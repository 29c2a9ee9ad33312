"""Users, roles and their password hashes: what the inventory says, judged and written as the broker's files.

The files are those of Artemis: ``artemis-users.properties`` with lines ``user = ENC(scrypt:N:r:p:salt:hash)``, salt and
hash in hexadecimal, and ``artemis-roles.properties`` with lines ``role = user,user``. Hashes are made here, on the
controller; no password reaches a host. A present hash that fits its password is kept, so that a second run with a plain
password in the vault changes nothing although salts are random.

Faults never quote a password or a hash.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

PUBLIC_PASSWORDS = frozenset(
    (
        "change me!!",
        "cluster password",
        "admin",
        "administrator",
        "amq-cluster-pass",
        "activemq",
        "artemis",
        "changeit",
        "changeme",
        "guest",
        "password",
        "secret",
        "simetraehcapa",
        "understudy",
    )
)
"""Passwords that the documentation of brokers has made public, in lower case."""

PASSWORD_CHARACTERS_MIN = 8
CLUSTER_PASSWORD_CHARACTERS_MIN = 12
"""Fewest characters of the password by which the nodes of a cluster know each other; the broker refuses a shorter one.
"""
CREDENTIAL_CHARACTERS_MAX = 4096
"""What the broker reads of a name, a password or a line's value."""

SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 1
"""Cost of the hashes made here: 16 MiB and some tens of milliseconds each, the broker's own default."""
SCRYPT_BYTES_MAX = 256 * 1024 * 1024
"""The broker refuses a hash that needs more memory."""
SALT_BYTES = 16
HASH_BYTES = 32

_HASH = re.compile(r"ENC\(scrypt:([0-9]{1,10}):([0-9]{1,10}):([0-9]{1,10}):([0-9a-fA-F]{16,}):([0-9a-fA-F]{64})\)")
_NAME = re.compile(r"[^\s=:,\\#!][^=:,\\\x00-\x1f\x7f]*")

Entropy = Callable[[int], bytes]


def password_problem(password: str, characters_min: int = PASSWORD_CHARACTERS_MIN) -> str:
    """Why a password must not be used, or an empty string."""
    if len(password) < characters_min:
        return f"is shorter than {characters_min} characters"
    if len(password) > CREDENTIAL_CHARACTERS_MAX:
        return f"is longer than {CREDENTIAL_CHARACTERS_MAX} characters"
    if password.lower() in PUBLIC_PASSWORDS:
        return "is publicly known; give a random one"
    return ""


def name_problem(name: str) -> str:
    """Why a user or role cannot have this name, or an empty string."""
    if len(name) > CREDENTIAL_CHARACTERS_MAX:
        return f"is longer than {CREDENTIAL_CHARACTERS_MAX} characters"
    if not _NAME.fullmatch(name) or name != name.strip():
        return (
            "cannot stand in a properties file: it has blanks around it, a control character, one of = : , \\, "
            "or a leading # or !"
        )
    return ""


def hash_problem(text: str) -> str:
    """Why the broker would refuse a given hash, or an empty string."""
    match = _HASH.fullmatch(text)
    if match is None:
        return "is not of the form ENC(scrypt:N:r:p:salt:hash); `understudy user hash NAME` prints one"
    n, r, p = (int(match[group]) for group in (1, 2, 3))
    if n < 2 or n & (n - 1) or r < 1 or not 1 <= p <= 16 or 128 * n * r > SCRYPT_BYTES_MAX or len(match[4]) % 2:
        return "has a cost that the broker refuses"
    return ""


def find_faults(
    users: Sequence[Mapping[str, object]],
    roles: Sequence[Mapping[str, object]],
    cluster_user: str,
    cluster_password: str | None,
) -> list[str]:
    """Everything wrong with the users, the roles and the cluster's own login, as sentences without secrets."""
    faults: list[str] = []
    problem = ""
    if cluster_password is not None:
        problem = password_problem(cluster_password, CLUSTER_PASSWORD_CHARACTERS_MIN)
    if problem:
        faults.append(f"broker_cluster_password: {problem}")
    names: set[str] = set()
    for user in users:
        faults += _user_faults(user, names, cluster_user)
    seen: set[str] = set()
    for role in roles:
        faults += _role_faults(role, seen, names)
    return faults


def _user_faults(user: Mapping[str, object], names: set[str], cluster_user: str) -> Iterator[str]:
    name = str(user.get("name", ""))
    where = f"broker_users: user {name!r}"
    problem = name_problem(name)
    if problem:
        yield f"{where}: the name {problem}"
    if name in names:
        yield f"{where}: is listed twice"
    if name == cluster_user:
        yield f"{where}: is broker_cluster_user; nodes log in with the cluster's own password, not with one of a user"
    names.add(name)
    password, given = user.get("password"), user.get("password_hash")
    if (password is None) == (given is None):
        yield f"{where}: give either password or password_hash"
    elif password is not None:
        problem = password_problem(str(password))
        if problem or str(password).lower() == name.lower():
            yield f"{where}: the password {problem or 'is the name of the user'}"
    else:
        problem = hash_problem(str(given))
        if problem:
            yield f"{where}: password_hash {problem}"


def _role_faults(role: Mapping[str, object], seen: set[str], names: set[str]) -> Iterator[str]:
    name = str(role.get("name", ""))
    where = f"broker_roles: role {name!r}"
    problem = name_problem(name)
    if problem:
        yield f"{where}: the name {problem}"
    if name in seen:
        yield f"{where}: is listed twice"
    seen.add(name)
    for user in _members(role):
        if user not in names:
            yield f"{where}: names user {user!r}, which broker_users does not have"


def _members(role: Mapping[str, object]) -> list[str]:
    members = role.get("users") or []
    if isinstance(members, (str, Mapping)) or not isinstance(members, Iterable):
        raise TypeError(f"broker_roles: users of role {role.get('name')!r} must be a list")
    return [str(user) for user in members]


def make_hash(password: str, salt: bytes, n: int = SCRYPT_N, r: int = SCRYPT_R, p: int = SCRYPT_P) -> str:
    """The stored form of a password."""
    digest = hashlib.scrypt(
        password.encode(), salt=salt, n=n, r=r, p=p, maxmem=SCRYPT_BYTES_MAX + 2**20, dklen=HASH_BYTES
    )
    return f"ENC(scrypt:{n}:{r}:{p}:{salt.hex()}:{digest.hex()})"


def fits(password: str, stored: str) -> bool:
    """Whether a stored hash is one of this password; False for what is no hash."""
    if hash_problem(stored):
        return False
    n, r, p, salt = stored[4:-1].split(":")[1:5]
    digest = make_hash(password, bytes.fromhex(salt), int(n), int(r), int(p)).rpartition(":")[2]
    return hmac.compare_digest(digest, stored.rpartition(":")[2].lower())


def users_text(users: Sequence[Mapping[str, object]], present: str, entropy: Entropy = os.urandom) -> str:
    """The users file.

    Args:
        users: each with ``name`` and either ``password`` or ``password_hash``.
        present: text of the file on the host; empty if there is none. Hashes in it that fit are kept.
        entropy: gives random bytes for the salts of new hashes.
    """
    stored = dict(_entries(present))
    lines = []
    for user in sorted(users, key=lambda each: str(each["name"])):
        name = str(user["name"])
        if user.get("password_hash") is not None:
            value = str(user["password_hash"])
        else:
            password = str(user["password"])
            value = stored.get(name, "")
            if not fits(password, value):
                value = make_hash(password, entropy(SALT_BYTES))
        lines.append(f"{name} = {value}\n")
    return "".join(lines)


def roles_text(roles: Sequence[Mapping[str, object]]) -> str:
    """The roles file."""
    ordered = sorted(roles, key=lambda role: str(role["name"]))
    return "".join(f"{role['name']} = {','.join(sorted(set(_members(role))))}\n" for role in ordered)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of a users file; lines that are none are passed over, because the file is written anew."""
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith(("#", "!")):
            yield name.strip(), value.strip()
