"""``sync.Session.xa``: the blocking face of ``aio_xa``."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from understudy.client.aio import xa as aio_xa
from understudy.ids import Xid

T = TypeVar("T")


class Runner(Protocol):
    """Runs something on the loop's thread and waits for it."""

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class XaBranches:
    """The XA branches of one blocking session. Every refusal is an ``XaError`` with the code of an XAException."""

    def __init__(self, thread: Runner, branches: aio_xa.XaBranches) -> None:
        self._thread = thread
        self._branches = branches

    def start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> None:
        """Work in a new branch, in one that another session began (``join``), or in a suspended one (``resume``)."""
        self._thread.run(self._branches.start(xid, join=join, resume=resume))

    def suspend(self) -> None:
        """Suspend the session's work in the branch, to be resumed by ``start(resume=True)``."""
        self._thread.run(self._branches.suspend())

    def end(self, xid: Xid, *, failed: bool = False) -> None:
        """End the session's part of the branch; ``failed``: it can only be rolled back.

        Raises:
            XaError: with a rollback code when a failover or the timeout has undone the branch.
        """
        self._thread.run(self._branches.end(xid, failed=failed))

    def prepare(self, xid: Xid) -> None:
        """Prepare the branch: the broker keeps it through restarts and failovers until it is decided."""
        self._thread.run(self._branches.prepare(xid))

    def commit(self, xid: Xid, *, one_phase: bool = False) -> None:
        """Commit a prepared branch, also after failovers; with ``one_phase`` one that was not prepared."""
        self._thread.run(self._branches.commit(xid, one_phase=one_phase))

    def rollback(self, xid: Xid) -> None:
        """Undo the branch; messages received in it are delivered again."""
        self._thread.run(self._branches.rollback(xid))

    def forget(self, xid: Xid) -> None:
        """Let the broker drop the record of a heuristic outcome."""
        self._thread.run(self._branches.forget(xid))

    def recover(self) -> tuple[Xid, ...]:
        """The branches that are prepared, or were decided heuristically."""
        return self._thread.run(self._branches.recover())

    def set_timeout(self, timeout_s: int) -> bool:
        """Set the seconds after which branches started from now on are rolled back; 0 = the broker's default."""
        return self._thread.run(self._branches.set_timeout(timeout_s))

    def timeout(self) -> int:
        """Seconds after which a branch that is not prepared is rolled back."""
        return self._thread.run(self._branches.timeout())
