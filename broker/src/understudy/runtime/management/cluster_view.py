"""The part of a running node in its cluster, read for management."""

from __future__ import annotations

from understudy.broker import Broker
from understudy.cluster.balancing.exchange import MemberExchange
from understudy.cluster.discovery.broadcaster import Broadcaster
from understudy.cluster.discovery.entries import Outcome
from understudy.cluster.discovery.group import Group
from understudy.cluster.membership.topology import Topology
from understudy.cluster.membership.unreached import UnreachedMember
from understudy.management.model.cluster import (
    Broadcast,
    Cluster,
    ClusterConnection,
    Colocated,
    Discovery,
    Entry,
    Grouping,
    Hosted,
    Link,
    Member,
    Redistribution,
    RemoteQueue,
    Unreached,
)
from understudy.management.snapshot.links import bridge_rows
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.members.colocation import NodeColocation
from understudy.wire.core.transport import TransportConfiguration


def read_cluster(parts: NodeParts, broker: Broker | None, colocation: NodeColocation | None) -> Cluster:
    """The cluster as a node sees it at present.

    Args:
        colocation: Colocation of a node with a colocated policy.
    """
    membership, own_id = parts.membership, parts.lock.node_id
    now_ms = parts.environment.clock.monotonic_ms()
    links = [link for each in parts.networks for link in each.membership.links.values()]
    unreached = [one for each in parts.networks for one in each.membership.unreached.by_node.values()]
    return Cluster(
        None if membership is None else membership.state.name,
        _members(parts.topology, own_id),
        [Link(_url(each.target) or "", each.node_id, each.state.name, each.failures) for each in links],
        [_group(each, now_ms) for each in parts.discovery.groups.values()],
        [_broadcaster(each) for each in parts.discovery.broadcasters],
        [] if broker is None else bridge_rows(broker.invocations.node).items(),
        *_exchanged(broker),
        _grouping(broker),
        None if colocation is None else _colocated(colocation),
        [_unreached(each) for each in unreached],
        [] if broker is None or broker.exchange.members is None else _connections(parts, broker.exchange.members),
        sorted(node_id for node_id in parts.topology.ungrouped.node_ids if parts.topology.member(node_id) is not None),
    )


def _members(topology: Topology, own_id: str) -> list[Member]:
    return [
        Member(each.node_id, each.node_id == own_id, _url(each.primary), _url(each.backup), each.backup_group)
        for each in topology.members()
    ]


def _unreached(member: UnreachedMember) -> Unreached:
    return Unreached(member.node_id, _url(member.connector) or "", member.failures, member.error)


def _connections(parts: NodeParts, members: MemberExchange) -> list[ClusterConnection]:
    found = []
    networks = {name: each for each in parts.networks for name in each.connections}
    for name, flows in members.flows.by_cluster.items():
        cluster, each = flows.settings.cluster, list(flows.by_node.values())
        counts = [flow.bridge.counts for flow in each]
        network = networks[name]
        found.append(
            ClusterConnection(
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


def _grouping(broker: Broker | None) -> Grouping | None:
    members = None if broker is None else broker.exchange.members
    if members is None or members.groups is None:
        return None
    groups = members.groups
    settings, counts = groups.settings, groups.counts
    return Grouping(
        settings.name,
        settings.type.value,
        groups.bound,
        groups.waiting,
        counts.proposals,
        counts.freed,
        counts.ungrouped,
    )


def _colocated(colocation: NodeColocation) -> Colocated:
    hosted = [Hosted(backup.name, backup.node_id, state, urls) for backup, state, urls in colocation.hosted()]  # type: ignore[arg-type]  # states of nodes
    requests = colocation.requests
    if requests is None:
        return Colocated(None, None, hosted)
    return Colocated(requests.state.name, requests.host, hosted)


def _exchanged(broker: Broker | None) -> tuple[list[RemoteQueue], list[Redistribution]]:
    if broker is None or broker.exchange.members is None:
        return [], []
    members = broker.exchange.members
    queues = [
        RemoteQueue(
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
        Redistribution(each.queue.name, each.state.name, each.moved)
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


def _group(group: Group, now_ms: int) -> Discovery:
    entries = [
        Entry(each.node_id, _urls(each.connectors), each.source, max(0, now_ms - each.heard_ms))
        for each in group.entries.all()
    ]
    outcomes = {each.value: group.entries.outcomes[each] for each in Outcome}
    settings = group.settings
    return Discovery(
        settings.name,
        str(settings.carrier),
        group.state.name,
        group.error,
        entries,
        outcomes,
        group.entries.duplicates,
    )


def _broadcaster(each: Broadcaster) -> Broadcast:
    settings = each.settings
    return Broadcast(
        settings.name,
        str(settings.carrier),
        each.state.name,
        _urls(tuple(settings.connectors)),
        settings.period_ms,
        each.sent,
        each.failed,
        each.error,
    )
