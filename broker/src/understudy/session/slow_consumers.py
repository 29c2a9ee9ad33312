"""Consumers that take less than they should: measured now and then, and named or disconnected.

Manual, "Detecting Slow Consumers" and the address settings ``slow-consumer-*``: only what a consumer
acknowledged counts, whatever keeps it from acknowledging. A queue is looked at only while there is
enough in it, or coming to it, for all its consumers to reach the threshold.

A consumer is judged by a whole period: one that came in the middle of it is looked at next time.
Queues whose address sets no threshold cost nothing.

Not here: what a notification looks like (``callback``), what being killed means on the wire.
"""

from __future__ import annotations

import logging
import math
from typing import Final, Protocol

from understudy.ports import Clock, Timer, Timers
from understudy.routing.addresses.address import Address
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.session.consumer import ServerConsumer
from understudy.terms import SlowConsumerPolicy, SlowConsumerUnit

log = logging.getLogger(__name__)

_SECONDS: Final = {
    SlowConsumerUnit.MESSAGES_PER_SECOND: 1,
    SlowConsumerUnit.MESSAGES_PER_MINUTE: 60,
    SlowConsumerUnit.MESSAGES_PER_HOUR: 3_600,
    SlowConsumerUnit.MESSAGES_PER_DAY: 86_400,
}


class SlowConsumerListener(Protocol):
    """Listener that publishes notifications of slow consumers."""

    def consumer_slow(self, queue: Queue, consumer: ServerConsumer) -> None:
        """Called when a consumer is slower than slow-consumer-threshold allows, and the policy is NOTIFY."""
        ...


class _Watch:
    """One observed queue."""

    __slots__ = ("acknowledged", "began_ms", "messages_added", "timer")

    def __init__(self, queue: Queue, now_ms: int) -> None:
        self.began_ms = now_ms
        self.messages_added = queue.messages_added
        self.acknowledged: dict[Consumer, int] = {}
        """Acknowledged messages of each consumer when the period began; a consumer that is missing came later."""
        self.timer: Timer | None = None


class SlowConsumers:
    """Checks of consumers that are slower than their address allows. Implements
    ``routing.addresses.listeners.RoutingListener``."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.listeners: list[SlowConsumerListener] = []
        self._clock = clock
        self._timers = timers
        self._watches: dict[Queue, _Watch] = {}

    def close(self) -> None:
        """Stop the checks."""
        for watch in self._watches.values():
            if watch.timer is not None:
                watch.timer.cancel()
        self._watches.clear()

    # -- routing.listeners.RoutingListener --------------------------------------------------------

    def queue_updated(self, queue: Queue) -> None:
        """Do nothing: the check does not depend on the filter of a queue."""

    def settings_changed(self, address: Address) -> None:
        """Queues with consumers are watched from now on, by the new threshold and period, or not any more."""
        for binding in address.bindings.values():
            self._forget(binding.queue)
            self._watch(binding.queue)

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        self._watch(queue)

    def _watch(self, queue: Queue) -> None:
        if queue.address.settings.slow_consumer_threshold >= 0 and queue.consumers.count and queue not in self._watches:
            watch = self._watches[queue] = _Watch(queue, self._clock.monotonic_ms())
            watch.acknowledged = _acknowledged(queue)
            self._arm(queue, watch)

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        if not queue.consumers.count:
            self._forget(queue)

    def queue_removed(self, queue: Queue) -> None:
        self._forget(queue)

    def queue_added(self, queue: Queue) -> None:
        """Do nothing: a new queue has no consumer yet."""

    def address_added(self, address: Address) -> None:
        """Do nothing: no queue of a new address has consumers."""

    def address_removed(self, address: Address) -> None:
        """Do nothing: the queues of the address went before."""

    # -- measuring --------------------------------------------------------------------------------

    def _arm(self, queue: Queue, watch: _Watch) -> None:
        period_ms = max(queue.address.settings.slow_consumer_check_period, 1) * 1000
        watch.timer = self._timers.call_later(period_ms, lambda: self._check(queue, watch))

    def _forget(self, queue: Queue) -> None:
        watch = self._watches.pop(queue, None)
        if watch is not None and watch.timer is not None:
            watch.timer.cancel()

    def _check(self, queue: Queue, watch: _Watch) -> None:
        settings = queue.address.settings
        if settings.slow_consumer_threshold < 0:
            self._forget(queue)
            return
        now_ms = self._clock.monotonic_ms()
        elapsed_s = max(now_ms - watch.began_ms, 1) / 1000
        threshold = settings.slow_consumer_threshold / _SECONDS[settings.slow_consumer_threshold_measurement_unit]
        slow = _slow(queue, watch, threshold, elapsed_s)
        watch.began_ms, watch.messages_added = now_ms, queue.messages_added
        watch.acknowledged = _acknowledged(queue)
        self._arm(queue, watch)
        for consumer, rate in slow:
            if not consumer.session.closed:
                self._act(queue, consumer, rate, settings.slow_consumer_policy)

    def _act(self, queue: Queue, consumer: ServerConsumer, rate: float, policy: SlowConsumerPolicy) -> None:
        log.warning(
            "slow consumer",
            extra={
                "id": "AMQ222107",
                "queue": queue.name,
                "consumer": consumer.consumer_id,
                "session": consumer.session.alias,
                "peer": consumer.session.connection.remote_address,
                "messages_per_second": round(rate, 2),
                "policy": policy.value,
            },
        )
        if policy is SlowConsumerPolicy.KILL:
            consumer.kill_connection("slow consumer")
        else:
            for listener in self.listeners:
                listener.consumer_slow(queue, consumer)


def _acknowledged(queue: Queue) -> dict[Consumer, int]:
    return {each: each.messages_acknowledged for each in queue.consumers if isinstance(each, ServerConsumer)}


def _rate(messages: int, elapsed_s: float) -> float:
    """Messages a second, rounded up to two decimals as Artemis does: a check is always a little late, and a consumer
    that is exactly as fast as the threshold is not slow.
    """
    return math.ceil(100 * messages / elapsed_s) / 100


def _slow(queue: Queue, watch: _Watch, threshold: float, elapsed_s: float) -> list[tuple[ServerConsumer, float]]:
    """Consumers that acknowledged fewer than ``threshold`` messages a second, and their rates."""
    needed = threshold * queue.consumers.count
    if _rate(queue.messages_added - watch.messages_added, elapsed_s) < needed and queue.message_count < needed:
        return []
    found = []
    for consumer in queue.consumers:
        before = watch.acknowledged.get(consumer)
        if before is None or not isinstance(consumer, ServerConsumer):
            continue
        rate = _rate(consumer.messages_acknowledged - before, elapsed_s)
        if rate < threshold or rate == threshold == 0:
            found.append((consumer, rate))
    return found
