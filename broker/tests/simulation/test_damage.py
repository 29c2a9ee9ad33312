"""Damaged records: set aside, listed, and survived by the pair; and the fault that damages them."""

from __future__ import annotations

import random

import pytest

from understudy.store.quarantine import QuarantineEntry
from understudy.testing.runs.damage import judge_quarantine
from understudy.testing.runs.fault_plan import ACTIVE, FaultKind, draw_damage
from understudy.testing.runs.plan import draw_plan
from understudy.testing.scenarios.damaged_pair import DamagedPairRun
from understudy.testing.scenarios.scenarios import SHARED_STORE
from understudy.testing.simulate import quiet_logging

SEEDS = 100


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


@pytest.mark.parametrize("seed", range(8))
def test_damage_is_set_aside_through_failovers_and_restarts(seed):
    """No node is configured to set damage aside at its start. Two seeds use each operation that reads damage."""
    outcome = SHARED_STORE.run_seed(seed, run_class=DamagedPairRun)
    assert [str(violation) for violation in outcome.violations] == []
    assert outcome.quarantined == outcome.damaged > 0
    assert outcome.activations >= 3


def test_a_share_of_the_seeds_has_damage():
    plans = [draw_plan(seed) for seed in range(SEEDS)]
    damaged = [plan for plan in plans if FaultKind.DAMAGE in {fault.kind for fault in plan.faults}]
    assert SEEDS // 10 <= len(damaged) <= SEEDS // 3
    assert all(plan.pair.quarantine for plan in damaged)
    assert {plan.pair.max_size_bytes for plan in damaged} == {-1, 2_000, 20_000}


def test_damage_is_drawn_with_what_follows_it():
    drawn = [draw_damage(random.Random(seed), (), begin_s=1.0, end_s=9.0) for seed in range(200)]
    assert 20 < sum(map(bool, drawn)) < 60
    kinds = {fault.kind for faults in drawn for fault in faults}
    assert kinds == {FaultKind.DAMAGE, FaultKind.KILL, FaultKind.POWER_LOSS, FaultKind.STOP}
    assert all(fault.target == ACTIVE for faults in drawn for fault in faults if fault.kind is not FaultKind.DAMAGE)
    for faults in drawn:
        assert sorted(fault.number for fault in faults) == list(range(len(faults)))
        assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)


def entry(message_id: int, *, held: bool = False) -> QuarantineEntry:
    return QuarantineEntry(f"message-{message_id}-1", "message", "damaged", 0, message_id=message_id, held=held)


def test_the_quarantine_may_hold_damaged_messages_and_nothing_else():
    damaged = {1: ("p", 0), 2: ("p", 1)}
    assert judge_quarantine([], damaged) == (set(), [])
    assert judge_quarantine([entry(1)], damaged) == ({("p", 0)}, [])
    explained, violations = judge_quarantine([entry(1), entry(3)], damaged)
    assert explained == {("p", 0)}
    assert [violation.check for violation in violations] == ["quarantine"]
    assert "message-3-1" in str(violations[0])
    _, violations = judge_quarantine([entry(2, held=True)], damaged)
    assert [violation.check for violation in violations] == ["quarantine"]
