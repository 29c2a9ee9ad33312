"""The local side of a bridge: a session that consumes the queue and gives its messages to a target session.

A message stays outstanding here until the target confirms it, so it is in the queue of this broker or safe at the
target at every moment. Bytes that the target has not confirmed are limited by the credit of the consumer
(confirmation-window-size); pieces of a large message are read as the target takes them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Final

from understudy.cluster.bridges.conversion import Converts
from understudy.cluster.bridges.target import SEND_OVERHEAD_BYTES, TargetSession
from understudy.config.bridge import BridgeConfiguration
from understudy.errors import AddressFull, AddressNotFound, BrokerError, IllegalState, SecurityError
from understudy.limits import (
    BRIDGE_REFUSED_MESSAGES_MAX,
    BRIDGE_UNCONFIRMED_BYTES_MAX,
    BRIDGE_UNCONFIRMED_MESSAGES_MAX,
)
from understudy.message import LargeMessage, Message
from understudy.ports import Timer, Timers
from understudy.routing.queues.queue import Queue
from understudy.session.connection_scope import ConnectionScope
from understudy.session.outcomes import ACCEPTED, REJECTED, modified
from understudy.session.registry import SessionRegistry
from understudy.session.services import SessionOptions, SessionServices
from understudy.session.session import ServerSession
from understudy.store.messages.reference import MessageReference, Part, References
from understudy.terms import Permission

log = logging.getLogger(__name__)

PROTOCOL: Final = "BRIDGE"
_CONSUMER: Final = 0
_PERMISSION_MS: Final = 1 << 40
REFUSED_RETRY_MS: Final = 60_000
"""Wait before messages that the target refused are sent again on the same connection."""
_HELD: Final = modified(undeliverable_here=True)
#: Errors that every message for one address meets.
_OF_THE_ADDRESS: Final = (SecurityError, AddressNotFound)


class _OwnRights:
    """Rights of the broker itself; implements ``session.callback.SessionSecurity``."""

    user = ""
    permission_ms = _PERMISSION_MS

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        """Allow the operation without a check."""

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        """Always true."""
        return True


class Stall(Enum):
    """Reason why a bridge with a connection sends nothing at present."""

    WINDOW = "window"
    """The allowed number of bytes is unconfirmed."""
    CREDIT = "credit"
    """The target gives no credit, because an address there is full."""


class BridgeCounts:
    """Counters of a bridge since the activation; the names are those of Artemis."""

    __slots__ = ("acknowledged", "forwarded", "lost_connections", "refused")

    def __init__(self) -> None:
        self.forwarded = 0
        """Number of messages sent, repeated sends included (messagesPendingAcknowledgement)."""
        self.acknowledged = 0
        """Messages that the target has confirmed (messagesAcknowledged)."""
        self.lost_connections = 0
        self.refused = 0
        """Messages that the target has refused and that others have passed; one that is refused again counts again."""


class _Sent:
    """Messages that were sent together and that the target has not confirmed."""

    __slots__ = ("first", "part")

    def __init__(self, first: int, part: Part) -> None:
        self.first = first
        """Correlation id of the first one; each further one has the next."""
        self.part = part

    @property
    def last(self) -> int:
        """Correlation id of the last one."""
        return self.first + len(self.part) - 1

    def take(self, correlation_id: int) -> Part:
        """Take the messages up to a correlation id out of the sent ones."""
        part, count = self.part, min(correlation_id - self.first + 1, len(self.part))
        self.first += count
        self.part = part.part(count, len(part))
        return part.part(0, count)

    def split(self, correlation_id: int) -> list[_Sent]:
        """Keep only the message with this correlation id; return those before and after it."""
        part, number = self.part, correlation_id - self.first
        around = [
            _Sent(self.first, part.part(0, number)),
            _Sent(correlation_id + 1, part.part(number + 1, len(part))),
        ]
        self.first, self.part = correlation_id, part.part(number, number + 1)
        return [each for each in around if each.part]


def _cost_bytes(part: Part) -> int:
    """Bytes of the window that messages take."""
    return part.size_bytes + len(part) * SEND_OVERHEAD_BYTES


class Forwarding:
    """One consumer of a bridge and its target, for the time of one connection. Implements
    ``session.callback.SessionCallback``."""

    def __init__(
        self,
        configuration: BridgeConfiguration,
        services: SessionServices,
        conversion: Converts,
        target: TargetSession,
        counts: BridgeCounts,
        ended: Callable[[str], None],
        timers: Timers,
    ) -> None:
        """Args:
        conversion: Changes the messages.
        target: Takes them; ready.
        ended: Called when the consumer was ended from outside, with the reason.
        timers: Used for calls in the next turn, and for the next attempt with refused messages.
        """
        self._configuration = configuration
        self._conversion = conversion
        self._target = target
        self._counts = counts
        self._ended = ended
        self._sent: deque[_Sent] = deque()
        """Messages that the target has not confirmed, in the order of sending: correlation ids rise."""
        self.unconfirmed = 0
        """Messages that the target has not confirmed."""
        self._confirmed_id = 0
        """The last message of those that are confirmed, with all before it, and not removed here yet; 0: none."""
        self._timers = timers
        self._confirmed_bytes = 0
        """Credit that the consumer gets back with the next grant."""
        self._refused_large: tuple[Part, IllegalState] | None = None
        """A large message that cannot be sent and why, while its pieces come."""
        self._large_id = 0
        """Correlation id of the large message that is under way; 0: none is."""
        self._held = 0
        """Messages that the target has refused since the last attempt with them; they wait in the queue."""
        self._held_timer: Timer | None = None
        """Timer of the next attempt with them."""
        window_bytes = configuration.confirmation_window_size_bytes
        if not 0 < window_bytes <= BRIDGE_UNCONFIRMED_BYTES_MAX:
            window_bytes = BRIDGE_UNCONFIRMED_BYTES_MAX
        # without duplicate detection one message at a time, as Artemis does: only that one can arrive twice
        self._window_bytes = window_bytes if configuration.use_duplicate_detection else 1
        scope = ConnectionScope(f"bridge {configuration.name}", protocol=PROTOCOL, created_ms=services.clock.wall_ms())
        self._session = ServerSession(
            f"bridge {configuration.name}",
            # a registry of its own, because the session belongs to no client
            replace(services, registry=SessionRegistry(), management=None),
            callback=self,
            connection=scope,
            security=_OwnRights(),
            options=SessionOptions(min_large_message_size=configuration.min_large_message_size_bytes),
        )

    @property
    def stall(self) -> Stall | None:
        """Reason why nothing is sent at present; None if nothing prevents it."""
        if self._target.awaits_credit:
            return Stall.CREDIT
        consumer = self._session.consumers.by_id.get(_CONSUMER)
        full = self.unconfirmed >= BRIDGE_UNCONFIRMED_MESSAGES_MAX
        return Stall.WINDOW if full or (consumer is not None and consumer.flow.credits <= 0) else None

    def open(self, queue: Queue) -> None:
        """Consume a queue from now on. Raises BrokerError: the queue refuses it."""
        session = self._session
        session.consumers.create(_CONSUMER, queue.name, self._configuration.filter)
        session.consumers.receive_credits(_CONSUMER, self._window_bytes)
        session.consumers.start()

    def stop(self) -> None:
        """Take no further message from the queue; a large one that has begun goes on."""
        self._session.consumers.stop()

    def close(self) -> None:
        """End it; messages that are not confirmed return to their places in the queue, as if never delivered."""
        if self._held_timer is not None:
            self._held_timer.cancel()
        self._remove_confirmed()
        self._sent.clear()
        self.unconfirmed = 0
        self._session.close(failed=False)

    def confirmed(self, first: int, last: int) -> None:
        """The target has the messages with these correlation ids: remove them here. A confirmation of another message
        is ignored.
        """
        sent = self._sent
        while sent and sent[0].first <= last and first <= sent[0].first:
            taken = sent[0].take(last)
            if not sent[0].part:
                sent.popleft()
            # messages confirmed later in this turn are removed by the same call
            if not self._confirmed_id:
                self._timers.call_later(0, self._remove_confirmed)
            self._confirmed_id = taken.ids[-1]
            self._count_confirmed(taken)
        if sent and first > sent[0].first:
            for correlation_id in range(first, min(last, sent[-1].last) + 1):
                self._confirmed_early(correlation_id)
        self._grant()

    def refused(self, correlation_id: int, error: BrokerError) -> bool:
        """The target has refused a message: it waits in the queue for ``REFUSED_RETRY_MS``, and those after it go on.

        Returns:
            False: every other message would be refused too, the address is full for a time, pieces of the message are
            under way, or too many messages wait.
        """
        of_all = self._configuration.forwarding_address is not None and isinstance(error, _OF_THE_ADDRESS)
        if of_all or isinstance(error, AddressFull) or correlation_id == self._large_id:
            return False
        if self._held >= BRIDGE_REFUSED_MESSAGES_MAX or not any(
            each.first <= correlation_id <= each.last for each in self._sent
        ):
            return False
        taken = self._take(correlation_id)
        self._held += 1
        self.unconfirmed -= 1
        self._counts.refused += 1
        self._confirmed_bytes += _cost_bytes(taken)
        self._session.settle(_CONSUMER, taken.ids[0], _HELD)
        self._grant()
        if self._held_timer is None:
            log.error(
                "the target of a bridge refuses a message; it stays in the queue, and others pass it",
                extra={"bridge": self._configuration.name, "error": str(error), "retry_ms": REFUSED_RETRY_MS},
            )
            self._held_timer = self._timers.call_later(REFUSED_RETRY_MS, self._try_held)
        return True

    def _try_held(self) -> None:
        self._held, self._held_timer = 0, None
        consumer = self._session.consumers.by_id.get(_CONSUMER)
        if consumer is not None:
            consumer.include_all()
            self._session.consumers.resume_deliveries()

    def _grant(self) -> None:
        if self._confirmed_bytes * 4 >= self._window_bytes or not self.unconfirmed:
            granted_bytes, self._confirmed_bytes = self._confirmed_bytes, 0
            if _CONSUMER in self._session.consumers.by_id:
                self._session.consumers.receive_credits(_CONSUMER, granted_bytes)

    def _refuse(self, part: Part, error: IllegalState) -> None:
        """A message cannot be sent, and would keep all later ones from their target: it goes to the dead letter
        address, as in Artemis, once its delivery is complete.
        """
        log.error("a message cannot be forwarded", extra={"bridge": self._configuration.name, "error": str(error)})
        self._timers.call_later(0, partial(self._settle_refused, part))

    def _settle_refused(self, part: Part) -> None:
        self._confirmed_bytes += _cost_bytes(part)
        if _CONSUMER in self._session.consumers.by_id:
            self._session.settle(_CONSUMER, part.ids[0], REJECTED)
        self._grant()

    def _confirmed_early(self, correlation_id: int) -> None:
        """Called when the target has a message, and not all before it."""
        if any(each.first <= correlation_id <= each.last for each in self._sent):
            taken = self._take(correlation_id)
            self._count_confirmed(taken)
            self._session.settle(_CONSUMER, taken.ids[0], ACCEPTED)

    def _take(self, correlation_id: int) -> Part:
        """Take one message out of those that are not confirmed, of which it is one."""
        number, sent = next(
            (number, each) for number, each in enumerate(self._sent) if each.first <= correlation_id <= each.last
        )
        rest = sent.split(correlation_id)
        del self._sent[number]
        for part in reversed(rest):
            self._sent.insert(number, part)
        return sent.part

    def _count_confirmed(self, part: Part) -> None:
        self.unconfirmed -= len(part)
        self._counts.acknowledged += len(part)
        self._confirmed_bytes += _cost_bytes(part)

    def _remove_confirmed(self) -> None:
        confirmed_id, self._confirmed_id = self._confirmed_id, 0
        if confirmed_id:
            self._session.acknowledge(_CONSUMER, confirmed_id)

    def resume(self) -> None:
        """Called when the target takes messages again."""
        self._session.consumers.resume_deliveries()

    # -- SessionCallback --------------------------------------------------------------------------

    @property
    def delivery_overhead_bytes(self) -> int:
        """Constant if several messages may be under way; 0: one at a time."""
        return SEND_OVERHEAD_BYTES if self._configuration.use_duplicate_detection else 0

    def writable(self) -> bool:
        """Whether the target takes a message now."""
        return self.unconfirmed < BRIDGE_UNCONFIRMED_MESSAGES_MAX and self._target.writable

    def deliver(self, consumer_id: int, part: Part) -> int:
        """Send messages to the target."""
        count = len(part)
        ids, encoded = part.ids, part.encoded
        # the count before this delivery to the bridge; messages of a run were never delivered
        deliveries = [each.delivery_count - 1 for each in part.objects]
        form = None if any(deliveries) else self._conversion.form
        sent = refused = 0
        while sent < count:
            together = 0 if form is None else self._target.send_together(encoded[sent:], ids[sent:], form)
            if together:
                first = self._target.last_sent - together + 1
            else:
                together = 1
                try:
                    before = deliveries[sent] if deliveries else 0
                    message = self._conversion.convert(Message.decode(encoded[sent], trusted=True), ids[sent], before)
                except IllegalState as error:
                    self._refuse(part.part(sent, sent + 1), error)
                    sent, refused = sent + 1, refused + 1
                    continue
                first = self._target.send(message)
            self._sent.append(_Sent(first, part.part(sent, sent + together)))
            sent += together
        self.unconfirmed += count - refused
        self._counts.forwarded += count - refused
        return _cost_bytes(part)

    def deliver_large(self, consumer_id: int, message: LargeMessage, delivery_count: int) -> int:
        """Announce a large message to the target. Its body is not counted against the window; the rest is, with its
        last piece: pieces are delivered only while the consumer has credit, and the window may be a single message.
        """
        reference = MessageReference(message.message_id, message.priority, 0, 0, len(message.header), False, None)
        part = References((reference,))
        try:
            large = self._conversion.convert(message, message.message_id, delivery_count - 1)
        except IllegalState as error:
            self._refused_large = part, error
            return 0
        assert isinstance(large, LargeMessage)
        self._large_id = self._target.begin_large(large)
        self._sent.append(_Sent(self._large_id, part))
        self.unconfirmed += 1
        self._counts.forwarded += 1
        return 0

    def deliver_piece(self, consumer_id: int, piece: bytes, continues: bool) -> int:
        """The next piece of the large message; the target's credit limits it."""
        if self._refused_large is not None:
            if continues:
                return 0
            refused, self._refused_large = self._refused_large, None
            self._refuse(*refused)
            return _cost_bytes(refused[0])
        # the target may confirm a message with its last piece
        last = self._sent[-1].part
        if not continues:
            self._large_id = 0
        self._target.send_piece(piece, continues)
        return 0 if continues else _cost_bytes(last)

    def disconnect_consumer(self, consumer_id: int) -> None:
        """Called when the queue was deleted, or the file of a large message that is under way cannot be read."""
        self._ended("the consumer of the bridge was ended")

    def kill_connection(self, reason: str) -> None:
        """Slow consumers are ended."""
        self._ended(reason)

    def internal_error(self, bug: Exception) -> None:
        """An internal error occurred in a delivery."""
        log.error("bridge stopped: internal error", extra={"bridge": self._configuration.name}, exc_info=bug)
        self._ended(f"internal error: {bug!r}")

    def operation_failed(self, error: BrokerError) -> None:
        """A message that the target has could not be removed here; it is sent again after the next activation."""
        log.error("bridge", extra={"bridge": self._configuration.name, "error": str(error)})

    def forced_delivery(self, consumer_id: int, sequence: int) -> None:
        """Fail: a bridge does not ask for forced deliveries."""

    def producer_credits(self, address: str, credit_bytes: int) -> None:
        """Fail: a bridge does not send to its own node."""

    def producer_credits_refused(self, address: str, credit_bytes: int) -> None:
        """Fail: a bridge does not send to its own node."""
