"""The CORE protocol of one active node: what its connections share, and the factory of their handlers."""

from __future__ import annotations

from typing import Final

from understudy.cluster.services import ClusterServices
from understudy.ports import Clock, Connection, Timers
from understudy.protocols.core.connection import CoreConnection
from understudy.protocols.core.reattachment import Reattachments
from understudy.protocols.core.services import CoreServices
from understudy.protocols.core.session import CoreSession
from understudy.protocols.services import ProtocolServices
from understudy.session.prefixes import AddressPrefixes
from understudy.wire.detect import Protocol


class CoreProtocol:
    """CORE on one node; an entry of the table of protocols."""

    wire: Final = Protocol.CORE

    def __init__(
        self,
        shared: ProtocolServices,
        cluster: ClusterServices,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._reattachments: Reattachments[CoreSession] = Reattachments(clock, timers)
        self._services = CoreServices(shared, cluster, self._reattachments)

    def handler(self, connection: Connection, prefixes: AddressPrefixes) -> CoreConnection:
        """The handler of a new connection (``protocols.handlers.HandlerFactory``)."""
        return CoreConnection(self._services, connection, prefixes)

    def close(self) -> None:
        """End the sessions that wait to be reattached, when the node stops."""
        self._reattachments.close()
