"""The one place where confirmations and deliveries wait for durability (ADR 0003, ADR 0048).

Everything that promises something to a client asks ``when_durable`` with the sequence of the last record on which the
promise rests. The call is made when the log is durable up to that sequence, by ``advance`` and by nothing else. After
``fail`` no call is made any more: whether the records are durable is unknown.

Durability is stated by voters: the local disk and, with replication, the memory and the disk of the replica. The
context keeps one mark per voter, the highest sequence that it has confirmed. The contract (``Contract``) names the
voters that are required; ``durable`` is the lowest of their marks. It is ``LOCAL`` while no replica is in sync
(``require``; ADR 0057).

Order: entries wait in one lane, first in, first out.

Invariants: ``durable <= appended``; the sequence of a waiting entry is above ``durable``; sequences in the lane do not
fall; ``durable`` does not fall. A bug in a released call ends the object that it was for and delays no other:
``internal_error`` is called of the first object among the call and its arguments that has it, or that they are bound
to. That object is looked for only then, so it costs nothing per call.

Not here: writing, syncing and replicating; they call ``advance``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Protocol

from understudy.errors import BrokerError


class GatheredRecords(Protocol):
    """Records that were promised the next sequences of the log and are not in it yet (ADR 0038)."""

    def close(self) -> None:
        """Append records, and register the calls that wait for them in the context."""
        ...


class Voter(Enum):
    """A place whose durability is confirmed by sequence."""

    LOCAL_DISK = 0
    """Written and synced by this node."""
    REPLICA_MEMORY = 1
    """Received by the replica."""
    REPLICA_DISK = 2
    """Written and synced by the replica."""


class Contract(Enum):
    """Durability contract of a node: the voters that a confirmation waits for. Each includes the weaker ones."""

    LOCAL = (Voter.LOCAL_DISK,)
    REPLICA_MEMORY = (Voter.LOCAL_DISK, Voter.REPLICA_MEMORY)
    REPLICA_DISK = (Voter.LOCAL_DISK, Voter.REPLICA_MEMORY, Voter.REPLICA_DISK)


_Entry = tuple[int, Callable[..., None], tuple[Any, ...]]
"""Sequence, call and arguments."""


class OperationContext:
    """The sequences that are durable, and the calls that wait for later ones."""

    __slots__ = ("_marks", "_required", "_waiting", "appended", "durable", "failure", "gathered", "released")

    def __init__(self, durable: int = 0) -> None:
        """Everything up to the sequence ``durable`` is on the local disk already."""
        self.durable = durable
        """Highest sequence that all required voters have confirmed."""
        self.appended = durable
        """Highest sequence that was appended or promised to ``gathered``; kept by the journal."""
        self.gathered: GatheredRecords | None = None
        """Closed before a further record is appended, a call waits here or an id is given: those come after it."""
        self.failure: BaseException | None = None
        """Why nothing is released any more."""
        self.released = 0
        """Calls that had to wait and were released, for metrics."""
        self._waiting: deque[_Entry] = deque()
        self._marks: dict[Voter, int] = {Voter.LOCAL_DISK: durable}
        """Highest sequence that each voter has confirmed; of the replica only while it is required."""
        self._required: tuple[Voter, ...] = Contract.LOCAL.value

    @property
    def failed(self) -> bool:
        """Whether ``fail`` was called."""
        return self.failure is not None

    @property
    def waiting(self) -> int:
        """Calls not yet released."""
        return len(self._waiting)

    def when_durable(self, sequence: int, call: Callable[..., None], *args: Any) -> None:
        """Call once everything up to ``sequence`` is durable: now if it is, else in turn. Never after ``fail``."""
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

    def mark(self, voter: Voter) -> int:
        """Highest sequence that a voter has confirmed; 0 for a replica that is not required."""
        return self._marks.get(voter, 0)

    def require(self, contract: Contract) -> None:
        """Confirmations wait for this contract from now on. A replica that is required now and was not before has
        everything that the local disk has; one that is required no longer delays nothing: calls that waited for it
        only are released.

        Raises:
            As ``advance``.
        """
        local = self._marks[Voter.LOCAL_DISK]
        self._marks = dict.fromkeys(contract.value, local)
        self._required = contract.value
        self._release()

    def advance(self, sequence: int, voter: Voter = Voter.LOCAL_DISK) -> None:
        """A voter has confirmed everything up to ``sequence``: release calls that waited for it.

        The confirmation of a replica that is not required is ignored: it came by a connection that has ended.

        Raises:
            BrokerError: of a released call; the node can go on no longer.
            Exception: the first bug that answers no call, after the last call.
        """
        if self._marks.get(voter, sequence) < sequence:
            self._marks[voter] = sequence
            self._release()

    def _release(self) -> None:
        """Release the calls that wait for nothing any more."""
        sequence = min([self._marks[voter] for voter in self._required])
        if self.failure is not None or sequence <= self.durable:
            return
        self.durable = sequence
        bug: Exception | None = None
        waiting = self._waiting
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
    """Report a bug to the first of these objects that has ``internal_error``, or is bound to an object that has it.
    Returns the error that is left to report, None if the bug was reported.
    """
    for each in objects:
        while isinstance(each, partial):
            each = each.func
        internal_error = getattr(getattr(each, "__self__", each), "internal_error", None)
        if internal_error is not None:
            try:
                internal_error(bug)
            except Exception as another:
                return another
            return None
    return bug
