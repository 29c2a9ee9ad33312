"""The scenarios of members of a cluster that share the messages of a queue, each with a store of its own (ADR 0068)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from understudy.testing.runs.cluster_configuration import NodeRole
from understudy.testing.runs.fault_plan import ACTIVE, PASSIVE, Fault, FaultKind
from understudy.testing.runs.member_strikes import role_of
from understudy.testing.runs.members_run import MembersRun
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.xa_workload import BranchConsumerJob, BranchProducerJob
from understudy.testing.scenarios.scenario import Scenario

_MODES: Final = ("ON_DEMAND", "ON_DEMAND", "STRICT", "OFF_WITH_REDISTRIBUTION")
#: Faults of a pair: no node takes over here, and the damage of a message that moves is another scenario's.
_OF_PAIRS: Final = (FaultKind.CRASH_IN_ACTIVATION, FaultKind.DAMAGE)
_DAMAGE: Final = (FaultKind.DAMAGE,)


class Members(Scenario):
    """Two to four nodes; each client stays with one of them."""

    name = "members"
    text = "two to four members of a cluster with a store each, that share the messages of a queue"
    run_class = MembersRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        count = random.Random(f"{seed}/members").choice((2, 2, 3, 4))
        return tuple(NodeRole(name, "primary", group=name) for name in "abcd"[:count])

    def configure(self, plan: Plan) -> Plan:
        stream = random.Random(f"{plan.seed}/balancing")
        pair = replace(plan.pair, balancing=stream.choice(_MODES), quarantine=False, max_size_bytes=-1)
        alone = all(node.role == "primary" for node in plan.nodes)
        left_out = _OF_PAIRS if alone else _DAMAGE
        struck = [fault for fault in plan.faults if fault.kind not in left_out]
        moving = random.Random(f"{plan.seed}/scale-down")
        jobs = (*plan.producers, *plan.consumers)
        branches = any(isinstance(job, (BranchProducerJob, BranchConsumerJob)) for job in jobs)
        # with STRICT a consumer that has followed its messages would be missing at the member that comes back
        if alone and pair.balancing != "STRICT" and moving.random() < 0.7:
            pair = replace(pair, scale_down=True)
            struck = [_stopped(fault) if moving.random() < 0.5 else fault for fault in struck]
        grouping = random.Random(f"{plan.seed}/message groups")
        producers = plan.producers
        if not pair.scale_down and not branches and grouping.random() < 0.6:
            pair = replace(pair, grouping=True)
            producers = tuple(replace(job, groups=grouping.choice((1, 3, 10))) for job in producers)
        members = list(dict.fromkeys(node.group for node in plan.nodes))
        faults = tuple(_at_a_member(fault, stream.choice(members), alone=alone) for fault in struck)
        plan = replace(plan, pair=pair, producers=producers, faults=faults)
        if pair.balancing != "STRICT" and not pair.grouping:
            return plan
        # without redistribution, which leaves groups where they are, only a consumer at each member sees everything
        first = plan.consumers[0]
        return replace(plan, consumers=tuple(replace(first, name=f"c{number}") for number in range(len(members))))


class MemberPairs(Members):
    """Two or three pairs with a shared store each; each client stays with one of the pairs."""

    name = "member-pairs"
    text = "two or three pairs with a shared store each, that share the messages of a queue"

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        # clients are hosts named c0, p0 and s0
        groups = "abd"[: random.Random(f"{seed}/member pairs").choice((2, 2, 3))]
        roles = ("primary", "backup")
        return tuple(
            NodeRole(f"{group}{number}", role, group=group) for group in groups for number, role in enumerate(roles, 1)
        )


def _stopped(fault: Fault) -> Fault:
    """A clean stop in place of a kill: only then messages move."""
    return replace(fault, kind=FaultKind.STOP) if fault.kind is FaultKind.KILL else fault


def _at_a_member(fault: Fault, member: str, *, alone: bool) -> Fault:
    """The fault strikes one of the members: its only node, or the one with the role at that time."""
    if fault.target not in (ACTIVE, PASSIVE):
        return fault
    return replace(fault, target=member if alone else role_of(fault.target, member))
