"""The exchange of messages of an active node with other brokers, put together: core bridges, and the members of its
cluster.
"""

from __future__ import annotations

from typing import Protocol

from understudy.balancing.flows import FlowSettings, MessageFlows
from understudy.balancing.group_notices import GroupNotifications
from understudy.balancing.groups import GroupParts, Groups, LocalGroups, RemoteGroups, forget_bindings
from understudy.balancing.redistribution import Redistribution
from understudy.balancing.remote_bindings import RemoteBindings
from understudy.balancing.succession import Successions
from understudy.bridges.bridge import BridgeListener
from understudy.bridges.bridges import Bridges, bridge_parts
from understudy.cluster.services import ClusterServices
from understudy.config.grouping import GroupingType
from understudy.config.model import Configuration
from understudy.ports import Timers
from understudy.protocols.services import ProtocolServices


class ExchangeListener(BridgeListener, GroupNotifications, Protocol):
    """Publishes the events of bridges and of the grouping handler."""


class MemberExchange:
    """With the other members of the cluster: their queues, the flows to them, and redistribution."""

    def __init__(
        self,
        configuration: Configuration,
        cluster: ClusterServices,
        services: ProtocolServices,
        timers: Timers,
        listener: ExchangeListener,
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
        self.groups = self._grouping_handler(configuration, services, timers, listener)
        if self.groups is not None:
            self.bindings.decisions = self.bindings.groups = self.groups
            self.bindings.listeners.append(self.groups)
        cluster.scaled_down.moved = self.successions.node_scaled_down

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
        parts = GroupParts(
            office.directory,
            office.store,
            services.clock,
            timers,
            notifications,
            self.bindings.by_name,
            services.node_id,
            configuration.cluster_connections[0].max_hops,
        )
        kind = LocalGroups if handler.type is GroupingType.LOCAL else RemoteGroups
        return kind(handler, parts)

    def close(self) -> None:
        """The node is not active any more."""
        if self.groups is not None:
            self.groups.close()
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
        listener: ExchangeListener,
    ) -> None:
        """Nothing is exchanged yet.

        Args:
            configuration: Of the node.
            cluster: With the topology and the connections to other brokers.
            services: Of the active node.
            timers: For attempts and delays.
            listener: Publishes notifications.
        """
        self.bridges = Bridges(configuration, cluster, services, timers, listener)
        self.members: MemberExchange | None = None
        """None without a cluster connection."""
        handler = configuration.grouping_handler
        if handler is None or handler.type is not GroupingType.LOCAL:
            forget_bindings(services.sessions.post_office.store)
        if configuration.cluster_connections:
            self.members = MemberExchange(configuration, cluster, services, timers, listener)

    def close(self) -> None:
        """The node is not active any more."""
        self.bridges.close()
        if self.members is not None:
            self.members.close()
