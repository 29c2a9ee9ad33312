"""Connectors at which a replica looks for its active node (artemis-ha s. 3.2).

Static connectors and discovered ones are only the way into the cluster: a node that may become the replica of any
active node also asks the members that it knows from the topology, as ``AnyNodeLocatorForReplication`` of Artemis does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from understudy.cluster.membership.topology import Member
from understudy.config.high_availability import ReplicationConfiguration, Role
from understudy.config.model import ClusterConnectionConfiguration
from understudy.replication.place import ReplicaPlace
from understudy.replication.replica_link import ReplicaOptions
from understudy.runtime.base.parts import NodeParts
from understudy.wire.core.transport import TransportConfiguration


def replica_candidates(
    parts: NodeParts, cluster: ClusterConnectionConfiguration, options: ReplicaOptions
) -> Sequence[TransportConfiguration]:
    """Connectors at which the active node of a replica may be."""
    configured = [parts.configuration.connectors.transport(name) for name in cluster.static_connectors]
    configured += parts.discovery.connectors(cluster.discovery_group)
    own, members = _members(parts, options)
    found = candidates(own, configured, members, options.group)
    if options.asks_all():
        others = (each.primary for each in parts.topology.members())
        found += [each for each in others if each is not None and not any(map(each.same_place, found))]
    return found


def members_not_asked(
    parts: NodeParts, options: ReplicaOptions, answered: Sequence[TransportConfiguration]
) -> Sequence[str]:
    """URLs of members that may be active with the data of this pair and gave no answer in a search.

    Args:
        options: How it registers.
        answered: Connectors of the nodes that answered.
    """
    own, members = _members(parts, options)
    wanted = [each for each in candidates(own, [], members, options.group) if not each.same_place(options.connector)]
    return tuple(each.to_url() for each in wanted if not any(map(each.same_place, answered)))


def others_not_asked(
    parts: NodeParts, own: TransportConfiguration, answered: Sequence[TransportConfiguration]
) -> Sequence[str]:
    """``silent_members`` of the topology of a node.

    Args:
        own: Connector of this node.
        answered: Connectors of the nodes that answered.
    """

    def is_plain(connector: TransportConfiguration) -> bool:
        return parts.credentials is not None and parts.credentials.plain_for(connector) is not None

    others = [each for each in parts.topology.members() if each.node_id != parts.lock.node_id]
    return silent_members(others, own, answered, is_plain)


def silent_members(
    others: Sequence[Member],
    own: TransportConfiguration,
    answered: Sequence[TransportConfiguration],
    is_plain: Callable[[TransportConfiguration], bool],
) -> Sequence[str]:
    """URLs of members with other node ids that gave no answer in a search. If none answered, the members are not known.

    Args:
        others: The members.
        own: Connector of this node.
        answered: Connectors of the nodes that answered.
        is_plain: Whether the node of a connector is an Artemis, which keeps no record of messages that moved to it.
    """
    known = [each.primary for each in others if each.primary is not None and not each.primary.same_place(own)]
    wanted = [each for each in known if not is_plain(each)]
    if known and not wanted:
        return ()
    if not answered:
        return ("the other members",)
    return tuple(each.to_url() for each in wanted if not any(map(each.same_place, answered)))


def replica_place(parts: NodeParts, settings: ReplicationConfiguration) -> ReplicaPlace:
    """The place of the replica at this node while it is active."""
    role, topology = parts.configuration.current.ha_policy.role, parts.topology

    def is_kept() -> bool:
        return role is Role.BACKUP and settings.group_name is None and len(topology.members()) > 1

    return ReplicaPlace(primary=role is Role.PRIMARY and settings.coordination_id is None, kept=is_kept)


def serves_another_group(parts: NodeParts, group: str | None) -> bool:
    """Whether a node with another group-name is active with the data of this one: it takes this one no more."""
    member = parts.topology.member(parts.lock.node_id)
    active = member is not None and member.primary is not None
    return active and group is not None and member is not None and member.backup_group not in (None, group)


def _members(parts: NodeParts, options: ReplicaOptions) -> tuple[Member | None, Sequence[Member]]:
    """The entry of the own node id, and those of all nodes of which this one may become the replica."""
    only = options.node_id()
    members = parts.topology.members() if only is None else ()
    return parts.topology.member(only or parts.lock.node_id), members


def candidates(
    own: Member | None,
    configured: Sequence[TransportConfiguration],
    members: Sequence[Member],
    group: str | None,
) -> list[TransportConfiguration]:
    """Each place once, in the order of the search: the active node of the own node id, the connectors of the
    configuration, then other active nodes.

    Args:
        own: The entry of the own node id in the topology; None if there is none.
        configured: Static connectors of the cluster connection, and discovered ones.
        members: Entries of nodes of which this one may become the replica.
        group: group-name of this node; members that say another one are left out.
    """
    known = [] if own is None else [own.primary]
    fitting = [each.primary for each in members if None in (group, each.backup_group) or each.backup_group == group]
    found: list[TransportConfiguration] = []
    for connector in (*known, *configured, *fitting):
        if connector is not None and not any(each.same_place(connector) for each in found):
            found.append(connector)
    return found
