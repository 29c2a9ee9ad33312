"""Ports between the parts of an AMQP 0-9-1 connection, and the services that all connections of a node share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, Protocol

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.limits import AMQP091_HELD_INPUT_BYTES_PAUSE, AMQP091_OPENS_PER_SECOND_MAX
from understudy.ports import Clock, SealableConnection, Timers
from understudy.protocols.amqp091.known_hosts import KnownHosts
from understudy.protocols.amqp091.messages import Publish
from understudy.protocols.amqp091.moves.mover import SessionMover
from understudy.protocols.amqp091.runs.ways import Ways
from understudy.protocols.amqp091.sessions import ClientSessions
from understudy.protocols.handlers import AcceptorOptions
from understudy.protocols.services import ProtocolServices
from understudy.routing.memory import AddressMemory
from understudy.session.connection_scope import ConnectionScope
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.frames import FrameDecoder
from understudy.wire.amqp091.layout import Method

_SECOND_MS: Final = 1_000


class ReplyReceiver(Protocol):
    """A channel that consumes replies sent to it directly."""

    def deliver_reply(self, publish: Publish) -> bool:
        """Send a reply to the client. Returns whether its channel is open."""
        ...


@dataclass(slots=True)
class Amqp091Services:
    """Services given to each connection; created by ``protocol``."""

    shared: ProtocolServices
    options: AcceptorOptions
    replies: dict[str, ReplyReceiver]
    """Channels that consume replies, by the secret part of the reply address."""
    sessions: ClientSessions
    known_hosts: KnownHosts | None = None
    """Other nodes of which clients learn; None: of none."""
    mover: SessionMover | None = None
    """Gets sessions from other nodes; None: a session is found at this node only."""


@dataclass(slots=True)
class Peer:
    """Properties of a client, and the negotiated limits."""

    host: str = ""
    """Prefix of names of its virtual host."""
    user: str = ""
    capabilities: Mapping[str, object] = field(default_factory=dict)
    frame_max: int = 0
    """Largest frame in bytes."""
    channel_max: int = 0
    content_bytes: int = 0
    """Bytes of messages of all channels that have not come whole."""


class HeldInput:
    """Order of the input of a connection: frames that come after a request that waits are not carried out.

    Frames of other channels are carried out until one comes that has to wait too. Then the frames stay in the
    decoder, undecoded, in the order in which they have come; from a number of bytes on the socket is not read.
    """

    def __init__(self, decoder: FrameDecoder, timers: Timers, clock: Clock, receive: Callable[[], None]) -> None:
        """Args:
        decoder: The input.
        timers: Call ``go_on`` for a connection that opens many channels.
        clock: Measures the second of the limit of such opens.
        receive: Carries out the input later on.
        """
        self._decoder = decoder
        self._timers = timers
        self._clock = clock
        self._receive = receive
        self.waiting: set[object] = set()
        """Channels whose last request waits to be carried out; ``self``: all of them wait."""
        self.stopped = False
        """Whether the next frame waits for such a request."""
        self._open_count = 0
        self._opens_since_ms = 0
        """Monotonic time since which channels that are opened are counted."""

    @property
    def is_full(self) -> bool:
        """Whether so much has come after a request that waits that the socket is not to be read."""
        return self.stopped and self._decoder.held_bytes >= AMQP091_HELD_INPUT_BYTES_PAUSE

    def hold(self, channel: object) -> None:
        """Carry out nothing more of a channel, because its last request waits."""
        self.waiting.add(channel)

    def go_on(self, channel: object) -> None:
        """The last request of a channel is carried out."""
        self.waiting.discard(channel)
        if self.stopped:
            self.stopped = False
            self._receive()

    def stops(self, channels: Mapping[int, object]) -> bool:
        """Whether the next frame waits for an earlier request, until ``go_on``. One of channel 0 waits for the requests
        of all channels: connection.close ends none that was sent before it.

        Args:
            channels: Channels by their numbers.
        """
        number = self._decoder.next_channel
        self.stopped = not number or channels.get(number) in self.waiting or self in self.waiting
        return self.stopped

    def count_open(self) -> None:
        """Count a channel that is opened. After ``AMQP091_OPENS_PER_SECOND_MAX`` of them the rest of the input waits
        for the end of the second.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._opens_since_ms >= _SECOND_MS:
            self._opens_since_ms, self._open_count = now_ms, 0
        self._open_count += 1
        if self._open_count >= AMQP091_OPENS_PER_SECOND_MAX and self not in self.waiting:
            self.hold(self)
            self._timers.call_later(self._opens_since_ms + _SECOND_MS - now_ms, lambda: self.go_on(self))


class ConnectionLink(Protocol):
    """Interface of a connection for its channels."""

    services: Amqp091Services
    scope: ConnectionScope
    peer: Peer
    held: HeldInput
    ways: Ways
    """Ways that were found for publishes of the connection."""

    def send_bytes(self, data: bytes) -> None:
        """Send whole frames."""

    def send(self, method: Method, channel: int) -> None:
        """Send a method without a content."""

    def writable(self) -> bool:
        """Whether the socket takes more deliveries."""
        ...

    def refuse(self, error: Amqp091Error, method: Method | None) -> None:
        """Send connection.close because of a method, or of a frame that has none."""

    def abort(self) -> None:
        """Close the socket at once."""

    def kill(self, reason: str) -> None:
        """Close the connection because of how the client behaves."""

    def internal_error(self, bug: Exception) -> None:
        """Abort the connection because of an internal error."""

    def block(self, address: AddressMemory) -> None:
        """Read nothing more, because an address to which the client publishes is full."""

    def unblock(self) -> None:
        """The address takes messages again."""

    def channel_ended(self, number: int) -> None:
        """The number of a channel is free again."""


class HandshakeOwner(Protocol):
    """A connection, as its handshake uses it."""

    connection: SealableConnection
    services: Amqp091Services
    scope: ConnectionScope
    peer: Peer
    proved: bool
    """Whether the client has logged in."""

    def send(self, method: Method, channel: int) -> None:
        """Send a method."""

    def proceed(self) -> None:
        """A step of the handshake is done."""

    def seek(self) -> None:
        """The session of the client is sought at other nodes."""

    def refuse(self, error: Amqp091Error, method: Method | None) -> None:
        """Send connection.close because of a method."""

    def fail(self, error: BrokerError) -> None:
        """Close the connection because of an error."""

    def kill(self, reason: str) -> None:
        """Close the connection with 320."""
