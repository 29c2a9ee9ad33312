"""The consuming side of a channel: consumers by their tags, deliveries by theirs, and how they are settled.

Delivery tags count the deliveries of a channel. An acknowledgement settles one of them, or all up to one, of every
consumer of the channel. In a transacted channel settlements take effect with the commit; a rollback makes the
deliveries outstanding again, as RabbitMQ does.

In a session (ADR 0195) deliveries outlive their connection. Bits 48 to 62 of a tag are its generation, which rises when
outstanding deliveries are lost: acknowledgements of an earlier one are counted and ignored.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, MessageUnreadable, NotAuthorized
from understudy.limits import AMQP091_CONSUMERS_MAX
from understudy.message import LargeMessage, Message
from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.messages import Publish, body_of, fitting, large_list, to_delivery
from understudy.protocols.amqp091.output import ChannelOutput
from understudy.protocols.amqp091.prefetch import ConsumerPrefetch, OneMessage, OneSettledMessage, Prefetch, Unlimited
from understudy.protocols.amqp091.resumption.kept_consumer import KeptConsumer
from understudy.routing.queues.queue import Queue
from understudy.session.outcomes import ACCEPTED, REJECTED, Outcome, modified
from understudy.session.session import ServerSession
from understudy.store.messages.reference import MessageReference, Part
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import OVERHEAD_BYTES
from understudy.wire.amqp091.layout import Method
from understudy.wire.amqp091.methods import BasicConsume, BasicDeliver, BasicGet, BasicGetEmpty, BasicGetOk

#: A returned message is marked as redelivered, and counts for x-delivery-limit.
RETURNED = modified(delivery_failed=True)
#: Bytes of a header frame beside its property list.
_HEADER_BYTES = OVERHEAD_BYTES + 12
#: Bits of a delivery tag below its generation.
GENERATION_SHIFT: Final = 48
#: Consumers that were cancelled and of which the status of a channel tells, the newest ones.
_CANCELLED_MAX: Final = 100


class Settlement(Enum):
    """Ways in which a client settles deliveries."""

    ACCEPT = auto()
    REJECT = auto()
    RETURN = auto()


class _Unacknowledged(NamedTuple):
    """A delivery that is not settled."""

    consumer_id: int
    message_id: int


@dataclass(slots=True)
class _ConsumerOfChannel:
    """A consumer, or a basic.get that is under way."""

    tag: str
    """Consumer tag; empty for a basic.get."""
    queue: Queue
    flow: ConsumerPrefetch | Unlimited | OneMessage
    kept: KeptConsumer | None = None
    """Description of a consumer that its client may find again; None: it ends with the connection."""


class ChannelDeliveries:
    """Consumers and deliveries of one channel."""

    def __init__(self, link: ConnectionLink, session: ServerSession, output: ChannelOutput) -> None:
        self._link = link
        self._session = session
        self._output = output
        self.prefetch = Prefetch()
        self._prefetch_of_consumer = 0
        self._by_id: dict[int, _ConsumerOfChannel] = {}
        """Consumers, also those that were cancelled and have deliveries."""
        self._by_tag: dict[str, int] = {}
        self._next_id = 0
        self._last_tag = 0
        self._unacknowledged: dict[int, _Unacknowledged] = {}
        """Outstanding deliveries by their tag, in order."""
        self._deferred: list[tuple[Settlement, list[tuple[int, _Unacknowledged]]]] = []
        """Settlements of the open transaction."""
        self.keeps = False
        """Whether consumers and deliveries may outlive the connection."""
        self.cancelled: dict[str, tuple[KeptConsumer, str]] = {}
        """Consumers that the broker has cancelled, with the reason, by tag; only if ``keeps``."""
        self.id_before_activation = 0
        """Messages up to this id may have been delivered before a failover; 0: there was none."""
        self._known_tag = 0
        """Last tag before the last resumption. Settlements up to it that find nothing are ignored."""
        self._again: deque[int] = deque()
        """Tags of deliveries that are sent again, before any other."""
        self._packed = array("Q")
        """The outstanding deliveries while there is no connection: tag, consumer id, message id of each."""

    @property
    def tags(self) -> Iterable[str]:
        """Tags of all consumers."""
        return self._by_tag

    @property
    def unacknowledged_count(self) -> int:
        """Number of deliveries that are not settled, those that an open transaction settles left out."""
        return len(self._unacknowledged) + len(self._packed) // 3

    def limit(self, count: int, *, for_channel: bool) -> None:
        """Take the limit of basic.qos: for the channel, or for consumers that are made from now on."""
        if for_channel:
            self.prefetch.set(count)
            self._session.consumers.resume_deliveries()
        else:
            self._prefetch_of_consumer = count

    # --- consumers -------------------------------------------------------------------------------

    def check_tag(self, tag: str) -> None:
        """Check the tag of a new consumer.

        Raises:
            Amqp091Error: NOT_ALLOWED: the tag is taken. PRECONDITION_FAILED: there are too many consumers.
        """
        if tag in self._by_tag:
            raise Amqp091Error(ReplyCode.NOT_ALLOWED, f"consumer tag {tag!r} is taken")
        if len(self._by_tag) >= AMQP091_CONSUMERS_MAX:
            raise names.refused(f"{len(self._by_tag)} consumers of a channel, the limit")

    def consume(self, method: BasicConsume, queue: Queue, tag: str, prefetch: int) -> None:
        """Make a consumer.

        Args:
            method: The request.
            queue: Queue of the consumer.
            tag: Consumer tag, which the broker may have chosen.
            prefetch: Limit of basic.qos when it was asked for (``prefetch_count``).

        Raises:
            NotAuthorized: it may not consume, or another consumer reads the queue alone.
            Amqp091Error: PRECONDITION_FAILED: an argument that cannot be used.
        """
        kept = None
        if self.keeps:
            kept = KeptConsumer.of(method, tag, queue.name.removeprefix(self._link.peer.host), prefetch)
        priority = method.arguments.get("x-priority", 0)
        if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) >= 1 << 31:
            raise names.refused("x-priority is no number")
        if method.exclusive and queue.consumers.count:
            raise NotAuthorized(f"queue {method.queue!r} has consumers already")
        if any(getattr(each.flow, "alone", False) for each in queue.consumers):
            raise NotAuthorized(f"another consumer reads queue {method.queue!r} alone")
        flow: ConsumerPrefetch | Unlimited
        if method.no_ack:
            flow = Unlimited(alone=method.exclusive)
        else:
            flow = ConsumerPrefetch(self.prefetch, prefetch, alone=method.exclusive)
        self._next_id += 1
        self._session.consumers.create(self._next_id, queue.name, priority=priority, flow=flow)
        self._by_id[self._next_id] = _ConsumerOfChannel(tag, queue, flow, kept)
        self._by_tag[tag] = self._next_id
        self.cancelled.pop(tag, None)

    def cancel(self, tag: str) -> None:
        """End a consumer; its deliveries stay to be settled. Does nothing if there is none of this tag."""
        consumer_id = self._by_tag.pop(tag, None)
        if consumer_id is not None:
            self._session.consumers.retire(consumer_id)
            self._forget(consumer_id)

    def disconnected(self, consumer_id: int) -> str | None:
        """The queue of a consumer is gone. Returns its tag; None: it has none."""
        consumer = self._by_id.pop(consumer_id, None)
        if consumer is not None and isinstance(consumer.flow, ConsumerPrefetch):
            consumer.flow.release()
        if consumer is None or self._by_tag.pop(consumer.tag, None) is None:
            return None
        if consumer.kept is not None:
            self.note_cancelled(consumer.kept, "the queue is gone")
        return consumer.tag

    def note_cancelled(self, consumer: KeptConsumer, reason: str) -> None:
        """Tell of a consumer that the broker has cancelled in the status of the channel."""
        self.cancelled[consumer.tag] = consumer, reason
        if len(self.cancelled) > _CANCELLED_MAX:
            del self.cancelled[next(iter(self.cancelled))]

    def get(self, method: BasicGet, queue: Queue) -> None:
        """Deliver one message, or say that there is none. Raises NotAuthorized, MaxConsumersExceeded."""
        self._next_id += 1
        consumer_id = self._next_id
        flow = OneSettledMessage() if method.no_ack else OneMessage()
        self._by_id[consumer_id] = _ConsumerOfChannel("", queue, flow)

        def done(found: bool) -> None:
            if not found:
                self._output.send(BasicGetEmpty())
            self._forget(consumer_id)

        try:
            self._session.consumers.fetch(consumer_id, queue, flow, done)
        except BrokerError:
            del self._by_id[consumer_id]
            raise

    def _forget(self, consumer_id: int) -> None:
        if consumer_id not in self._session.consumers.by_id:
            self._by_id.pop(consumer_id, None)

    # --- deliveries ------------------------------------------------------------------------------

    def deliver(self, consumer_id: int, part: Part) -> int:
        """Send messages to a consumer. Returns the bytes of their frames."""
        sent = 0
        for reference in part:
            message = part.shown or reference.message
            assert message is not None
            sent += self._deliver(consumer_id, message, reference.delivery_count)
        return sent

    def _deliver(self, consumer_id: int, message: Message, delivery_count: int) -> int:
        method, properties = self._announcement(consumer_id, message, delivery_count)
        return self._output.send_content(method, properties, body_of(message))

    def deliver_large(self, consumer_id: int, message: LargeMessage, delivery_count: int) -> int:
        """Send all of a large message but its body. Returns the bytes of the frames."""
        method, properties = self._announcement(consumer_id, message, delivery_count)
        return self._output.begin_large(method, properties, message.large.size_bytes)

    def _announcement(self, consumer_id: int, message: Message, delivery_count: int) -> tuple[Method, bytes]:
        consumer = self._by_id[consumer_id]
        peer, queue = self._link.peer, consumer.queue
        room_bytes = peer.frame_max - _HEADER_BYTES
        name = queue.name.removeprefix(peer.host)
        if isinstance(message, LargeMessage):
            delivery = large_list(message, name, room_bytes)
        else:
            delivery = to_delivery(message, name, room_bytes)
        self._last_tag += 1
        tag = self._last_tag
        if not consumer.flow.settles:
            self._unacknowledged[tag] = _Unacknowledged(consumer_id, message.message_id)
        redelivered = delivery_count > 1 or message.message_id <= self.id_before_activation
        if consumer.tag:
            return (
                BasicDeliver(consumer.tag, tag, redelivered, delivery.exchange, delivery.routing_key),
                delivery.properties,
            )
        waiting = len(queue.pending)
        return BasicGetOk(tag, redelivered, delivery.exchange, delivery.routing_key, waiting), delivery.properties

    def deliver_reply(self, publish: Publish, tag: str) -> None:
        """Send a message that no queue has: a reply."""
        self._last_tag += 1
        method = BasicDeliver(tag, self._last_tag, False, publish.exchange, publish.routing_key)
        # the requester may have agreed to smaller frames than the publisher of the reply
        properties = fitting(publish.encoded, self._link.peer.frame_max - _HEADER_BYTES)
        self._output.send_content(method, properties, publish.body)

    # --- settling --------------------------------------------------------------------------------

    def settle(self, tag: int, settlement: Settlement, *, multiple: bool, transacted: bool) -> None:
        """Settle one delivery, or all up to one.

        Args:
            tag: Delivery tag; 0 with ``multiple``: all.
            settlement: What becomes of them.
            multiple: Whether earlier deliveries are settled too.
            transacted: Whether the commit settles them.

        Raises:
            Amqp091Error: PRECONDITION_FAILED: there is no such delivery.
        """
        unacknowledged = self._unacknowledged
        if tag not in unacknowledged and (tag or not multiple):
            if not self.is_of_earlier(tag):
                # also with ``multiple`` when earlier deliveries are outstanding, as RabbitMQ does
                raise names.refused(f"unknown delivery tag {tag}")
            self._link.services.shared.connections.stale_acknowledgements += 1
            if not multiple:
                return
        if not multiple:
            taken = [(tag, unacknowledged.pop(tag))]
        else:
            taken = []
            for each in unacknowledged:
                if tag and each > tag:
                    break
                taken.append((each, unacknowledged[each]))
            for each, _ in taken:
                del unacknowledged[each]
        if not transacted:
            self._apply(settlement, taken)
        elif taken:
            self._deferred.append((settlement, taken))

    def settle_deferred(self) -> None:
        """Settle what the open transaction has settled; its commit follows."""
        deferred, self._deferred = self._deferred, []
        for settlement, taken in deferred:
            self._apply(settlement, taken)

    def restore_deferred(self) -> None:
        """The transaction is rolled back: its deliveries are outstanding again."""
        deferred, self._deferred = self._deferred, []
        if not deferred:
            return
        for _, taken in deferred:
            self._unacknowledged.update(taken)
        self._unacknowledged = dict(sorted(self._unacknowledged.items()))

    def is_of_earlier(self, tag: int) -> bool:
        """Whether a tag is of another generation, or was sent before the client has resumed the channel."""
        return self.keeps and (0 < tag <= self._known_tag or tag >> GENERATION_SHIFT != self.generation)

    # --- without a connection --------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Generation of the next tag."""
        return self._last_tag >> GENERATION_SHIFT

    @property
    def last_tag(self) -> int:
        """Tag of the last delivery; without one the generation with the number 0."""
        return self._last_tag

    @property
    def prefetch_count(self) -> int:
        """Limit of basic.qos for the next consumer."""
        return self._prefetch_of_consumer

    @property
    def kept(self) -> list[KeptConsumer]:
        """Descriptions of the consumers."""
        found = [self._by_id[consumer_id].kept for consumer_id in self._by_tag.values()]
        return [each for each in found if each is not None]

    @property
    def outstanding(self) -> list[int]:
        """Tags of the deliveries that are not settled, in order."""
        return [*self._unacknowledged, *self._packed[::3]]

    @property
    def nothing_deferred(self) -> bool:
        """Whether the open transaction settles nothing."""
        return not self._deferred

    def end_consumers(self, reason: str) -> None:
        """End all consumers of a channel that was resumed."""
        for tag, consumer_id in list(self._by_tag.items()):
            kept = self._by_id[consumer_id].kept
            self.cancel(tag)
            if kept is not None:
                self.note_cancelled(kept, reason)

    def begin(self, generation: int) -> None:
        """Begin a generation."""
        self._last_tag = generation << GENERATION_SHIFT

    def move(self, link: ConnectionLink) -> None:
        """Use another connection."""
        self._link = link

    def detach(self) -> None:
        """Stop deliveries, and keep those that are outstanding in little memory: the connection is gone."""
        consumers = self._session.consumers
        consumers.stop()
        for consumer in consumers.by_id.values():
            consumer.give_up_large()
        self._again.clear()
        for tag, each in self._unacknowledged.items():
            self._packed.extend((tag, each.consumer_id, each.message_id))
        self._unacknowledged = {}

    def resume(self, seen_tag: int) -> None:
        """Prepare the next connection: ``send_again`` sends every delivery above a tag, or returns it to its queue.

        Args:
            seen_tag: Tag of the last delivery that the client has seen.
        """
        packed, self._packed = self._packed, array("Q")
        for at in range(0, len(packed), 3):
            self._unacknowledged[packed[at]] = _Unacknowledged(packed[at + 1], packed[at + 2])
        self._known_tag = self._last_tag
        self._again.extend(tag for tag in self._unacknowledged if tag > seen_tag)

    def send_again(self) -> None:
        """Send deliveries again as far as the socket takes them; after the last one the consumers go on."""
        consumers = self._session.consumers
        if consumers.started:
            consumers.resume_deliveries()
            return
        references = {
            consumer_id: {each.message_id: each for each in consumer.delivering.values()}
            for consumer_id, consumer in consumers.by_id.items()
        }
        returned: list[tuple[int, _Unacknowledged]] = []
        while self._again and self._link.writable():
            tag = self._again.popleft()
            each = self._unacknowledged.get(tag)
            if each is None:
                # settled meanwhile, with all others
                continue
            reference = references.get(each.consumer_id, {}).get(each.message_id)
            if not self._sent_again(tag, each.consumer_id, reference):
                returned.append((tag, self._unacknowledged.pop(tag)))
        self._return(returned)
        if not self._again:
            consumers.start()

    def _sent_again(self, tag: int, consumer_id: int, reference: MessageReference | None) -> bool:
        """Whether a delivery was sent again; one of basic.get and one of a large message cannot be."""
        consumer = self._by_id.get(consumer_id)
        if consumer is None or not consumer.tag or reference is None:
            return False
        try:
            message = consumer.queue.read(reference)
        except MessageUnreadable:
            return False
        if isinstance(message, LargeMessage):
            return False
        last, self._last_tag = self._last_tag, tag - 1
        method, properties = self._announcement(consumer_id, message, max(reference.delivery_count, 2))
        self._last_tag = last
        self._output.send_content(method, properties, body_of(message))
        return True

    def _return(self, taken: list[tuple[int, _Unacknowledged]]) -> None:
        """Return deliveries to their queues, outside of a transaction."""
        by_consumer: dict[int, list[int]] = {}
        for _, (consumer_id, message_id) in taken:
            by_consumer.setdefault(consumer_id, []).append(message_id)
        for consumer_id, message_ids in by_consumer.items():
            consumer = self._session.give_back_of(consumer_id, message_ids)
            if consumer is not None:
                if isinstance(consumer.flow, ConsumerPrefetch):
                    consumer.flow.settled(len(message_ids))
                self._session.consumers.forget_retired(consumer)
            self._forget(consumer_id)

    def lose(self, generation: int) -> None:
        """Return everything outstanding to its queues and begin a generation. The open transaction was rolled back
        before.
        """
        self.restore_deferred()
        packed, self._packed = self._packed, array("Q")
        taken = [(packed[at], _Unacknowledged(packed[at + 1], packed[at + 2])) for at in range(0, len(packed), 3)]
        taken += self._unacknowledged.items()
        self._unacknowledged = {}
        self._again.clear()
        self._return(taken)
        self.begin(generation)

    def recover(self) -> None:
        """Return every outstanding delivery to its queue."""
        taken = list(self._unacknowledged.items())
        self._unacknowledged.clear()
        self._apply(Settlement.RETURN, taken)

    def _apply(self, settlement: Settlement, taken: list[tuple[int, _Unacknowledged]]) -> None:
        by_consumer: dict[int, list[int]] = {}
        for _, (consumer_id, message_id) in taken:
            by_consumer.setdefault(consumer_id, []).append(message_id)
        outcome = {Settlement.ACCEPT: ACCEPTED, Settlement.REJECT: REJECTED, Settlement.RETURN: RETURNED}[settlement]
        for consumer_id, message_ids in by_consumer.items():
            self._settle_of(consumer_id, message_ids, outcome)
        if by_consumer:
            self._session.consumers.resume_deliveries()

    def _settle_of(self, consumer_id: int, message_ids: list[int], outcome: Outcome) -> None:
        session = self._session
        consumer = session.consumers.by_id.get(consumer_id)
        if consumer is None:
            # its queue was deleted, with its messages
            return
        first = next(iter(consumer.delivering), None)
        if outcome is ACCEPTED and len(message_ids) > 1 and first == message_ids[0]:
            # deliveries are acknowledged in their order, so these are the first ones of the consumer
            session.acknowledge(consumer_id, message_ids[-1])
        else:
            for message_id in message_ids:
                session.settle(consumer_id, message_id, outcome)
        flow = consumer.flow
        if isinstance(flow, ConsumerPrefetch):
            flow.settled(len(message_ids))
        session.consumers.forget_retired(consumer)
        self._forget(consumer_id)
