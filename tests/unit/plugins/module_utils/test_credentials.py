"""Goal: the files are those that the broker reads, a second run changes nothing, and no fault shows a secret.

Method: the broker's own reader and hashing judge what is written here; the plugins themselves never import understudy.
"""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.credentials import (
    find_faults,
    fits,
    make_hash,
    roles_text,
    users_text,
)
from understudy.limits import CLUSTER_PASSWORD_CHARACTERS_MIN
from understudy.runtime.base.environment import SystemEntropy
from understudy.security.authentication import parse_roles, parse_users
from understudy.security.password_hashes import PasswordHash

APP = {"name": "app", "password": "correct horse"}
CLUSTER = ("understudy.cluster", "a-cluster-password")


def test_the_broker_reads_what_is_written() -> None:
    ops = {"name": "ops", "password_hash": str(PasswordHash.make("another one", SystemEntropy()))}
    users = parse_users(users_text([ops, APP], ""), file="users", entropy=SystemEntropy())
    assert users["app"].verify("correct horse")
    assert users["ops"].verify("another one")
    assert not users["app"].verify("another one")
    roles = [
        {"name": "apps", "users": ["app"]},
        {"name": "all", "users": ["ops", "app"]},
        {"name": "none", "users": []},
    ]
    assert parse_roles(roles_text(roles), file="roles") == {"app": {"apps", "all"}, "ops": {"all"}}


def test_a_second_run_keeps_the_hash_and_a_new_password_replaces_it() -> None:
    first = users_text([APP], "")
    assert users_text([APP], first) == first
    changed = users_text([{**APP, "password": "new password"}], first)
    assert changed != first
    assert users_text([{**APP, "password": "new password"}], changed) == changed


def test_two_users_with_one_password_have_different_hashes() -> None:
    hashes = [line.split(" = ")[1] for line in users_text([APP, {**APP, "name": "b"}], "").splitlines()]
    assert len(set(hashes)) == 2


def test_the_order_of_the_inventory_does_not_matter() -> None:
    other = {"name": "zoo", "password": "correct horse"}
    first = users_text([other, APP], "")
    assert users_text([APP, other], first) == first


@pytest.mark.parametrize("present", ["app", "app = x", "app = ENC(scrypt:3:8:1:00:00)", "# app = y", "\x00 = = ="])
def test_a_damaged_file_is_written_anew(present: str) -> None:
    assert parse_users(users_text([APP], present), file="users", entropy=SystemEntropy())["app"].verify("correct horse")


def test_a_hash_fits_its_password_only() -> None:
    stored = make_hash("correct horse", b"s" * 16)
    assert fits("correct horse", stored)
    assert not fits("correct horsf", stored)
    assert not fits("correct horse", "")


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"name": "app"}, "give either password or password_hash"),
        ({"name": "app", "password": "x" * 9, "password_hash": "y"}, "give either password or password_hash"),
        ({"name": "app", "password": "secret1"}, "is shorter than 8"),
        ({"name": "app", "password": "Password"}, "is publicly known"),
        ({"name": "applicat", "password": "APPLICAT"}, "is the name of the user"),
        ({"name": "app", "password_hash": "plain-secret"}, "is not of the form"),
        ({"name": "app", "password_hash": f"ENC(scrypt:3:8:1:{'0' * 32}:{'0' * 64})"}, "has a cost"),
        ({"name": "a=b", "password": "correct horse"}, "cannot stand in a properties file"),
        ({"name": "#a", "password": "correct horse"}, "cannot stand in a properties file"),
        ({"name": " a", "password": "correct horse"}, "cannot stand in a properties file"),
        ({"name": "", "password": "correct horse"}, "cannot stand in a properties file"),
        ({"name": CLUSTER[0], "password": "correct horse"}, "is broker_cluster_user"),
    ],
)
def test_a_user_that_cannot_be_used_is_refused_without_its_secret(user: dict[str, object], words: str) -> None:
    faults = find_faults([user], [], *CLUSTER)
    assert len(faults) == 1
    assert words in faults[0]
    for secret in (user.get("password"), user.get("password_hash")):
        assert secret is None or str(secret) not in faults[0] or str(secret) == user["name"]


def test_faults_of_roles_and_duplicates_are_all_listed() -> None:
    roles = [{"name": "r", "users": ["app", "nobody"]}, {"name": "r", "users": []}]
    faults = find_faults([APP, APP], roles, CLUSTER[0], "artemis")
    assert [fault.partition(": ")[0] for fault in faults] == [
        "broker_cluster_password",
        "broker_users",
        "broker_roles",
        "broker_roles",
    ]
    assert "names user 'nobody', which broker_users does not have" in faults[2]


@pytest.mark.parametrize(("password", "sound"), [("eleven char", False), ("twelve chars", True)])
def test_the_cluster_password_has_the_length_that_the_broker_wants(password: str, sound: bool) -> None:
    faults = find_faults([APP], [], CLUSTER[0], password)
    assert faults == ([] if sound else ["broker_cluster_password: is shorter than 12 characters"])
    assert len("twelve chars") == CLUSTER_PASSWORD_CHARACTERS_MIN


def test_a_sound_set_has_no_fault() -> None:
    assert find_faults([APP], [{"name": "apps", "users": ["app"]}], *CLUSTER) == []
