"""A run in which a producer and a consumer work in XA branches while the active node and they themselves are killed."""

from __future__ import annotations

from dataclasses import replace

from understudy.testing.runs.cluster_configuration import QUEUE
from understudy.testing.runs.fault_plan import ACTIVE, Fault, FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.runs.xa_workload import BranchConsumerJob, BranchProducerJob
from understudy.testing.sim.loop import SimLoop

#: Number of kills of the active node, and of a client.
_KILLS = 4


class BranchedPairRun(ScenarioRun):
    """Kills the active node and both clients several times; the seed shifts the moments."""

    liveness_s = 60.0

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        shift_s = (plan.seed % 10) / 10
        nodes = [Fault(each, 2.0 + shift_s + 4.0 * each, FaultKind.KILL, ACTIVE, 0.5, 0.0, 0) for each in range(_KILLS)]
        clients = [
            Fault(_KILLS + each, 3.0 + 2 * shift_s + 3.5 * each, FaultKind.KILL_CLIENT, name, 0.0, 0.0, 0)
            for each, name in enumerate(("p0", "c0", "p0", "c0"))
        ]
        idle_s = plan.consumers[0].idle_s
        producer = BranchProducerJob(
            "p0",
            QUEUE,
            count=60,
            size_bytes=100,
            pause_s=0.5,
            window=5,
            batch=4,
            hasty=plan.seed % 2 == 0,
            rollback_every=4,
            one_phase_every=5,
            decide_s=0.2,
            sends_on=True,
            patience_s=idle_s,
        )
        consumer = BranchConsumerJob(
            "c0",
            QUEUE,
            "xa",
            batch=3,
            pause_s=0.1,
            rollback_every=5,
            idle_s=idle_s,
            one_phase_every=4,
            decide_s=0.1,
            receipts=10,
            sends_on=True,
        )
        faults = tuple(sorted((*nodes, *clients), key=lambda fault: fault.at_s))
        plan = replace(plan, producers=(producer,), consumers=(consumer,), faults=faults, heal_s=20.0)
        super().__init__(plan, loop)
