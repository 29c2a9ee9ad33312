"""The exchange of messages of an active node with other brokers, put together: core bridges, and the members of its
cluster.
"""

from __future__ import annotations

from typing import Protocol

from understudy.cluster.balancing.cluster_flows import ClusterFlows
from understudy.cluster.balancing.flows import FlowSettings, MessageFlows
from understudy.cluster.balancing.group_notices import GroupNotifications
from understudy.cluster.balancing.groups import GroupParts, Groups, LocalGroups, RemoteGroups, forget_bindings
from understudy.cluster.balancing.redistribution import Redistribution
from understudy.cluster.balancing.remote_bindings import RemoteBindings
from understudy.cluster.balancing.succession import Successions
from understudy.cluster.bridges.bridge import BridgeListener
from understudy.cluster.bridges.bridges import Bridges, bridge_parts
from understudy.cluster.membership.services import ClusterServices
from understudy.config.cluster_addresses import cluster_of
from understudy.config.grouping import GroupingType
from understudy.config.model import ClusterConnectionConfiguration, Configuration
from understudy.ports import Timers
from understudy.protocols.services import ProtocolServices
from understudy.terms import MessageLoadBalancing


class ExchangeListener(BridgeListener, GroupNotifications, Protocol):
    """Publishes the events of bridges and of the grouping handler."""


class MemberExchange:
    """The exchange with the other members of the cluster: their queues, the flows to them, and redistribution."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        listener: ExchangeListener,
    ) -> None:
        """No other member is known yet; see ``MessageExchange``. There is a cluster connection."""
        office, connections = services.sessions.post_office, configuration.cluster_connections

        def mode_of(address: str) -> MessageLoadBalancing:
            return (cluster_of(connections, address) or connections[0]).message_load_balancing

        self.bindings = RemoteBindings(office.directory, mode_of)
        flows = []
        for each in connections:
            network = cluster.of(each.name)
            parts = bridge_parts(network, services, timers, listener)
            settings = _flow_settings(configuration, each, office.directory.internal_prefix)
            flows.append(MessageFlows(settings, network.topology, services, parts, self.bindings))
        handler = configuration.grouping_handler
        grouping = None if handler is None else (cluster_of(connections, handler.address) or connections[0]).name
        self.flows = ClusterFlows(flows, services.entropy, grouping=grouping)
        self.redistribution = Redistribution(office, self.bindings, timers)
        self.successions = [Successions(each, office, services.node_id, timers) for each in flows]
        for one, succession in zip(flows, self.successions, strict=True):
            one.observer = succession
        self.groups = self._grouping_handler(configuration, services, timers, listener)
        if self.groups is not None:
            self.bindings.decisions = self.bindings.groups = self.groups
            self.bindings.listeners.append(self.groups)
        cluster.scaled_down.moved = self._node_scaled_down

    def _node_scaled_down(self, node_id: str, target_id: str) -> None:
        for each in self.successions:
            each.node_scaled_down(node_id, target_id)

    def _grouping_handler(
        self,
        configuration: Configuration,
        services: ProtocolServices,
        timers: Timers,
        notifications: GroupNotifications,
    ) -> Groups | None:
        handler, office = configuration.grouping_handler, services.sessions.post_office
        if handler is None:
            return None
        clusters = configuration.cluster_connections
        max_hops = (cluster_of(clusters, handler.address) or clusters[0]).max_hops
        parts = GroupParts(
            office.directory,
            office.store,
            services.clock,
            timers,
            notifications,
            self.bindings.by_name,
            services.node_id,
            max_hops,
        )
        kind = LocalGroups if handler.type is GroupingType.LOCAL else RemoteGroups
        return kind(handler, parts)

    def close(self) -> None:
        """Called when the node is not active any more."""
        if self.groups is not None:
            self.groups.close()
        self.redistribution.close()
        for each in self.successions:
            each.close()
        self.flows.close()
        self.bindings.close()


def _flow_settings(
    configuration: Configuration, connection: ClusterConnectionConfiguration, internal_prefix: str
) -> FlowSettings:
    direct = None
    sharing = [each for each in configuration.cluster_connections if each.connector_ref == connection.connector_ref]
    # a lone node dials no other members (``MembershipSettings.direct_connections_only``)
    if connection.allow_direct_connections_only and len(sharing) > 1:
        members = map(configuration.connector, connection.static_connectors)
        direct = frozenset((each.host.lower(), each.port) for each in members)
    if not connection.static_connectors and connection.discovery_group is None:
        # as in Artemis: other members connect to such a node, for example the last one of a chain, and it sends to none
        direct = frozenset()
    return FlowSettings(
        connection,
        internal_prefix,
        configuration.management_address,
        configuration.management_notification_address,
        configuration.name,
        direct,
    )


class MessageExchange:
    """The exchange of messages with all other brokers."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        listener: ExchangeListener,
    ) -> None:
        """Nothing is exchanged yet.

        Args:
            cluster: Cluster with the topology and the connections to other brokers.
            listener: Publishes notifications.
        """
        self.bridges = Bridges(configuration, cluster, services, timers, listener)
        self.members: MemberExchange | None = None
        """Exchange with the other members; None without a cluster connection."""
        handler = configuration.grouping_handler
        if handler is None or handler.type is not GroupingType.LOCAL:
            forget_bindings(services.sessions.post_office.store)
        if configuration.cluster_connections:
            self.members = MemberExchange(configuration, cluster, services, timers, listener)

    def close(self) -> None:
        """Called when the node is not active any more."""
        self.bridges.close()
        if self.members is not None:
            self.members.close()
