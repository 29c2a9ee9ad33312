"""Queues of AMQP 0-9-1 whose first message expires, and unused queues that are deleted (x-expires).

As in RabbitMQ a message is looked at when it is the first of its queue; the scan of ``message-expiry-scan-period``
finds the others. Times are wall time, and each timer is only a hint.
"""

from __future__ import annotations

import logging
from functools import partial

from understudy.errors import BrokerError
from understudy.ports import Clock, Timer, Timers
from understudy.routing.addresses.directory import Directory
from understudy.routing.lifecycle.auto_deletion import delete_unbound
from understudy.routing.lifecycle.redelivery import Redelivery
from understudy.routing.queues.queue import EXPIRED_AT_ONCE, Queue

log = logging.getLogger(__name__)

#: Longest time between two looks at a queue, in milliseconds; a wall clock that was set forward is noticed then.
_SLEEP_MS_MAX = 30_000


class ExpiryTimers:
    """Timers of queues that were declared over AMQP 0-9-1."""

    def __init__(self, directory: Directory, redelivery: Redelivery, clock: Clock, timers: Timers) -> None:
        self._directory = directory
        self._redelivery = redelivery
        self._clock = clock
        self._timers = timers
        self._heads: dict[Queue, tuple[int, Timer]] = {}
        """Time of the next look at a queue, and its timer."""
        self._unused: dict[Queue, Timer] = {}
        self._used_ms: dict[Queue, int] = {}

    # -- messages -------------------------------------------------------------------------------

    def arrived(self, queue: Queue, expiration_ms: int) -> None:
        """A message with this expiration comes to a queue, or comes back to it; called when it is accepted, before it
        waits there.
        """
        known = self._heads.get(queue)
        if known is not None:
            if known[0] <= expiration_ms:
                return
            known[1].cancel()
        delay_ms = min(max(expiration_ms - self._clock.wall_ms(), 0), _SLEEP_MS_MAX)
        self._heads[queue] = (expiration_ms, self._timers.call_later(delay_ms, partial(self._look, queue)))

    def _look(self, queue: Queue) -> None:
        self._heads.pop(queue, None)
        if queue.deleted:
            return
        for _ in range(EXPIRED_AT_ONCE):
            first = next(queue.browse((9, -1)), None)
            if first is None:
                if queue.incoming:
                    # it is not safe yet, so it does not wait here yet
                    self.arrived(queue, self._clock.wall_ms() + 10)
                return
            reference = first[1]
            if not reference.expiration:
                return
            if reference.expiration > self._clock.wall_ms():
                self.arrived(queue, reference.expiration)
                return
            level = queue.pending.level(reference.priority)
            taken = level.pop()
            if taken is None:
                return
            self._redelivery.expire(queue, taken)
        self.arrived(queue, self._clock.wall_ms())

    # -- queues ---------------------------------------------------------------------------------

    def used(self, queue: Queue) -> None:
        """A queue was declared, read or asked for a message: its time begins anew."""
        arguments = queue.configuration.arguments
        if arguments is None or arguments.expires_ms is None or queue.deleted:
            return
        self._used_ms[queue] = self._clock.wall_ms()
        if queue not in self._unused:
            self._unused[queue] = self._timers.call_later(arguments.expires_ms, partial(self._unused_queue, queue))

    def _unused_queue(self, queue: Queue) -> None:
        self._unused.pop(queue, None)
        used_ms = self._used_ms.get(queue, 0)
        arguments = queue.configuration.arguments
        if queue.deleted or arguments is None or arguments.expires_ms is None:
            self._used_ms.pop(queue, None)
            return
        since_ms = max(used_ms, queue.consumers.left_ms)
        left_ms = since_ms + arguments.expires_ms - self._clock.wall_ms()
        if queue.consumers.count or left_ms > 0:
            wait_ms = arguments.expires_ms if queue.consumers.count else left_ms
            self._unused[queue] = self._timers.call_later(wait_ms, partial(self._unused_queue, queue))
            return
        del self._used_ms[queue]
        log.info("unused queue deleted", extra={"queue": queue.name, "unused_ms": arguments.expires_ms})
        try:
            self._directory.delete_queue(queue.name)
            delete_unbound(self._directory, queue.address.name)
        except BrokerError as error:
            log.warning("unused queue not deleted", extra={"queue": queue.name, "error": str(error)})
            self.used(queue)

    def restore(self) -> None:
        """Watch the queues that the log had."""
        for queue in list(self._directory.queues.values()):
            if queue.configuration.arguments is not None:
                self.used(queue)
                if queue.expiring_count:
                    self.arrived(queue, self._clock.wall_ms())

    def close(self) -> None:
        """Cancel all timers."""
        for _, timer in self._heads.values():
            timer.cancel()
        for timer in self._unused.values():
            timer.cancel()
        self._heads.clear()
        self._unused.clear()
