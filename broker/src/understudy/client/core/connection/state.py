"""One client connection, pure: bytes, time and API calls in, bytes and outcomes out.

The shell opens transports (``Link.dial``), feeds ``receive_data``, ``transport_up`` and
``transport_lost``, writes ``data_to_send`` when ``Link.wants_flush`` was called, and calls
``handle_deadline`` at the moment given to ``Link.wake_at``. Everything else happens here: the
first words on a transport (artemis-core s. 1.2, 6.1), topology, pings and the connection TTL
(artemis-core s. 7.2), new sessions, and which session a frame is for.

Invariant: at most one transport at a time, known by its ``attempt`` number; what an older one
reports is ignored.

Not here: the choice of the next connector (``failover``), the checks of a node and the restoring
of sessions (``restoration``), new sessions (``session_creation``), what happens within a session
(``session``), listeners for failures (``listeners``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.client.core.connection.calls import Calls, Waiter, settle
from understudy.client.core.connection.dials import Dials, Link
from understudy.client.core.connection.failover import Event, Reconnection, State
from understudy.client.core.connection.life import Life
from understudy.client.core.connection.listeners import Listeners
from understudy.client.core.connection.outage import Outage
from understudy.client.core.connection.pump import Pump
from understudy.client.core.connection.restoration import Restoration
from understudy.client.core.connection.topology import Topology
from understudy.client.core.session.creation import SessionCreation
from understudy.client.core.session.state import SessionOptions, SessionState
from understudy.client.core.url.options import ClientOptions, ClientUrl, Connector, ServingNode
from understudy.client.core.url.parsing import connector_of
from understudy.errors import (
    BrokerError,
    CallTimedOut,
    ConnectionLost,
    IncompatibleVersion,
    NotActive,
    ObjectClosed,
    ProtocolError,
    Unreachable,
)
from understudy.ids import uuid_text
from understudy.ports import Clock, Entropy
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode
from understudy.wire.core.codes import error_of
from understudy.wire.core.packets import (
    VERSION,
    ClusterTopology,
    ClusterTopologyV2,
    ClusterTopologyV4,
    Disconnect,
    DisconnectReason,
    DisconnectV2,
    DisconnectV3,
    ExceptionResponse,
    Packet,
    Ping,
    SubscribeTopologyV2,
)
from understudy.wire.core.transport import TransportConfiguration

CONNECTION_CHANNEL: Final = 0
CONTROL_CHANNEL: Final = 1
#: Oldest server version spoken: pipelined sends need correlation ids.
OLDEST_VERSION: Final = 130
_REDIRECTS: Final = (DisconnectReason.REDIRECT, DisconnectReason.REDIRECT_ON_CRITICAL_ERROR)


class ClientState:
    """One connection without I/O, across failovers.

    Implements ``Steps``, ``RestorationHost``, ``SessionHost`` and ``CreationHost``.
    """

    def __init__(
        self,
        url: ClientUrl,
        link: Link,
        clock: Clock,
        entropy: Entropy,
        *,
        user: str | None = None,
        password: str | None = None,
        start: int = 0,
    ) -> None:
        """Args:
        start: Which connector of the URL to dial first.
        """
        self.options: ClientOptions = url.options
        self.clock = clock
        self.version = VERSION
        """Channel version used for encoding: the lower of both sides'."""
        self.topology = Topology()
        self.sessions: dict[int, SessionState] = {}
        self.closed: BrokerError | None = None
        self.failovers = 0
        """Failovers completed."""
        self.now_ms = clock.monotonic_ms()
        self._link = link
        self._entropy = entropy
        self._user = user if user is not None else url.options.user
        self._password = password if password is not None else url.options.password
        self._machine = Reconnection(url.connectors, url.options, self.topology, self, start=start)
        self._template = url.connectors[0]
        self._attempt = 0
        """Number of the dial whose transport is used; of no dial while there is none."""
        self._dials = Dials(link, clock)
        self._decoder: FrameDecoder | None = None
        self._out: list[bytes] = []
        self._flush_wanted = False
        self._changed: list[SessionState] = []
        self.pump = Pump(self._want_flush)
        """Large messages on their way; the shell tells it whether the socket takes bytes."""
        self.control = self.new_calls()
        """The calls of channel 1."""
        self.listeners = Listeners(link.notify, self.complaint)
        self._creation = SessionCreation(self, url.options, self._user, self._password)
        self._restoration: Restoration | None = None
        self.cause: BrokerError = ConnectionLost("not connected yet")
        self._connect_waiter: Waiter[None] | None = None
        self._phase_deadline_ms: int | None = None
        self._retry_ms: int | None = None
        self._life = Life(url.options)
        self._connected_ms = 0
        self._outage = Outage()

    def new_calls(self) -> Calls:
        """An empty list of calls on channel 1, for a new transport."""
        return Calls(
            self._send_control,
            self.clock,
            self.wake_at,
            timeout_ms=self.options.call_timeout_ms,
            failover_timeout_ms=self.options.call_failover_timeout_ms,
        )

    # called by the application

    @property
    def state(self) -> State:
        """The state of the failover machine."""
        return self._machine.state

    @property
    def failing_over(self) -> bool:
        """Whether the connection is lost and a new one is being made."""
        return self._machine.failing_over

    @property
    def connector(self) -> Connector | None:
        """Where the connection is, or is being tried."""
        return self._machine.current

    @property
    def node_id(self) -> str | None:
        """The id of the node that the connection is bound to; None before the first topology."""
        return self._machine.node_id

    @property
    def has_login(self) -> bool:
        """Whether a user or password is given."""
        return self._user is not None or self._password is not None

    @property
    def serving_node(self) -> ServingNode:
        """The node that made a session last, and its epoch."""
        return self._creation.serving_node

    def connect(self, waiter: Waiter[None]) -> None:
        """Start; the waiter gets the first working connection or why there is none."""
        self._connect_waiter = waiter
        self._outage.begins(self.clock.monotonic_ms())
        self._machine.fire(Event.START)

    def open_session(self, options: SessionOptions, waiter: Waiter[SessionState]) -> None:
        """Create a session on the next channel."""
        self._creation.open(options, waiter)

    def close(self, error: BrokerError | None = None) -> None:
        """End everything now; sessions should have been closed before.

        Args:
            error: Why, if the application did not ask for it: waiting calls and listeners get it.
        """
        self._machine.fire(Event.CLOSE, error)

    # called by the shell

    def transport_up(self, attempt: int) -> None:
        """The transport of that dial is open. It is the one to use; all other dials are cancelled."""
        connector = self._dials.won(attempt)
        if connector is not None:
            self._attempt = attempt
            self._machine.fire(Event.UP, connector)

    def transport_lost(self, attempt: int, error: BrokerError) -> None:
        """The transport of that dial could not be opened or is gone."""
        connector = self._dials.failed(attempt)
        if connector is not None:
            self._dial_failed(connector, error)
        elif attempt == self._attempt:
            if self.state is State.GREETING and self.connector is not None and self.connector.tls is None:
                hint = "a port with TLS ends a connection without it: sslEnabled=true asks for TLS"
                error = ConnectionLost(str(error), hint=hint)
            self._lost(error, hang_up=False)

    def receive_data(self, data: bytes) -> None:
        """Bytes of the present transport. A breach of protocol ends it and starts a failover."""
        decoder = self._decoder
        if decoder is None:
            return
        self.now_ms = self._life.received_ms = self.clock.monotonic_ms()
        try:
            frames = decoder.receive_data(data)
        except ProtocolError as error:
            hint = "it speaks HTTP: is that the port of the management?" if data.startswith(b"HTTP") else None
            self._lost(ConnectionLost(f"broker {self.connector} broke the protocol: {error}", hint=hint))
            return
        sessions = self.sessions
        for channel_id, packet, size_bytes in frames:
            session = sessions.get(channel_id)
            if session is not None:
                session.receive(packet, size_bytes)
            elif channel_id == CONNECTION_CHANNEL:
                self._receive_connection(packet)
            elif channel_id == CONTROL_CHANNEL:
                self._receive_control(packet)
            if self._decoder is not decoder:
                return

    def data_to_send(self) -> bytes:
        """Everything to be written now."""
        self._flush_wanted = False
        changed = self._changed
        if changed:
            self._changed = []
            for session in changed:
                session.flush()
            self._flush_wanted = False
        self._flush_wanted = True
        again = self.pump.run()
        self._flush_wanted = False
        if again:
            self._want_flush()
        out = self._out
        if not out:
            return b""
        self._out = []
        return b"".join(out)

    def handle_deadline(self) -> int | None:
        """Do all work that is due. Returns the next moment at which work may be due, or None."""
        self.now_ms = now_ms = self.clock.monotonic_ms()
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self._machine.fire(Event.RETRY_DUE)
        self._creation.handle_deadline(now_ms)
        for connector in self._dials.expired(now_ms):
            self._dial_failed(connector, CallTimedOut(f"{connector}: no answer while dialling"))
        if self._dials.stagger_due(now_ms):
            self._machine.fire(Event.STAGGER_DUE)
        if self._phase_deadline_ms is not None and now_ms >= self._phase_deadline_ms:
            self._phase_deadline_ms = None
            self._lost(CallTimedOut(f"{self.connector}: no answer while {self.state.value}"))
        self._expire_calls(now_ms)
        if self.state is State.CONNECTED:
            self._watch_life(now_ms)
        return self._next_deadline_ms()

    # ports for sessions

    def transmit(self, frame: bytes) -> None:
        """Send a frame with the next flush."""
        self._out.append(frame)
        if not self._flush_wanted:
            self._flush_wanted = True
            self._link.wants_flush()

    def _want_flush(self) -> None:
        if not self._flush_wanted:
            self._flush_wanted = True
            self._link.wants_flush()

    def session_changed(self, session: SessionState) -> None:
        """A session has acknowledgements for the next flush."""
        self._changed.append(session)
        self._want_flush()

    def session_streams(self, session: SessionState) -> None:
        """A session has a large message to send piece by piece."""
        self.pump.add(session.sends)

    def session_closed(self, session: SessionState) -> None:
        """Forget a session that was closed."""
        self.sessions.pop(session.channel_id, None)
        if self._restoration is not None:
            self._restoration.session_closed(session)

    def wake_at(self, moment_ms: int) -> None:
        """Have the shell call the connection at that moment of the monotonic clock, in ms."""
        self._link.wake_at(moment_ms)

    def complaint(self, text: str) -> None:
        """Log an error that no caller waits for."""
        self._link.log("client", text)

    # steps of the machine

    def dial(self, connector: Connector) -> None:
        """Begin to open a transport to a connector."""
        self._link.log("dial", f"dialling {connector}")
        self.wake_at(self._dials.begin(connector))

    def stagger(self, delay_ms: int) -> None:
        """Dial the next connector as well if the present one has not answered after the delay."""
        self.wake_at(self._dials.stagger(delay_ms))

    def _dial_failed(self, connector: Connector, error: BrokerError) -> None:
        if connector.tls is not None and any(each in str(error) for each in ("(EOF)", "WRONG_VERSION_NUMBER")):
            error = Unreachable(
                str(error), hint="does that port speak TLS? without sslEnabled a client speaks plain TCP"
            )
        self._link.log("dial", str(error))
        self._machine.fire(Event.DIAL_FAILED, connector, error)

    def greet(self, node_id: str | None) -> None:
        """Begin the protocol on a new transport: magic, ping, topology; ``node_id`` is the node that must answer."""
        self._decoder = FrameDecoder("client")
        self._decoder.version = self.version
        self._decoder.can_refuse = self.sessions.__contains__
        self._retry_ms = None
        connector = self.connector
        assert connector is not None
        # a frozen process accepts connections too; then the other connectors must get their turn
        self._limit_phase(min(self.options.call_timeout_ms, connector.connect_timeout_ms))
        self._life.received_ms = self.clock.monotonic_ms()
        self.topology.complete = False
        self.transmit(MAGIC)
        self._send(CONNECTION_CHANNEL, Ping(self.options.connection_ttl_ms))
        self._restoration = Restoration(self, self.new_calls())
        self._restoration.greet(node_id)
        self._send(CONNECTION_CHANNEL, SubscribeTopologyV2(False, VERSION))

    def restore(self) -> None:
        """Create or reattach every session on the new node."""
        if self._restoration is not None:
            self._restoration.restore(tuple(self.sessions.values()))

    def failover_begins(self, error: BrokerError) -> None:
        """The connection failed and another one is tried: tell the listeners."""
        self.cause = error
        self._outage.begins(self.clock.monotonic_ms())
        self._link.log("failover", f"connection to {self.connector} was lost: {error}; trying again", warning=True)
        self.listeners.failure_detected()

    def connected(self, failed_over: bool) -> None:
        """The connection works: end the phase, resume the sessions and the periodic checks."""
        self._phase_deadline_ms = None
        self._restoration = None
        self._connected_ms = now_ms = self.clock.monotonic_ms()
        self._life.begin(now_ms)
        if self._life.ping_ms is not None:
            self.wake_at(self._life.ping_ms)
        self.control.reset(self.cause)
        self.control.open()
        if self._connect_waiter is not None:
            settle(self._connect_waiter)(None, None)
            self._connect_waiter = None
        outage, self._outage = self._outage, Outage()
        if failed_over:
            self.failovers += 1
            text = f"served again by {self.connector} after {outage.lasted_s(now_ms):.2f} s without service"
            self._link.log("failover", text, warning=True)
            self.listeners.failed_over(self.cause)

    def wait(self, delay_ms: int) -> None:
        """Retry after a delay."""
        now_ms = self.clock.monotonic_ms()
        if self._outage.is_due(now_ms):
            self._link.log("failover", self._machine.without_a_broker(self._outage.lasted_s(now_ms)), warning=True)
        self._retry_ms = now_ms + delay_ms
        self.wake_at(self._retry_ms)

    def ended(self, error: BrokerError | None) -> None:
        """The connection has ended and is not made again; ``error`` is None after a close."""
        self._disconnect()
        self._dials.clear()
        self._link.hang_up()
        self._retry_ms = None
        self.closed = end = error if error is not None else ObjectClosed("the connection is closed")
        for session in tuple(self.sessions.values()):
            session.end(end)
        self.sessions.clear()
        self.control.end(end)
        self._creation.flush()  # meets the end of the control channel and tells the callers
        if self._connect_waiter is not None:
            settle(self._connect_waiter)(None, end)
            self._connect_waiter = None
        elif error is not None:
            self._link.log("failover", f"no connection left: {error}")
            self.listeners.disconnected(error)

    # ports for the restoration

    def greeted(self) -> None:
        """The new node has answered the greeting."""
        if self._machine.at_another_node:
            self._lost(NotActive(f"{self.connector} is another node than {self._machine.node_id}"))
        else:
            self._machine.fire(Event.GREETED)

    def restored(self) -> None:
        """Every session works on the new connection."""
        self._machine.fire(Event.RESTORED)

    def restoration_failed(self, error: BrokerError) -> None:
        """The greeting or a session could not be restored: give up this transport."""
        self._lost(error)

    def limit_phase(self) -> None:
        """Start the time limit of the next answer anew."""
        self._limit_phase(self.options.call_timeout_ms)

    def create_session(self, session: SessionState, name: str | None = None) -> Packet:
        """The packet that creates a session on this connection."""
        return self._creation.packet(session, name)

    def new_name(self) -> str:
        """A random name for a session."""
        return uuid_text(self._entropy.token(16))

    def learn_version(self, server_version: int) -> None:
        """Use the server's version of the protocol if it is lower than the client's."""
        self.version = min(VERSION, server_version)
        if self._decoder is not None:
            self._decoder.version = self.version

    def learn_epoch(self, epoch: int) -> None:
        """Note the server and the epoch in which it serves."""
        connector = self.connector
        address = f"{connector.host}:{connector.port}" if connector is not None else ""
        self._creation.serving_node = ServingNode(address, self.node_id or "", epoch)

    def lower_version(self) -> bool:
        """Offer the next older version (artemis-core s. 3.2); whether there is one."""
        if self.version <= OLDEST_VERSION:
            return False
        self.learn_version(self.version - 1)
        return True

    def later(self, again: Callable[[], None]) -> None:
        """Call ``again`` when the delay before another attempt to create a session is over."""
        self._creation.later(again)

    # arrivals

    def _receive_connection(self, packet: Packet) -> None:
        if isinstance(packet, (ClusterTopology, ClusterTopologyV2)):
            self._receive_topology(packet)
        elif isinstance(packet, (Disconnect, DisconnectV2, DisconnectV3)):
            self._receive_disconnect(packet)

    def _receive_topology(self, packet: ClusterTopology | ClusterTopologyV2) -> None:
        if isinstance(packet, ClusterTopologyV4):
            if packet.server_version < OLDEST_VERSION:
                self._lost(IncompatibleVersion(f"{self.connector} speaks version {packet.server_version}"))
                return
            self.learn_version(packet.server_version)
        event_id = packet.unique_event_id if isinstance(packet, ClusterTopologyV2) else 0
        if not packet.exit:
            self.topology.node_up(
                packet.node_id, event_id, self._connector(packet.primary), self._connector(packet.backup)
            )
        elif self.options.ha:
            self.topology.node_down(packet.node_id, event_id)
        if packet.last:
            self.topology.complete = True
        self._machine.learn()
        if packet.last and not packet.exit and self._restoration is not None:
            self._restoration.topology_told()

    def _receive_disconnect(self, packet: Disconnect | DisconnectV2 | DisconnectV3) -> None:
        self._machine.learn()
        target = None
        if isinstance(packet, DisconnectV3):
            target = self._connector(packet.connector)
            node = self.topology.get(packet.target_node_id) if packet.target_node_id else None
            if target is None and node is not None:
                target = node.primary
        if target is not None:
            elsewhere = isinstance(packet, DisconnectV3) and packet.reason in _REDIRECTS
            self._machine.redirect(target, another_node=elsewhere)
        if packet.node_id is not None:
            self.topology.forget(packet.node_id)
        self._lost(ConnectionLost(f"the broker at {self.connector} disconnects us"))

    def _receive_control(self, packet: Packet) -> None:
        calls = self.control if self._restoration is None else self._restoration.calls
        if isinstance(packet, ExceptionResponse):
            error = error_of(packet.error_code, packet.message)
            if not calls.fail(error):
                self._link.log("client", f"the broker reports: {error}")
        else:
            calls.answer(packet)

    def _connector(self, configuration: TransportConfiguration | None) -> Connector | None:
        if configuration is None:
            return None
        return connector_of(configuration.parameters, self._template, configuration.name)

    # time and loss

    def _limit_phase(self, timeout_ms: int) -> None:
        self._phase_deadline_ms = self.clock.monotonic_ms() + timeout_ms
        self.wake_at(self._phase_deadline_ms)

    def _disconnect(self) -> None:
        """Forget the transport and what belonged to it."""
        self._attempt = 0
        self._decoder = None
        self._out.clear()
        self._changed.clear()
        self.pump.clear()
        if self._restoration is not None:
            self._restoration.abandon()
            self._restoration = None
        self._phase_deadline_ms = self._life.ping_ms = None

    def _lost(self, error: BrokerError, *, hang_up: bool = True) -> None:
        if self.state in (State.IDLE, State.DIALLING, State.WAITING, State.CLOSED):
            return
        self._disconnect()
        if hang_up:
            self._link.hang_up()
        if self.state is State.CONNECTED:
            self._machine.lived(self.clock.monotonic_ms() - self._connected_ms)
            self.control.suspend()
        else:
            self._link.log("dial", f"{self.connector}: {error}")
        for session in self.sessions.values():
            session.suspend(error)
        self._machine.fire(Event.LOST, error)

    def _expire_calls(self, now_ms: int) -> None:
        lines = [self.control, *(each.calls for each in self.sessions.values())]
        if self._restoration is not None:
            lines.append(self._restoration.calls)
        for calls in lines:
            error = calls.expire(now_ms)
            if error is not None:
                self._lost(error)

    def _watch_life(self, now_ms: int) -> None:
        options = self.options
        limit_ms = self._life.too_long(now_ms)
        if limit_ms is not None:
            self._lost(ConnectionLost(f"{self.connector}: nothing received for {limit_ms} ms"))
            return
        for session in self.sessions.values():
            waiting_ms = now_ms - session.last_confirmation_ms
            if session.sends.unconfirmed and waiting_ms >= options.call_timeout_ms:
                self._lost(CallTimedOut(f"{self.connector}: no send confirmed for {waiting_ms} ms"))
                return
        if self._life.ping_due(now_ms):
            for session in self.sessions.values():
                session.confirm_received()
            self._send(CONNECTION_CHANNEL, Ping(options.connection_ttl_ms))

    def _next_deadline_ms(self) -> int | None:
        moments = [self._retry_ms, self._creation.retry_ms, self._phase_deadline_ms, self._dials.next_deadline_ms()]
        if self._restoration is not None:
            moments.append(self._restoration.calls.next_deadline_ms())
        moments.append(self.control.next_deadline_ms())
        moments += [session.calls.next_deadline_ms() for session in self.sessions.values()]
        if self.state is State.CONNECTED:
            moments.append(self._life.next_deadline_ms())
            for session in self.sessions.values():
                if session.sends.unconfirmed:
                    moments.append(session.last_confirmation_ms + self.options.call_timeout_ms)
        return min((each for each in moments if each is not None), default=None)

    def _send_control(self, packet: Packet) -> None:
        self._send(CONTROL_CHANNEL, packet)

    def _send(self, channel_id: int, packet: Packet) -> None:
        self.transmit(encode(packet, channel_id, self.version))
