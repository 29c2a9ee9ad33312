"""Goal: a pair goes on without its witness while its nodes see each other, and after any second loss at most one node
may confirm. Time is virtual.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.ha.replication.standing_lock import StandingLock, StandingState
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.witnessed_run import WitnessedRun
from understudy.testing.runs.witnessed_strikes import SECOND_LOSSES, WitnessedStrikes
from understudy.testing.scenarios.scenarios import SCENARIOS
from understudy.testing.simulate import quiet_logging

PAIR = SCENARIOS["replication"]
#: Virtual seconds without the witness.
OFF_S = 25.0
BEGIN_S = 8.0


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


class Observed(WitnessedRun):
    """A run that notes the activations before the end of the faults, and the states of permissions."""

    activations = 0
    states: set[StandingState]

    async def run(self):
        self.loop.call_later(self.plan.heal_s - 0.1, self._count)
        await super().run()

    def _count(self):
        type(self).activations = len(self.cluster.epochs.activations)


def up_to_date(seed, fault, heal_s):
    """A plan with one fault, whose nodes both speak the newest version of the replication protocol."""
    plan = PAIR.draw(seed)
    return replace(plan, faults=(fault,), heal_s=heal_s, pair=replace(plan.pair, older=frozenset()))


def observed(fault, seed=3):
    """The violations of a run with one fault, the activations before its end, and the states of permissions."""
    states = []
    fire = StandingLock.fire

    def noting(self, event, *payload):
        result = fire(self, event, *payload)
        if not states or states[-1] is not self.state:
            states.append(self.state)
        return result

    class Run(Observed):
        pass

    StandingLock.fire = noting
    try:
        drawn = up_to_date(seed, fault, BEGIN_S + OFF_S + 8.0)
        outcome = PAIR.run_plan(drawn, run_class=Run)
    finally:
        StandingLock.fire = fire
    return outcome.violations, Run.activations, states


@pytest.mark.parametrize("kind", [FaultKind.WITNESS_DOWN, FaultKind.WITNESS_PAUSED])
@pytest.mark.parametrize("seed", range(4))
def test_a_pair_in_sync_serves_without_its_witness(kind, seed):
    fault = Fault(0, BEGIN_S, kind, "", OFF_S, 0.6, 0)
    violations, activations, states = observed(fault, seed)
    assert not violations
    assert activations == 1
    assert states.count(StandingState.PROMISED) == 1
    assert states[states.index(StandingState.PROMISED) + 1] is StandingState.PROVED


def test_a_pair_whose_active_node_alone_is_cut_off_the_witness_serves():
    fault = Fault(0, BEGIN_S, FaultKind.PART_WITNESS, "active", OFF_S, 0.1, 0)
    violations, activations, states = observed(fault)
    assert (not violations, activations) == (True, 1)
    assert StandingState.PROMISED in states


@pytest.mark.parametrize("strike", SECOND_LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_after_any_second_loss_one_node_at_most_may_confirm(strike, seed):
    class Strikes(WitnessedStrikes):
        def _strike_second(self, drawn, active, passive, fault):
            super()._strike_second(strike, active, passive, fault)

    class Run(WitnessedRun):
        strikes_class = Strikes

    fault = Fault(0, BEGIN_S, FaultKind.WITNESS_GONE_THEN, "", 4.0, 0.1 + 0.3 * seed, 0)
    plan = up_to_date(seed, fault, BEGIN_S + OFF_S)
    assert PAIR.run_plan(plan, run_class=Run).violations == ()
