"""The networks of a node: for each own connector the topology and the links to the members, from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from understudy.cluster.membership.client_endpoints import NodeEndpoints, own_endpoints
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.member_link import LinkSettings
from understudy.cluster.membership.membership import Membership, MembershipSettings
from understudy.cluster.membership.network import ClusterNetwork
from understudy.cluster.membership.node_names import NodeNames
from understudy.cluster.membership.topology import Topology
from understudy.cluster.membership.ungrouped_pairs import OwnPair, UngroupedPairs
from understudy.config.cluster_addresses import by_connector
from understudy.config.model import ClusterConnectionConfiguration, Configuration
from understudy.ports import Clock
from understudy.runtime.base.node_configuration import NodeConfiguration
from understudy.runtime.base.turn import Turn
from understudy.runtime.members.member_rules import peer_options
from understudy.runtime.net.connector import LoopDialer


def make_networks(
    configuration: NodeConfiguration,
    credentials: ClusterCredentials | None,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    turn: Turn,
) -> tuple[ClusterNetwork, ...]:
    """The networks of a node: one for each ``connector-ref`` of its cluster connections, in their order.

    Args:
        credentials: Credentials of the cluster; there are some if there is a cluster connection.
        loop: Opens connections.
    """
    networks: list[ClusterNetwork] = []
    for connections in by_connector(configuration.current.cluster_connections):
        assert credentials is not None, "they are made for every cluster connection"
        own = configuration.connectors.transport(connections[0].connector_ref)
        statics = dict.fromkeys(name for each in connections for name in each.static_connectors)
        accepting = [*(() if networks else (None,)), *(each.name for each in connections)]
        endpoints = NodeEndpoints(own_endpoints(configuration.current.acceptors, accepting, own.host))
        pair, names_of_nodes = UngroupedPairs(_own_pair(configuration.current)), NodeNames(configuration.current.name)
        topology = Topology(pair, names_of_nodes, endpoints)
        dialer = LoopDialer(loop, turn, partial(configuration.tls_for, own_name=own.name))
        membership = Membership(
            topology,
            own,
            replace(
                membership_settings(configuration.current, connections),
                statics=tuple(configuration.connectors.transport(name) for name in statics),
            ),
            credentials,
            dialer,
            clock,
            turn,
        )
        names = tuple(each.name for each in connections)
        networks.append(ClusterNetwork(names, own, topology, membership, dialer))
    return tuple(networks)


def _own_pair(configuration: Configuration) -> OwnPair:
    replication = configuration.ha_policy.replication
    return OwnPair(replication is not None, None if replication is None else replication.group_name)


def membership_settings(
    configuration: Configuration, connections: Sequence[ClusterConnectionConfiguration]
) -> MembershipSettings:
    """Settings of the membership that cluster connections with one connector share: those of the first one.

    Args:
        connections: At least one.
    """
    connection, replication = connections[0], configuration.ha_policy.replication
    policy = configuration.ha_policy
    return MembershipSettings(
        shares_connector=policy.scale_down is not None and policy.scale_down.host is not None,
        link=LinkSettings(
            connection.retry_interval_ms,
            connection.retry_interval_multiplier,
            connection.max_retry_interval_ms,
            peer_options(connection),
        ),
        initial_connect_attempts=connection.initial_connect_attempts,
        reconnect_attempts=connection.reconnect_attempts,
        topology_scanner_attempts=connection.topology_scanner_attempts,
        notification_interval_ms=connection.notification_interval_ms,
        notification_attempts=connection.notification_attempts,
        direct_connections_only=all(each.allow_direct_connections_only for each in connections),
        group=None if replication is None else replication.group_name,
    )
