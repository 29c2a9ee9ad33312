"""Logins at a directory without a network: searches, filters, roles, limits, and the flags of several modules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.directories import ADA, ADA_ROLES, FakeDirectory, role
from understudy.config.logins.ldap_login import Search
from understudy.limits import LDAP_EXPANDED_MAX
from understudy.security.directory import DirectorySession, DirectoryUnavailable, Entry, escaped, look_up, values_of
from understudy.security.login_modules import LoginModule, decide, decide_without_directory


def test_the_entry_is_found_then_proved_then_its_roles_are_searched() -> None:
    directory = FakeDirectory({"(uid=ada)": [ADA], ADA_ROLES: [role("a"), role("b")]})
    assert look_up(directory, "ada", "right") == {"a", "b"}
    assert directory.asked == [("ou=people", "(uid=ada)", ()), ("ou=roles", ADA_ROLES, ("cn",))]
    assert directory.bound == [ADA.name]
    assert directory.open_count == 0


def test_no_role_is_searched_before_the_password_is_proved() -> None:
    directory = FakeDirectory({"(uid=ada)": [ADA]})
    assert look_up(directory, "ada", "wrong") is None
    assert look_up(directory, "eve", "right") is None
    assert {base for base, _, _ in directory.asked} == {"ou=people"}
    assert directory.open_count == 0


@pytest.mark.parametrize(("user", "password"), [("", "right"), (" ", "right"), ("ada", ""), ("ada", "\ud800")])
def test_a_bind_with_an_empty_name_or_password_is_never_made(user: str, password: str) -> None:
    directory = FakeDirectory({"(uid=ada)": [ADA]}, userSearchMatching="")
    assert look_up(directory, user, password) is None
    assert directory.bound == []


def test_an_entry_without_a_name_proves_no_user() -> None:
    directory = FakeDirectory({"(uid=ada)": [Entry("", {})]})
    assert look_up(directory, "ada", "right") is None
    assert directory.bound == []


def test_two_entries_prove_neither() -> None:
    directory = FakeDirectory({"(uid=ada)": [ADA, ADA]})
    with pytest.raises(DirectoryUnavailable, match="more than one entry"):
        look_up(directory, "ada", "right")
    assert directory.bound == []
    assert directory.open_count == 0


def test_roles_of_the_entry_of_the_user() -> None:
    groups = ["cn=one,ou=x", "CN=t\\2cwo+OU=y,ou=x", "ou=none"]
    directory = FakeDirectory(
        {"(uid=ada)": [Entry(ADA.name, {"memberOf": groups})]}, userRoleName="memberOf", roleSearchMatching=""
    )
    assert look_up(directory, "ada", "right") == {"one", "t,wo"}
    whole = FakeDirectory(directory.answers, userRoleName="memberOf", roleSearchMatching="", roleName="")
    assert look_up(whole, "ada", "right") == frozenset(groups)


def test_roles_of_roles_end_although_they_contain_each_other() -> None:
    answers = {
        "(uid=ada)": [ADA],
        ADA_ROLES: [role("a")],
        "(member=cn\\3da\\2cou\\3droles)": [role("b")],
        "(member=cn\\3db\\2cou\\3droles)": [role("a"), role("c")],
    }
    directory = FakeDirectory(answers, expandRoles="true", expandRolesMatching="(member={0})")
    assert look_up(directory, "ada", "right") == {"a", "b", "c"}


def test_roles_of_roles_have_a_limit() -> None:
    class Endless(FakeDirectory):
        def search(self, search: Search, matching: str, attributes: Sequence[str], limit: int) -> Sequence[Entry]:
            super().search(search, matching, attributes, limit)
            return [ADA] if search.base == "ou=people" else [role(f"r{len(self.asked)}")]

    directory = Endless({}, expandRoles="true", expandRolesMatching="(member={0})")
    with pytest.raises(DirectoryUnavailable, match=f"more than {LDAP_EXPANDED_MAX} roles"):
        look_up(directory, "ada", "right")
    assert directory.open_count == 0


def test_only_roles_of_a_user_that_is_proved_otherwise() -> None:
    directory = FakeDirectory({"(uid=ada)": [ADA], ADA_ROLES: [role("a")]})
    assert look_up(directory, "ada", None) == {"a"}
    assert directory.bound == []


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_an_escaped_value_has_no_special_character_and_keeps_its_bytes(value: str) -> None:
    made = escaped(value)
    assert not set(made) & set("()*\0&|!=<>~,;+\"' ")
    read = bytearray()
    place = 0
    while place < len(made):
        if made[place] == "\\":
            read += bytes.fromhex(made[place + 1 : place + 3])
            place += 3
        else:
            read += made[place].encode()
            place += 1
    assert bytes(read) == value.encode()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cn=a,ou=b,cn=c", ["a", "c"]),
        ("CN = a b , ou=x", ["a b"]),
        ("ou=x+cn=a\\+b", ["a+b"]),
        ('cn="a,b",ou=x', ["a,b"]),
        ("cn=\\c3\\a4\\2c", ["ä,"]),
        ("cn=a\\ ", ["a "]),
        ("ou=cn", []),
        ("", []),
        ('cn="open', []),
    ],
)
def test_values_of_an_attribute_in_a_name(name: str, values: list[str]) -> None:
    assert list(values_of(name, "cn")) == values


@given(st.text(alphabet='cn=ao,;+\\" 1f', max_size=30))
def test_any_name_is_read_or_has_no_value(name: str) -> None:
    list(values_of(name, "cn"))


# --- several modules ---------------------------------------------------------------------------------


class Down(FakeDirectory):
    def open(self) -> DirectorySession:
        raise DirectoryUnavailable("down")


UP = FakeDirectory({"(uid=ada)": [ADA], ADA_ROLES: [role("a")]})
FILE = None


def chain(*modules: tuple[str, FakeDirectory | None]) -> list[LoginModule]:
    return [LoginModule(flag, directory) for flag, directory in modules]


@pytest.mark.parametrize(
    ("modules", "right", "password", "proved", "roles"),
    [
        ([("sufficient", FILE), ("sufficient", UP)], True, "wrong", True, set()),
        ([("sufficient", FILE), ("sufficient", UP)], False, "right", True, {"a"}),
        ([("sufficient", FILE), ("sufficient", UP)], False, "wrong", False, set()),
        ([("required", FILE), ("required", UP)], True, "right", True, {"a"}),
        ([("required", FILE), ("required", UP)], True, "wrong", False, set()),
        ([("required", FILE), ("sufficient", UP)], False, "right", False, {"a"}),
        ([("requisite", FILE), ("optional", UP)], False, "right", False, set()),
        ([("requisite", FILE), ("optional", UP)], True, "right", True, {"a"}),
        ([("optional", UP)], False, "right", True, {"a"}),
        ([("optional", UP)], False, "wrong", False, set()),
        ([("sufficient", Down({})), ("sufficient", FILE)], True, "right", True, set()),
        ([("requisite", Down({})), ("sufficient", FILE)], True, "right", False, set()),
    ],
)
def test_flags_decide(
    modules: list[tuple[str, FakeDirectory | None]], right: bool, password: str, proved: bool, roles: set[str]
) -> None:
    found = decide(chain(*modules), "ada", password, right)
    assert (found.proved, found.roles) == (proved, roles)
    assert bool(found.unavailable) == any(isinstance(directory, Down) for _, directory in modules)


def test_a_directory_that_only_maps_roles_proves_no_user() -> None:
    mapping = FakeDirectory(UP.answers, authenticateUser="false")
    assert not decide(chain(("optional", mapping)), "ada", "right", False).proved
    found = decide(chain(("required", FILE), ("optional", mapping)), "ada", "wrong", True)
    assert (found.proved, found.by_users_file, found.roles) == (True, True, {"a"})
    assert not decide(chain(("required", FILE), ("optional", mapping)), "ada", "right", False).proved


def test_a_directory_is_not_asked_if_the_users_file_decides() -> None:
    modules = chain(("sufficient", FILE), ("sufficient", UP))
    found = decide_without_directory(modules, "ada", True)
    assert found is not None
    assert found.proved
    assert decide_without_directory(modules, "ada", False) is None
    refused = decide_without_directory(chain(("requisite", FILE), ("optional", UP)), "ada", False)
    assert refused is not None
    assert not refused.proved
