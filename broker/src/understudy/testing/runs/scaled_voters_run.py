"""One run of replicated pairs that vote for each other, and whose backups scale down (ADR 0126)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.member_strikes import MemberStrikes
from understudy.testing.runs.members_run import MembersRun
from understudy.testing.runs.operators import Operator
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.quorum_run import HEARD_S, LINKED_S, OPERATOR_S, REPORTED, is_linked
from understudy.testing.runs.replicated_run import ReplicatedRun
from understudy.testing.runs.replicated_strikes import ReplicatedStrikes
from understudy.testing.runs.steps import VOTE_STEPS, Step
from understudy.testing.runs.strikes import Strikes
from understudy.testing.scenarios.scaled_replicas import SCALE_DOWN_STEPS, MovingPairs
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.own_storage import OwnStorage
from understudy.testing.sim.storage import SharedStorage


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
        """Make a storage for each node; see ``ReplicatedRun``."""
        return ReplicatedRun.make_storages(self)

    def storage_of(self, nodes: Sequence[SimNode]) -> SharedStorage:
        """See ``MembersRun``: that of the node that was active last."""
        return self._last_active(nodes).storage

    async def _take_over(self, pair: Sequence[SimNode]) -> None:
        """See ``MovingPairs``; the voters have to hear that the replica is in sync before it may take over."""
        active = pair[0]
        others = {node.name for node in self.cluster.nodes.values() if node.state == "active"} - {active.name}
        await self._wait(lambda: is_linked(active, others), self.loop.time() + LINKED_S)
        await asyncio.sleep(HEARD_S)
        await super()._take_over(pair)

    def _judge_store(self) -> None:
        MembersRun._judge_store(self)

    def reported(self) -> list[Violation]:
        """See ``ScenarioRun``; reports of nodes about themselves are not judged (``quorum_run``)."""
        return [each for each in super().reported() if each.check not in REPORTED]

    def _heal(self) -> None:
        """See ``ScenarioRun``; an operator looks at the pairs soon afterwards."""
        super()._heal()
        for each in self._operators:
            self.loop.call_later(OPERATOR_S, each.look)
