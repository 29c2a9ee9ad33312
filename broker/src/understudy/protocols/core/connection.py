"""One CORE connection of a server: channels 0, 1 and 3, liveness, and the sessions on top.

Source: artemis-core s. 3 (channels, versions), s. 4.1 (setup), s. 7.2 (ping, TTL), s. 8.1 (topology), s. 9.1
(cluster control). Bytes come in by ``receive_data``; everything out goes through the
``Connection`` port. A protocol error raised from ``receive_data`` means: close the socket.

Not here: what session packets mean (``protocols.core.session``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from understudy.cluster.topology import Member
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
    LOGIN_TIMEOUT_MS,
    NAME_UNITS_MAX,
    OUTGOING_BYTES_BEFORE_LOGIN_MAX,
    OUTGOING_BYTES_PAUSE,
    SESSIONS_PER_CONNECTION_MAX,
    TURN_COST_MAX,
)
from understudy.ports import Connection
from understudy.protocols.core.channel import Event
from understudy.protocols.core.cluster_channel import CLUSTER_CHANNEL, ClusterChannel
from understudy.protocols.core.login import LoginStep
from understudy.protocols.core.services import CoreServices, PrincipalSecurity
from understudy.protocols.core.session import CoreSession
from understudy.security.authentication import Principal
from understudy.session.connection_scope import ConnectionScope
from understudy.session.prefixes import NO_PREFIXES, AddressPrefixes
from understudy.session.session import ServerSession
from understudy.wire.core import packets
from understudy.wire.core.codec import Frame, FrameDecoder, encode
from understudy.wire.core.codes import code_of

log = logging.getLogger(__name__)

CONTROL_CHANNEL: Final = 0
SESSION_SETUP_CHANNEL: Final = 1
FIRST_SESSION_CHANNEL: Final = 10

#: The version we announce and the oldest client we take (artemis-core s. 3.2).
SERVER_VERSION: Final = 136
OLDEST_CLIENT_VERSION: Final = 121
#: The oldest client that may have sessions: those before lay messages out otherwise (artemis-core s. 5), and
#: what they send would be misread rather than refused.
OLDEST_SESSION_VERSION: Final = 129
#: Silence allowed to a client that has not said what it wants in a PING (artemis-core s. 7.2). Milliseconds.
DEFAULT_CONNECTION_TTL_MS: Final = 60_000


class CoreConnection:
    """One CORE connection from the server's side, without I/O."""

    def __init__(self, services: CoreServices, connection: Connection, prefixes: AddressPrefixes = NO_PREFIXES) -> None:
        """``prefixes``: that clients of this acceptor may put before names."""
        self.sessions: dict[int, CoreSession] = {}
        self.connection = connection
        self.services = services
        self._prefixes = prefixes
        self.scope = ConnectionScope(
            services.entropy.token(8).hex(), remote_address=connection.peer, created_ms=services.clock.wall_ms()
        )
        self.host = connection.peer.rpartition(":")[0]
        """Of the peer, without its port."""
        self.decoder = FrameDecoder(role="server", limit_bytes=FRAME_BYTES_BEFORE_LOGIN_MAX)
        self.decoder.groups_sends = True
        self.decoder.turn_cost_max = TURN_COST_MAX
        self._opened_ms = services.clock.monotonic_ms()
        self._data_received = False
        """Whether anything came since ``check`` was called last."""
        self._last_data_ms = self._opened_ms
        """When ``check`` last found that something had come. Monotonic."""
        override_ms = services.connection_ttl_override_ms
        self._ttl_ms = override_ms if override_ms >= 0 else DEFAULT_CONNECTION_TTL_MS
        self.proved = False
        """Whether the peer has logged in."""
        self.user: str | None = None
        """As whom it has logged in, the last time."""
        self._version_known = False
        self._unsubscribe: Callable[[], None] = _nothing
        """Of changes of the topology, once the peer has asked to be told of them."""
        self._cluster = ClusterChannel(self)
        self._login = LoginStep(self)
        self._closed = False
        self._forfeited = False
        """Its sessions end with it, whatever their windows."""
        self.uploading: dict[CoreSession, None] = {}
        """Sessions in the middle of a large message."""
        self.held_up = False
        """Something may wait for the disk or for a login check: see ``congested``."""
        self.held_back = False
        """Deliveries wait for the socket; ``resume_deliveries`` ends that."""
        services.opened(self)

    # --- driven by the shell -------------------------------------------------------------------

    def receive_data(self, data: bytes) -> bool:
        """Carry out what came after the magic, and a bounded part of it per call (``TURN_COST_MAX``).

        Args:
            data: Bytes; none to go on with what is left over.

        Returns:
            Whether input is left over.

        Raises:
            ProtocolError: the stream cannot be followed any further; close the connection.
        """
        self._data_received = True
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
            # a peer that breaks the protocol has no sessions to come back to
            self._forfeited = True
            raise
        return bool(decoder.backlog)

    def receive_frame(self, frame: Frame) -> None:
        """Carry out a frame that was held behind a login."""
        session = self.sessions.get(frame.channel_id)
        if session is not None:
            session.receive(frame.packet, frame.size_bytes)
        else:
            self._receive_outside(frame)

    def _receive_outside(self, frame: Frame) -> None:
        """Carry out a frame of no session, or hold it behind the login that it must not overtake."""
        if frame.channel_id != CONTROL_CHANNEL and self._login.checking:
            self._login.hold(frame)
            self.held_up = True
            return
        if not self.proved:
            self._login.count_frame()
        if frame.channel_id == CONTROL_CHANNEL:
            self._receive_control(frame.packet)
        elif frame.channel_id == SESSION_SETUP_CHANNEL:
            self._receive_session_setup(frame.packet)
        elif frame.channel_id == CLUSTER_CHANNEL:
            self._cluster.receive(frame.packet)
        # frames for a channel that is gone or never was are dropped (artemis-core s. 3.1)

    def connection_lost(self, reason: str) -> None:
        """The socket is gone. Sessions with a confirmation window wait for their client; the others
        end, and what they had not acknowledged is delivered again.
        """
        if self._closed:
            return
        self._closed = True
        self._login.close()
        self._unsubscribe()
        waiting = False
        for session in list(self.sessions.values()):
            if self._forfeited or not self.services.accepting:
                session.close(failed=True)
            elif session.lose(self._ttl_ms):
                waiting = True
        self.sessions.clear()
        if not waiting:
            self.scope.delete_temporary_queues(self.services.post_office)
        self._cluster.close()
        self.services.ended(self)
        self._release_parts()
        log.debug("connection closed", extra={"peer": self.connection.peer, "reason": reason})

    def _release_parts(self) -> None:
        """Break the reference cycles, so that memory is freed now and not when the collector of cycles runs."""
        self.decoder.close()
        self._unsubscribe = _nothing
        del self._login, self._cluster

    def check(self) -> None:
        """Every two seconds (artemis-core s. 7.2): drop the silent, flush confirmations.

        Raises:
            RemoteProtocolError: it must be closed; the text says why.
        """
        now_ms = self.services.clock.monotonic_ms()
        if self._data_received:
            self._data_received = False
            self._last_data_ms = now_ms
        if 0 < self._ttl_ms < now_ms - self._last_data_ms:
            self._forfeited = True
            raise RemoteProtocolError(f"nothing received for {now_ms - self._last_data_ms} ms (connection-ttl)")
        if not self.proved and not self._login.checking and now_ms - self._opened_ms > LOGIN_TIMEOUT_MS:
            raise RemoteProtocolError(f"no login within {LOGIN_TIMEOUT_MS} ms")
        for session in self.sessions.values():
            session.channel.flush_confirmations()
        for session in list(self.uploading):
            session.session.large.check_idle()

    def writable(self) -> bool:
        """Whether the peer takes what we send; deliveries pause while it does not."""
        if self._closed or self.connection.outgoing_bytes() >= OUTGOING_BYTES_PAUSE:
            self.held_back = True
            return False
        return True

    def resume_deliveries(self) -> None:
        """The peer has taken what was held up: what was paused goes on."""
        self.held_back = False
        for session in self.sessions.values():
            session.session.resume_deliveries()

    def congested(self) -> bool:
        """Whether nothing more should be read before the disk has caught up with what came."""
        held_bytes = 0 if self._closed else self._login.held_bytes
        self.held_up = bool(held_bytes or self.uploading)
        if self._closed:
            return False
        if held_bytes > LOGIN_HELD_BYTES_PAUSE:
            return True
        return any(session.congested for session in self.uploading)

    def hold(self, session: CoreSession) -> None:
        """The session has messages on their way that the disk, or the next turn, must take first."""
        self.uploading[session] = None
        self.held_up = True

    def give_up(self, error: BrokerError) -> None:
        """A breach of protocol that showed later than it came."""
        log.warning("connection dropped", extra={"peer": self.connection.peer, "code": error.code, "error": str(error)})
        self._forfeited = True
        self.connection.close()

    def forfeit(self) -> None:
        """What it sent met a bug of ours: nothing of it is kept."""
        self._forfeited = True

    def met_bug(self, bug: Exception) -> None:
        """So did something for it: a delivery, or an answer that waited for the disk. It ends at once."""
        log.error("connection dropped: internal error", extra={"peer": self.connection.peer}, exc_info=bug)
        self._forfeited = True
        self.connection.abort()

    def kill(self, reason: str) -> None:
        """End it because of how the client behaves."""
        log.warning("connection killed", extra={"peer": self.connection.peer, "reason": reason})
        self._forfeited = True
        self.send(packets.DisconnectConsumerKill(self.services.node_id), SESSION_SETUP_CHANNEL)
        self.connection.close()

    def disconnect(self) -> None:
        """Send DISCONNECT as a stopping server does, then close: a client with sessions is told to fail over,
        any other that the server stops, and both whether an error is the reason (artemis-core s. 7.2).
        """
        kind = packets.DisconnectReason
        critical = self.services.critical_stop
        if self.sessions:
            reason = kind.SCALE_DOWN_ON_CRITICAL_ERROR if critical else kind.SCALE_DOWN
        else:
            reason = kind.SHUT_DOWN_ON_CRITICAL_ERROR if critical else kind.SHUT_DOWN
        for session in list(self.sessions.values()):
            session.close(failed=True)
        self.sessions.clear()
        if self.decoder.version >= 131:
            farewell: packets.Packet = packets.DisconnectV3(
                node_id=self.services.node_id, reason=reason, target_node_id=None, connector=None
            )
        elif self.decoder.version >= 125:
            farewell = packets.DisconnectV2(node_id=self.services.node_id, scale_down_node_id=None)
        else:
            farewell = packets.Disconnect(node_id=self.services.node_id)
        self.send(farewell, CONTROL_CHANNEL)
        self.connection.close()

    # --- sending -------------------------------------------------------------------------------

    def send(self, packet: packets.Packet, channel_id: int) -> None:
        if not self.proved and self.connection.outgoing_bytes() > OUTGOING_BYTES_BEFORE_LOGIN_MAX:
            log.warning("connection dropped: it does not read before its login", extra={"peer": self.connection.peer})
            self.connection.abort()
            return
        self.connection.send(encode(packet, channel_id, self.decoder.version))

    # --- channels below the sessions -----------------------------------------------------------

    def _receive_control(self, packet: packets.Packet) -> None:
        if isinstance(packet, packets.Ping):
            if self.services.connection_ttl_override_ms < 0:
                self._ttl_ms = packet.connection_ttl_ms
            self.send(packet, CONTROL_CHANNEL)
        elif isinstance(packet, packets.SubscribeTopologyV2):
            self._learn_version(packet.client_version)
            self._subscribe()
        elif isinstance(packet, packets.SubscribeTopology):
            self._subscribe()
        else:
            raise UnsupportedPacket(f"{type(packet).__name__} on channel 0")

    def _subscribe(self) -> None:
        if self._unsubscribe is not _nothing:
            # clients ask once; it is told of every change already
            return
        members = self.services.topology.members() or [Member(self.services.node_id, 0)]
        for position, member in enumerate(members, start=1):
            self._send_member(member, last=position == len(members))
        self._unsubscribe = self.services.topology.listen(lambda member: self._send_member(member, last=False))

    def _learn_version(self, client_version: int) -> None:
        """The first version a client states holds for the connection (artemis-core s. 3.2)."""
        if self._version_known:
            return
        if client_version < OLDEST_CLIENT_VERSION:
            raise RemoteProtocolError(f"client version {client_version}, oldest is {OLDEST_CLIENT_VERSION}")
        self._version_known = True
        self.decoder.version = min(client_version, SERVER_VERSION)

    def _send_member(self, member: Member, *, last: bool) -> None:
        update = packets.topology_packet(
            version=self.decoder.version,
            node_id=member.node_id,
            unique_event_id=member.event_id,
            primary=member.primary,
            backup=member.backup,
            last=last,
            backup_group_name=member.backup_group,
            scale_down_group_name=member.scale_down_group,
        )
        self.send(update, CONTROL_CHANNEL)

    def _receive_session_setup(self, packet: packets.Packet) -> None:
        if isinstance(packet, (packets.CreateSession, packets.CreateSessionV2)):
            try:
                self._create_session(packet)
            except BrokerError as error:
                self.refuse_session(error, packet.user)
        elif isinstance(packet, packets.ReattachSession):
            if not self._reattach(packet):
                # also the answer of a name that never was (ADR 0009); the client creates it anew
                self.send(packets.ReattachSessionResponse(-1, False), SESSION_SETUP_CHANNEL)
        elif isinstance(packet, packets.CheckForFailover):
            ok = packet.node_id is None or packet.node_id == self.services.node_id
            self.send(packets.CheckForFailoverReply(ok), SESSION_SETUP_CHANNEL)
        else:
            raise UnsupportedPacket(f"{type(packet).__name__} on channel 1")

    def refuse_session(self, error: BrokerError, user: str | None) -> None:
        """Answer a CREATESESSION that failed."""
        if isinstance(error, AuthenticationFailed) and self.services.listener is not None:
            self.services.listener.login_refused(user, self.connection.peer)
        log.info("session refused", extra={"peer": self.connection.peer, "error": str(error)})
        text = self.services.error_texts.remote(error)
        self.send(packets.ExceptionResponse(code_of(error), text, None), SESSION_SETUP_CHANNEL)

    def _create_session(self, packet: packets.CreateSession | packets.CreateSessionV2) -> None:
        if not OLDEST_SESSION_VERSION <= packet.version <= SERVER_VERSION:
            raise IncompatibleVersion(
                f"client version {packet.version}: this server takes {OLDEST_SESSION_VERSION} to {SERVER_VERSION}"
            )
        self._check_room(packet.session_channel_id)
        for name in (packet.name, packet.user, packet.default_address, getattr(packet, "client_id", None)):
            if name is not None and len(name) > NAME_UNITS_MAX:
                raise LimitExceeded(f"a name of {len(name)} characters in CREATESESSION, limit {NAME_UNITS_MAX}")
        self._login.log_in(packet)

    def _check_room(self, channel_id: int) -> None:
        if not self.services.accepting:
            raise SessionRejected("the server is stopping")
        if channel_id < FIRST_SESSION_CHANNEL or channel_id in self.sessions:
            raise RemoteProtocolError(f"session on channel {channel_id}")
        if len(self.sessions) >= SESSIONS_PER_CONNECTION_MAX:
            raise SessionRejected(f"more than {SESSIONS_PER_CONNECTION_MAX} sessions on one connection")

    def open_session(self, packet: packets.CreateSession | packets.CreateSessionV2, principal: Principal) -> None:
        """A session of a proven client, and the answer.

        Raises:
            SessionRejected, RemoteProtocolError: there is no place for it any more.
        """
        services = self.services
        self._check_room(packet.session_channel_id)
        self._learn_version(packet.version)
        handler = CoreSession(self, packet.session_channel_id, packet.confirmation_window)
        client_id = getattr(packet, "client_id", None)
        if client_id is not None:
            self.scope.client_id = client_id
        try:
            session = self._make_session(packet, principal, handler)
        except BrokerError:
            handler.channel.fire(Event.END)
            raise
        handler.made(session)
        self.sessions[packet.session_channel_id] = handler
        services.reattachments.add(handler, self.host)
        self._proved()
        self.user = principal.user
        self.send(packets.CreateSessionResponse(SERVER_VERSION), SESSION_SETUP_CHANNEL)

    def _make_session(
        self, packet: packets.CreateSession | packets.CreateSessionV2, principal: Principal, handler: CoreSession
    ) -> ServerSession:
        services = self.services
        return ServerSession(
            packet.name,
            post_office=services.post_office,
            security=PrincipalSecurity(services.security, principal, services.listener),
            clock=services.clock,
            callback=handler,
            connection=self.scope,
            registry=services.registry,
            resources=services.resources,
            min_large_message_size=packet.min_large_message_size,
            auto_commit_sends=packet.auto_commit_sends,
            auto_commit_acks=packet.auto_commit_acks,
            pre_acknowledge=packet.pre_acknowledge,
            xa=packet.xa,
            default_address=packet.default_address,
            management=services.management,
            prefixes=self._prefixes,
            validated_users=services.validated_users,
            validated_user=principal.user if services.security.checks else None,
        )

    def _proved(self) -> None:
        """The peer has proved its identity: by a login, a session's secret name or the cluster password."""
        self.proved = True
        self.decoder.frame_limit_bytes = FRAME_BYTES_MAX

    def _reattach(self, packet: packets.ReattachSession) -> bool:
        """Move a session of this peer here (artemis-core s. 7.1); False, with the session ended, if that cannot
        be done without losing or repeating something.
        """
        services = self.services
        found = services.reattachments.find(packet.name, self.host) if services.accepting else None
        if found is None:
            return False
        channel = found.channel
        self.scope.adopt(found.session.connection)
        frames = channel.frames_after(packet.last_confirmed_command_id)
        if frames is None or channel.channel_id in self.sessions or len(self.sessions) >= SESSIONS_PER_CONNECTION_MAX:
            found.close(failed=True)
            return False
        old = channel.connection
        services.reattachments.found_again(found)
        self._learn_version(old.decoder.version)
        found.move(self, frames)
        old.session_ended(found)
        self.sessions[channel.channel_id] = found
        self._proved()
        self.user = found.session.security.user
        log.info("session reattached", extra={"peer": self.connection.peer, "from": old.connection.peer})
        # what is held behind a large message is carried out first: until then it is not known what the
        # client must send again
        found.when_settled(lambda: self._answer_reattached(found))
        return True

    def _answer_reattached(self, handler: CoreSession) -> None:
        # the client forgets what the answer covers, so that must be durable first
        handler.session.when_durable(self._reattached, handler, handler.channel.last_received)

    def _reattached(self, handler: CoreSession, last_received: int) -> None:
        if handler.channel.connection is self:
            self.send(packets.ReattachSessionResponse(last_received, True), SESSION_SETUP_CHANNEL)

    def session_ended(self, handler: CoreSession) -> None:
        """A session has closed, or moved to another connection."""
        self.uploading.pop(handler, None)
        channel_id = handler.channel.channel_id
        if self.sessions.get(channel_id) is handler:
            del self.sessions[channel_id]

    def cluster_authorized(self) -> None:
        """The peer proved the cluster credentials."""
        self._proved()


def _nothing() -> None:
    """Of a connection that has no subscription."""
