"""The scenario of replicated pairs that vote for each other, and whose backups scale down (ADR 0126)."""

from __future__ import annotations

from dataclasses import replace

from understudy.testing.runs.cluster_configuration import NodeRole
from understudy.testing.runs.fault_plan import FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scaled_voters_run import ScaledVotersRun
from understudy.testing.scenarios.members import MemberPairs
from understudy.testing.scenarios.replicated_pair import with_faults_of_pairs


class ScaledVoters(MemberPairs):
    """Three pairs without a lock manager; each backup moves its messages to another pair when it takes over."""

    name = "scaled-voters"
    text = "three replicated pairs that vote for each other, whose backups move their messages to another pair"
    run_class = ScaledVotersRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        roles = ("primary", "backup")
        return tuple(
            NodeRole(f"{group}{number}", role, group=group) for group in "abd" for number, role in enumerate(roles, 1)
        )

    def configure(self, plan: Plan) -> Plan:
        plan = super().configure(with_faults_of_pairs(plan, self.name, {FaultKind.CRASH_IN_COPY: 1}))
        faults = tuple(fault for fault in plan.faults if fault.kind is not FaultKind.COPY_UNUSABLE)
        producers = tuple(replace(job, groups=0) for job in plan.producers)
        pair = replace(plan.pair, votes=True, scale_down=True, grouping=False, balancing="ON_DEMAND")
        return replace(plan, producers=producers, pair=pair, faults=faults)
