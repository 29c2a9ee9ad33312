"""Ports between the parts of a CORE connection, so that no part depends on the module of another.

``connection`` implements ``CoreLink`` and ``session`` implements ``ChannelHandler``; the channel, the cluster channel
and the handlers of packets use only these.
"""

from __future__ import annotations

from typing import Protocol

from understudy.errors import BrokerError
from understudy.ports import SealableConnection
from understudy.protocols.core.services import CoreServices
from understudy.session.connection_scope import ConnectionScope
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder


class ChannelHandler(Protocol):
    """The handler of a session channel, as its connection sees it."""

    @property
    def congested(self) -> bool:
        """Whether the client of the channel should not be read until the disk has caught up."""
        ...

    @property
    def awaits_decision(self) -> bool:
        """Whether requests of its client are held until the queue of a message group is decided."""
        ...

    def check_idle(self) -> None:
        """Give up a large message of which no piece has come for a long time."""


class CoreLink(Protocol):
    """Interface of a connection for its channels."""

    connection: SealableConnection
    services: CoreServices
    decoder: FrameDecoder
    """Decoder of the connection, which also knows the version of the client."""
    scope: ConnectionScope
    is_node: bool
    """Whether the peer has proved the cluster credentials."""
    uploading: dict[ChannelHandler, None]
    """Sessions that receive a large message, or whose messages wait for the disk, the next turn or a decision."""

    def send(self, packet: packets.Packet, channel_id: int) -> None:
        """Send a packet that is not counted as a command."""

    def cluster_authorized(self) -> None:
        """Called when the peer has proved the cluster credentials."""

    def silent_ms(self) -> int:
        """Time without data of the peer, see ``Liveness.silent_ms``."""
        ...

    def writable(self) -> bool:
        """Whether the socket takes more deliveries."""
        ...

    def hold(self, handler: ChannelHandler) -> None:
        """Add a channel to ``uploading``."""

    def session_ended(self, handler: ChannelHandler, channel_id: int) -> None:
        """Called when a session has ended, or moved to another connection."""

    def fail(self, error: BrokerError) -> None:
        """Close the connection because of an error of the client."""

    def kill(self, reason: str) -> None:
        """Close the connection because of how the client behaves."""

    def internal_error(self, bug: Exception) -> None:
        """Abort the connection because of an internal error."""
