"""XA branches of simulated clients through failovers, deaths of the clients included."""

from __future__ import annotations

import pytest

from understudy.testing.runs.plan import draw_plan
from understudy.testing.runs.xa_workload import BranchConsumerJob, BranchProducerJob
from understudy.testing.scenarios.branched_pair import BranchedPairRun
from understudy.testing.scenarios.scenarios import SHARED_STORE
from understudy.testing.simulate import quiet_logging

SEEDS = 100


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


@pytest.mark.parametrize("seed", range(6))
def test_branches_are_whole_through_failovers(seed):
    outcome = SHARED_STORE.run_seed(seed, run_class=BranchedPairRun)
    assert [str(violation) for violation in outcome.violations] == []
    assert outcome.branches > 30
    assert outcome.activations >= 4


class DeliberatePair(BranchedPairRun):
    """Pair whose consumer takes a second to decide about each branch: the branches, of one message each, outlast the
    run.
    """

    def __init__(self, plan, loop):
        super().__init__(plan, loop)
        self._consumers["c0"].decide_s = 1.0
        self._consumers["c0"].batch = 1


def test_a_consumer_that_takes_time_to_decide_is_not_taken_for_stuck():
    outcome = SHARED_STORE.run_seed(0, run_class=DeliberatePair)
    assert [str(violation) for violation in outcome.violations] == []


def test_a_share_of_the_seeds_works_in_branches():
    plans = [draw_plan(seed) for seed in range(SEEDS)]
    producing = [plan for plan in plans if any(isinstance(job, BranchProducerJob) for job in plan.producers)]
    consuming = [plan for plan in plans if any(isinstance(job, BranchConsumerJob) for job in plan.consumers)]
    assert SEEDS // 20 <= len(producing) <= SEEDS // 3
    assert SEEDS // 20 <= len(consuming) <= SEEDS // 3
