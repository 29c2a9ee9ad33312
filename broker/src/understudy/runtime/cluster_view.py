"""The part of a running node in its cluster, read for management."""

from __future__ import annotations

from understudy.balancing.exchange import MemberExchange
from understudy.bridges.bridge import Bridge
from understudy.broker import Broker
from understudy.cluster.topology import Topology
from understudy.cluster.unreached import UnreachedMember
from understudy.discovery.broadcaster import Broadcaster
from understudy.discovery.entries import Outcome
from understudy.discovery.group import Group
from understudy.management.cluster_facts import (
    BridgeFacts,
    BroadcastFacts,
    ClusterConnectionFacts,
    ClusterFacts,
    DiscoveryFacts,
    EntryFacts,
    GroupingFacts,
    LinkFacts,
    MemberFacts,
    RedistributionFacts,
    RemoteQueueFacts,
    UnreachedFacts,
)
from understudy.runtime.colocation import NodeColocation
from understudy.runtime.parts import NodeParts
from understudy.wire.core.transport import TransportConfiguration


def cluster_facts(parts: NodeParts, broker: Broker | None, colocation: NodeColocation | None) -> ClusterFacts:
    """The cluster as a node sees it at present.

    Args:
        colocation: Of a node with a colocated policy.
    """
    membership, own_id = parts.membership, parts.lock.node_id
    now_ms = parts.environment.clock.monotonic_ms()
    links = [link for each in parts.networks for link in each.membership.links.values()]
    unreached = [one for each in parts.networks for one in each.membership.unreached.by_node.values()]
    return ClusterFacts(
        None if membership is None else membership.state.name,
        _members(parts.topology, own_id),
        [LinkFacts(_url(each.target) or "", each.node_id, each.state.name, each.failures) for each in links],
        [_group(each, now_ms) for each in parts.discovery.groups.values()],
        [_broadcaster(each) for each in parts.discovery.broadcasters],
        [] if broker is None else [_bridge(each, broker) for each in _bridges(broker)],
        *_exchanged(broker),
        _grouping(broker),
        None if colocation is None else colocation.facts(),
        [_unreached(each) for each in unreached],
        [] if broker is None or broker.exchange.members is None else _connections(parts, broker.exchange.members),
        sorted(node_id for node_id in parts.topology.ungrouped.node_ids if parts.topology.member(node_id) is not None),
    )


def _members(topology: Topology, own_id: str) -> list[MemberFacts]:
    return [
        MemberFacts(each.node_id, each.node_id == own_id, _url(each.primary), _url(each.backup), each.backup_group)
        for each in topology.members()
    ]


def _unreached(member: UnreachedMember) -> UnreachedFacts:
    return UnreachedFacts(member.node_id, _url(member.connector) or "", member.failures, member.error)


def _connections(parts: NodeParts, members: MemberExchange) -> list[ClusterConnectionFacts]:
    found = []
    networks = {name: each for each in parts.networks for name in each.connections}
    for name, flows in members.flows.by_cluster.items():
        cluster, each = flows.settings.cluster, list(flows.by_node.values())
        counts = [flow.bridge.counts for flow in each]
        network = networks[name]
        found.append(
            ClusterConnectionFacts(
                name,
                cluster.address,
                cluster.message_load_balancing.value,
                cluster.max_hops,
                [flow.node_id for flow in each],
                sum(len(flow.bindings) for flow in each),
                sum(flow.queue.message_count for flow in each),
                sum(count.forwarded for count in counts),
                sum(count.acknowledged for count in counts),
                _url(network.connector),
                _members(network.topology, parts.lock.node_id),
            )
        )
    return found


def _grouping(broker: Broker | None) -> GroupingFacts | None:
    members = None if broker is None else broker.exchange.members
    if members is None or members.groups is None:
        return None
    groups = members.groups
    settings, counts = groups.settings, groups.counts
    return GroupingFacts(
        settings.name,
        settings.type.value,
        groups.bound,
        groups.waiting,
        counts.proposals,
        counts.freed,
        counts.ungrouped,
    )


def _bridges(broker: Broker) -> list[Bridge]:
    exchange = broker.exchange
    flows = [] if exchange.members is None else exchange.members.flows.all()
    return [*exchange.bridges.by_name.values(), *(each.bridge for each in flows)]


def _exchanged(broker: Broker | None) -> tuple[list[RemoteQueueFacts], list[RedistributionFacts]]:
    if broker is None or broker.exchange.members is None:
        return [], []
    members = broker.exchange.members
    queues = [
        RemoteQueueFacts(
            each.queue_name,
            each.address,
            each.node_id,
            each.distance,
            each.connected,
            each.consumers.count,
            None if each.filter is None else each.filter.text,
            each.queue.name,
        )
        for each in members.bindings.by_name.values()
    ]
    moving = [
        RedistributionFacts(each.queue.name, each.state.name, each.moved)
        for each in members.redistribution.by_queue.values()
    ]
    return queues, moving


def _url(connector: TransportConfiguration | None) -> str | None:
    if connector is None:
        return None
    host = f"[{connector.host}]" if ":" in connector.host else connector.host
    return f"tcp://{host}:{connector.port}"


def _urls(connectors: tuple[TransportConfiguration, ...]) -> list[str]:
    return [_url(each) or "" for each in connectors]


def _group(group: Group, now_ms: int) -> DiscoveryFacts:
    entries = [
        EntryFacts(each.node_id, _urls(each.connectors), each.source, max(0, now_ms - each.heard_ms))
        for each in group.entries.all()
    ]
    outcomes = {each.value: group.entries.outcomes[each] for each in Outcome}
    settings = group.settings
    return DiscoveryFacts(
        settings.name,
        str(settings.carrier),
        group.state.name,
        group.error,
        entries,
        outcomes,
        group.entries.duplicates,
    )


def _bridge(bridge: Bridge, broker: Broker) -> BridgeFacts:
    configuration, counts = bridge.configuration, bridge.counts
    queue = broker.services.sessions.post_office.directory.queues.get(configuration.queue_name)
    return BridgeFacts(
        bridge.name,
        configuration.queue_name,
        configuration.forwarding_address,
        bridge.state.name,
        bridge.connected,
        # parameters may hold passwords
        bridge.target.partition("?")[0] or None,
        0 if queue is None else queue.message_count,
        bridge.unconfirmed,
        counts.forwarded,
        counts.acknowledged,
        counts.lost_connections,
        counts.refused,
        bridge.last_error or None,
    )


def _broadcaster(each: Broadcaster) -> BroadcastFacts:
    settings = each.settings
    return BroadcastFacts(
        settings.name,
        str(settings.carrier),
        each.state.name,
        _urls(tuple(settings.connectors)),
        settings.period_ms,
        each.sent,
        each.failed,
        each.error,
    )
