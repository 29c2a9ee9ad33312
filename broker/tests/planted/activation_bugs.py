"""Planted bugs of activations: those that fail and keep other nodes out, and one that comes too early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from planted.planting import Patch, planted, with_faults
from understudy.ha.life.activation import Step
from understudy.ha.locks import activation_sequence
from understudy.ha.locks.sequence_verdict import Verdict
from understudy.ha.replication.lock_authority import LockAuthority
from understudy.ha.replication.ports import Answer
from understudy.ha.shared import policy, store_claims
from understudy.routing.queues.delivery import DeliveryPermission
from understudy.runtime.node.activation import Activation
from understudy.runtime.node.serving import Serving
from understudy.runtime.replica.sequence_commit import SequenceCommit
from understudy.testing.runs.fault_plan import PASSIVE, Fault, FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.runs.witnessed_run import WitnessedRun
from understudy.testing.scenarios.replicated_pair import with_pair_faults
from understudy.testing.sim.loop import SimLoop

_REPLICATION: Final = "replication"


@planted(
    "successor-does-not-wait", promise="only one node writes in an epoch", checks=["zombie", "two-active"],
    seeds=range(7, 13),
)  # fmt: skip
def _successor_does_not_wait(patch: Patch) -> type[ScenarioRun]:
    """A node that got a lock which was not released begins its epoch while the last proof of its holder is valid."""
    patch.replace(store_claims, "UNPROVED_MS", 0)
    return with_faults(*(Fault(each, 2.0 + 18.0 * each, FaultKind.LOCK_TAKEN, "", 0.0, 0.99, 0) for each in range(2)))


@planted(
    "delivered-without-a-proof", promise="an acknowledged message does not come again", checks=["duplicated"],
    elsewhere={"shared-store-backups": range(2)},
)  # fmt: skip
def _delivered_without_a_proof(patch: Patch) -> type[ScenarioRun]:
    """A node that has lost its lock delivers messages until it asks for the lock the next time, which it seldom does
    while it is idle.
    """
    patch.replace(policy, "LOCK_CHECK_MS", 8_000)
    patch.replace(DeliveryPermission, "covers", lambda self, queue: True)
    # the clients of this run would stay away from a node that refuses to speak of branches
    patch.replace(DeliveryPermission, "is_given", lambda self: True)
    return with_faults(*(Fault(each, 2.0 + 6.0 * each, FaultKind.LOCK_TAKEN, "", 2.6, 0.99, 0) for each in range(3)))


class _FailedActivation(WitnessedRun):
    """The disk of the backup fails in its activation, and stays so. There is not much time: service returns at once."""

    liveness_s = 30.0

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        fault = Fault(0, 8.0, FaultKind.DISK_FAILS_IN_ACTIVATION, PASSIVE, 5.0, 0.3, 6)
        super().__init__(replace(plan, faults=(fault,), heal_s=18.0), loop)


@planted(
    "committed-before-the-log-is-open", promise="a node that fails to activate keeps no other one from serving",
    checks=["no-service"], elsewhere={_REPLICATION: range(3)},
)  # fmt: skip
def _committed_before_the_log_is_open(patch: Patch) -> type[ScenarioRun]:
    """A node that activates makes its data the newest before it has opened its log, and leaves it so."""

    def claim(self: LockAuthority, answer: Answer, *, alone: bool) -> None:
        old(self, answer, alone=True)

    old = patch.replace(LockAuthority, "claim", claim)
    patch.replace(LockAuthority, "commit", lambda self, answer: answer(None))
    patch.replace(LockAuthority, "take_back", lambda self, taken_back, *, served: taken_back())
    return _FailedActivation


@planted(
    "claim-not-taken-back", promise="a node that fails to activate keeps no other one from serving",
    checks=["no-service"], elsewhere={_REPLICATION: range(3)},
)  # fmt: skip
def _claim_not_taken_back(patch: Patch) -> type[ScenarioRun]:
    """The claim of a failed activation stays, and another node takes it for a sequence that was served."""
    patch.replace(LockAuthority, "take_back", lambda self, taken_back, *, served: taken_back())
    patch.replace(
        activation_sequence, "compare", lambda shared, local: Verdict.IN_SYNC if shared == local else Verdict.STALE
    )
    return _FailedActivation


@planted(
    "committed-after-a-failure", promise="a node that fails to activate keeps no other one from serving",
    checks=["no-service"], elsewhere={"scaled-voters": range(940030, 940031)},
)  # fmt: skip
def _committed_after_a_failure(patch: Patch) -> type[ScenarioRun]:
    """The activation of a node whose disk has failed goes on with its next step, the commit of the sequence."""
    patch.replace(Activation, "_end_if_failed", lambda self: None)
    patch.replace(SequenceCommit, "commit", lambda self, answer: self._authority.commit(answer))
    patch.replace(SequenceCommit, "take_back", lambda self, taken_back: taken_back())
    return ScenarioRun


@planted(
    "ports-bound-after-the-commit", promise="a node that fails to activate keeps no other one from serving",
    checks=["no-service"], elsewhere={_REPLICATION: range(3)},
)  # fmt: skip
def _ports_bound_after_the_commit(patch: Patch) -> type[ScenarioRun]:
    """A node that activates takes the ports of its acceptors when its data is the newest already."""
    opening: Callable[[Serving], list[Step]] = patch.replace(Serving, "opening", lambda self: opening(self)[:1])

    def steps(self: Serving) -> list[Step]:
        return [*opening(self)[1:], *serve(self)]

    serve: Callable[[Serving], list[Step]] = patch.replace(Serving, "steps", steps)
    return with_pair_faults(Fault(0, 8.0, FaultKind.PORT_IN_USE, PASSIVE, 5.0, 0.0, 0))
