"""The consuming side of a channel: consumers by their tags, deliveries by theirs, and how they are settled.

Delivery tags count the deliveries of a channel. An acknowledgement settles one of them, or all up to one, of every
consumer of the channel. In a transacted channel settlements take effect with the commit; a rollback makes the
deliveries outstanding again, as RabbitMQ does.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, NotAuthorized
from understudy.kernel.amqp091 import DeliveryFrame, run_deliveries
from understudy.limits import AMQP091_CONSUMERS_MAX
from understudy.message import LargeMessage, Message
from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.messages import Publish, body_of, fitting, large_list, to_delivery
from understudy.protocols.amqp091.output import ChannelOutput
from understudy.protocols.amqp091.prefetch import ConsumerPrefetch, OneMessage, OneSettledMessage, Prefetch, Unlimited
from understudy.protocols.amqp091.unacknowledged import DeliveredRange, Unacknowledged
from understudy.routing.queues.queue import Queue
from understudy.session.outcomes import ACCEPTED, REJECTED, Outcome, modified
from understudy.session.session import ServerSession
from understudy.store.messages.reference import Part, RunSlice
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import OVERHEAD_BYTES
from understudy.wire.amqp091.layout import Method
from understudy.wire.amqp091.methods import BasicConsume, BasicDeliver, BasicGet, BasicGetEmpty, BasicGetOk
from understudy.wire.amqp091.tables import encode_short

#: A returned message is marked as redelivered, and counts for x-delivery-limit.
RETURNED = modified(delivery_failed=True)
#: Bytes of a header frame beside its property list.
_HEADER_BYTES = OVERHEAD_BYTES + 12


class Settlement(Enum):
    """Ways in which a client settles deliveries."""

    ACCEPT = auto()
    REJECT = auto()
    RETURN = auto()


@dataclass(slots=True)
class _ConsumerOfChannel:
    """A consumer, or a basic.get that is under way."""

    tag: str
    """Consumer tag; empty for a basic.get."""
    queue: Queue
    flow: ConsumerPrefetch | Unlimited | OneMessage
    frame: DeliveryFrame | None = None
    """Values of the frames of its deliveries; None: those of basic.get, which are made one by one."""


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
        self._unacknowledged = Unacknowledged()
        self._deferred: list[tuple[Settlement, list[DeliveredRange]]] = []
        """Settlements of the open transaction."""

    @property
    def tags(self) -> Iterable[str]:
        """Tags of all consumers."""
        return self._by_tag

    @property
    def unacknowledged_count(self) -> int:
        """Number of deliveries that are not settled, those that an open transaction settles left out."""
        return len(self._unacknowledged)

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

    def consume(self, method: BasicConsume, queue: Queue, tag: str) -> None:
        """Make a consumer.

        Raises:
            NotAuthorized: it may not consume, or another consumer reads the queue alone.
            Amqp091Error: PRECONDITION_FAILED: an argument that cannot be used.
        """
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
            flow = ConsumerPrefetch(self.prefetch, self._prefetch_of_consumer, alone=method.exclusive)
        self._next_id += 1
        self._session.consumers.create(self._next_id, queue.name, priority=priority, flow=flow)
        frame = DeliveryFrame(self._output.number, self._link.peer.frame_max, encode_short(tag))
        self._by_id[self._next_id] = _ConsumerOfChannel(tag, queue, flow, frame)
        self._by_tag[tag] = self._next_id

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
        return consumer.tag

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
        if isinstance(part, RunSlice):
            return self._deliver_rows(consumer_id, part)
        sent = 0
        for reference in part:
            message = part.shown or reference.message
            assert message is not None
            sent += self._deliver(consumer_id, message, reference.delivery_count)
        return sent

    def _deliver_rows(self, consumer_id: int, part: RunSlice) -> int:
        """Send rows of a run: those that are of this protocol together, the others one by one."""
        consumer, run = self._by_id[consumer_id], part.run
        sent, row = 0, part.begin
        while row < part.end:
            begin = row
            if consumer.frame is not None:
                frames, row = run_deliveries(
                    run, begin, part.end, consumer.frame, self._last_tag + 1, part.deliveries > 1
                )
            if row > begin:
                self._output.send_frames(frames)
                sent += len(frames)
                if not consumer.flow.settles:
                    first = begin - part.begin
                    self._unacknowledged.add(self._last_tag + 1, consumer_id, part.ids[first : first + row - begin])
                self._last_tag += row - begin
            if row < part.end:
                message = Message.decode(run.encoded(row), trusted=True)
                sent += self._deliver(consumer_id, message, part.deliveries)
                row += 1
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
            self._unacknowledged.add(tag, consumer_id, range(message.message_id, message.message_id + 1))
        redelivered = delivery_count > 1
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
        if multiple and not tag:
            taken = self._unacknowledged.take_all()
        else:
            # also with ``multiple`` an unknown tag is refused when earlier deliveries are outstanding, as in RabbitMQ
            taken = self._unacknowledged.take_through(tag) if multiple else self._unacknowledged.take(tag)
            if not taken:
                raise names.refused(f"unknown delivery tag {tag}")
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
        self._unacknowledged.restore([each for _, taken in deferred for each in taken])

    def recover(self) -> None:
        """Return every outstanding delivery to its queue."""
        self._apply(Settlement.RETURN, self._unacknowledged.take_all())

    def _apply(self, settlement: Settlement, taken: list[DeliveredRange]) -> None:
        by_consumer: dict[int, list[DeliveredRange]] = {}
        for each in taken:
            by_consumer.setdefault(each.consumer_id, []).append(each)
        outcome = {Settlement.ACCEPT: ACCEPTED, Settlement.REJECT: REJECTED, Settlement.RETURN: RETURNED}[settlement]
        for consumer_id, ranges in by_consumer.items():
            self._settle_of(consumer_id, ranges, outcome)
        if by_consumer:
            self._session.consumers.resume_deliveries()

    def _settle_of(self, consumer_id: int, ranges: list[DeliveredRange], outcome: Outcome) -> None:
        session = self._session
        consumer = session.consumers.by_id.get(consumer_id)
        if consumer is None:
            # its queue was deleted, with its messages
            return
        first = next(iter(consumer.delivering), None)
        if outcome is ACCEPTED and first == ranges[0].ids[0]:
            # deliveries are acknowledged in their order, so these are the first ones of the consumer
            session.acknowledge(consumer_id, ranges[-1].ids[-1])
        else:
            for each in ranges:
                for message_id in each.ids:
                    session.settle(consumer_id, message_id, outcome)
        flow = consumer.flow
        if isinstance(flow, ConsumerPrefetch):
            flow.settled(sum(len(each.ids) for each in ranges))
        session.consumers.forget_retired(consumer)
        self._forget(consumer_id)
