"""A transaction: sends that become visible and acknowledgements that count together, or not at all.

Durable operations go to the log at once, under the transaction's id; the commit record makes
it count, and only when that record is durable does anything become visible or answered. How much one
may hold is limited (``Work``); a transaction that reached a limit can only be rolled back.

Not here: which session or XA branch it belongs to (``session``, ``xa``), how references are held
(``routing.staging``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import ClassVar, Final

from understudy.errors import BrokerError, DuplicateIdRejected, RollbackOnly, TransactionTooLarge
from understudy.limits import TRANSACTION_DUPLICATE_IDS_MAX, TRANSACTION_MESSAGES_MAX
from understudy.machine import ILLEGAL, Machine, To, table
from understudy.message import Message
from understudy.routing.addresses.address import Address
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.response_order import Done, Lanes, ResponseOrder, strictest
from understudy.routing.staging import Acknowledgements, StagedSends
from understudy.store.messages.reference import Arrival, MessageReference, Part, References, parts_of

_Held = tuple[Address, Message, tuple[Queue, ...], Arrival]
"""A message of an address, and a part for each of its queues."""


class State(Enum):
    """Life of a transaction."""

    ACTIVE = auto()
    ROLLBACK_ONLY = auto()
    PREPARED = auto()
    """The transaction is prepared: it survives a crash and waits for its outcome."""
    COMMITTED = auto()
    ROLLED_BACK = auto()

    # that of Enum is a Python function, and each message of a transaction is an event
    __hash__ = object.__hash__


class Event(Enum):
    """Events of a transaction."""

    WORK = auto()
    """A send or an acknowledgement in it."""
    FAIL = auto()
    """An operation in the transaction failed."""
    PREPARE = auto()
    COMMIT = auto()
    ROLL_BACK = auto()

    __hash__ = object.__hash__


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


class Work:
    """Counts of the messages that open transactions hold, with limits for a transaction, a session and a node."""

    __slots__ = ("_maximum", "_of", "_within", "count")

    def __init__(self, of: str, maximum: int, within: Work | None = None) -> None:
        """Args:
        of: Owner of the messages, for the error.
        maximum: Most messages.
        within: A wider limit that they count for as well.
        """
        self._of = of
        self._maximum = maximum
        self._within = within
        self.count = 0

    def add(self, count: int) -> None:
        """Messages more, or fewer."""
        work: Work | None = self
        while work is not None:
            work.count += count
            work = work._within

    @property
    def room(self) -> int:
        """Number of messages that may still be added."""
        room = self._maximum - self.count
        return room if self._within is None else min(room, self._within.room)

    def check(self) -> None:
        """Raises TransactionTooLarge: the limit is reached."""
        work: Work | None = self
        while work is not None:
            if work.count >= work._maximum:
                raise TransactionTooLarge(f"{work.count} messages in open transactions of one {work._of}, the limit")
            work = work._within


class Transaction(Machine[State, Event]):
    """One transaction. Implements ``SessionTransaction``."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.ACTIVE
    TABLE = _TABLE

    def __init__(self, office: PostOffice, *, started_ms: int = 0, within: Work | None = None) -> None:
        """Args:
        office: Where its messages go.
        started_ms: Monotonic time, for the transaction timeout.
        within: What its messages count for as well.
        """
        super().__init__()
        self._office = office
        self._log_id = 0
        self.started_ms = started_ms
        self.failure: BrokerError | None = None
        self._work = Work("transaction", TRANSACTION_MESSAGES_MAX, within)
        self._sends = StagedSends(office)
        self._duplicate_ids: list[tuple[Address, bytes]] = []
        self._acknowledged = Acknowledgements(office)
        self.lanes: Lanes = set()
        """Lanes of the addresses whose messages were sent or settled in the transaction."""
        self._held: list[_Held] = []
        """Messages that the transaction has acknowledged at a node that is scaled down; kept until it is prepared."""
        self.untouched = True
        """Whether it is as it began: nothing was done in it, and nothing has failed."""
        self._outcomes: list[tuple[Queue, Part, Callable[[], None]]] = []
        """Deliveries settled otherwise than by an acknowledgement, and what the commit does with each."""

    @property
    def empty(self) -> bool:
        """Whether nothing was done in it."""
        return not (self._sends or self._duplicate_ids or self._acknowledged or self._held or self._outcomes)

    @property
    def rollback_only(self) -> bool:
        """Whether the transaction can only be rolled back."""
        return self._state is State.ROLLBACK_ONLY

    # -- routing.response_order.SessionTransaction -----------------------------------------------------------

    def log_id(self) -> int:
        """The id of its records, taken when the first is written."""
        self.untouched = False
        if not self._log_id:
            self._log_id = self._office.store.next_id()
        return self._log_id

    def admits(self) -> bool:
        """Whether a further message counts; False if the transaction can only be rolled back.

        Raises:
            TransactionTooLarge: it holds as much as it may.
        """
        if self._state is State.ROLLBACK_ONLY:
            return False
        self._work.check()
        if len(self._duplicate_ids) >= TRANSACTION_DUPLICATE_IDS_MAX:
            raise TransactionTooLarge(f"{len(self._duplicate_ids)} duplicate ids in one transaction, the limit")
        return True

    def room(self, queue_count: int) -> int:
        """Further messages, each in that many queues and with a duplicate id, that count for it; 0: ``admits`` says why
        none does.
        """
        if self._state is State.ROLLBACK_ONLY:
            return 0
        # the last message may exceed the limit with some of its queues
        messages = -(-self._work.room // queue_count)
        return max(0, min(messages, TRANSACTION_DUPLICATE_IDS_MAX - len(self._duplicate_ids)))

    def staged(self, queues: tuple[Queue, ...], parts: Arrival, *, leaves: bool = False) -> None:
        """Take messages that become visible at commit; ``leaves``: their bodies leave memory once the log has them."""
        self.untouched = False
        self.fire(Event.WORK)
        self._work.add(len(queues) * len(parts[0]))
        self._sends.add(queues, parts, leaves=leaves)

    def staged_duplicate_id(self, address: Address, duplicate_id: bytes) -> None:
        """An id that counts as seen at commit."""
        self.untouched = False
        self._duplicate_ids.append((address, duplicate_id))

    def held(self, address: Address, message: Message, queues: tuple[Queue, ...], parts: Arrival) -> None:
        self.untouched = False
        self.fire(Event.WORK)
        self._work.add(len(queues))
        self._held.append((address, message, queues, parts))

    # -- work ------------------------------------------------------------------------------------

    def acknowledge(self, queue: Queue, parts: list[Part]) -> None:
        """Deliveries that are done if it commits, and go back if it does not.

        Raises:
            TransactionTooLarge: it held as much as it may. It has these too, so that they go back with the others.
        """
        self.untouched = False
        self.fire(Event.WORK)
        self._acknowledged.add(queue, parts)
        self.lanes.add(queue.address.lane)
        count = sum(map(len, parts))
        if self._state is State.ROLLBACK_ONLY:
            self._work.add(count)
            return
        try:
            self._work.check()
        finally:
            self._work.add(count)
        if any(part.durable_ids for part in parts):
            queue.log_acknowledges(*parts, transaction_id=self.log_id())

    def settle(self, queue: Queue, part: Part, apply: Callable[[], None]) -> None:
        """Deliveries with an outcome other than acceptance, which the commit applies; a rollback returns them. The
        outcome is not in the log: after a crash between the commit and its effect they are delivered again.

        Raises:
            TransactionTooLarge: the transaction has as much work as it may have; it takes these too, so that they
                return with the others.
        """
        self.untouched = False
        self.fire(Event.WORK)
        self._outcomes.append((queue, part, apply))
        self.lanes.add(queue.address.lane)
        try:
            if self._state is not State.ROLLBACK_ONLY:
                self._work.check()
        finally:
            self._work.add(len(part))

    def fail(self, error: BrokerError) -> None:
        """Allow nothing but a rollback from now on; the first error is what commit reports."""
        self.untouched = False
        if self.failure is None:
            self.failure = error
        self.fire(Event.FAIL)

    # -- XA --------------------------------------------------------------------------------------

    def prepare(self, name: bytes) -> None:
        """Promise that it can commit, in the log; the caller answers when that is durable.

        Args:
            name: Name of the branch, to be found again after a crash.

        Raises:
            BrokerError: as ``commit``; nothing has happened.
        """
        if self._state is State.ROLLBACK_ONLY:
            raise self.failure or RollbackOnly("the transaction can only be rolled back")
        self._check_duplicate_ids()
        self._acknowledge_held()
        self._office.store.store_prepare(self.log_id(), name)
        self.fire(Event.PREPARE)

    def _acknowledge_held(self) -> None:
        """Take the held messages out of their queues, in which they are from now on if it is rolled back.

        Raises:
            DiskFull: they are held, or no queue has them.
        """
        acceptance, held = self._office.acceptance, self._held
        logged: list[_Held] = []
        try:
            for each in held:
                acceptance.log_acknowledged(*each)
                logged.append(each)
        except BaseException:
            # the other node sends the messages again, so the messages that the log has must not be routed here
            for _, _, queues, parts in logged:
                for queue, part in acceptance.keep_acknowledged(queues, parts):
                    queue.acknowledge(part)
            del held[: len(logged)]
            raise
        held.clear()
        for _, _, queues, parts in logged:
            for queue, part in acceptance.keep_acknowledged(queues, parts):
                self._acknowledged.add(queue, [part])
                self.lanes.add(queue.address.lane)
                if part.durable_ids:
                    queue.log_acknowledges(part, transaction_id=self.log_id())

    @classmethod
    def restored(
        cls,
        office: PostOffice,
        log_id: int,
        sends: list[tuple[Queue, MessageReference]],
        acknowledged: dict[Queue, list[MessageReference]],
        duplicate_ids: list[tuple[Address, bytes]],
        within: Work,
    ) -> Transaction:
        """A prepared one that the log has; its parts are counted as they were before the crash."""
        transaction = cls(office, within=within)
        transaction._log_id = log_id
        for queue, reference in sends:
            transaction.staged((queue,), parts_of((reference,)))
        for queue, references in acknowledged.items():
            transaction._work.add(len(references))
            transaction._acknowledged.add(queue, [References(references)])
        transaction._duplicate_ids = duplicate_ids
        transaction.fire(Event.PREPARE)
        return transaction

    # -- outcome ---------------------------------------------------------------------------------

    def commit(self, order: ResponseOrder, done: Done | None) -> None:
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
            # a prepared transaction commits even if its duplicate id has come by another way meanwhile
            if duplicate_id not in address.duplicate_ids:
                address.duplicate_ids.add(duplicate_id, office.store.last_sequence)
        self._duplicate_ids.clear()
        context = office.store.context
        lane = order.lane or context
        if not self._log_id:
            sequence = order.sequence
        else:
            sequence = office.store.last_sequence
            if lane is not context or None not in self.lanes:
                lane = order.enter(context, strictest(self.lanes))
        if sequence > lane.durable:
            order.sequence = context.appended
            lane.when_durable(order.sequence, self._committed, done)
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
        self._drop_held()
        self._work.add(-self._work.count)
        self._sends.commit()
        self._acknowledged.commit()
        outcomes, self._outcomes = self._outcomes, []
        for _, _, apply in outcomes:
            apply()
        if done is not None:
            done(None)

    def content(self) -> tuple[list[tuple[Queue, MessageReference]], dict[Queue, list[MessageReference]]]:
        """The messages of the transaction, once for each queue, and the deliveries that it acknowledges, by queue. They
        stay in it.
        """
        return list(self._sends.content()), self._acknowledged.content()

    def sent_ids(self, queue: Queue) -> Iterator[int]:
        """Ids of its messages that a queue gets if it commits."""
        return self._sends.ids(queue)

    def settled_ids(self, queue: Queue) -> Iterator[int]:
        """Ids of the deliveries of a queue that are done if it commits."""
        yield from self._acknowledged.ids(queue)
        for owner, part, _ in self._outcomes:
            if owner is queue:
                yield from part.ids

    def hand_over(self) -> None:
        """Another node has it: its sends and the messages that it acknowledges are gone here."""
        self.fire(Event.ROLL_BACK)
        for queue, references in self._acknowledged.take().items():
            queue.acknowledge(References(references))
        self._end_unseen()

    def roll_back(self) -> dict[Queue, list[MessageReference]]:
        """Undo the sends. Returns the acknowledged deliveries, which the caller gives back to their
        queues in order with everything else it holds.
        """
        self.fire(Event.ROLL_BACK)
        self._end_unseen()
        returned = self._acknowledged.take()
        for queue, part, _ in self._outcomes:
            returned.setdefault(queue, []).extend(part)
        self._outcomes.clear()
        return returned

    def _drop_held(self) -> None:
        held, self._held = self._held, []
        for _, _, queues, parts in held:
            self._office.acceptance.discard(queues, parts)

    def _end_unseen(self) -> None:
        """End the transaction without an effect: the log forgets it, and no queue gets its messages."""
        self._drop_held()
        if self._log_id:
            self._office.store.store_rollback(self._log_id)
        self._work.add(-self._work.count)
        self._duplicate_ids.clear()
        self._sends.discard()
