"""Ports between the parts of an AMQP 0-9-1 connection, and the services that all connections of a node share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ports import SealableConnection
from understudy.protocols.amqp091.known_hosts import KnownHosts
from understudy.protocols.amqp091.messages import Publish
from understudy.protocols.amqp091.sessions import ClientSessions
from understudy.protocols.handlers import AcceptorOptions
from understudy.protocols.services import ProtocolServices
from understudy.routing.memory import AddressMemory
from understudy.session.connection_scope import ConnectionScope
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.layout import Method


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


class ConnectionLink(Protocol):
    """Interface of a connection for its channels."""

    services: Amqp091Services
    scope: ConnectionScope
    peer: Peer

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

    def hold(self, channel: object) -> None:
        """Carry out nothing more of a channel, because its last request waits."""

    def go_on(self, channel: object) -> None:
        """The last request of a channel does not wait, or not any more."""

    def channel_ended(self, number: int) -> None:
        """The number of a channel is free again."""


class HandshakeOwner(Protocol):
    """A connection, as its handshake uses it."""

    connection: SealableConnection
    services: Amqp091Services
    scope: ConnectionScope
    peer: Peer

    def send(self, method: Method, channel: int) -> None:
        """Send a method."""

    def proceed(self) -> None:
        """A step of the handshake is done."""

    def fail(self, error: BrokerError) -> None:
        """Close the connection because of an error."""

    def kill(self, reason: str) -> None:
        """Close the connection with 320."""
