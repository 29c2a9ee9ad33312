"""Goal: a roll takes one host of a quorum at a time, waits until the quorum is whole, and never takes its majority."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import Refused
from ansible_collections.understudy.broker.plugins.module_utils.rollout_quorum import (
    Member,
    quorum_lines,
    quorum_waves,
)
from hypothesis import given
from hypothesis import strategies as st

PLACES = ("10.0.0.1:61619", "10.0.0.2:61619", "10.0.0.3:61619")


def group(answering: Sequence[str] = PLACES, pending: Sequence[str] = ("its unit",)) -> list[Member]:
    return [
        Member(f"q{number}", place, PLACES, tuple(answering), tuple(pending)) for number, place in enumerate(PLACES, 1)
    ]


def test_each_wave_is_one_host_and_ends_when_all_members_answer() -> None:
    waves = quorum_waves(group(), "update")
    assert [wave.host for wave in waves] == ["q1", "q2", "q3"]
    assert all(wave.whole == PLACES for wave in waves)
    assert quorum_lines(waves)[0] == "quorum 1: q1 (until all 3 members answer): its unit"


def test_an_update_leaves_members_without_a_difference_alone_and_a_restart_takes_all() -> None:
    assert quorum_waves(group(pending=()), "update") == ()
    assert len(quorum_waves(group(pending=()), "restart")) == 3


def test_a_resumed_restart_repeats_no_wave_and_a_resumed_update_has_those_that_are_missing() -> None:
    assert quorum_waves(group(), "restart", resumed=True) == quorum_waves(group(), "update")
    assert quorum_waves(group(pending=()), "restart", resumed=True) == ()
    assert len(quorum_waves(group(), "update", resumed=True)) == 3


def test_a_rollback_leaves_the_quorum_alone() -> None:
    assert quorum_waves(group(), "rollback") == ()


def test_a_member_that_does_not_answer_goes_first() -> None:
    members = [each for each in group(answering=PLACES[:2]) if each.name == "q3"]
    assert [wave.host for wave in quorum_waves(members, "update")] == ["q3"]


def test_a_group_that_would_lose_its_majority_is_refused() -> None:
    with pytest.raises(Refused) as refusal:
        quorum_waves(group(answering=PLACES[:2]), "update")
    assert [reason.partition(":")[0] for reason in refusal.value.reasons] == ["q1", "q2"]
    assert "silent: 10.0.0.3:61619" in refusal.value.reasons[0]


def test_a_host_that_cannot_be_reached_is_refused_and_named() -> None:
    with pytest.raises(Refused, match="q9: the host of the quorum cannot be reached"):
        quorum_waves([Member("q9", "10.0.0.9:61619", reachable=False, pending=("its unit",))], "update")


def test_a_single_witness_is_a_wave_that_ends_when_it_answers() -> None:
    (wave,) = quorum_waves([Member("w", PLACES[0], answering=(PLACES[0],), pending=("a release",))], "update")
    assert wave.whole == (PLACES[0],)
    assert wave.line() == "w (until it answers): a release"


@given(
    st.lists(st.sampled_from(PLACES), unique=True),
    st.sampled_from(["update", "restart"]),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_no_wave_ever_leaves_a_group_that_had_a_majority_without_it(
    answering: list[str], kind: str, changed: list[bool]
) -> None:
    """While the host of a wave is down, the other places that answered are still a majority, if there was one."""
    members = [
        Member(each.name, each.place, PLACES, tuple(answering), ("x",) if change else ())
        for each, change in zip(group(), changed, strict=True)
    ]
    try:
        waves = quorum_waves(members, kind)
    except Refused:
        return
    hosts = [wave.host for wave in waves]
    assert len(set(hosts)) == len(hosts)
    for wave in waves:
        member = next(each for each in members if each.name == wave.host)
        left = set(answering) - {member.place}
        assert 2 * len(left) > len(PLACES) or member.place not in answering


def test_an_entry_of_the_module_becomes_a_member() -> None:
    member = Member.of({"name": "q1", "place": PLACES[0], "members": list(PLACES), "answering": None, "pending": ["x"]})
    assert member == Member("q1", PLACES[0], PLACES, (), ("x",))
