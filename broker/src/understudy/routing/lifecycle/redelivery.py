"""Deliveries that failed, and messages that leave their queue because they expired or failed too often.

No client waits for an answer to that, so where the target cannot take a message (a full disk, no further queue) the
message stays and leaves later.

Not here: the address they go to (``dead_letters``), ends of transactions (``session``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from understudy.errors import BrokerError, DiskFull, MessageUnreadable, StoreError
from understudy.ports import Clock, Entropy
from understudy.routing.exchanges.carrier import Reason
from understudy.routing.lifecycle.dead_letters import DeadLetters
from understudy.routing.lifecycle.quarantine import NEVER_MS, DamagedMessages
from understudy.routing.lifecycle.scheduled import ScheduledDeliveries
from understudy.routing.queues.queue import Queue
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import MessageReference, References

log = logging.getLogger(__name__)

_TWO_31 = 1 << 31
#: Pause before a message leaves again for an address that could not take it.
TRY_AGAIN_MS: Final = 30_000


class Redelivery:
    """Gives messages back to their queues, or moves them to the dead letters or the expiry address."""

    __slots__ = ("_clock", "_damaged", "_dead_letters", "_entropy", "_scheduled", "_store", "bury", "watch_expiry")

    def __init__(
        self,
        dead_letters: DeadLetters,
        scheduled: ScheduledDeliveries,
        damaged: DamagedMessages,
        store: MessageStore,
        clock: Clock,
        entropy: Entropy | None,
    ) -> None:
        """``entropy``: for redelivery-collision-avoidance-factor; None: delays are not varied."""
        self._dead_letters = dead_letters
        self._scheduled = scheduled
        self._damaged = damaged
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self.bury: Callable[[Queue, MessageReference, Reason], None]
        """Ends a message of a queue that was declared over AMQP 0-9-1; set by ``exchange_routing``."""
        self.watch_expiry: Callable[[Queue, int], None]
        """Looks at a queue that was declared over AMQP 0-9-1 when a message expires; set by ``exchange_routing``."""

    def cancel(
        self,
        queue: Queue,
        references: list[MessageReference],
        *,
        delay_redelivery: bool = True,
        delay_ms: int | None = None,
    ) -> None:
        """Deliveries that failed: each goes back to its place, or waits for redelivery, or, tried too
        often, to the dead letters (artemis-core s. 6.4). Delivery counts are final already.

        Args:
            queue: The queue of the messages.
            references: The messages.
            delay_redelivery: Whether they wait for the redelivery delay of the address settings.
            delay_ms: Time that they wait instead; None for that of the settings.
        """
        if queue.kind is not None:
            references = queue.kind.copies.cancelled(references)
        if queue.deleted:
            queue.delivering_count -= len(references)
            queue.forget(References(references))
            return
        settings = queue.address.settings
        arguments = queue.configuration.arguments
        attempts = settings.max_delivery_attempts if arguments is None else arguments.attempts_max
        back: list[MessageReference] = []
        purged = References()
        for reference in references:
            count = reference.delivery_count
            killed = 0 < attempts <= count and not queue.internal
            if queue.purges_returned and not killed:
                purged.append(reference)
                continue
            if killed or not (delay_redelivery or delay_ms):
                not_before_ms = 0
            elif delay_ms is not None:
                not_before_ms = self._clock.wall_ms() + delay_ms if delay_ms else 0
            else:
                not_before_ms = self._redelivery_ms(queue, count)
            # with counts stored before each delivery, one that was taken back is stored too
            changed = count or not_before_ms or self._store.settings.count_before_delivery
            if changed and reference.durable and not queue.internal:
                self._store.store_delivery_count(
                    queue.queue_id, reference.message_id, count, not_before_ms=not_before_ms
                )
            if killed:
                queue.delivering_count -= 1
                self.kill(queue, reference)
            elif not_before_ms:
                queue.postpone()
                self._scheduled.add(queue, reference, not_before_ms)
            else:
                back.append(reference)
        queue.requeue(back)
        if arguments is not None and queue.expiring_count:
            expirations = [each.expiration for each in back if each.expiration]
            if expirations:
                # while they were delivered, the queue may have been looked at for the last time before they expire
                self.watch_expiry(queue, min(expirations))
        if purged:
            queue.purge_returned(purged)
        if queue.kind is not None:
            queue.kind.gate_may_open(0)

    def _redelivery_ms(self, queue: Queue, count: int) -> int:
        """Wall time before which a message that was delivered so often is not delivered again; 0: at once. Messages
        that the consumer had not reached wait with the others, and do not overtake them (as in Artemis).
        """
        settings = queue.address.settings
        if settings.redelivery_delay <= 0 or queue.internal:
            return 0
        share = _share(self._entropy) if settings.redelivery_collision_avoidance_factor else 0.0
        delay_ms = settings.redelivery_delay_ms(count, share)
        return self._clock.wall_ms() + delay_ms if delay_ms > 0 else 0

    def expire(self, queue: Queue, reference: MessageReference) -> None:
        """A reference in no place any more whose time is over: to the expiry address, as soon as that takes it."""
        try:
            if queue.configuration.arguments is None:
                self._dead_letters.expire(queue, reference)
            else:
                self.bury(queue, reference, Reason.EXPIRED)
                queue.messages_expired += 1
        except BrokerError as error:
            self._try_again(queue, reference, error)

    def kill(self, queue: Queue, reference: MessageReference, reason: Reason = Reason.DELIVERY_LIMIT) -> None:
        """Send a message that was delivered too often, and is in no place any more, to the dead letter address.

        Args:
            queue: Had the message.
            reference: The message.
            reason: Why it ends, for a dead letter exchange.
        """
        try:
            if queue.configuration.arguments is None:
                self._dead_letters.kill(queue, reference)
            else:
                self.bury(queue, reference, reason)
                queue.messages_killed += 1
        except BrokerError as error:
            self._try_again(queue, reference, error)

    def reject(self, queue: Queue, reference: MessageReference) -> None:
        """Send a delivery that its consumer rejected to the dead letter address, whatever its number of deliveries. On
        a non-destructive queue the copy ends; its message stays for the other consumers.
        """
        if queue.kind is not None and not queue.kind.settled((reference,)):
            return
        queue.delivering_count -= 1
        if queue.deleted:
            queue.forget(References((reference,)))
            return
        self.kill(queue, reference, Reason.REJECTED)

    def drop(self, queue: Queue, reference: MessageReference) -> None:
        """A message that waited first in a queue of AMQP 0-9-1 leaves, because the queue holds too much."""
        queue.messages_replaced += 1
        try:
            self.bury(queue, reference, Reason.MAX_LENGTH)
        except BrokerError as error:
            self._try_again(queue, reference, error)

    def _try_again(self, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
        """The target cannot take it: it waits, and after a while it is in its place again. One that cannot
        be read is set aside. Raises what says that the store has failed.
        """
        if isinstance(error, MessageUnreadable):
            self._damaged.quarantine(queue, reference, error)
            return
        if isinstance(error, StoreError) and not isinstance(error, DiskFull):
            raise error
        if not self._store.full:
            # the warning about a full disk is logged once, by the store
            log.warning("message cannot leave its queue", extra={"queue": queue.name, "error": str(error)})
        if queue.deleted:
            queue.forget(References((reference,)))
            return
        queue.scheduled_count += 1
        self._scheduled.add(queue, reference, self._clock.wall_ms() + TRY_AGAIN_MS)

    def quarantine(self, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
        """The delivery of a large message whose body cannot be read: no consumer is given it again before an operator
        releases it, or the next activation. Of a non-destructive queue the copy ends; its message stays in the queue.
        """
        self._damaged.hold(queue, reference, error)
        if queue.kind is not None and not queue.kind.settled((reference,)):
            return
        queue.postpone()
        self._scheduled.add(queue, reference, NEVER_MS)


def _share(entropy: Entropy | None) -> float:
    """A random number from -1 up to 1."""
    return int.from_bytes(entropy.token(4), "big") / _TWO_31 - 1 if entropy is not None else 0.0
