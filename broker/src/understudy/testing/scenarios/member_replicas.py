"""The scenario of members of a cluster that are replicated pairs with one witness."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.fault_plan import REPLICATION_KINDS
from understudy.testing.runs.member_strikes import MemberStrikes
from understudy.testing.runs.members_run import MembersRun
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.strikes import Strikes
from understudy.testing.runs.witnessed_run import WitnessedRun
from understudy.testing.runs.witnessed_strikes import WitnessedStrikes
from understudy.testing.scenarios.members import MemberPairs
from understudy.testing.scenarios.replicated_pair import with_faults_of_pairs
from understudy.testing.sim.storage import SharedStorage


class MemberReplicaStrikes(MemberStrikes, WitnessedStrikes):
    """Injects faults into replicated pairs that are members of a cluster, and into their witness."""


class MemberReplicasRun(MembersRun, WitnessedRun):
    """One run of two or three replicated pairs that share the messages of a queue."""

    strikes_class: ClassVar[type[Strikes]] = MemberReplicaStrikes

    def make_storages(self) -> list[SharedStorage]:
        """Make a storage for each node and one for the witness; see ``WitnessedRun``."""
        return WitnessedRun.make_storages(self)

    def storage_of(self, nodes: Sequence[SimNode]) -> SharedStorage:
        """See ``MembersRun``: that of the node that was active last."""
        return self._last_active(nodes).storage

    def _judge_store(self) -> None:
        MembersRun._judge_store(self)


class MemberReplicas(MemberPairs):
    """Two or three pairs with a store for each node; each client stays with one of the pairs."""

    name = "member-replicas"
    text = "two or three replicated pairs with a witness, that share the messages of a queue"
    run_class = MemberReplicasRun

    def configure(self, plan: Plan) -> Plan:
        update = random.Random(f"{plan.seed}/rolling update")
        older = frozenset(node.name for node in plan.nodes if update.random() < 0.25)
        plan = with_faults_of_pairs(plan, self.name, REPLICATION_KINDS)
        return super().configure(replace(plan, pair=replace(plan.pair, older=older)))
