"""The consumers of one channel: their tags at the broker, their prefetch, and the deliveries that are not settled.

CORE limits a consumer by credits in bytes, which come back when the application takes a message; AMQP 0-9-1 by a number
of messages that are not acknowledged. A window of bytes becomes one message for each KiB, at least two. When all
of these are delivered and the application has taken some without acknowledging them, the consumer is begun once more
under another tag, which has the whole number again, and the former tag ends. Deliveries of a tag that has ended can be
acknowledged. A window of 0 becomes a consumer that is begun for each message.

Not here: which acknowledgement the client sends when, and transactions (``channel``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from understudy.client.amqp091.content import Content
from understudy.client.amqp091.messages import delivery_count, incoming
from understudy.client.amqp091.output import Output
from understudy.dataclass import dataclass
from understudy.errors import LimitExceeded
from understudy.limits import FRAME_BYTES_MAX
from understudy.message import FORCED_DELIVERY, Message
from understudy.properties import Properties
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicReject,
)
from understudy.wire.core.codec import RefusedPacket
from understudy.wire.core.packets import CreateConsumer, DisconnectConsumer, ReceiveMessage

#: Bytes of a window for one message of the prefetch.
_BYTES_OF_MESSAGE: Final = 1024
_PREFETCH_MAX: Final = 65_534
#: Credit of a consumer with a window of 0, which asks for one message.
_ONE_MESSAGE: Final = 1


@dataclass(slots=True, eq=False)
class ConsumerPart:
    """One consumer at the broker."""

    consumer_id: int
    queue: str
    priority: int
    tag: str = ""
    """Consumer tag; empty while it is not begun."""
    window_bytes: int | None = None
    """The first credits, which are the window; -1: not limited; None: it has no credits yet."""
    asked: bool = False
    """Whether a consumer with a window of 0 waits for a message."""
    outstanding: int = 0
    """Deliveries of the present tag that are not settled."""
    took: bool = False
    """Whether the application has taken messages since the present tag was begun."""

    @property
    def one_by_one(self) -> bool:
        """Whether each message is asked for."""
        return self.window_bytes == _ONE_MESSAGE

    @property
    def prefetch(self) -> int:
        """Messages that the present tag may have unsettled; 0: not limited."""
        if self.window_bytes is None or self.window_bytes < 0:
            return 0
        if self.one_by_one:
            return 1
        return max(2, min(_PREFETCH_MAX, self.window_bytes // _BYTES_OF_MESSAGE) // 2 * 2)

    @property
    def least_bytes(self) -> int:
        """Credits that a message costs at least, so that they come back before the prefetch is used up."""
        if self.window_bytes is None or self.window_bytes <= _ONE_MESSAGE:
            return 1
        return -(-self.window_bytes // self.prefetch)

    @property
    def wanted(self) -> bool:
        """Whether messages shall come."""
        return self.asked if self.one_by_one else self.window_bytes is not None


@dataclass(slots=True)
class _Delivery:
    """A delivery that is not settled."""

    consumer: ConsumerPart
    consumer_tag: str


class ConsumerParts:
    """All consumers of one channel."""

    def __init__(
        self, out: Output, channel_id: int, number: int, limit: Callable[[int], None], *, no_ack: bool
    ) -> None:
        """Args:
        out: Output of the connection.
        channel_id: Number of the channel in packets.
        number: Number of the channel at the broker.
        limit: Sets the prefetch of the next consumer.
        no_ack: Whether messages are settled when they are sent.
        """
        self._out = out
        self._channel_id = channel_id
        self._number = number
        self._limit = limit
        self.no_ack = no_ack
        self._by_id: dict[int, ConsumerPart] = {}
        self._by_tag: dict[str, ConsumerPart] = {}
        self._unsettled: dict[int, _Delivery] = {}
        self._begun = 0
        self._ending: set[str] = set()
        """Tags whose end the broker has not confirmed."""
        self._after_ends: list[Callable[[], None]] = []
        self.started = False
        """Whether the application wants deliveries."""
        self.dropping = False
        """Whether deliveries may come that the broker takes back by basic.recover."""
        self.last_tag = 0
        """Largest delivery tag that came."""

    def add(self, request: CreateConsumer) -> None:
        """Make a consumer; it is begun with its first credits."""
        self._by_id[request.consumer_id] = ConsumerPart(request.consumer_id, request.queue_name, request.priority)

    def get(self, consumer_id: int) -> ConsumerPart | None:
        """The consumer of that id."""
        return self._by_id.get(consumer_id)

    # flow

    def credits(self, consumer_id: int, credits_bytes: int) -> None:
        """The client gives credits, or takes the one of a window of 0 back."""
        consumer = self._by_id.get(consumer_id)
        if consumer is None:
            return
        if consumer.window_bytes is None:
            consumer.window_bytes = credits_bytes
        consumer.took = True
        if consumer.one_by_one:
            consumer.asked = credits_bytes > 0
            if not consumer.asked:
                self.cancel(consumer)
        self._begin_if_wanted(consumer)
        self._renew(consumer)

    def start(self) -> None:
        """Let deliveries come."""
        self.started = True
        for consumer in self._by_id.values():
            self._begin_if_wanted(consumer)

    def _begin_if_wanted(self, consumer: ConsumerPart) -> None:
        if self.started and consumer.wanted and not consumer.tag:
            self._begin(consumer)

    def _begin(self, consumer: ConsumerPart) -> None:
        out = self._out
        self._begun += 1
        consumer.tag = f"c{consumer.consumer_id}.{self._begun}"
        consumer.outstanding, consumer.took = 0, False
        self._by_tag[consumer.tag] = consumer
        self._limit(0 if self.no_ack else consumer.prefetch)
        arguments = {"x-priority": consumer.priority} if consumer.priority else {}
        out.send(
            BasicConsume(0, consumer.queue, consumer.tag, no_ack=self.no_ack, no_wait=True, arguments=arguments),
            self._number,
        )

    def _renew(self, consumer: ConsumerPart) -> None:
        """Begin the consumer once more if its prefetch is used up by messages that the application has taken."""
        limit = consumer.prefetch
        if not consumer.tag or self.no_ack or consumer.one_by_one or not 0 < limit <= consumer.outstanding:
            return
        if consumer.took:
            former = consumer.tag
            self._begin(consumer)
            self._end_tag(former)

    def cancel(self, consumer: ConsumerPart) -> None:
        """End the consumer at the broker, if it is begun; its deliveries stay."""
        if consumer.tag:
            self._end_tag(consumer.tag)
            consumer.tag = ""

    def _end_tag(self, tag: str) -> None:
        self._ending.add(tag)
        self._out.send(BasicCancel(tag), self._number)

    def when_cancelled(self, call: Callable[[], None]) -> None:
        """Call when the broker has confirmed every end, after which no delivery of them comes; now if it has."""
        if self._ending:
            self._after_ends.append(call)
        else:
            call()

    def cancel_confirmed(self, tag: str) -> None:
        """The broker has confirmed the end of a consumer."""
        self._by_tag.pop(tag, None)
        self._ending.discard(tag)
        if not self._ending:
            calls, self._after_ends = self._after_ends, []
            for call in calls:
                call()

    def cancel_all(self) -> None:
        """End all consumers at the broker."""
        for consumer in self._by_id.values():
            self.cancel(consumer)

    # arrivals

    def delivered(self, content: Content) -> None:
        """A basic.deliver has come."""
        method = content.method
        assert isinstance(method, BasicDeliver)
        self.last_tag = max(self.last_tag, method.delivery_tag)
        consumer = self._by_tag.get(method.consumer_tag)
        if consumer is None or self.dropping:
            return
        if not self.no_ack:
            self._unsettled[method.delivery_tag] = _Delivery(consumer, method.consumer_tag)
        if self._by_id.get(consumer.consumer_id) is not consumer:
            # closed meanwhile: the message goes back
            self.give_back([method.delivery_tag])
            return
        if method.consumer_tag == consumer.tag:
            consumer.outstanding += 1
        if consumer.one_by_one:
            consumer.asked = False
            self.cancel(consumer)
        self._hand_over(consumer, content, method)
        self._renew(consumer)

    def fetched(self, consumer_id: int, content: Content) -> None:
        """The message of a basic.get has come."""
        method = content.method
        assert isinstance(method, BasicGetOk)
        self.last_tag = max(self.last_tag, method.delivery_tag)
        consumer = self._by_id.get(consumer_id)
        if self.dropping:
            return
        if consumer is None:
            self._out.send(BasicNack(method.delivery_tag, requeue=True), self._number)
            return
        if not self.no_ack:
            self._unsettled[method.delivery_tag] = _Delivery(consumer, "")
        self._hand_over(consumer, content, method)

    def nothing_left(self, consumer_id: int, sequence: int) -> None:
        """Tell the client that the queue has no further message for the consumer."""
        properties = Properties({FORCED_DELIVERY: sequence})
        self._out.report(self._channel_id, ReceiveMessage(Message(properties=properties), consumer_id, 1))

    def _hand_over(self, consumer: ConsumerPart, content: Content, method: BasicDeliver | BasicGetOk) -> None:
        tag, address = method.delivery_tag, method.exchange or method.routing_key
        size_bytes = max(consumer.least_bytes, content.size_bytes + len(content.properties))
        try:
            if content.skipped:
                raise LimitExceeded(f"a message of {content.size_bytes} bytes, limit {FRAME_BYTES_MAX}; it was skipped")
            message = incoming(content.properties, content.body, address, tag)
            count = delivery_count(content.properties, redelivered=method.redelivered)
        except (Amqp091Error, LimitExceeded) as error:
            self._out.send(BasicReject(tag, requeue=False), self._number)
            self._unsettled.pop(tag, None)
            unread = ReceiveMessage(Message(), consumer.consumer_id, 1)
            refused = (
                error
                if isinstance(error, LimitExceeded)
                else LimitExceeded(f"a message of queue {consumer.queue}: {error}")
            )
            self._out.report(self._channel_id, RefusedPacket(ReceiveMessage, refused, unread), size_bytes)
            return
        self._out.report(self._channel_id, ReceiveMessage(message, consumer.consumer_id, count), size_bytes)

    def cancelled_by_broker(self, tag: str) -> None:
        """The broker has ended a consumer, because its queue is gone."""
        consumer = self._by_tag.pop(tag, None)
        if consumer is None or consumer.tag != tag or self._by_id.pop(consumer.consumer_id, None) is None:
            return
        self._out.report(self._channel_id, DisconnectConsumer(consumer.consumer_id))

    # settling

    def tags_up_to(self, consumer_id: int, message_id: int) -> list[int]:
        """Unsettled deliveries of a consumer up to one."""
        return [
            tag
            for tag, each in self._unsettled.items()
            if tag <= message_id and each.consumer.consumer_id == consumer_id
        ]

    def tags_of(self, consumer: ConsumerPart) -> list[int]:
        """Unsettled deliveries of a consumer."""
        return [tag for tag, each in self._unsettled.items() if each.consumer is consumer]

    def acknowledge(self, tags: Iterable[int], *, frees: bool) -> None:
        """Acknowledge deliveries, with as few methods as the order allows.

        Args:
            tags: Tags in order.
            frees: Whether the broker may send as many others at once; False if a commit has to follow.
        """
        wanted = set(tags) & self._unsettled.keys()
        if not wanted:
            return
        run = 0
        for tag in self._unsettled:
            if tag not in wanted:
                break
            run = tag
        if run:
            self._out.send(BasicAck(run, multiple=True), self._number)
        for tag in sorted(wanted):
            if tag > run:
                self._out.send(BasicAck(tag), self._number)
        self._settled(wanted, frees=frees)

    def give_back(self, tags: Iterable[int]) -> None:
        """Return deliveries to their queue."""
        for tag in tags:
            if tag in self._unsettled:
                self._out.send(BasicNack(tag, requeue=True), self._number)
                self._settled((tag,), frees=True)

    def reject(self, tag: int) -> None:
        """Refuse a delivery for good."""
        if tag in self._unsettled:
            self._out.send(BasicReject(tag, requeue=False), self._number)
            self._settled((tag,), frees=True)

    def _settled(self, tags: Iterable[int], *, frees: bool) -> None:
        for tag in tags:
            delivery = self._unsettled.pop(tag)
            if frees and delivery.consumer_tag == delivery.consumer.tag:
                delivery.consumer.outstanding -= 1

    def committed(self) -> None:
        """A commit has settled the acknowledgements of its transaction."""
        for consumer in self._by_id.values():
            consumer.outstanding = sum(each.consumer_tag == consumer.tag for each in self._unsettled.values())
            self._renew(consumer)

    # life

    def remove(self, consumer_id: int) -> ConsumerPart | None:
        """The consumer is closed. Returns it."""
        return self._by_id.pop(consumer_id, None)

    def recovered(self) -> None:
        """The broker has taken back all deliveries."""
        self._unsettled.clear()
        self.dropping = False
        for consumer in self._by_id.values():
            consumer.outstanding = 0

    def forget(self) -> None:
        """The channel is a new one at the broker: it has no consumer."""
        self._by_id.clear()
        self._by_tag.clear()
        self._unsettled.clear()
        self._ending.clear()
        self._after_ends.clear()
        self.dropping = False
