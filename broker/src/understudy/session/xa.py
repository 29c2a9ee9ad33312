"""What an XA session asks about branches (facts 4.5): its own part of one, and the outcome of any.

Every method returns when its request is carried out, or raises ``XaError`` with the code that the
client's XAException is to have; answers may go out only when what was written is durable, which the
caller arranges (``ServerSession.when_durable``), except for ``commit``, which takes ``done``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from understudy.errors import TransactionRolledBack, XaCode, XaError
from understudy.ids import Xid
from understudy.routing.post_office import Done
from understudy.session.branch import Branch, Event, State
from understudy.session.resource_registry import ResourceRegistry

if TYPE_CHECKING:
    from understudy.session.session import ServerSession

#: Longest timeout a client may ask for: what an i32 of seconds holds is 68 years. Milliseconds.
_TIMEOUT_MAX_MS: Final = 24 * 3_600_000


class XaRequests:
    """The XA side of one session."""

    def __init__(self, session: ServerSession, registry: ResourceRegistry) -> None:
        self._session = session
        self._registry = registry
        self._timeout_ms = registry.timeout_ms
        self.branch: Branch | None = None
        """The one the session works in."""

    # -- its own part -----------------------------------------------------------------------------

    def start(self, xid: Xid) -> None:
        """Work in a new branch from now on."""
        self._check_free()
        self._enter(self._registry.create(xid, Event.START, self._timeout_ms))

    def join(self, xid: Xid) -> None:
        """Work in a branch that another session began."""
        self._check_free()
        branch = self._registry.get(xid)
        branch.take(Event.JOIN)
        self._enter(branch)

    def resume(self, xid: Xid) -> None:
        """Go on in a suspended one."""
        self._check_free()
        branch = self._registry.get(xid)
        branch.take(Event.RESUME)
        self._enter(branch)

    def suspend(self) -> None:
        """Leave the branch for now."""
        branch = self.branch
        if branch is None:
            raise XaError("the session works in no branch", xa_code=XaCode.PROTOCOL)
        if branch.expired or branch.sessions != [self._session]:
            raise XaError("the branch cannot be suspended now", xa_code=XaCode.PROTOCOL)
        branch.take(Event.SUSPEND)
        branch.sessions.clear()
        self._leave()

    def end(self, xid: Xid, *, failed: bool) -> None:
        """Its part of the branch is done; ``failed``: it can only be rolled back. Once more does no harm: a
        transaction manager may end a part that the session has ended already (JTA 1.2 s. 3.4.4), and Artemis lets it.
        """
        branch = self.branch
        if branch is None or branch.xid != xid:
            branch = self._registry.get(xid)
            if branch.state is State.SUSPENDED:
                branch.fire(Event.LEAVE)
            elif branch.state is not State.IDLE and branch.state is not State.ACTIVE:
                raise XaError("nobody works in this branch any more", xa_code=XaCode.PROTOCOL)
        else:
            self._leave()
            self._registry.left(branch, self._session)
        if branch.expired:
            raise XaError("the branch took longer than its timeout", xa_code=XaCode.ROLLED_BACK_TIMEOUT)
        if failed:
            branch.transaction.fail(TransactionRolledBack("its application ended it as failed"))

    def _check_free(self) -> None:
        self._session.check_open()
        if not self._session.xa:
            raise XaError("the session is not an XA session", xa_code=XaCode.PROTOCOL)
        if self.branch is not None:
            raise XaError("the session works in a branch already", xa_code=XaCode.PROTOCOL)

    def _enter(self, branch: Branch) -> None:
        self.branch = branch
        branch.sessions.append(self._session)
        self._session.enlist(branch.transaction)

    def _leave(self) -> None:
        self.branch = None
        self._session.enlist(None)

    def close(self) -> None:
        """The session ends. Its branch stays, to be decided by its manager or its timeout."""
        branch = self.branch
        if branch is not None:
            self._leave()
            self._registry.left(branch, self._session)

    # -- outcomes ---------------------------------------------------------------------------------

    def prepare(self, xid: Xid) -> None:
        """Promise that the branch can commit."""
        self._registry.prepare(self._registry.get(xid))

    def commit(self, xid: Xid, *, one_phase: bool, done: Done) -> None:
        """Make everything in the branch count; ``done`` when it does."""
        self._registry.commit(self._registry.get(xid), one_phase, self._session.order, done)

    def roll_back(self, xid: Xid) -> None:
        """Undo the branch, and take back what the session's consumers hold, which they drop. They have dropped it
        also if the branch is not known, for instance because it took too long.
        """
        try:
            branch = self._registry.get(xid)
        except XaError:
            if self.branch is None:
                self._session.give_back({})
            raise
        self._session.give_back(self._registry.roll_back(branch))

    def forget(self, xid: Xid) -> None:
        """The heuristic outcome need not be remembered any more."""
        self._registry.forget(xid)

    def failed(self, xid: Xid) -> None:
        """The client's work in this branch went with a failover: it must not commit."""
        branch = self._registry.find(xid)
        if branch is None:
            branch = self._registry.create(xid, Event.FAILED, self._timeout_ms)
        if branch.state is not State.PREPARED:
            branch.transaction.fail(TransactionRolledBack("a failover undid work of this branch"))

    def in_doubt(self) -> tuple[Xid, ...]:
        """Branches whose outcome a transaction manager has to find out."""
        return self._registry.in_doubt()

    # -- timeouts ---------------------------------------------------------------------------------

    @property
    def timeout_s(self) -> int:
        """Of branches that this session starts."""
        return self._timeout_ms // 1000

    def set_timeout(self, timeout_s: int) -> bool:
        """0 = the broker's own (transaction-timeout). False: not a time."""
        if timeout_s < 0:
            return False
        self._timeout_ms = min(timeout_s * 1000, _TIMEOUT_MAX_MS) if timeout_s else self._registry.timeout_ms
        return True
