"""A small CORE broker in memory on loopback, for client tests: queues, credits ignored, one process.

It keeps what its clients need and no more: topology, sessions, queues, sends with duplicate
detection, deliveries, acknowledgements, local transactions. Several fakes can share one ``Store``,
as a primary and its backup do. ``fail_after`` cuts the connection at a chosen moment.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from understudy.errors import QueueNotFound
from understudy.message import DUPLICATE_ID, FORCED_DELIVERY, Message
from understudy.wire.core.codec import FrameDecoder, encode, encode_null_response, encode_receive
from understudy.wire.core.codes import code_of
from understudy.wire.core.packets import (
    Acknowledge,
    BindingQuery,
    BindingQueryResponseV5,
    CheckForFailover,
    CheckForFailoverReply,
    ClusterTopologyV4,
    Commit,
    ConsumerClose,
    CreateAddress,
    CreateConsumer,
    CreateQueueV2,
    CreateSession,
    CreateSessionResponse,
    ExceptionResponse,
    ForceConsumerDelivery,
    IndividualAcknowledge,
    Packet,
    Ping,
    ProducerCredits,
    ProducerRequestCredits,
    QueueQuery,
    QueueQueryResponseV3,
    ReattachSession,
    ReattachSessionResponse,
    Rollback,
    SessionClose,
    SessionSend,
    SessionStart,
    SessionStop,
    SubscribeTopologyV2,
)
from understudy.wire.core.transport import TransportConfiguration


@dataclass(slots=True)
class Stored:
    """One message on its queue."""

    message: Message
    deliveries: int = 0


@dataclass(slots=True)
class Store:
    """Contents that survive a broker."""

    node_id: str = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
    queues: dict[str, list[Stored]] = field(default_factory=dict)
    duplicate_ids: set[object] = field(default_factory=set)
    next_id: int = 1
    duplicates: int = 0

    def add(self, message: Message) -> None:
        """Store it on the queue of its address, unless its duplicate id is known."""
        mark = message.properties.get(DUPLICATE_ID)
        if mark is not None and mark in self.duplicate_ids:
            self.duplicates += 1
            return
        self.duplicate_ids.add(mark)
        message.assign_id(self.next_id)
        self.next_id += 1
        self.queues.setdefault(message.address or "", []).append(Stored(message))


@dataclass(slots=True)
class _Consumer:
    queue: str
    browse_only: bool
    delivered: list[Stored] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Session:
    channel_id: int
    auto_commit_sends: bool
    auto_commit_acks: bool
    started: bool = False
    consumers: dict[int, _Consumer] = field(default_factory=dict)
    sends: list[Message] = field(default_factory=list)
    acks: list[tuple[_Consumer, Stored]] = field(default_factory=list)


class FakeBroker:
    """One listening broker."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.backup: tuple[str, int] | None = None
        self.port = 0
        self.received: list[Packet] = []
        self.before: Callable[[Packet], bool] | None = None
        """Asked before each packet is carried out; False cuts the connection instead."""
        self.after: Callable[[Packet], bool] | None = None
        """Asked after each packet was carried out, before the answer leaves; False cuts."""
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Stop listening and cut every connection, as a crash does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._connections)

    def cut(self) -> None:
        """Cut every connection; go on listening."""
        for connection in tuple(self._connections):
            connection.cut()


class _Connection(asyncio.Protocol):
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._decoder = FrameDecoder("server", 2**24)
        self._transport: asyncio.Transport | None = None
        self._sessions: dict[int, _Session] = {}
        self._out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream transport
        self._broker._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker._connections.discard(self)
        for session in self._sessions.values():
            self._return(session)
        self._sessions.clear()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._out.clear()

    def data_received(self, data: bytes) -> None:
        broker = self._broker
        for frame in self._decoder.receive_data(data):
            packet = frame.packet
            broker.received.append(packet)
            if broker.before is not None and not broker.before(packet):
                self.cut()
                return
            self._carry_out(frame.channel_id, packet)
            if broker.after is not None and not broker.after(packet):
                self.cut()
                return
        self._deliver()
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _send(self, channel_id: int, packet: Packet) -> None:
        self._out.append(encode(packet, channel_id))

    def _carry_out(self, channel_id: int, packet: Packet) -> None:
        if channel_id == 0:
            self._on_connection(packet)
        elif channel_id == 1:
            self._on_control(packet)
        else:
            session = self._sessions[channel_id]
            try:
                self._on_session(session, packet)
            except QueueNotFound as error:
                self._send(channel_id, ExceptionResponse(code_of(error), str(error)))

    def _on_connection(self, packet: Packet) -> None:
        broker = self._broker
        if isinstance(packet, Ping):
            self._send(0, packet)
        elif isinstance(packet, SubscribeTopologyV2):
            here = TransportConfiguration("here", parameters={"host": "127.0.0.1", "port": str(broker.port)})
            backup = None
            if broker.backup is not None:
                host, port = broker.backup
                backup = TransportConfiguration("backup", parameters={"host": host, "port": str(port)})
            self._send(0, ClusterTopologyV4(False, broker.store.node_id, 1, here, backup, True))

    def _on_control(self, packet: Packet) -> None:
        if isinstance(packet, CheckForFailover):
            self._send(1, CheckForFailoverReply(packet.node_id in (None, self._broker.store.node_id)))
        elif isinstance(packet, ReattachSession):
            self._send(1, ReattachSessionResponse(-1, False))
        elif isinstance(packet, CreateSession):
            if packet.password == "wrong":
                self._send(1, ExceptionResponse(105, "unknown user or wrong password"))
                return
            self._sessions[packet.session_channel_id] = _Session(
                packet.session_channel_id, packet.auto_commit_sends, packet.auto_commit_acks
            )
            self._send(1, CreateSessionResponse(136))

    def _on_session(self, session: _Session, packet: Packet) -> None:
        channel_id = session.channel_id
        store = self._broker.store
        if isinstance(packet, SessionSend):
            if session.auto_commit_sends:
                store.add(packet.message)
            else:
                session.sends.append(packet.message)
            if packet.requires_response:
                self._out.append(encode_null_response(channel_id, packet.correlation_id))
        elif isinstance(packet, (Acknowledge, IndividualAcknowledge)):
            self._acknowledge(session, packet)
            if packet.requires_response:
                self._out.append(encode_null_response(channel_id))
        elif isinstance(packet, ProducerRequestCredits):
            self._send(channel_id, ProducerCredits(packet.credits, packet.address))
        elif isinstance(packet, CreateConsumer):
            if packet.queue_name not in store.queues:
                raise QueueNotFound(packet.queue_name)
            session.consumers[packet.consumer_id] = _Consumer(packet.queue_name, packet.browse_only)
            self._send(channel_id, self._queue(packet.queue_name))
        elif isinstance(packet, QueueQuery):
            self._send(channel_id, self._queue(packet.name))
        elif isinstance(packet, BindingQuery):
            exists = packet.address in store.queues
            self._send(channel_id, BindingQueryResponseV5(exists, (), True, True))
        elif isinstance(packet, CreateQueueV2):
            store.queues.setdefault(packet.name, [])
            if packet.requires_response:
                self._out.append(encode_null_response(channel_id))
        elif isinstance(packet, ForceConsumerDelivery):
            self._deliver()
            marker = Message(address="", properties={FORCED_DELIVERY: packet.sequence})
            self._out.append(encode_receive(marker, channel_id, packet.consumer_id, 0))
        else:
            self._on_life(session, packet)

    def _on_life(self, session: _Session, packet: Packet) -> None:
        channel_id = session.channel_id
        if isinstance(packet, SessionStart):
            session.started = True
            return
        if isinstance(packet, SessionStop):
            session.started = False
        elif isinstance(packet, Commit):
            for message in session.sends:
                self._broker.store.add(message)
            for consumer, stored in session.acks:
                consumer.delivered.remove(stored)
            session.sends.clear()
            session.acks.clear()
            self._out.append(encode_null_response(channel_id, packet.correlation_id))
            return
        elif isinstance(packet, Rollback):
            self._return(session)
        elif isinstance(packet, ConsumerClose):
            consumer = session.consumers.pop(packet.consumer_id)
            self._requeue(consumer)
        elif isinstance(packet, SessionClose):
            self._return(session)
            del self._sessions[channel_id]
        elif not isinstance(packet, CreateAddress):
            return
        self._out.append(encode_null_response(channel_id))

    def _queue(self, name: str) -> QueueQueryResponseV3:
        exists = name in self._broker.store.queues
        count = len(self._broker.store.queues.get(name, []))
        return QueueQueryResponseV3(
            exists, True, False, 0, count, None, name, name, auto_create_queues=True, routing_type=1
        )

    def _acknowledge(self, session: _Session, packet: Acknowledge | IndividualAcknowledge) -> None:
        consumer = session.consumers[packet.consumer_id]
        position = [each.message.message_id for each in consumer.delivered].index(packet.message_id)
        one = isinstance(packet, IndividualAcknowledge)
        done = consumer.delivered[position : position + 1] if one else consumer.delivered[: position + 1]
        for stored in done:
            if session.auto_commit_acks:
                consumer.delivered.remove(stored)
            elif (consumer, stored) not in session.acks:
                session.acks.append((consumer, stored))

    def _deliver(self) -> None:
        for session in self._sessions.values():
            for consumer_id, consumer in session.consumers.items():
                queue = self._broker.store.queues[consumer.queue]
                if consumer.browse_only:
                    for stored in queue:
                        if stored.message.message_id not in consumer.seen:
                            consumer.seen.add(stored.message.message_id)
                            self._out.append(encode_receive(stored.message, session.channel_id, consumer_id, 1))
                elif session.started:
                    for stored in queue:
                        stored.deliveries += 1
                        frame = encode_receive(stored.message, session.channel_id, consumer_id, stored.deliveries)
                        self._out.append(frame)
                    consumer.delivered += queue
                    queue.clear()

    def _return(self, session: _Session) -> None:
        session.sends.clear()
        session.acks.clear()
        for consumer in session.consumers.values():
            self._requeue(consumer)

    def _requeue(self, consumer: _Consumer) -> None:
        queue = self._broker.store.queues[consumer.queue]
        queue[:0] = consumer.delivered
        consumer.delivered = []
