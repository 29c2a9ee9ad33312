"""One CORE connection of a server: channels 0, 1 and 3, liveness, and the sessions on top.

Source: artemis-core s. 3 (channels, versions), s. 4.1 (setup), s. 7.2 (ping, TTL), s. 8.1 (topology), s. 9.1
(cluster control). Bytes come in by ``receive_data``; everything out goes through the
``Connection`` port. A protocol error raised from ``receive_data`` means: close the socket.

Not here: what session packets mean (``protocols.core.session``).
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import ClassVar, Final

from understudy.errors import (
    AuthenticationFailed,
    BrokerError,
    IncompatibleVersion,
    LimitExceeded,
    RemoteProtocolError,
    SessionRejected,
    UnsupportedPacket,
)
from understudy.limits import (
    FRAME_BYTES_BEFORE_LOGIN_MAX,
    FRAME_BYTES_MAX,
    LOGIN_HELD_BYTES_PAUSE,
    NAME_UNITS_MAX,
    OUTGOING_BYTES_BEFORE_LOGIN_MAX,
    OUTGOING_BYTES_PAUSE,
    TURN_COST_MAX,
)
from understudy.machine import IGNORED, Machine, To, table
from understudy.ports import SealableConnection
from understudy.protocols.core.cluster_channel import CLUSTER_CHANNEL, REPLICATION_CHANNEL, ClusterChannel
from understudy.protocols.core.control_channel import CONTROL_CHANNEL, SERVER_VERSION, ControlChannel
from understudy.protocols.core.link import ChannelHandler
from understudy.protocols.core.services import CoreServices
from understudy.protocols.core.session import CoreSession
from understudy.protocols.core.session_creation import Create, refusal, session_maker
from understudy.protocols.login import LoginStep
from understudy.security.authentication import Principal
from understudy.session.prefixes import NO_PREFIXES, AddressPrefixes
from understudy.session.session import ServerSession
from understudy.wire.core import packets
from understudy.wire.core.codec import Frame, FrameDecoder, RefusedPacket, encode

log = logging.getLogger(__name__)

SESSION_SETUP_CHANNEL: Final = 1
FIRST_SESSION_CHANNEL: Final = 10

#: The oldest client that may have sessions: those before lay messages out otherwise (artemis-core s. 5), and
#: their packets would be misread rather than refused.
OLDEST_SESSION_VERSION: Final = 129
#: Name of the protocol for management.
PROTOCOL: Final = "CORE"


class State(Enum):
    """States of a connection."""

    HANDSHAKING = auto()
    """The client has not logged in; limits on frames and output are low."""
    OPEN = auto()
    DRAINING = auto()
    """DISCONNECT was sent because the node stops; the socket closes when it has been written."""
    NOT_REATTACHABLE = auto()
    """The client broke the protocol, or an internal error occurred: no session can be reattached."""
    CLOSED = auto()


class Event(Enum):
    """Events of a connection."""

    PROVE = auto()
    """The client proved its identity: by a login, the secret name of a session or the cluster password."""
    DISCONNECT = auto()
    """The node stops."""
    PREVENT_REATTACHMENT = auto()
    LOSE = auto()
    """The socket was closed."""


class CoreConnection(Machine[State, Event]):
    """One CORE connection from the server's side, without I/O. Implements ``CoreLink`` and ``ConnectionHandler``."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.HANDSHAKING

    def __init__(
        self, services: CoreServices, connection: SealableConnection, prefixes: AddressPrefixes = NO_PREFIXES
    ) -> None:
        """``prefixes``: prefixes that clients of this acceptor may put before names."""
        super().__init__()
        self.sessions: dict[int, CoreSession] = {}
        self.connection = connection
        self.services = services
        self._prefixes = prefixes
        shared = services.shared
        self.scope = shared.new_scope(PROTOCOL, connection)
        self.host = connection.peer.rpartition(":")[0]
        """Host of the peer, without its port."""
        self.decoder = FrameDecoder(role="server", limit_bytes=FRAME_BYTES_BEFORE_LOGIN_MAX)
        self.decoder.groups_sends = self.decoder.groups_acknowledges = True
        self.decoder.turn_cost_max = TURN_COST_MAX
        self.proved = False
        """Whether the peer has logged in."""
        self.is_node = False
        self.user: str | None = None
        """User of the last login."""
        self._control = ControlChannel(self)
        self._liveness = self._control.liveness
        self._cluster = ClusterChannel(self)
        self._login = LoginStep[Create, Frame](self, shared.access.logins, connection.certificate_subject)
        self.uploading: dict[ChannelHandler, None] = {}
        """Sessions in the middle of a large message."""
        self.held_up = False
        """Something may wait for the disk or for a login check: see ``congested``."""
        self.held_back = False
        """Deliveries wait for the socket; ``resume_deliveries`` ends that."""
        shared.connections.opened(self)

    # --- driven by the shell -------------------------------------------------------------------

    def receive_data(self, data: bytes | memoryview) -> bool:
        """Carry out the packets after the magic, a bounded part of them per call (``TURN_COST_MAX``).

        Args:
            data: Bytes; none to go on with earlier input. A view is valid during the call only.

        Returns:
            Whether input is left over.

        Raises:
            ProtocolError: the stream cannot be followed any further; close the connection.
        """
        self._liveness.received = True
        sessions, decoder = self.sessions, self.decoder
        try:
            for frame in decoder.receive_data(data):
                channel_id, packet, size_bytes = frame
                session = sessions.get(channel_id)
                if session is not None:
                    session.receive(packet, size_bytes)
                else:
                    self._receive_outside(frame)
        except BrokerError:
            # a peer that breaks the protocol has no sessions to reattach
            self.fire(Event.PREVENT_REATTACHMENT)
            raise
        return bool(decoder.backlog)

    def receive_held(self, item: Frame) -> None:
        """Handle a frame that was held during a login (``LoginOwner``)."""
        session = self.sessions.get(item.channel_id)
        if session is not None:
            session.receive(item.packet, item.size_bytes)
        else:
            self._receive_outside(item)

    def _receive_outside(self, frame: Frame) -> None:
        """Handle a frame that belongs to no session, or hold it until the login under way is decided."""
        if frame.channel_id != CONTROL_CHANNEL and self._login.checking:
            self._login.hold(frame, frame.size_bytes)
            self.held_up = True
            return
        if not self.proved:
            self._login.count_input()
        if frame.channel_id == CONTROL_CHANNEL:
            self._control.receive(frame.packet)
        elif frame.channel_id == SESSION_SETUP_CHANNEL:
            self._receive_session_setup(frame.packet)
        elif frame.channel_id == CLUSTER_CHANNEL:
            self._cluster.receive(frame.packet)
        elif frame.channel_id == REPLICATION_CHANNEL:
            self._cluster.receive_replication(frame.packet)
        # frames for a channel that is gone or never was are dropped (artemis-core s. 3.1)

    def connection_lost(self, reason: str) -> None:
        """Called when the socket was closed. Sessions with a confirmation window wait for their client; the others end,
        and deliveries that were not acknowledged return to their queues.
        """
        self.fire(Event.LOSE, reason)

    def _detach(self, reason: str) -> None:
        waiting = False
        if self.services.shared.connections.accepting:
            for session in list(self.sessions.values()):
                waiting |= session.lose(self._liveness.ttl_ms)
        self._end(reason, keep_queues=waiting)

    def _end(self, reason: str, *, keep_queues: bool = False) -> None:
        self._login.close()
        self._control.close()
        for session in list(self.sessions.values()):
            if not session.channel.detached:
                session.close(failed=True)
        self.sessions.clear()
        if not keep_queues:
            self.scope.delete_temporary_queues(self.services.shared.sessions.post_office)
        self._cluster.close(reason)
        self.services.shared.connections.ended(self)
        self._release_parts()
        log.debug("connection closed", extra={"peer": self.connection.peer, "reason": reason})

    def _release_parts(self) -> None:
        """Break the reference cycles, so that memory is freed now and not when the collector of cycles runs."""
        self.decoder.close()
        del self._login, self._cluster, self._control

    def check(self) -> None:
        """Every two seconds (artemis-core s. 7.2): drop the silent, flush confirmations.

        Raises:
            RemoteProtocolError: it must be closed; the text says why.
        """
        if any(session.awaits_decision and session.congested for session in self.uploading):
            # the socket of the connection is not read
            self._liveness.received = True
        try:
            self._liveness.check_silence()
        except BrokerError:
            self.fire(Event.PREVENT_REATTACHMENT)
            raise
        if not self.proved and not self._login.checking:
            self._liveness.check_login()
        for session in self.sessions.values():
            session.channel.flush_confirmations()
        for handler in list(self.uploading):
            handler.check_idle()

    def silent_ms(self) -> int:
        return self._liveness.silent_ms()

    def writable(self) -> bool:
        """Whether the peer takes what we send; deliveries pause while it does not."""
        if self._state is State.CLOSED or self.connection.outgoing_bytes() >= OUTGOING_BYTES_PAUSE:
            self.held_back = True
            return False
        return True

    def resume_deliveries(self) -> None:
        """Resume the paused deliveries; called when the peer has read the queued output."""
        self.held_back = False
        for session in self.sessions.values():
            session.session.consumers.resume_deliveries()

    def congested(self) -> bool:
        """Whether nothing more should be read before the disk has caught up with what came."""
        if self._state is State.CLOSED:
            self.held_up = bool(self.uploading)
            return False
        held_bytes = self._login.held_bytes
        self.held_up = bool(held_bytes or self.uploading)
        if held_bytes > LOGIN_HELD_BYTES_PAUSE:
            return True
        return any(session.congested for session in self.uploading)

    def hold(self, handler: ChannelHandler) -> None:
        """Called when the session has messages on their way that the disk, or the next turn, must take first."""
        self.uploading[handler] = None
        self.held_up = True

    def fail(self, error: BrokerError) -> None:
        """A breach of protocol that showed later than it came."""
        log.warning("connection dropped", extra={**_ids(self), "code": error.code, "error": str(error)})
        self.fire(Event.PREVENT_REATTACHMENT)
        self.connection.close()

    def prevent_reattachment(self) -> None:
        """An internal error occurred while its input was handled: no session is kept."""
        self.fire(Event.PREVENT_REATTACHMENT)

    def internal_error(self, bug: Exception) -> None:
        """Abort the connection after an internal error outside of ``receive_data``: in a delivery, or in an answer that
        waited for the disk.
        """
        log.error("connection dropped: internal error", extra={"peer": self.connection.peer}, exc_info=bug)
        self.fire(Event.PREVENT_REATTACHMENT)
        self.connection.abort()

    def kill(self, reason: str) -> None:
        """End the connection because of the behaviour of its client."""
        log.warning("connection killed", extra={**_ids(self), "reason": reason})
        self.fire(Event.PREVENT_REATTACHMENT)
        self.send(packets.DisconnectConsumerKill(self.services.shared.node_id), SESSION_SETUP_CHANNEL)
        self.connection.close()

    def disconnect(self) -> None:
        """The node stops: send DISCONNECT, then close (artemis-core s. 7.2). The packet asks a client with
        sessions to fail over; for any other the server stops; both learn whether an error is the reason.
        """
        self.fire(Event.DISCONNECT)

    def _say_farewell(self) -> None:
        farewell = self._control.farewell(has_sessions=bool(self.sessions))
        for session in list(self.sessions.values()):
            session.close(failed=True)
        self.sessions.clear()
        self.send(farewell, CONTROL_CHANNEL)
        self.connection.close()

    @property
    def outlives_sessions(self) -> bool:
        return self._state is not State.CLOSED and self._cluster.has_replica

    # --- sending -------------------------------------------------------------------------------

    def send(self, packet: packets.Packet, channel_id: int) -> None:
        """Send a packet; a client that does not read before its login is dropped."""
        if not self.proved and self.connection.outgoing_bytes() > OUTGOING_BYTES_BEFORE_LOGIN_MAX:
            log.warning("connection dropped: it does not read before its login", extra=_ids(self))
            self.connection.abort()
            return
        self.connection.send(encode(packet, channel_id, self.decoder.version))

    # --- channels below the sessions -----------------------------------------------------------

    def _receive_session_setup(self, packet: packets.Packet) -> None:
        if isinstance(packet, (packets.CreateSession, packets.CreateSessionV2)):
            try:
                self._create_session(packet)
            except BrokerError as error:
                self.login_failed(packet, error)
        elif isinstance(packet, packets.ReattachSession):
            if not self._reattach(packet):
                # also the answer of a name that never was (ADR 0009); the client creates it anew
                self.send(packets.ReattachSessionResponse(-1, False), SESSION_SETUP_CHANNEL)
        elif isinstance(packet, packets.CheckForFailover):
            asked = packet.node_id
            ok = asked in (None, self.services.shared.node_id)
            ok = ok or self.services.cluster.scaled_down.serves_clients_of(asked or "")
            self.send(packets.CheckForFailoverReply(ok), SESSION_SETUP_CHANNEL)
        elif isinstance(packet, RefusedPacket):
            self._refuse_session_setup(packet)
        else:
            raise UnsupportedPacket(f"{type(packet).__name__} on channel 1")

    def _refuse_session_setup(self, packet: RefusedPacket) -> None:
        """A name or another text in a request exceeds its limit."""
        request = packet.packet
        if isinstance(request, packets.ReattachSession):
            self.send(packets.ReattachSessionResponse(-1, False), SESSION_SETUP_CHANNEL)
        elif isinstance(request, packets.CheckForFailover):
            self.send(packets.CheckForFailoverReply(False), SESSION_SETUP_CHANNEL)
        elif isinstance(request, (packets.CreateSession, packets.CreateSessionV2)):
            self.login_failed(request, packet.error)
        else:
            raise packet.error

    def login_failed(self, request: Create, error: BrokerError) -> None:
        """Refuse the session of a CREATESESSION."""
        if isinstance(error, AuthenticationFailed):
            self.services.shared.access.login_refused(request.user, self.scope, error)
        else:
            log.info("session refused", extra={**_ids(self), "error": str(error)})
        self.send(refusal(error, self.services.shared), SESSION_SETUP_CHANNEL)

    def _create_session(self, packet: Create) -> None:
        if not OLDEST_SESSION_VERSION <= packet.version <= SERVER_VERSION:
            raise IncompatibleVersion(
                f"client version {packet.version}: this server takes {OLDEST_SESSION_VERSION} to {SERVER_VERSION}"
            )
        self._check_room(packet.session_channel_id)
        for name in (packet.name, packet.user, packet.default_address, getattr(packet, "client_id", None)):
            if name is not None and len(name) > NAME_UNITS_MAX:
                raise LimitExceeded(f"a name of {len(name)} characters in CREATESESSION, limit {NAME_UNITS_MAX}")
        cluster_user = self._cluster.user_of(packet.user, packet.password)
        if cluster_user is not None:
            self.logged_in(packet, Principal(cluster_user, of_cluster=True))
        else:
            self._login.log_in(packet, packet.user, packet.password)

    def _check_room(self, channel_id: int) -> None:
        self.services.shared.connections.check_accepting()
        if channel_id < FIRST_SESSION_CHANNEL or channel_id in self.sessions:
            raise RemoteProtocolError(f"session on channel {channel_id}")
        maximum = self.services.sessions_max
        if len(self.sessions) >= maximum:
            raise SessionRejected(
                f"more than {maximum} sessions on one connection",
                hint="the parameter sessionsAllowed of the acceptor, or further connections",
            )

    def logged_in(self, request: Create, principal: Principal) -> None:
        """Create the session of a CREATESESSION and answer it.

        Raises:
            SessionRejected, RemoteProtocolError: no session can be created any more.
        """
        services, shared = self.services, self.services.shared
        self._check_room(request.session_channel_id)
        self._control.learn_version(request.version)
        client_id = getattr(request, "client_id", None)
        if client_id is not None:
            self.scope.client_id = client_id
        make = session_maker(request, principal, shared, self.scope, self._prefixes)
        handler = CoreSession(self, request.session_channel_id, request.confirmation_window, make)
        self.sessions[request.session_channel_id] = handler
        shared.connections.session_opened()
        services.reattachments.add(handler, self.host)
        self.fire(Event.PROVE)
        self.user = principal.user
        epoch = shared.epoch or None
        answer = packets.CreateSessionResponse(SERVER_VERSION, epoch, None if epoch is None else True)
        self.send(answer, SESSION_SETUP_CHANNEL)

    def _raise_limits(self) -> None:
        self.proved = True
        self.decoder.frame_limit_bytes = FRAME_BYTES_MAX
        self.decoder.can_refuse = self._can_refuse

    def _can_refuse(self, channel_id: int) -> bool:
        """Whether a frame of the channel that exceeds a limit fails alone: its sender is known and gets an answer."""
        return channel_id in self.sessions or channel_id == SESSION_SETUP_CHANNEL

    def _reattach(self, packet: packets.ReattachSession) -> bool:
        """Move a session of this peer here (artemis-core s. 7.1); False, with the session ended, if that cannot
        be done without losing or repeating something.
        """
        services = self.services
        accepting = services.shared.connections.accepting
        found = services.reattachments.find(packet.name, self.host) if accepting else None
        if found is None:
            return False
        channel = found.channel
        self.scope.adopt(found.session.state.connection)
        frames = channel.frames_after(packet.last_confirmed_command_id)
        if frames is None or channel.channel_id in self.sessions or len(self.sessions) >= services.sessions_max:
            found.close(failed=True)
            return False
        old = channel.connection
        services.reattachments.found_again(found)
        self._control.learn_version(old.decoder.version)
        found.move(self, frames)
        old.session_ended(found, channel.channel_id)
        self.sessions[channel.channel_id] = found
        self.fire(Event.PROVE)
        self.user = found.session.state.security.user
        log.info("session reattached", extra={**_ids(self), "from": old.connection.peer})
        # requests held after a large message are handled first: until then it is not known what the
        # client must send again
        found.when_settled(lambda: self._answer_reattached(found))
        return True

    def _answer_reattached(self, handler: CoreSession) -> None:
        # the client forgets what the answer covers, so that must be durable first
        handler.session.state.when_durable(self._reattached, handler, handler.channel.last_received)

    def _reattached(self, handler: CoreSession, last_received: int) -> None:
        if handler.channel.connection is self:
            self.send(packets.ReattachSessionResponse(last_received, True), SESSION_SETUP_CHANNEL)

    def session_ended(self, handler: ChannelHandler, channel_id: int) -> None:
        """Called when a session has ended, or moved to another connection."""
        self.uploading.pop(handler, None)
        if self.sessions.get(channel_id) is handler:
            del self.sessions[channel_id]

    # --- for management ------------------------------------------------------------------------

    def open_sessions(self) -> list[ServerSession]:
        """Open sessions of the connection (``protocols.registry.ClientConnection``)."""
        return [handler.session for handler in self.sessions.values()]

    def end_session(self, session: ServerSession) -> None:
        """Close one of its sessions: consumers are informed, open transactions rolled back."""
        for handler in self.sessions.values():
            if handler.session is session:
                for consumer in list(session.consumers.by_id.values()):
                    consumer.disconnect()
                handler.close(failed=True)
                return

    def cluster_authorized(self) -> None:
        """The peer proved the cluster credentials."""
        self.is_node = True
        self.fire(Event.PROVE)

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.HANDSHAKING, Event.PROVE): To(State.OPEN, _raise_limits),
            (State.HANDSHAKING, Event.DISCONNECT): To(State.DRAINING, _say_farewell),
            (State.HANDSHAKING, Event.PREVENT_REATTACHMENT): To(State.NOT_REATTACHABLE),
            (State.HANDSHAKING, Event.LOSE): To(State.CLOSED, _end),
            (State.OPEN, Event.DISCONNECT): To(State.DRAINING, _say_farewell),
            (State.OPEN, Event.PREVENT_REATTACHMENT): To(State.NOT_REATTACHABLE),
            (State.OPEN, Event.LOSE): To(State.CLOSED, _detach),
            (State.DRAINING, Event.PREVENT_REATTACHMENT): To(State.NOT_REATTACHABLE),
            (State.DRAINING, Event.LOSE): To(State.CLOSED, _detach),
            (State.NOT_REATTACHABLE, Event.LOSE): To(State.CLOSED, _end),
        },
        # a further login of an open connection changes nothing, nor does anything that happens while it closes
        otherwise=dict.fromkeys(Event, IGNORED),
    )


def _ids(connection: CoreConnection) -> dict[str, object]:
    """Fields that tie the lines about a connection together, and to the lists of management."""
    return {"peer": connection.connection.peer, "connection": connection.scope.connection_id}
