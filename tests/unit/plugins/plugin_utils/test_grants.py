"""Goal: the user of the pipeline gets its permissions, and no other role loses one."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils.grants import Ungranted, with_grants
from hypothesis import given
from hypothesis import strategies as st

SETTINGS = [
    {"match": "#", "permissions": {"send": ["shops"], "consume": "shops, ops"}},
    {"match": "orders.#", "permissions": {"consume": ["shops"]}},
]


def test_the_role_is_added_to_the_setting_with_the_same_match() -> None:
    found = with_grants(SETTINGS, "pipeline", [{"match": "#", "permissions": ["consume", "browse"]}])
    assert found == [
        {
            "match": "#",
            "permissions": {"send": ["shops"], "consume": ["shops", "ops", "pipeline"], "browse": ["pipeline"]},
        },
        SETTINGS[1],
    ]
    assert SETTINGS[0]["permissions"] == {"send": ["shops"], "consume": "shops, ops"}


def test_a_match_without_a_setting_is_refused_because_it_would_take_permissions_from_others() -> None:
    with pytest.raises(Ungranted, match=r"'orders' *: broker_security_settings has no entry with this match"):
        with_grants(SETTINGS, "pipeline", [{"match": "orders", "permissions": ["browse"]}])
    assert with_grants([], "pipeline", [{"match": "orders", "permissions": ["browse"]}]) == [
        {"match": "orders", "permissions": {"browse": ["pipeline"]}}
    ]


def test_a_match_that_is_listed_twice_is_refused() -> None:
    grant = {"match": "#", "permissions": ["browse"]}
    with pytest.raises(Ungranted, match="twice"):
        with_grants(SETTINGS, "pipeline", [grant, grant])


@pytest.mark.parametrize("permissions", ["browse", None, 1])
def test_permissions_that_are_no_list_are_refused(permissions: object) -> None:
    with pytest.raises(TypeError):
        with_grants(SETTINGS, "pipeline", [{"match": "#", "permissions": permissions}])


ROLES = st.lists(st.sampled_from(["shops", "ops", "audit"]), unique=True)
PERMISSIONS = st.dictionaries(st.sampled_from(["send", "consume", "browse", "manage"]), ROLES)


@given(
    permissions=st.dictionaries(st.sampled_from(["#", "orders.#", "orders"]), PERMISSIONS, min_size=1),
    added=st.lists(st.sampled_from(["send", "consume", "browse"]), unique=True),
)
def test_every_role_keeps_its_permissions_and_only_the_granted_ones_are_added(
    permissions: dict[str, dict[str, list[str]]], added: list[str]
) -> None:
    settings = [{"match": match, "permissions": roles} for match, roles in permissions.items()]
    match = next(iter(permissions))
    for setting in with_grants(settings, "pipeline", [{"match": match, "permissions": added}]):
        before = permissions[str(setting["match"])]
        after = setting["permissions"]
        assert isinstance(after, dict)
        for name, roles in after.items():
            others = [role for role in roles if role != "pipeline"]
            assert others == before.get(name, [])
            assert ("pipeline" in roles) is (setting["match"] == match and name in added)
        assert set(before) <= set(after)
