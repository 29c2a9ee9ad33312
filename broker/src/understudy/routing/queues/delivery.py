"""Handing waiting messages to consumers: which consumer is next, and how much each may take.

A queue is dispatched when something changed (a message, credits, a consumer) and runs until it is
empty or no consumer can take more. Consumers of a higher priority come first; among equals the
turn goes round, one message each (manual, "Consumer Priority"). Two ways through the same rules:
the plain one takes from the head, for queues where every consumer takes everything; the selective
one continues where each consumer stopped, for selectors and message groups. On a
non-destructive queue every consumer continues like that and takes nothing (``non_destructive``).

Not here: a consumer as its queue sees it (``consumer``), how much it may be sent (``flow_control``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.errors import BrokerError, DescriptorsExhausted, MessageUnreadable
from understudy.message import GROUP_ID, Message
from understudy.ports import Clock, Fence, Timers
from understudy.properties import NO_PROPERTIES
from understudy.routing.queues.consumer import Consumer, ConsumerGroup
from understudy.routing.queues.groups import GROUPS_MAX
from understudy.routing.queues.level import Level
from understudy.routing.queues.non_destructive import NonDestructiveDeliveries
from understudy.routing.queues.queue import Queue
from understudy.selector.equalities import NO_EQUALITIES, Equalities
from understudy.store.messages.reference import MessageReference, Part, References
from understudy.store.messages.reference_block import GroupsAllowed

#: Messages that one look at a queue reads back before others have their turn: a disk may be slow, and
#: a selector may match nothing in a queue of millions.
READ_BACK_MAX: Final = 1_000
#: Maximum number of messages in memory that one dispatch passes over.
LOOKS_MAX: Final = 10_000

#: Closes a message group when the last of it is delivered (manual, "Message Grouping").
_GROUP_SEQUENCE: Final = "_AMQ_GROUP_SEQUENCE"

#: Before a lock is asked for again that could not be asked about, when messages wait for it.
PROVE_AGAIN_MS: Final = 100


class DeliveryPermission:
    """The permission of one node to deliver messages, and to deny that it has a session (ADR 0156, 0199).

    The node always has it until ``depend_on`` is called.
    """

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._fence: Fence | None = None
        self._unproved: Callable[[BaseException], None] = lambda error: None
        self._ended: BaseException | None = None
        """The reason with which ``_unproved`` was called: nothing is delivered any more."""

    def depend_on(self, fence: Fence, unproved: Callable[[BaseException], None]) -> None:
        """Ask the fence of the node from now on. ``unproved`` is called once, with the reason, when the node may not
        deliver any more.
        """
        self._fence = fence
        self._unproved = unproved

    def covers(self, queue: Queue) -> bool:
        """Whether messages of a queue may be delivered now: not on a proof of the lock that is too old, as for
        confirmations. The next node may have delivered them already, and got their acknowledgements.
        """
        fence = self._fence
        if self._ended is None and (fence is None or self._clock.monotonic_ms() <= fence.proved_until_ms):
            return True
        why = self._objection()
        if isinstance(why, DescriptorsExhausted):
            # no answer: the lock is not lost
            self._timers.call_later(PROVE_AGAIN_MS, queue.prompt)
        return why is None

    def is_given(self) -> bool:
        """Whether this node is provably the active one of its pair now. One that is not may have been replaced by a
        node that has more, or is stopping.
        """
        fence = self._fence
        if self._ended is not None or fence is None or self._clock.monotonic_ms() <= fence.proved_until_ms:
            return self._ended is None
        return fence.why_not_confirm() is None

    def _objection(self) -> BaseException | None:
        fence = self._fence
        if self._ended is not None or fence is None or self._clock.monotonic_ms() <= fence.proved_until_ms:
            return self._ended
        why = fence.why_not_confirm()
        if why is not None and not isinstance(why, DescriptorsExhausted):
            self._ended = why
            self._unproved(why)
        return why


def serve(queue: Queue) -> None:
    """The turn of a queue: deliver, then let consumers that asked for a turn go on."""
    done = deliver(queue)
    if done and queue.kind is not None:
        queue.kind.served()
    consumers = queue.consumers
    if consumers.searching:
        searching, consumers.searching = consumers.searching, []
        for consumer in searching:
            consumer.resume(done=done)


def deliver(queue: Queue) -> bool:
    """Deliver until the queue is empty or no consumer can take more (True), or as much as one turn may cost."""
    if not queue.consumers.by_priority or queue.paused or queue.deleted:
        return True
    kind, office = queue.kind, queue.office
    if kind is not None and not kind.gate.open:
        return True
    if queue in office.damaged.stopped:
        # the consumer is served when the message has been read
        return True
    if not office.permission.covers(queue):
        return False
    queue.read_back_left, queue.looks_left = READ_BACK_MAX, LOOKS_MAX
    dispatch(queue, office.now_ms)
    if queue.address.paged_count and queue.pending.first_level() is None:
        office.paging.forget_readers(queue)
    return queue.may_go_on()


def dispatch(queue: Queue, now_ms: int) -> None:
    """Deliver until the queue is empty or no consumer can take more, or what one turn may cost is used up
    (``queue.may_go_on``): then the queue is dirty again and goes on in the next turn, where each consumer
    stopped looking.

    Args:
        queue: Queue that has the messages.
        now_ms: Wall time; messages that have expired by then go to the expiry address instead.
    """
    for group in list(queue.consumers.by_priority):
        ready = group.ready()
        if not ready:
            continue
        if queue.exclusive:
            # Only one consumer is served; the others are spares, whatever their priority (manual, "Exclusive Queues").
            chosen = queue.consumers.served_alone or queue.consumers.by_priority[0].consumers[0]
            if chosen not in ready:
                continue
            ready = [chosen]
            credits_before = chosen.flow.credits
        if queue.kind is not None and queue.kind.non_destructive:
            _dispatch_copies(queue, queue.kind.copies, ready, now_ms)
            continue
        # the plain way may meet a message group
        turn = 0 if queue.selective else _dispatch_plain(queue, group, ready, now_ms)
        if queue.selective:
            _dispatch_selective(queue, group, ready, turn, now_ms)
        if queue.exclusive and chosen.flow.credits != credits_before:
            queue.consumers.served_alone = chosen
        if not queue.may_go_on():
            # later consumers must not take messages at which these have not looked
            return


def _dispatch_plain(queue: Queue, group: ConsumerGroup, ready: list[Consumer], now_ms: int) -> int:
    """Where it meets a message group, the selective way goes on (``queue.selective``). Returns the index in ``ready``
    of the consumer whose turn it is.

    If an exception is raised, delivered messages are counted and the others return to their places.
    """
    waiting = queue.pending
    turn = taken = 0
    last = ready[0]
    grouping = False
    groups = queue.configuration.group_buckets != 0
    any_group = None if groups else _any_group
    held: Part | None = None
    try:
        while ready and not grouping:
            level = waiting.first_level()
            if level is None:
                break
            while ready:
                consumer = ready[turn]
                # a consumer that is alone takes all that it has credit for; several take one each in turn
                alone = len(ready) == 1 and consumer.overhead_bytes
                room = consumer.room() if alone else (1, consumer.overhead_bytes)
                held = level.take_plain(*room, now_ms, any_group)
                if not held and consumer.overhead_bytes and level.stored() is not None:
                    if not queue.may_go_on():
                        ready.clear()
                        break
                    held = _take_stored(queue, level, room, now_ms, any_group)
                if not held:
                    if groups and level.next_grouped:
                        grouping = True
                        break
                    reference = level.pop()
                    if reference is None:
                        break
                    held = References((reference,))
                    if reference.expiration and reference.expiration <= now_ms:
                        queue.office.redelivery.expire(queue, reference)
                        held = None
                        continue
                    message = reference.message
                    if message is None:
                        if not queue.may_go_on():
                            break
                        queue.read_back_left -= 1
                        message = _read_taken(queue, reference)
                        if message is None:
                            held = None
                            if queue in queue.office.damaged.stopped:
                                ready.clear()
                            continue
                    properties = message.properties
                    if properties is not NO_PROPERTIES and GROUP_ID in properties and groups:
                        grouping = True
                        break
                    held.shown = message
                count = len(held)
                consumer.deliver(held)
                taken += count
                held, last = None, consumer
                turn = _next_turn(ready, turn)
            if held:
                break
    finally:
        queue.delivering_count += taken
        waiting.requeue(held or ())
    if taken:
        group.served(last)
    if grouping:
        queue.enable_grouping()
    return turn


def _take_stored(
    queue: Queue, level: Level, limits: tuple[int, int], now_ms: int, may_take: GroupsAllowed | None
) -> Part:
    """Take the next messages of a level if the log alone has their bodies: read together, nothing decoded. Empty: the
    next one needs a look of its own, or must wait for the next turn.

    Args:
        limits: Limits of the messages together (``Consumer.room``).
        may_take: Asked with the message groups of those that would be taken; None: none may belong to a group.
    """
    found = queue.office.paging.stored_run(queue) if queue.read_back_left > 0 else None
    if found is None:
        return References()
    taken = level.take_stored(found, *limits, now_ms, may_take)
    queue.read_back_left -= len(taken)
    return taken


def _next_turn(ready: list[Consumer], turn: int) -> int:
    """Index of the consumer after the one at ``turn``, which was just served and is removed if it cannot take more."""
    consumer = ready[turn]
    if consumer.flow.credits <= 0 or (consumer.allowance_bytes <= 0 and not consumer.ready):
        del ready[turn]
    else:
        turn += 1
    return _with_credit(ready, turn)


def _with_credit(ready: list[Consumer], turn: int) -> int:
    """Index of the first consumer from ``turn`` on, and then from the start, that has credit; those without are
    removed. Consumers of one AMQP 0-9-1 channel have a limit together, which a delivery to another has used up.
    """
    while ready:
        turn = turn if turn < len(ready) else 0
        if ready[turn].flow.credits > 0:
            return turn
        del ready[turn]
    return 0


def _read_taken(queue: Queue, reference: MessageReference) -> Message | None:
    """The message of a reference that was taken out of the queue; None: it cannot be read and is set aside."""
    try:
        return queue.read(reference)
    except MessageUnreadable as error:
        queue.office.damaged.quarantine(queue, reference, error)
        return None


def _dispatch_copies(queue: Queue, copies: NonDestructiveDeliveries, ready: list[Consumer], now_ms: int) -> None:
    """Every consumer gets every message, each from where it stopped."""
    for consumer in ready:
        while consumer.ready and queue.may_go_on():
            failures = 0
            again = copies.next_again(consumer, now_ms)
            if again is not None:
                reference, failures = again
                found_message = queue.read_waiting(reference)
                if found_message is None:
                    continue
                message = found_message
            else:
                found = next_for(queue, consumer, now_ms)
                if found is None:
                    break
                reference, message = found
                consumer.cursors[reference.priority] = reference.position + 1
            copy = copies.copy_for(reference, consumer, failures)
            try:
                consumer.deliver(References((copy,), message))
            except BaseException:
                copies.settled(References((copy,)))
                if consumer.cursors.get(reference.priority, -1) > reference.position:
                    consumer.cursors[reference.priority] = reference.position
                raise


def _dispatch_selective(queue: Queue, group: ConsumerGroup, ready: list[Consumer], turn: int, now_ms: int) -> None:
    # the first message of a group is marked for its consumer: each is looked at
    by_rows = not queue.configuration.group_first_key
    last: Consumer | None = None
    try:
        while ready and queue.may_go_on():
            turn %= len(ready)
            consumer = ready[turn]
            if by_rows and consumer.filter is None and consumer.overhead_bytes:
                part = _take_rows(queue, consumer, now_ms, alone=len(ready) == 1)
                if part:
                    _deliver_rows(queue, consumer, part)
                    last = consumer
                    turn = _after(ready, turn)
                    continue
            elif by_rows and consumer.overhead_bytes and consumer.filter is not None:
                wanted = consumer.filter.equalities
                part = _take_equal(queue, consumer, wanted, now_ms) if wanted.complete else None
                if part:
                    _deliver_rows(queue, consumer, part)
                    last = consumer
                    turn = _after(ready, turn)
                    continue
                if part is not None and queue.pending.first_level() is not None:
                    del ready[turn]
                    continue
            try:
                found = next_for(queue, consumer, now_ms)
            except BrokerError:
                raise
            except Exception as bug:  # an error of the consumer's selector leaves the message in the queue
                consumer.abandon(bug)
                found = None
            if found is None:
                if queue.pending.first_level() is None:
                    # nothing is left for the others either
                    break
                del ready[turn]
                continue
            _deliver_found(queue, consumer, *found)
            last = consumer
            turn = _after(ready, turn)
    finally:
        if last is not None:
            group.served(last)


def _deliver_found(queue: Queue, consumer: Consumer, reference: MessageReference, message: Message) -> None:
    """Deliver a waiting message to a consumer, which may have it."""
    queue.pending.remove(reference)
    queue.delivering_count += 1
    try:
        if queue.groups.met:
            message = _claim_group(queue, consumer, message)
        consumer.deliver(References((reference,), message))
    except BaseException:
        queue.requeue((reference,))
        raise


def _after(ready: list[Consumer], turn: int) -> int:
    """Index of the consumer after the one at ``turn``, which was just served and is removed if it cannot take more."""
    if ready[turn].ready:
        return _with_credit(ready, turn + 1)
    del ready[turn]
    return _with_credit(ready, turn)


def _take_rows(queue: Queue, consumer: Consumer, now_ms: int, *, alone: bool) -> Part | None:
    """Take the next messages for a consumer without a selector, as long as they are in runs, so that no object is made
    for a message: all that it has credit for if no other can take messages now and no group at the front has another
    owner, else one. None: the next message is an object or has expired, or there is no message.
    """
    level = queue.pending.first_level() if alone else None
    if level is not None:
        room = consumer.room()
        may_take = partial(_groups_allow, queue, consumer)
        taken = level.take_plain(*room, now_ms, may_take)
        if not taken:
            taken = _take_stored(queue, level, room, now_ms, may_take)
        if taken:
            return taken
    return _take_row(queue, consumer, now_ms)


def _take_row(queue: Queue, consumer: Consumer, now_ms: int) -> Part | None:
    cursors = consumer.cursors
    for level in list(queue.pending.levels):
        position = cursors.get(level.priority, -1)
        while level.count:
            part = level.next_row(position)
            if part is None:
                if level.next_from(position) is not None:
                    return None
                cursors[level.priority] = level.end
                break
            run, row = part.run, part.begin
            if run.expiring and 0 < run.expiration(row) <= now_ms:
                return None
            if not run.grouped or _groups_allow(queue, consumer, run.groups(row, row + 1)):
                cursors[level.priority] = part.position
                level.remove(part.position)
                return part
            cursors[level.priority] = position = part.position + 1
            queue.looks_left -= 1
            if queue.looks_left <= 0:
                return None
    return None


def _take_equal(queue: Queue, consumer: Consumer, wanted: Equalities, now_ms: int) -> Part | None:
    """Take the next message for a consumer whose selector these comparisons are, if it is found in a run by its values
    (``value_index``), so that no object is made for it. Empty: there is no message for the consumer. None: the next one
    needs a look.
    """
    cursors = consumer.cursors
    for level in queue.pending.levels:
        if not level.count:
            continue
        priority = level.priority
        part, position = level.take_equal(cursors.get(priority, -1), wanted, now_ms)
        cursors[priority] = position
        if part is not None or position < level.end:
            return part
    return References()


def _deliver_rows(queue: Queue, consumer: Consumer, part: Part) -> None:
    queue.delivering_count += len(part)
    try:
        if queue.configuration.group_buckets != 0:
            for name in part.groups:
                queue.groups.owners.setdefault(queue.group_key(name), consumer)
        consumer.deliver(part)
    except BaseException:
        queue.requeue(part)
        raise


def _any_group(groups: list[str]) -> bool:
    """Groups mean nothing here."""
    return True


def _groups_allow(queue: Queue, consumer: Consumer, groups: list[str]) -> bool:
    """Whether each of these message groups belongs to this consumer or has no owner."""
    if not groups or queue.configuration.group_buckets == 0:
        return True
    if not queue.groups.met:
        queue.enable_grouping()
    owners = queue.groups.owners
    if len(groups) > 1 and len(owners) + len(groups) > GROUPS_MAX:
        # what names stand for may change with each that gets an owner
        return False
    for name in groups:  # noqa: SIM110  # a generator would be called once more for each
        if owners.get(queue.group_key(name), consumer) is not consumer:
            return False
    return True


def next_for(queue: Queue, consumer: Consumer, now_ms: int) -> tuple[MessageReference, Message] | None:
    """The next message in order that this consumer may have; it stays in the queue. What has
    expired on the way there is taken out. None: there is none, or the rest must wait for the next turn.
    """
    cursors = consumer.cursors
    wanted = consumer.filter.equalities if consumer.filter is not None else NO_EQUALITIES
    for level in list(queue.pending.levels):
        if not level.count:
            continue
        position = cursors.get(level.priority, -1)
        while True:
            if wanted.names:
                found = level.find_equal(position, wanted, now_ms)
                reference = found[0].at(found[1]) if found is not None else None
            else:
                reference = level.next_from(position)
            if reference is None:
                cursors[level.priority] = level.end
                break
            if reference.expiration and reference.expiration <= now_ms:
                level.remove(reference.position)
                try:
                    queue.office.redelivery.expire(queue, reference)
                except BaseException:
                    queue.pending.requeue((reference,))
                    raise
                queue.looks_left -= 1
                if not queue.may_go_on():
                    cursors[level.priority] = reference.position
                    return None
                continue
            message = reference.message
            if message is None:
                if not queue.may_go_on():
                    cursors[level.priority] = reference.position
                    return None
                queue.read_back_left -= 1
                message = queue.read_waiting(reference)
                if message is None:
                    # the message was put into the quarantine, so the next one is taken
                    continue
            if (consumer.filter is None or consumer.filter.matches(message)) and _group_allows(
                queue, consumer, message
            ):
                cursors[level.priority] = reference.position
                return reference, message
            position = reference.position + 1
            queue.looks_left -= 1
            if (queue.looks_left <= 0 or queue.out_of_steps()) and not queue.may_go_on():
                cursors[level.priority] = position
                return None
    return None


def _group_allows(queue: Queue, consumer: Consumer, message: Message) -> bool:
    """Whether the message's group, if any, belongs to this consumer or has no owner."""
    group = message.properties.get(GROUP_ID)
    if group is None or (queue.kind is not None and queue.kind.non_destructive):
        # a non-destructive queue gives every message to every consumer
        return True
    return _groups_allow(queue, consumer, [str(group)])


def _claim_group(queue: Queue, consumer: Consumer, message: Message) -> Message:
    """The consumer gets it: an unowned group becomes its own, a closed one has no owner. Returns the
    message, marked as the first of its group for this consumer if the queue is asked to.
    """
    group = message.properties.get(GROUP_ID)
    if group is None or queue.configuration.group_buckets == 0:
        return message
    key = queue.group_key(str(group))
    if message.properties.get(_GROUP_SEQUENCE) == -1:
        queue.close_group(key)
        return message
    if key in queue.groups.owners:
        return message
    queue.groups.owners[key] = consumer
    first_key = queue.configuration.group_first_key
    if not first_key:
        return message
    properties = message.properties.copy()
    properties[first_key] = True
    return message.with_properties(properties)
