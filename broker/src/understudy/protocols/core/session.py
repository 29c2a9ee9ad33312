"""One session channel: each packet becomes a session call, each answer a packet.

Source: artemis-core s. 3.3 (correlation), s. 4.2 to 4.4 (packets), s. 6 (behaviour). A request that fails
is answered by EXCEPTION when an answer was wanted; otherwise the session has already marked its
transaction, and the failure is logged.

Not here: what a call does (``session.session``), command ids and connections (``channel``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from understudy.errors import BrokerError, UnsupportedPacket, forget_frames
from understudy.limits import GROUP_HELD_REQUEST_BYTES, LARGE_BACKLOG_BYTES_PAUSE
from understudy.message import FORCED_DELIVERY, LargeMessage, Message, MessageType
from understudy.protocols.core import consuming, lone_work, queues, xa
from understudy.protocols.core.answers import SessionAnswers
from understudy.protocols.core.channel import Event, SessionChannel
from understudy.protocols.core.consuming import delivery_frames
from understudy.protocols.core.link import CoreLink
from understudy.routing.grouping import Undecided
from understudy.selector.work import WORK
from understudy.session.session import ServerSession
from understudy.store.messages.reference import Part
from understudy.wire.core import packets
from understudy.wire.core.codec import (
    RECEIVE_OVERHEAD_BYTES,
    AcknowledgeBatch,
    CommitBatch,
    RefusedPacket,
    SendBatch,
    encode,
    encode_receive,
)

log = logging.getLogger(__name__)

NO_CORRELATION: Final = -1
#: Channel version from which COMMIT has a field for a correlation id (artemis-core s. 3.2).
COMMIT_CORRELATION_SINCE: Final = 132
#: Deliveries in one piece for the socket; of much larger pieces the memory would be taken anew each time.
_FRAMES_AT_ONCE: Final = 32

#: Before messages go on that wait for the next turn.
_PAUSE_MS: Final = 1

Handler = Callable[["CoreSession", Any], object]


class CoreSession(SessionAnswers):
    """The handler of one channel and the callback of its ``ServerSession``."""

    def __init__(
        self,
        connection: CoreLink,
        channel_id: int,
        confirmation_window: int,
        make_session: Callable[[CoreSession], ServerSession],
    ) -> None:
        """Raises what ``make_session`` raises, which makes the session that calls this handler."""
        session = make_session(self)
        channel = SessionChannel(
            connection, channel_id, confirmation_window, session.state.when_durable, self.internal_error
        )
        super().__init__(session, channel)
        self._alias = session.state.alias
        self._held: deque[tuple[packets.Packet, int]] | None = None
        """Packets that came after the last piece of a large message whose file is being synced, or after messages
        that wait for the next turn (``_hold_sends``); None when nothing is held. The first is that packet itself."""
        self._storing = False
        """Whether packets are held for the file of a large message: further large messages are still taken."""
        self._undecided: Undecided | None = None
        """The decision about a message group for which packets are held."""
        self._held_bytes = 0
        """Bytes of the packets that are held."""
        self._settled: list[Callable[[], None]] = []
        """Called when the session holds no packet back any more."""
        self._may_wait = lone_work.may_wait(self)
        """Whether the first request of a transaction waits for the next one."""
        self._first: tuple[packets.Packet, int] | None = None
        """The request that waits, and the bytes of its frame; None: none does."""

    @property
    def survives(self) -> bool:
        """Whether the session survives the loss of its connection (``reattachment.Reattachable``)."""
        return self.channel.survives

    def check_idle(self) -> None:
        """Give up a large message of which no piece has come for a long time."""
        self.session.uploads.check_idle()

    # --- incoming ------------------------------------------------------------------------------

    def receive(self, packet: packets.Packet, size_bytes: int) -> None:
        """Carry out one packet of this channel."""
        if self._may_wait and self._waits(packet, size_bytes):
            return
        if self._held is not None and not self._takes_ahead(packet):
            self._keep(packet, size_bytes)
            return
        ahead = self._held is not None
        handler = _HANDLERS.get(type(packet))
        if handler is None:
            raise UnsupportedPacket(f"{type(packet).__name__} on session channel {self._channel_id}")
        try:
            handler(self, packet)
        except BrokerError as error:
            forget_frames(error)
            self._refuse(packet, error)
        if ahead:
            return
        if self._held is not None:
            self._keep(packet, size_bytes)
        elif self._counts:
            self.channel.received(packet, size_bytes)

    def _waits(self, packet: packets.Packet, size_bytes: int) -> bool:
        """Whether a packet is done with for now: as the first one of its transaction it waits for the next one, or it
        was the commit of the one that waited. Otherwise the one that waited was carried out.
        """
        first = self._first
        if first is None:
            if self._held is None and lone_work.waits(self, packet):
                self._first = packet, size_bytes
                return True
            return False
        if type(packet) in lone_work.PASSING:
            return False
        if type(packet) is packets.Commit:
            self._first = None
            try:
                if lone_work.commit(self, first[0], packet.correlation_id):
                    return True
            except BrokerError as error:
                forget_frames(error)
                self._refuse(packet, error)
                return True
            self._first = first
        self._end_wait()
        return False

    def _end_wait(self) -> None:
        """Carry out the request that waits for the next one."""
        if self._first is not None:
            first, self._first = self._first, None
            self._may_wait = False
            self.receive(*first)
            self._may_wait = True

    def _keep(self, packet: packets.Packet, size_bytes: int) -> None:
        assert self._held is not None
        self._held.append((packet, size_bytes))
        self._held_bytes += size_bytes + GROUP_HELD_REQUEST_BYTES

    def _takes_ahead(self, packet: packets.Packet | None = None) -> bool:
        """Whether a packet, or the next one of a large message, is taken although others are held: it belongs to a
        large message that came next after one whose file is being made safe. A session that confirms commands takes
        none: they are confirmed in their order.
        """
        held, large = self._held, self.session.uploads
        if held is None or not self._storing or len(held) > 1 or self._counts:
            return False
        if packet is None:
            return large.open or large.may_begin
        if type(packet) is packets.SessionSendContinuation:
            return large.open
        return type(packet) is packets.SessionSendLarge and large.may_begin

    @property
    def congested(self) -> bool:
        """Whether its client should not be read until the disk has caught up."""
        undecided = self._undecided or self.session.uploads.undecided
        if undecided is not None:
            # a commit may take long; other sessions of the client go on
            return self._held_bytes > undecided.allowance_bytes
        if self._held is not None and not self._takes_ahead():
            return True
        return self.session.uploads.backlog_bytes > LARGE_BACKLOG_BYTES_PAUSE

    @property
    def awaits_decision(self) -> bool:
        """Whether packets are held until the queue of a message group is decided."""
        return self._undecided is not None or self.session.uploads.undecided is not None

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call once nothing is held: mostly now."""
        if self._held is None:
            call()
        else:
            self._settled.append(call)

    def _refuse(self, packet: packets.Packet, error: BrokerError) -> None:
        if self.gives_up(error):
            return
        packet_type = packet.packet_type if isinstance(packet, RefusedPacket) else type(packet)
        if packet_type in _ALWAYS_ANSWERED or _answer_wanted(packet):
            correlation_id = getattr(packet, "correlation_id", NO_CORRELATION)
            self.session.state.in_order(self._fail, None if correlation_id == NO_CORRELATION else correlation_id, error)
        else:
            log.info(
                "request failed",
                extra={"session": self._alias, "packet": packet_type.__name__, "error": str(error)},
            )

    def _skipped(self, refused: RefusedPacket) -> None:
        """A frame was skipped because something in it exceeds a limit: that request fails, and its transaction. Others
        of the connection go on.
        """
        error, packet_type, session = refused.error, refused.packet_type, self.session
        log.warning(
            "request refused",
            extra={"session": self._alias, "packet": packet_type.__name__, "error": str(error)},
        )
        if packet_type is packets.SessionSend:
            done = partial(self._done_with, refused.correlation_id) if refused.requires_response else None
            session.state.failed(error, done, session.state.sending_transaction)
        elif packet_type is packets.SessionSendLarge:
            self.channel.connection.hold(self)
            session.uploads.refuse(error)
        elif packet_type is packets.SessionSendContinuation:
            session.uploads.give_up(error)
            self._continue_large(cast(packets.SessionSendContinuation, refused.packet))
        elif packet_type in xa.ANSWERED:
            xa.refuse(self, error)
        elif packet_type in _HANDLERS:
            raise error
        else:
            raise UnsupportedPacket(f"{packet_type.__name__} on session channel {self._channel_id}")

    # --- producing -----------------------------------------------------------------------------

    def _create_producer(self, packet: packets.CreateProducer) -> None:
        self.session.sends.create_producer(packet.producer_id, packet.address)

    def _remove_producer(self, packet: packets.RemoveProducer) -> None:
        self.session.sends.remove_producer(packet.producer_id)

    def _request_credits(self, packet: packets.ProducerRequestCredits) -> None:
        self.session.sends.request_credits(packet.address, packet.credits)

    def _send_message(self, packet: packets.SessionSend) -> None:
        before = WORK.steps
        if (
            self._send_one(packet)
            and before != WORK.steps >= self.channel.connection.services.shared.sessions.post_office.send_steps_end
        ):
            self._hold_sends(lambda: True)

    def _send_one(self, packet: packets.SessionSend) -> bool:
        """Whether a message was taken; otherwise the rest of the session waits for the decision about its group."""
        done = partial(self._done_with, packet.correlation_id) if packet.requires_response else None
        undecided = self.session.sends.send(packet.message, done, may_wait=True)
        if undecided is not None:
            self._await(undecided, partial(self._send_one, packet))
        return undecided is None

    def _send_batch(self, packet: SendBatch, row: int = 0) -> bool:
        """Carry out a batch of sends. Returns whether all of them from ``row`` on were taken; otherwise the rest of the
        session waits for the next turn."""
        sends = packet.sends
        row = self.session.sends.send_batch(sends, row, self if sends.requires_response else None)
        if row == sends.count:
            return True
        go_on = partial(self._send_batch, packet, row)
        undecided = self.session.sends.undecided
        if undecided is None:
            self._hold_sends(go_on)
        else:
            self._await(undecided, go_on)
        return False

    def _await(self, undecided: Undecided, go_on: Callable[[], bool]) -> None:
        """A message waits for the decision about its group, and so do the requests after it, so that the order of the
        client is kept. Its other sessions go on.
        """
        self.channel.connection.hold(self)
        if self._held is None:
            self._held = deque()
        self._undecided = undecided
        undecided.when_decided(partial(self._send_rest, go_on))

    def _hold_sends(self, go_on: Callable[[], bool]) -> None:
        """The filters that messages have to pass did as much work as they may in one turn: nothing more of this client
        is read, and these messages and the requests after them are continued in the next turn.
        """
        connection = self.channel.connection
        connection.hold(self)
        if self._held is None:
            self._held = deque()
        connection.services.shared.sessions.post_office.timers.call_later(_PAUSE_MS, partial(self._send_rest, go_on))

    def _send_rest(self, go_on: Callable[[], bool]) -> None:
        if self._held is None or self.channel.ended:
            # the session has ended
            return
        self._undecided = None
        try:
            all_taken = go_on()
        except BrokerError as error:
            self.channel.connection.fail(error)
            return
        except Exception as bug:
            self.internal_error(bug)
            return
        if all_taken:
            self._go_on()

    def _send_large(self, packet: packets.SessionSendLarge) -> None:
        self.channel.connection.hold(self)
        try:
            header = packets.message_of_header(packet.header)
        except BrokerError as error:
            # the client already sends the pieces of the body: the answer to the last piece has the error
            self.session.uploads.refuse(error)
        else:
            self.session.uploads.begin(header)

    def _continue_large(self, packet: packets.SessionSendContinuation) -> None:
        if packet.continues:
            self.session.uploads.take(packet.body)
            return
        self.channel.connection.uploading.pop(self, None)
        done = partial(self._done_with, packet.correlation_id) if packet.requires_response else None
        if self.session.uploads.finish(packet.body, packet.message_body_size, done, self._go_on):
            self.channel.connection.hold(self)
            if self._held is None:
                self._held = deque()
                self._storing = True

    def _go_on(self) -> None:
        """The large message was sent, or the messages were taken: handle the requests that came after."""
        held, self._held = self._held, None
        self._storing = False
        connection = self.channel.connection
        connection.uploading.pop(self, None)
        if not self.channel.ended and self.session.uploads.open:
            # of which pieces were taken ahead
            connection.hold(self)
        if held:
            packet, size_bytes = self._next_held(held)
            if self._counts:
                self.channel.received(packet, size_bytes)
            try:
                while held and (self._held is None or self._takes_ahead(held[0][0])):
                    self.receive(*self._next_held(held))
            except BrokerError as error:
                connection.fail(error)
                return
            except Exception as bug:
                self.internal_error(bug)
                return
        if self._held is not None:
            if held:
                # few messages were added, and many may wait
                held.extendleft(reversed(self._held))
                self._held = held
            return
        settled, self._settled = self._settled, []
        for call in settled:
            call()

    def _next_held(self, held: deque[tuple[packets.Packet, int]]) -> tuple[packets.Packet, int]:
        packet, size_bytes = held.popleft()
        self._held_bytes -= size_bytes + GROUP_HELD_REQUEST_BYTES
        return packet, size_bytes

    # --- session, transactions -----------------------------------------------------------------

    def _start(self, _: packets.SessionStart) -> None:
        self.session.consumers.start()

    def _stop(self, _: packets.SessionStop) -> None:
        self.session.consumers.stop()
        self.session.state.in_order(self.done, None)

    def _commit(self, packet: packets.Commit) -> None:
        # From 132 on the request has a field for it, so a refusal has one too (artemis-core s. 3.3).
        has_field = self.version >= COMMIT_CORRELATION_SINCE
        self.session.commit(partial(self._done_with, packet.correlation_id) if has_field else self.done)

    def _rollback(self, packet: packets.Rollback) -> None:
        self.session.rollback(packet.consider_last_message_as_delivered, self.done)

    def _close(self, _: packets.SessionClose) -> None:
        self.channel.flush_confirmations()
        self.session.close(failed=False)
        self.session.state.when_durable(self._closed)

    def _closed(self) -> None:
        self.done(None)
        self.end()

    def _add_metadata(self, packet: packets.AddMetadata | packets.AddMetadataV2) -> None:
        self.session.state.add_metadata(packet.key, packet.value)
        if getattr(packet, "requires_confirmation", True):
            self.session.state.in_order(self.done, None)

    def _add_unique_metadata(self, packet: packets.UniqueAddMetadata) -> None:
        self.session.state.add_unique_metadata(packet.key, packet.value)
        if packet.requires_confirmation:
            self.session.state.in_order(self.done, None)

    def _confirmed(self, packet: packets.PacketsConfirmed) -> None:
        self.channel.confirmed(packet.command_id)

    # --- callback of the session ---------------------------------------------------------------

    @property
    def delivery_overhead_bytes(self) -> int:
        """Bytes of a delivery beside its message."""
        return RECEIVE_OVERHEAD_BYTES

    def deliver(self, consumer_id: int, part: Part) -> int:
        """Send messages, in few pieces if nothing has to be kept for a client that comes back; the whole frames count
        against the consumer's credits (artemis-core s. 6.3).
        """
        charged = 0
        count = len(part)
        step = 1 if self._counts else _FRAMES_AT_ONCE
        for begin in range(0, count, step):
            end = begin + step
            frames = delivery_frames(part, begin, end if end < count else count, self._channel_id, consumer_id)
            self._send(frames)
            charged += len(frames)
        return charged

    def deliver_large(self, consumer_id: int, message: LargeMessage, delivery_count: int) -> int:
        """Announce a large message; charged like every frame (artemis-core s. 6.3)."""
        packet = packets.ReceiveLargeMessage(consumer_id, delivery_count, message.large.size_bytes, message.header)
        return self._send_frame(packet)

    def deliver_piece(self, consumer_id: int, piece: bytes, continues: bool) -> int:
        """The next piece of the large message announced last."""
        return self._send_frame(packets.ReceiveContinuation(piece, continues, consumer_id))

    def _send_frame(self, packet: packets.Packet) -> int:
        frame = encode(packet, self._channel_id, self.channel.connection.decoder.version)
        self._send(frame)
        return len(frame)

    def forced_delivery(self, consumer_id: int, sequence: int) -> None:
        """Answer "is there anything?" when the queue had nothing more (artemis-core s. 6.3)."""
        marker = Message(
            b"\0\0\0\0",
            address=self.queue_names.get(consumer_id, ""),
            type=MessageType.DEFAULT,
            durable=False,
            properties={FORCED_DELIVERY: sequence},
        )
        self._send(encode_receive(marker, self._channel_id, consumer_id, 0))

    def operation_failed(self, error: BrokerError) -> None:
        """A request that wanted no answer failed; its transaction, if any, is marked."""
        log.info("request failed", extra={"session": self._alias, "error": str(error)})

    def disconnect_consumer(self, consumer_id: int) -> None:
        """Disconnect a consumer whose queue was deleted."""
        self.channel.send_packet(packets.DisconnectConsumer(consumer_id))

    def producer_credits(self, address: str, credit_bytes: int) -> None:
        """Grant credits to the producers of an address."""
        self.channel.send_packet(packets.ProducerCredits(credit_bytes, address))

    def producer_credits_refused(self, address: str, credit_bytes: int) -> None:
        """Refuse credits: the address is full and its policy is FAIL."""
        self.channel.send_packet(packets.ProducerFailCredits(credit_bytes, address))

    def kill_connection(self, reason: str) -> None:
        """The slow-consumer-policy is KILL; the packet says so to clients that listen (artemis-core s. 4.1)."""
        connection = self.channel.connection
        if self.channel.detached:
            connection.services.reattachments.end(self)
        else:
            connection.kill(reason)

    def internal_error(self, bug: Exception) -> None:
        """An internal error occurred: abort the connection."""
        self.channel.connection.internal_error(bug)
        if self.channel.detached:
            # there is no connection that could take it along
            self.close(failed=True)

    def writable(self) -> bool:
        """Whether the socket of its connection takes more."""
        return not self.channel.detached and self.channel.connection.writable()

    # --- life ------------------------------------------------------------------------------------

    def lose(self, ttl_ms: int) -> bool:
        """The connection is gone under it. True: it waits for its client; False: it has ended."""
        if self.channel.connection.services.reattachments.keep(self, ttl_ms):
            self.channel.fire(Event.LOSE)
            self.session.consumers.pause_deliveries()
            return True
        self.close(failed=True)
        return False

    def move(self, connection: CoreLink, frames: list[bytes]) -> None:
        """Go on at another connection, which first sends these frames."""
        uploading = self in self.channel.connection.uploading
        self.channel.fire(Event.MOVE, connection, frames)
        if uploading:
            connection.hold(self)
        self.version = connection.decoder.version
        self.session.state.move(connection.scope)
        self.session.consumers.resume_deliveries()

    def close(self, *, failed: bool) -> None:
        """End it without being asked by its client. Does nothing when it has ended."""
        if self.channel.ended:
            return
        # a delivery that was acknowledged goes back in another way
        self._end_wait()
        self._held = None
        self._settled.clear()
        self.session.close(failed=failed)
        self.end()

    def end(self) -> None:
        """The session is closed and its channel cannot be found any more. Does nothing the second time.

        Reference cycles are broken here, so that what the session held is freed now and not when the
        collector of cycles runs, which is seldom (``runtime.process.interpreter``).
        """
        if self.channel.ended:
            return
        connection = self.channel.connection
        self.channel.fire(Event.END)
        connection.services.reattachments.remove(self)
        connection.session_ended(self, self._channel_id)
        connection.services.shared.connections.session_ended()
        self._send = self.channel.send
        self.session.release_parts()
        del self.session


#: Requests whose client waits although they have no requires_response field.
_ALWAYS_ANSWERED: Final = frozenset(
    {
        packets.DeleteQueue,
        packets.QueueQuery,
        packets.BindingQuery,
        packets.ConsumerClose,
        packets.SessionStop,
        packets.SessionClose,
        packets.Commit,
        packets.Rollback,
        packets.AddMetadata,
    }
)


def _answer_wanted(packet: Any) -> bool:
    return bool(getattr(packet, "requires_response", False) or getattr(packet, "requires_confirmation", False))


_HANDLERS: Final[dict[type, Handler]] = {
    packets.SessionSend: CoreSession._send_message,
    SendBatch: CoreSession._send_batch,
    RefusedPacket: CoreSession._skipped,
    packets.SessionSendLarge: CoreSession._send_large,
    packets.SessionSendContinuation: CoreSession._continue_large,
    packets.Commit: CoreSession._commit,
    packets.Rollback: CoreSession._rollback,
    packets.ProducerRequestCredits: CoreSession._request_credits,
    packets.CreateProducer: CoreSession._create_producer,
    packets.RemoveProducer: CoreSession._remove_producer,
    packets.SessionStart: CoreSession._start,
    packets.SessionStop: CoreSession._stop,
    packets.SessionClose: CoreSession._close,
    packets.AddMetadata: CoreSession._add_metadata,
    packets.AddMetadataV2: CoreSession._add_metadata,
    packets.UniqueAddMetadata: CoreSession._add_unique_metadata,
    packets.PacketsConfirmed: CoreSession._confirmed,
    **consuming.HANDLERS,
    **queues.HANDLERS,
    **xa.HANDLERS,
}

#: Every packet that is carried out on a session channel.
SESSION_PACKETS: Final = frozenset(_HANDLERS) - {SendBatch, AcknowledgeBatch, CommitBatch, RefusedPacket}
