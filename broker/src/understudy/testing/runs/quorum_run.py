"""One run of a replicated pair in a cluster whose other active nodes vote."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import ClassVar, Final

from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.cluster import SimCluster, SimNode
from understudy.testing.runs.cluster_configuration import NodeRole
from understudy.testing.runs.operators import Operator
from understudy.testing.runs.plan import Plan, draw_skew
from understudy.testing.runs.quorum_strikes import QuorumStrikes
from understudy.testing.runs.replicated_run import ReplicatedRun
from understudy.testing.runs.scenario_run import STOP_S
from understudy.testing.runs.strikes import Strikes
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.own_storage import OwnStorage
from understudy.testing.sim.storage import SharedStorage

#: Primaries of other pairs of the cluster, by their number in a run.
_NUMBERS: Final = (2, 2, 4)
#: Virtual seconds within which a node connects to the voters, and in which its announcement arrives.
LINKED_S: Final = 20.0
HEARD_S: Final = 1.0
#: Virtual seconds after healing at which an operator looks at the pair.
OPERATOR_S: Final = 10.0
#: Checks of what nodes report about themselves.
REPORTED: Final = frozenset({"two-active", "zombie"})


def is_linked(node: SimNode, voters: Set[str]) -> bool:
    """Whether a node has a connection to every one of the hosts that vote for it."""
    membership = node.server.parts.membership if node.server is not None else None
    if membership is None:
        return False
    joined = {link.target.host for link in membership.links.values() if link.joined}
    return joined >= voters


class QuorumRun(ReplicatedRun):
    """One run of a pair without a lock manager, with two or four further active nodes that vote."""

    storage_class: ClassVar[type[SharedStorage]] = OwnStorage
    strikes_class: ClassVar[type[Strikes]] = QuorumStrikes

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        stream = random.Random(f"{plan.seed}/voters")
        count = stream.choice(_NUMBERS)
        self._voters = tuple(NodeRole(name, "primary", group=name) for name in "wxyz"[:count])
        super().__init__(plan, loop)
        storages = [self.storage_class(loop, replace(plan.storage)) for _ in self._voters]
        skews = [draw_skew(stream) for _ in self._voters]
        self.voters = SimCluster(loop, self.network, storages, self.configurations[len(plan.nodes) :], skews)
        assert isinstance(self.strikes, QuorumStrikes)
        self.strikes.voters = self.voters
        self._operator = Operator(self.cluster)

    def further_nodes(self) -> Sequence[NodeRole]:
        return self._voters

    async def run(self) -> None:
        for name in self.voters.nodes:
            self.voters.start(name)
        await super().run()
        self.promotions = self._operator.promotions
        self.voters.supervised = False
        for node in self.voters.nodes.values():
            self.voters.stop(node.name, failover=False)
            if not await self._wait(lambda node=node: not node.running, self.loop.time() + STOP_S):  # type: ignore[misc]
                self.violations.append(Violation("stuck", f"{node.name} did not stop in {STOP_S} s: {node.state}"))

    async def _synced_primary(self, pair: Sequence[SimNode]) -> SimNode | None:
        """See ``ReplicatedRun``; the voters have to hear that the replica is in sync before it may take over."""
        active = await super()._synced_primary(pair)
        if active is not None:
            await self._wait(lambda: is_linked(active, self.voters.nodes.keys()), self.loop.time() + LINKED_S)
            await asyncio.sleep(HEARD_S)
        return active

    def _heal(self) -> None:
        """See ``ScenarioRun``; an operator looks at the pair soon afterwards."""
        super()._heal()
        self.loop.call_later(OPERATOR_S, self._operator.look)

    def reported(self) -> list[Violation]:
        """See ``ScenarioRun``; without the two checks of reports that nodes make about themselves.

        No permission proves that a node is active, so one that is cut off counts itself as active until its replica is
        silent for too long, and its log goes on. It confirms nothing meanwhile, because its replica does not: the rows
        of the clients are judged.
        """
        return [each for each in super().reported() if each.check not in REPORTED]

    def judge(self) -> tuple[Violation, ...]:
        """See ``ScenarioRun``; the voters end for no error."""
        ends = [
            Violation("ended", f"{node.name} ended with {type(error).__name__}: {error}")
            for node in self.voters.nodes.values()
            for error in node.ends
            if error is not None
        ]
        return (*super().judge(), *ends)
