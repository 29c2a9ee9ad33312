"""Goal: one user of the files is changed and nothing else, and a second run changes nothing."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.credentials import fits, make_hash
from ansible_collections.understudy.broker.plugins.module_utils.user_store import (
    Unreadable,
    Wish,
    entries,
    plan_user,
    roles_of,
    with_entry,
)
from hypothesis import given
from hypothesis import strategies as st

SALT = bytes(range(16))
CHEAP = make_hash("a former password", SALT, 2, 1, 1)
USERS = f"# people\nann = {CHEAP}\n\nben: {CHEAP}\n"
ROLES = "# groups\nshops = ann, ben\nbosses = ben\n"

NAMES = st.text(st.sampled_from("abcxyz.-_ é"), min_size=1, max_size=8).map(str.strip).filter(bool)
HASHES = st.binary(min_size=8, max_size=16).map(lambda salt: make_hash("any password at all", salt, 2, 1, 1))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """A users file and a roles file with comments, and the names of the users."""
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    noise = st.sampled_from(["", "# note\n", "\n", "! note = x\n"])
    users = "".join(f"{draw(noise)}{name} = {draw(HASHES)}\n" for name in names)
    roles = ""
    for role in draw(st.lists(NAMES, unique=True, max_size=4)):
        members = [name for name in names if draw(st.booleans())]
        roles += f"{draw(noise)}{role} = {draw(st.sampled_from([',', ' , '])).join(members)}\n"
    return users, roles, names


def entropy(count: int) -> bytes:
    return SALT[:count]


@given(files(), NAMES, st.none() | st.lists(NAMES, max_size=3), st.booleans(), st.booleans(), HASHES)
def test_a_second_plan_changes_nothing_and_others_stay(
    texts: tuple[str, str, list[str]], name: str, roles: list[str] | None, append: bool, present: bool, value: str
) -> None:
    users, groups, names = texts
    wish = Wish(
        name, present=present, password_hash=value, roles=None if roles is None else tuple(roles), append=append
    )
    plan = plan_user(users, groups, wish, (), entropy)
    assert not plan.problem
    again = plan_user(plan.users, plan.roles, wish, (), entropy)
    assert (again.users, again.roles) == (plan.users, plan.roles)
    stored, after = entries(plan.users, "u"), entries(plan.roles, "r")
    for other in names:
        if other != name:
            assert stored[other] == entries(users, "u")[other]
            assert roles_of(other, after) == roles_of(other, entries(groups, "r"))
    assert (name in stored) is present
    has = set(roles_of(name, after))
    if not present:
        assert not has
    elif roles is not None:
        before = set(roles_of(name, entries(groups, "r")))
        assert has == (set(roles) | before if append else set(roles))
    comments = [line for line in (users + groups).splitlines() if line.startswith(("#", "!"))]
    assert [line for line in (plan.users + plan.roles).splitlines() if line.startswith(("#", "!"))] == comments


@given(files(), NAMES, HASHES)
def test_a_user_that_is_added_and_removed_leaves_the_users_as_they_were(
    texts: tuple[str, str, list[str]], name: str, value: str
) -> None:
    users = texts[0]
    if name not in entries(users, "u"):
        assert with_entry(with_entry(users, name, value), name, None) == users


def test_a_hash_that_fits_stays() -> None:
    plan = plan_user(USERS, ROLES, Wish("ann", password="a former password"), (), entropy)
    assert (plan.users, plan.roles, plan.before, plan.after) == (USERS, ROLES, {"roles": ["shops"]}, plan.before)


def test_a_new_password_replaces_the_hash_and_is_not_shown() -> None:
    plan = plan_user(USERS, ROLES, Wish("ben", password="another password"), (), entropy)
    assert fits("another password", entries(plan.users, "u")["ben"])
    assert entries(plan.users, "u")["ann"] == CHEAP
    assert plan.after["password"] == "the given one"
    assert "another" not in repr((plan.before, plan.after))
    kept = plan_user(USERS, ROLES, Wish("ben", password="another password", update_password=False), (), entropy)
    assert kept.users == USERS


@pytest.mark.parametrize(
    ("wish", "problem"),
    [
        (Wish("carl"), "a new user needs password"),
        (Wish("carl", password="tiny"), "is shorter than 8"),
        (Wish("carl", password="changeit"), "publicly known"),
        (Wish("carl-the-great", password="Carl-The-Great"), "is the name of the user"),
        (Wish("carl", password_hash="ENC(1024:AA:BB)"), "is not of the form"),
        (Wish("a=b", password="a long password"), "cannot stand in a properties file"),
        (Wish("ann", roles=("a,b",)), "the name of the role 'a,b'"),
        (Wish("cluster", password="a long password"), "is the cluster's own login"),
    ],
)
def test_refusals(wish: Wish, problem: str) -> None:
    plan = plan_user(USERS, ROLES, wish, ["cluster"], entropy)
    assert problem in plan.problem
    assert (plan.users, plan.roles) == (USERS, ROLES)
    assert str(wish.password) not in plan.problem or wish.password is None


@pytest.mark.parametrize("text", ["ann = x\nann = y\n", "no entry\n"])
def test_a_file_that_cannot_be_read_is_left_alone(text: str) -> None:
    with pytest.raises(Unreadable, match=r"artemis-users\.properties:[12]: "):
        plan_user(text, "", Wish("carl", present=False), (), entropy)
