"""Goal: a replicated pair keeps its promises when a node ends at any step; the comparison of its stores can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.cluster.scale_down import transfer
from understudy.runtime.replica.replication import NodeReplication
from understudy.testing.runs.cluster_configuration import STORE
from understudy.testing.runs.copy_judge import differences
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.quorum_run import QuorumRun
from understudy.testing.runs.quorum_strikes import QuorumStrikes
from understudy.testing.runs.scaled_voters_run import ScaledVotersRun, ScaledVoterStrikes
from understudy.testing.runs.steps import LOCK_STEPS, VOTE_STEPS, name_of
from understudy.testing.runs.witnessed_run import WitnessedRun
from understudy.testing.runs.witnessed_strikes import WitnessedStrikes
from understudy.testing.scenarios.scaled_replicas import SCALE_DOWN_STEPS, ScaledReplicasRun, ScaledReplicaStrikes
from understudy.testing.scenarios.scenarios import SCENARIOS
from understudy.testing.sim.disk import SimVolume
from understudy.testing.simulate import quiet_logging
from understudy.wire.core.packets_replication import REPLICATION_PROTOCOL, REPLICATION_PROTOCOL_MIN

PAIR = SCENARIOS["replication"]
#: A connection that is lost during a transfer is left to the seeds: here the other pair stays as it is.
MOVING_STEPS = tuple(step for step in SCALE_DOWN_STEPS if step[1] is not transfer.State.RECONNECTING)
#: Of each scenario: its run, its faults, and its steps; of pairs that scale down only the steps of that.
KINDS = {
    "replication": (WitnessedRun, WitnessedStrikes, LOCK_STEPS),
    "quorum": (QuorumRun, QuorumStrikes, VOTE_STEPS),
    "scaled-replicas": (ScaledReplicasRun, ScaledReplicaStrikes, MOVING_STEPS),
    "scaled-voters": (ScaledVotersRun, ScaledVoterStrikes, MOVING_STEPS),
}
SEGMENT = f"{STORE}/journal/segment-{1:012d}-{1:010d}.log"


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


def crash_at(scenario, step, choice, *before):
    """The violations of a run in which a node crashes at a step, and the names of the steps reached."""
    reached = []
    run_class, strikes, _ = KINDS[scenario]

    class OneStep(strikes):
        def step_of(self, fault):
            return step

    class OneStepRun(run_class):
        strikes_class = OneStep

        def judge(self):
            reached.extend(self.strikes.reached)
            return super().judge()

    fault = Fault(0, 8.0, FaultKind.CRASH_AT_STEP, "", 1.0, choice, 0)
    plan = replace(SCENARIOS[scenario].draw(3), faults=(*before, fault), heal_s=18.0)
    return SCENARIOS[scenario].run_plan(plan, run_class=OneStepRun).violations, reached


def volume(**files):
    """A store with these files in the directory of its log."""
    made = SimVolume()
    disk = made.disk("maker")
    for directory in (STORE, f"{STORE}/journal", f"{STORE}/large-messages"):
        disk.make_directory(directory)
    for path, content in files.items():
        disk.open(path, create=True).write(0, [content])
    return made


def test_stores_with_equal_records_are_equal():
    other_node = {f"{STORE}/journal/server.lock": b"other"}
    header = b"header".ljust(4096, b"\0")
    used_before = volume(**{SEGMENT: header + b"bytes of an earlier use of the file"})
    assert differences(used_before, volume(**{SEGMENT: header}, **other_node)) == []


@pytest.mark.parametrize(
    ("replica", "text"),
    [
        ({}, f"{SEGMENT} is missing on the replica"),
        ({SEGMENT: b"recordX"}, f"{SEGMENT} differs at offset 6: 7 bytes on the active node, 7 there"),
        ({SEGMENT: b"rec"}, f"{SEGMENT} differs at offset 3: 7 bytes on the active node, 3 there"),
        (
            {SEGMENT: b"records", f"{STORE}/large-messages/7.large": b"body"},
            f"{STORE}/large-messages/7.large is on the replica only",
        ),
    ],
)
def test_a_difference_is_found(replica, text):
    assert differences(volume(**{SEGMENT: b"records"}), volume(**replica)) == [text]


PARTED = {name: [Fault(1, 7.0, FaultKind.PART_NODES, "", 8.0, 0.3, 0)] for name in ("replication", "quorum")}
WITHOUT_DECISION = {
    "replication": [Fault(1, 7.9, FaultKind.WITNESS_PAUSED, "", 4.0, 0.3, 0)],
    "quorum": [Fault(number, 7.9, FaultKind.VOTER_PAUSED, "", 6.0, 0.3, 0) for number in (1, 2)],
}
#: Until the step is reached: the active node is killed, stopped with a failover, its replica is started again, that
#: with nodes that do not reach each other, and the first without what decides which node is active.
TRIES = ((0.6,), (0.9,), (0.3,), (0.3, PARTED), (0.6, WITHOUT_DECISION))


def every_step():
    for scenario, (_, _, steps) in KINDS.items():
        for step in steps:
            yield pytest.param(scenario, step, id=f"{scenario}-{name_of(step)}")


@pytest.mark.long
@pytest.mark.parametrize(("scenario", "step"), list(every_step()))
def test_a_node_crashes_at_each_step(scenario, step):
    found = []
    for choice, *before in TRIES:
        faults = [fault for each in before for fault in each.get(scenario, ())]
        violations, reached = crash_at(scenario, step, choice, *faults)
        found += violations
        if reached:
            break
    assert (found, reached) == ([], [name_of(step)])


def test_some_pairs_are_updated_node_by_node(monkeypatch):
    """A node of the version before speaks the oldest protocol with the other one until it has started again."""
    plans = {seed: PAIR.draw(seed) for seed in range(15)}
    assert {frozenset(), frozenset("a"), frozenset("b")} <= {plan.pair.older for plan in plans.values()}
    spoken = set()
    make_copy = NodeReplication.make_copy

    def noting(self, owner, protocol):
        spoken.add(protocol)
        return make_copy(self, owner, protocol)

    monkeypatch.setattr(NodeReplication, "make_copy", noting)
    seed = next(seed for seed, plan in plans.items() if plan.pair.older == frozenset("b"))
    assert PAIR.run_seed(seed).violations == ()
    assert spoken == {REPLICATION_PROTOCOL_MIN, REPLICATION_PROTOCOL}
