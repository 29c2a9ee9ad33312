"""``Session.xa`` of the asyncio client: the XA branches of a session, for a transaction manager to drive."""

from __future__ import annotations

from understudy.client.aio.link import Link
from understudy.client.core.session.state import SessionState
from understudy.ids import Xid


class XaBranches:
    """The operations of an XAResource (X/Open XA; artemis-core s. 4.5). Every refusal is an ``XaError`` with the code
    that an XAException would have.

    Send and receive between ``start`` and ``end``; outside of a branch everything counts at once. A session works in
    one branch at a time, for one task at a time.
    """

    def __init__(self, owner: object, link: Link, state: SessionState) -> None:
        self._owner = owner  # the session lives as long as its branches
        self._link = link
        self._branches = state.branches

    async def start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> None:
        """Begin to work in a branch: later sends and acknowledgements of the session belong to it.

        Args:
            xid: Id of the branch.
            join: Whether it is one that another session began.
            resume: Whether it is one that was suspended.

        Raises:
            XaError: the broker refuses (such as a branch that exists), or the connection was lost under way.
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.

        Failover: a call under way raises ``XaError`` (RESOURCE_MANAGER_FAILED). The work of a branch that was not
        prepared is undone; ``end`` says so.

        Concurrency: one task at a time for one session.
        """
        await self._link.ask(lambda waiter: self._branches.start(xid, waiter, join=join, resume=resume))

    async def suspend(self) -> None:
        """Leave the branch for now; ``start`` with ``resume`` goes on with it.

        Raises:
            XaError: a failover undid the work of the branch (a rollback code), the broker refuses, or the connection
                was lost under way.
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.

        Failover: a call under way raises ``XaError`` (RESOURCE_MANAGER_FAILED).

        Concurrency: one task at a time for one session. Waits for sends that still lack credits.
        """
        await self._link.ask(self._branches.suspend)

    async def end(self, xid: Xid, *, failed: bool = False) -> None:
        """End this session's part of the branch; messages received in it are acknowledged in the branch.

        Args:
            xid: Id of the branch.
            failed: The branch can only be rolled back.

        Raises:
            XaError: with a rollback code when a failover or its timeout undid the branch; or the broker refuses, or
                the connection was lost under way.
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.

        Failover: a call under way raises ``XaError`` (RESOURCE_MANAGER_FAILED). A failover before it makes it raise
        ``XaError`` with a rollback code.

        Concurrency: one task at a time for one session. Waits for sends that still lack credits.
        """
        await self._link.ask(lambda waiter: self._branches.end(xid, waiter, failed=failed))

    async def prepare(self, xid: Xid) -> None:
        """Prepare the branch: the broker keeps it through restarts and failovers until it is decided.

        Args:
            xid: Id of the branch.

        Raises:
            XaError: the branch was rolled back (a rollback code), is unknown, or has not been ended.
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the broker is asked again, and a branch that had been prepared counts as prepared.

        Concurrency: any task may call it.
        """
        await self._link.ask(lambda waiter: self._branches.prepare(xid, waiter))

    async def commit(self, xid: Xid, *, one_phase: bool = False) -> None:
        """Commit a branch.

        Args:
            xid: Id of the branch, which was prepared.
            one_phase: Whether it was not prepared, and only this session worked in it.

        Raises:
            XaError: the branch is unknown, was rolled back, or was decided heuristically; with ``one_phase`` also when
                the connection was lost under way.
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on for a prepared branch; one that is gone when asked again was committed. With
        ``one_phase`` it raises ``XaError`` (RESOURCE_MANAGER_FAILED), and the outcome is unknown.

        Concurrency: any task may call it, at any session.
        """
        await self._link.ask(lambda waiter: self._branches.commit(xid, waiter, one_phase=one_phase))

    async def rollback(self, xid: Xid) -> None:
        """Undo a branch; messages received in it are delivered again. Deliveries of the session stop meanwhile.

        Args:
            xid: Id of the branch.

        Raises:
            XaError: the branch is unknown or was decided heuristically.
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the broker is asked again, and a branch that is gone then counts as rolled back.

        Concurrency: any task may call it, at any session.
        """
        await self._link.ask(lambda waiter: self._branches.roll_back(xid, waiter))

    async def forget(self, xid: Xid) -> None:
        """Let the broker drop its record of a heuristic outcome.

        Args:
            xid: Id of the branch.

        Raises:
            XaError: the branch is unknown.
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the broker is asked again.

        Concurrency: any task may call it, at any session.
        """
        await self._link.ask(lambda waiter: self._branches.forget(xid, waiter))

    async def recover(self) -> tuple[Xid, ...]:
        """List the branches that are prepared, and those that were decided heuristically and not forgotten.

        Returns:
            Their ids, all at once (there is no scan in steps as with XAResource.recover).

        Raises:
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the broker is asked again.

        Concurrency: any task may call it, at any session.
        """
        xids: tuple[Xid, ...] = await self._link.ask(self._branches.in_doubt)
        return xids

    async def set_timeout(self, timeout_s: int) -> bool:
        """Set the time after which the broker rolls back branches that are not prepared.

        Args:
            timeout_s: Seconds, for branches started from now on; 0 for the broker's own.

        Returns:
            Whether the broker accepts it.

        Raises:
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the broker is asked again. A timeout that was set before a failover is not set
        again.

        Concurrency: any task may call it.
        """
        taken: bool = await self._link.ask(lambda waiter: self._branches.set_timeout(timeout_s, waiter))
        return taken

    async def timeout(self) -> int:
        """Ask for the time after which the broker rolls back branches that are not prepared.

        Returns:
            Seconds.

        Raises:
            IllegalState: the session is not an XA session.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the broker is asked again.

        Concurrency: any task may call it.
        """
        timeout_s: int = await self._link.ask(self._branches.timeout)
        return timeout_s
