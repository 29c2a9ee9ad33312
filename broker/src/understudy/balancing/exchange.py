"""The exchange of messages of an active node with other brokers, put together: core bridges, and the members of its
cluster.
"""

from __future__ import annotations

from understudy.balancing.flows import FlowSettings, MessageFlows
from understudy.balancing.redistribution import Redistribution
from understudy.balancing.remote_bindings import RemoteBindings
from understudy.balancing.succession import Successions
from understudy.bridges.bridge import BridgeListener
from understudy.bridges.bridges import Bridges, bridge_parts
from understudy.cluster.services import ClusterServices
from understudy.config.model import Configuration
from understudy.ports import Timers
from understudy.protocols.services import ProtocolServices


class MemberExchange:
    """With the other members of the cluster: their queues, the flows to them, and redistribution."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        listener: BridgeListener,
    ) -> None:
        """No other member is known yet; see ``MessageExchange``. There is a cluster connection."""
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
        self.successions = Successions(self.flows, office, services.node_id, timers)
        self.flows.observer = self.successions
        cluster.scaled_down.moved = self.successions.node_scaled_down

    def close(self) -> None:
        """The node is not active any more."""
        self.redistribution.close()
        self.successions.close()
        self.flows.close()


class MessageExchange:
    """With all other brokers."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        listener: BridgeListener,
    ) -> None:
        """Nothing is exchanged yet.

        Args:
            configuration: Of the node.
            cluster: With the topology and the connections to other brokers.
            services: Of the active node.
            timers: For attempts and delays.
            listener: Called when a bridge is started and stopped.
        """
        self.bridges = Bridges(configuration.bridges, cluster, services, timers, listener)
        self.members: MemberExchange | None = None
        """None without a cluster connection."""
        if configuration.cluster_connections:
            self.members = MemberExchange(configuration, cluster, services, timers, listener)

    def close(self) -> None:
        """The node is not active any more."""
        self.bridges.close()
        if self.members is not None:
            self.members.close()
