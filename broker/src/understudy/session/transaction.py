"""A transaction: sends that become visible and acknowledgements that count together, or not at all.

What is durable goes to the log at once, under the transaction's id; the commit record is what makes
it count, and only when that record is durable does anything become visible or answered.

Not here: which session or XA branch it belongs to (``session``, ``xa``).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, Final

from understudy.errors import BrokerError, DuplicateIdRejected, RollbackOnly
from understudy.machine import ILLEGAL, Machine, To, table
from understudy.routing.address import Address
from understudy.routing.post_office import Done, Order, PostOffice
from understudy.routing.queue import Queue
from understudy.store.reference import MessageReference

if TYPE_CHECKING:
    from collections.abc import Callable


class State(Enum):
    """Life of a transaction."""

    ACTIVE = auto()
    ROLLBACK_ONLY = auto()
    PREPARED = auto()
    """Only the outcome is missing; it survives a crash."""
    COMMITTED = auto()
    ROLLED_BACK = auto()


class Event(Enum):
    """What happens to it."""

    WORK = auto()
    """A send or an acknowledgement in it."""
    FAIL = auto()
    """An operation in it failed."""
    PREPARE = auto()
    COMMIT = auto()
    ROLL_BACK = auto()


_TABLE: Final = table(
    State,
    Event,
    {
        (State.ACTIVE, Event.WORK): To(State.ACTIVE),
        (State.ACTIVE, Event.FAIL): To(State.ROLLBACK_ONLY),
        (State.ACTIVE, Event.PREPARE): To(State.PREPARED),
        (State.ACTIVE, Event.COMMIT): To(State.COMMITTED),
        (State.ACTIVE, Event.ROLL_BACK): To(State.ROLLED_BACK),
        (State.ROLLBACK_ONLY, Event.WORK): To(State.ROLLBACK_ONLY),
        (State.ROLLBACK_ONLY, Event.FAIL): To(State.ROLLBACK_ONLY),
        (State.ROLLBACK_ONLY, Event.ROLL_BACK): To(State.ROLLED_BACK),
        (State.PREPARED, Event.COMMIT): To(State.COMMITTED),
        (State.PREPARED, Event.ROLL_BACK): To(State.ROLLED_BACK),
    },
    otherwise={
        Event.WORK: ILLEGAL,
        Event.FAIL: ILLEGAL,
        Event.PREPARE: ILLEGAL,
        Event.COMMIT: ILLEGAL,
        Event.ROLL_BACK: ILLEGAL,
    },
)


class Transaction(Machine[State, Event]):
    """One transaction."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.ACTIVE
    TABLE = _TABLE

    def __init__(self, office: PostOffice, *, started_ms: int = 0) -> None:
        """Args:
        office: Where its messages go.
        started_ms: Monotonic time, for the transaction timeout.
        """
        super().__init__()
        self._office = office
        self._log_id = 0
        self.started_ms = started_ms
        self.failure: BrokerError | None = None
        self._sends: list[tuple[tuple[Queue, ...], list[MessageReference]]] = []
        self._duplicate_ids: list[tuple[Address, bytes]] = []
        self._acknowledged: dict[Queue, list[MessageReference]] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing was done in it."""
        return not (self._sends or self._duplicate_ids or self._acknowledged)

    @property
    def rollback_only(self) -> bool:
        return self._state is State.ROLLBACK_ONLY

    # -- routing.post_office.RoutingTransaction ---------------------------------------------------

    def log_id(self) -> int:
        """The id of its records, taken when the first is written."""
        if not self._log_id:
            self._log_id = self._office.store.next_id()
        return self._log_id

    def staged(self, queues: tuple[Queue, ...], references: list[MessageReference]) -> None:
        """Messages that become visible at commit."""
        self.fire(Event.WORK)
        self._sends.append((queues, references))

    def staged_duplicate_id(self, address: Address, duplicate_id: bytes) -> None:
        """An id that counts as seen at commit."""
        self._duplicate_ids.append((address, duplicate_id))

    # -- work ------------------------------------------------------------------------------------

    def acknowledge(self, queue: Queue, references: list[MessageReference]) -> None:
        """Deliveries that are done if it commits, and go back if it does not."""
        self.fire(Event.WORK)
        if any(reference.durable for reference in references):
            queue.log_acknowledges(references, self.log_id())
        self._acknowledged.setdefault(queue, []).extend(references)

    def fail(self, error: BrokerError) -> None:
        """From now on it can only be rolled back; the first error is what commit reports."""
        if self.failure is None:
            self.failure = error
        self.fire(Event.FAIL)

    # -- XA --------------------------------------------------------------------------------------

    def prepare(self, name: bytes) -> None:
        """Promise that it can commit, in the log; the caller answers when that is durable.

        Args:
            name: Of the branch, to be found again after a crash.

        Raises:
            BrokerError: as ``commit``; nothing has happened.
        """
        if self._state is State.ROLLBACK_ONLY:
            raise self.failure or RollbackOnly("the transaction can only be rolled back")
        self._check_duplicate_ids()
        self._office.store.store_prepare(self.log_id(), name)
        self.fire(Event.PREPARE)

    @classmethod
    def restored(
        cls,
        office: PostOffice,
        log_id: int,
        sends: list[tuple[Queue, MessageReference]],
        acknowledged: dict[Queue, list[MessageReference]],
        duplicate_ids: list[tuple[Address, bytes]],
    ) -> Transaction:
        """A prepared one that the log has; its parts are counted as they were before the crash."""
        transaction = cls(office)
        transaction._log_id = log_id
        transaction._sends = [((queue,), [reference]) for queue, reference in sends]
        transaction._acknowledged = acknowledged
        transaction._duplicate_ids = duplicate_ids
        transaction.fire(Event.PREPARE)
        return transaction

    # -- outcome ---------------------------------------------------------------------------------

    def commit(self, order: Order, done: Done | None) -> None:
        """Make everything count.

        Raises:
            BrokerError: what made it rollback-only (``RollbackOnly`` if nothing is known), or
                ``DuplicateIdRejected`` when another got in first with one of its ids. Nothing has
                happened; the caller rolls back.
        """
        if self._state is State.ROLLBACK_ONLY:
            raise self.failure or RollbackOnly("the transaction can only be rolled back")
        if self._state is not State.PREPARED:
            self._check_duplicate_ids()
        office = self._office
        if self._log_id:
            office.store.store_commit(self._log_id)
        self.fire(Event.COMMIT)
        for address, duplicate_id in self._duplicate_ids:
            # a prepared one commits even if the same id came by another way meanwhile
            if duplicate_id not in address.duplicate_ids:
                address.duplicate_ids.add(duplicate_id, office.store.last_sequence)
        context = office.context
        sequence = office.store.last_sequence if self._log_id else order.sequence
        if sequence > context.durable:
            order.sequence = context.appended
            context.when_durable(order.sequence, self._committed, done)
        else:
            self._committed(done)

    def _check_duplicate_ids(self) -> None:
        seen: set[tuple[str, bytes]] = set()
        for address, duplicate_id in self._duplicate_ids:
            key = (address.name, duplicate_id)
            if key in seen or duplicate_id in address.duplicate_ids:
                raise DuplicateIdRejected(f"address {address.name!r} has seen duplicate id {duplicate_id!r}")
            seen.add(key)

    def _committed(self, done: Done | None) -> None:
        arrive: Callable[..., None] = self._office.arrive
        for queues, references in self._sends:
            arrive(queues, references, None)
        for queue, references in self._acknowledged.items():
            queue.acknowledged(references)
        if done is not None:
            done(None)

    def roll_back(self) -> dict[Queue, list[MessageReference]]:
        """Undo the sends. Returns the acknowledged deliveries, which the caller gives back to their
        queues in order with everything else it holds.
        """
        self.fire(Event.ROLL_BACK)
        if self._log_id:
            self._office.store.store_rollback(self._log_id)
        for queues, references in self._sends:
            self._office.discard(queues, references)
        return self._acknowledged
