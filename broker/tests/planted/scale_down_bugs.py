"""Planted bugs of scale-down: messages that move to another member are lost or doubled."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from planted.planting import Patch, planted
from understudy.cluster.scale_down.messages import MovingMessages
from understudy.runtime.members.scale_down import NodeScaleDown
from understudy.session.branch import MovedBranches
from understudy.testing.runs.cluster_configuration import QUEUE
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.members_run import MembersRun
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.runs.workload import ConsumerJob
from understudy.testing.runs.xa_workload import BranchProducerJob
from understudy.testing.sim.loop import SimLoop

_MEMBERS: Final = "members"
_NOT_LOST: Final = "no confirmed durable message is lost"
_NOT_DOUBLED: Final = "no message is stored twice"
#: From the first message of a scale-down to the loss of its target.
_UNDER_WAY_S: Final = 0.003
#: A client notices soon that its connection is silent.
_SOON: Final = "connectionTTL=2000&clientFailureCheckPeriod=500"


class _TargetsLostRun(MembersRun):
    """One member is stopped, and the others lose power just after it has begun to send its messages to one of them."""

    liveness_s = 30.0

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        stop = Fault(0, 4.0, FaultKind.STOP, "a", 1.0, 1.0, 0)
        super().__init__(replace(plan, faults=(stop,), heal_s=12.0), loop)
        self._lost = False

    def moving(self) -> None:
        """A message was sent because of a scale-down."""
        if not self._lost:
            self._lost = True
            self.strikes.later(_UNDER_WAY_S, self._lose)

    def _lose(self) -> None:
        for number, node in enumerate(self.plan.nodes[1:], 1):
            self.strikes.strike(Fault(number, 0.0, FaultKind.POWER_LOSS, node.name, 1.0, 0.0, 0))


@planted("scale-down-removes-early", promise=_NOT_LOST, checks=["lost"], elsewhere={_MEMBERS: range(10)})
def _scale_down_removes_early(patch: Patch) -> type[ScenarioRun]:
    """A node that is scaled down removes a message when it has sent it, before the target has it."""
    runs: list[_TargetsLostRun] = []

    class Run(_TargetsLostRun):
        def __init__(self, plan: Plan, loop: SimLoop) -> None:
            super().__init__(plan, loop)
            runs.append(self)

    def sent(self: MovingMessages, correlation_id: int, held: Any, size_bytes: int) -> None:
        old(self, correlation_id, held, size_bytes)
        self.confirmed(correlation_id)
        runs[-1].moving()

    old: Callable[..., None] = patch.replace(MovingMessages, "_sent", sent)
    return Run


@planted("scale-down-not-completed", promise=_NOT_DOUBLED, checks=["duplicated"], elsewhere={_MEMBERS: range(190, 210)})
def _scale_down_not_completed(patch: Patch) -> None:
    """A node that was killed during its scale-down serves messages that the target has already."""
    patch.replace(NodeScaleDown, "is_pending", lambda self, broker: False)


class _CutOffDecisionRun(MembersRun):
    """A producer works in branches at a member. Its network is cut while a branch is prepared, so that the request to
    commit and the farewell of the member are lost; the member hands its branches over, and is back before the network.
    """

    liveness_s = 60.0

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        idle_s = plan.consumers[0].idle_s
        producer = BranchProducerJob(
            "p0", QUEUE, count=60, size_bytes=100, pause_s=0.1, batch=3, decide_s=1.0, patience_s=idle_s
        )
        consumer = ConsumerJob("c0", QUEUE, "auto", idle_s=idle_s)
        pair = replace(plan.pair, scale_down=True, balancing="ON_DEMAND", grouping=False)
        url = re.sub("connectionTTL=[0-9]+&clientFailureCheckPeriod=[0-9]+", _SOON, plan.url)
        plan = replace(plan, pair=pair, url=url, producers=(producer,), consumers=(consumer,), heal_s=26.0)
        super().__init__(plan, loop)
        member = next(node.name for node in plan.nodes if self._url(node.name) == self.url_of("p0"))
        faults = []
        for number, at_s in enumerate((4.0 + plan.seed % 10 / 10, 15.0)):
            faults.append(Fault(2 * number, at_s, FaultKind.PART_CLIENTS, member, 8.0, 0.0, 0))
            faults.append(Fault(2 * number + 1, at_s + 1.1, FaultKind.STOP, member, 0.5, 0.9, 0))
        self.plan = self.strikes.plan = replace(plan, faults=tuple(faults))


@planted(
    "moved-branch-forgotten",
    promise="a prepared branch is decided by its transaction manager, whatever node has it",
    checks=["left-over"],
    elsewhere={_MEMBERS: range(3)},
)
def _moved_branch_forgotten(patch: Patch) -> type[ScenarioRun]:
    """A node does not remember that a scale-down has moved a branch, and says that there is none of this name."""
    patch.replace(MovedBranches, "node_of", lambda self, xid: None)
    return _CutOffDecisionRun
