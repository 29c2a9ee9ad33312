"""``aio.Session.xa``: the XA branches of a session, for a transaction manager to drive."""

from __future__ import annotations

from understudy.client.aio.link import LoopLink
from understudy.client.core.session import SessionState
from understudy.ids import Xid


class XaBranches:
    """What an XAResource offers (X/Open XA). Every refusal is an ``XaError`` with an XAException's code.

    Send and receive between ``start`` and ``end``; outside of a branch everything counts at once.
    """

    def __init__(self, owner: object, link: LoopLink, state: SessionState) -> None:
        self._owner = owner  # the session lives as long as we do
        self._link = link
        self._branches = state.branches

    async def start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> None:
        """Work in a new branch, one that another session began (``join``), or a suspended one."""
        await self._link.ask(lambda future: self._branches.start(xid, future, join=join, resume=resume))

    async def suspend(self) -> None:
        """Leave the branch for now."""
        await self._link.ask(self._branches.suspend)

    async def end(self, xid: Xid, *, failed: bool = False) -> None:
        """This session's part is done; ``failed``: the branch can only be rolled back.

        Raises:
            XaError: with a rollback code when a failover or its timeout undid the branch.
        """
        await self._link.ask(lambda future: self._branches.end(xid, future, failed=failed))

    async def prepare(self, xid: Xid) -> None:
        """Have the broker promise, through restarts and failovers, that the branch can commit."""
        await self._link.ask(lambda future: self._branches.prepare(xid, future))

    async def commit(self, xid: Xid, *, one_phase: bool = False) -> None:
        """Commit a prepared branch, after failovers too; ``one_phase``: one that was not prepared."""
        await self._link.ask(lambda future: self._branches.commit(xid, future, one_phase=one_phase))

    async def rollback(self, xid: Xid) -> None:
        """Undo the branch; what was received in it is delivered again."""
        await self._link.ask(lambda future: self._branches.roll_back(xid, future))

    async def forget(self, xid: Xid) -> None:
        """The broker need not remember a heuristic outcome any more."""
        await self._link.ask(lambda future: self._branches.forget(xid, future))

    async def recover(self) -> tuple[Xid, ...]:
        """Branches that are prepared, or were decided without their transaction manager."""
        xids: tuple[Xid, ...] = await self._link.ask(self._branches.in_doubt)
        return xids

    async def set_timeout(self, timeout_s: int) -> bool:
        """Seconds after which branches started from now on are given up; 0 = the broker's own."""
        taken: bool = await self._link.ask(lambda future: self._branches.set_timeout(timeout_s, future))
        return taken

    async def timeout(self) -> int:
        """Seconds after which a branch that is not prepared is given up."""
        timeout_s: int = await self._link.ask(self._branches.timeout)
        return timeout_s
