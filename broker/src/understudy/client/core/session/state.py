"""One client session: calls, producers, consumers, its transaction, and its life across failovers.

Pure: bytes go to ``SessionHost.transmit``, outcomes to waiters, time comes with the host.
Sources: artemis-core s. 6 (behaviour) and s. 8.3 (failover). While the connection is down the session is
*suspended*: sends and calls line up. It goes on by ``reattached`` (the server still had it, only
with a confirmation window) or ``recreated`` (a new one on the same channel): then consumers,
temporary queues and credits are set up again and unconfirmed sends repeated.

Not here: commit and rollback (``transactions``), the order of restoring several sessions
(``restoration``), waiting and tasks (the shells).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, Protocol

from understudy.client.core.connection.calls import Call, Calls, Interrupted, Waiter, settle
from understudy.client.core.consumer.consumers import Consumers
from understudy.client.core.consumer.state import ConsumerState
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.confirmations import Confirmations
from understudy.client.core.session.large_sends import LargeBodySend
from understudy.client.core.session.sends import Pending, ProducerState, Sends
from understudy.client.core.session.transactions import Transactions
from understudy.client.core.session.xa import Branches
from understudy.client.core.url.options import ClientOptions
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, DuplicateMetadata, ObjectClosed
from understudy.message import DUPLICATE_ID, Message
from understudy.ports import Clock
from understudy.wire.core.codec import RefusedPacket, encode, encode_send
from understudy.wire.core.codes import error_of
from understudy.wire.core.packets import (
    AddMetadataV2,
    CreateProducer,
    CreateQueueV2,
    DisconnectConsumer,
    ExceptionResponse,
    NullResponse,
    Packet,
    PacketsConfirmed,
    ProducerCredits,
    ProducerFailCredits,
    ReceiveContinuation,
    ReceiveLargeMessage,
    ReceiveMessage,
    RemoveProducer,
    SessionClose,
    SessionStart,
    SessionStop,
    UniqueAddMetadata,
)

#: First channel version with producer ids on the wire.
_PRODUCERS_SINCE: Final = 134


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a new session."""

    mode: AcknowledgeMode = AcknowledgeMode.AUTO
    """TRANSACTED with ``xa``."""
    xa: bool = False
    """Whether the transactions of the session are XA branches."""
    pre_acknowledge: bool = False
    """The broker counts messages as acknowledged before it sends them."""

    @property
    def transacted(self) -> bool:
        """Whether it has local transactions."""
        return self.mode is AcknowledgeMode.TRANSACTED and not self.xa

    @property
    def auto_commit_sends(self) -> bool:
        """Whether each send is a unit of work of its own."""
        return self.mode is not AcknowledgeMode.TRANSACTED

    @property
    def auto_commit_acks(self) -> bool:
        """Whether each acknowledgement is a unit of work of its own."""
        return self.mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)

    @property
    def consumer_mode(self) -> AcknowledgeMode:
        """How its consumers acknowledge."""
        return AcknowledgeMode.PRE_ACKNOWLEDGE if self.pre_acknowledge else self.mode


class SessionHost(Protocol):
    """The connection as seen from a session."""

    @property
    def options(self) -> ClientOptions:
        """The options of the connection."""
        ...

    @property
    def clock(self) -> Clock:
        """The clocks of the client."""
        ...

    @property
    def version(self) -> int:
        """Channel version for encoding."""
        ...

    @property
    def now_ms(self) -> int:
        """Monotonic time at the last arrival of bytes: cheap, and exact enough for time limits."""
        ...

    @property
    def node_id(self) -> str | None:
        """Node id of the broker it is connected to, the same of both nodes of a pair; None: not known."""
        ...

    def transmit(self, frame: bytes) -> None:
        """Send a frame with the next flush."""
        ...

    def session_changed(self, session: SessionState) -> None:
        """Note that the session has acknowledgements for the next flush."""
        ...

    def session_streams(self, session: SessionState) -> None:
        """Note that the session has pieces of a large message to send: pump it when the socket takes bytes."""
        ...

    def session_closed(self, session: SessionState) -> None:
        """Forget a session that was closed."""
        ...

    def wake_at(self, moment_ms: int) -> None:
        """Have the session called at that moment of the monotonic clock, in ms."""
        ...

    def complaint(self, text: str) -> None:
        """Log an error that no caller waits for."""
        ...


class SessionState:
    """One session without I/O: its calls, producers, consumers and transaction.

    Implements ``SendHost`` and ``ConsumersHost``.
    """

    def __init__(self, host: SessionHost, channel_id: int, name: str, options: SessionOptions) -> None:
        self._host = host
        self.channel_id = channel_id
        self.name = name
        """Known to the server; a new one after every re-creation."""
        self.options = options
        self.generation = 0
        """Rises with every re-creation, and when messages in work are given back; a message of an older one cannot be
        acknowledged.
        """
        self.started = True
        self.created_at = ""
        """File and line of the application that made the session."""
        self.closed: BrokerError | None = None
        self.consumers = Consumers(self, options.consumer_mode)
        self.producers: dict[int, ProducerState] = {}
        self.takes_settlements = False
        """Whether the server takes outcomes of single deliveries; stated when it made the session."""
        self.last_confirmation_ms = 0
        """When the broker last confirmed a send, or had none to confirm."""
        settings = host.options
        self.calls = Calls(
            self._send_call,
            host.clock,
            host.wake_at,
            timeout_ms=settings.call_timeout_ms,
            failover_timeout_ms=settings.call_failover_timeout_ms,
        )
        self.sends = Sends(self, self._encode_send, settings.producer_window_size)
        self.transaction = Transactions(self, transacted=options.transacted)
        self.branches = Branches(self, self.transaction, enabled=options.xa)
        self._confirmations = Confirmations(settings.confirmation_window_size)
        self._attached = False
        self._next_producer = 1
        self._temporary: dict[str, CreateQueueV2] = {}
        self._metadata: dict[str, str] = {}
        self._handlers: dict[type[Packet], Callable[[Any, int], None]] = {
            NullResponse: self._on_null_response,
            ReceiveMessage: self.consumers.on_message,
            RefusedPacket: self._on_refused,
            ExceptionResponse: self._on_exception,
            ProducerCredits: self._on_credits,
            ProducerFailCredits: self._on_fail_credits,
            PacketsConfirmed: self._on_packets_confirmed,
            ReceiveLargeMessage: self.consumers.on_large_message,
            ReceiveContinuation: self.consumers.on_continuation,
            DisconnectConsumer: self.consumers.on_disconnect,
        }

    # ports of the parts

    def wall_ms(self) -> int:
        return self._host.clock.wall_ms()

    @property
    def node_id(self) -> str | None:
        """Node id of the server; None before it is known."""
        return self._host.node_id

    def transmit(self, frame: bytes) -> None:
        """Send a counted command; while suspended it is kept for a reattachment, or pointless."""
        if self._confirmations.enabled:
            self._confirmations.sent(frame)
        if self._attached:
            self._host.transmit(frame)

    def transmit_packet(self, packet: Packet) -> None:
        frame = encode(packet, self.channel_id, self._host.version)
        if packet.counts_as_command:
            self.transmit(frame)
        elif self._attached:
            self._host.transmit(frame)

    def pump_wanted(self) -> None:
        self._host.session_streams(self)

    def awaiting_confirmation(self) -> None:
        """A command was sent whose confirmation has a time limit from now on."""
        now_ms = self._host.clock.monotonic_ms()
        self.last_confirmation_ms = now_ms
        self._host.wake_at(now_ms + self._host.options.call_timeout_ms)

    @property
    def settings(self) -> ClientOptions:
        return self._host.options

    def acknowledgements_wait(self) -> None:
        self._host.session_changed(self)

    def delivery_taken(self) -> None:
        self.transaction.work_done(attached=True)

    def return_in_work(self, consumer: ConsumerState, waiter: Waiter[bool]) -> None:
        self.transaction.return_unfinished(lambda: settle(waiter)(True, None), of=consumer)

    def complaint(self, text: str) -> None:
        self._host.complaint(text)

    def flush(self) -> None:
        """Send the acknowledgements collected since the last flush."""
        if self._attached:
            self.consumers.flush()

    def _send_call(self, packet: Packet) -> None:
        frame = encode(packet, self.channel_id, self._host.version)
        if packet.counts_as_command:
            self.transmit(frame)
        else:
            self._host.transmit(frame)

    def _encode_send(self, message: Message, requires_response: bool, correlation_id: int, sender_id: int) -> bytes:
        return encode_send(message, self.channel_id, requires_response, correlation_id, sender_id, self._host.version)

    # life

    def opened(self) -> None:
        """The server has created it for the first time."""
        self._attached = True
        if self.started:
            self.transmit_packet(SessionStart())
        self.calls.open()
        self.sends.resume()

    def suspend(self, error: BrokerError) -> None:
        """The connection was lost. Calls that cannot be repeated fail at once, unless the server may
        still have the session and answer (artemis-ha s. 8: UNBLOCKED).
        """
        self._attached = False
        release = None if self._confirmations.enabled else error
        self.calls.suspend(release)
        self.sends.suspend(release)

    def reattach_id(self) -> int:
        """Id of the last command received, for REATTACH_SESSION."""
        return self._confirmations.last_received

    def reattached(self, last_confirmed: int) -> None:
        """The server still had the session: repeat the commands that it missed and continue."""
        for frame in self._confirmations.replay(last_confirmed):
            self._host.transmit(frame)
        self._attached = True
        self.transaction.reattached()
        if self.sends.unconfirmed:
            self.awaiting_confirmation()
        if self.consumers.wants_flush():
            self._host.session_changed(self)
        self.calls.open()
        self.sends.resume()

    def recreated(self, name: str, error: BrokerError, *, dropped: bool = False) -> None:
        """The server has a new session for us on the same channel.

        Args:
            error: What ended the connection of the old one.
            dropped: Whether the same broker goes on and ended only the connection.
        """
        self.name = name
        self.generation += 1
        doomed = self.transaction.session_lost(in_branch=self.branches.working_in is not None)
        self.consumers.session_lost()
        if doomed:
            self.sends.drop()
        self.calls.reset(error, dropped=dropped)
        self._confirmations.reset()
        self._attached = True
        for packet in self._temporary.values():
            self.transmit_packet(packet)
        for producer in self.producers.values():
            self._register(producer)
        self.consumers.create_again()
        self.branches.session_recreated()
        for key, value in self._metadata.items():
            self.transmit_packet(AddMetadataV2(key, value, requires_confirmation=False))
        if self.started:
            self.transmit_packet(SessionStart())
        self.calls.open()
        self.sends.resend(error, dropped=dropped)

    def end(self, error: BrokerError) -> None:
        """End the session for good: everything waiting fails."""
        if self.closed is not None:
            return
        self.closed = error
        self._attached = False
        self.calls.end(error)
        self.sends.end(error)
        self.consumers.end(error)
        for producer in self.producers.values():
            producer.closed = error
            if producer.on_room is not None:
                producer.on_room()
        self.producers.clear()

    def close(self, waiter: Waiter[None], *, failed: bool = False) -> None:
        """Acknowledge what AUTO mode owes and tell the server; open work is rolled back there, with its deliveries
        counted.

        Args:
            waiter: Settled when the server has closed it.
            failed: An error ended its use: give back the messages in work first.
        """
        if failed:
            self.transaction.return_unfinished(lambda: self.close(waiter), closing=True)
            return
        if self.closed is not None:
            settle(waiter)(None, None)
            return
        if self._attached:
            self.consumers.release_taken(in_transaction=self.options.transacted)

        def done(packet: Any, error: BaseException | None) -> None:
            self.end(ObjectClosed("the session is closed"))
            self._host.session_closed(self)
            settle(waiter)(None, error)

        self.calls.add(Call("close session", lambda _: SessionClose(), (NullResponse,), done, Interrupted.FORGET))

    # requests

    def request(
        self,
        name: str,
        packet: Packet,
        expected: type[Packet],
        waiter: Waiter[Any],
        *,
        tolerated: tuple[type[BrokerError], ...] = (),
    ) -> None:
        """Ask something that may be asked again after a failover.

        Args:
            tolerated: Errors that mean "already done" when it had been asked before.
        """
        self.calls.add(Call(name, lambda _: packet, (expected,), settle(waiter), tolerated=tolerated))

    def temporary_queue_created(self, packet: CreateQueueV2) -> None:
        """Remember a temporary queue, to create it again after a failover."""
        again = CreateQueueV2(**{each.name: getattr(packet, each.name) for each in fields(packet)})
        again.requires_response = False
        self._temporary[packet.name] = again

    def has_temporary_queue(self, name: str) -> bool:
        """Whether the session has created this temporary queue."""
        return name in self._temporary

    def queue_deleted(self, name: str) -> None:
        """Forget a temporary queue."""
        self._temporary.pop(name, None)

    def add_metadata(self, key: str, value: str, unique: bool, waiter: Waiter[None]) -> None:
        """Label the session; kept across failovers.

        A unique pair that another session carries fails with ``DuplicateMetadata``.
        """

        def done(packet: Any, error: BaseException | None) -> None:
            if error is None:
                self._metadata[key] = value
            settle(waiter, lambda _: None)(packet, error)

        kind = UniqueAddMetadata if unique else AddMetadataV2
        self.calls.add(
            Call("metadata", lambda _: kind(key, value, True), (NullResponse,), done, tolerated=(DuplicateMetadata,))
        )

    def start(self) -> None:
        """Let deliveries come."""
        if not self.started:
            self.started = True
            self.transmit_packet(SessionStart())

    def stop(self, waiter: Waiter[None]) -> None:
        """Stop deliveries; buffered messages can still be taken."""
        self.started = False
        self.calls.add(
            Call("stop", lambda _: SessionStop(), (NullResponse,), settle(waiter, lambda _: None), Interrupted.FORGET)
        )

    # producers

    def open_producer(self, address: str | None, window: int) -> ProducerState:
        """Register a producer; answers nothing, so it is there at once."""
        if self.closed is not None:
            raise self.closed
        producer = ProducerState(self._next_producer, address, window)
        self._next_producer += 1
        self.producers[producer.sender_id] = producer
        if self._attached:
            self._register(producer)
        return producer

    def close_producer(self, producer: ProducerState) -> None:
        """Close a producer; its unanswered sends are still carried out."""
        if producer.closed is None:
            producer.closed = ObjectClosed("the producer is closed")
            self.producers.pop(producer.sender_id, None)
            if self._host.version >= _PRODUCERS_SINCE:
                self.transmit_packet(RemoveProducer(producer.sender_id))

    def send(
        self,
        producer: ProducerState,
        message: Message,
        waiter: Waiter[None] | None,
        body: LargeBodySend | None = None,
    ) -> None:
        """Send a message whose address is set.

        Args:
            message: Of a large one the header.

        Raises:
            ObjectClosed: the producer or the session is closed.
            IllegalState: far more sends wait than the producer's window.
        """
        if producer.closed is not None:
            raise producer.closed
        settings = self._host.options
        if self.options.auto_commit_sends:
            confirm = settings.block_on_durable_send if message.durable else settings.block_on_non_durable_send
        else:
            # A failure of a transacted send surfaces at the commit (artemis-core s. 6.2).
            confirm = False
            if self.transaction.rollback_only:
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)
                return
            self.transaction.work_done(attached=self._attached)
        self.sends.add(Pending(producer, message, waiter, confirm, DUPLICATE_ID in message.properties, body))

    def _register(self, producer: ProducerState) -> None:
        if self._host.version >= _PRODUCERS_SINCE:
            self.transmit_packet(CreateProducer(producer.sender_id, producer.address))

    # transactions

    @property
    def rollback_only(self) -> bool:
        """Whether a failover undid work of the open transaction or branch."""
        return self.transaction.rollback_only

    def commit(self, waiter: Waiter[None]) -> None:
        """Commit the transaction; fails like ``Transactions.commit``."""
        self.transaction.commit(waiter)

    def rollback(self, waiter: Waiter[None]) -> None:
        """Roll the transaction back; fails like ``Transactions.rollback``."""
        self.transaction.rollback(waiter)

    # arrivals

    def receive(self, packet: Packet, size_bytes: int) -> None:
        """One packet on this channel; unknown ones are dropped, as by every CORE peer."""
        handler = self._handlers.get(type(packet))
        if handler is not None:
            handler(packet, size_bytes)
        else:
            self.calls.answer(packet)
        confirmations = self._confirmations
        if confirmations.enabled and packet.counts_as_command and confirmations.received(size_bytes):
            self.confirm_received()

    def confirm_received(self) -> None:
        """Tell the server what arrived (at the window, and with every ping)."""
        command_id = self._confirmations.confirm() if self._confirmations.enabled else None
        if command_id is not None:
            self.transmit_packet(PacketsConfirmed(command_id))

    def _on_null_response(self, packet: NullResponse, size_bytes: int) -> None:
        correlation_id = packet.correlation_id
        if correlation_id > 0:
            self.last_confirmation_ms = self._host.now_ms
            self.sends.confirmed(correlation_id)
        else:
            self.calls.answer(packet)

    def _on_exception(self, packet: ExceptionResponse, size_bytes: int) -> None:
        error = error_of(packet.error_code, packet.message)
        correlation_id = packet.correlation_id
        if correlation_id is not None and correlation_id > 0:
            if not self.sends.refused(correlation_id, error):
                self._host.complaint(f"the broker refused a send: {error}")
            return
        if not self.calls.fail(error):
            self._host.complaint(f"the broker reports: {error}")

    def _on_refused(self, packet: RefusedPacket, size_bytes: int) -> None:
        """A frame of the broker was skipped because it exceeds a limit: it fails its receiver and nothing else."""
        if isinstance(packet.packet, ReceiveMessage):
            self.consumers.on_unreadable(packet.packet, packet.error, size_bytes)
        elif not self.calls.fail(packet.error):
            self._host.complaint(f"a {packet.packet_type.__name__} of the broker was skipped: {packet.error}")

    def _on_credits(self, packet: ProducerCredits, size_bytes: int) -> None:
        self.sends.credits_arrived(packet.credits, packet.address)

    def _on_fail_credits(self, packet: ProducerFailCredits, size_bytes: int) -> None:
        self.sends.credits_refused(packet.credits, packet.address)

    def _on_packets_confirmed(self, packet: PacketsConfirmed, size_bytes: int) -> None:
        if self._confirmations.enabled:
            self._confirmations.confirmed(packet.command_id)
