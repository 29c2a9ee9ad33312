"""The one place where confirmations and deliveries wait for durability (ADR 0003, ADR 0048).

Everything that promises something to a client asks ``when_durable`` with the sequence of the last record on which the
promise rests. The call is made when the log is durable up to that sequence, by ``advance`` and by nothing else. After
``fail`` no call is made any more: whether the records are durable is unknown.

Durability is stated by voters: the local disk and, with replication, the memory and the disk of the replica. The
context keeps one mark per voter, the highest sequence that it has confirmed. A contract (``Contract``) says which
marks an entry waits for. ``when_durable`` waits for the local disk; ``when_satisfied`` waits for the contract of an
address.

Order: entries wait in one lane per contract, first in, first out. An entry of an owner (a session or producer) that
has entries waiting in a stronger lane goes into that lane, so that the calls of one owner are made in the order in
which it asked. Entries of different owners in different lanes do not wait for each other.

Invariants: ``durable <= appended``; the sequence of a waiting entry is above the mark of its lane; sequences in a lane
do not fall; requests name the last record that was appended, so sequences of different lanes do not fall either, and
the weaker lane is released first. A bug in a released call ends the object that it was for and delays no other:
``internal_error`` is called of the first object among the call and its arguments that has it, or that they are bound
to. That object is looked for only then, so it costs nothing per call.

Not here: writing, syncing and replicating; they call ``advance``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

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
    """Durability contract of an address: the voters that a confirmation waits for. Each includes the weaker ones."""

    LOCAL = (Voter.LOCAL_DISK,)
    REPLICA_MEMORY = (Voter.LOCAL_DISK, Voter.REPLICA_MEMORY)
    REPLICA_DISK = (Voter.LOCAL_DISK, Voter.REPLICA_MEMORY, Voter.REPLICA_DISK)

    @property
    def strength(self) -> int:
        """Higher for a contract that includes more voters; 0 for ``LOCAL``."""
        return len(self.value) - 1


#: Contracts with a replica, by strength.
_STRONGER: Final = (Contract.REPLICA_MEMORY, Contract.REPLICA_DISK)

_Entry = tuple[int, Callable[..., None], tuple[Any, ...]]
"""Sequence, call and arguments."""


class OperationContext:
    """The sequences that are durable, and the calls that wait for later ones."""

    __slots__ = ("_lanes", "_marks", "_owners", "_waiting", "appended", "durable", "failure", "gathered", "released")

    def __init__(self, durable: int = 0) -> None:
        """Everything up to the sequence ``durable`` is on the local disk already."""
        self.durable = durable
        """Highest sequence that is durable on the local disk."""
        self.appended = durable
        """Highest sequence that was appended or promised to ``gathered``; kept by the journal."""
        self.gathered: GatheredRecords | None = None
        """Closed before a further record is appended, a call waits here or an id is given: those come after it."""
        self.failure: BaseException | None = None
        """Why nothing is released any more."""
        self.released = 0
        """Calls that had to wait and were released, for metrics."""
        self._waiting: deque[_Entry] = deque()
        """The lane of ``Contract.LOCAL``."""
        self._lanes: dict[Contract, deque[tuple[_Entry, Hashable]]] = {}
        """Entries of stronger contracts with their owners; empty while there are none."""
        self._marks = dict.fromkeys(Voter, 0)
        """Marks of the voters; that of the local disk is ``durable``."""
        self._owners: dict[Hashable, tuple[Contract, int]] = {}
        """Owners with entries in ``_lanes``: the strongest contract among them, and how many there are."""

    @property
    def failed(self) -> bool:
        """Whether ``fail`` was called."""
        return self.failure is not None

    @property
    def waiting(self) -> int:
        """Calls not yet released."""
        return len(self._waiting) + sum(map(len, self._lanes.values()))

    def when_durable(self, sequence: int, call: Callable[..., None], *args: Any) -> None:
        """Call once everything up to ``sequence`` is on the local disk: now if it is, else in turn. Never
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

    def when_satisfied(
        self, contract: Contract, owner: Hashable, sequence: int, call: Callable[..., None], *args: Any
    ) -> None:
        """Call once the marks of ``contract`` have reached ``sequence``, and after everything that ``owner`` asked for
        before. Never after ``fail``.

        Args:
            contract: Of the address.
            owner: The session or producer whose order is kept.
            sequence: Of the last record that the call rests on; at least that of the owner's requests before.
            call: Called with ``args``.
        """
        pending = self._owners.get(owner)
        if pending is not None and pending[0].strength > contract.strength:
            contract = pending[0]
        if contract is Contract.LOCAL:
            self.when_durable(sequence, call, *args)
            return
        if self.failure is not None:
            return
        if pending is None and sequence <= self.mark(contract):
            call(*args)
            return
        if self.gathered is not None and sequence > self.durable:
            self.gathered.close()
        lane = self._lanes.setdefault(contract, deque())
        if lane:
            sequence = max(sequence, lane[-1][0][0])
        lane.append(((sequence, call, args), owner))
        self._owners[owner] = contract, (pending[1] if pending is not None else 0) + 1

    def mark(self, contract: Contract) -> int:
        """Highest sequence that all voters of a contract have confirmed."""
        return min([self.durable, *(self._marks[voter] for voter in contract.value[1:])])

    def advance(self, sequence: int, voter: Voter = Voter.LOCAL_DISK) -> None:
        """Everything up to ``sequence`` is durable at the voter: release calls that waited for it.

        Raises:
            BrokerError: of a released call; the node can go on no longer.
            Exception: the first bug that answers no call, after the last call.
        """
        bug: Exception | None = None
        if voter is not Voter.LOCAL_DISK:
            self._marks[voter] = max(sequence, self._marks[voter])
        elif self.failure is not None or sequence <= self.durable:
            return
        else:
            self.durable = sequence
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
        if self._lanes:
            bug = self._release_stronger() or bug
        if bug is not None:
            raise bug

    def _release_stronger(self) -> Exception | None:
        """Release calls that waited for a replica, the weaker contract first; the first bug that answers no call."""
        bug: Exception | None = None
        for contract in _STRONGER:
            mark = self.mark(contract)
            while self.failure is None and contract in self._lanes and self._lanes[contract][0][0][0] <= mark:
                lane = self._lanes[contract]
                (_, call, args), owner = lane.popleft()
                if not lane:
                    del self._lanes[contract]
                strongest, count = self._owners.pop(owner)
                if count > 1:
                    self._owners[owner] = strongest, count - 1
                self.released += 1
                try:
                    call(*args)
                except BrokerError:
                    raise
                except Exception as error:  # as in advance
                    bug = bug or tell_owner(error, call, *args)
        return bug

    def fail(self, error: BaseException) -> None:
        """Release nothing any more; the first error is kept."""
        if self.failure is None:
            self.failure = error
            self.gathered = None
            self._waiting.clear()
            self._lanes.clear()
            self._owners.clear()


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
