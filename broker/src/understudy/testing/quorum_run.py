"""One run of a replicated pair in a cluster whose other active nodes vote."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from understudy.ha.replication.policy import ReplicationPolicy
from understudy.ha.replication.standing import Standing
from understudy.ha.replication.vote_authority import VoteAuthority
from understudy.testing.checkers import Violation
from understudy.testing.cluster import SimCluster
from understudy.testing.cluster_configuration import NodeRole
from understudy.testing.own_storage import OwnStorage
from understudy.testing.plan import Plan, draw_skew
from understudy.testing.quorum_strikes import QuorumStrikes
from understudy.testing.replicated_run import ReplicatedRun
from understudy.testing.scenario_run import STOP_S
from understudy.testing.sim_loop import SimLoop
from understudy.testing.sim_storage import SharedStorage
from understudy.testing.strikes import Strikes

#: Primaries of other pairs of the cluster, by their number in a run.
_NUMBERS: Final = (2, 2, 4)
#: Virtual seconds after healing at which an operator looks at the pair.
_OPERATOR_S: Final = 10.0
#: Checks of what nodes report about themselves.
_REPORTED: Final = frozenset({"two-active", "zombie"})


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

    def further_nodes(self) -> Sequence[NodeRole]:
        """See ``ScenarioRun``."""
        return self._voters

    async def run(self) -> None:
        """See ``ScenarioRun``."""
        for name in self.voters.nodes:
            self.voters.start(name)
        await super().run()
        self.voters.supervised = False
        for node in self.voters.nodes.values():
            self.voters.stop(node.name, failover=False)
            if not await self._wait(lambda node=node: not node.running, self.loop.time() + STOP_S):  # type: ignore[misc]
                self.violations.append(Violation("stuck", f"{node.name} did not stop in {STOP_S} s: {node.state}"))

    def _heal(self) -> None:
        """See ``ScenarioRun``; an operator looks at the pair soon afterwards."""
        super()._heal()
        self.loop.call_later(_OPERATOR_S, self._promote_if_documented)

    def _promote_if_documented(self) -> None:
        """Promote the node that was active last if its replica lost its copy: the one case in which a pair of which
        both nodes run waits for an operator (ADR 0064). The replica ended between the notes of both nodes.
        """
        standings = {}
        for node in self.cluster.nodes.values():
            replication = node.server.replication if node.server is not None else None
            if replication is None or node.state != "passive":
                return
            authority = replication.used.authority
            assert isinstance(authority, VoteAuthority)
            standings[authority.standing()] = node
        last_active = standings.pop(Standing.SHARED, None)
        if last_active is None or not standings.keys() & {Standing.NEW, Standing.INCOMPLETE}:
            return
        assert last_active.server is not None
        assert last_active.process is not None
        policy = last_active.server.policy
        assert isinstance(policy, ReplicationPolicy)
        self.loop.record(f"an operator promotes {last_active.name}")
        self.promotions += 1

        async def promote() -> None:
            policy.standby_life.promote(lambda outcome: self.loop.record(f"promotion: {outcome}"))

        # in the process of the node, as its management would
        last_active.process.create_task(promote())

    def judge(self) -> tuple[Violation, ...]:
        """See ``ScenarioRun``; the voters end for no error.

        Left out are the two checks of reports that nodes make about themselves: no permission proves that a node is
        active, so one that is cut off counts itself as active until its replica is silent for too long, and its log
        goes on. It confirms nothing meanwhile, because its replica does not: the rows of the clients are judged.
        """
        self.cluster.epochs.violations = [
            each for each in self.cluster.epochs.violations if each.check not in _REPORTED
        ]
        ends = [
            Violation("ended", f"{node.name} ended with {type(error).__name__}: {error}")
            for node in self.voters.nodes.values()
            for error in node.ends
            if error is not None
        ]
        return (*super().judge(), *ends)
