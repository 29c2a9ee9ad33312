"""The consuming side of a channel: consumers by their tags, deliveries by theirs, and how they are settled.

Delivery tags count the deliveries of a channel. An acknowledgement settles one of them, or all up to one, of every
consumer of the channel. In a transacted channel settlements take effect with the commit; a rollback makes the
deliveries outstanding again, as RabbitMQ does.

In a session (ADR 0195) deliveries outlive their connection. Bits 48 to 62 of a tag are its generation, which rises when
outstanding deliveries are lost: acknowledgements of an earlier one are counted and ignored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, MessageUnreadable, NotAuthorized
from understudy.kernel.amqp091 import DeliveryFrame, run_deliveries
from understudy.limits import ACKNOWLEDGEMENT_REST_MS, AMQP091_CONSUMERS_MAX
from understudy.message import LargeMessage, Message
from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.messages import (
    Publish,
    fitting,
    is_stored_otherwise,
    large_list,
    to_delivery,
    whole_content,
)
from understudy.protocols.amqp091.output import ChannelOutput
from understudy.protocols.amqp091.prefetch import (
    ConsumerPrefetch,
    OneMessage,
    OneSettledMessage,
    Overdue,
    Prefetch,
    Unlimited,
)
from understudy.protocols.amqp091.resumption.kept_consumer import KeptConsumer
from understudy.protocols.amqp091.unacknowledged import DeliveredRange, Unacknowledged
from understudy.routing.queues.queue import Queue
from understudy.session.outcomes import ACCEPTED, Outcome, modified
from understudy.session.session import ServerSession
from understudy.store.messages.reference import MessageReference, Part, RunSlice
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import HEADER_FRAME_BYTES, OVERHEAD_BYTES
from understudy.wire.amqp091.layout import Method
from understudy.wire.amqp091.methods import BasicConsume, BasicDeliver, BasicGet, BasicGetEmpty, BasicGetOk
from understudy.wire.amqp091.tables import encode_short

#: A returned message is marked as redelivered, and counts for x-delivery-limit.
RETURNED = modified(delivery_failed=True)
#: Bits of a delivery tag below its generation.
GENERATION_SHIFT: Final = 48
#: Consumers that were cancelled and of which the status of a channel tells, the newest ones.
_CANCELLED_MAX: Final = 100


@dataclass(slots=True)
class _ConsumerOfChannel:
    """A consumer, or a basic.get that is under way."""

    tag: str
    """Consumer tag; empty for a basic.get."""
    queue: Queue
    flow: ConsumerPrefetch | Unlimited | OneMessage
    kept: KeptConsumer | None = None
    """Description of a consumer that its client may find again; None: it ends with the connection."""
    frame: DeliveryFrame | None = None
    """Values of the frames of its deliveries; None: those of basic.get, which are made one by one."""


def _announcement(
    link: ConnectionLink, consumer: _ConsumerOfChannel, message: Message, tag: int, *, redelivered: bool
) -> tuple[Method, bytes]:
    """Method and property list of a delivery."""
    queue, list_bytes_max = consumer.queue, _property_bytes_max(link)
    name = queue.name.removeprefix(link.peer.host)
    if isinstance(message, LargeMessage) and not is_stored_otherwise(message):
        delivery = large_list(message, name, list_bytes_max)
    else:
        delivery = to_delivery(message, name, list_bytes_max)
    if consumer.tag:
        method = BasicDeliver(consumer.tag, tag, redelivered, delivery.exchange, delivery.routing_key)
        return method, delivery.properties
    waiting = len(queue.pending)
    return BasicGetOk(tag, redelivered, delivery.exchange, delivery.routing_key, waiting), delivery.properties


def _property_bytes_max(link: ConnectionLink) -> int:
    """Longest property list that is delivered with its headers. Bytes. The payload may have the size of a frame, as it
    may when it is published: else the headers of a message that was accepted would be left out.
    """
    return link.peer.frame_max + OVERHEAD_BYTES - HEADER_FRAME_BYTES


def _frame_of(channel: int, link: ConnectionLink, tag: str) -> DeliveryFrame:
    return DeliveryFrame(channel, link.peer.frame_max, encode_short(tag))


class ChannelDeliveries:
    """Consumers and deliveries of one channel."""

    def __init__(self, link: ConnectionLink, session: ServerSession, output: ChannelOutput) -> None:
        self._link = link
        self._session = session
        self._output = output
        self.prefetch = Prefetch()
        self._overdue = Overdue(link.services.options.amqp091.acknowledgement_timeout_ms)
        self.prefetch_count = 0
        """Limit of basic.qos for the next consumer."""
        self._by_id: dict[int, _ConsumerOfChannel] = {}
        """Consumers, also those that were cancelled and have deliveries."""
        self._by_tag: dict[str, int] = {}
        self._next_id = 0
        self.last_tag = 0
        """Tag of the last delivery; without one the generation with the number 0."""
        self._unacknowledged = Unacknowledged()
        self.deferred: list[tuple[Outcome, list[DeliveredRange]]] = []
        """Settlements of the open transaction."""
        self.keeps = False
        """Whether consumers and deliveries may outlive the connection."""
        self.cancelled: dict[str, tuple[KeptConsumer, str]] = {}
        """Consumers that the broker has cancelled, with the reason, by tag; only if ``keeps``."""
        self.id_before_activation = 0
        """Messages up to this id may have been delivered before a failover; 0: there was none."""
        self._known_tag = 0
        """Last tag before the last resumption. Settlements up to it that find nothing are ignored."""
        self._getting: tuple[int, Callable[[bool], None]] | None = None
        """Id of the consumer of a basic.get whose answer waits for the socket or for a search of the queue, and the
        function that answers it; None: there is none."""
        self._again: deque[int] = deque()
        """Tags of deliveries that are sent again, before any other."""

    @property
    def tags(self) -> Iterable[str]:
        """Tags of all consumers."""
        return self._by_tag

    @property
    def unacknowledged_count(self) -> int:
        """Number of deliveries that are not settled, those that an open transaction settles left out."""
        return len(self._unacknowledged)

    def check(self, now_ms: int) -> None:
        """Check for a delivery that was not settled in its time (RabbitMQ, consumer_timeout).

        Raises:
            Amqp091Error: PRECONDITION_FAILED: there is one.
        """
        if self._overdue.found(now_ms, self.last_tag, self._unacknowledged.first_tag):
            raise names.refused(
                f"a delivery was not acknowledged within {self._overdue.timeout_ms} ms (acknowledgementTimeout of the "
                "acceptor)"
            )

    def limit(self, count: int, *, for_channel: bool) -> None:
        """Take the limit of basic.qos: for the channel, or for consumers that are made from now on."""
        if for_channel:
            self.prefetch.set(count)
            self._session.consumers.resume_deliveries()
        else:
            self.prefetch_count = count

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
        arguments = queue.configuration.arguments
        if method.exclusive and arguments is not None and arguments.single_active_consumer:
            raise NotAuthorized(f"queue {method.queue!r} chooses its consumer itself (x-single-active-consumer)")
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
        frame = _frame_of(self._output.number, self._link, tag)
        self._by_id[self._next_id] = _ConsumerOfChannel(tag, queue, flow, kept, frame)
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
        if self._getting is not None and self._getting[0] == consumer_id and not self._output.in_large:
            # nothing was found until now, and nothing more can be
            self._getting[1](False)
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

    def get(self, method: BasicGet, queue: Queue, answered: Callable[[], None]) -> None:
        """Deliver one message, or say that there is none.

        Args:
            method: The request.
            queue: Queue that is read.
            answered: Called, now or later, when the answer is sent.

        Raises:
            NotAuthorized, MaxConsumersExceeded: nothing is delivered.
        """
        self._next_id += 1
        consumer_id = self._next_id
        flow = OneSettledMessage() if method.no_ack else OneMessage()
        self._by_id[consumer_id] = _ConsumerOfChannel("", queue, flow)

        def done(found: bool) -> None:
            self._getting = None
            if not found:
                self._output.send(BasicGetEmpty())
            self._forget(consumer_id)
            answered()

        self._getting = consumer_id, done
        try:
            self._session.consumers.fetch(consumer_id, queue, flow, done)
        except BrokerError:
            self._getting = None
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
        sent, row, ids = 0, part.begin, part.ids
        # rows before this one may have been delivered before a failover
        fresh = part.begin + bisect_right(ids, self.id_before_activation) if self.id_before_activation else part.begin
        while row < part.end:
            begin = row
            if consumer.frame is not None:
                redelivered = part.deliveries > 1 or row < fresh
                end = fresh if row < fresh else part.end
                frames, row = run_deliveries(run, begin, end, consumer.frame, self.last_tag + 1, redelivered)
            if row > begin:
                self._output.send_frames(frames)
                sent += len(frames)
                if not consumer.flow.settles:
                    first = begin - part.begin
                    self._unacknowledged.add(self.last_tag + 1, consumer_id, ids[first : first + row - begin])
                self.last_tag += row - begin
            if row < part.end:
                message = Message.decode(run.encoded(row), trusted=True)
                sent += self._deliver(consumer_id, message, part.deliveries)
                row += 1
        return sent

    def _deliver(self, consumer_id: int, message: Message, delivery_count: int) -> int:
        method, properties = self._next(consumer_id, message, delivery_count)
        return self._send_whole(message, method, properties, message.body)

    def _send_whole(self, message: Message, method: Method, properties: bytes, stored: bytes) -> int:
        """Send a message whose whole body is known. Returns the bytes of the frames."""
        properties, body = whole_content(message, properties, stored, _property_bytes_max(self._link))
        return self._output.send_content(method, properties, body)

    def deliver_large(self, consumer_id: int, message: LargeMessage, delivery_count: int) -> int:
        """Send all of a large message but its body, or nothing if the size of its content is known only when all of the
        body has been read. Returns the bytes of the frames.
        """
        method, properties = self._next(consumer_id, message, delivery_count)
        if is_stored_otherwise(message):
            self._output.collect_large(partial(self._send_whole, message, method, properties))
            return 0
        return self._output.begin_large(method, properties, message.large.size_bytes)

    def _next(self, consumer_id: int, message: Message, delivery_count: int) -> tuple[Method, bytes]:
        """Announce the next delivery, which is outstanding from now on. Returns its method and property list."""
        consumer = self._by_id[consumer_id]
        redelivered = delivery_count > 1 or message.message_id <= self.id_before_activation
        announced = _announcement(self._link, consumer, message, self.last_tag + 1, redelivered=redelivered)
        self.last_tag += 1
        if not consumer.flow.settles:
            self._unacknowledged.add(self.last_tag, consumer_id, range(message.message_id, message.message_id + 1))
        return announced

    def deliver_reply(self, publish: Publish, tag: str) -> None:
        """Send a message that no queue has: a reply."""
        self.last_tag += 1
        method = BasicDeliver(tag, self.last_tag, False, publish.exchange, publish.routing_key)
        # the requester may have agreed to smaller frames than the publisher of the reply
        properties = fitting(publish.encoded, _property_bytes_max(self._link))
        self._output.send_content(method, properties, publish.body)

    # --- settling --------------------------------------------------------------------------------

    def settle(self, tag: int, outcome: Outcome, *, multiple: bool, transacted: bool) -> None:
        """Settle one delivery, or all up to one.

        Args:
            tag: Delivery tag; 0 with ``multiple``: all.
            outcome: What becomes of them.
            multiple: Whether earlier deliveries are settled too.
            transacted: Whether the commit settles them.

        Raises:
            Amqp091Error: PRECONDITION_FAILED: there is no such delivery.
        """
        if multiple and not tag:
            taken = self._unacknowledged.take_all()
        else:
            # also with ``multiple`` an unknown tag is refused when earlier deliveries are outstanding, as in RabbitMQ
            take = self._unacknowledged.take_through if multiple else self._unacknowledged.take
            taken = take(tag)
            if not taken:
                if not self.is_of_earlier(tag):
                    raise names.refused(f"unknown delivery tag {tag}")
                self._link.services.shared.connections.stale_acknowledgements += 1
                taken = self._unacknowledged.take_before(tag) if multiple else []
        self._settle(outcome, taken, transacted=transacted)

    def settle_each(self, tags: Sequence[int], outcome: Outcome, *, transacted: bool) -> int:
        """Settle single deliveries together, up to the first one that ``settle`` would not find.

        Args:
            tags: Delivery tags.
            outcome: What becomes of them.
            transacted: Whether the commit settles them.

        Returns:
            How many were settled.
        """
        if outcome is ACCEPTED:
            taken = self._unacknowledged.take_each(tags)
            self._settle(outcome, taken, transacted=transacted)
            return sum([len(each.ids) for each in taken])
        # dead letters come in the order of the client
        for count, tag in enumerate(tags):
            taken = self._unacknowledged.take(tag)
            if not taken:
                return count
            self._settle(outcome, taken, transacted=transacted)
        return len(tags)

    def _settle(self, outcome: Outcome, taken: list[DeliveredRange], *, transacted: bool) -> None:
        if not transacted:
            context = self._session.state.office.store.context
            before = context.appended
            self._apply(outcome, taken)
            # an acknowledgement has no answer, but one of a kept session is asked for after a failover
            rests = outcome is ACCEPTED and context.appended > before and not self.keeps
            if rests and context.resting.add_for_a_time(before, context.appended):
                self._session.state.office.timers.call_later(ACKNOWLEDGEMENT_REST_MS, context.resting.finish)
        elif taken:
            self.deferred.append((outcome, taken))

    def settle_deferred(self) -> None:
        """Settle what the open transaction has settled; its commit follows."""
        deferred, self.deferred = self.deferred, []
        for outcome, taken in deferred:
            self._apply(outcome, taken)

    def restore_deferred(self) -> None:
        """The transaction is rolled back: its deliveries are outstanding again."""
        deferred, self.deferred = self.deferred, []
        if not deferred:
            return
        self._unacknowledged.restore([each for _, taken in deferred for each in taken])

    def is_of_earlier(self, tag: int) -> bool:
        """Whether a tag is of another generation, or was sent before the client has resumed the channel."""
        return self.keeps and (0 < tag <= self._known_tag or tag >> GENERATION_SHIFT != self.generation)

    # --- without a connection --------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Generation of the next tag."""
        return self.last_tag >> GENERATION_SHIFT

    @property
    def kept(self) -> list[KeptConsumer]:
        """Descriptions of the consumers."""
        found = [self._by_id[consumer_id].kept for consumer_id in self._by_tag.values()]
        return [each for each in found if each is not None]

    @property
    def outstanding(self) -> list[int]:
        """Tags of the deliveries that are not settled, in order."""
        return [tag for each in self._unacknowledged for tag in range(each.first_tag, each.end_tag)]

    def end_consumers(self, reason: str) -> None:
        """End all consumers of a channel that was resumed."""
        for tag, consumer_id in list(self._by_tag.items()):
            kept = self._by_id[consumer_id].kept
            self.cancel(tag)
            if kept is not None:
                self.note_cancelled(kept, reason)

    def begin(self, generation: int) -> None:
        """Begin a generation."""
        self.last_tag = generation << GENERATION_SHIFT

    def move(self, link: ConnectionLink) -> None:
        """Use another connection, whose frames may have another size."""
        self._link = link
        for consumer in self._by_id.values():
            if consumer.frame is not None:
                consumer.frame = _frame_of(self._output.number, self._link, consumer.tag)

    def detach(self) -> None:
        """Stop deliveries: the connection is gone."""
        consumers = self._session.consumers
        if self._getting is not None:
            # the answer would reach another connection
            consumer_id, _ = self._getting
            self._getting = None
            del self._by_id[consumer_id]
            consumers.end(consumers.with_id(consumer_id), failed=True)
        consumers.stop()
        for consumer in consumers.by_id.values():
            consumer.give_up_large()
        self._again.clear()

    def resume(self, seen_tag: int) -> None:
        """Prepare the next connection: ``send_again`` sends every delivery above a tag, or returns it to its queue.

        Args:
            seen_tag: Tag of the last delivery that the client has seen.
        """
        self._known_tag = self.last_tag
        for each in self._unacknowledged:
            self._again.extend(range(max(each.first_tag, seen_tag + 1), each.end_tag))

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
        returned: list[DeliveredRange] = []
        while self._again and self._link.writable():
            tag = self._again.popleft()
            each = self._unacknowledged.find(tag)
            if each is None:
                # settled meanwhile, with all others
                continue
            reference = references.get(each.consumer_id, {}).get(each.message_id(tag))
            if not self._sent_again(tag, each.consumer_id, reference):
                returned += self._unacknowledged.take(tag)
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
        method, properties = _announcement(self._link, consumer, message, tag, redelivered=True)
        self._send_whole(message, method, properties, message.body)
        return True

    def _return(self, taken: list[DeliveredRange], *, delay_redelivery: bool = False) -> None:
        """Return deliveries to their queues, outside of a transaction.

        Args:
            taken: The deliveries.
            delay_redelivery: Whether they wait for the redelivery delay of the address settings.
        """
        for consumer_id, ranges in _by_consumer(taken).items():
            ids = chain.from_iterable(each.ids for each in ranges)
            consumer = self._session.give_back_of(consumer_id, ids, delay_redelivery=delay_redelivery)
            if consumer is not None:
                if isinstance(consumer.flow, ConsumerPrefetch):
                    consumer.flow.settled(sum(len(each.ids) for each in ranges))
                self._session.consumers.forget_retired(consumer)
            self._forget(consumer_id)

    def lose(self, generation: int) -> None:
        """Return everything outstanding to its queues and begin a generation. The open transaction was rolled back
        before.
        """
        self.restore_deferred()
        taken = self._unacknowledged.take_all()
        self._again.clear()
        self._return(taken)
        self.begin(generation)

    def recover(self) -> None:
        """Return every outstanding delivery to its queue, also in a transaction at once, as RabbitMQ does. Deliveries
        that the open transaction has settled stay with it.
        """
        self._return(self._unacknowledged.take_all(), delay_redelivery=True)
        self._session.consumers.resume_deliveries()

    def _apply(self, outcome: Outcome, taken: list[DeliveredRange]) -> None:
        for consumer_id, ranges in _by_consumer(taken).items():
            self._settle_of(consumer_id, ranges, outcome)
        if taken:
            self._session.consumers.resume_deliveries()

    def _settle_of(self, consumer_id: int, ranges: list[DeliveredRange], outcome: Outcome) -> None:
        session = self._session
        consumer = session.consumers.by_id.get(consumer_id)
        if consumer is None:
            # its queue was deleted, with its messages
            return
        if outcome is ACCEPTED:
            session.accept(consumer_id, [each.ids for each in ranges])
        else:
            for each in ranges:
                for message_id in each.ids:
                    session.settle(consumer_id, message_id, outcome)
        flow = consumer.flow
        if isinstance(flow, ConsumerPrefetch):
            flow.settled(sum([len(each.ids) for each in ranges]))
        if consumer.retired:
            session.consumers.forget_retired(consumer)
            self._forget(consumer_id)


def _by_consumer(taken: Iterable[DeliveredRange]) -> dict[int, list[DeliveredRange]]:
    found: dict[int, list[DeliveredRange]] = {}
    for each in taken:
        found.setdefault(each.consumer_id, []).append(each)
    return found
