"""The AMQP 0-9-1 protocol of one active node: what its connections share, and the factory of their handlers."""

from __future__ import annotations

from functools import partial

from understudy.cluster.membership.services import ClusterServices
from understudy.protocols.amqp091.connection import Amqp091Connection
from understudy.protocols.amqp091.link import Amqp091Services, ReplyReceiver
from understudy.protocols.handlers import AcceptorOptions, HandlerFactory
from understudy.protocols.services import ProtocolServices
from understudy.wire.detect import Protocol


class Amqp091Protocol:
    """AMQP 0-9-1 of one node, an entry of the table of protocols."""

    wire = Protocol.AMQP091

    def __init__(self, shared: ProtocolServices) -> None:
        self._shared = shared
        self._replies: dict[str, ReplyReceiver] = {}

    def handler(self, cluster: ClusterServices, options: AcceptorOptions) -> HandlerFactory:
        """Makes the handlers of the connections of an acceptor.

        Args:
            cluster: Not used: clients of this protocol learn of no other nodes.
            options: Parameters of the acceptor.
        """
        return partial(Amqp091Connection, Amqp091Services(self._shared, options, self._replies))

    def close(self) -> None:
        """Do nothing: no session waits for its client."""
