"""All consumers of one session: made, closed, acknowledged for, and made again after a failover.

Which acknowledgement a session sends when, by its mode: artemis-core s. 6.1 and 6.4. Not here:
one consumer's buffer and credits (``consumer``), or commit and rollback (``session``).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from understudy.client.core.connection.calls import Call, Done, Interrupted, Waiter, settle
from understudy.client.core.connection.codec import OnDemand
from understudy.client.core.consumer.state import (
    DEFAULT_SETTINGS,
    ConsumerOptions,
    ConsumerSettings,
    ConsumerState,
    MakeReceived,
    ReceivedMessage,
)
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.channel import Channel
from understudy.client.core.url.options import ClientOptions
from understudy.errors import BrokerError, MessageUnreadable, ObjectClosed, QueueNotFound
from understudy.wire.core.packets import (
    Acknowledge,
    ConsumerClose,
    CreateConsumer,
    CreateQueueV2,
    CreateSharedQueueV2,
    DisconnectConsumer,
    NullResponse,
    Packet,
    QueueQuery,
    QueueQueryResponse,
    QueueQueryResponseV3,
    ReceiveContinuation,
    ReceiveLargeMessage,
    ReceiveMessage,
)

_ANYCAST: Final = 1
_AT_CLOSE_OF_SESSION: Final = (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)
_ACKNOWLEDGED_AT_CLOSE: Final = (*_AT_CLOSE_OF_SESSION, AcknowledgeMode.TRANSACTED)


class Consumers:
    """The consumers of one session."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._mode = channel.options.consumer_mode
        self._consumers: dict[int, ConsumerState] = {}
        self._next_id = 0
        self._changed: dict[int, ConsumerState] = {}
        self._acknowledging = False

    def __len__(self) -> int:
        return len(self._consumers)

    # made and closed

    def open(
        self,
        queue: str,
        waiter: Waiter[ConsumerState],
        settings: ConsumerSettings = DEFAULT_SETTINGS,
        *,
        make_received: MakeReceived = ReceivedMessage,
        shared: CreateSharedQueueV2 | None = None,
    ) -> None:
        """Create a consumer; the waiter gets it once the broker has it.

        Args:
            settings: Settings of the consumer, beside those of the connection.
            shared: How its queue was asked for, if it is that of a shared subscription.
        """
        options, window_bytes = self._channel.settings, settings.window_bytes
        consumer = ConsumerState(
            self._channel,
            self._next_id,
            queue,
            ConsumerOptions(
                self._mode,
                options.dups_ok_ack_batch_size
                if self._mode is AcknowledgeMode.DUPS_OK
                else options.transaction_ack_batch_size,
                settings.filter_text,
                settings.browse_only,
                settings.priority,
                settings.on_demand,
            ),
            window_bytes=options.consumer_window_size if window_bytes is None else window_bytes,
            acknowledges=self._acknowledges,
            make_received=make_received,
        )
        self._next_id += 1
        consumer.shared_queue = shared
        said = window_bytes is not None or options.consumer_window_size != ClientOptions().consumer_window_size

        def done(info: QueueQueryResponse | None, error: BaseException | None) -> None:
            if error is None and info is not None and waiter.done():
                # The caller was cancelled meanwhile: its messages would never be taken.
                self._close_at_broker(consumer, None)
            elif error is None and info is not None:
                if isinstance(info, QueueQueryResponseV3) and not said:
                    suggested = info.default_consumer_window_size
                    consumer.window_bytes = consumer.window_bytes if suggested is None else suggested
                self._consumers[consumer.consumer_id] = consumer
                consumer.start(info)
            settle(waiter, lambda _: consumer)(info, error)

        packet = _create(consumer)
        self._channel.calls.add(Call(f"consume from {queue}", lambda _: packet, (QueueQueryResponse,), done))

    def close(self, consumer: ConsumerState, waiter: Waiter[None]) -> None:
        """Close a consumer; its buffered messages go back to the queue."""
        if self._consumers.pop(consumer.consumer_id, None) is None or self._channel.closed is not None:
            consumer.end(ObjectClosed("the consumer is closed"))
            settle(waiter)(None, None)
            return
        if self._mode in _ACKNOWLEDGED_AT_CLOSE:
            packet = consumer.work.acknowledgement(consumer.consumer_id, due_only=False)
            if packet is not None:
                self._channel.transmit_packet(packet)
        self._changed.pop(consumer.consumer_id, None)
        consumer.end(ObjectClosed("the consumer is closed"))
        self._close_at_broker(consumer, waiter)

    def _close_at_broker(self, consumer: ConsumerState, waiter: Waiter[None] | None) -> None:
        self._channel.calls.add(self._closing(ConsumerClose(consumer.consumer_id), waiter))

    @staticmethod
    def _closing(packet: ConsumerClose, waiter: Waiter[None] | None) -> Call:
        done: Done = settle(waiter, lambda _: None) if waiter is not None else (lambda packet, error: None)
        return Call("close consumer", lambda _: packet, (NullResponse,), done, Interrupted.FORGET, bound=True)

    # acknowledging

    def _acknowledges(self, consumer: ConsumerState) -> None:
        if not self._changed:
            self._channel.link.before_flush(self.flush)
        self._changed[consumer.consumer_id] = consumer

    @property
    def in_work(self) -> bool:
        """Whether any consumer has a message in work."""
        return any(consumer.work.unfinished for consumer in self._consumers.values())

    @property
    def acknowledge_at_once(self) -> bool:
        """Whether an acknowledgement takes effect at the server when it arrives; False: with a commit."""
        return self._mode in _AT_CLOSE_OF_SESSION

    def delivered(self, received: ReceivedMessage) -> bool:
        """Whether the broker still waits for the outcome of the message, or had an acknowledgement of it when its
        consumer was closed.
        """
        consumer = received.consumer
        if received.generation != self._channel.generation:
            return False
        if self._consumers.get(consumer.consumer_id) is consumer:
            return True
        return self._mode in _ACKNOWLEDGED_AT_CLOSE and isinstance(consumer.ended, ObjectClosed)

    def acknowledge_all(self) -> None:
        """Send acknowledgements for everything taken."""
        for consumer in self._consumers.values():
            packet = consumer.work.acknowledgement(consumer.consumer_id, due_only=False)
            if packet is not None:
                self._channel.transmit_packet(packet)

    def release_taken(self, *, in_transaction: bool) -> None:
        """The session closes: AUTO and DUPS_OK acknowledge the messages that were handed out. The answer to the close
        confirms it, so blockOnAcknowledge needs none of its own. In a transaction, which the close rolls back, their
        deliveries count by that.
        """
        if self._mode in _AT_CLOSE_OF_SESSION or in_transaction:
            self.acknowledge_all()
        else:
            self.flush()

    def flush(self) -> None:
        """Send the acknowledgements collected since the last flush; while suspended they wait."""
        if not self._channel.attached:
            return
        changed = self._changed
        if not self._channel.settings.block_on_acknowledge or self._mode is AcknowledgeMode.TRANSACTED:
            for consumer in changed.values():
                packet = consumer.work.acknowledgement(consumer.consumer_id)
                if packet is not None:
                    self._channel.transmit_packet(packet)
            changed.clear()
            return
        while changed and not self._acknowledging:
            consumer = changed.pop(next(iter(changed)))
            packet = consumer.work.acknowledgement(consumer.consumer_id, requires_response=True)
            if packet is not None:
                self._acknowledging = True
                self._channel.calls.add(self._blocking_acknowledge(packet))

    def _blocking_acknowledge(self, packet: Acknowledge) -> Call:
        def done(answer: Any, error: BaseException | None) -> None:
            self._acknowledging = False
            if error is not None:
                self._channel.complaint(f"acknowledgement of message {packet.message_id}: {error}")
            if self._changed:
                self._channel.link.before_flush(self.flush)

        return Call("acknowledge", lambda _: packet, (NullResponse,), done, Interrupted.FORGET, bound=True)

    def acknowledge_finished(self) -> None:
        """Deliveries are stopped, and a rollback gives back the messages in work: send the acknowledgements."""
        self._changed.clear()
        for consumer in self._consumers.values():
            packet = consumer.work.acknowledgement_before_return(consumer.consumer_id)
            if packet is not None:
                self._channel.transmit_packet(packet)

    def replace_idle(self, *, closing: bool) -> None:
        """Replace each consumer that has messages and none in work by a new one of the same queue: those of the old one
        return uncounted. The new one comes first, so that the queue is never without a consumer; a queue with a
        limit of consumers keeps the old one.

        Args:
            closing: The session will be closed next: no new one is needed.
        """
        calls = []
        for consumer in list(self._consumers.values()):
            info = consumer.queue_info
            limited = isinstance(info, QueueQueryResponseV3) and info.max_consumers >= 0
            if consumer.browse_only or consumer.work.unfinished or not consumer.holds or (limited and not closing):
                continue
            old = ConsumerClose(consumer.consumer_id)
            consumer.session_lost()
            if closing:
                calls.append(self._closing(old, None))
                continue
            del self._consumers[consumer.consumer_id]
            consumer.consumer_id = self._next_id
            self._next_id += 1
            self._consumers[consumer.consumer_id] = consumer
            calls.append(self._again(consumer, queue_exists=True))
            calls.append(self._closing(old, None))
        # ahead of the rollback: the first call is sent at once, and each further one is put after it
        for call in (*calls[:1], *reversed(calls[1:])):
            self._channel.calls.add(call, first=True)

    def rolled_back(self) -> None:
        """Deliveries stopped, a rollback follows: acknowledge the taken messages, drop the rest."""
        self.acknowledge_all()
        self.returned()

    def returned(self) -> None:
        """The broker takes back everything it delivered: drop it."""
        for consumer in self._consumers.values():
            consumer.rolled_back()

    # life

    def session_lost(self) -> None:
        """Called when the server's session is gone with all deliveries."""
        self._changed.clear()
        self._acknowledging = False
        for consumer in self._consumers.values():
            consumer.session_lost()

    def create_again(self) -> None:
        """Put the creation of every consumer at the head of the line of calls, first one first."""
        for consumer in reversed(tuple(self._consumers.values())):
            self._channel.calls.add(self._again(consumer), first=True)

    def reattached(self) -> None:
        """The server's session lives on: send the acknowledgements that wait."""
        if self._changed:
            self._channel.link.before_flush(self.flush)

    def end(self, error: BrokerError) -> None:
        """End all consumers: no further message arrives."""
        for consumer in self._consumers.values():
            consumer.end(error)
        self._consumers.clear()
        self._changed.clear()

    def _again(self, consumer: ConsumerState, *, queue_exists: bool = False) -> Call:
        def build(_: int) -> Packet:
            info = consumer.queue_info
            if queue_exists:
                pass
            elif consumer.shared_queue is not None:
                self._channel.transmit_packet(replace(consumer.shared_queue, requires_response=False))
            elif isinstance(info, QueueQueryResponseV3) and info.exists and (not info.durable or info.auto_created):
                self._channel.transmit_packet(_queue_like(info, consumer.queue))
            elif consumer.options.on_demand and not self._channel.link.codec.makes_queues:
                self._channel.transmit_packet(OnDemand(consumer.queue, _ANYCAST, None, again=True))
            return _create(consumer)

        def done(info: QueueQueryResponse | None, error: BaseException | None) -> None:
            if info is not None:
                consumer.start(None, again=True)
            elif isinstance(error, BrokerError):
                self._consumers.pop(consumer.consumer_id, None)
                consumer.end(error)

        name = f"consume from {consumer.queue} again"
        return Call(name, build, (QueueQueryResponse,), done, Interrupted.FORGET, bound=True)

    # arrivals

    def on_message(self, packet: ReceiveMessage, size_bytes: int) -> None:
        """A SESS_RECEIVE_MSG has arrived; one for a closed consumer is dropped."""
        consumer = self._consumers.get(packet.consumer_id)
        if consumer is not None:
            consumer.arrived(packet.message, packet.delivery_count, size_bytes)

    def on_unreadable(self, packet: ReceiveMessage, error: BrokerError, size_bytes: int) -> None:
        """A delivery beyond the limits was skipped: the receiver gets the error, and the next call goes on after it."""
        consumer = self._consumers.get(packet.consumer_id)
        if consumer is not None:
            consumer.unreadable(error, size_bytes)

    def on_large_message(self, packet: ReceiveLargeMessage, size_bytes: int) -> None:
        """A SESS_RECEIVE_LARGE_MSG has arrived; one for a closed consumer is dropped."""
        consumer = self._consumers.get(packet.consumer_id)
        if consumer is not None:
            consumer.large_begins(packet.header, packet.delivery_count, packet.large_message_size, size_bytes)

    def on_continuation(self, packet: ReceiveContinuation, size_bytes: int) -> None:
        """A SESS_RECEIVE_CONTINUATION has arrived; one for a closed consumer is dropped."""
        consumer = self._consumers.get(packet.consumer_id)
        if consumer is not None:
            consumer.large_continues(packet.body, packet.continues, size_bytes)

    def on_disconnect(self, packet: DisconnectConsumer, size_bytes: int) -> None:
        """A DISCONNECT_CONSUMER has arrived: the queue was deleted, or the body of the large message that is arriving
        cannot be read at the broker. CORE has one packet for both, so in the middle of a body the queue is asked for.
        """
        consumer = self._consumers.pop(packet.consumer_id, None)
        if consumer is None:
            return
        self._taken_back(consumer)
        gone = QueueNotFound(f"the broker closed the consumer: queue {consumer.queue} is gone")
        message_id = consumer.arriving_id
        if message_id is None:
            consumer.end(gone)
            return

        def done(info: QueueQueryResponse | None, error: BaseException | None) -> None:
            if isinstance(error, BrokerError):
                consumer.end(error)
            elif info is None or not info.exists:
                consumer.end(gone)
            else:
                consumer.end(
                    MessageUnreadable(
                        f"message {message_id} of queue {consumer.queue}: its body is damaged at the broker, which"
                        " holds the message back",
                        hint="make a new consumer for the other messages; this one comes again when the other node of a"
                        " pair has replaced the body, and else is in the quarantine of the broker",
                    )
                )

        query = QueueQuery(consumer.queue)
        self._channel.calls.add(Call("query queue", lambda _: query, (QueueQueryResponse,), done))

    def _taken_back(self, consumer: ConsumerState) -> None:
        """The broker has closed the consumer, and its messages that were not acknowledged went back to the queue. In a
        transaction or branch their acknowledgement is sent nevertheless: the broker refuses it, so that the
        transaction, which cannot have all of its work, can only be rolled back.
        """
        self._changed.pop(consumer.consumer_id, None)
        if self._mode is AcknowledgeMode.TRANSACTED:
            refused = consumer.work.acknowledgement(consumer.consumer_id, due_only=False)
            if refused is not None:
                self._channel.transmit_packet(refused)
        consumer.disconnect()


def _create(consumer: ConsumerState) -> CreateConsumer:
    return CreateConsumer(
        consumer.consumer_id,
        consumer.queue,
        consumer.options.filter_text,
        consumer.browse_only,
        True,
        consumer.options.priority,
    )


def _queue_like(info: QueueQueryResponseV3, queue: str) -> CreateQueueV2:
    """The request that creates the queue of a consumer again, with all that was known of it."""
    known = {each.name for each in fields(info)}
    values = {each.name: getattr(info, each.name) for each in fields(CreateQueueV2) if each.name in known}
    values["name"] = info.name or queue
    values["address"] = info.address or queue
    values["requires_response"] = False
    return CreateQueueV2(**values)
