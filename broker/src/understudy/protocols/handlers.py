"""The port between acceptors and protocols: the handler of a connection, and the table of protocols.

A protocol is added by one entry of ``Broker.protocols``: the protocol that ``wire.detect`` finds in the first bytes,
whose name is also that in the ``protocols`` parameter of acceptor URLs, and the factory of its handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Protocol

from understudy.cluster.membership.services import ClusterServices
from understudy.dataclass import dataclass
from understudy.limits import SESSIONS_PER_CONNECTION_MAX
from understudy.ports import SealableConnection
from understudy.session.prefixes import AddressPrefixes
from understudy.terms import Amqp091Options
from understudy.wire.detect import Protocol as Wire


@dataclass(frozen=True, slots=True)
class AcceptorOptions:
    """Parameters of an acceptor that protocols use."""

    sessions_max: int = SESSIONS_PER_CONNECTION_MAX
    """Sessions that one connection may have."""
    amqp091: Amqp091Options = field(default_factory=Amqp091Options)
    """Parameters for clients of AMQP 0-9-1."""


class ConnectionHandler(Protocol):
    """Handles the bytes of a connection once its protocol is known."""

    @property
    def held_back(self) -> bool:
        """Whether deliveries wait until the socket has taken more data; reset by ``resume_deliveries``."""
        ...

    @property
    def held_up(self) -> bool:
        """Whether part of the input may wait for the disk or for a login check; ``congested`` tells."""
        ...

    @property
    def proved(self) -> bool:
        """Whether the client has logged in."""
        ...

    @property
    def outlives_sessions(self) -> bool:
        """Whether the connection stays open when the node stops serving clients, until its owner closes it."""
        ...

    def receive_data(self, data: bytes | memoryview) -> bool:
        """Process received data, at most a bounded amount per call.

        Args:
            data: A view is valid during the call only.

        Returns:
            Whether input is left. Then it is called again in a later turn, without data if none was received.

        Raises:
            BrokerError: the connection must be closed.
        """
        ...

    def congested(self) -> bool:
        """Whether nothing more should be read until earlier input was processed."""
        ...

    def resume_deliveries(self) -> None:
        """Called when the socket takes data again."""

    def check(self) -> None:
        """Check timeouts. Raises BrokerError: the connection must be aborted."""

    def disconnect(self) -> None:
        """Inform the client that the node stops, and close the connection."""

    def prevent_reattachment(self) -> None:
        """An internal error occurred: no state of the connection survives its loss."""

    def connection_lost(self, reason: str) -> None:
        """Called when the socket was closed."""


HandlerFactory = Callable[[SealableConnection, AddressPrefixes], ConnectionHandler]
"""Makes the handler of a new connection, at an acceptor with these prefixes."""


class NodeProtocol(Protocol):
    """A protocol of one active node: an entry of the table of protocols."""

    wire: Wire
    """The protocol as it is detected."""

    def handler(self, cluster: ClusterServices, options: AcceptorOptions) -> HandlerFactory:
        """Make the handlers of the connections of an acceptor."""
        ...

    def close(self) -> None:
        """Called when the node ends."""


Handlers = Mapping[Wire, HandlerFactory]
"""Protocols of a node, or of one acceptor."""


def served(handlers: Handlers, names: Collection[str]) -> Handlers:
    """Protocols that one acceptor serves.

    Args:
        handlers: All protocols of the node.
        names: ``AcceptorConfiguration.protocols``, the names of members of ``wire.detect.Protocol``.
    """
    return {wire: factory for wire, factory in handlers.items() if wire.name in names}
