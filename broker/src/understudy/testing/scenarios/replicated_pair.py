"""The scenario of a replicated pair: two hosts with a disk each, and a witness on a third host.

The primary fails back, the backup allows it. Every fault of the shared stores is used except those of a storage server
that both hosts mount, and damaged records; the witness and its links have faults of their own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from understudy.testing.runs.cluster_configuration import PAIR, NodeRole
from understudy.testing.runs.fault_plan import (
    LAST_KINDS,
    PAIR_LATER_KINDS,
    PUT_BACK_CHANCES,
    REPLICATION_KINDS,
    WITNESS_LATER_KINDS,
    Fault,
    FaultKind,
    draw_faults,
    draw_later_faults,
)
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.replicated_run import ReplicatedRun
from understudy.testing.runs.replicated_strikes import PUT_BACK_AFTER_S
from understudy.testing.runs.witnessed_run import WitnessedRun
from understudy.testing.scenarios.scenario import Scenario
from understudy.testing.sim.loop import SimLoop

#: Kinds of a storage server that several hosts mount, and damaged records.
_LEFT_OUT: Final = frozenset({FaultKind.STORE_CUT_OFF, FaultKind.DAMAGE})


class ReplicatedPair(Scenario):
    """A primary that fails back, a backup that allows it, and a witness."""

    name = "replication"
    text = "a primary and a backup with a store each, and a witness that decides which of them is active"
    last_kinds = LAST_KINDS
    run_class = WitnessedRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        return PAIR

    def configure(self, plan: Plan) -> Plan:
        names = [node.name for node in plan.nodes]
        update = random.Random(f"{plan.seed}/rolling update")
        older = frozenset(name for name in names if update.random() < 0.25)
        plan = with_faults_of_pairs(plan, self.name, REPLICATION_KINDS)
        put_back = draw_later_faults(
            random.Random(f"{plan.seed}/{self.name}, put back"),
            plan.faults,
            begin_s=1.0,
            end_s=max(1.0, plan.heal_s - 2 * PUT_BACK_AFTER_S),
            chances=PUT_BACK_CHANCES,
        )
        plan = replace(plan, faults=put_back)
        plan = with_promises(plan, self.name)
        return replace(plan, pair=replace(plan.pair, older=older))


def with_faults_of_pairs(plan: Plan, name: str, kinds: Mapping[FaultKind, int]) -> Plan:
    """The plan with a store for each node, and the faults of that.

    Args:
        plan: Drawn for a shared store.
        name: Name of the scenario, for the seeds.
        kinds: Kinds of faults of the pair and of what decides which node is active, with their weights.
    """
    stream = random.Random(f"{plan.seed}/{name}")
    faults = [fault for fault in plan.faults if fault.kind not in _LEFT_OUT]
    first = 1 + max((fault.number for fault in plan.faults), default=0)
    more = draw_faults(stream, begin_s=0.0, end_s=plan.heal_s, count=stream.randint(0, 3), weights=kinds)
    faults += [replace(fault, number=first + fault.number) for fault in more]
    drawn = draw_later_faults(
        random.Random(f"{plan.seed}/{name}, later"),
        tuple(faults),
        begin_s=1.0,
        end_s=plan.heal_s,
        chances=PAIR_LATER_KINDS,
    )
    pair = replace(plan.pair, replicated=True, allow_failback=True, quarantine=False)
    return replace(plan, pair=pair, faults=drawn)


def with_promises(plan: Plan, name: str) -> Plan:
    """The plan with faults of a pair that runs on the promise of its replica, and with clocks whose rates differ by up
    to 4 % in some seeds, within the margin of leases and promises.
    """
    stream = random.Random(f"{plan.seed}/{name}, promises")
    faults = draw_later_faults(stream, plan.faults, begin_s=1.0, end_s=plan.heal_s, chances=WITNESS_LATER_KINDS)
    longer = FaultKind.WITNESS_GONE_THEN in {fault.kind for fault in faults}
    if longer and stream.random() < 0.3:
        rates = stream.sample((0.98, 1.0, 1.019), len(plan.skews))
        plan = replace(
            plan, skews=tuple(replace(skew, rate=rate) for skew, rate in zip(plan.skews, rates, strict=True))
        )
    return replace(plan, faults=faults, heal_s=plan.heal_s + (12.0 if longer else 0.0))


def with_pair_faults(*faults: Fault, run_class: type[ReplicatedRun] = WitnessedRun) -> type[ReplicatedRun]:
    """A run with these faults instead of those of its plan, of a bug that shows soon."""

    class FaultRun(run_class):  # type: ignore[misc, valid-type]  # a class that is chosen
        liveness_s = 30.0

        def __init__(self, plan: Plan, loop: SimLoop) -> None:
            super().__init__(replace(plan, faults=faults, heal_s=faults[-1].at_s + 14.0), loop)

    return FaultRun
