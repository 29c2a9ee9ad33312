"""Connection of a passive node to the active one, on which it announces itself as backup.

Source: artemis-core s. 9.1 (order on a link), artemis-ha s. 2.2, 2.3. Static connectors are tried in turn
until one answers; passive nodes do not listen, so a node that answers is active. When the link is
lost, everything starts over after ``retry_interval_ms``.

Not here: the connection (``wire.core.peer``), sockets (``Dialer``), deciding when to announce (``ha``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum, auto
from functools import partial
from typing import Final

from understudy.cluster.credentials import ClusterCredentials
from understudy.errors import ClusterSecurityError
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Timer, Timers
from understudy.wire.core import packets
from understudy.wire.core.peer import CorePeer, Dialer
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

CLUSTER_CHANNEL: Final = 3
_REFUSED: Final = "the active node refused the cluster credentials"


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
        self._peer: CorePeer | None = None
        self._timer: Timer | None = None

    def start(self, node_id: str) -> None:
        """Begin to announce for ``node_id``; does nothing if already begun."""
        self.node_id = node_id
        if self._candidates:
            self.fire(Event.START)

    def stop(self) -> None:
        """Close the connection and stop retrying."""
        self.fire(Event.STOP)

    # -- PeerOwner --------------------------------------------------------------------------------

    def peer_opened(self, peer: CorePeer) -> None:
        """The connection is established."""
        self.fire(Event.CONNECTED, peer)

    def peer_received(self, peer: CorePeer, channel_id: int, packet: packets.Packet) -> None:
        """Packets that do not concern the announcement are ignored. Raises ClusterSecurityError: out of order."""
        if isinstance(packet, (packets.ClusterChallenge, packets.ClusterConnectReply)):
            raise ClusterSecurityError(f"{type(packet).__name__} out of order")

    def peer_lost(self, peer: CorePeer, reason: str) -> None:
        """The connection has ended, or could not be established."""
        self.fire(Event.LOST, reason)

    # -- actions ----------------------------------------------------------------------------------

    def _dial(self) -> None:
        candidate = self._candidates[self._next % len(self._candidates)]
        self._next += 1
        self._peer = CorePeer(self, candidate, self._clock, self._timers)
        self._dialer.dial(candidate, self._peer)

    def _say_hello(self, peer: CorePeer) -> None:
        nonce = self._credentials.nonce()
        hello = packets.ClusterHello(self._credentials.user, nonce)
        expected = (packets.ClusterChallenge, packets.ClusterConnectReply)
        peer.request(hello, CLUSTER_CHANNEL, expected, partial(self._challenged, peer, nonce))

    def _challenged(self, peer: CorePeer, nonce: bytes, answer: packets.Packet) -> None:
        if not isinstance(answer, packets.ClusterChallenge):
            raise ClusterSecurityError(_REFUSED)
        self.fire(Event.CHALLENGED, peer, nonce, answer)

    def _prove(self, peer: CorePeer, nonce: bytes, challenge: packets.ClusterChallenge) -> None:
        expected = self._credentials.acceptor_proof(nonce, challenge.nonce)
        self._credentials.verify(expected, challenge.proof, peer.target.to_url())
        proof = packets.ClusterProof(self._credentials.dialler_proof(nonce, challenge.nonce))
        peer.request(proof, CLUSTER_CHANNEL, (packets.ClusterConnectReply,), partial(self._answered, peer))

    def _answered(self, peer: CorePeer, answer: packets.Packet) -> None:
        if not isinstance(answer, packets.ClusterConnectReply) or not answer.authorized:
            raise ClusterSecurityError(_REFUSED)
        self.fire(Event.AUTHORIZED, peer)

    def _announce(self, peer: CorePeer) -> None:
        self.connected_to = peer.target
        announcement = packets.NodeAnnounce(
            node_id=self.node_id,
            backup_group_name=self._group,
            backup=True,
            current_event_id=self._clock.wall_ms(),
            connector=self._own,
        )
        peer.send(announcement, CLUSTER_CHANNEL)
        log.info("backup announced", extra={"to": peer.target.to_url(), "id": "AMQ221031"})

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
        peer, self._peer = self._peer, None
        self.connected_to = None
        if peer is not None:
            peer.close()

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
            # responses come only to requests that were sent: ``CorePeer`` checks the order
            _E.CONNECTED: ILLEGAL,
            _E.CHALLENGED: ILLEGAL,
            _E.AUTHORIZED: ILLEGAL,
            _E.RETRY: ILLEGAL,
        },
    )
