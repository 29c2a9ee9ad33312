"""The one place where confirmations and deliveries wait for durability (ADR 0003).

Everything that promises something to the outside asks ``when_durable`` with the sequence of the
last record the promise rests on. What has to wait is released by ``advance`` and by nothing else.
After ``fail`` nothing is ever released: what was not durable then is unknown, and a node that
does not know says nothing.

Invariants: ``durable <= appended``; a waiting call's sequence is above ``durable``; waiting
sequences do not fall, so those that wait are released in the order in which they asked. A bug in
one of them ends the object that it was for and delays no other: ``met_bug`` is called of the first object
among the call and its arguments that has it, or that they are bound to. That object is looked for only then,
so it costs nothing per call.

Not here: writing, syncing and replicating; they call ``advance``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from understudy.errors import BrokerError


class GatheredRecords(Protocol):
    """Records that were promised the next sequences of the log and are not in it yet (ADR 0038)."""

    def close(self) -> None:
        """Append them, and have what waits for them wait in the context."""
        ...


class OperationContext:
    """The sequence that is durable, and the calls that wait for a later one."""

    __slots__ = ("_waiting", "appended", "durable", "failure", "gathered", "released")

    def __init__(self, durable: int = 0) -> None:
        """Everything up to the sequence ``durable`` is on the medium already."""
        self.durable = durable
        """Highest sequence that is durable."""
        self.appended = durable
        """Highest sequence that was appended or promised to ``gathered``; kept by the journal."""
        self.gathered: GatheredRecords | None = None
        """Closed before a further record is appended, a call waits here or an id is given: those come after it."""
        self.failure: BaseException | None = None
        """Why nothing is released any more."""
        self.released = 0
        """Calls that had to wait and were released, for metrics."""
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()

    @property
    def failed(self) -> bool:
        """Whether ``fail`` was called."""
        return self.failure is not None

    @property
    def waiting(self) -> int:
        """Calls not yet released."""
        return len(self._waiting)

    def when_durable(self, sequence: int, call: Callable[..., None], *args: Any) -> None:
        """Call once everything up to ``sequence`` is durable: now if it is, else in turn. Never
        after ``fail``.
        """
        if self.failure is not None:
            return
        if sequence <= self.durable:
            call(*args)
            return
        if self.gathered is not None:
            self.gathered.close()
        waiting = self._waiting
        if waiting and sequence < waiting[-1][0]:
            sequence = waiting[-1][0]
        waiting.append((sequence, call, args))

    def advance(self, sequence: int) -> None:
        """Everything up to ``sequence`` is durable: release what waited for it.

        Raises:
            BrokerError: of a released call; the node can go on no longer.
            Exception: the first bug that answers no call, behind the last call.
        """
        if self.failure is not None or sequence <= self.durable:
            return
        self.durable = sequence
        waiting = self._waiting
        bug: Exception | None = None
        while waiting and waiting[0][0] <= sequence:
            _, call, args = waiting.popleft()
            self.released += 1
            try:
                call(*args)
            except BrokerError:
                raise
            except Exception as error:  # a bug in one answer keeps none of the others back
                bug = bug or tell_owner(error, call, *args)
            # a released call may itself fail the context: the others must then stay unheard
            if self.failure is not None:
                break
        if bug is not None:
            raise bug

    def fail(self, error: BaseException) -> None:
        """Release nothing any more; the first error is kept."""
        if self.failure is None:
            self.failure = error
            self.gathered = None
            self._waiting.clear()


def tell_owner(bug: Exception, *objects: object) -> Exception | None:
    """Report a bug to the first of these objects that has ``met_bug``, or that is bound to one that has; returns what
    is left to report.
    """
    for each in objects:
        while isinstance(each, partial):
            each = each.func
        met_bug = getattr(getattr(each, "__self__", each), "met_bug", None)
        if met_bug is not None:
            try:
                met_bug(bug)
            except Exception as another:
                return another
            return None
    return bug
