"""Changes of the files of users and roles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.errors import ManagementError
from understudy.runtime.base.environment import SystemEntropy
from understudy.security.authentication import parse_roles, parse_users
from understudy.security.authorization import UserTexts
from understudy.security.password_hashes import PasswordHash
from understudy.security.properties_file import entries, replaced
from understudy.security.user_changes import added, listed, removed, reset

ENTROPY = SystemEntropy()
OLD = str(PasswordHash.make("old", ENTROPY))
TEXTS = UserTexts(
    f"# users\nadmin = {OLD}\n\nbob|SCRAM-SHA-256 = 1:2:3\nbob = {OLD}\n# end\n",
    "users",
    "# roles\namq = admin, bob\nreports = bob\n",
    "roles",
)


def hash_of(texts: UserTexts, name: str) -> PasswordHash:
    found = parse_users(texts.users, file="users", entropy=ENTROPY)[name]
    assert isinstance(found, PasswordHash)
    return found


def test_a_user_is_added_and_every_other_line_stays() -> None:
    after = added(TEXTS, "alice", "secret", ["amq", "orders", "amq"], ENTROPY)
    assert after.users.startswith(TEXTS.users)
    assert "secret" not in after.users
    assert hash_of(replace(after, users=after.users.replace("bob|SCRAM-SHA-256 = 1:2:3\n", "")), "alice").verify(
        "secret"
    )
    assert after.roles == "# roles\namq = admin,bob,alice\nreports = bob\norders = alice\n"
    assert listed(after) == {"admin": ["amq"], "bob": ["amq", "reports"], "alice": ["amq", "orders"]}


def test_a_removed_user_is_in_no_file_and_a_role_without_users_is_gone() -> None:
    after = removed(TEXTS, "bob")
    assert after.users == f"# users\nadmin = {OLD}\n\n# end\n"
    assert after.roles == "# roles\namq = admin\n"


def test_password_and_roles_change_apart() -> None:
    after = reset(TEXTS, "bob", "new", None, ENTROPY)
    assert hash_of(after, "bob").verify("new")
    assert "SCRAM" not in after.users, "keys of the earlier password"
    assert after.roles == TEXTS.roles
    after = reset(TEXTS, "bob", None, ["reports", "audit"], ENTROPY)
    assert after.users == TEXTS.users
    assert listed(after)["bob"] == ["audit", "reports"]


@pytest.mark.parametrize("name", ["", "\ta", "a,b", "a|b", "a\nb", "x" * 5000])
def test_names_that_cannot_be_stored_are_refused(name: str) -> None:
    with pytest.raises(ManagementError):
        added(TEXTS, name, "secret", ["amq"], ENTROPY)
    with pytest.raises(ManagementError):
        added(TEXTS, "alice", "secret", ["amq", name], ENTROPY)


def test_other_refusals() -> None:
    for call in (
        lambda: added(TEXTS, "bob", "secret", ["amq"], ENTROPY),
        lambda: added(TEXTS, "alice", "", ["amq"], ENTROPY),
        lambda: added(TEXTS, "alice", "x" * 5000, ["amq"], ENTROPY),
        lambda: removed(TEXTS, "alice"),
        lambda: reset(TEXTS, "alice", "secret", None, ENTROPY),
    ):
        with pytest.raises(ManagementError) as refused:
            call()
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["a b", "a=b", "a:b", "#a", "!a", "a\\b", "ü", "CN=a, O=b".replace(",", ";")])
def test_every_name_is_read_as_it_was_written(name: str) -> None:
    after = added(TEXTS, name, "secret", [name], ENTROPY)
    assert listed(after)[name] == [name]
    assert parse_roles(after.roles, file="roles")[name] == {name}
    assert removed(after, name) == TEXTS


def test_an_entry_over_several_lines_is_removed_whole() -> None:
    text = "a = 1\nb = 2,\\\n    3\nc = 4"
    assert replaced(text, "f", {"b": None, "d": "5"}) == "a = 1\nc = 4\nd = 5\n"
    assert [(each.key, each.value) for each in entries(replaced(text, "f", {"c": None}), "f")] == [
        ("a", "1"),
        ("b", "2,3"),
    ]
