"""The one place where confirmations and deliveries wait for durability (ADR 0003, ADR 0048).

Everything that promises something to a client asks ``when_durable`` with the sequence of the last record on which the
promise rests. The call is made when the log is durable up to that sequence, by ``advance`` and by nothing else. After
``fail`` no call is made any more: whether the records are durable is unknown.

Durability is stated by voters: the local disk and, with replication, the memory and the disk of the replica. The
context keeps one mark per voter, the highest sequence that it has confirmed. A contract (``Contract``) names the
voters that are required while a replica is in sync; without one it is the local disk (ADR 0057).

Lanes: calls wait in lanes, first in, first out, one lane per contract. The context itself is the lane of the strictest
contract that the configuration has for the node or an address, and ``durable`` is its mark; there are further lanes
only for weaker contracts of addresses (``demand``, ADR 0065). Which lane a request of a session may use without
overtaking an earlier one is decided by ``routing.response_order``.

Invariants: ``durable <= appended``; the mark of a lane is at least that of a stricter one; the sequence of a waiting
entry is above the mark of its lane; sequences in a lane do not fall; marks do not fall. A bug in a released call ends
the object that it was for and delays no other: ``internal_error`` is called of the first object among the call and its
arguments that has it, or that they are bound to. That object is looked for only then, so it costs nothing per call.

Not here: writing, syncing and replicating; they call ``advance``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any, Protocol

from understudy.errors import BrokerError
from understudy.store.durations import BOUNDS_NS, Confirmations
from understudy.store.log.resting import RestingRecords


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

    # that of Enum is a Python function, and marks are looked up by voter for each batch
    __hash__ = object.__hash__


class Contract(Enum):
    """Durability contract: the voters that a confirmation waits for. Each includes the weaker ones."""

    LOCAL = (Voter.LOCAL_DISK,)
    REPLICA_MEMORY = (Voter.LOCAL_DISK, Voter.REPLICA_MEMORY)
    REPLICA_DISK = (Voter.LOCAL_DISK, Voter.REPLICA_MEMORY, Voter.REPLICA_DISK)

    @property
    def strength(self) -> int:
        """Greater for a stricter contract."""
        return len(self.value)


_Entry = tuple[int, Callable[..., None], tuple[Any, ...]]
"""Sequence, call and arguments."""


class Lane:
    """Calls that wait for one contract."""

    __slots__ = ("_calls", "_context", "_voters", "contract", "durable")

    def __init__(self, contract: Contract, durable: int, context: OperationContext) -> None:
        """Nothing waits; everything up to the sequence ``durable`` is durable already."""
        self.contract = contract
        self.durable = durable
        """Highest sequence that all required voters have confirmed."""
        self._context = context
        self._voters: tuple[Voter, ...] = Contract.LOCAL.value
        """Voters whose confirmation the contract of the lane requires at present."""
        self._calls: deque[_Entry] = deque()

    def when_durable(self, sequence: int, call: Callable[..., None], *args: Any) -> None:
        """Call once everything up to ``sequence`` is durable: at once if it is, else in order. Never after ``fail``."""
        context = self._context
        if context.failure is not None:
            return
        if sequence <= self.durable:
            call(*args)
            return
        if context.gathered is not None:
            context.gathered.close()
        calls = self._calls
        if calls and sequence < calls[-1][0]:
            sequence = calls[-1][0]
        calls.append((sequence, call, args))


class OperationContext(Lane):
    """The sequences that are durable, and the calls that wait for later ones; itself the lane of the strictest contract
    in force.
    """

    __slots__ = (
        "_common",
        "_held",
        "_lanes",
        "_marks",
        "_weaker",
        "appended",
        "failure",
        "gathered",
        "measured",
        "released",
        "resting",
    )

    def __init__(self, durable: int = 0) -> None:
        """Everything up to the sequence ``durable`` is on the local disk already."""
        super().__init__(Contract.REPLICA_DISK, durable, self)
        self.appended = durable
        """Highest sequence that was appended or promised to ``gathered``; kept by the journal."""
        self.gathered: GatheredRecords | None = None
        """Closed before a further record is appended, a call waits here or an id is given: those come after it."""
        self.failure: BaseException | None = None
        """Reason why nothing is released any more."""
        self.resting = RestingRecords(durable)
        """Records that may be written with later ones."""
        self.released = 0
        """Calls that had to wait and were released, for metrics."""
        self.measured: Confirmations | None = None
        """Times until batches are confirmed, by the strictest contract; None: they are not measured."""
        self._common = Contract.REPLICA_DISK
        """Contract of addresses that have none of their own."""
        self._weaker: dict[Contract, Lane] = {}
        """Lanes of contracts that are or were weaker than the strictest one."""
        self._lanes: tuple[Lane, ...] = (self,)
        """All lanes, the weakest first: calls of a session that wait in several are released in order."""
        self._marks: dict[Voter, int] = {Voter.LOCAL_DISK: durable}
        """Highest sequence that each voter has confirmed; of the replica only while one is in sync."""
        self._held = False
        """Whether a replica was lost and the node may not continue without it yet."""

    @property
    def failed(self) -> bool:
        """Whether ``fail`` was called."""
        return self.failure is not None

    @property
    def waiting(self) -> int:
        """Calls not yet released."""
        lanes = self._lanes
        return len(self._calls) if len(lanes) == 1 else sum([len(lane._calls) for lane in lanes])

    def mark(self, voter: Voter) -> int:
        """Highest sequence that a voter has confirmed; 0 for a replica that is not in sync."""
        return self._marks.get(voter, 0)

    @property
    def everywhere(self) -> int:
        """Highest sequence that all places have confirmed, whatever the contracts: no failover takes it back."""
        return min(self._marks.values())

    @property
    def wants_receipts(self) -> bool:
        """Whether a contract is content with the memory of the replica: else only its disk matters."""
        return any(lane.contract is Contract.REPLICA_MEMORY for lane in self._lanes)

    # --- contracts ----------------------------------------------------------------------------------

    def demand(self, common: Contract, others: Iterable[Contract] = ()) -> None:
        """Contracts of the configuration from now on. Calls that wait stay in their lanes.

        Args:
            others: Settings of addresses that have their own.

        Raises:
            As ``advance``.
        """
        wanted = {common, *others}
        self._common = common
        self.contract = max(wanted, key=lambda each: each.strength)
        for contract in wanted - {self.contract, *self._weaker}:
            self._weaker[contract] = Lane(contract, self.durable, self)
        weaker = sorted(self._weaker.values(), key=lambda each: each.contract.strength)
        self._lanes = (*weaker, self)
        self._choose_voters()

    def lane(self, contract: Contract | None) -> Lane | None:
        """Lane in which calls for an address wait, by its contract (None: that of the node); None: they wait in the
        context."""
        contract = contract or self._common
        return None if contract is self.contract else self._weaker[contract]

    def _choose_voters(self) -> None:
        """Voters of each lane, never more than those of the strictest contract; release calls that need fewer now."""
        strictest = [voter for voter in self.contract.value if voter in self._marks]
        for lane in self._lanes:
            lane._voters = tuple([voter for voter in strictest if voter in lane.contract.value])
        self.advance(self._marks[Voter.LOCAL_DISK])

    # --- the replica --------------------------------------------------------------------------------

    def attach_replica(self) -> None:
        """A replica is in sync: it has everything that the local disk has. Confirmations wait for it from now on, as
        far as their contracts ask.
        """
        self._held = False
        self._marks = dict.fromkeys(Voter, self._marks[Voter.LOCAL_DISK])
        self._choose_voters()

    def hold(self) -> None:
        """Release nothing until ``detach_replica``, whatever the contract; called when the replica is lost."""
        self._held = len(self._marks) > 1

    def detach_replica(self) -> None:
        """There is no replica: the local disk alone is required, and calls that waited for the replica are released.

        Raises:
            As ``advance``.
        """
        self._held = False
        self._marks = {Voter.LOCAL_DISK: self._marks[Voter.LOCAL_DISK]}
        self._choose_voters()

    # --- releasing ----------------------------------------------------------------------------------

    def advance(self, sequence: int, voter: Voter = Voter.LOCAL_DISK) -> None:
        """Release the calls that wait for nothing any more; called when a voter has confirmed everything up to
        ``sequence``.

        The confirmation of a replica that is not in sync is ignored: it came by a connection that has ended.

        Raises:
            BrokerError: of a released call; the node can go on no longer.
            Exception: the first bug that answers no call, after the last call.
        """
        marks = self._marks
        before = marks.get(voter)
        if before is None or sequence < before:
            return
        marks[voter] = sequence
        bug: Exception | None = None
        for lane in self._lanes:
            # a released call may itself fail the context: the others must then stay unheard
            if self.failure is not None or self._held:
                break
            voters = lane._voters
            sequence = self._marks[voters[0]] if len(voters) == 1 else min(map(self._marks.__getitem__, voters))
            if sequence <= lane.durable:
                continue
            lane.durable = sequence
            calls = lane._calls
            while calls and calls[0][0] <= sequence:
                _, call, args = calls.popleft()
                self.released += 1
                try:
                    call(*args)
                except BrokerError:
                    raise
                except Exception as error:  # an internal error in one answer must not prevent the others
                    bug = bug or tell_owner(error, call, *args)
        measured = self.measured
        if measured is not None and 0 < measured.sequence <= self.durable:
            took_ns = measured.now_ns() - measured.began_ns
            measured.sequence = 0
            measured.counts[bisect_left(BOUNDS_NS, took_ns)] += 1
            measured.total_ns += took_ns
        if bug is not None:
            raise bug

    def fail(self, error: BaseException) -> None:
        """Release nothing any more; the first error is kept."""
        if self.failure is None:
            self.failure = error
            self.gathered = None
            for lane in self._lanes:
                lane._calls.clear()


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
