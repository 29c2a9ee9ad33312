"""Where a replica looks for its active node, and in which order."""

from __future__ import annotations

import pytest

from understudy.cluster.membership.topology import Member
from understudy.runtime.replica.search import candidates, silent_members
from understudy.wire.core.transport import TransportConfiguration


def at(name: str) -> TransportConfiguration:
    return TransportConfiguration(f"connector of {name}", parameters={"host": name, "port": 61616})


def member(name: str, group: str | None = None) -> Member:
    return Member(name, 1, at(name), at(f"backup of {name}"), group)


def hosts(found: list[TransportConfiguration]) -> list[str]:
    return [str(each.host) for each in found]


def test_the_active_node_of_the_own_id_comes_first_and_each_place_once() -> None:
    found = candidates(member("b"), [at("a"), at("b")], [member("a"), member("b"), member("c")], None)
    assert hosts(found) == ["b", "a", "c"]


def test_a_node_beyond_the_static_connectors_is_asked() -> None:
    assert hosts(candidates(None, [at("a"), at("b")], [member("c")], None)) == ["a", "b", "c"]


@pytest.mark.parametrize(("theirs", "expected"), [("east", ["a", "c"]), ("west", ["a"]), (None, ["a", "c"])])
def test_members_of_another_group_are_left_out(theirs: str | None, expected: list[str]) -> None:
    assert hosts(candidates(None, [at("a")], [member("c", theirs)], "east")) == expected


def test_a_member_without_an_active_node_is_no_candidate() -> None:
    assert candidates(Member("b", 1), [], [Member("c", 1, None, at("backup of c"))], None) == []


@pytest.mark.parametrize(
    ("others", "answered", "artemis", "expected"),
    [
        ("bc", "bc", "", []),
        ("bc", "b", "", ["c"]),
        ("bc", "bx", "c", []),
        ("", "x", "", []),
        ("b", "", "b", []),
        ("b", "", "", ["the other members"]),
        ("", "", "", ["the other members"]),
    ],
)
def test_members_that_gave_no_answer_are_named(others: str, answered: str, artemis: str, expected: list[str]) -> None:
    """Without any answer the members are not known. An Artemis has nothing to say."""
    found = silent_members(
        [member(each) for each in others],
        at("own"),
        [at(each) for each in answered],
        lambda connector: connector.host in list(artemis),
    )
    assert [at(each).to_url() if len(each) == 1 else each for each in expected] == list(found)
