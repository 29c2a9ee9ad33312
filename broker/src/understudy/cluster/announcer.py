"""Connection of a passive node to the active one, on which it announces itself as backup.

Source: artemis-core s. 9.1 (order on a link), artemis-ha s. 2.2, 2.3. Static connectors are tried in turn
until one answers; passive nodes do not listen, so a node that answers is active. When the link is
lost, everything starts over after ``retry_interval_ms``.

Not here: sockets (``Dialer``) or deciding when to announce (``ha``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Protocol

from understudy.cluster.credentials import ClusterCredentials
from understudy.errors import BrokerError, ClusterSecurityError
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Connection, Timer, Timers
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

MAGIC: Final = b"ARTEMIS"
CONTROL_CHANNEL: Final = 0
CLUSTER_CHANNEL: Final = 3
#: cluster-connection default connection-ttl and check-period, in milliseconds (artemis-ha s. 7.2).
CONNECTION_TTL_MS: Final = 60_000
PING_PERIOD_MS: Final = 10_000


class Link(Protocol):
    """Callbacks of a dialled connection; implemented here."""

    def connected(self, connection: Connection) -> None:
        """The connection is established."""

    def receive_data(self, data: bytes) -> None:
        """Bytes were received."""

    def disconnected(self, reason: str) -> None:
        """Called once per dial, also if the connection was never established."""
        ...


class Dialer(Protocol):
    """Opens connections; ``runtime.connector`` implements it."""

    def dial(self, connector: TransportConfiguration, link: Link) -> None:
        """Connect to ``connector`` and report to ``link``."""


class State(Enum):
    """States of the announcement."""

    IDLE = auto()
    CONNECTING = auto()
    PROVING = auto()
    AWAITING_REPLY = auto()
    ANNOUNCED = auto()
    WAITING = auto()


class Event(Enum):
    """Events of the announcement."""

    START = auto()
    CONNECTED = auto()
    CHALLENGED = auto()
    AUTHORIZED = auto()
    LOST = auto()
    RETRY = auto()
    STOP = auto()


_S, _E = State, Event


class BackupAnnouncer(Machine[State, Event]):
    """Announces one connector as the backup of one node id."""

    STATES = State
    EVENTS = Event
    INITIAL = State.IDLE

    def __init__(
        self,
        *,
        own: TransportConfiguration,
        candidates: Sequence[TransportConfiguration],
        credentials: ClusterCredentials,
        dialer: Dialer,
        clock: Clock,
        timers: Timers,
        retry_interval_ms: int = 500,
        group: str | None = None,
    ) -> None:
        super().__init__()
        self.node_id = ""
        self.connected_to: TransportConfiguration | None = None
        self._own = own
        self._candidates = [
            candidate for candidate in candidates if (candidate.host, candidate.port) != (own.host, own.port)
        ]
        self._credentials = credentials
        self._dialer = dialer
        self._clock = clock
        self._timers = timers
        self._retry_interval_ms = retry_interval_ms
        self._group = group
        self._next = 0
        self._link: _AnnouncerLink | None = None
        self._timer: Timer | None = None

    def start(self, node_id: str) -> None:
        """Begin to announce for ``node_id``; does nothing if already begun."""
        self.node_id = node_id
        if self._candidates:
            self.fire(Event.START)

    def stop(self) -> None:
        """Close the connection and stop retrying."""
        self.fire(Event.STOP)

    def _dial(self) -> None:
        candidate = self._candidates[self._next % len(self._candidates)]
        self._next += 1
        self._link = _AnnouncerLink(self, candidate)
        self._dialer.dial(candidate, self._link)

    def _say_hello(self, link: _AnnouncerLink) -> None:
        link.nonce = self._credentials.nonce()
        link.send_raw(MAGIC)
        link.send(packets.Ping(CONNECTION_TTL_MS), CONTROL_CHANNEL)
        link.send(packets.ClusterHello(self._credentials.user, link.nonce), CLUSTER_CHANNEL)

    def _prove(self, link: _AnnouncerLink, challenge: packets.ClusterChallenge) -> None:
        expected = self._credentials.acceptor_proof(link.nonce, challenge.nonce)
        self._credentials.verify(expected, challenge.proof, link.candidate.to_url())
        proof = self._credentials.dialler_proof(link.nonce, challenge.nonce)
        link.send(packets.ClusterProof(proof), CLUSTER_CHANNEL)

    def _announce(self, link: _AnnouncerLink) -> None:
        self.connected_to = link.candidate
        announcement = packets.NodeAnnounce(
            node_id=self.node_id,
            backup_group_name=self._group,
            backup=True,
            current_event_id=self._clock.wall_ms(),
            connector=self._own,
        )
        link.send(announcement, CLUSTER_CHANNEL)
        log.info("backup announced", extra={"to": link.candidate.to_url(), "id": "AMQ221031"})
        self._ping_later(link)

    def _ping_later(self, link: _AnnouncerLink) -> None:
        def ping() -> None:
            link.send(packets.Ping(CONNECTION_TTL_MS), CONTROL_CHANNEL)
            self._ping_later(link)

        self._timer = self._timers.call_later(PING_PERIOD_MS, ping)

    def _retry_later(self, reason: str) -> None:
        log.debug("announcement link", extra={"reason": reason})
        self._forget()
        self._timer = self._timers.call_later(self._retry_interval_ms, lambda: self.fire(Event.RETRY))

    def _hang_up(self) -> None:
        self._forget()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        link, self._link = self._link, None
        self.connected_to = None
        if link is not None:
            link.abandon()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (_S.IDLE, _E.START): To(_S.CONNECTING, _dial),
            (_S.IDLE, _E.STOP): IGNORED,
            (_S.IDLE, _E.LOST): IGNORED,
            (_S.CONNECTING, _E.CONNECTED): To(_S.PROVING, _say_hello),
            (_S.PROVING, _E.CHALLENGED): To(_S.AWAITING_REPLY, _prove),
            (_S.AWAITING_REPLY, _E.AUTHORIZED): To(_S.ANNOUNCED, _announce),
            (_S.WAITING, _E.RETRY): To(_S.CONNECTING, _dial),
            (_S.WAITING, _E.LOST): IGNORED,
            (_S.CONNECTING, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.PROVING, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.AWAITING_REPLY, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.ANNOUNCED, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.CONNECTING, _E.STOP): To(_S.IDLE, _hang_up),
            (_S.PROVING, _E.STOP): To(_S.IDLE, _hang_up),
            (_S.AWAITING_REPLY, _E.STOP): To(_S.IDLE, _hang_up),
            (_S.ANNOUNCED, _E.STOP): To(_S.IDLE, _hang_up),
            (_S.WAITING, _E.STOP): To(_S.IDLE, _hang_up),
        },
        otherwise={
            _E.START: IGNORED,
            # responses out of order are errors of the peer: the link checks the order before it fires
            _E.CONNECTED: ILLEGAL,
            _E.CHALLENGED: ILLEGAL,
            _E.AUTHORIZED: ILLEGAL,
            _E.RETRY: ILLEGAL,
        },
    )


class _AnnouncerLink:
    """One dialled connection of the announcer; ignores all callbacks once abandoned."""

    def __init__(self, announcer: BackupAnnouncer, candidate: TransportConfiguration) -> None:
        self.candidate = candidate
        self.nonce = b""
        self._announcer: BackupAnnouncer | None = announcer
        self._connection: Connection | None = None
        self._decoder = FrameDecoder(role="client", limit_bytes=FRAME_BYTES_BEFORE_LOGIN_MAX)

    def send(self, packet: packets.Packet, channel_id: int) -> None:
        self.send_raw(encode(packet, channel_id))

    def send_raw(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.send(data)

    def abandon(self) -> None:
        self._announcer = None
        if self._connection is not None:
            self._connection.close()

    def connected(self, connection: Connection) -> None:
        self._connection = connection
        if self._announcer is None:
            connection.close()
        else:
            self._announcer.fire(Event.CONNECTED, self)

    def disconnected(self, reason: str) -> None:
        if self._announcer is not None:
            self._announcer.fire(Event.LOST, reason)

    def receive_data(self, data: bytes) -> None:
        """Decode bytes from the active node; a protocol error closes the connection."""
        try:
            for frame in self._decoder.receive_data(data):
                self._receive(frame.packet)
        except BrokerError as error:
            log.warning("announcement refused", extra={"peer": self.candidate.to_url(), "error": str(error)})
            self.disconnected(str(error))

    def _receive(self, packet: packets.Packet) -> None:
        announcer = self._announcer
        if announcer is None:
            return
        if isinstance(packet, packets.ClusterChallenge):
            if announcer.state is not State.PROVING:
                raise ClusterSecurityError("challenge out of order")
            announcer.fire(Event.CHALLENGED, self, packet)
        elif isinstance(packet, packets.ClusterConnectReply):
            if announcer.state is not State.AWAITING_REPLY or not packet.authorized:
                raise ClusterSecurityError("the active node refused the cluster credentials")
            announcer.fire(Event.AUTHORIZED, self)
        elif isinstance(packet, (packets.Disconnect, packets.DisconnectV2, packets.DisconnectV3)):
            self.disconnected("the active node stops")
