"""Planted bugs that break the promises about XA branches across a failover."""

from __future__ import annotations

from typing import Any

from planted.planting import Patch, planted
from understudy.ids import Xid
from understudy.session.branch import Branch
from understudy.session.resource_manager import ResourceManager
from understudy.session.session import ServerSession
from understudy.session.state import SessionState
from understudy.session.transaction import Transaction
from understudy.session.xa import XaRequests
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.scenarios.branched_pair import BranchedPairRun

_UNDONE = "work in a branch that a failover undid never takes effect"


def _failed_branches(patch: Patch) -> set[Branch]:
    """The branches that a client reports as failed while the bug is planted."""
    failed: set[Branch] = set()

    def report(self: XaRequests, xid: Xid) -> None:
        old(self, xid)
        if self.branch is not None:
            failed.add(self.branch)

    old = patch.replace(XaRequests, "failed", report)
    return failed


@planted("failed-branch-sends", promise=_UNDONE, checks=["refused", "unexplained"], seeds=range(6))
def _failed_branch_sends(patch: Patch) -> type[ScenarioRun]:
    """A send in a branch that a failover undid takes effect at once."""
    failed = _failed_branches(patch)

    def sending_transaction(self: SessionState) -> Transaction | None:
        transaction: Transaction | None = old.fget(self)
        return None if any(branch.transaction is transaction for branch in failed) else transaction

    old = patch.replace(SessionState, "sending_transaction", property(sending_transaction))
    return BranchedPairRun


@planted("failed-branch-acknowledges", promise=_UNDONE, checks=["lost"], seeds=range(6))
def _failed_branch_acknowledges(patch: Patch) -> type[ScenarioRun]:
    """An acknowledgement in a branch that a failover undid takes effect at once."""
    failed = _failed_branches(patch)

    def acknowledge(self: ServerSession, consumer_id: int, message_id: int, done: Any = None) -> None:
        if self.branches.branch not in failed:
            old(self, consumer_id, message_id, done)
            return
        transaction = self.state.transaction
        self.state.enlist(None)
        try:
            old(self, consumer_id, message_id, done)
        finally:
            self.state.enlist(transaction)

    old = patch.replace(ServerSession, "acknowledge", acknowledge)
    return BranchedPairRun


@planted(
    "rollback-leaves-the-branch",
    promise="a rollback of an XA session undoes the branch it works in, and its messages are delivered again",
    checks=["client"],
    seeds=range(6),
)
def _rollback_leaves_the_branch(patch: Patch) -> type[ScenarioRun]:
    """SESS_ROLLBACK of an XA session gives back its deliveries and leaves its branch as it is."""
    patch.replace(XaRequests, "roll_back_work", lambda self: {})
    return BranchedPairRun


@planted(
    "prepared-branch-forgotten",
    promise="a prepared branch survives a failover",
    checks=["lost", "duplicated"],
    seeds=range(6),
)
def _prepared_branch_forgotten(patch: Patch) -> type[ScenarioRun]:
    """A node that takes over does not restore the branches that are prepared."""
    patch.replace(ResourceManager, "restore", lambda self, state: None)
    return BranchedPairRun
