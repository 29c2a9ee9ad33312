"""Messages whose time has not come: scheduled by their producer, or waiting for redelivery.

One heap for the node and one timer for its earliest entry. Times are wall time, as producers give
them (``_AMQ_SCHED_DELIVERY``, artemis-core s. 5.1), so the timer is only a hint: the due messages are determined by
the clock when it fires, and a clock that was set back only means another wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import islice
from typing import Final

from understudy.ports import Clock, Timer, Timers
from understudy.routing.queues.queue import Queue
from understudy.store.messages.reference import MessageReference, References

#: Longest sleep; a wall clock set forward is noticed after at most this.
_SLEEP_MS_MAX: Final = 30_000


class ScheduledDeliveries:
    """References that wait for their time, earliest first."""

    __slots__ = ("_clock", "_heap", "_next", "_order", "_timer", "_timers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._heap: list[tuple[int, int, Queue, MessageReference]] = []
        self._order = 0
        self._timer: Timer | None = None
        self._next = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, queue: Queue, reference: MessageReference, at_ms: int) -> None:
        """Deliver not before ``at_ms`` wall time; equal times keep their order."""
        self._order += 1
        heapq.heappush(self._heap, (at_ms, self._order, queue, reference))
        self._arm()

    def of(self, queue: Queue) -> list[MessageReference]:
        """The scheduled messages of one queue, earliest first."""
        return [reference for _, reference in self.due_times(queue)]

    def due_times(self, queue: Queue) -> list[tuple[int, MessageReference]]:
        """Wall time and reference of those of one queue, earliest first."""
        mine = sorted((entry for entry in self._heap if entry[2] is queue), key=lambda entry: entry[:2])
        return [(at_ms, reference) for at_ms, _, _, reference in mine]

    def remove(self, queue: Queue) -> References:
        """Remove the scheduled messages of a queue that is being deleted."""
        taken = References(self.of(queue))
        self._heap = [entry for entry in self._heap if entry[2] is not queue]
        heapq.heapify(self._heap)
        return taken

    def take(self, queue: Queue, wanted: Callable[[MessageReference], bool], limit: int) -> list[MessageReference]:
        """Take out those of one queue that are wanted, earliest first and at most ``limit``."""
        taken = list(islice(filter(wanted, self.of(queue)), limit))
        gone = set(map(id, taken))
        self._heap = [entry for entry in self._heap if id(entry[3]) not in gone]
        heapq.heapify(self._heap)
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
            _, _, queue, reference = heapq.heappop(heap)
            queue.due(reference)
        self._arm()

    def close(self) -> None:
        """Stop all timers of scheduled messages."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
