"""Messages that cannot be read: set aside, so that their neighbours go on being served (ADR 0020).

A message whose stored bytes are wrong is first read again from the medium; in a replicated pair its bytes are then
taken from the other node (``store.repairs``, ADR 0114). Meanwhile the queue delivers nothing, which keeps the order.
If the other node cannot be asked, the message waits for it among the scheduled messages, as a held one, and the queue
goes on; the wait ends when the other node is there, after ``other-copy-wait``, or with ``give_up``. If the disk of this
node fails although the other node has answered, the queue stands still for ten seconds at most, in which it is tried
again; after that the message waits, and is still tried again.

A message whose stored bytes are damaged leaves its queue for good: first its bytes and a description go to the
store's quarantine, then the log gets the acknowledgement that ends the message. Until both have happened it is
among the scheduled messages of its queue with a time that never comes, so it is counted and not delivered.

A message that cannot be read for another reason (the disk reports an error, the file of a large message is
missing) may be readable later. If no other node has the bytes and the disk has reported an error, perhaps for a moment,
the queue stands still for ten seconds at most here, too; the next message that meets such an error directly after that
is not tried again. Then the message stays among the scheduled messages until an operator releases it or until the next
activation; its entry in the quarantine says that it is held.

A damaged record may also be met by the consolidator of the log, which knows only where it lies. Then all queues are
searched for references to that place, a slice in each turn, and unreadable messages are set aside in the same way.

Not here: the entries (``store.quarantine``), where a message is met (``delivery``, ``queue``, ``redelivery``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import (
    BrokerError,
    DescriptorsExhausted,
    DiskFailed,
    JournalCorrupt,
    MessageUnreadable,
    SegmentMissing,
    StoreError,
)
from understudy.message import LargeBody, LargeMessage, Message
from understudy.ports import Clock, Timers
from understudy.routing.lifecycle.scheduled import ScheduledDeliveries
from understudy.routing.paging import Paging
from understudy.routing.queues.queue import Queue
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.read_back import Place
from understudy.store.messages.reference import LargeReference, MessageReference, References, unpack_location
from understudy.store.quarantine import QuarantineEntry
from understudy.store.repair import Outcome
from understudy.store.repairs import RIGHT, Pair

log = logging.getLogger(__name__)

#: A time that does not come.
NEVER_MS: Final = 1 << 62
#: Pause before a message is read again that could not be read for want of a file descriptor.
AGAIN_MS: Final = 5_000
#: Pause before a disk that failed is tried again while the queue stands still, and how often that is done.
DISK_AGAIN_MS: Final = 1_000
STANDSTILL_TRIES: Final = 10
#: Longest pause after that; it doubles.
DISK_AGAIN_MS_MAX: Final = 30_000
#: References looked at in one turn by a search for those of a damaged record.
SEARCH_SLICE: Final = 500


@dataclass(slots=True)
class _Trouble:
    """A message that cannot be read."""

    queue: Queue
    reference: MessageReference
    kind: str
    """``message`` or ``large message``."""
    reason: str
    held: bool
    """Whether the message may be readable later, if the other node has no right bytes either."""
    disk_failed: bool
    """Whether the disk has reported an error, so that it may be readable in a moment."""
    both: bool = False
    """Whether the bytes of the other node are wrong, too."""
    given_up: bool = False
    """Whether the message waits for the other node no longer."""
    under_way: bool = False
    """Whether the bytes are being read again or requested from the other node."""
    failures: int = 0
    """How often the disk of this node has failed while the queue stood still."""
    pause_ms: int = DISK_AGAIN_MS
    over: bool = False
    """Whether the message can be read again."""


def _entry_id(queue: Queue, reference: MessageReference) -> str:
    return f"message-{reference.message_id}-{queue.queue_id}"


class DamagedMessages:
    """Messages of one node that cannot be read."""

    __slots__ = (
        "_aside", "_clock", "_closed", "_in_vain_ms", "_paging", "_queues", "_scheduled", "_store", "_timers",
        "_waiting", "stopped",
    )  # fmt: skip

    def __init__(
        self,
        store: MessageStore,
        paging: Paging,
        scheduled: ScheduledDeliveries,
        clock: Clock,
        timers: Timers,
        queues: Mapping[str, Queue],
    ) -> None:
        """``queues``: all queues of the node, by name."""
        self._store = store
        self._paging = paging
        self._scheduled = scheduled
        self._clock = clock
        self._timers = timers
        self._queues = queues
        self._aside: set[tuple[int, int]] = set()
        """Queue and message id of messages that are set aside and still in their queue."""
        self._waiting: dict[tuple[int, int], _Trouble] = {}
        """Messages that wait for the other node, by queue and message id."""
        self.stopped: dict[Queue, int] = {}
        """Queues that deliver nothing, and how many of their messages are being taken from the other node."""
        self._in_vain_ms = -STANDSTILL_TRIES * DISK_AGAIN_MS
        """Monotonic time at which a queue stood still for the last time without success."""
        self._closed = False
        store.quarantine.damage_met = self._met
        store.quarantine.repairs.on_attach = self._try_again

    def close(self) -> None:
        """End the searches for readable bytes."""
        self._closed = True

    def read(self, queue: Queue, reference: MessageReference) -> Message:
        """The message of a reference whose body is not in memory.

        Raises:
            MessageUnreadable: its bytes are damaged, or cannot be read.
            SegmentMissing: the segment was removed. The node ends and writes nothing about the message, because the
                next owner of the store may be the one who removed it.
        """
        try:
            return self._paging.read(queue, reference)
        except SegmentMissing:
            raise
        except BrokerError as error:
            # the damaged message may have been read ahead
            self._paging.forget_readers(queue)
            raise MessageUnreadable(f"message {reference.message_id} of queue {queue.name!r}: {error}") from error

    def read_waiting(self, queue: Queue, reference: MessageReference) -> Message | None:
        """The message of a reference that waits in its queue or is scheduled; None when it cannot be read. Then it
        is set aside.
        """
        try:
            return queue.read(reference)
        except MessageUnreadable as error:
            self._take_out(queue, reference, error)
            return None

    def _take_out(self, queue: Queue, reference: MessageReference, error: MessageUnreadable) -> None:
        waiting = queue.pending.at(reference.priority, reference.position, reference.message_id)
        if waiting is not None:
            queue.pending.remove(waiting)
            self.quarantine(queue, waiting, error)
        elif (queue.queue_id, reference.message_id) not in self._aside:
            message_id = reference.message_id
            scheduled = self._scheduled.take(queue, lambda each: each.message_id == message_id, 1)
            queue.scheduled_count -= len(scheduled)
            for each in scheduled:
                self.quarantine(queue, each, error)
        # otherwise a consumer has the message, or it is in the quarantine already

    def _met(self, number: int, offset: int) -> None:
        """Called when the consolidator has met damage that no message in memory explains."""
        use = self._store.state.segments.get(number)
        if use is not None:
            self._store.quarantine.repairs.segment(number, use.epoch, partial(self._segment_repaired, number, offset))

    def _segment_repaired(self, number: int, offset: int, outcome: Outcome) -> None:
        if outcome not in RIGHT:
            self._search(number, offset)

    def _search(self, number: int, offset: int) -> None:
        """Begin to look for the messages whose record lies at that offset of that segment."""
        self._timers.call_later(0, partial(self._go_on, self._look(number, offset)))

    def _go_on(self, steps: Iterator[None]) -> None:
        # each step gives None, the end False
        if not self._closed and next(steps, False) is None:
            self._timers.call_later(0, partial(self._go_on, steps))

    def _look(self, number: int, offset: int) -> Iterator[None]:
        """Read the messages of a damaged place that are not in memory; at each step the caller continues in another
        turn."""
        looked_at = 0
        for queue in list(self._queues.values()):
            for reference in self._scheduled.of(queue):
                if self._lies_at(reference, number, offset):
                    self.read_waiting(queue, reference)
            position, more = (9, -1), True
            while more:
                more = False
                for following, reference in queue.browse(position):
                    position = following
                    if self._lies_at(reference, number, offset):
                        self.read_waiting(queue, reference)
                    looked_at += 1
                    if looked_at % SEARCH_SLICE == 0:
                        more = True
                        break
                if more:
                    yield

    def _lies_at(self, reference: MessageReference, number: int, offset: int) -> bool:
        if not reference.durable or reference.location is None or reference.message is not None:
            return False
        try:
            place = unpack_location(self._store.read_back.resolve(reference.location))
        except JournalCorrupt:
            return False
        return place[:2] == (number, offset)

    def quarantine(self, queue: Queue, reference: MessageReference, error: MessageUnreadable) -> None:
        """A reference that is in no place any more cannot be read."""
        cause = error.__cause__
        damaged = isinstance(cause, JournalCorrupt)
        if queue.deleted:
            queue.forget(References((reference,)))
            return
        queue.scheduled_count += 1
        if isinstance(cause, DescriptorsExhausted):
            # the error does not prove damage of the message
            log.warning("message cannot be read now", extra={"queue": queue.name, "error": str(cause)})
            self._scheduled.add(queue, reference, self._clock.wall_ms() + AGAIN_MS)
            return
        self._scheduled.add(queue, reference, NEVER_MS)
        self._aside.add((queue.queue_id, reference.message_id))
        disk_failed = isinstance(cause, DiskFailed)
        self._repair(_Trouble(queue, reference, "message", str(cause or error), not damaged, disk_failed))

    def hold(self, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
        """The body of a large message cannot be read; its caller puts the reference where it stays."""
        self._repair(_Trouble(queue, reference, "large message", str(error), True, isinstance(error, DiskFailed)))

    # --- bytes of the other node ------------------------------------------------------------------

    def _repair(self, trouble: _Trouble) -> None:
        """Read a damaged message again, and take the bytes of the other node; the queue delivers nothing meanwhile."""
        reference = trouble.reference
        repairs, done = self._store.quarantine.repairs, partial(self._repaired, trouble)
        place = self._place(reference)
        if trouble.kind == "message" and self._is_only_here(reference):
            # the bytes have been read a second time already
            self._stand_still_or_list(trouble)
            return
        if place is None or not reference.durable:
            self._list(trouble)
            return
        if trouble.kind == "message":
            repairs.record(place.number, place.epoch, place.offset, place.length, done)
        else:
            body = self._body_of(trouble)
            if body is not None:
                repairs.body(body, done)
            elif repairs.pair is not None:
                # the record of the log says what the body has to be
                repairs.record(
                    place.number, place.epoch, place.offset, place.length, partial(self._record_repaired, trouble)
                )
            else:
                self._stand_still_or_list(trouble)
                return
        self._stop(trouble)

    def _is_only_here(self, reference: MessageReference) -> bool:
        """Whether no other node has the bytes of a message: there is no other node, or they are in a page file."""
        alone = self._store.quarantine.repairs.pair is None
        return alone or not reference.durable or self._place(reference) is None

    def _stop(self, trouble: _Trouble) -> None:
        """The queue delivers nothing until the bytes have been read again or taken from the other node."""
        queue = trouble.queue
        trouble.under_way = True
        self.stopped[queue] = self.stopped.get(queue, 0) + 1
        # a dispatch under way ends
        queue.looks_left = queue.read_back_left = 0

    def _may_pass(self, trouble: _Trouble) -> bool:
        """Whether the disk, which is the only one with the bytes, is tried again while the queue stands still."""
        if not trouble.disk_failed or trouble.failures >= STANDSTILL_TRIES:
            return False
        recent_ms = self._clock.monotonic_ms() - self._in_vain_ms
        return trouble.failures > 0 or recent_ms >= STANDSTILL_TRIES * DISK_AGAIN_MS

    def _stand_still_or_list(self, trouble: _Trouble) -> None:
        if self._may_pass(trouble):
            self._stop(trouble)
            self._again_soon(trouble)
        else:
            self._list(trouble)

    def _again_soon(self, trouble: _Trouble) -> None:
        trouble.failures += 1
        self._timers.call_later(DISK_AGAIN_MS, partial(self._once_more, trouble))

    def _body_of(self, trouble: _Trouble) -> LargeBody | None:
        """The body of a large message, as its record describes it; None: the record cannot be read."""
        assert trouble.reference.location is not None
        try:
            message = self._store.read_message(trouble.reference.location)
        except StoreError as error:
            if str(error) not in trouble.reason:
                trouble.reason += f"; {error}"
            return None
        assert isinstance(message, LargeMessage)
        return message.large

    def _record_repaired(self, trouble: _Trouble, outcome: Outcome) -> None:
        body = self._body_of(trouble) if outcome in RIGHT and not self._closed else None
        if body is not None:
            self._store.quarantine.repairs.body(body, partial(self._repaired, trouble))
        else:
            self._repaired(trouble, Outcome.DAMAGED_HERE if outcome in RIGHT else outcome)

    def _place(self, reference: MessageReference) -> Place | None:
        return self._store.read_back.place_of(reference.location) if reference.location is not None else None

    def _repaired(self, trouble: _Trouble, outcome: Outcome) -> None:
        queue, repairs = trouble.queue, self._store.quarantine.repairs
        if outcome is Outcome.DAMAGED_HERE and (
            trouble.failures < STANDSTILL_TRIES
            if repairs.attached
            else repairs.pair is None and self._may_pass(trouble)
        ):
            # a disk fails, perhaps for a moment: until then no message overtakes this one
            self._again_soon(trouble)
            return
        self._let_go(trouble)
        if self._closed:
            return
        if outcome in RIGHT:
            self._give_back(trouble)
        elif outcome is Outcome.DAMAGED_HERE and repairs.pair is not None and not trouble.given_up:
            self._wait(trouble, repairs.pair)
        else:
            self._settle(trouble, both=outcome is Outcome.DAMAGED_TWICE)
        queue.prompt()

    def _once_more(self, trouble: _Trouble) -> None:
        queue = trouble.queue
        self._let_go(trouble)
        if self._closed or queue.deleted:
            return
        if trouble.kind == "message" and self._is_only_here(trouble.reference) and self._is_readable(trouble):
            self._give_back(trouble)
        else:
            self._repair(trouble)
        queue.prompt()

    def _is_readable(self, trouble: _Trouble) -> bool:
        """Whether this node reads the message now; the reason of the trouble is that of this attempt otherwise."""
        try:
            trouble.queue.read(trouble.reference)
        except MessageUnreadable as error:
            cause = error.__cause__
            trouble.reason = str(cause or error)
            trouble.held, trouble.disk_failed = not isinstance(cause, JournalCorrupt), isinstance(cause, DiskFailed)
            return False
        return True

    def _let_go(self, trouble: _Trouble) -> None:
        """The queue stands still because of this message no longer."""
        queue = trouble.queue
        trouble.under_way = False
        self.stopped[queue] -= 1
        if not self.stopped[queue]:
            del self.stopped[queue]

    def _give_back(self, trouble: _Trouble) -> None:
        """Put a message that can be read again back into its place."""
        queue, reference = trouble.queue, trouble.reference
        trouble.over = True
        key = (queue.queue_id, reference.message_id)
        self._aside.discard(key)
        self._waiting.pop(key, None)
        self._paging.forget_readers(queue)
        self._store.quarantine.drop(_entry_id(queue, reference), lambda error: None)
        for each in self._scheduled.take(queue, lambda each: each is reference, 1):
            queue.due(each)

    def _wait(self, trouble: _Trouble, pair: Pair) -> None:
        """Wait, because the other node cannot be asked at present, or because the disk of this node fails."""
        key = (trouble.queue.queue_id, trouble.reference.message_id)
        if self._waiting.get(key) is not trouble:
            self._waiting[key] = trouble
            if pair.wait_ms >= 0:
                self._timers.call_later(pair.wait_ms, partial(self._waited, key, trouble))
            self._list(trouble, waits=True)
        if self._store.quarantine.repairs.attached:
            trouble.pause_ms = min(2 * trouble.pause_ms, DISK_AGAIN_MS_MAX)
            self._timers.call_later(trouble.pause_ms, partial(self._try_one_again, key, trouble))

    def _waited(self, key: tuple[int, int], trouble: _Trouble) -> None:
        if self._waiting.get(key) is trouble and not self._closed:
            self._end_wait(trouble)

    def _try_one_again(self, key: tuple[int, int], trouble: _Trouble) -> None:
        if self._waiting.get(key) is not trouble or self._closed or trouble.under_way:
            return
        if trouble.queue.deleted:
            del self._waiting[key]
        else:
            self._repair(trouble)

    def _try_again(self) -> None:
        """Ask again, because the other node can be asked."""
        for key, trouble in list(self._waiting.items()):
            self._try_one_again(key, trouble)

    def give_up(self) -> int:
        """Move all messages that wait for the other node to the quarantine; returns their number."""
        waiting = list(self._waiting.values())
        for trouble in waiting:
            self._end_wait(trouble)
        return len(waiting)

    @property
    def waiting_count(self) -> int:
        """Messages that wait for the copy of the other node."""
        return len(self._waiting)

    def _end_wait(self, trouble: _Trouble) -> None:
        del self._waiting[trouble.queue.queue_id, trouble.reference.message_id]
        trouble.given_up = True
        if not trouble.under_way:
            self._settle(trouble, both=False)

    def _settle(self, trouble: _Trouble, *, both: bool) -> None:
        """Move a message to the quarantine: no node that can be asked has undamaged bytes."""
        self._waiting.pop((trouble.queue.queue_id, trouble.reference.message_id), None)
        if both:
            trouble.both = True
            trouble.reason += "; the copy of the other node does not fit either"
        self._list(trouble)

    # --- entries ------------------------------------------------------------------------------------

    def _list(self, trouble: _Trouble, *, waits: bool = False) -> None:
        queue, reference, reason = trouble.queue, trouble.reference, trouble.reason
        if trouble.failures:
            self._in_vain_ms = self._clock.monotonic_ms()
        if waits:
            reason += "; it waits for the copy of the other node"
        held = trouble.held or waits
        log.error(
            "message waits for the other node: it cannot be read" if waits else "message set aside: it cannot be read",
            extra={"queue": queue.name, "message_id": reference.message_id, "held": held, "error": reason},
        )
        store, place = self._store, self._place(reference)
        pair = store.quarantine.repairs.pair
        nodes = [] if pair is None else [pair.node, pair.other] if trouble.both else [pair.node]
        entry = QuarantineEntry(
            entry_id=_entry_id(queue, reference),
            kind=trouble.kind,
            reason=reason,
            found_ms=self._clock.wall_ms(),
            segment=place.number if place is not None else 0,
            epoch=place.epoch if place is not None else 0,
            offset=place.offset if place is not None else 0,
            length=place.length if place is not None else 0,
            queue=queue.name,
            queue_id=queue.queue_id,
            address=queue.address.name,
            message_id=reference.message_id,
            file_id=reference.file_id if isinstance(reference, LargeReference) else 0,
            durable=reference.durable,
            held=held,
            nodes=", ".join(filter(None, nodes)),
            path=self._path(trouble, place),
        )
        raw = place.read if place is not None else self._page_reader(reference)
        store.quarantine.keep(entry, raw, partial(self._kept, trouble, held))

    def _path(self, trouble: _Trouble, place: Place | None) -> str:
        if trouble.kind != "message" and isinstance(trouble.reference, LargeReference):
            return self._store.large.path_of(trouble.reference.file_id)
        return place.path if place is not None else ""

    def _page_reader(self, reference: MessageReference) -> Callable[[], bytes]:
        """Page files belong to this thread: their bytes are read at once."""
        raw = b""
        with suppress(StoreError):
            raw = self._paging.raw(reference.location)
        return lambda: raw

    def _kept(self, trouble: _Trouble, held: bool, error: BaseException | None) -> None:
        """Called when the entry is on the medium, or cannot be."""
        queue, reference = trouble.queue, trouble.reference
        if trouble.over:
            self._store.quarantine.drop(_entry_id(queue, reference), lambda error: None)
            return
        if error is not None:
            log.error(
                "message set aside stays in its queue: its quarantine entry was not written",
                extra={"queue": queue.name, "message_id": reference.message_id, "error": str(error)},
            )
            return
        if held:
            return
        taken = self._scheduled.take(queue, lambda each: each is reference, 1)
        if not taken:
            # the message was released, or deleted with its queue
            return
        self._aside.discard((queue.queue_id, reference.message_id))
        if isinstance(reference, LargeReference):
            self._store.large.hold(reference.file_id)
        queue.scheduled_count -= 1
        queue.log_acknowledges(References(taken))
        queue.messages_killed += 1
        queue.forget(References(taken))
