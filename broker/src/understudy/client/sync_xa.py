"""``sync.Session.xa``: the blocking face of ``aio_xa``."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from understudy.client import aio_xa
from understudy.ids import Xid

T = TypeVar("T")


class Runner(Protocol):
    """Runs something on the loop's thread and waits for it."""

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


class XaBranches:
    """See ``aio_xa.XaBranches``."""

    def __init__(self, thread: Runner, branches: aio_xa.XaBranches) -> None:
        self._thread = thread
        self._branches = branches

    def start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> None:
        """See ``aio_xa.XaBranches.start``."""
        self._thread.run(self._branches.start(xid, join=join, resume=resume))

    def suspend(self) -> None:
        """See ``aio_xa.XaBranches.suspend``."""
        self._thread.run(self._branches.suspend())

    def end(self, xid: Xid, *, failed: bool = False) -> None:
        """See ``aio_xa.XaBranches.end``."""
        self._thread.run(self._branches.end(xid, failed=failed))

    def prepare(self, xid: Xid) -> None:
        """See ``aio_xa.XaBranches.prepare``."""
        self._thread.run(self._branches.prepare(xid))

    def commit(self, xid: Xid, *, one_phase: bool = False) -> None:
        """See ``aio_xa.XaBranches.commit``."""
        self._thread.run(self._branches.commit(xid, one_phase=one_phase))

    def rollback(self, xid: Xid) -> None:
        """See ``aio_xa.XaBranches.rollback``."""
        self._thread.run(self._branches.rollback(xid))

    def forget(self, xid: Xid) -> None:
        """See ``aio_xa.XaBranches.forget``."""
        self._thread.run(self._branches.forget(xid))

    def recover(self) -> tuple[Xid, ...]:
        """See ``aio_xa.XaBranches.recover``."""
        return self._thread.run(self._branches.recover())

    def set_timeout(self, timeout_s: int) -> bool:
        """See ``aio_xa.XaBranches.set_timeout``."""
        return self._thread.run(self._branches.set_timeout(timeout_s))

    def timeout(self) -> int:
        """See ``aio_xa.XaBranches.timeout``."""
        return self._thread.run(self._branches.timeout())
