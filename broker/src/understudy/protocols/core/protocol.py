"""The CORE protocol of one active node: what its connections share, and the factory of their handlers."""

from __future__ import annotations

from functools import partial

from understudy.cluster.membership.services import ClusterServices
from understudy.ports import Clock, Timers
from understudy.protocols.core.connection import CoreConnection
from understudy.protocols.core.reattachment import Reattachments
from understudy.protocols.core.resend import ResendBudget
from understudy.protocols.core.services import CoreServices
from understudy.protocols.core.session import CoreSession
from understudy.protocols.handlers import AcceptorOptions, HandlerFactory
from understudy.protocols.services import ProtocolServices
from understudy.wire.detect import Protocol


class CoreProtocol:
    """CORE protocol of one node, an entry of the table of protocols."""

    wire = Protocol.CORE

    def __init__(
        self,
        shared: ProtocolServices,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._shared = shared
        self._reattachments: Reattachments[CoreSession] = Reattachments(clock, timers)
        self._resend_budget = ResendBudget()

    def handler(self, cluster: ClusterServices, options: AcceptorOptions) -> HandlerFactory:
        """Makes the handlers of the connections of an acceptor.

        Args:
            cluster: Cluster with the topology of the cluster connection of the acceptor.
            options: Parameters of the acceptor.
        """
        services = CoreServices(self._shared, cluster, self._reattachments, self._resend_budget, options.sessions_max)
        return partial(CoreConnection, services)

    def close(self) -> None:
        """End the sessions that wait to be reattached, when the node stops."""
        self._reattachments.close()
