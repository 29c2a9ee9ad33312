"""Messages whose time has not come: scheduled by their producer, or waiting for redelivery.

One heap for the node and one timer for its earliest entry. Times are wall time, as producers give
them (``_AMQ_SCHED_DELIVERY``, artemis-core s. 5.1), so the timer is only a hint: the due messages are determined by
the clock when it fires, and a clock that was set back only means another wait.

Messages that came together are one entry as long as their times do not fall (ADR 0208): a slice of a run, whose first
message is due first. Of a long run that would wait for a few messages only, these get a run of their own, so that its
buffer is not kept for them. Whatever is due and in what order is the same as if each message had its own entry.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from understudy.kernel.log import join_runs
from understudy.ports import Clock, Timer, Timers
from understudy.routing.queues.queue import Queue
from understudy.store.messages.reference import MessageReference, Part, References, RunSlice

#: Longest sleep; a wall clock set forward is noticed after at most this.
_SLEEP_MS_MAX: Final = 30_000
#: Fewer messages whose times do not fall become single entries.
_SLICE_MIN: Final = 4
#: A run is kept while one in so many of its messages waits in an entry.
_RUN_SHARE_MIN: Final = 4

_Entry = tuple[int, int, Queue, MessageReference | RunSlice]
"""Time and number of the first message, its queue, and the messages, whose numbers are consecutive."""


class ScheduledDeliveries:
    """Messages that wait for their time, earliest first."""

    __slots__ = ("_clock", "_count", "_heap", "_next", "_order", "_timer", "_timers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._heap: list[_Entry] = []
        self._count = 0
        self._order = 0
        self._timer: Timer | None = None
        self._next = 0

    def __len__(self) -> int:
        return self._count

    def add(self, queue: Queue, reference: MessageReference, at_ms: int) -> None:
        """Deliver not before ``at_ms`` wall time; equal times keep their order."""
        self._push(at_ms, queue, reference)
        self._arm()

    def arrive(self, queue: Queue, part: RunSlice) -> None:
        """Take messages of a run, which are counted as arriving: those whose time has come wait in their queue at once.

        Args:
            queue: Gets the messages; not deleted, and of no special kind.
            part: Messages with a time of delivery each.
        """
        times = part.run.due_times(part.begin, part.end)
        now_ms = self._clock.wall_ms()
        begin = 0
        falls = [number for number, (one, other) in enumerate(pairwise(times), start=1) if other < one]
        for end in (*falls, len(times)):
            later = bisect_right(times, now_ms, begin, end)
            if later > begin:
                queue.add(part.part(begin, later))
            if end > later:
                waits = part.part(later, end)
                queue.incoming -= end - later
                queue.schedule(waits)
                self._wait(queue, waits)
            begin = end
        self._arm()

    def _wait(self, queue: Queue, waits: RunSlice) -> None:
        """Add messages whose times do not fall."""
        run = waits.run
        few = len(waits) * _RUN_SHARE_MIN < run.count and not waits.paged
        if len(waits) < _SLICE_MIN or (few and waits.shared is not None):
            for reference in waits:
                self._push(reference.scheduled_ms, queue, reference)
            return
        self._push(run.scheduled(waits.begin), queue, _own(waits) if few else waits)

    def _push(self, at_ms: int, queue: Queue, waits: MessageReference | RunSlice) -> None:
        heapq.heappush(self._heap, (at_ms, self._order, queue, waits))
        count = len(waits) if isinstance(waits, RunSlice) else 1
        self._order += count
        self._count += count

    def of(self, queue: Queue) -> list[MessageReference]:
        """The scheduled messages of one queue, earliest first."""
        return [reference for _, reference in self.due_times(queue)]

    def due_times(self, queue: Queue) -> list[tuple[int, MessageReference]]:
        """Wall time and reference of those of one queue, earliest first."""
        return [(at_ms, reference) for at_ms, _, _, reference in self._singles(queue)]

    def _singles(self, queue: Queue) -> list[tuple[int, int, Queue, MessageReference]]:
        """An entry for each message of a queue, earliest first; they stay."""
        return sorted(
            (single for entry in self._heap if entry[2] is queue for single in _singles(entry)),
            key=lambda entry: entry[:2],
        )

    def remove(self, queue: Queue) -> list[Part]:
        """Remove the scheduled messages of a queue. Returns them in parts, each of which is in order."""
        gone = sorted((entry for entry in self._heap if entry[2] is queue), key=lambda entry: entry[:2])
        self._heap = [entry for entry in self._heap if entry[2] is not queue]
        heapq.heapify(self._heap)
        parts: list[Part] = []
        single = References()
        for _, _, _, waits in gone:
            if isinstance(waits, RunSlice):
                parts.append(waits)
            else:
                single.append(waits)
        if single:
            parts.append(single)
        self._count -= sum(map(len, parts))
        return parts

    def take(self, queue: Queue, wanted: Callable[[MessageReference], bool], limit: int) -> list[MessageReference]:
        """Take out those of one queue that are wanted, earliest first and at most ``limit``."""
        taken: list[MessageReference] = []
        numbers: list[int] = []
        for _, number, _, reference in self._singles(queue):
            if len(taken) >= limit:
                break
            if wanted(reference):
                taken.append(reference)
                numbers.append(number)
        if taken:
            numbers.sort()
            self._heap = [left for entry in self._heap for left in _without(entry, queue, numbers)]
            heapq.heapify(self._heap)
            self._count -= len(taken)
        return taken

    def _arm(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._timer is not None:
            if self._next <= earliest:
                return
            self._timer.cancel()
        self._next = earliest
        delay_ms = min(max(earliest - self._clock.wall_ms(), 0), _SLEEP_MS_MAX)
        self._timer = self._timers.call_later(delay_ms, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self._clock.wall_ms()
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, number, queue, waits = heapq.heappop(heap)
            if not isinstance(waits, RunSlice):
                self._count -= 1
                queue.due(waits)
                continue
            times = waits.run.due_times(waits.begin, waits.end)
            end = bisect_right(times, now_ms)
            if heap and heap[0][0] <= now_ms:
                # no message of this entry overtakes one of the next entry
                at_ms, following = heap[0][:2]
                end = (bisect_left if following < number else bisect_right)(times, at_ms, 0, end)
            self._count -= end
            if end < len(waits):
                rest = waits.part(end, len(waits))
                if len(rest) * _RUN_SHARE_MIN < rest.run.count and not rest.paged and rest.shared is None:
                    rest = _own(rest)
                heapq.heappush(heap, (times[end], number + end, queue, rest))
            _put_due(queue, waits.part(0, end))
        self._arm()

    def close(self) -> None:
        """Stop all timers of scheduled messages."""
        self._heap.clear()
        self._count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _own(waits: RunSlice) -> RunSlice:
    """Some messages of a run as a run of their own, without the bytes of the others."""
    run = join_runs([(waits.run, waits.begin, waits.end)])
    return RunSlice(run, 0, run.count, waits.priority, -1, durable=waits.durable)


def _singles(entry: _Entry) -> Iterator[tuple[int, int, Queue, MessageReference]]:
    at_ms, number, queue, waits = entry
    if not isinstance(waits, RunSlice):
        yield at_ms, number, queue, waits
        return
    for row, reference in enumerate(waits):
        yield reference.scheduled_ms, number + row, queue, reference


def _put_due(queue: Queue, part: RunSlice) -> None:
    """Put messages of a run into their queue, as their time has come."""
    if queue.kind is not None:
        # the queue became one of a special kind meanwhile
        for reference in part:
            queue.due(reference)
        return
    queue.scheduled_count -= len(part)
    level = queue.pending.by_priority[part.priority]
    if level is None:
        level = queue.pending.level(part.priority)
    level.add(part)
    if not queue.dirty and queue.consumers.by_priority:
        queue.office.mark_dirty(queue)


def _without(entry: _Entry, queue: Queue, numbers: list[int]) -> Iterator[_Entry]:
    """The rest of an entry of ``queue`` without the messages of these numbers, which rise."""
    _, number, owner, waits = entry
    count = len(waits) if isinstance(waits, RunSlice) else 1
    gone = numbers[bisect_left(numbers, number) : bisect_left(numbers, number + count)]
    if owner is not queue or not gone:
        yield entry
    elif isinstance(waits, RunSlice):
        begin = 0
        for end in (*[each - number for each in gone], count):
            if end > begin:
                yield waits.run.scheduled(waits.begin + begin), number + begin, owner, waits.part(begin, end)
            begin = end + 1
