"""Messages that cannot be read: set aside, so that their neighbours go on being served (ADR 0020).

A message whose stored bytes are damaged leaves its queue for good: first its bytes and a description go to the
store's quarantine, then the log gets the acknowledgement that ends the message. Until both have happened it is
among the scheduled messages of its queue with a time that never comes, so it is counted and not delivered.

A message that cannot be read for another reason (the disk reports an error, the file of a large message is
missing) may be readable later. It stays among the scheduled messages until an operator releases it or until the
next activation; its entry in the quarantine says that it is held.

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

from understudy.errors import (
    BrokerError,
    DescriptorsExhausted,
    JournalCorrupt,
    MessageUnreadable,
    SegmentMissing,
    StoreError,
)
from understudy.message import Message
from understudy.ports import Clock, Timers
from understudy.routing.lifecycle.scheduled import ScheduledDeliveries
from understudy.routing.paging import Paging
from understudy.routing.queues.queue import Queue
from understudy.store.message_store import MessageStore
from understudy.store.quarantine import QuarantineEntry
from understudy.store.reference import LargeReference, MessageReference, References, unpack_location

log = logging.getLogger(__name__)

#: A time that does not come.
NEVER_MS: Final = 1 << 62
#: Pause before a message is read again that could not be read for want of a file descriptor.
AGAIN_MS: Final = 5_000
#: References looked at in one turn by a search for those of a damaged record.
SEARCH_SLICE: Final = 500


class DamagedMessages:
    """The messages of one node that cannot be read."""

    __slots__ = ("_aside", "_clock", "_closed", "_paging", "_queues", "_scheduled", "_store", "_timers")

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
        self._closed = False
        store.quarantine.damage_met = self._search

    def close(self) -> None:
        """Searches end."""
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
        # else a consumer has it, or it is set aside already

    def _search(self, number: int, offset: int) -> None:
        """Begin to look for the messages whose record lies at that offset of that segment."""
        self._timers.call_later(0, partial(self._go_on, self._look(number, offset)))

    def _go_on(self, steps: Iterator[None]) -> None:
        # each step gives None, the end False
        if not self._closed and next(steps, False) is None:
            self._timers.call_later(0, partial(self._go_on, steps))

    def _look(self, number: int, offset: int) -> Iterator[None]:
        """Read every message of that place that is not in memory; the caller goes on in another turn at each step."""
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
            # this says nothing about the message
            log.warning("message cannot be read now", extra={"queue": queue.name, "error": str(cause)})
            self._scheduled.add(queue, reference, self._clock.wall_ms() + AGAIN_MS)
            return
        self._scheduled.add(queue, reference, NEVER_MS)
        self._aside.add((queue.queue_id, reference.message_id))
        self._list(queue, reference, "message", str(cause or error), held=not damaged)

    def hold(self, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
        """The body of a large message cannot be read; its caller has put the reference where it stays."""
        self._list(queue, reference, "large message", str(error), held=True)

    def _list(self, queue: Queue, reference: MessageReference, kind: str, reason: str, *, held: bool) -> None:
        log.error(
            "message set aside: it cannot be read",
            extra={"queue": queue.name, "message_id": reference.message_id, "held": held, "error": reason},
        )
        store = self._store
        place = store.read_back.place_of(reference.location) if reference.location is not None else None
        entry = QuarantineEntry(
            entry_id=f"message-{reference.message_id}-{queue.queue_id}",
            kind=kind,
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
        )
        raw = place.read if place is not None else self._page_reader(reference)
        store.quarantine.keep(entry, raw, partial(self._kept, queue, reference, held))

    def _page_reader(self, reference: MessageReference) -> Callable[[], bytes]:
        """Page files belong to this thread: their bytes are read at once."""
        raw = b""
        with suppress(StoreError):
            raw = self._paging.raw(reference.location)
        return lambda: raw

    def _kept(self, queue: Queue, reference: MessageReference, held: bool, error: BaseException | None) -> None:
        """The entry is on the medium, or cannot be."""
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
            # released, or gone with its queue
            return
        self._aside.discard((queue.queue_id, reference.message_id))
        if isinstance(reference, LargeReference):
            self._store.large.hold(reference.file_id)
        queue.scheduled_count -= 1
        queue.log_acknowledges(References(taken))
        queue.messages_killed += 1
        queue.forget(References(taken))
