"""The exchange of messages of a node with the other members of its cluster, put together."""

from __future__ import annotations

from understudy.balancing.flows import FlowSettings, MessageFlows
from understudy.balancing.redistribution import Redistribution
from understudy.balancing.remote_bindings import RemoteBindings
from understudy.bridges.bridge import BridgeListener
from understudy.bridges.bridges import bridge_parts
from understudy.cluster.services import ClusterServices
from understudy.config.model import Configuration
from understudy.ports import Timers
from understudy.protocols.services import ProtocolServices


class MessageExchange:
    """Queues of other nodes, the flows to them, and redistribution."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        listener: BridgeListener,
    ) -> None:
        """No other node is known yet.

        Args:
            configuration: Of the node, with a cluster connection.
            cluster: With the topology and the connections to other brokers.
            services: Of the active node.
            timers: For attempts and delays.
            listener: Called when the bridge to another node is started and stopped.
        """
        office, connection = services.sessions.post_office, configuration.cluster_connections[0]
        self.bindings = RemoteBindings(office.directory, connection.message_load_balancing)
        settings = FlowSettings(
            connection,
            configuration.internal_naming_prefix,
            configuration.management_address,
            configuration.management_notification_address,
            configuration.name,
        )
        parts = bridge_parts(cluster, services, timers, listener)
        self.flows = MessageFlows(settings, cluster.topology, services, parts, self.bindings)
        self.redistribution = Redistribution(office, self.bindings, timers)

    def close(self) -> None:
        """The node is not active any more."""
        self.redistribution.close()
        self.flows.close()
