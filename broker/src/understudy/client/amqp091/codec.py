"""The protocol AMQP 0-9-1 of one connection of the client, on one transport after the other.

The packets of channels 0 and 1 become the handshake, heartbeats and channels; those of a session go to its
``SessionChannel``. Topology: the broker itself, its first known host as its backup, further ones as other nodes.

Not here: the methods of channel 0 (``handshake``), sessions (``channel``), queues (``declarations``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from understudy.client.amqp091.channel import SessionChannel
from understudy.client.amqp091.content import method_of
from understudy.client.amqp091.declarations import CHANNEL, Declarations
from understudy.client.amqp091.handshake import ClientSession, Handshake, Login, State
from understudy.client.amqp091.messages import Outgoing, outgoing
from understudy.client.amqp091.output import Output
from understudy.client.amqp091.requests import check_request, topology_of
from understudy.client.core.connection.codec import (
    CONNECTION_CHANNEL,
    CONTROL_CHANNEL,
    Arrival,
    Decoder,
    Frame,
    TransportEnds,
    hint_of_protocol,
)
from understudy.client.core.connection.link_state import LinkState
from understudy.client.core.url.options import Connector
from understudy.errors import BrokerError, ConnectionLost, LimitExceeded, ProtocolError, RemoteProtocolError
from understudy.message import Message
from understudy.wire.amqp091 import frames as f
from understudy.wire.amqp091.methods import ConnectionClose
from understudy.wire.core import packets as p

_OK: Final = 200
_FIRST_CHANNEL: Final = CHANNEL + 1


class _Command(NamedTuple):
    channel_id: int
    packet: p.Packet


class _Publish(NamedTuple):
    channel_id: int
    publish: Outgoing
    correlation_id: int | None


class Amqp091Codec:
    """The protocol AMQP 0-9-1. Implements ``Codec`` and ``Decoder``."""

    version = p.VERSION
    duplicate_ids = False
    stored_ids = False
    makes_queues = False

    def __init__(self, link: LinkState, login: tuple[str | None, str | None, str], heartbeat_s: int) -> None:
        """Args:
        link: The connection.
        login: User, password and virtual host.
        heartbeat_s: Interval of heartbeats, in seconds, that the time limits of the connection need; 0: none.
        """
        self.ping_period_ms: int | None = None
        self.ended_by_broker = False
        self._said_end = False
        self._link = link
        self._login = Login(*login)
        self._heartbeat_s = heartbeat_s
        self._out = Output(link.write, lambda: link.before_flush(self._deliver))
        self._declarations = Declarations(self._out)
        self._session = ClientSession.for_ttl(link.options.connection_ttl_ms)
        self._channels: dict[int, SessionChannel] = {}
        self._decoder = f.FrameDecoder(self._out.frame_max)
        self._handshake: Handshake | None = None
        self._connector = Connector("", 0)
        self._wanted_node: str | None = None
        self._events = 0

    @property
    def keeps_sessions(self) -> bool:
        """Whether the broker may still have the sessions after a lost connection and decide requests under way."""
        return self._session.kept

    @property
    def blocked(self) -> bool:
        """Whether the broker takes no messages for now."""
        return self._handshake is not None and self._handshake.blocked

    # the transport

    def opened(self, connector: Connector, can_refuse: Callable[[int], bool]) -> Decoder:
        self._out.restart()
        self._decoder = f.FrameDecoder(self._out.frame_max)
        self._connector = connector
        self._wanted_node = None
        self._handshake = Handshake(self._out, self._login, self._session, connector, self._link.token)
        self._handshake.heartbeat_s = self._heartbeat_s
        self._out.send_bytes(f.PROTOCOL_HEADER)
        return self

    def lost(self) -> None:
        self._handshake = None
        # a broker of this protocol says so before it ends a connection because of a request
        self.ended_by_broker, self._said_end = self._said_end, False
        self._out.clear()
        self._declarations.lost()
        for channel in self._channels.values():
            channel.lost()
        self._forget_ended()

    def leave(self) -> None:
        if self._is_open:
            self._out.send(ConnectionClose(_OK, "the client closes the connection"), CONNECTION_CHANNEL)

    @property
    def _is_open(self) -> bool:
        return self._handshake is not None and self._handshake.state is State.OPEN

    def learn_version(self, version: int) -> None:
        """Do nothing: packets are not written."""

    # packets of the client

    def encode(self, channel_id: int, packet: p.Packet) -> Frame:
        check_request(packet)
        return _Command(channel_id, packet)

    def encode_send(self, message: Message, channel_id: int, correlation_id: int | None, sender_id: int) -> Frame:
        return _Publish(
            channel_id, outgoing(message, self._link.clock.wall_ms(), self._out.content_frame_max), correlation_id
        )

    def write(self, frame: Frame) -> None:
        if isinstance(frame, _Publish):
            self._channels[frame.channel_id].publish(frame.publish, frame.correlation_id)
        elif frame.channel_id == CONNECTION_CHANNEL:
            if isinstance(frame.packet, p.Ping) and self._is_open:
                self._out.send_bytes(f.HEARTBEAT)
        elif frame.channel_id == CONTROL_CHANNEL:
            self._control(frame.packet)
        else:
            channel = self._channels.get(frame.channel_id)
            if channel is not None:
                channel.carry_out(frame.packet)

    def _control(self, packet: p.Packet) -> None:
        if isinstance(packet, p.CheckForFailover):
            # comes before the connection is open
            self._wanted_node = packet.node_id
        elif isinstance(packet, p.ReattachSession):
            self._reattach(packet)
        elif isinstance(packet, p.CreateSession):
            self._create(packet)

    def _reattach(self, packet: p.ReattachSession) -> None:
        """Look for the channel of a session at the broker. Its consumers and deliveries do not go on, so the client
        makes the session again in any case.
        """
        found = next((each for each in self._channels.values() if each.name == packet.name), None)

        def done() -> None:
            self._out.report(CONTROL_CHANNEL, p.ReattachSessionResponse(-1, False))

        if found is not None and found.known and self._handshake is not None and self._handshake.resumed:
            found.resume(done)
        else:
            done()

    def _create(self, packet: p.CreateSession) -> None:
        self._forget_ended()
        channel = self._channels.get(packet.session_channel_id)
        if channel is None:
            number = self._free_number()
            if self._handshake is not None and number > self._handshake.channel_max:
                error = LimitExceeded(f"{len(self._channels)} sessions, the broker allows no more on one connection")
                self._out.refuse(CONTROL_CHANNEL, error)
                return
            link = self._link
            channel = SessionChannel(self._out, self._declarations, packet, number, link.clock.wall_ms, link.complaint)
            self._channels[channel.channel_id] = channel
        channel.name = packet.name
        if channel.open:
            self._made()
        else:
            channel.begin(self._made)

    def _made(self) -> None:
        self._out.report(CONTROL_CHANNEL, p.CreateSessionResponse(p.VERSION))

    def _free_number(self) -> int:
        used = {each.number for each in self._channels.values()}
        return next(number for number in range(_FIRST_CHANNEL, len(used) + _FIRST_CHANNEL + 1) if number not in used)

    def _forget_ended(self) -> None:
        for channel in [each for each in self._channels.values() if each.ended]:
            del self._channels[channel.channel_id]

    def _deliver(self) -> None:
        """Give the client the packets that no bytes of the broker have caused."""
        self._link.on_arrivals(self._out.take())

    # bytes of the broker

    def receive_data(self, data: bytes) -> list[Arrival]:
        return self._out.collect(lambda: self._receive_data(data))

    def _receive_data(self, data: bytes) -> None:
        decoder = self._decoder
        try:
            decoder.receive(data)
            starting = self._handshake is not None and self._handshake.state is State.STARTING
            if starting and data[:4] in (b"AMQP", b"HTTP"):
                hint = hint_of_protocol(data) if data[:4] == b"HTTP" else None
                raise ConnectionLost(f"{self._connector} does not speak AMQP 0-9-1", hint=hint)
            while (frame := decoder.next()) is not None:
                self._receive(frame)
        except BrokerError as error:
            # packets that came before must not be lost with the transport
            self._said_end = True
            lost = ConnectionLost(f"{self._connector} broke the protocol: {error}")
            ends = TransportEnds(lost if isinstance(error, ProtocolError) else error)
            self._out.report(CONNECTION_CHANNEL, ends)
            decoder.clear()

    def _receive(self, frame: f.Frame) -> None:
        if frame.type == f.FrameType.HEARTBEAT:
            return
        if frame.channel > CHANNEL:
            channel = next((each for each in self._channels.values() if each.number == frame.channel), None)
            if channel is None:
                raise RemoteProtocolError(f"a frame on channel {frame.channel}, which is not open")
            channel.receive(frame)
        elif frame.channel == CHANNEL:
            self._declarations.receive(method_of(frame))
        elif self._handshake is not None and self._handshake.receive(method_of(frame)):
            self._connection_open(self._handshake)

    def _connection_open(self, handshake: Handshake) -> None:
        self._decoder.payload_max = self._out.frame_max
        self.ping_period_ms = handshake.heartbeat_s * 1000 or None
        self._declarations.begin()
        wanted = self._wanted_node
        if wanted is not None:
            self._out.report(CONTROL_CHANNEL, p.CheckForFailoverReply(wanted == handshake.node_id))
        self._events += 1
        for packet in topology_of(handshake, self._connector, self._events):
            self._out.report(CONNECTION_CHANNEL, packet)
