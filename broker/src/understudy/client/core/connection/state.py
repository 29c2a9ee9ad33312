"""One client connection, pure: bytes, time and API calls in, bytes and outcomes out.

The shell opens transports (``Link.dial``), feeds ``receive_data``, ``transport_up`` and
``transport_lost``, writes ``data_to_send`` when ``Link.wants_flush`` was called, and calls
``handle_deadline`` at the moment given to ``Link.wake_at``. Everything else happens here: the
first words on a transport (artemis-core s. 1.2, 6.1), topology, pings and the connection TTL
(artemis-core s. 7.2), new sessions, and which session a frame is for.

Invariant: at most one transport at a time, known by its ``attempt`` number; what an older one
reports is ignored.

Not here: the choice of the next connector (``failover``), the checks of a node and the restoring
of sessions (``restoration``), the sessions (``sessions``) and one of them (``session``), frames, versions and
the values that all parts share (``link_state``), listeners for failures (``listeners``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from understudy.client.amqp091.codec import Amqp091Codec
from understudy.client.core.connection.calls import Calls, Waiter, settle
from understudy.client.core.connection.codec import (
    CONNECTION_CHANNEL,
    CONTROL_CHANNEL,
    Arrival,
    CoreCodec,
    TransportEnds,
    hint_of_protocol,
    hint_of_tls,
)
from understudy.client.core.connection.dials import Dials, Link
from understudy.client.core.connection.failover import Event, Reconnection, State
from understudy.client.core.connection.life import Life, heartbeat_s
from understudy.client.core.connection.link_state import OLDEST_VERSION, LinkState
from understudy.client.core.connection.listeners import Listeners
from understudy.client.core.connection.outage import Outage
from understudy.client.core.connection.restoration import Restoration
from understudy.client.core.connection.sessions import Sessions
from understudy.client.core.url.options import ClientOptions, ClientUrl, Connector
from understudy.client.core.url.parsing import connector_of
from understudy.errors import (
    AuthenticationFailed,
    BrokerError,
    CallTimedOut,
    ConnectionLost,
    IncompatibleVersion,
    NotActive,
    ObjectClosed,
    ProtocolError,
    RemoteProtocolError,
    Unreachable,
)
from understudy.ports import Clock, Entropy
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

_REDIRECTS: Final = (DisconnectReason.REDIRECT, DisconnectReason.REDIRECT_ON_CRITICAL_ERROR)


class ClientState:
    """One connection without I/O, across failovers. Implements ``failover.Steps``."""

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
        self.link = LinkState(url.options, link, clock, entropy)
        user = user if user is not None else url.options.user
        password = password if password is not None else url.options.password
        if url.virtual_host is not None:
            interval_s = heartbeat_s(url.options_with_backup)
            self.link.codec = Amqp091Codec(self.link, (user, password, url.virtual_host), interval_s)
        self.link.on_arrivals = self._dispatch
        self.closed: BrokerError | None = None
        self.failovers = 0
        """Failovers completed."""
        self._machine = Reconnection(url.connectors, url.options, self.link.topology, self, start=start)
        self._url = url
        self._attempt = 0
        """Number of the dial whose transport is used; of no dial while there is none."""
        self._dials = Dials(link, clock)
        self._control = self._new_calls()
        """The calls of channel 1."""
        self.listeners = Listeners(link.notify, self.link.complaint)
        self.sessions = Sessions(
            self.link,
            self._control,
            user,
            password,
        )
        self._restoration: Restoration | None = None
        self._cause: BrokerError = ConnectionLost("not connected yet")
        self._connect_waiter: Waiter[None] | None = None
        self._retry_ms: int | None = None
        self._life = Life(url.options)
        self._connected_ms = 0
        self._outage = Outage()

    # called by the application

    @property
    def options(self) -> ClientOptions:
        """The options of the URL."""
        return self.link.options

    @property
    def node_id(self) -> str | None:
        """The id of the node that the connection is bound to; None before the first topology."""
        return self.link.node_id

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
        """Connector of the connection, or of the attempt to make one."""
        return self._machine.current

    def connect(self, waiter: Waiter[None]) -> None:
        """Start; the waiter gets the first working connection or why there is none."""
        self._connect_waiter = waiter
        self._outage.begins(self.link.clock.monotonic_ms())
        self._machine.fire(Event.START)

    def close(self, error: BrokerError | None = None) -> None:
        """End everything now; sessions should have been closed before.

        Args:
            error: Why, if the application did not ask for it: waiting calls and listeners get it.
        """
        self._machine.fire(Event.CLOSE, error)

    def leave(self) -> None:
        """Write a farewell, if the protocol has one; ``close`` follows when it is flushed."""
        if self.state is State.CONNECTED:
            self.link.codec.leave()

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
            if self.state is State.GREETING and self.connector is not None:
                hint = hint_of_tls(str(error))
                if self.connector.tls is None:
                    hint = "a port with TLS ends a connection without it: sslEnabled=true asks for TLS"
                error = error if hint is None else ConnectionLost(str(error), hint=hint)
            self._lost(error, hang_up=False)

    def receive_data(self, data: bytes) -> None:
        """Bytes of the present transport. A breach of protocol ends it and starts a failover."""
        link = self.link
        decoder = link.decoder
        if decoder is None:
            return
        link.now_ms = self._life.received_ms = link.clock.monotonic_ms()
        try:
            if self.state is State.GREETING and isinstance(link.codec, CoreCodec) and data.startswith(b"AMQP"):
                # too few bytes for a frame, after which the server closes
                raise RemoteProtocolError("a protocol header of AMQP")
            frames = decoder.receive_data(data)
        except ProtocolError as error:
            text = f"broker {self.connector} broke the protocol: {error}"
            self._lost(ConnectionLost(text, hint=hint_of_protocol(data)))
            return
        self._dispatch(frames)

    def _dispatch(self, arrivals: Iterable[Arrival]) -> None:
        """Give packets to the sessions, or to the connection."""
        link, sessions = self.link, self.sessions.by_channel
        decoder = link.decoder
        for channel_id, packet, size_bytes in arrivals:
            session = sessions.get(channel_id)
            if session is not None:
                session.receive(packet, size_bytes)
            elif channel_id == CONNECTION_CHANNEL:
                self._receive_connection(packet)
            elif channel_id == CONTROL_CHANNEL:
                self._receive_control(packet)
            if link.decoder is not decoder:
                return

    def data_to_send(self) -> bytes:
        """Everything to be written now."""
        return self.link.data_to_send()

    def handle_deadline(self) -> int | None:
        """Do all work that is due. Returns the next moment at which work may be due, or None."""
        self.link.now_ms = now_ms = self.link.clock.monotonic_ms()
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self._machine.fire(Event.RETRY_DUE)
        self.sessions.handle_deadline(now_ms)
        for connector in self._dials.expired(now_ms):
            self._dial_failed(connector, CallTimedOut(f"{connector}: no answer while dialling"))
        if self._dials.stagger_due(now_ms):
            self._machine.fire(Event.STAGGER_DUE)
        if self._restoration is not None and now_ms >= self._restoration.deadline_ms:
            self._lost(CallTimedOut(f"{self.connector}: no answer while {self.state.value}"))
        self._expire_calls(now_ms)
        if self.state is State.CONNECTED:
            self._watch_life(now_ms)
        return self._next_deadline_ms()

    # steps of the machine

    def dial(self, connector: Connector) -> None:
        """Begin to open a transport to a connector."""
        self.link.shell.log("dial", f"dialling {connector}")
        self.link.shell.wake_at(self._dials.begin(connector))

    def stagger(self, delay_ms: int) -> None:
        """Dial the next connector as well if the present one has not answered after the delay."""
        self.link.shell.wake_at(self._dials.stagger(delay_ms))

    def _dial_failed(self, connector: Connector, error: BrokerError) -> None:
        hint = hint_of_tls(str(error)) if connector.tls is not None else None
        if hint is not None:
            error = Unreachable(str(error), hint=hint)
        self.link.shell.log("dial", str(error))
        self._machine.fire(Event.DIAL_FAILED, connector, error)

    def greet(self, node_id: str | None) -> None:
        """Begin the protocol on a new transport: magic, ping, topology; ``node_id`` is the node that must answer."""
        link, connector = self.link, self.connector
        assert connector is not None
        self._retry_ms = None
        self._life.received_ms = link.clock.monotonic_ms()
        link.opened(connector, self.sessions.by_channel.__contains__)
        self._send(CONNECTION_CHANNEL, Ping(link.options.connection_ttl_ms))
        self._restoration = Restoration(link, self.sessions, self._new_calls(), self._cause, self._on_restoration)
        self._restoration.greet(node_id)
        self._send(CONNECTION_CHANNEL, SubscribeTopologyV2(False, VERSION))

    def restore(self) -> None:
        """Create or reattach every session on the new node."""
        if self._restoration is not None:
            self._restoration.restore()

    def failover_begins(self, error: BrokerError) -> None:
        """Tell the listeners; called when the connection failed and another one is tried."""
        self._cause = error
        self._outage.begins(self.link.clock.monotonic_ms())
        self.link.shell.log("failover", f"connection to {self.connector} was lost: {error}; trying again", warning=True)
        self.listeners.failure_detected()

    def connected(self, failed_over: bool) -> None:
        """The connection works: end the phase, resume the sessions and the periodic checks."""
        self._restoration = None
        self._connected_ms = now_ms = self.link.clock.monotonic_ms()
        self._watch()
        self._control.reset(self._cause)
        self._control.open()
        if self._connect_waiter is not None:
            settle(self._connect_waiter)(None, None)
            self._connect_waiter = None
        outage, self._outage = self._outage, Outage()
        if failed_over:
            self.failovers += 1
            text = f"served again by {self.connector} after {outage.lasted_s(now_ms):.2f} s without service"
            self.link.shell.log("failover", text, warning=True)
            self.listeners.failed_over(self._cause)

    def wait(self, delay_ms: int) -> None:
        """Retry after a delay."""
        now_ms = self.link.clock.monotonic_ms()
        if self._outage.is_due(now_ms):
            self.link.shell.log("failover", self._machine.without_a_broker(self._outage.lasted_s(now_ms)), warning=True)
        self._retry_ms = now_ms + delay_ms
        self.link.shell.wake_at(self._retry_ms)

    def ended(self, error: BrokerError | None) -> None:
        """The connection has ended and is not made again; ``error`` is None after a close."""
        self._disconnect()
        self._dials.clear()
        self.link.shell.hang_up()
        self._retry_ms = None
        self.closed = end = error if error is not None else ObjectClosed("the connection is closed")
        self.sessions.end(end)
        self._control.end(end)
        self.sessions.refuse_waiting()
        if self._connect_waiter is not None:
            settle(self._connect_waiter)(None, end)
            self._connect_waiter = None
        elif error is not None:
            self.link.shell.log("failover", f"no connection left: {error}")
            self.listeners.disconnected(error)

    def _on_restoration(self, event: Event, error: BrokerError | None) -> None:
        """Called when the restoration has come to a step, or to its end."""
        if event is Event.LOST and error is not None:
            self._lost(error)
        elif event is Event.GREETED and self._machine.at_another_node:
            self._lost(NotActive(f"{self.connector} is another node than {self._machine.node_id}"))
        else:
            self._machine.fire(event)

    # arrivals

    def _receive_connection(self, packet: Packet) -> None:
        if isinstance(packet, (ClusterTopology, ClusterTopologyV2)):
            self._receive_topology(packet)
        elif isinstance(packet, (Disconnect, DisconnectV2, DisconnectV3)):
            self._receive_disconnect(packet)
        elif isinstance(packet, TransportEnds):
            if isinstance(packet.error, AuthenticationFailed) and self._connect_waiter is not None:
                # no other node takes a wrong password
                self.close(packet.error)
            else:
                self._lost(packet.error)

    def _receive_topology(self, packet: ClusterTopology | ClusterTopologyV2) -> None:
        if isinstance(packet, ClusterTopologyV4):
            if packet.server_version < OLDEST_VERSION:
                self._lost(IncompatibleVersion(f"{self.connector} speaks version {packet.server_version}"))
                return
            self.link.learn_version(packet.server_version)
        event_id = packet.unique_event_id if isinstance(packet, ClusterTopologyV2) else 0
        if not packet.exit:
            self.link.topology.node_up(
                packet.node_id, event_id, self._connector(packet.primary), self._connector(packet.backup)
            )
        elif self.link.options.ha:
            self.link.topology.node_down(packet.node_id, event_id)
        if packet.last:
            self.link.topology.complete = True
        self._machine.learn()
        self._fail_over_to_backup()
        if packet.last and not packet.exit and self._restoration is not None:
            self._restoration.topology_told()

    def _fail_over_to_backup(self) -> None:
        """A URL that says nothing about failover means it as soon as a backup is known."""
        options = self._url.options_with_backup
        backup = self._machine.backup
        if backup is None or options == self.link.options:
            return
        self.link.options = self._machine.options = options
        self._life.use(options)
        if self.state is State.CONNECTED:
            self._watch()
        self.link.shell.log("failover", f"{backup} is the backup of {self.connector}: the connection fails over to it")

    def _receive_disconnect(self, packet: Disconnect | DisconnectV2 | DisconnectV3) -> None:
        self._machine.learn()
        target = None
        if isinstance(packet, DisconnectV3):
            target = self._connector(packet.connector)
            node = self.link.topology.get(packet.target_node_id) if packet.target_node_id else None
            if target is None and node is not None:
                target = node.primary
        if target is not None:
            elsewhere = isinstance(packet, DisconnectV3) and packet.reason in _REDIRECTS
            self._machine.redirect(target, another_node=elsewhere)
        if packet.node_id is not None:
            self.link.topology.forget(packet.node_id)
        self._lost(ConnectionLost(f"the broker at {self.connector} disconnects us"))

    def _receive_control(self, packet: Packet) -> None:
        calls = self._control if self._restoration is None else self._restoration.calls
        if isinstance(packet, ExceptionResponse):
            error = error_of(packet.error_code, packet.message)
            if not calls.fail(error):
                self.link.shell.log("client", f"the broker reports: {error}")
        else:
            calls.answer(packet)

    def _connector(self, configuration: TransportConfiguration | None) -> Connector | None:
        if configuration is None:
            return None
        return connector_of(configuration.parameters, self._url.connectors[0], configuration.name)

    # time and loss

    def _disconnect(self) -> None:
        """Forget the transport and what belonged to it."""
        self._attempt = 0
        self.link.lost()
        if self._restoration is not None:
            self._restoration.abandon()
            self._restoration = None
        self._life.ping_ms = None

    def _lost(self, error: BrokerError, *, hang_up: bool = True) -> None:
        if self.state in (State.IDLE, State.DIALLING, State.WAITING, State.CLOSED):
            return
        self._disconnect()
        if hang_up:
            self.link.shell.hang_up()
        if self.state is State.CONNECTED:
            self._machine.lived(self.link.clock.monotonic_ms() - self._connected_ms)
            self._control.suspend()
        else:
            self.link.shell.log("dial", f"{self.connector}: {error}")
        self.sessions.suspend(error)
        self._machine.fire(Event.LOST, error)

    def _expire_calls(self, now_ms: int) -> None:
        lines = [self._control, *(each.channel.calls for each in self.sessions)]
        if self._restoration is not None:
            lines.append(self._restoration.calls)
        for calls in lines:
            error = calls.expire(now_ms)
            if error is not None:
                self._lost(error)

    def _watch(self) -> None:
        """Begin to watch the life of the connection."""
        self._life.begin(self.link.clock.monotonic_ms(), period_max_ms=self.link.codec.ping_period_ms)
        if self._life.ping_ms is not None:
            self.link.shell.wake_at(self._life.ping_ms)

    def _watch_life(self, now_ms: int) -> None:
        limit_ms = self._life.too_long(now_ms)
        if limit_ms is not None:
            self._lost(ConnectionLost(f"{self.connector}: nothing received for {limit_ms} ms"))
            return
        if self.link.codec.blocked:
            self.sessions.excuse(now_ms)
        waiting_ms = self.sessions.unconfirmed_too_long(now_ms)
        if waiting_ms is not None:
            self._lost(CallTimedOut(f"{self.connector}: no send confirmed for {waiting_ms} ms"))
        elif self._life.ping_due(now_ms):
            self.sessions.confirm_received()
            self._send(CONNECTION_CHANNEL, Ping(self.link.options.connection_ttl_ms))

    def _next_deadline_ms(self) -> int | None:
        connected = self.state is State.CONNECTED
        moments = [self._retry_ms, self._dials.next_deadline_ms(), self._control.next_deadline_ms()]
        if self._restoration is not None:
            moments += [self._restoration.deadline_ms, self._restoration.calls.next_deadline_ms()]
        moments += self.sessions.deadlines_ms(connected=connected)
        if connected:
            moments.append(self._life.next_deadline_ms())
        return min((each for each in moments if each is not None), default=None)

    def _new_calls(self) -> Calls:
        """An empty list of calls on channel 1, for a new transport."""
        return self.link.new_calls(self._send_control)

    def _send_control(self, packet: Packet) -> None:
        self._send(CONTROL_CHANNEL, packet)

    def _send(self, channel_id: int, packet: Packet) -> None:
        self.link.send(channel_id, packet)
