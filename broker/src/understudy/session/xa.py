"""Requests of an XA session about branches (artemis-core s. 4.5): its own part of one, and the outcome of any.

Every method returns when its request is carried out, or raises ``XaError`` with the code that the
client's XAException is to have; answers may go out only when the written records are durable, which the
caller arranges (``SessionState.when_durable``), except for ``commit``, which takes ``done``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from understudy.errors import TransactionRolledBack, XaCode, XaError
from understudy.ids import Xid
from understudy.routing.post_office import Done
from understudy.session.branch import Branch, Event, State
from understudy.session.resource_manager import Returned
from understudy.session.state import SessionState
from understudy.session.transaction import Transaction

log = logging.getLogger(__name__)

#: Longest timeout a client may ask for: what an i32 of seconds holds is 68 years. Milliseconds.
_TIMEOUT_MAX_MS: Final = 24 * 3_600_000


class XaRequests:
    """The XA side of one session."""

    def __init__(self, state: SessionState, give_back: Callable[[Returned], None]) -> None:
        """``give_back``: returns deliveries of a branch, and everything outstanding at the session's consumers, to
        their queues.
        """
        self._give_back = give_back
        self._state = state
        self._registry = state.services.resources
        self._timeout_ms = self._registry.timeout_ms
        self.branch: Branch | None = None
        """The one the session works in."""
        self._ended: Branch | None = None
        """The one whose part the session ended last, while it is not decided."""

    # -- its own part -----------------------------------------------------------------------------

    def start(self, xid: Xid) -> None:
        """Work in a new branch from now on. The branch that the session has worked in until then, if any, is rolled
        back, as in Artemis (AMQ222176): its transaction manager has forgotten it.
        """
        self._check_xa()
        branch = self.branch
        if branch is not None:
            log.warning("branch replaced", extra={"id": "AMQ222176", "xid": str(branch.xid), "by": str(xid)})
            self._leave()
            self._registry.abandon(branch, self)
        branch = self._registry.create(xid, Event.START, self._timeout_ms, self._state.work)
        branch.arriving = self._state.options.of_cluster
        self._enter(branch)

    def join(self, xid: Xid) -> None:
        """Work in a branch that another session began."""
        self._check_free()
        branch = self._find(xid)
        branch.take(Event.JOIN)
        self._enter(branch)

    def resume(self, xid: Xid) -> None:
        """Go on in a suspended one."""
        self._check_free()
        branch = self._find(xid)
        branch.take(Event.RESUME)
        self._enter(branch)

    def suspend(self) -> None:
        """Leave the branch for now."""
        branch = self.branch
        if branch is None:
            raise XaError("the session works in no branch", xa_code=XaCode.PROTOCOL)
        if branch.undone is not None or branch.members != [self]:
            raise XaError("the branch cannot be suspended now", xa_code=XaCode.PROTOCOL)
        branch.take(Event.SUSPEND)
        branch.members.clear()
        self._leave()

    def end(self, xid: Xid, *, failed: bool) -> None:
        """End the session's part of the branch; ``failed``: it can only be rolled back. Once more does no harm: a
        transaction manager may end a part that the session has ended already (JTA 1.2 s. 3.4.4), and Artemis lets it.

        A branch that can only be rolled back (TMFAIL, SESS_XA_FAILED) is ended like any other, as in Artemis: its
        manager gets the rollback code from ``prepare`` or ``commit``.
        """
        branch = self.branch
        if branch is None or branch.xid != xid:
            branch = self._find(xid)
            if branch.state is State.SUSPENDED:
                branch.fire(Event.LEAVE)
            elif branch.state is not State.IDLE and branch.state is not State.ACTIVE:
                raise XaError("no session works in this branch any more", xa_code=XaCode.PROTOCOL)
        else:
            self._leave()
            self._ended = branch
            self._registry.left(branch, self)
        if branch.undone is not None:
            raise XaError("the work of the branch was undone before its end", xa_code=branch.undone)
        if failed:
            branch.transaction.fail(TransactionRolledBack("its application ended it as failed"))

    def _find(self, xid: Xid) -> Branch:
        """The branch of that name. Raises XaError (``ResourceManager.get``)."""
        return self._registry.get(xid, of_cluster=self._state.options.of_cluster)

    def _check_xa(self) -> None:
        self._state.check_open()
        if not self._state.options.xa:
            raise XaError("the session is not an XA session", xa_code=XaCode.PROTOCOL)

    def _check_free(self) -> None:
        self._check_xa()
        if self.branch is not None:
            raise XaError("the session works in a branch already", xa_code=XaCode.PROTOCOL)

    def enlist(self, transaction: Transaction) -> None:
        """The session works in this transaction of its branch from now on (``BranchMember``)."""
        self._state.enlist(transaction)

    def _enter(self, branch: Branch) -> None:
        self.branch = branch
        branch.members.append(self)
        self._state.enlist(branch.transaction)

    def _leave(self) -> None:
        self.branch = None
        self._state.enlist(None)

    def failed(self, xid: Xid) -> None:
        """The client lost the session that worked in this branch (SESS_XA_FAILED) and goes on in this one.

        Until the client ends the branch or rolls back, everything it sends and acknowledges belongs to a transaction
        that can only be rolled back: the branch, or one of its own if the branch is decided already.

        Raises:
            ObjectClosed: the session is closed.
            XaError: the session is not an XA session; nothing was changed.
        """
        self._check_xa()
        self._part()
        self._enter(self._registry.failed(xid, self._timeout_ms, self._state.work))

    def roll_back_work(self) -> Returned:
        """A local rollback (SESS_ROLLBACK): undo the branch that the session works in, and leave it.

        Returns:
            The acknowledged deliveries, which the caller gives back to their queues.
        """
        branch = self.branch
        if branch is None:
            return {}
        self._leave()
        return self._registry.undo(branch, self)

    def _part(self) -> None:
        branch = self.branch
        if branch is not None:
            self._leave()
            self._registry.left(branch, self)

    def close(self, *, failed: bool) -> None:
        """The session ends.

        Args:
            failed: Whether its connection was lost. Work of the branch it works in may be missing, and the branch it
                ended may never be prepared: both are rolled back, as Artemis does. Otherwise they stay, to be decided
                by their manager or their timeout.
        """
        branch, ended = self.branch, self._ended
        if not failed:
            self._part()
            return
        if branch is not None:
            self._leave()
            self._registry.abandon(branch, self)
        if ended is not None and ended.state is State.IDLE:
            self._registry.give_back(self._registry.roll_back(ended))

    # -- outcomes ---------------------------------------------------------------------------------

    def prepare(self, xid: Xid) -> None:
        """Promise that the branch can commit."""
        self._registry.prepare(self._find(xid), came=self._state.options.of_cluster)

    def commit(self, xid: Xid, *, one_phase: bool, done: Done) -> None:
        """Make everything in the branch count; ``done`` when it does."""
        self._registry.commit(self._find(xid), one_phase, self._state.order, done)

    def roll_back(self, xid: Xid) -> None:
        """Undo the branch, and take back what the session's consumers hold, which they drop. They have dropped it
        also if the branch is not known, for instance because it took too long.
        """
        try:
            branch = self._find(xid)
        except XaError:
            if self.branch is None:
                self._give_back({})
            raise
        self._give_back(self._registry.roll_back(branch))

    def forget(self, xid: Xid) -> None:
        """The heuristic outcome need not be remembered any more."""
        self._registry.forget(xid)

    def in_doubt(self) -> tuple[Xid, ...]:
        """Branches whose outcome a transaction manager has to find out; for another node of the cluster also those that
        it has moved here. Raises XaError (``ResourceManager.in_doubt``).
        """
        return self._registry.in_doubt(came=self._state.options.of_cluster)

    # -- timeouts ---------------------------------------------------------------------------------

    @property
    def timeout_s(self) -> int:
        """Timeout of branches that this session starts."""
        return self._timeout_ms // 1000

    def set_timeout(self, timeout_s: int) -> bool:
        """0 = the broker's own (transaction-timeout). False: not a time."""
        if timeout_s < 0:
            return False
        self._timeout_ms = min(timeout_s * 1000, _TIMEOUT_MAX_MS) if timeout_s else self._registry.timeout_ms
        return True
