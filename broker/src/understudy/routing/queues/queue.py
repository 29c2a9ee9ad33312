"""A queue: its waiting messages, its consumers, its deliveries, and the numbers management shows.

A reference is in exactly one place: waiting here, scheduled (``scheduled``), with a consumer or
its transaction (counted in ``delivering_count``), or gone. ``message_count`` is all of the former.

Not here: what happens to a message that expires or fails too often (``post_office`` does those),
the order of waiting references (``pending``), the consumer that gets the next one (``delivery``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

from understudy.errors import MaxConsumersExceeded, MessageUnreadable
from understudy.message import Message
from understudy.ports import Clock, Timers
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.filter import Filter
from understudy.routing.memory import AddressMemory, Memory
from understudy.routing.queues.consumer import Consumer, QueueConsumers
from understudy.routing.queues.counts import QueueCounts
from understudy.routing.queues.groups import MessageGroups
from understudy.routing.queues.kinds import QueueKind, is_ordinary
from understudy.routing.queues.non_destructive import DeliveredCopy
from understudy.routing.queues.pending import PendingMessages
from understudy.selector.work import WORK
from understudy.store.messages.backlog import Backlog
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import (
    LargeReference,
    Location,
    MessageReference,
    Part,
    References,
    StoredRun,
)
from understudy.terms import RoutingType

#: Expired messages taken out of a queue before something else has its turn.
EXPIRED_AT_ONCE = 16


class BodiesOutOfMemory(Protocol):
    """``paging`` as a queue uses it."""

    def release(self, location: Location) -> None:
        """Called when a reference to a page is gone."""
        ...

    def stored_run(self, queue: Queue) -> StoredRun | None:
        """The next messages of a queue whose bodies are in the log alone, as a run; None: the next is read alone."""
        ...

    def forget_readers(self, queue: Queue) -> None:
        """The queue is empty or gone."""
        ...


class UnreadableMessages(Protocol):
    """``lifecycle.quarantine`` as a queue uses it."""

    @property
    def stopped(self) -> Collection[Queue]:
        """Queues that deliver nothing, because a message of theirs is being taken from the other node."""
        ...

    def read(self, queue: Queue, reference: MessageReference) -> Message:
        """The message of a reference whose body is not in memory. Raises MessageUnreadable."""
        ...

    def read_waiting(self, queue: Queue, reference: MessageReference) -> Message | None:
        """The message of one that waits or is scheduled; None: it cannot be read and is set aside."""
        ...

    def quarantine(self, queue: Queue, reference: MessageReference, error: MessageUnreadable) -> None:
        """Keep one that is in no place any more and cannot be read."""
        ...


class Schedule(Protocol):
    """``lifecycle.scheduled`` as a queue uses it."""

    def remove(self, queue: Queue) -> Sequence[Part]:
        """Take everything of a queue."""
        ...


class ExpiredMessages(Protocol):
    """``lifecycle.redelivery`` as a queue uses it."""

    def expire(self, queue: Queue, reference: MessageReference) -> None:
        """Move a reference that is in no place any more to the expiry address."""
        ...

    def drop(self, queue: Queue, reference: MessageReference) -> None:
        """End a message of a queue of AMQP 0-9-1 that holds too much."""
        ...


class PermittedDeliveries(Protocol):
    """The permission of the node to deliver messages, as its queues use it."""

    def covers(self, queue: Queue) -> bool:
        """Whether messages of a queue may be delivered now; if not, the queue is prompted when they may be."""
        ...


class QueueOffice(Protocol):
    """The parts of a node that its queues use. The post office has them."""

    store: MessageStore
    clock: Clock
    timers: Timers
    memory: Memory
    steps_end: int
    now_ms: int
    """Wall time of this turn."""

    @property
    def paging(self) -> BodiesOutOfMemory:
        """Bodies that are not in memory."""
        ...

    @property
    def damaged(self) -> UnreadableMessages:
        """Messages that cannot be read."""
        ...

    @property
    def scheduled(self) -> Schedule:
        """Messages whose delivery time has not come."""
        ...

    @property
    def permission(self) -> PermittedDeliveries:
        """Whether messages may be delivered."""
        ...

    @property
    def redelivery(self) -> ExpiredMessages:
        """The end of messages whose time is over."""
        ...

    def mark_dirty(self, queue: Queue) -> None:
        """Dispatch the queue in this turn."""
        ...


class Queue(QueueCounts):
    """One queue."""

    __slots__ = (
        "address",
        "configuration",
        "consumers",
        "created_ms",
        "deleted",
        "dirty",
        "durable",
        "enabled",
        "exclusive",
        "filter",
        "groups",
        "internal",
        "kind",
        "looks_left",
        "name",
        "office",
        "paused",
        "pending",
        "purge_on_no_consumers",
        "queue_id",
        "read_back_left",
        "routing_type",
        "selective",
        "store",
        "temporary",
    )

    def __init__(
        self,
        queue_id: int,
        configuration: QueueConfiguration,
        address: AddressMemory,
        office: QueueOffice,
        filter: Filter | None = None,  # noqa: A002  # the standard name
    ) -> None:
        super().__init__()
        self.queue_id = queue_id
        self.configuration = configuration
        self.name = configuration.name
        self.address = address
        self.office = office
        self.store = office.store
        self.filter = filter
        self.temporary = configuration.temporary
        self.durable = configuration.durable and not configuration.temporary
        self.internal = configuration.internal
        self.pending = PendingMessages(address.pages)
        self.consumers = QueueConsumers()
        self.selective = False
        """Whether consumers take from the middle: a selector or message groups; or take nothing,
        because the queue is non-destructive.
        """
        self.groups = MessageGroups()
        self.dirty = False
        self.read_back_left = 0
        """Messages that the present dispatch may still read back."""
        self.looks_left = 0
        """Number of messages in memory that the present dispatch may still pass over."""
        self.paused = bool(configuration.paused)
        self.deleted = False
        self.created_ms = office.clock.wall_ms()
        """Wall time; of the activation for a queue that the log has."""
        self.kind: QueueKind | None = None
        """Special behaviour of the queue; None for an ordinary queue."""
        self.configure(configuration)

    def configure(self, full: QueueConfiguration) -> None:
        """Apply settings that can be changed while it exists (``Directory.update_queue``)."""
        self.configuration = full
        self.routing_type = RoutingType(full.routing_type or RoutingType.MULTICAST)
        self.exclusive = bool(full.exclusive)
        self.purge_on_no_consumers = bool(full.purge_on_no_consumers)
        self.enabled = full.enabled is not False
        if self.kind is not None:
            before = self.kind.non_destructive
            self.kind.configure()
            if before is not self.kind.non_destructive:
                self.consumers.forget_cursors()
        elif not is_ordinary(full):
            self.kind = QueueKind(self, self.office.timers)
        self.choose_dispatch()
        self.prompt()

    def choose_dispatch(self) -> None:
        """Cursors are not maintained while no consumer needs them, so they start from the beginning again."""
        before = self.selective
        non_destructive = self.kind is not None and self.kind.non_destructive
        self.selective = self.groups.met or non_destructive or self.consumers.selective
        if self.selective and not before:
            self.consumers.forget_cursors()

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self.address.name!r}, {self.message_count} messages>"

    @property
    def used(self) -> bool:
        """Whether anything was done with it since the activation: only then may auto-deletion take it."""
        return bool(
            self.consumers.left_ms or self.messages_acknowledged or self.messages_expired or self.messages_killed
        )

    # -- messages in ----------------------------------------------------------------------------

    @property
    def takes_messages(self) -> bool:
        """Whether messages are routed to it now, whatever their content."""
        return self.enabled and (not self.purge_on_no_consumers or self.consumers.count > 0)

    def add(self, part: Part) -> None:
        """Have consumers see messages, which have one priority, from now on."""
        level = self.pending.by_priority[part.priority]
        if level is None:
            level = self.pending.level(part.priority)
        count, expiring = level.add(part)
        self.incoming -= count
        self.message_count += count
        self.messages_added += count
        self.expiring_count += expiring
        if self.deleted:
            # the messages were not written yet when the queue was deleted
            self.forget_waiting()
            return
        if self.kind is not None:
            for reference in part:
                self.kind.added(reference)
        if not self.dirty and self.consumers.by_priority:
            self.office.mark_dirty(self)

    def adopt(self, backlog: Backlog) -> None:
        """Take over what the log says waits, at start-up or takeover."""
        self.message_count += backlog.count
        self.messages_added += backlog.count
        self.expiring_count += backlog.expiring_count
        self.pending.adopt(backlog)

    def requeue(self, references: Iterable[MessageReference], *, looked_at: bool = False) -> None:
        """Cancelled deliveries: back to where they were taken from.

        Args:
            references: References in the order in which they were delivered.
            looked_at: They were no deliveries: on a non-destructive queue, consumers that are past them saw them.
        """
        returned = list(references)
        if not returned:
            return
        self.delivering_count -= len(returned)
        self._wait_again(returned, looked_at=looked_at)
        if not self.dirty and self.consumers.by_priority:
            self.office.mark_dirty(self)

    def _wait_again(self, returned: Sequence[MessageReference], *, looked_at: bool) -> None:
        self.pending.requeue(returned)
        if self.selective and not (looked_at and self.kind is not None and self.kind.non_destructive):
            self._look_again(returned)
        if self.kind is not None:
            self.kind.returned(returned)

    @property
    def refuses(self) -> bool:
        """Whether it is full and refuses further messages (x-overflow of AMQP 0-9-1)."""
        arguments = self.configuration.arguments
        return arguments is not None and arguments.is_full(len(self.pending) + self.incoming, self.address.size_bytes)

    def replaced(self, reference: MessageReference) -> None:
        """Acknowledge a message that a newer one has replaced; it is not in ``pending`` any more."""
        if self.configuration.arguments is not None:
            self.office.redelivery.drop(self, reference)
            return
        self.messages_replaced += 1
        only = References((reference,))
        self.log_acknowledges(only)
        self.forget(only)

    def schedule(self, part: Part) -> None:
        """Count scheduled messages of this queue, which wait outside of it."""
        count = len(part)
        self.scheduled_count += count
        self.message_count += count
        self.messages_added += count
        self.expiring_count += part.expiring_count

    def postpone(self) -> None:
        """Count a returned message of this queue, which waits outside of it for its redelivery time."""
        self.delivering_count -= 1
        self.scheduled_count += 1

    def due(self, reference: MessageReference) -> None:
        """Put a scheduled or postponed message into the queue, as its time has come."""
        self.scheduled_count -= 1
        if self.kind is not None and not self.kind.admits(reference):
            self.replaced(reference)
        elif reference.position >= 0:
            self._wait_again((reference,), looked_at=True)
        else:
            self.pending.append(reference)
            if self.kind is not None:
                self.kind.added(reference)
        if not self.dirty and self.consumers.by_priority:
            self.office.mark_dirty(self)

    def _look_again(self, references: Sequence[MessageReference]) -> None:
        for group in self.consumers.by_priority:
            for consumer in group.consumers:
                cursors = consumer.cursors
                for reference in references:
                    if reference.position < cursors.get(reference.priority, -1):
                        cursors[reference.priority] = reference.position

    # -- messages out ---------------------------------------------------------------------------

    def acknowledge(self, *parts: Part) -> bool:
        """Deliveries that are done: written to the log, then forgotten. Returns whether anything was written."""
        logged = self.log_acknowledges(*parts)
        for part in parts:
            self.acknowledged(part)
        return logged

    def log_acknowledges(self, *parts: Part, transaction_id: int = 0) -> bool:
        """Write to the log, in one record, that these are done. Returns whether anything was written."""
        if self.deleted:
            return False
        logged = parts[0].durable_ids if len(parts) == 1 else [*chain.from_iterable(each.durable_ids for each in parts)]
        if logged:
            self.store.store_acknowledges(self.queue_id, logged, transaction_id)
        return bool(logged)

    def acknowledged(self, part: Part) -> None:
        """Forget deliveries whose end the log has or does not need."""
        if self.kind is not None:
            part = References(self.kind.settled(part))
        count = len(part)
        self.delivering_count -= count
        self.messages_acknowledged += count
        self.forget(part)

    def forget(self, part: Part, *, counted: bool = True) -> None:
        """Messages that were taken out of every place leave the counts.

        Args:
            part: The messages.
            counted: Whether they are in the queue's own counts; False: they never became visible in it.
        """
        office = self.office
        bodies, bodies_bytes = self.address.discharge_all(part)
        for reference in part.objects:
            if not reference.durable and reference.location is not None:
                office.paging.release(reference.location)
            if isinstance(reference, LargeReference):
                self.store.large.release(reference.file_id)
        if counted:
            self.message_count -= len(part)
            if self.expiring_count:
                self.expiring_count -= part.expiring_count
        memory = office.memory
        memory.held_bytes -= bodies_bytes
        memory.held_count -= bodies

    def forget_waiting(self) -> None:
        """Everything that waits leaves the counts; the log knows."""
        for references in self.pending.drain():
            self.forget(references)
        self.office.paging.forget_readers(self)

    def forget_all(self) -> None:
        """Everything that waits, also for its time to come, leaves the counts; the log knows."""
        self.forget_waiting()
        for scheduled in self.office.scheduled.remove(self):
            self.scheduled_count -= len(scheduled)
            self.forget(scheduled)

    def expire_delivered(self, reference: MessageReference) -> None:
        """One that its consumer found to be over. On a non-destructive queue a message leaves only if the clock of this
        node says so too.
        """
        if isinstance(reference, DeliveredCopy) and self.kind is not None:
            if not 0 < reference.expiration <= self.office.clock.wall_ms():
                self.kind.settled((reference,))
                return
            original = self.kind.copies.original(reference)
            if original is not None:
                self.office.redelivery.expire(self, original)
            return
        self.delivering_count -= 1
        # no consumer was tried, in case the message has to stay for now
        reference.delivery_count -= 1
        self.office.redelivery.expire(self, reference)

    def expire_overdue(self, now_ms: int) -> int:
        """Take out what expired, at most ``EXPIRED_AT_ONCE`` at a time. Returns how many."""
        if not self.expiring_count:
            return 0
        overdue = self.pending.take_overdue(now_ms, EXPIRED_AT_ONCE)
        for reference in overdue:
            self.office.redelivery.expire(self, reference)
        return len(overdue)

    def purge(self) -> int:
        """Drop everything that waits, also for its time to come (as Artemis does). Returns how many."""
        count = 0
        for taken in self.pending.drain():
            self._kill(taken)
            count += len(taken)
        self.office.paging.forget_readers(self)
        for scheduled in self.office.scheduled.remove(self):
            self.scheduled_count -= len(scheduled)
            self._kill(scheduled)
            count += len(scheduled)
        return count

    @property
    def purges_returned(self) -> bool:
        """Whether a delivery that returns is dropped: its last consumer has left, and took waiting messages with it."""
        return self.purge_on_no_consumers and not self.consumers.count

    def purge_returned(self, part: Part) -> None:
        """Drop cancelled deliveries (``purges_returned``)."""
        self.delivering_count -= len(part)
        self._kill(part)

    def _kill(self, part: Part) -> None:
        self.log_acknowledges(part)
        self.messages_killed += len(part)
        self.forget(part)

    def read(self, reference: MessageReference) -> Message:
        """The message of a reference. Raises MessageUnreadable: the caller quarantines it (``quarantine``)."""
        return reference.message or self.office.damaged.read(self, reference)

    def read_waiting(self, reference: MessageReference) -> Message | None:
        """The message of one that waits or is scheduled; None: it cannot be read and is set aside."""
        return self.office.damaged.read_waiting(self, reference)

    def browse(self, position: tuple[int, int]) -> Iterator[tuple[tuple[int, int], MessageReference]]:
        """Waiting references from a position on, each with the position to go on from; the queue
        may change between steps. Start with ``(9, -1)``.
        """
        priority, index = position
        for level in list(self.pending.levels):
            if level.priority > priority:
                continue
            current = index if level.priority == priority else -1
            while (reference := level.next_from(current)) is not None:
                current = reference.position + 1
                yield (level.priority, current), reference

    # -- consumers ------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Raises MaxConsumersExceeded."""
        consumers, limit = self.consumers, self.configuration.max_consumers
        if limit is not None and 0 <= limit <= consumers.count:
            raise MaxConsumersExceeded(f"queue {self.name!r} has as many consumers as it may have, limit {limit}")
        consumers.add(consumer)
        if consumer.filter is not None and not self.selective:
            self.choose_dispatch()
        if self.configuration.group_rebalance:
            self.groups.owners.clear()
            # groups are dealt out again from the first consumer on, as Artemis does
            consumers.restart_turns()
            self._look_from_the_start()
        if self.kind is not None:
            self.kind.gate.joined()
        if not self.dirty:
            self.office.mark_dirty(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; its deliveries were put back or acknowledged before."""
        if not self.consumers.remove(consumer):
            return
        if consumer.filter is not None:
            # of many consumers that leave together only those that may change the way of dispatch look at all others
            self.choose_dispatch()
        if self.groups.met:
            self.groups.consumer_left(consumer)
            self._look_from_the_start()
        if self.kind is not None:
            self.kind.consumer_left(consumer)
        self.consumers.left_ms = self.office.clock.wall_ms()
        if not self.consumers.count:
            if self.purge_on_no_consumers:
                self.purge()
        elif not self.dirty:
            self.office.mark_dirty(self)

    def _look_from_the_start(self) -> None:
        """Groups have other owners: what a consumer had to pass over may be its own now. On a
        non-destructive queue no consumer passes over messages.
        """
        if self.kind is None or not self.kind.non_destructive:
            self.consumers.forget_cursors()

    def enable_grouping(self) -> None:
        """Called when the first message of a group was met."""
        self.groups.met = True
        self.choose_dispatch()

    def close_group(self, key: str) -> None:
        """Close a group that has no owner any more: consumers that passed over messages of it may take them now."""
        if self.groups.owners.pop(key, None) is not None and self.consumers.count > 1:
            self._look_from_the_start()
            self.prompt()

    def close_groups(self) -> None:
        """Take all message groups from their owners."""
        self.groups.owners.clear()
        self._look_from_the_start()
        self.prompt()

    def group_key(self, group: str) -> str:
        """Under which the owner of a group is kept (``MessageGroups.key``)."""
        return self.groups.key(group, self.configuration.group_buckets)

    def prompt(self) -> None:
        """Deliver in this turn: a change may permit consumers to take messages."""
        if not self.dirty and self.message_count and self.consumers.by_priority:
            self.office.mark_dirty(self)

    def pause(self) -> None:
        """Deliver nothing before ``resume``; the queue still accepts messages."""
        self.paused = True

    def resume(self) -> None:
        """Deliveries go on."""
        self.paused = False
        self.prompt()

    def may_go_on(self) -> bool:
        """Whether this dispatch may read one more message back or pass over one; else it goes on in the next turn."""
        if self.read_back_left > 0 and self.looks_left > 0 and not (self.selective and self.out_of_steps()):
            return True
        self._dispatch_again()
        return False

    def out_of_steps(self) -> bool:
        """Whether selectors have used up their limit of this turn."""
        return WORK.steps >= self.office.steps_end

    def _dispatch_again(self) -> None:
        if not self.dirty:
            self.office.mark_dirty(self)

    def resume_scan(self, consumer: Consumer) -> None:
        """Have a consumer go on in the next turn (``Consumer.resume``)."""
        self.consumers.searching.append(consumer)
        self._dispatch_again()
