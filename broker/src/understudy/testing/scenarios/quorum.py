"""The scenario of a replicated pair without a lock manager, in a cluster whose other active nodes vote.

The pair has ``vote-on-replication-failure``: without it a node that lost its replica goes on, whatever the others see,
and a pair that is cut in two has two active nodes, as with Artemis (artemis-ha s. 3.1).
"""

from __future__ import annotations

from dataclasses import replace

from understudy.testing.runs.cluster_configuration import PAIR, NodeRole
from understudy.testing.runs.fault_plan import LAST_KINDS, QUORUM_KINDS
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.quorum_run import QuorumRun
from understudy.testing.scenarios.replicated_pair import with_faults_of_pairs
from understudy.testing.scenarios.scenario import Scenario


class Quorum(Scenario):
    """A primary that fails back, a backup that allows it, and the primaries of other pairs."""

    name = "quorum"
    text = "a primary and a backup with a store each, in a cluster whose two or four other active nodes vote"
    last_kinds = LAST_KINDS
    run_class = QuorumRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        return PAIR

    def configure(self, plan: Plan) -> Plan:
        plan = with_faults_of_pairs(plan, self.name, QUORUM_KINDS)
        # clients stay with the pair
        url = f"{plan.url}&useTopologyForLoadBalancing=false"
        return replace(plan, pair=replace(plan.pair, votes=True), url=url)
