"""One consumer: messages that arrived, credits given back, acknowledgements.

Artemis-core s. 6.3 and 6.4. A message costs its whole frame in credits and gives them back
when the application takes it. Acknowledgements are cumulative: the buffer keeps arrival order, so
"everything up to this one" is exactly the set of taken messages. They are collected and go out once per turn
of the loop. After a failover the broker delivers everything unacknowledged again, so what is
buffered is dropped and what the application still holds belongs to an older ``generation``.

A large message of up to ``WHOLE_BODY_BYTES_MAX`` is handed over like any other. A larger one is
handed over as soon as it is announced, with a ``BodyStream``; asking for the next message discards
the unread rest of that body, because nothing else comes before its end (artemis-core s. 6.3).

Not here: when to wait (the shells), or which session mode acknowledges when (``session``).
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from understudy.client.core.consumer.body_stream import READ_AHEAD_BYTES, BodyStream
from understudy.client.core.consumer.received import MessageView
from understudy.client.core.consumer.taken import AcknowledgeMode, TakenMessages
from understudy.client.core.session.channel import Channel
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ConnectionLost, IllegalState, LimitExceeded, RemoteProtocolError
from understudy.limits import FRAME_BYTES_MAX
from understudy.message import FORCED_DELIVERY, LARGE_COMPRESSED, Message
from understudy.wire.core.packets import (
    CreateSharedQueueV2,
    Expired,
    FlowToken,
    ForceConsumerDelivery,
    QueueQueryResponse,
    header_of_message,
    message_of_header,
)

#: Largest body that is handed over as a whole when its message is; a larger one is read while it
#: comes. Bytes as they travel.
WHOLE_BODY_BYTES_MAX: Final = READ_AHEAD_BYTES
#: Largest large message put together in memory. Bytes.
LARGE_BODY_BYTES_MAX: Final = FRAME_BYTES_MAX


class ReceivedMessage(MessageView):
    """A message as the application gets it."""

    __slots__ = ("consumer", "generation", "given_back", "settled", "size_bytes")

    def __init__(
        self,
        message: Message,
        delivery_count: int,
        size_bytes: int,
        consumer: ConsumerState,
        stream: BodyStream | None = None,
    ) -> None:
        super().__init__(message, delivery_count, stream)
        self.size_bytes = size_bytes
        """Bytes of credit that the message costs."""
        self.consumer = consumer
        self.generation = consumer.channel.generation
        self.settled = False
        """Whether the application has ended its delivery: acknowledged it alone, or given it back."""
        self.given_back = False
        """Whether the application has given it back, or sent it to the dead letter address."""

    @property
    def queue(self) -> str:
        """The queue that the message came from."""
        return self.consumer.queue

    @property
    def stored_id(self) -> int:
        """The broker's id of the stored message, the same at each delivery; 0 if the protocol does not tell it. By AMQP
        0-9-1 ``message_id`` is the delivery tag, a new one at each delivery."""
        return self.message_id if self.consumer.channel.link.codec.stored_ids else 0

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.message!r}, delivery {self.delivery_count}>"


MakeReceived = Callable[[Message, int, int, "ConsumerState", BodyStream | None], ReceivedMessage]
"""Message, delivery count, credits it costs, its consumer, its body if that is still coming."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Options of a new consumer besides its queue and window."""

    mode: AcknowledgeMode
    ack_batch_bytes: int
    """Bytes taken after which a batch is acknowledged."""
    filter_text: str | None = None
    browse_only: bool = False
    priority: int = 0
    on_demand: bool = False
    """Whether the client makes the queue if it does not exist."""


class ConsumerSettings(NamedTuple):
    """Settings of one consumer, beside those of its session."""

    filter_text: str | None = None
    """A selector; None: the consumer gets every message."""
    browse_only: bool = False
    priority: int = 0
    window_bytes: int | None = None
    """Bytes that the broker sends ahead; None: those of the connection."""
    on_demand: bool = False
    """Whether the client makes the queue if it does not exist."""


DEFAULT_SETTINGS: Final = ConsumerSettings()


class ConsumerState:
    """One consumer without I/O: buffered messages, credits, pending acknowledgements."""

    def __init__(
        self,
        channel: Channel,
        consumer_id: int,
        queue: str,
        options: ConsumerOptions,
        *,
        window_bytes: int,
        acknowledges: Callable[[ConsumerState], None],
        make_received: MakeReceived = ReceivedMessage,
    ) -> None:
        """Args:
        acknowledges: Called when the consumer has an acknowledgement to send with the next flush.
        """
        self.channel = channel
        self.consumer_id = consumer_id
        self.queue = queue
        self.options = options
        self.browse_only = options.browse_only
        self.window_bytes = window_bytes
        self.queue_info: QueueQueryResponse | None = None
        """The broker's answer about the queue, to create the queue again after a failover."""
        self.shared_queue: CreateSharedQueueV2 | None = None
        """The request for the queue of a shared subscription, repeated after a failover."""
        self.on_change: Callable[[], None] | None = None
        """Called when the result of ``take``, ``drained`` or ``ended`` may have changed."""
        self.ended: BrokerError | None = None
        """Reason why nothing more will come."""
        self.opened = False
        self._buffer: deque[ReceivedMessage] = deque()
        self._consumed_bytes = 0
        self._asked = False
        self._forced = 0
        self._drained = 0
        self._large: _LargeMessage | None = None
        self._stream: BodyStream | None = None
        """Body of the large message that is arriving and was handed over."""
        self._reading: BodyStream | None = None
        """Body of the message that was taken last."""
        self._acknowledges = acknowledges
        self._make_received = make_received
        self.work = TakenMessages(options.mode, options.ack_batch_bytes)
        """The messages that were handed out."""
        self._errors: deque[BrokerError] = deque()

    @property
    def buffered(self) -> int:
        """Messages that arrived and were not taken."""
        return len(self._buffer)

    # messages that arrive

    def arrived(self, message: Message, delivery_count: int, size_bytes: int) -> None:
        """SESS_RECEIVE_MSG."""
        if FORCED_DELIVERY in message.properties:
            sequence = message.properties[FORCED_DELIVERY]
            if isinstance(sequence, int) and sequence == self._forced:
                self._drained = sequence
                self._changed()
            return
        self._hand_over(message, delivery_count, size_bytes, None)

    def _hand_over(self, message: Message, delivery_count: int, size_bytes: int, stream: BodyStream | None) -> None:
        self._asked = False
        if stream is None and LARGE_COMPRESSED in message.properties:
            try:
                message = inflated(message)
            except BrokerError as error:
                self.unreadable(error, size_bytes)
                return
        self._buffer.append(self._make_received(message, delivery_count, size_bytes, self, stream))
        if len(self._buffer) == 1:
            self._changed()

    def unreadable(self, error: BrokerError, size_bytes: int) -> None:
        """A message has arrived that cannot be handed over: ``take`` raises the error once."""
        self._asked = False
        self._errors.append(error)
        self._give_back(size_bytes)
        self._changed()

    def large_begins(self, header: bytes, delivery_count: int, body_bytes: int, size_bytes: int) -> None:
        """SESS_RECEIVE_LARGE_MSG."""
        self._piece_arrived(size_bytes)
        if body_bytes <= WHOLE_BODY_BYTES_MAX:
            self._large = _LargeMessage(header, delivery_count)
            return
        try:
            message = message_of_header(header, trusted=True)
        except BrokerError as error:
            self._errors.append(error)
            self._changed()
            return
        compressed = message.properties.get(LARGE_COMPRESSED) is True
        self._stream = BodyStream(
            body_bytes, compressed=compressed, give_back=self._piece_read, message_id=message.message_id
        )
        self._hand_over(message, delivery_count, 0, self._stream)

    def large_continues(self, piece: bytes, continues: bool, size_bytes: int) -> None:
        """Called when a SESS_RECEIVE_CONTINUATION has arrived. Bytes that are not a message raise an error in
        ``take``."""
        stream = self._stream
        if stream is not None:
            if not continues:
                self._stream = None
            stream.arrived(piece, size_bytes, continues)
            if not continues:
                # the next message may have to be asked for once more
                self._changed()
            return
        large = self._large
        if large is None:
            # rest of a large message that a rollback has returned to the broker
            self._give_back(size_bytes)
            return
        large.add(piece)
        if continues:
            self._piece_arrived(size_bytes)
            return
        self._large = None
        try:
            message = large.message()
        except BrokerError as error:
            self.unreadable(error, size_bytes)
            return
        self.arrived(message, large.delivery_count, size_bytes)

    def _piece_read(self, size_bytes: int, last: bool) -> None:
        if last:
            self._give_back(size_bytes)
        else:
            self._piece_arrived(size_bytes)

    def _piece_arrived(self, size_bytes: int) -> None:
        """The broker stalls without credits in the middle of a body, so they go back at once.

        Those of the last piece go back when the whole message is taken.
        """
        if self.window_bytes == 0:
            self.channel.transmit_packet(FlowToken(consumer_id=self.consumer_id, credits=size_bytes))
        else:
            self._give_back(size_bytes)

    # the application's side

    def take(self) -> ReceivedMessage | None:
        """The next message, or None. Asking acknowledges the one before in AUTO mode.

        Raises:
            BrokerError: a message that cannot be handed over; the next call goes on after it.
        """
        mode = self.options.mode
        if self.work.asked():
            self._acknowledges(self)
        if self._reading is not None:
            self._reading.discard()
            self._reading = None
        if self._errors:
            raise self._errors.popleft()
        buffer = self._buffer
        while buffer:
            received = buffer.popleft()
            if received.stream is None:
                self._give_back(received.size_bytes)
            message = received.message
            if message.expiration and not self.browse_only and message.expiration <= self.channel.wall_ms():
                self.channel.transmit_packet(Expired(consumer_id=self.consumer_id, message_id=message.message_id))
                if received.stream is not None:
                    received.stream.discard()
                continue
            self._reading = received.stream
            if not self.browse_only and mode is not AcknowledgeMode.PRE_ACKNOWLEDGE:
                self.work.add(message.message_id, received.size_bytes)
                if mode is AcknowledgeMode.TRANSACTED:
                    self._taken_in_transaction()
            return received
        return None

    def ask(self) -> None:
        """A receiver is about to wait: with a window of 0, this is what lets a message come."""
        waiting = not self._asked and self._stream is None and self.ended is None and self.opened
        if self.window_bytes == 0 and waiting:
            self._asked = True
            credits_bytes, self._consumed_bytes = self._consumed_bytes + 1, 0
            self.channel.transmit_packet(FlowToken(consumer_id=self.consumer_id, credits=credits_bytes))

    def receive_cancelled(self) -> None:
        """Take back its credit (window 0); called when a receive was cancelled or timed out."""
        if self.window_bytes == 0 and self._asked:
            self._asked = False
            self._consumed_bytes = 0
            if self.opened:
                self.channel.transmit_packet(FlowToken(consumer_id=self.consumer_id, credits=0))

    def force(self) -> int:
        """Ask the broker to say when nothing is left; the answer makes ``drained`` true."""
        self._forced += 1
        if self.opened:
            self._flush_credits()
            self.channel.transmit_packet(ForceConsumerDelivery(consumer_id=self.consumer_id, sequence=self._forced))
        return self._forced

    def drained(self, sequence: int) -> bool:
        """Whether the broker said that nothing was left at ``force`` number ``sequence``, and a large
        message that waits for credits in the middle of its body has come too.
        """
        return self._drained >= sequence and self._large is None

    # acknowledging

    def _taken_in_transaction(self) -> None:
        """Note that a message was taken in a transaction. Also while no connection works: the server's session that
        delivered it is the only one at which it can be acknowledged.
        """
        self.channel.open_work.done(attached=True)
        if self.work.taken_bytes >= self.options.ack_batch_bytes:
            self.acknowledge_taken()

    def acknowledge_taken(self) -> None:
        """Everything taken so far may be acknowledged; goes out with the next flush."""
        if self.work.release():
            self._acknowledges(self)

    @property
    def arriving_id(self) -> int | None:
        """Id of the large message of which a part has arrived; None if there is none."""
        if self._stream is not None:
            return self._stream.message_id
        return None if self._large is None else self._large.message_id

    @property
    def holds(self) -> bool:
        """Whether messages have come, or are coming, that were not handed out."""
        return bool(self._buffer) or self._large is not None or self._stream is not None

    # life

    def start(self, info: QueueQueryResponse | None, *, again: bool = False) -> None:
        """Give credits; called when the broker has created the consumer (``again`` after a failover)."""
        self.opened = True
        if info is not None:
            self.queue_info = info
        window = self.window_bytes
        if window < 0:
            self.channel.transmit_packet(FlowToken(consumer_id=self.consumer_id, credits=-1))
        elif window > 0:
            self.channel.transmit_packet(FlowToken(consumer_id=self.consumer_id, credits=window))
        elif self._asked:
            self._asked = False
            self.ask()
        if again and self._forced > self._drained:
            self.channel.transmit_packet(ForceConsumerDelivery(consumer_id=self.consumer_id, sequence=self._forced))

    def session_lost(self) -> None:
        """Called when the server's session is gone with everything delivered and not acknowledged."""
        self.opened = False
        self._break_off(ConnectionLost("the connection was lost while the body came; it will be delivered again"))
        self._buffer.clear()
        self._consumed_bytes = 0
        self._large = None
        self.work.clear()

    def rolled_back(self) -> None:
        """Drop the deliveries and return their credits; called when the broker takes them back."""
        for each in self._buffer:
            if each.stream is not None:
                each.stream.discard()
            else:
                self._give_back(each.size_bytes)
        self._buffer.clear()
        if self._reading is not None:
            self._reading.discard()
        self._break_off(IllegalState("the message was rolled back"))
        self._large = None
        self.work.clear()

    def disconnect(self) -> None:
        """The broker has closed it and taken back its deliveries: hand out no more of them. ``end`` follows."""
        self.opened = False
        self._buffer.clear()
        self.work.clear()

    def end(self, error: BrokerError) -> None:
        """End the consumer: no further message arrives."""
        if self.ended is None:
            self.ended = error
            self.opened = False
            self._break_off(error)
            self._buffer.clear()
            self._changed()

    def _break_off(self, error: BrokerError) -> None:
        """End the large message that is arriving with an error."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.fail(error)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _give_back(self, size_bytes: int) -> None:
        """Credits of a message that left the buffer."""
        window = self.window_bytes
        if window > 0:
            self._consumed_bytes += size_bytes
            if self._consumed_bytes * 2 >= window:
                self._flush_credits()
        elif window == 0:
            # One credit let it come, so the broker's balance is 1 - size now; ``ask`` evens it out.
            self._consumed_bytes += size_bytes - 1

    def _flush_credits(self) -> None:
        if self._consumed_bytes and self.opened and self.window_bytes > 0:
            credits_bytes, self._consumed_bytes = self._consumed_bytes, 0
            self.channel.transmit_packet(FlowToken(consumer_id=self.consumer_id, credits=credits_bytes))


class _LargeMessage:
    """A large message on its way that is handed over as a whole."""

    __slots__ = ("_kept_bytes", "_pieces", "delivery_count", "header")

    def __init__(self, header: bytes, delivery_count: int) -> None:
        self.header = header
        self.delivery_count = delivery_count
        self._pieces: list[bytes] = []
        self._kept_bytes = 0

    @property
    def message_id(self) -> int:
        """0 if the header cannot be read."""
        try:
            return message_of_header(self.header, trusted=True).message_id
        except BrokerError:
            return 0

    def add(self, piece: bytes) -> None:
        self._kept_bytes += len(piece)
        if self._kept_bytes <= LARGE_BODY_BYTES_MAX:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def message(self) -> Message:
        """The whole message, still compressed if it is.

        Raises:
            LimitExceeded: larger than announced, and than ``LARGE_BODY_BYTES_MAX``.
            RemoteProtocolError: it cannot be read.
        """
        if self._kept_bytes > LARGE_BODY_BYTES_MAX:
            raise LimitExceeded(
                f"large message of {self._kept_bytes} bytes, limit {LARGE_BODY_BYTES_MAX}; it was skipped"
            )
        return message_of_header(self.header, b"".join(self._pieces), trusted=True)


def inflated(message: Message) -> Message:
    """The message with its body as it was before it was compressed.

    Raises:
        LimitExceeded: that is more than ``LARGE_BODY_BYTES_MAX``.
        RemoteProtocolError: it is not compressed.
    """
    if message.properties.get(LARGE_COMPRESSED) is not True:
        return message
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(message.body, LARGE_BODY_BYTES_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"compressed large message: {error}") from error
    if inflater.unconsumed_tail:
        raise LimitExceeded(f"compressed large message beyond {LARGE_BODY_BYTES_MAX} bytes; it was skipped")
    return message_of_header(header_of_message(message), body, trusted=True)
