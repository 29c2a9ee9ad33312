"""Goal: other playbooks refuse a roll that is under way or has not finished, with its commands, and nothing else."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessIdentity, ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.roll_guard import RollState, judge
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import LEASE_S, Hold, Holder
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Phase, Record

TABLE = ProcessTable()
HERE = Holder.present(TABLE, os.getpid())
ELSEWHERE = Holder("other", ProcessIdentity(77, 1, "another boot"), "pid:[1]")
ROLL = "20260101T000000Z"


def ended() -> Holder:
    """A run of this machine that has ended."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        identity = TABLE.identify(process.pid)
        assert identity is not None
    return replace(HERE, process=identity)


def hold(holder: Holder) -> Hold:
    return Hold(ROLL, holder, 1, "update", "2.0")


def record(phase: Phase, kind: str = "update") -> Record:
    return Record(ROLL, kind, "2.0" if kind == "update" else "", "east", phase, served=True)


def refusals(*states: RollState, complete: bool = True) -> tuple[str, ...]:
    return judge(states, HERE, TABLE, complete=complete).refusals


def test_nodes_without_a_roll_are_free() -> None:
    assert refusals(RollState("a1"), RollState("a2", record=record(Phase.DONE))) == ()


def test_a_roll_that_is_under_way_is_named_once_for_all_its_nodes() -> None:
    (told,) = refusals(RollState("a1", hold(ELSEWHERE), 5), RollState("a2", replace(hold(ELSEWHERE), renewed_ms=9), 3))
    assert told.startswith(
        "The update to 2.0 (roll 20260101T000000Z) is carried out by process 77 on other on a1, a2, last step 3 s ago"
    )
    assert "understudy.broker.rolling_update" in told


def test_the_present_run_is_not_in_its_own_way() -> None:
    assert refusals(RollState("a1", hold(HERE), 5, record(Phase.STOPPED)), RollState("a2", hold(HERE), 5)) == ()


@pytest.mark.parametrize("phase", [Phase.BEGUN, Phase.STOPPED, Phase.APPLIED, Phase.STARTED, Phase.RESTORING])
def test_an_unfinished_roll_is_refused_with_the_commands_that_end_it(phase: Phase) -> None:
    for state in (RollState("a1", hold(ended()), 5, record(phase)), RollState("a1", record=record(phase))):
        (told,) = refusals(state, RollState("a2"))
        assert f"The update to 2.0 (roll {ROLL}) has not finished ({phase.value}: a1)." in told
        assert "Resume it with ansible-playbook -i INVENTORY understudy.broker.rolling_update, or undo it with" in told
        assert told.endswith("ansible-playbook -i INVENTORY understudy.broker.rollback.")


def test_a_rollback_is_resumed_only() -> None:
    (told,) = refusals(RollState("a1", record=record(Phase.APPLIED, "rollback")))
    assert told.endswith("Resume it with ansible-playbook -i INVENTORY understudy.broker.rollback.")


def test_a_roll_that_was_killed_between_two_waves_has_not_finished() -> None:
    over = hold(ended())
    (told,) = refusals(RollState("a1", over, 5, record(Phase.DONE)), RollState("b1", over, 5))
    assert "has not finished (done: a1)" in told


def test_the_lease_ends_the_hold_of_another_machine() -> None:
    states = [RollState("a1", hold(ELSEWHERE), LEASE_S, record(Phase.DONE)), RollState("b1", hold(ELSEWHERE), LEASE_S)]
    verdict = judge(states, HERE, TABLE, complete=True)
    assert verdict.under_way == ()
    assert len(verdict.unfinished) == 1


def test_a_hold_whose_roll_has_changed_nothing_is_left_over() -> None:
    over = hold(ended())
    states = [RollState("a1", over, 5, record(Phase.RESTORED)), RollState("a2", over, 5)]
    verdict = judge(states, HERE, TABLE, complete=True)
    assert (verdict.refusals, verdict.leftover) == ((), ("a1", "a2"))
    # with --limit the other nodes are not known
    assert len(judge(states, HERE, TABLE, complete=False).unfinished) == 1


def test_a_host_that_was_lost_when_the_roll_released_it_holds_nothing() -> None:
    states = [RollState("a1", record=record(Phase.DONE)), RollState("b1", hold(ended()), 5, record(Phase.DONE))]
    verdict = judge(states, HERE, TABLE, complete=True)
    assert (verdict.refusals, verdict.leftover) == ((), ("b1",))


def test_answers_of_hosts_become_states() -> None:
    assert RollState.from_result("a1", {"unreachable": True, "msg": "timed out"}) is None
    assert RollState.from_result("a1", {}) is None
    assert RollState.from_result("a1", {"deployed": False}) == RollState("a1")
    rollout = {"hold": hold(ELSEWHERE).as_dict(), "hold_age_s": 7, "record": record(Phase.BEGUN).as_dict()}
    answer = {"deployed": True, "rollout": rollout}
    for kept, phase in ((True, Phase.BEGUN), (False, Phase.STOPPED)):
        found = RollState.from_result("a1", {**answer, "service": {"running": False, "kept": kept}})
        assert found == RollState("a1", hold(ELSEWHERE), 7, record(phase))
