"""One session of the client as a channel of AMQP 0-9-1: each packet as methods, each method as packets.

A session without transactions is a channel with confirms. Its modes CLIENT and INDIVIDUAL acknowledge in a transaction
of the session at a broker of CORE; here the acknowledgements are kept until the commit and sent then, which a rollback
drops. A request that waits for acknowledgements is answered when the broker has answered a later method of the channel.
A transacted session is a channel with tx.select.

A stop ends all consumers at the broker, and a start begins them again: so no delivery comes between a rollback and the
end of basic.recover, which returns all deliveries.

A resumed channel (ADR 0195) decides the publishes and the commit that were under way. Its consumers and
deliveries are given back, as a session of CORE that is made again has none.

Not here: requests about queues (``declarations``), requests that wait for them (``on_demand``), frames (``codec``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from understudy.client.amqp091.consumers import ConsumerParts
from understudy.client.amqp091.content import Content, ContentState
from understudy.client.amqp091.declarations import Declarations, queue_info
from understudy.client.amqp091.messages import Outgoing, not_possible, outgoing
from understudy.client.amqp091.on_demand import InOrder
from understudy.client.amqp091.output import Output
from understudy.client.amqp091.status import ChannelStatus, channel_status
from understudy.client.core.connection.codec import OnDemand
from understudy.errors import AddressNotFound, BrokerError, ConnectionLost, QueueNotFound, TransactionRolledBack
from understudy.limits import AMQP091_MESSAGE_BYTES_MAX
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import Frame
from understudy.wire.amqp091.layout import Method
from understudy.wire.core import packets as p

_OK: Final = 200
Answered = Callable[[Any], None]


class LargeSend:
    """The pieces of a large message, which is one content here."""

    def __init__(self, header: bytes) -> None:
        self.header = header
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def add(self, piece: bytes) -> None:
        """Add a piece; beyond the limit nothing is kept."""
        self._size_bytes += len(piece)
        if self._size_bytes <= AMQP091_MESSAGE_BYTES_MAX:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def publish(self, now_ms: int, frame_bytes_max: int) -> Outgoing:
        """The whole message. Raises LocalProtocolError: it is too large, or cannot be sent."""
        if self._size_bytes > AMQP091_MESSAGE_BYTES_MAX:
            raise not_possible(f"a body of {self._size_bytes} bytes, more than {AMQP091_MESSAGE_BYTES_MAX},")
        return outgoing(p.message_of_header(self.header, b"".join(self._pieces), trusted=True), now_ms, frame_bytes_max)


class SessionChannel:
    """One session of the client."""

    def __init__(
        self,
        out: Output,
        declarations: Declarations,
        request: p.CreateSession,
        number: int,
        wall_ms: Callable[[], int],
        complain: Callable[[str], None],
    ) -> None:
        """Args:
        out: Output of the connection.
        declarations: Requests about queues.
        request: How the client wants the session.
        number: Number of the channel at the broker.
        wall_ms: Wall clock.
        complain: Logs an error that no caller waits for.
        """
        self.channel_id = request.session_channel_id
        self.number = number
        self.name = request.name
        """Name of the session, which the client states when it looks for it after a lost connection."""
        self.open = False
        """Whether the channel is open at the broker of the present transport."""
        self.known = False
        """Whether a broker has had the channel open."""
        self.ended = False
        """Whether the client has closed the session."""
        self._out = out
        self._declarations = declarations
        self._wall_ms = wall_ms
        self._request = request
        self._expected: deque[tuple[type[Method], Answered]] = deque()
        self._deferred: list[int] = []
        self._commits = 0
        self._committing: int | None = None
        """Correlation id of the commit under way."""
        self._closing = False
        self._large: LargeSend | None = None
        self._fetches: deque[tuple[int, int]] = deque()
        self._content = ContentState()
        self._sending = InOrder(declarations, out, self.channel_id, number, complain)
        self._sending.publishes.confirms = not self._transacted
        self.consumers = ConsumerParts(out, self.channel_id, number, self._limit, no_ack=request.pre_acknowledge)

    @property
    def _transacted(self) -> bool:
        """Whether the session has transactions."""
        return not self._request.auto_commit_sends

    @property
    def _defers(self) -> bool:
        """Whether acknowledgements wait for a commit."""
        return self._request.auto_commit_sends and not self._request.auto_commit_acks

    # life

    def begin(self, done: Callable[[], None]) -> None:
        """Open a new channel; ``done`` is called when it can be used."""
        self._ask(m.ChannelOpen(), m.ChannelOpenOk, lambda answer: self._choose(done))

    def _choose(self, done: Callable[[], None]) -> None:
        """The channel is a new one at the broker: choose confirms or transactions."""
        self._sending.publishes.forget()
        self.consumers.forget()
        self.consumers.last_tag = self._commits = 0
        if self._transacted:
            self._ask(m.TxSelect(), m.TxSelectOk, lambda answer: self._usable(done))
        else:
            self._ask(m.ConfirmSelect(), m.ConfirmSelectOk, lambda answer: self._usable(done))

    def _usable(self, done: Callable[[], None]) -> None:
        self.open = self.known = True
        done()

    def resume(self, done: Callable[[], None]) -> None:
        """Open the channel as the broker has kept it, and decide the requests that had no answer.

        Args:
            done: Called when the channel can be used.
        """
        wanted = f"resume;tag={self.consumers.last_tag};seq={self._sending.publishes.sent}"

        def opened(answer: m.ChannelOpenOk) -> None:
            status = channel_status(answer.reserved_1)
            if status is None:
                # the broker does not know the channel any more
                self._committing = None
                self._choose(done)
                return
            self._decide(status)
            for tag in status.consumers:
                self._out.send(m.BasicCancel(tag, no_wait=True), self.number)
            self.consumers.dropping = True
            if self._transacted:
                self._ask(m.TxRollback(), m.TxRollbackOk, lambda answer: None)
            self._recover(lambda: self._recovered(done))

        self._ask(m.ChannelOpen(wanted), m.ChannelOpenOk, opened)

    def _decide(self, status: ChannelStatus) -> None:
        """Answer the publishes and the commit that were under way."""
        self._sending.publishes.resumed(status)
        committing, self._committing = self._committing, None
        committed, self._commits = status.commits > self._commits, status.commits
        if committing is None:
            return
        if committed:
            self._out.report(self.channel_id, p.NullResponse())
        else:
            self._out.refuse(
                self.channel_id, TransactionRolledBack("the connection was lost before the broker got the commit")
            )

    def _recovered(self, done: Callable[[], None]) -> None:
        self.consumers.forget()
        self._usable(done)

    def lost(self) -> None:
        """The transport is gone."""
        self.open = False
        self.ended = self.ended or self._closing
        self._expected.clear()
        self._deferred.clear()
        self._fetches.clear()
        self._large = None
        self._content.clear()
        self._sending.publishes.returned.clear()
        self._sending.lost()

    # packets of the client

    def carry_out(self, packet: p.Packet) -> None:
        """Carry out a packet. One without a meaning here does nothing.

        Raises:
            LocalProtocolError: a value does not fit its field.
        """
        if isinstance(packet, OnDemand):
            self._sending.use(packet)
            return
        if isinstance(packet, p.RemoveProducer):
            self._sending.forget(packet.producer_id)
            return
        if self._transacted and isinstance(packet, p.Commit):
            self._committing = packet.correlation_id
        elif isinstance(packet, p.SessionClose):
            self._closing = True
        handler = _PACKETS.get(type(packet))
        if handler is not None:
            self._sending.carry_out(partial(handler, self, packet))

    def publish(self, publish: Outgoing, correlation_id: int | None) -> None:
        """Send a message."""
        self._sending.carry_out(partial(self._sending.publishes.publish, publish, correlation_id))

    def _create_consumer(self, packet: p.CreateConsumer) -> None:
        def found(answer: m.QueueDeclareOk | None) -> None:
            if answer is None:
                self._out.refuse(self.channel_id, QueueNotFound(f"queue {packet.queue_name} does not exist"))
                return
            self.consumers.add(packet)
            self._out.report(self.channel_id, queue_info(packet.queue_name, answer))

        self._declarations.queue_exists(packet.queue_name, found, self.channel_id, to_consume=True)

    def _close_consumer(self, packet: p.ConsumerClose) -> None:
        consumer = self.consumers.remove(packet.consumer_id)
        if consumer is None:
            self._answer()
            return
        self.consumers.cancel(consumer)

        def ended() -> None:
            self.consumers.give_back(tag for tag in self.consumers.tags_of(consumer) if tag not in self._deferred)
            self._answer()

        self.consumers.when_cancelled(ended)

    def _flow(self, packet: p.FlowToken) -> None:
        self.consumers.credits(packet.consumer_id, packet.credits)

    def _force(self, packet: p.ForceConsumerDelivery) -> None:
        consumer = self.consumers.get(packet.consumer_id)
        if consumer is not None:
            self._fetches.append((packet.consumer_id, packet.sequence))
            self._out.send(m.BasicGet(0, consumer.queue, self.consumers.no_ack), self.number)

    def _acknowledge(self, packet: p.Acknowledge) -> None:
        self._settle(self.consumers.tags_up_to(packet.consumer_id, packet.message_id))
        if packet.requires_response:
            self._barrier(self._answer)

    def _acknowledge_one(self, packet: p.IndividualAcknowledge) -> None:
        self._settle([packet.message_id])
        if packet.requires_response:
            self._barrier(self._answer)

    def _settle(self, tags: list[int]) -> None:
        if self._defers:
            self._deferred += tags
        else:
            self.consumers.acknowledge(tags, frees=not self._transacted)

    def _expired(self, packet: p.Expired) -> None:
        self.consumers.reject(packet.message_id)

    def _start(self, packet: p.SessionStart) -> None:
        self.consumers.start()

    def _stop(self, packet: p.SessionStop) -> None:
        self.consumers.started = False
        self.consumers.cancel_all()
        self.consumers.when_cancelled(self._answer)

    def _close(self, packet: p.SessionClose) -> None:
        self._ask(m.ChannelClose(_OK, "the session is closed"), m.ChannelCloseOk, lambda answer: self._closed())

    def _closed(self) -> None:
        self.open = self.known = False
        self.ended = True
        self._answer()

    def _commit(self, packet: p.Commit) -> None:
        if self._transacted:
            self._ask(m.TxCommit(), m.TxCommitOk, lambda answer: self._committed(packet.correlation_id))
            return
        deferred, self._deferred = self._deferred, []
        self.consumers.acknowledge(sorted(deferred), frees=True)
        self._barrier(lambda: self._answer(packet.correlation_id))

    def _committed(self, correlation_id: int) -> None:
        self._commits += 1
        self._committing = None
        self.consumers.committed()
        returned, self._sending.publishes.returned = self._sending.publishes.returned, []
        if returned:
            text = f"the transaction is committed without messages that no queue takes: {returned[0]}"
            self._out.refuse(self.channel_id, AddressNotFound(text))
        else:
            self._answer(correlation_id)

    def _roll_back(self, packet: p.Rollback) -> None:
        self._deferred.clear()
        self.consumers.dropping = True
        if self._transacted:
            self._ask(m.TxRollback(), m.TxRollbackOk, lambda answer: self._sending.publishes.returned.clear())

        def recovered() -> None:
            self.consumers.recovered()
            self._answer()

        self._recover(recovered)

    def _recover(self, done: Callable[[], None]) -> None:
        """Return all deliveries; ``done`` is called when the broker has them."""
        if not self._transacted:
            self._ask(m.BasicRecover(requeue=True), m.BasicRecoverOk, lambda answer: done())
            return
        # Understudy returns the deliveries of a transacted channel with the commit, RabbitMQ at once
        self._ask(m.BasicRecover(requeue=True), m.BasicRecoverOk, lambda answer: None)

        def committed(answer: Method) -> None:
            self._commits += 1
            done()

        self._ask(m.TxCommit(), m.TxCommitOk, committed)

    def _credits(self, packet: p.ProducerRequestCredits) -> None:
        self._out.report(self.channel_id, p.ProducerCredits(packet.credits, packet.address))

    def _begin_large(self, packet: p.SessionSendLarge) -> None:
        self._large = LargeSend(packet.header)

    def _continue_large(self, packet: p.SessionSendContinuation) -> None:
        large = self._large
        if large is None:
            return
        large.add(packet.body)
        if packet.continues:
            return
        self._large = None
        correlation_id = packet.correlation_id if packet.requires_response else None
        try:
            self._sending.publishes.publish(large.publish(self._wall_ms(), self._out.content_frame_max), correlation_id)
        except BrokerError as error:
            self._out.refuse(self.channel_id, error, correlation_id or 0)

    # methods of the broker

    def receive(self, frame: Frame) -> None:
        """Handle a frame of the channel.

        Raises:
            Amqp091Error: it cannot be expected, or cannot be read.
            ConnectionLost: the broker has closed the channel.
        """
        found = self._content.receive(frame)
        if isinstance(found, Content):
            self._receive_content(found)
        elif found is not None:
            self._receive_method(found)

    def _receive_method(self, method: Method) -> None:
        if isinstance(method, m.BasicAck | m.BasicNack):
            taken = isinstance(method, m.BasicAck)
            self._sending.publishes.settled(method.delivery_tag, multiple=method.multiple, taken=taken)
            self._sending.settled()
        elif isinstance(method, m.BasicGetEmpty):
            self._fetched(None)
        elif isinstance(method, m.BasicCancelOk):
            self.consumers.cancel_confirmed(method.consumer_tag)
        elif isinstance(method, m.BasicCancel):
            self.consumers.cancelled_by_broker(method.consumer_tag)
        elif isinstance(method, m.ChannelClose):
            self._out.send(m.ChannelCloseOk(), self.number)
            # the order of everything that was under way is lost with the channel
            raise ConnectionLost(f"the broker closed a channel: {method.reply_code} {method.reply_text}")
        elif self._expected and isinstance(method, self._expected[0][0]):
            self._expected.popleft()[1](method)
        else:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, f"{method.name} is not expected")

    def _receive_content(self, content: Content) -> None:
        method = content.method
        if isinstance(method, m.BasicDeliver):
            self.consumers.delivered(content)
        elif isinstance(method, m.BasicGetOk):
            self._fetched(content)
        elif isinstance(method, m.BasicReturn):
            self._sending.publishes.take_return(method, content.properties, content.body)

    def _fetched(self, content: Content | None) -> None:
        if not self._fetches:
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "an answer of basic.get is not expected")
        consumer_id, sequence = self._fetches.popleft()
        if content is not None:
            self.consumers.fetched(consumer_id, content)
        self.consumers.nothing_left(consumer_id, sequence)

    # requests

    def _ask(self, method: Method, kind: type[Method], answered: Answered) -> None:
        self._expected.append((kind, answered))
        self._out.send(method, self.number)

    def _limit(self, count: int) -> None:
        self._ask(m.BasicQos(0, count), m.BasicQosOk, lambda answer: None)

    def _barrier(self, call: Callable[[], None]) -> None:
        """Call when the broker has carried out everything that was sent before."""
        self._ask(m.BasicQos(0, 0), m.BasicQosOk, lambda answer: call())

    def _answer(self, correlation_id: int = -1) -> None:
        self._out.report(self.channel_id, p.NullResponse(correlation_id))

    def _declare(self, request: Callable[[Declarations, Any, int], None], packet: p.Packet) -> None:
        request(self._declarations, packet, self.channel_id)


def _by_declarations(request: Callable[[Declarations, Any, int], None]) -> Callable[[SessionChannel, Any], None]:
    return lambda channel, packet: channel._declare(request, packet)


_PACKETS: Final[Mapping[type[p.Packet], Callable[[SessionChannel, Any], None]]] = {
    p.CreateConsumer: SessionChannel._create_consumer,
    p.ConsumerClose: SessionChannel._close_consumer,
    p.FlowToken: SessionChannel._flow,
    p.ForceConsumerDelivery: SessionChannel._force,
    p.Acknowledge: SessionChannel._acknowledge,
    p.IndividualAcknowledge: SessionChannel._acknowledge_one,
    p.Expired: SessionChannel._expired,
    p.SessionStart: SessionChannel._start,
    p.SessionStop: SessionChannel._stop,
    p.SessionClose: SessionChannel._close,
    p.Commit: SessionChannel._commit,
    p.Rollback: SessionChannel._roll_back,
    p.ProducerRequestCredits: SessionChannel._credits,
    p.SessionSendLarge: SessionChannel._begin_large,
    p.SessionSendContinuation: SessionChannel._continue_large,
    p.QueueQuery: _by_declarations(Declarations.query_queue),
    p.BindingQuery: _by_declarations(Declarations.query_address),
    p.CreateAddress: _by_declarations(Declarations.create_address),
    p.CreateQueueV2: _by_declarations(Declarations.create_queue),
    p.CreateSharedQueueV2: _by_declarations(Declarations.create_queue),
    p.DeleteQueue: _by_declarations(Declarations.delete_queue),
}
