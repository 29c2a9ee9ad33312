"""One connection of this node to another member of the cluster: mutual proof, then requests and announcements.

Source: artemis-core s. 9.1 (order on a link), artemis-ha s. 2.2, 2.3, 7.2. The link dials one connector until it
answers, and again when the connection is lost, after an interval that grows. ``cluster.membership.membership`` owns the
links of a node.

Not here: the connection (``wire.core.peer``), sockets (``Dialer``), announcements and the topology
(``cluster.membership.membership``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import field
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.handshake import CLUSTER_CHANNEL, prove
from understudy.dataclass import dataclass
from understudy.errors import ClusterSecurityError
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Timer, Timers
from understudy.wire.core import packets
from understudy.wire.core.peer import Answer, CorePeer, Dialer, PeerOptions, RefusalLog
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

#: Failures in a row after which an active node dials a place more seldom where it has never reached a node.
_FAILURES_BEFORE_REST: Final = 20

Answered = Callable[[packets.Packet | None], None]
"""Called with the answer of the other node; None: the connection failed or was lost."""


class State(Enum):
    """States of a link."""

    IDLE = auto()
    CONNECTING = auto()
    PROVING = auto()
    JOINED = auto()
    """Both sides have proved that they know the cluster password."""
    WAITING = auto()
    """The link waits before its next attempt to connect."""


class Event(Enum):
    """Events of a link."""

    START = auto()
    CONNECTED = auto()
    AUTHORIZED = auto()
    LOST = auto()
    RETRY = auto()
    STOP = auto()


_S, _E = State, Event


class LinkOwner(Protocol):
    """The user of a link. None of these is called after ``MemberLink.stop``."""

    def link_joined(self, link: MemberLink) -> None:
        """Called when the other node is authenticated and packets can be sent."""

    def link_received(self, link: MemberLink, packet: packets.Packet) -> None:
        """A packet that answers no request. Raises BrokerError: the connection is closed."""

    def link_lost(self, link: MemberLink, *, joined: bool, dismissed: bool) -> None:
        """Called when the connection ended or could not be made.

        Args:
            link: The link; ``failures`` counts this one. It tries again unless the owner stops it.
            joined: Whether it was authenticated before.
            dismissed: The other node said that it stops.
        """


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Settings of a cluster-connection for its links; the defaults are its own (artemis-ha s. 7.2)."""

    retry_interval_ms: int = 500
    retry_interval_multiplier: float = 1.0
    max_retry_interval_ms: int = 2_000
    peer: PeerOptions = field(default_factory=PeerOptions)

    def retry_ms(self, failures: int) -> int:
        """Time to wait after so many failed attempts in a row."""
        try:
            grown = self.retry_interval_ms * self.retry_interval_multiplier ** max(0, failures - 1)
        except OverflowError:
            return self.max_retry_interval_ms
        return int(max(min(grown, self.max_retry_interval_ms), min(self.retry_interval_ms, self.max_retry_interval_ms)))


@dataclass(frozen=True, slots=True)
class _Question:
    """A packet that is sent again until the other node answers it."""

    packet: packets.Packet
    expected: type[packets.Packet]
    answered: Answered


class MemberLink(Machine[State, Event]):
    """A connection to the node at one connector. Implements ``wire.core.peer.PeerOwner``."""

    STATES = State
    EVENTS = Event
    INITIAL = State.IDLE

    def __init__(
        self,
        owner: LinkOwner,
        target: TransportConfiguration,
        settings: LinkSettings,
        credentials: ClusterCredentials,
        dialer: Dialer,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """Args:
        owner: Called when something happens.
        target: Connector of the other node.
        settings: Settings of the cluster-connection.
        dialer: Opens the connection.
        clock: Used for ``CorePeer``.
        timers: Used for the wait before an attempt, and for ``CorePeer``.
        """
        super().__init__()
        self.target = target
        self.node_id: str | None = None
        """Node id under which the other node is active; None: not known yet."""
        self.failures = 0
        """Failed attempts since the last connection."""
        self.error = ""
        """Reason why the latest attempt failed or the connection ended."""
        self.refusal = ""
        """Reason why one of the nodes refused the latest connection, such as another cluster password; empty: neither
        did."""
        self.ever_joined = False
        self.stopped = False
        """Whether the other node has announced its stop and has not been reached since."""
        self._owner = owner
        self._settings = settings
        self._credentials = credentials
        self._dialer = dialer
        self._clock = clock
        self._refusals = RefusalLog(clock)
        self._timers = timers
        self._peer: CorePeer | None = None
        self._timer: Timer | None = None
        self._questions: dict[object, _Question] = {}
        """Questions without an answer, by their key."""

    @property
    def joined(self) -> bool:
        """Whether the other node is connected and authenticated."""
        return self.state is State.JOINED

    def start(self) -> None:
        """Connect; does nothing if started already."""
        self.fire(Event.START)

    def stop(self) -> None:
        """Close the connection and stop retrying. Questions that are not answered are dropped without a call."""
        self.fire(Event.STOP)

    def send(self, packet: packets.Packet, channel_id: int = CLUSTER_CHANNEL) -> None:
        """Send a packet; without effect unless ``joined``."""
        if self._peer is not None and self.joined:
            self._peer.send(packet, channel_id)

    @property
    def version(self) -> int:
        """Channel version of the connection."""
        return self._peer.version if self._peer is not None else 0

    @property
    def login(self) -> tuple[str | None, str | None]:
        """User and password of a session on this link (``ClusterCredentials.login_at``)."""
        return self._credentials.login_at(self.target)

    @property
    def is_plain(self) -> bool:
        """Whether the other node is configured as an Artemis, which does not answer questions that it does not know."""
        return self._credentials.plain_for(self.target) is not None

    def accept_frames(self, limit_bytes: int) -> None:
        """Accept larger frames of the other node; without effect unless ``joined``."""
        if self._peer is not None and self.joined:
            self._peer.accept_frames(limit_bytes)

    def request(
        self, packet: packets.Packet, channel_id: int, expected: tuple[type[packets.Packet], ...], answer: Answer
    ) -> None:
        """Send a packet that the other node answers (``CorePeer.request``); without effect unless ``joined``."""
        if self._peer is not None and self.joined:
            self._peer.request(packet, channel_id, expected, answer)

    def ask(self, packet: packets.Packet, expected: type[packets.Packet], answered: Answered) -> Callable[[], None]:
        """Ask the other node on the cluster channel. A link that waits connects at once.

        Args:
            packet: The question.
            expected: Type of the answer.
            answered: Called once with the answer.

        Returns:
            A call that ends the question; ``answered`` is not called after it.
        """
        key = object()
        self._questions[key] = _Question(packet, expected, answered)
        if self.joined:
            self._put_question(key)
        elif self.state is State.WAITING:
            self.fire(Event.RETRY)

        def end() -> None:
            self._questions.pop(key, None)

        return end

    # -- PeerOwner --------------------------------------------------------------------------------

    def peer_opened(self, peer: CorePeer) -> None:
        """Called when the connection is established."""
        self.fire(Event.CONNECTED, peer)

    def peer_received(self, peer: CorePeer, channel_id: int, packet: packets.Packet) -> None:
        """Pass a packet on to the owner. Raises ClusterSecurityError: out of order."""
        if isinstance(packet, (packets.ClusterChallenge, packets.ClusterConnectReply)):
            raise ClusterSecurityError(f"{type(packet).__name__} out of order")
        if self.joined:
            self._owner.link_received(self, packet)

    def peer_lost(self, peer: CorePeer, reason: str) -> None:
        """Called when the connection has ended, or could not be established."""
        self._refusals.note(peer)
        self.refusal = peer.refusal
        # a stranger at the address of a node cannot say for it that it stops
        self.fire(Event.LOST, reason, self.joined, self.joined and peer.dismissed)

    # -- actions ----------------------------------------------------------------------------------

    def _dial(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._peer = CorePeer(self, self.target, self._clock, self._timers, self._settings.peer)
        self._dialer.dial(self.target, self._peer)

    def _prove(self, peer: CorePeer) -> None:
        prove(peer, self._credentials, lambda: self.fire(Event.AUTHORIZED))

    def _join(self) -> None:
        self.failures = 0
        self.refusal = ""
        self.ever_joined = True
        log.info("connected to a member of the cluster", extra={"to": self.target.to_url()})
        self._owner.link_joined(self)
        for key in list(self._questions):
            self._put_question(key)

    def _put_question(self, key: object) -> None:
        if self._peer is not None and key in self._questions:
            question = self._questions[key]
            self._peer.request(question.packet, CLUSTER_CHANNEL, (question.expected,), partial(self._answered, key))

    def _answered(self, key: object, answer: packets.Packet) -> None:
        question = self._questions.pop(key, None)
        if question is not None:
            question.answered(answer)

    def _retry_later(self, reason: str, joined: bool, dismissed: bool) -> None:
        log.debug("link to another node", extra={"to": self.target.to_url(), "reason": reason})
        self.failures += 1
        self.error = reason
        self.stopped = dismissed or (self.stopped and not joined)
        self._forget()
        self._timer = self._timers.call_later(self._settings.retry_ms(self.failures), lambda: self.fire(Event.RETRY))
        questions, self._questions = self._questions, {}
        self._owner.link_lost(self, joined=joined, dismissed=dismissed)
        for question in questions.values():
            question.answered(None)

    def rest(self, replaced: TransportConfiguration | None, *, node_is_active: bool) -> None:
        """Dial a place less often, called after a failure: others find this node because it is active (ADR 0221).

        Args:
            replaced: Connector of the node whose place this one has taken; another one is dialled often once reached.
            node_is_active: Whether this node is active.
        """
        sought = self.ever_joined and not self.target.same_place(replaced)
        wait_ms = self._settings.max_retry_interval_ms
        often = self.failures <= _FAILURES_BEFORE_REST or self._settings.retry_ms(self.failures) >= wait_ms
        if node_is_active and not sought and self._timer is not None and not often:
            self._timer.cancel()
            self._timer = self._timers.call_later(wait_ms, lambda: self.fire(Event.RETRY))

    def _hang_up(self) -> None:
        self._questions.clear()
        self._forget()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        peer, self._peer = self._peer, None
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
            (_S.CONNECTING, _E.CONNECTED): To(_S.PROVING, _prove),
            (_S.PROVING, _E.AUTHORIZED): To(_S.JOINED, _join),
            (_S.WAITING, _E.RETRY): To(_S.CONNECTING, _dial),
            (_S.WAITING, _E.LOST): IGNORED,
            (_S.CONNECTING, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.PROVING, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.JOINED, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.CONNECTING, _E.STOP): To(_S.IDLE, _hang_up),
            (_S.PROVING, _E.STOP): To(_S.IDLE, _hang_up),
            (_S.JOINED, _E.STOP): To(_S.IDLE, _hang_up),
            (_S.WAITING, _E.STOP): To(_S.IDLE, _hang_up),
        },
        otherwise={
            _E.START: IGNORED,
            # responses come only to requests that were sent: ``CorePeer`` checks the order
            _E.CONNECTED: ILLEGAL,
            _E.AUTHORIZED: ILLEGAL,
            _E.RETRY: ILLEGAL,
        },
    )
