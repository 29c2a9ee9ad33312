"""The scenario of replicated pairs whose backups scale down: a replica that takes over moves its messages to another
pair, and the node that was active before starts empty (ADR 0126).

At the end the primary of each pair is killed: its messages must be at another pair, and it must serve again, with a
replica, once it is started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from understudy.cluster.scale_down import transfer
from understudy.ha.replication.empty_start import EmptyStartLife, EmptyState
from understudy.ha.replication.standby_life import StandbyLife, StandbyState
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.fault_plan import FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.replicated_run import ReplicatedRun
from understudy.testing.runs.steps import LOCK_STEPS, Step
from understudy.testing.runs.strikes import Strikes
from understudy.testing.scenarios.member_replicas import MemberReplicas, MemberReplicasRun, MemberReplicaStrikes

#: Virtual seconds within which the messages of a pair are at another one after its active node was killed: a lease, an
#: activation and the transfer.
_MOVED_S: Final = 40.0
#: Steps of a scale-down and of an empty start.
SCALE_DOWN_STEPS: Final[tuple[Step, ...]] = (
    (StandbyLife, StandbyState.EMPTYING),
    *((EmptyStartLife, state) for state in EmptyState if state is not EmptyState.IDLE),
    *((transfer.Transfer, state) for state in transfer.State if state is not transfer.State.IDLE),
)


class ScaledReplicaStrikes(MemberReplicaStrikes):
    """The faults of these pairs; half of the crashes at a step are at one of a scale-down."""

    steps_drawn: ClassVar[Sequence[Step]] = (
        *LOCK_STEPS,
        *SCALE_DOWN_STEPS * (len(LOCK_STEPS) // len(SCALE_DOWN_STEPS)),
    )


class MovingPairs(ReplicatedRun):
    """The end of a run of pairs whose backups move their messages."""

    async def _take_over(self, pair: Sequence[SimNode]) -> None:
        """See ``ReplicatedRun``; the messages move, and the primary returns without them."""
        active, replica = pair
        in_sync = self._in_sync(active)
        active.wanted = False
        if self.loop.random(f"end of {active.name}").random() < 0.5:
            self.cluster.power_off(active.name)
        else:
            self.cluster.kill(active.name)
        if in_sync and not await self._wait(lambda: self._has_moved(replica), self.loop.time() + _MOVED_S):
            states = {name: node.state for name, node in self.cluster.nodes.items()}
            text = f"the replica in sync did not move its messages within {_MOVED_S} s: {states}"
            self.violations.append(Violation("take-over", text))
        active.wanted = True
        self.cluster.start(active.name)
        await self._synced_primary(pair)

    @staticmethod
    def _has_moved(node: SimNode) -> bool:
        server = node.server
        outcome = None if server is None else server.serving.scale_down.outcome
        return outcome is not None and outcome.complete and node.state == "passive"


class ScaledReplicasRun(MovingPairs, MemberReplicasRun):
    """One run of two or three replicated pairs with a witness."""

    strikes_class: ClassVar[type[Strikes]] = ScaledReplicaStrikes


class ScaledReplicas(MemberReplicas):
    """Two or three pairs; each backup moves its messages to another pair when it takes over."""

    name = "scaled-replicas"
    text = "two or three replicated pairs with a witness, whose backups move their messages to another pair"
    run_class = ScaledReplicasRun

    def configure(self, plan: Plan) -> Plan:
        plan = super().configure(plan)
        # a copy that is spoiled by a note proves a position that no log had, and an operator has to decide
        faults = tuple(fault for fault in plan.faults if fault.kind is not FaultKind.COPY_UNUSABLE)
        producers = tuple(replace(job, groups=0) for job in plan.producers)
        pair = replace(plan.pair, scale_down=True, grouping=False, balancing="ON_DEMAND")
        return replace(plan, producers=producers, pair=pair, faults=faults)
