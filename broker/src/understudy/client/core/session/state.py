"""One client session: calls, producers, consumers, its transaction, and its life across failovers.

Pure: frames go to the channel, outcomes to waiters, time comes with the connection.
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
from typing import Any, Final

from understudy.client.core.connection.calls import Call, Interrupted, Waiter, settle
from understudy.client.core.connection.codec import OnDemand
from understudy.client.core.consumer.consumers import Consumers
from understudy.client.core.session.channel import Channel, SessionOptions
from understudy.client.core.session.large_sends import LargeBodySend
from understudy.client.core.session.sends import Pending, ProducerState, Sends
from understudy.client.core.session.settlements import Settlements
from understudy.client.core.session.transactions import Transactions
from understudy.client.core.session.xa import Branches
from understudy.errors import BrokerError, DuplicateMetadata, ObjectClosed
from understudy.message import DUPLICATE_ID, Message
from understudy.wire.core.codec import RefusedPacket
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
    SessionStop,
    UniqueAddMetadata,
)

#: First channel version with producer ids on the wire.
_PRODUCERS_SINCE: Final = 134


class SessionState:
    """One session without I/O: its channel, producers, consumers and transactions, and their order across failovers."""

    def __init__(self, channel: Channel, forget: Callable[[SessionState], None]) -> None:
        """Args:
        forget: Called when the server has closed the session.
        """
        self.channel = channel
        self._forget = forget
        self.created_at = ""
        """File and line of the application that made the session."""
        self.sends = Sends(channel)
        self.consumers = Consumers(channel)
        self.transaction = Transactions(channel, self.sends, self.consumers)
        self.branches = Branches(channel, self.sends, self.consumers)
        self.settlements = Settlements(channel, self.consumers, self.transaction)
        self.producers: dict[int, ProducerState] = {}
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

    @property
    def channel_id(self) -> int:
        """Number of its channel."""
        return self.channel.channel_id

    @property
    def options(self) -> SessionOptions:
        """The options with which the session was made."""
        return self.channel.options

    @property
    def closed(self) -> BrokerError | None:
        """The error that ended the session; None while it works."""
        return self.channel.closed

    # life

    def opened(self) -> None:
        """Called when the server has created the session for the first time."""
        channel = self.channel
        channel.attached = True
        channel.start()
        channel.calls.open()
        self.sends.resume()

    def suspend(self, error: BrokerError) -> None:
        """Called when the connection was lost. Calls that cannot be repeated fail at once, unless the server may
        still have the session and answer (artemis-ha s. 8: UNBLOCKED).
        """
        channel = self.channel
        channel.attached = False
        release = None if channel.confirmations.enabled or channel.link.codec.keeps_sessions else error
        channel.calls.suspend(release)
        self.sends.suspend(release)

    def reattached(self, last_confirmed: int) -> None:
        """The server still had the session: repeat the commands that it missed and continue."""
        channel = self.channel
        for frame in channel.confirmations.replay(last_confirmed):
            channel.link.transmit(frame)
        channel.attached = True
        channel.open_work.reattached()
        if self.sends.unconfirmed:
            channel.awaiting_confirmation()
        self.consumers.reattached()
        channel.calls.open()
        self.sends.resume()

    def recreated(self, name: str, error: BrokerError, *, dropped: bool = False) -> None:
        """Called when the server has a new session for us on the same channel.

        Args:
            error: What ended the connection of the old one.
            dropped: Whether the same broker goes on and ended only the connection.
        """
        channel = self.channel
        channel.name = name
        channel.generation += 1
        doomed = self.transaction.session_lost(in_branch=self.branches.working_in is not None)
        self.consumers.session_lost()
        if doomed:
            self.sends.drop()
        channel.calls.reset(error, dropped=dropped)
        channel.confirmations.reset()
        channel.attached = True
        for packet in self._temporary.values():
            channel.transmit_packet(packet)
        for producer in self.producers.values():
            self._register(producer, again=True)
        self.consumers.create_again()
        self.branches.session_recreated()
        for key, value in self._metadata.items():
            channel.transmit_packet(AddMetadataV2(key, value, requires_confirmation=False))
        channel.start()
        channel.calls.open()
        self.sends.resend(error, dropped=dropped)

    def end(self, error: BrokerError) -> None:
        """End the session for good: everything waiting fails."""
        if self.closed is not None:
            return
        self.channel.closed = error
        self.channel.attached = False
        self.channel.calls.end(error)
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
        if self.channel.attached:
            self.consumers.release_taken(in_transaction=self.options.transacted)

        def done(packet: Any, error: BaseException | None) -> None:
            self.end(ObjectClosed("the session is closed"))
            self._forget(self)
            settle(waiter)(None, error)

        self.channel.calls.add(
            Call("close session", lambda _: SessionClose(), (NullResponse,), done, Interrupted.FORGET)
        )

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
        self.channel.calls.add(Call(name, lambda _: packet, (expected,), settle(waiter), tolerated=tolerated))

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
        self.channel.calls.add(
            Call("metadata", lambda _: kind(key, value, True), (NullResponse,), done, tolerated=(DuplicateMetadata,))
        )

    def start(self) -> None:
        """Let deliveries come."""
        if not self.channel.started:
            self.channel.started = True
            self.channel.start()

    def stop(self, waiter: Waiter[None]) -> None:
        """Stop deliveries; buffered messages can still be taken."""
        self.channel.started = False
        self.channel.calls.add(
            Call("stop", lambda _: SessionStop(), (NullResponse,), settle(waiter, lambda _: None), Interrupted.FORGET)
        )

    # producers

    def open_producer(
        self, address: str | None, window: int, *, repeats: bool = False, on_demand: int | None = None
    ) -> ProducerState:
        """Register a producer; answers nothing, so it is there at once.

        Args:
            address: Address of its messages; None: each message has its own.
            window: Largest number of unfinished sends.
            repeats: Whether its messages are sent again after a failover though they have no duplicate ids.
            on_demand: Routing type of the address if the client makes that on demand.
        """
        if self.closed is not None:
            raise self.closed
        producer = ProducerState(self._next_producer, address, window, repeats=repeats)
        producer.on_demand = on_demand
        self._next_producer += 1
        self.producers[producer.sender_id] = producer
        if self.channel.attached:
            self._register(producer, again=False)
        return producer

    def close_producer(self, producer: ProducerState) -> None:
        """Close a producer; its unanswered sends are still carried out."""
        if producer.closed is None:
            producer.closed = ObjectClosed("the producer is closed")
            self.producers.pop(producer.sender_id, None)
            if self.channel.link.version >= _PRODUCERS_SINCE:
                self.channel.transmit_packet(RemoveProducer(producer.sender_id))

    def send(
        self,
        producer: ProducerState,
        message: Message,
        waiter: Waiter[None] | None,
        body: LargeBodySend | None = None,
    ) -> None:
        """Send a message whose address is set.

        Args:
            message: The message; the header of a large one.

        Raises:
            ObjectClosed: the producer or the session is closed.
            IllegalState: far more sends wait than the producer's window.
        """
        if producer.closed is not None:
            raise producer.closed
        settings = self.channel.settings
        if self.options.auto_commit_sends:
            confirm = settings.block_on_durable_send if message.durable else settings.block_on_non_durable_send
        else:
            # A failure of a transacted send surfaces at the commit (artemis-core s. 6.2).
            confirm = False
            if self.rollback_only:
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)
                return
            self.channel.open_work.done(attached=self.channel.attached)
        repeated = DUPLICATE_ID in message.properties or producer.repeats
        self.sends.add(Pending(producer, message, waiter, confirm, repeated, body))

    def _register(self, producer: ProducerState, *, again: bool) -> None:
        if producer.on_demand is not None and producer.address and not self.channel.link.codec.makes_queues:
            used = OnDemand(producer.address, producer.on_demand, producer.sender_id, again)
            self.channel.transmit_packet(used)
        if self.channel.link.version >= _PRODUCERS_SINCE:
            self.channel.transmit_packet(CreateProducer(producer.sender_id, producer.address))

    # transactions

    @property
    def rollback_only(self) -> bool:
        """Whether a failover undid work of the open transaction or branch."""
        return self.channel.open_work.rollback_only

    def commit(self, waiter: Waiter[None]) -> None:
        """Commit the transaction; fails like ``Transactions.commit``."""
        self.transaction.commit(waiter)

    def rollback(self, waiter: Waiter[None]) -> None:
        """Roll the transaction back; fails like ``Transactions.rollback``."""
        self.transaction.rollback(waiter)

    # arrivals

    def receive(self, packet: Packet, size_bytes: int) -> None:
        """Handle a packet of this channel; unknown packets are dropped, as by every CORE peer."""
        handler = self._handlers.get(type(packet))
        if handler is not None:
            handler(packet, size_bytes)
        else:
            self.channel.calls.answer(packet)
        confirmations = self.channel.confirmations
        if confirmations.enabled and packet.counts_as_command and confirmations.received(size_bytes):
            self.confirm_received()

    def confirm_received(self) -> None:
        """Tell the server what arrived (at the window, and with every ping)."""
        confirmations = self.channel.confirmations
        command_id = confirmations.confirm() if confirmations.enabled else None
        if command_id is not None:
            self.channel.transmit_packet(PacketsConfirmed(command_id))

    def _on_null_response(self, packet: NullResponse, size_bytes: int) -> None:
        correlation_id = packet.correlation_id
        if correlation_id > 0:
            self.channel.last_confirmation_ms = self.channel.link.now_ms
            self.sends.confirmed(correlation_id)
        else:
            self.channel.calls.answer(packet)

    def _on_exception(self, packet: ExceptionResponse, size_bytes: int) -> None:
        error = error_of(packet.error_code, packet.message)
        correlation_id = packet.correlation_id
        if correlation_id is not None and correlation_id > 0:
            if not self.sends.refused(correlation_id, error):
                self.channel.complaint(f"the broker refused a send: {error}")
            return
        if not self.channel.calls.fail(error):
            self.channel.complaint(f"the broker reports: {error}")

    def _on_refused(self, packet: RefusedPacket, size_bytes: int) -> None:
        """A frame of the broker was skipped because it exceeds a limit: it fails its receiver and nothing else."""
        if isinstance(packet.packet, ReceiveMessage):
            self.consumers.on_unreadable(packet.packet, packet.error, size_bytes)
        elif not self.channel.calls.fail(packet.error):
            self.channel.complaint(f"a {packet.packet_type.__name__} of the broker was skipped: {packet.error}")

    def _on_credits(self, packet: ProducerCredits, size_bytes: int) -> None:
        self.sends.credits_arrived(packet.credits, packet.address)

    def _on_fail_credits(self, packet: ProducerFailCredits, size_bytes: int) -> None:
        self.sends.credits_refused(packet.credits, packet.address)

    def _on_packets_confirmed(self, packet: PacketsConfirmed, size_bytes: int) -> None:
        if self.channel.confirmations.enabled:
            self.channel.confirmations.confirmed(packet.command_id)
