"""The scenarios: many seeds keep every promise, and a seed is a bug report: it replays exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest

from understudy.ha.shared import lock_proof
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.fault_plan import (
    ACTIVE,
    GROUP_KINDS,
    LATER_KINDS,
    PAIR_LATER_KINDS,
    PASSIVE,
    PUT_BACK_CHANCES,
    QUORUM_KINDS,
    REPLICATION_KINDS,
    WEIGHTS,
    WITNESS_LATER_KINDS,
    Fault,
    FaultKind,
)
from understudy.testing.runs.plan import draw_plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.scenarios.scenario import Outcome, Scenario
from understudy.testing.scenarios.scenarios import SCENARIOS, SHARED_STORE, SHARED_STORES
from understudy.testing.scenarios.wrong_reads_pair import WRONG_READS_KINDS
from understudy.testing.simulate import quiet_logging

#: Seeds of all scenarios in a short run, in blocks of so many.
SEEDS = 200
BLOCK = 5
#: Of each scenario, its seeds here. `make simulation-long` runs more of them.
SHORT = {
    "shared-store": range(45),
    "shared-store-backups": range(30),
    "shared-store-symmetric": range(20),
    "replication": range(15),
    "witnesses": range(5),
    "quorum": range(10),
    "members": range(15),
    "member-pairs": range(10),
    "member-replicas": range(10),
    "ungrouped-pairs": range(5),
    "scaled-replicas": range(10),
    "scaled-voters": range(5),
    "wrong-reads": range(5),
    "amqp091": range(10),
    "amqp091-members": range(5),
}

#: Kinds of further scenarios.
_FURTHER = {
    "replication": REPLICATION_KINDS | PAIR_LATER_KINDS,
    "quorum": QUORUM_KINDS | PAIR_LATER_KINDS,
    "member-replicas": REPLICATION_KINDS | PAIR_LATER_KINDS,
}
#: Kinds that only the seeds of further scenarios inject.
_ELSEWHERE = GROUP_KINDS | WITNESS_LATER_KINDS | PUT_BACK_CHANCES | WRONG_READS_KINDS
#: Seeds that once broke a promise, with what was wrong then. They stay, whatever their plan is now.
REGRESSIONS = {
    166: "a consumer counted silence during a failover as an empty queue",
    318: "the order of a queue was judged although the broker still had the consumer's dead predecessor",
    1226: "a consumer counted the silence before the last confirmation as the end",
    622: "a node without its lock ended because the next owner had removed its unfinished snapshot: not expected",
    706: "no node could start after the log had been trimmed to a damaged record",
    1104: "a message damaged before its confirmation and sent again counted as reordered",
    1445: "a node counted as serving that was resumed at the moment at which the other activated, and had not run yet",
    300028: "a message that was damaged before its confirmation, and delivered before and after, counted as duplicated",
    4194: "two consumers that were open together counted as successors because their deliveries did not overlap",
}
#: Likewise of the scenario `quorum`.
QUORUM_REGRESSIONS = {
    1: "a client took the first node that the topology listed for its own, and went to another pair",
    11: "a replica won a late round of its vote after the active node had gone on alone and ended",
    17: "the replica ended between the notes of both nodes: both waited for an operator",
    26: "an update and a removal of one member with one event id went round among four nodes without end",
    121: "a node that was started again announced a backup that it did not have in sync",
    178: "a pair did not start by itself whose replica ended before it was in sync again",
    262: "a node that was stopped got the vote to stay after its replica had taken over",
    62: "a node whose disk and whose copy were unusable had only the copy repaired: the simulation was wrong",
    6: "a replica stated a position that its own log does not have: the active node stopped, and both waited",
    200101: "a replica that failed at the write of its sequence counted as the newest, and the other node waited",
    320018: "a copy that ended while its last step ran did not give its node the node id, and both nodes waited",
}
#: Likewise of the scenario `scaled-voters`.
SCALED_VOTERS_REGRESSIONS = {
    200051: "a replica that had moved its messages twice said of a later copy that its messages had moved",
    940030: "a replica whose disk had failed while it moved messages committed its sequence: its primary waited",
    900045: "the harness ended an active node for good before the voters had heard that its replica was in sync",
    610040: "a replica whose disk had failed took over by votes, and the other node served messages that had moved",
    700076: "a replica whose messages had moved ended before it had a copy again, and both nodes waited",
    720077: "a manager committed a branch while a scale-down moved it to that node, and got a protocol error",
    700154: "a replica whose messages had moved was noted by its primary, ended without a copy, and both nodes waited",
}
#: Likewise of the scenario `shared-store-symmetric`.
SYMMETRIC_REGRESSIONS = {
    330002: "the late answer of a request out of time was taken for that of the next one, and a branch stayed active",
    320050: "messages that a disk could not read for a moment were overtaken by later ones, which were in memory",
}
#: Likewise of the scenario `scaled-replicas`.
SCALED_REPLICAS_REGRESSIONS = {
    960228: "a late answer of the lock manager let a node with an empty store begin anew, without its duplicate ids",
    320044: "an empty store began before the end that the lock manager had noted, and was refused as too old",
    830071: "a replica committed its sequence, and its disk failed before a message had moved: its primary waited",
    810148: "a branch stayed at a replica that was scaled down, and its pair began with an empty store: two lost",
}
#: Likewise of the scenario `ungrouped-pairs`.
UNGROUPED_PAIRS_REGRESSIONS = {
    200121: "the connection of a client had failed over to the other pair, which did not know its branch",
    200045: "a backup that served another pair kept messages for its former pair in a store-and-forward queue",
    300009: "a node was stopped while it claimed without its replica, and ended with an error of its machine",
}
#: Likewise of the scenario `wrong-reads`.
WRONG_READS_REGRESSIONS = {
    300041: "a node did not read the header of a segment again past the cache, and did not start",
    700086: "the harness read the header of a segment wrong that became the first one, which each start reads",
    900048: "a replica that followed the log slowly ended at damage in a segment that a snapshot stands for",
    880190: "the right bytes of a body were in the data that the replica had moved away, and were not asked for",
    301002: "the harness took a snapshot whose copy was interrupted for one that a node begins with",
}
#: Likewise of the scenario `member-replicas`.
MEMBER_REPLICAS_REGRESSIONS = {
    830143: "the harness ended an active node for good whose replica was not in sync again, and nothing served",
}
#: Likewise of the scenario `amqp091`.
AMQP091_REGRESSIONS = {
    43: "a transaction was committed without the messages for which the disk had been full",
    37: "the simulated producer waited without a turn of the loop after one confirm of all that it had sent",
}
#: Likewise of the scenario `amqp091-members`.
AMQP091_MEMBERS_REGRESSIONS = {
    800058: "the simulated consumer left each node before it had acknowledged a batch, and so never ended",
    950003: "a node that was stopped ended with an error, as a session was asked for after it had released its lock",
    910005: "a node that had just started did not know of the member with the session, which was down",
    880007: "a node that stood still, and was replaced meanwhile, said that there was no session",
    800083: "a killed process left a session whose deliveries, and messages for other nodes, waited for its timeout",
    800103: "the simulated producer began two sessions with one UUID at two nodes, and came back to the first one",
}
#: Likewise of the scenario `members`.
MEMBERS_REGRESSIONS = {
    335: "clients of a node that was scaled down for the second time were served before its messages had moved",
}


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


@cache
def outcome_of(scenario: Scenario, seed: int) -> Outcome:
    """The outcome of a seed, which several tests look at."""
    return scenario.run_seed(seed)


def judge(seed: int, scenario: Scenario = SHARED_STORE, **options) -> str:
    """Empty when the seed kept every promise."""
    outcome = scenario.run_seed(seed, **options) if options else outcome_of(scenario, seed)
    return "; ".join(f"seed {seed}: {violation}" for violation in outcome.violations)


def blocks(seeds: dict[str, range], size: int):
    """Scenario and some of its seeds, again and again."""
    for scenario, whole in seeds.items():
        for first in range(whole.start, whole.stop, size):
            yield pytest.param(scenario, range(first, min(first + size, whole.stop)), id=f"{scenario}-{first}")


def test_the_short_run_covers_all_scenarios():
    assert SHORT.keys() == SCENARIOS.keys()
    assert sum(map(len, SHORT.values())) == SEEDS


@pytest.mark.parametrize(("scenario", "seeds"), list(blocks(SHORT, BLOCK)))
def test_every_promise_is_kept(scenario, seeds):
    assert [text for seed in seeds if (text := judge(seed, SCENARIOS[scenario]))] == []


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_regressions(seed):
    assert judge(seed) == ""


@pytest.mark.parametrize("seed", MEMBER_REPLICAS_REGRESSIONS)
def test_regressions_of_members_with_replicas(seed):
    assert judge(seed, SCENARIOS["member-replicas"]) == ""


@pytest.mark.parametrize("seed", AMQP091_MEMBERS_REGRESSIONS)
def test_regressions_of_sessions_that_move(seed):
    assert judge(seed, SCENARIOS["amqp091-members"]) == ""


@pytest.mark.parametrize("seed", AMQP091_REGRESSIONS)
def test_regressions_of_amqp_0_9_1(seed):
    assert judge(seed, SCENARIOS["amqp091"]) == ""


@pytest.mark.parametrize("seed", QUORUM_REGRESSIONS)
def test_regressions_of_votes(seed):
    assert judge(seed, SCENARIOS["quorum"]) == ""


@pytest.mark.parametrize("seed", SCALED_VOTERS_REGRESSIONS)
def test_regressions_of_votes_and_scale_downs(seed):
    assert judge(seed, SCENARIOS["scaled-voters"]) == ""


@pytest.mark.parametrize("seed", SCALED_REPLICAS_REGRESSIONS)
def test_regressions_of_replicas_that_move_their_messages(seed):
    assert judge(seed, SCENARIOS["scaled-replicas"]) == ""


@pytest.mark.parametrize("seed", SYMMETRIC_REGRESSIONS)
def test_regressions_of_two_primaries(seed):
    assert judge(seed, SCENARIOS["shared-store-symmetric"]) == ""


@pytest.mark.parametrize("seed", MEMBERS_REGRESSIONS)
def test_regressions_of_scale_downs(seed):
    assert judge(seed, SCENARIOS["members"]) == ""


@pytest.mark.parametrize("seed", UNGROUPED_PAIRS_REGRESSIONS)
def test_regressions_of_pairs_without_group_names(seed):
    assert judge(seed, SCENARIOS["ungrouped-pairs"]) == ""


@pytest.mark.parametrize("seed", WRONG_READS_REGRESSIONS)
def test_regressions_of_wrong_reads(seed):
    assert judge(seed, SCENARIOS["wrong-reads"]) == ""


def test_a_node_of_a_pair_with_an_early_clock_is_found_by_the_other_members():
    """The other members kept the connector of the node before it, and messages for it waited without end."""
    assert judge(10052, SCENARIOS["member-pairs"]) == ""


def test_a_branch_that_a_scale_down_has_moved_is_decided():
    """The first node of the branch answered that it has none of this name, which a transaction manager takes as
    decided.
    """
    assert judge(836, SCENARIOS["members"]) == ""


def test_a_replica_that_has_served_does_not_move_its_messages_later():
    """The primary of the replica began empty without the ids of messages, and stored a message again that a client
    repeated.
    """
    assert judge(301053, SCENARIOS["scaled-replicas"]) == ""


def test_a_replica_whose_target_may_have_the_record_of_its_move_does_not_serve():
    """The replica was active beside its primary, which had found the record and had begun empty."""
    assert judge(312047, SCENARIOS["scaled-voters"]) == ""


def test_replicas_that_find_no_node_for_their_messages_serve_them():
    """Two pairs lost their primaries together. Their replicas were active without acceptors, and no node served."""
    assert judge(700025, SCENARIOS["scaled-replicas"]) == ""


def test_a_replica_whose_messages_have_moved_is_not_judged_as_one_that_serves():
    """The primary began anew while the answer to the last step of the move was under way."""
    assert judge(700017, SCENARIOS["scaled-voters"]) == ""


def test_a_message_that_two_scale_downs_have_moved_is_delivered_once():
    """The member that it was kept for had received it from the first node, and did not recognise it."""
    assert judge(200061, SCENARIOS["members"]) == ""


def test_duplicate_ids_are_kept_when_a_log_before_a_take_over_ends_with_a_segment():
    """The log seemed to have lost its end, and the empty store began without them."""
    assert judge(200129, SCENARIOS["scaled-voters"]) == ""


def test_a_node_that_begins_empty_has_the_duplicate_ids_of_the_last_batch():
    """The node began by the record of the lock manager, before the node with its messages had sent their ids."""
    assert judge(200028, SCENARIOS["scaled-replicas"]) == ""


def test_a_node_without_its_lock_delivers_nothing_that_its_successor_has_delivered():
    assert judge(200031, SCENARIOS["shared-store-backups"]) == ""


def test_an_active_node_without_witness_and_replica_in_a_freeze_ends():
    """The active node waited forever for writers that were held, and no node served."""
    assert judge(37, SCENARIOS["replication"]) == ""


def activation_cut_short(seed: int, operations: int, *before: Fault) -> list[Violation]:
    """Kill the active node while the passive one has a crash point at so many disk operations."""
    crash = Fault(8, 3.0, FaultKind.CRASH_IN_DISK, PASSIVE, 0.5, 0.0, operations)
    kill = Fault(9, 3.1, FaultKind.KILL, ACTIVE, 8.0, 0.0, 0)
    plan = replace(draw_plan(seed), faults=(*before, crash, kill), heal_s=14.0)
    return list(SHARED_STORE.run_plan(plan).violations)


@pytest.mark.parametrize("operations", range(1, 16))
def test_the_power_fails_at_any_disk_operation_of_an_activation(operations):
    assert [violation for seed in range(3) for violation in activation_cut_short(seed, operations)] == []


def test_the_power_fails_at_any_disk_operation_of_an_activation_on_a_full_disk():
    full = Fault(7, 2.9, FaultKind.DISK_FULL, "", 8.0, 0.0, 0)
    assert [
        (operations, violation)
        for operations in range(1, 16)
        for violation in activation_cut_short(operations, operations, full)
    ] == []


class HastyCommitRun(ScenarioRun):
    """Transactions are committed while their sends still wait for credits."""

    def __init__(self, plan, loop):
        producers = tuple(replace(job, batch=5, window=5, size_bytes=20_000, hasty=True) for job in plan.producers)
        super().__init__(replace(plan, producers=producers), loop)


def test_a_commit_covers_every_send_before_it():
    assert judge(0, without=range(100), run_class=HastyCommitRun) == ""


def test_the_seeds_contain_every_fault_failovers_and_redeliveries():
    """The plans cover every fault, and the runs do fail over and deliver again."""
    plans = [SHARED_STORE.draw(seed) for seed in range(SEEDS)]
    further = {kind for kinds in (*_FURTHER.values(), _ELSEWHERE) for kind in kinds} - WEIGHTS.keys()
    assert {fault.kind for plan in plans for fault in plan.faults} == set(FaultKind) - further
    assert {job.mode for plan in plans for job in plan.consumers} == {
        "auto",
        "client",
        "individual",
        "transacted",
        "xa",
    }
    outcomes = [outcome_of(SHARED_STORE, seed) for seed in range(20)]
    assert sum(outcome.activations for outcome in outcomes) > 40
    assert sum(outcome.delivered - outcome.confirmed for outcome in outcomes) > 20
    assert sum(outcome.damaged for outcome in outcomes) >= 5
    assert sum(outcome.quarantined for outcome in outcomes) >= 3
    assert sum(outcome.branches for outcome in outcomes) > 50
    assert len({outcome.digest for outcome in outcomes}) == 20


def test_equal_seeds_give_equal_runs_in_one_process_and_in_two():
    plans = [SHARED_STORE.draw(seed) for seed in range(SEEDS)]
    with_branches = next(plan.seed for plan in plans if any(job.mode == "xa" for job in plan.consumers))
    with_damage = next(plan.seed for plan in plans if FaultKind.DAMAGE in {fault.kind for fault in plan.faults})
    runs = [(SHARED_STORE.name, with_branches), (SHARED_STORE.name, with_damage), *((name, 1) for name in SCENARIOS)]
    script = (
        "from understudy.testing.simulate import run_quietly\n"
        f"print(*(run_quietly(name, frozenset(), seed)[0].digest for name, seed in {runs}))"
    )
    mine = [outcome_of(SCENARIOS[name], seed).digest for name, seed in runs]
    assert [SCENARIOS[name].run_seed(seed).digest for name, seed in runs[:3]] == mine[:3]
    # this process has a hash seed of its own
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == mine


def test_faults_can_be_left_out_of_a_run():
    faults = draw_plan(1).faults
    outcome = SHARED_STORE.run_seed(1, without=[fault.number for fault in faults])
    assert (outcome.faults, outcome.activations, outcome.ok) == (0, 1, True)


def short_zombie(seed: int) -> list[Violation]:
    """The active node is frozen for one to three seconds while the other one gets its locks."""
    faults = tuple(
        Fault(number, 2.0 + 5.0 * number, FaultKind.SHORT_ZOMBIE, ACTIVE, 0.0, number / 2, 0) for number in range(3)
    )
    return list(SHARED_STORE.run_plan(replace(draw_plan(seed), faults=faults, heal_s=20.0)).violations)


def test_a_node_that_was_frozen_for_a_moment_confirms_nothing_on_an_old_proof():
    assert [violation for seed in range(6) for violation in short_zombie(seed)] == []


def test_a_node_that_trusts_a_proof_of_three_seconds_is_found(monkeypatch):
    monkeypatch.setattr(lock_proof, "LOCK_PROOF_MS", 3_000)
    checks = {violation.check for seed in range(6) for violation in short_zombie(seed)}
    assert "zombie" in checks


def every_kind():
    """Each kind in each scenario; those of further scenarios are long."""
    for scenario in SCENARIOS:
        for kind in LATER_KINDS | _FURTHER.get(scenario, {}):
            # the steps of crash-at-step: test_replicated_pair
            shared = scenario in SHARED_STORES or scenario == "member-pairs"
            if not shared and kind in (FaultKind.STORE_CUT_OFF, FaultKind.CRASH_AT_STEP):
                continue
            if scenario == "members" and kind is FaultKind.CRASH_IN_ACTIVATION:
                # no node takes over there
                continue
            marks = () if scenario == SHARED_STORE.name else pytest.mark.long
            yield pytest.param(scenario, kind, id=f"{scenario}-{kind.value}", marks=marks)


@pytest.mark.parametrize(("scenario", "kind"), list(every_kind()))
def test_one_fault_of_each_kind_is_injected_and_survived(scenario, kind):
    """Without other faults, so that a node that it needs runs when it strikes."""
    plan = SCENARIOS[scenario].draw(3)
    # a witness grants nothing for one lease after its start
    at_s = 3.0 if scenario in SHARED_STORES else 8.0
    fault = Fault(0, at_s, kind, ACTIVE, 6.0, 0.3, 3)
    outcome = SCENARIOS[scenario].run_plan(replace(plan, faults=(fault,), heal_s=at_s + 9.0))
    assert (outcome.injected, outcome.violations) == ({kind.value: 1}, ())


def test_a_node_is_killed_at_each_operation_on_a_snapshot():
    """The consolidator writes and installs a snapshot while messages flow."""
    plan = SHARED_STORE.draw(3)
    plan = replace(plan, pair=replace(plan.pair, compact_min_files=1, compact_percentage=75, segment_bytes=64 * 1024))
    producers = tuple(replace(job, size_bytes=4_000, count=60, batch=0, pause_s=0.05) for job in plan.producers)
    found, activations = [], []
    for operations in range(1, 9):
        crash = Fault(0, 1.0, FaultKind.CRASH_IN_SNAPSHOT, ACTIVE, 0.5, operations % 2, operations)
        outcome = SHARED_STORE.run_plan(replace(plan, producers=producers, faults=(crash,), heal_s=12.0))
        found += outcome.violations
        activations.append(outcome.activations)
    assert found == []
    assert min(activations) > 1, "a crash did not happen"
