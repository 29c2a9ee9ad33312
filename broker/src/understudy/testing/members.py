"""The scenario of members of a cluster that share the messages of a queue, each with a store of its own (ADR 0068)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from understudy.testing.cluster_configuration import NodeRole
from understudy.testing.fault_plan import ACTIVE, PASSIVE, Fault, FaultKind
from understudy.testing.members_run import MembersRun
from understudy.testing.plan import Plan
from understudy.testing.scenario import Scenario
from understudy.testing.xa_workload import BranchConsumerJob, BranchProducerJob

_MODES: Final = ("ON_DEMAND", "ON_DEMAND", "STRICT", "OFF_WITH_REDISTRIBUTION")
#: Faults of a pair: no node takes over here, and the damage of a message that moves is another scenario's.
_OF_PAIRS: Final = (FaultKind.CRASH_IN_ACTIVATION, FaultKind.DAMAGE)


class Members(Scenario):
    """Two to four nodes; each client stays with one of them."""

    name = "members"
    text = "two to four members of a cluster with a store each, that share the messages of a queue"
    run_class = MembersRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        count = random.Random(f"{seed}/members").choice((2, 2, 3, 4))
        return tuple(NodeRole(name, "primary") for name in "abcd"[:count])

    def configure(self, plan: Plan) -> Plan:
        stream = random.Random(f"{plan.seed}/balancing")
        names = [node.name for node in plan.nodes]
        pair = replace(plan.pair, balancing=stream.choice(_MODES), quarantine=False, max_size_bytes=-1)
        struck = [fault for fault in plan.faults if fault.kind not in _OF_PAIRS]
        moving = random.Random(f"{plan.seed}/scale-down")
        # with STRICT a consumer that has followed its messages would be missing at the member that comes back, and a
        # transaction manager would have to recover its branches from all members
        jobs = (*plan.producers, *plan.consumers)
        branches = any(isinstance(job, (BranchProducerJob, BranchConsumerJob)) for job in jobs)
        if pair.balancing != "STRICT" and not branches and moving.random() < 0.7:
            pair = replace(pair, scale_down=True)
            struck = [_stopped(fault) if moving.random() < 0.5 else fault for fault in struck]
        grouping = random.Random(f"{plan.seed}/message groups")
        producers = plan.producers
        if not pair.scale_down and not branches and grouping.random() < 0.6:
            pair = replace(pair, grouping=True)
            producers = tuple(replace(job, groups=grouping.choice((1, 3, 10))) for job in producers)
        faults = tuple(_at_a_member(fault, stream.choice(names)) for fault in struck)
        plan = replace(plan, pair=pair, producers=producers, faults=faults)
        if pair.balancing != "STRICT" and not pair.grouping:
            return plan
        # without redistribution, which leaves groups where they are, only a consumer at each member sees everything
        first = plan.consumers[0]
        return replace(plan, consumers=tuple(replace(first, name=f"c{number}") for number in range(len(names))))


def _stopped(fault: Fault) -> Fault:
    """A clean stop in place of a kill: only then messages move."""
    return replace(fault, kind=FaultKind.STOP) if fault.kind is FaultKind.KILL else fault


def _at_a_member(fault: Fault, name: str) -> Fault:
    """All nodes are active: the fault strikes one of them."""
    return replace(fault, target=name) if fault.target in (ACTIVE, PASSIVE) else fault
