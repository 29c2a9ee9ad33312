"""A queue: its waiting messages, its consumers, what was handed out, and the numbers management shows.

A reference is in exactly one place: waiting here, scheduled (``scheduled``), with a consumer or
its transaction (counted in ``delivering_count``), or gone. ``message_count`` is all of the former.

Not here: what happens to a message that expires or fails too often (``post_office`` does those),
the order of waiting references (``pending``), the consumer that gets the next one (``delivery``).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from understudy.config.model import RoutingType
from understudy.errors import MaxConsumersExceeded, MessageUnreadable
from understudy.limits import GROUP_NAME_CHARACTERS_MAX
from understudy.message import Message
from understudy.routing.configuration import QueueConfiguration
from understudy.routing.filter import Filter
from understudy.routing.queues.delivery import LOOKS_MAX, READ_BACK_MAX, Consumer, ConsumerGroup, dispatch
from understudy.routing.queues.groups import GROUPS_MAX, bucket_key
from understudy.routing.queues.kinds import QueueKind, is_ordinary
from understudy.routing.queues.non_destructive import LentReference
from understudy.routing.queues.pending import PendingMessages
from understudy.selector.work import WORK
from understudy.store.backlog import Backlog
from understudy.store.message_store import MessageStore
from understudy.store.reference import LargeReference, MessageReference, Part, References, RunSlice

if TYPE_CHECKING:
    from understudy.ports import Timers
    from understudy.routing.address import Address
    from understudy.routing.lifecycle.quarantine import DamagedMessages
    from understudy.routing.lifecycle.scheduled import ScheduledDeliveries
    from understudy.routing.memory import Memory
    from understudy.routing.paging import Paging

#: Expired messages taken out of a queue before something else has its turn.
EXPIRED_AT_ONCE = 10_000


class QueueOffice(Protocol):
    """What a queue uses of the post office."""

    store: MessageStore
    timers: Timers
    paging: Paging
    damaged: DamagedMessages
    scheduled: ScheduledDeliveries
    memory: Memory
    steps_end: int
    now_ms: int
    """Wall time of this turn."""

    def mark_dirty(self, queue: Queue) -> None:
        """Dispatch the queue in this turn."""
        ...

    def expire(self, queue: Queue, reference: MessageReference) -> None:
        """Move a reference that is in no place any more to the expiry address."""
        ...


class Queue:
    """One queue."""

    __slots__ = (
        "_office",
        "address",
        "configuration",
        "consumer_count",
        "consumers_left_ms",
        "created_ms",
        "deleted",
        "delivering_count",
        "dirty",
        "durable",
        "enabled",
        "exclusive",
        "expiring_count",
        "filter",
        "group_owners",
        "grouping",
        "groups_by_priority",
        "incoming",
        "internal",
        "kind",
        "looks_left",
        "message_count",
        "messages_acknowledged",
        "messages_added",
        "messages_expired",
        "messages_killed",
        "messages_replaced",
        "name",
        "paused",
        "pending",
        "purge_on_no_consumers",
        "queue_id",
        "read_back_left",
        "routing_type",
        "scheduled_count",
        "searching",
        "selective",
        "served_alone",
        "store",
        "temporary",
    )

    def __init__(
        self,
        queue_id: int,
        configuration: QueueConfiguration,
        address: Address,
        office: QueueOffice,
        filter: Filter | None = None,  # noqa: A002  # the standard name
    ) -> None:
        self.queue_id = queue_id
        self.configuration = configuration
        self.name = configuration.name
        self.address = address
        self._office = office
        self.store = office.store
        self.filter = filter
        self.temporary = configuration.temporary
        self.durable = configuration.durable and not configuration.temporary
        self.internal = configuration.internal
        self.pending = PendingMessages(address.pages)
        self.groups_by_priority: list[ConsumerGroup] = []
        """Highest priority first; empty without consumers. Browsers are not in here."""
        self.consumer_count = 0
        self.selective = False
        """Whether consumers take from the middle: a selector or message groups; or take nothing,
        because the queue is non-destructive.
        """
        self.grouping = False
        self.group_owners: dict[str, Consumer] = {}
        self.served_alone: Consumer | None = None
        """Of an exclusive queue: the consumer that was given messages, until it leaves."""
        self.dirty = False
        self.read_back_left = 0
        """Messages that the present dispatch may still read back."""
        self.looks_left = 0
        """Messages in memory that it may still pass over."""
        self.searching: list[Consumer] = []
        """Those that go on after the next dispatch."""
        self.paused = bool(configuration.paused)
        self.deleted = False
        self.expiring_count = 0
        """Messages of ``message_count`` that have an expiration."""
        self.created_ms = office.now_ms
        """Wall time; of the activation for a queue that the log has."""
        self.consumers_left_ms = 0
        """Wall time at which a consumer left it last; 0 = never since the activation."""
        self.incoming = 0
        """Taken from producers but not visible yet: being written, or in a transaction."""
        self.message_count = 0
        self.delivering_count = 0
        self.scheduled_count = 0
        self.messages_added = 0
        self.messages_acknowledged = 0
        self.messages_expired = 0
        self.messages_killed = 0
        self.messages_replaced = 0
        """Made room: for a newer last value, or in a ring."""
        self.kind: QueueKind | None = None
        """What sets it apart; None for an ordinary queue."""
        self.configure(configuration)

    def configure(self, full: QueueConfiguration) -> None:
        """Take what can be changed while it lives (``Directory.update_queue``)."""
        self.configuration = full
        self.routing_type = RoutingType(full.routing_type or RoutingType.MULTICAST)
        self.exclusive = bool(full.exclusive)
        self.purge_on_no_consumers = bool(full.purge_on_no_consumers)
        self.enabled = full.enabled is not False
        if self.kind is not None:
            lent = self.kind.lends
            self.kind.configure()
            if lent is not self.kind.lends:
                self._forget_cursors()
        elif not is_ordinary(full):
            self.kind = QueueKind(self, self._office.timers)
        self.choose_dispatch()
        self.prompt()

    def choose_dispatch(self) -> None:
        """Cursors are not kept up while no consumer looks on from them, so they start anew."""
        before = self.selective
        self.selective = (
            self.grouping
            or (self.kind is not None and self.kind.lends)
            or (bool(self.groups_by_priority) and any(consumer.filter is not None for consumer in self.consumers()))
        )
        if self.selective and not before:
            self._forget_cursors()

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self.address.name!r}, {self.message_count} messages>"

    @property
    def used(self) -> bool:
        """Whether anything was done with it since the activation: only then may auto-deletion take it."""
        return bool(
            self.consumers_left_ms or self.messages_acknowledged or self.messages_expired or self.messages_killed
        )

    # -- messages in ----------------------------------------------------------------------------

    @property
    def takes_messages(self) -> bool:
        """Whether messages are routed to it now, whatever their content."""
        return self.enabled and (not self.purge_on_no_consumers or self.consumer_count > 0)

    def add(self, reference: MessageReference) -> None:
        """A message that may be seen by consumers from now on."""
        self.incoming -= 1
        self.pending.append(reference)
        self.message_count += 1
        self.messages_added += 1
        if reference.expiration:
            self.expiring_count += 1
        if self.deleted:
            # It was on its way when the queue went.
            self.forget_waiting()
            return
        if self.kind is not None:
            self.kind.added(reference)
        if not self.dirty and self.groups_by_priority:
            self._office.mark_dirty(self)

    def add_run(self, run: RunSlice, *, paged: bool = False) -> None:
        """Several at once, a whole run; see ``add``. ``paged``: without their bodies, which the log has."""
        count = run.end - run.begin
        self.incoming -= count
        if paged:
            self.pending.add_paged_run(run)
        else:
            self.pending.add_run(run)
        self.message_count += count
        self.messages_added += count
        self.expiring_count += run.run.expiring
        if self.deleted:
            self.forget_waiting()
            return
        if not self.dirty and self.groups_by_priority:
            self._office.mark_dirty(self)

    def adopt(self, backlog: Backlog) -> None:
        """Take over what the log says waits, at start-up or takeover."""
        self.message_count += backlog.count
        self.messages_added += backlog.count
        self.expiring_count += backlog.expiring_count
        self.pending.adopt(backlog)

    def put_back(self, references: Iterable[MessageReference], *, looked_at: bool = False) -> None:
        """Cancelled deliveries: back to where they were taken from.

        Args:
            references: In the order in which they were delivered.
            looked_at: They were no deliveries: on a non-destructive queue, consumers that are past them saw them.
        """
        returned = list(references)
        if not returned:
            return
        self.delivering_count -= len(returned)
        self._wait_again(returned, looked_at=looked_at)
        if not self.dirty and self.groups_by_priority:
            self._office.mark_dirty(self)

    def _wait_again(self, returned: Sequence[MessageReference], *, looked_at: bool) -> None:
        self.pending.put_back(returned)
        if self.selective and not (looked_at and self.kind is not None and self.kind.lends):
            self._look_again(returned)
        if self.kind is not None:
            self.kind.returned(returned)

    def replaced(self, reference: MessageReference) -> None:
        """One that was taken out of ``pending`` to make room."""
        self.messages_replaced += 1
        only = References((reference,))
        self.log_acknowledges(only)
        self.forget(only)

    def schedule(self, reference: MessageReference) -> None:
        """A new message waits for its time elsewhere, but belongs here."""
        self.scheduled_count += 1
        self.message_count += 1
        self.messages_added += 1
        if reference.expiration:
            self.expiring_count += 1

    def postpone(self) -> None:
        """A cancelled delivery waits for its redelivery time elsewhere."""
        self.delivering_count -= 1
        self.scheduled_count += 1

    def due(self, reference: MessageReference) -> None:
        """The time of a scheduled or postponed one has come."""
        self.scheduled_count -= 1
        if self.kind is not None and not self.kind.admits(reference):
            self.replaced(reference)
        elif reference.position >= 0:
            self._wait_again((reference,), looked_at=True)
        else:
            self.pending.append(reference)
            if self.kind is not None:
                self.kind.added(reference)
        if not self.dirty and self.groups_by_priority:
            self._office.mark_dirty(self)

    def _look_again(self, references: Sequence[MessageReference]) -> None:
        for group in self.groups_by_priority:
            for consumer in group.consumers:
                cursors = consumer.cursors
                for reference in references:
                    if reference.position < cursors.get(reference.priority, -1):
                        cursors[reference.priority] = reference.position

    # -- messages out ---------------------------------------------------------------------------

    def acknowledge(self, *parts: Part) -> None:
        """Deliveries that are done: written to the log, then forgotten."""
        self.log_acknowledges(*parts)
        for part in parts:
            self.acknowledged(part)

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

    def forget(self, part: Part) -> None:
        """Messages that were taken out of every place leave the counts."""
        office = self._office
        bodies, bodies_bytes = self.address.discharge_all(part)
        if self.expiring_count:
            self.expiring_count -= part.expiring_count
        for reference in part.objects:
            if not reference.durable and reference.location is not None:
                office.paging.release(reference.location)
            if isinstance(reference, LargeReference):
                self.store.large.release(reference.file_id)
        self.message_count -= len(part)
        memory = office.memory
        memory.held_bytes -= bodies_bytes
        memory.held_count -= bodies

    def forget_waiting(self) -> None:
        """Everything that waits leaves the counts; the log knows."""
        for references in self.pending.drain():
            self.forget(references)
        self._office.paging.forget_readers(self)

    def expire_waiting(self, reference: MessageReference) -> None:
        """One that was taken out of ``pending`` because its time is over."""
        self._office.expire(self, reference)

    def expire_delivered(self, reference: MessageReference) -> None:
        """One that its consumer found to be over."""
        if isinstance(reference, LentReference) and self.kind is not None:
            original = self.kind.lending.original(reference)
            if original is not None:
                self._office.expire(self, original)
            return
        self.delivering_count -= 1
        # no consumer tried it, should it have to stay for now
        reference.delivery_count -= 1
        self._office.expire(self, reference)

    def expire_overdue(self, now_ms: int) -> int:
        """Take out what expired, about ``EXPIRED_AT_ONCE`` at a time. Returns how many."""
        if not self.expiring_count:
            return 0
        overdue = self.pending.take_overdue(now_ms, EXPIRED_AT_ONCE)
        for reference in overdue:
            self._office.expire(self, reference)
        return len(overdue)

    def purge(self) -> int:
        """Drop everything that waits, also for its time to come (as Artemis does). Returns how many."""
        count = 0
        for taken in self.pending.drain():
            self._kill(taken)
            count += len(taken)
        self._office.paging.forget_readers(self)
        scheduled = self._office.scheduled.remove(self)
        self.scheduled_count -= len(scheduled)
        self._kill(scheduled)
        return count + len(scheduled)

    def _kill(self, part: Part) -> None:
        self.log_acknowledges(part)
        self.messages_killed += len(part)
        self.forget(part)

    def read(self, reference: MessageReference) -> Message:
        """The message of a reference. Raises MessageUnreadable: the caller has it set aside (``set_aside``)."""
        return reference.message or self._office.damaged.read(self, reference)

    def read_waiting(self, reference: MessageReference) -> Message | None:
        """The message of one that waits or is scheduled; None: it cannot be read and is set aside."""
        return self._office.damaged.read_waiting(self, reference)

    def set_aside(self, reference: MessageReference, error: MessageUnreadable) -> None:
        """One that is in no place any more cannot be read."""
        self._office.damaged.set_aside(self, reference, error)

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
        limit = self.configuration.max_consumers
        if limit is not None and 0 <= limit <= self.consumer_count:
            raise MaxConsumersExceeded(f"queue {self.name!r} has {self.consumer_count} consumers, limit {limit}")
        self.consumer_count += 1
        for group in self.groups_by_priority:
            if group.priority == consumer.priority:
                break
        else:
            group = ConsumerGroup(consumer.priority)
            self.groups_by_priority.append(group)
            self.groups_by_priority.sort(key=lambda group: -group.priority)
        group.consumers.append(consumer)
        if consumer.filter is not None and not self.selective:
            self.choose_dispatch()
        if self.configuration.group_rebalance:
            self.group_owners.clear()
            for each in self.groups_by_priority:
                # groups are dealt out again from the first consumer on, as Artemis does
                each.turn = 0
            self._look_from_the_start()
        if self.kind is not None:
            self.kind.gate.joined()
        if not self.dirty:
            self._office.mark_dirty(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Its deliveries were put back or acknowledged before."""
        if consumer in self.searching:
            self.searching = [each for each in self.searching if each is not consumer]
        for group in self.groups_by_priority:
            if consumer in group.consumers:
                group.consumers.remove(consumer)
                group.turn = 0
                if not group.consumers:
                    self.groups_by_priority.remove(group)
                break
        else:
            return
        self.consumer_count -= 1
        if self.served_alone is consumer:
            self.served_alone = None
        if consumer.filter is not None:
            # of many consumers that leave together only those that may change the way of dispatch look at all others
            self.choose_dispatch()
        if self.grouping:
            self.group_owners = {key: owner for key, owner in self.group_owners.items() if owner is not consumer}
            self._look_from_the_start()
        if self.kind is not None:
            self.kind.consumer_left(consumer)
        self.consumers_left_ms = self._office.now_ms
        if not self.consumer_count:
            if self.purge_on_no_consumers:
                self.purge()
        elif not self.dirty:
            self._office.mark_dirty(self)

    def consumers(self) -> Iterator[Consumer]:
        for group in self.groups_by_priority:
            yield from group.consumers

    def _forget_cursors(self) -> None:
        for consumer in self.consumers():
            consumer.cursors.clear()

    def _look_from_the_start(self) -> None:
        """Groups have other owners: what a consumer had to pass over may be its own now. On a
        non-destructive queue no consumer passes over messages.
        """
        if self.kind is None or not self.kind.lends:
            self._forget_cursors()

    def enable_grouping(self) -> None:
        """The first message of a group was met."""
        self.grouping = True
        self.choose_dispatch()

    def close_group(self, key: str) -> None:
        """It has no owner any more: consumers that passed over messages of it may take them now."""
        if self.group_owners.pop(key, None) is not None and self.consumer_count > 1:
            self._look_from_the_start()
            self.prompt()

    def close_groups(self) -> None:
        """Take all message groups from their owners."""
        self.group_owners.clear()
        self._look_from_the_start()
        self.prompt()

    def group_key(self, group: str) -> str:
        """Under which its owner is kept: the group itself, or its bucket when there are buckets or
        too many groups.
        """
        if len(group) > GROUP_NAME_CHARACTERS_MAX:
            digest = hashlib.sha256(group.encode("utf-8", "surrogatepass")).hexdigest()
            group = f"{group[:GROUP_NAME_CHARACTERS_MAX]}...{digest}"
        buckets = self.configuration.group_buckets
        if buckets is not None and buckets > 0:
            return bucket_key(group, buckets)
        if len(self.group_owners) >= GROUPS_MAX and group not in self.group_owners:
            return f"\x00{zlib.crc32(group.encode('utf-8', 'surrogatepass')) % 1024}"
        return group

    def prompt(self) -> None:
        """Something changed that may let consumers take messages."""
        if not self.dirty and self.message_count and self.groups_by_priority:
            self._office.mark_dirty(self)

    def pause(self) -> None:
        """No deliveries until ``resume``; messages are taken as ever."""
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
        """Whether selectors have done what they may do in this turn."""
        return WORK.steps >= self._office.steps_end

    def _dispatch_again(self) -> None:
        if not self.dirty:
            self._office.mark_dirty(self)

    def look_on(self, consumer: Consumer) -> None:
        """Have a consumer go on in the next turn (``Consumer.go_on``)."""
        self.searching.append(consumer)
        self._dispatch_again()

    def dispatch(self) -> None:
        """A turn: deliver, then let those go on that asked for it."""
        done = self.deliver()
        if self.searching:
            searching, self.searching = self.searching, []
            for consumer in searching:
                consumer.go_on(done=done)

    def deliver(self) -> bool:
        """Deliver until empty or no consumer can take more (True), or as much as one turn may cost."""
        if not self.groups_by_priority or self.paused or self.deleted:
            return True
        if self.kind is not None and not self.kind.gate.open:
            return True
        self.read_back_left, self.looks_left = READ_BACK_MAX, LOOKS_MAX
        dispatch(self, self._office.now_ms)
        if self.address.paged_count and self.pending.first_level() is None:
            self._office.paging.forget_readers(self)
        return self.may_go_on()
