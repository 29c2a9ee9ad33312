"""The dialling side of a CORE connection between nodes: handshake, channels, pings, responses, disconnect. No I/O.

Used by ``cluster.membership.member_link``; meant for every connection that a node makes to another one. The owner gives
it to a ``Dialer`` and is called through ``PeerOwner``. Not here: session channels, their windows and sends
(``client.core``).

Source: artemis-core s. 1.2 (magic), s. 3 (frames, channels), s. 7.2 (pings, connection TTL, DISCONNECT).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar, Final, Protocol

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, RemoteProtocolError
from understudy.limits import CLUSTER_NODES_MAX, FRAME_BYTES_BEFORE_LOGIN_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, OutputSealer, SealableConnection, Security, Timer, Timers
from understudy.wire.core import packets
from understudy.wire.core.codec import MAGIC, ConfirmBatch, Frame, FrameDecoder, encode
from understudy.wire.core.codes import error_of
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.sealed import Opener

log = logging.getLogger(__name__)

CONTROL_CHANNEL: Final = 0
#: Maximum number of requests of one peer that wait for their response.
REQUESTS_MAX: Final = 1_000
#: Time in ms after which a refusal for the same reason is logged again.
REFUSAL_REPEATED_MS: Final = 60_000

_DISCONNECTS: Final = (packets.Disconnect, packets.DisconnectV2, packets.DisconnectV3)

Answer = Callable[[packets.Packet], None]
"""Called with the response of a request."""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """Time limits of a connection; the defaults are those of a cluster-connection (artemis-ha s. 7.2)."""

    connection_ttl_ms: int = 60_000
    """Silence of either side after which the other one closes the connection; -1: no limit."""
    check_period_ms: int = 30_000
    """Time between two pings; -1: this side does not check whether the other one is silent."""
    call_timeout_ms: int = 30_000
    """Longest wait for the response of a request, after which the connection is closed; -1: no limit."""
    silence_ms: int = -1
    """A second limit of the silence of the other side, for this side only; -1: none (ADR 0060)."""

    @property
    def ping_period_ms(self) -> int | None:
        """Time between two pings; None: none are sent. Two fit into the TTL, so that one may be late, and four into
        ``silence_ms``."""
        periods = [self.check_period_ms] if self.check_period_ms > 0 else []
        if self.connection_ttl_ms > 0:
            periods.append(max(1, self.connection_ttl_ms // 2))
        if self.silence_ms > 0:
            periods.append(max(1, self.silence_ms // 4))
        return min(periods, default=None)

    @property
    def limit_ms(self) -> int | None:
        """Silence of the other side after which this one closes the connection; None: no limit."""
        limits = [self.connection_ttl_ms] if self.connection_ttl_ms > 0 and self.check_period_ms > 0 else []
        if self.silence_ms > 0:
            limits.append(self.silence_ms)
        return min(limits, default=None)


DEFAULT_OPTIONS: Final = PeerOptions()


class Link(Protocol):
    """Callbacks of a dialled connection."""

    def connected(self, connection: SealableConnection) -> None:
        """Called when the connection is established."""

    def receive_data(self, data: bytes) -> None:
        """Take bytes received from the peer."""

    def disconnected(self, reason: str) -> None:
        """Called once per dial, also if the connection was never established."""
        ...


class Dialer(Protocol):
    """Opens connections; ``runtime.net.connector`` implements it."""

    def dial(self, connector: TransportConfiguration, link: Link) -> None:
        """Connect to ``connector`` and report to ``link``."""


class PeerOwner(Protocol):
    """The user of a peer. None of these is called after ``CorePeer.close``."""

    def peer_opened(self, peer: CorePeer) -> None:
        """The connection is established; the magic and a first ping were sent. Raises BrokerError: it is closed."""

    def peer_received(self, peer: CorePeer, channel_id: int, packet: packets.Packet) -> None:
        """A packet that is no response. Raises BrokerError: the connection is closed."""

    def peer_lost(self, peer: CorePeer, reason: str) -> None:
        """Called when the connection has ended, or was never established. Called once; the peer is closed."""


class State(Enum):
    """States of a peer."""

    DIALLING = auto()
    OPEN = auto()
    CLOSED = auto()


class Event(Enum):
    """Events of a peer."""

    CONNECT = auto()
    LOSE = auto()
    """The connection failed, ended, was silent for too long, or the other side broke the protocol."""
    CLOSE = auto()
    """The owner of the connection does not need it any more."""


class CorePeer(Machine[State, Event]):
    """One connection that this node has dialled; implements ``Link``."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.DIALLING

    def __init__(
        self,
        owner: PeerOwner,
        target: TransportConfiguration,
        clock: Clock,
        timers: Timers,
        options: PeerOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Args:
        owner: Called when something happens.
        target: Connector of the other node.
        clock: Measures the silence of the other side.
        options: Time limits.
        """
        super().__init__()
        self.target = target
        self.dismissed = False
        """Whether the other node, which stops, ended the connection with DISCONNECT."""
        self.refusal = ""
        """Reason for which one of the sides refused the connection, for ``RefusalLog``; empty: neither did."""
        self._options = options
        self._owner: PeerOwner | None = owner
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._connection: SealableConnection | None = None
        # the other side has to prove who it is before larger frames are accepted
        self._decoder = FrameDecoder(role="client", limit_bytes=FRAME_BYTES_BEFORE_LOGIN_MAX)
        self._received_ms = 0
        self._ping_due_ms = 0
        self._requests: dict[int, deque[tuple[tuple[type[packets.Packet], ...], Answer, Timer | None]]] = {}
        """Requests by channel: types of the response, the call for it and its time limit, in the order of the requests.
        """
        self._request_count = 0

    # --- for the owner ---------------------------------------------------------------------------

    def send(self, packet: packets.Packet, channel_id: int = CONTROL_CHANNEL) -> None:
        """Send a packet; without effect while there is no connection."""
        self.send_frame(encode(packet, channel_id, self.version))

    def send_frame(self, frame: bytes) -> None:
        """Send an encoded frame; without effect while there is no connection."""
        if self._connection is not None and self._state is State.OPEN:
            self._connection.send(frame)

    @property
    def version(self) -> int:
        """Channel version in which packets are encoded and decoded; a change is valid from the next received data."""
        return self._decoder.version

    @version.setter
    def version(self, version: int) -> None:
        self._decoder.version = version

    def group_confirms(self) -> None:
        """Give neighbouring ``NullResponse`` packets to the owner as one ``ConfirmBatch``, from the next received data
        on.
        """
        self._decoder.groups_confirms = True

    def outgoing_bytes(self) -> int:
        """Bytes that were sent and that the kernel has not taken yet; 0 without a connection."""
        return self._connection.outgoing_bytes() if self._connection is not None else 0

    def request(
        self, packet: packets.Packet, channel_id: int, expected: tuple[type[packets.Packet], ...], answer: Answer
    ) -> None:
        """Send a packet that the other side answers. Responses on one channel come in the order of the requests.

        Args:
            packet: The request.
            channel_id: Channel id of the request and its response.
            expected: Types of the response. An EXCEPTION instead closes the connection.
            answer: Called with the response, unless the connection ends before. It may raise BrokerError, which closes
                the connection.

        Raises:
            RemoteProtocolError: ``REQUESTS_MAX`` requests wait for a response.
        """
        if self._request_count >= REQUESTS_MAX:
            raise RemoteProtocolError(f"{self.target.to_url()} has not answered {self._request_count} requests")
        self._request_count += 1
        limit_ms = self._options.call_timeout_ms
        timer = None
        if limit_ms > 0:
            text = f"no response to {type(packet).__name__} for {limit_ms} ms"
            timer = self._timers.call_later(limit_ms, lambda: self.fire(Event.LOSE, text))
        self._requests.setdefault(channel_id, deque()).append((expected, answer, timer))
        self.send(packet, channel_id)

    def accept_frames(self, limit_bytes: int) -> None:
        """Accept larger frames from the next received data on; called when the other side has proved its identity."""
        self._decoder.frame_limit_bytes = limit_bytes

    @property
    def address(self) -> str:
        """``host:port`` to which the connection was made; empty without one."""
        return "" if self._connection is None else self._connection.peer

    @property
    def security(self) -> Security:
        """Protection of the bytes of the connection on their way."""
        return Security.NONE if self._connection is None else self._connection.security

    def seal(self, sealer: OutputSealer) -> None:
        """Seal everything that is sent from now on."""
        if self._connection is not None and self._state is State.OPEN:
            self._connection.seal(sealer)

    def open_with(self, opener: Opener) -> None:
        """Open sealed bytes of the other side with these keys (``FrameDecoder.open_with``)."""
        self._decoder.open_with(opener)

    def close(self) -> None:
        """Close the connection; the owner is not called any more."""
        self.fire(Event.CLOSE)

    # --- Link ------------------------------------------------------------------------------------

    def connected(self, connection: SealableConnection) -> None:
        """Called when the connection is established."""
        if self._state is State.CLOSED:
            connection.close()
        else:
            self.fire(Event.CONNECT, connection)

    def disconnected(self, reason: str) -> None:
        """Called when the connection has ended, or could not be established."""
        self.fire(Event.LOSE, reason)

    def receive_data(self, data: bytes) -> None:
        """Handle received bytes; an error of the protocol closes the connection."""
        if self._state is State.CLOSED:
            return
        self._received_ms = self._clock.monotonic_ms()
        try:
            self._receive_all(self._decoder.receive_data(data))
            while self._decoder.backlog:
                # after the packet that is the last one before sealed bytes
                self._receive_all(self._decoder.receive_data(b""))
        except BrokerError as error:
            self._refuse(error)

    def _refuse(self, error: BrokerError) -> None:
        self.refusal = str(error)
        self.fire(Event.LOSE, str(error))

    def _receive_all(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._receive(frame.channel_id, frame.packet)

    def _receive(self, channel_id: int, packet: packets.Packet) -> None:
        owner, waiting = self._owner, self._requests.get(channel_id)
        if waiting and isinstance(packet, ConfirmBatch):
            # the first id may be that of a request, whose response the packet is
            for correlation_id in packet.correlation_ids:
                self._receive(channel_id, packets.NullResponse(correlation_id))
            return
        if owner is None or isinstance(packet, packets.Ping):
            # the other side answers a ping with a ping
            return
        if isinstance(packet, _DISCONNECTS):
            self.dismissed = True
            self.fire(Event.LOSE, "the other node closed the connection")
        elif waiting and isinstance(packet, waiting[0][0]):
            self._request_count -= 1
            _, answer, timer = waiting.popleft()
            if timer is not None:
                timer.cancel()
            answer(packet)
        elif waiting and isinstance(packet, packets.ExceptionResponse):
            raise error_of(packet.error_code, packet.message)
        else:
            owner.peer_received(self, channel_id, packet)

    # --- actions ---------------------------------------------------------------------------------

    def _open(self, connection: SealableConnection) -> None:
        self._connection = connection
        self._received_ms = self._ping_due_ms = self._clock.monotonic_ms()
        connection.send(MAGIC)
        self._ping()
        if self._owner is not None:
            try:
                self._owner.peer_opened(self)
            except BrokerError as error:
                self._refuse(error)

    def _ping(self) -> None:
        self._timer = None
        options, now_ms = self._options, self._clock.monotonic_ms()
        period_ms, limit_ms = options.ping_period_ms, options.limit_ms
        if period_ms is not None and now_ms - self._ping_due_ms > period_ms:
            # this process was stopped or busy, so that it could not receive: this is no silence of the other side
            self._received_ms = now_ms
        silent_ms = now_ms - self._received_ms
        if limit_ms is not None and silent_ms > limit_ms:
            self.fire(Event.LOSE, f"nothing received for {silent_ms} ms")
            return
        self.send(packets.Ping(options.connection_ttl_ms))
        if period_ms is not None:
            delay_ms = period_ms if limit_ms is None else min(period_ms, limit_ms - silent_ms + 1)
            self._ping_due_ms = now_ms + delay_ms
            self._timer = self._timers.call_later(delay_ms, self._ping)

    def _lose(self, reason: str) -> None:
        owner = self._owner
        self._end()
        if owner is not None:
            owner.peer_lost(self, reason)

    def _end(self) -> None:
        self._owner = None
        for waiting in self._requests.values():
            for _, _, timer in waiting:
                if timer is not None:
                    timer.cancel()
        self._requests.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            self._connection.close()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.DIALLING, Event.CONNECT): To(State.OPEN, _open),
            (State.DIALLING, Event.LOSE): To(State.CLOSED, _lose),
            (State.DIALLING, Event.CLOSE): To(State.CLOSED, _end),
            (State.OPEN, Event.LOSE): To(State.CLOSED, _lose),
            (State.OPEN, Event.CLOSE): To(State.CLOSED, _end),
        },
        # an ended peer is not called by its owner, but the shell may still report what happened before
        otherwise={Event.CONNECT: ILLEGAL, Event.LOSE: IGNORED, Event.CLOSE: IGNORED},
    )


class RefusalLog:
    """Log lines about connections that one side refused, not one for every attempt: the reasons that were logged last,
    by the connector of the other node.
    """

    def __init__(self, clock: Clock) -> None:
        """Args:
        clock: Clock whose monotonic time decides when a reason is logged again.
        """
        self._clock = clock
        self._logged: dict[str, tuple[str, int]] = {}

    def note(self, peer: CorePeer) -> None:
        """A connection has ended; nothing is logged if it was not refused."""
        if peer.refusal:
            self.refuse(peer, peer.refusal)

    def refuse(self, peer: CorePeer, reason: str) -> None:
        """Called when a connection is refused."""
        url, now_ms = peer.target.to_url(), self._clock.monotonic_ms()
        logged, logged_ms = self._logged.get(url, ("", 0))
        if logged == reason and now_ms - logged_ms < REFUSAL_REPEATED_MS:
            return
        if url not in self._logged and len(self._logged) >= CLUSTER_NODES_MAX:
            self._logged.clear()
        self._logged[url] = (reason, now_ms)
        log.warning("connection to another node refused", extra={"peer": url, "error": reason})
