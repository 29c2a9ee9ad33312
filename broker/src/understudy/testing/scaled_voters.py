"""The scenario of replicated pairs that vote for each other, and whose backups scale down (ADR 0126)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from understudy.testing.checkers import Violation
from understudy.testing.cluster import SimNode
from understudy.testing.cluster_configuration import NodeRole
from understudy.testing.fault_plan import FaultKind
from understudy.testing.member_strikes import MemberStrikes
from understudy.testing.members import MemberPairs
from understudy.testing.members_run import MembersRun
from understudy.testing.operators import Operator
from understudy.testing.own_storage import OwnStorage
from understudy.testing.plan import Plan
from understudy.testing.quorum_run import OPERATOR_S, REPORTED
from understudy.testing.replicated_pair import with_faults_of_pairs
from understudy.testing.replicated_run import ReplicatedRun
from understudy.testing.replicated_strikes import ReplicatedStrikes
from understudy.testing.scaled_replicas import SCALE_DOWN_STEPS, MovingPairs
from understudy.testing.sim_loop import SimLoop
from understudy.testing.sim_storage import SharedStorage
from understudy.testing.steps import VOTE_STEPS, Step
from understudy.testing.strikes import Strikes


class ScaledVoterStrikes(MemberStrikes, ReplicatedStrikes):
    """The faults of pairs that vote for each other."""

    steps_drawn: ClassVar[Sequence[Step]] = (*VOTE_STEPS, *SCALE_DOWN_STEPS * 4)

    def deciding_hosts(self) -> Sequence[str]:
        """The hosts of the active nodes, each of which votes for the other pairs."""
        return tuple(node.name for node in self.cluster.nodes.values() if node.state == "active")


class ScaledVotersRun(MovingPairs, MembersRun):
    """One run of three replicated pairs that vote for each other."""

    storage_class: ClassVar[type[SharedStorage]] = OwnStorage
    strikes_class: ClassVar[type[Strikes]] = ScaledVoterStrikes

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        self._operators = [Operator(self.cluster, [node.name for node in pair]) for pair in self.pairs()]

    def make_storages(self) -> list[SharedStorage]:
        """See ``ReplicatedRun``: one for each node."""
        return ReplicatedRun.make_storages(self)

    def storage_of(self, nodes: Sequence[SimNode]) -> SharedStorage:
        """See ``MembersRun``: that of the node that was active last."""
        return self._last_active(nodes).storage

    def _judge_store(self) -> None:
        """See ``MembersRun``."""
        MembersRun._judge_store(self)

    def judge(self) -> tuple[Violation, ...]:
        """See ``ScenarioRun``; reports of nodes about themselves are not judged (``quorum_run``)."""
        epochs = self.cluster.epochs
        epochs.violations = [each for each in epochs.violations if each.check not in REPORTED]
        return super().judge()

    def _heal(self) -> None:
        """See ``ScenarioRun``; an operator looks at the pairs soon afterwards."""
        super()._heal()
        for each in self._operators:
            self.loop.call_later(OPERATOR_S, each.look)


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
