"""Connectors at which a replica looks for its active node (artemis-ha s. 3.2).

Static connectors and discovered ones are only the way into the cluster: a node that may become the replica of any
active node also asks the members that it knows from the topology, as ``AnyNodeLocatorForReplication`` of Artemis does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from understudy.cluster.membership.topology import Member
from understudy.config.high_availability import ReplicationConfiguration, Role
from understudy.errors import ConfigError
from understudy.ha.replication.policy import ReplicationOptions
from understudy.ha.replication.standby_life import StandbyLife
from understudy.replication.place import ReplicaPlace
from understudy.replication.replica_link import ActiveNodes, ReplicaLink, ReplicaOptions
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.members.member_rules import peer_options
from understudy.runtime.net.connector import LoopDialer
from understudy.runtime.replica.copied_store import TargetCopy
from understudy.runtime.replica.replication import ReplicationParts
from understudy.wire.core.transport import TransportConfiguration


class ReplicaSearch:
    """The members of the cluster that one node asks when it looks for its active node."""

    def __init__(
        self, parts: NodeParts, settings: ReplicationConfiguration, own: TransportConfiguration, life: StandbyLife
    ) -> None:
        """Args:
        settings: Settings of the replication of this node.
        own: Connector of this node.
        life: Standby life of this node while it is not active.
        """
        self._parts = parts
        self._settings = settings
        self._own = own
        self._life = life
        self._role = parts.configuration.current.ha_policy.role

    def node_id(self, place_taken: bool) -> str | None:
        """Node id of the only node of which this one becomes the replica; None: of any node of the group. A backup is
        free when the pair of its data has another replica, or a group-name of its own.

        Args:
            place_taken: Whether an active node has another replica.
        """
        settings, authority = self._settings, self._life.authority
        if settings.of_node:
            return settings.of_node
        may_be_free = self._role is Role.BACKUP and not authority.by_votes
        if may_be_free and (place_taken or _serves_another_group(self._parts, settings.group_name)):
            return None
        return authority.data_node_id()

    def candidates(self, place_taken: bool) -> Sequence[TransportConfiguration]:
        """Connectors at which the active node may be. A primary whose data was refused asks every member: one of them
        may have its messages (ADR 0126).
        """
        parts = self._parts
        cluster = parts.configuration.current.cluster_connection(self._settings.cluster_name)
        configured = [parts.configuration.connectors.transport(name) for name in cluster.static_connectors]
        configured += parts.discovery.connectors(cluster.discovery_group)
        own, members = self._members(place_taken)
        found = candidates(own, configured, members, self._settings.group_name)
        if self._role is Role.PRIMARY and self._life.refused:
            others = (each.primary for each in parts.topology.members())
            found += [each for each in others if each is not None and not any(map(each.same_place, found))]
        return found

    def not_asked(self, answered: Sequence[TransportConfiguration], place_taken: bool) -> Sequence[str]:
        """URLs of members that may be active with the data of this pair and gave no answer in a search.

        Args:
            answered: Connectors of the nodes that answered.
            place_taken: Whether an active node has another replica.
        """
        own, members = self._members(place_taken)
        found = candidates(own, [], members, self._settings.group_name)
        wanted = [each for each in found if not each.same_place(self._own)]
        return tuple(each.to_url() for each in wanted if not any(map(each.same_place, answered)))

    def _members(self, place_taken: bool) -> tuple[Member | None, Sequence[Member]]:
        """The entry of the own node id, and those of all nodes of which this one may become the replica."""
        only, topology = self.node_id(place_taken), self._parts.topology
        members = topology.members() if only is None else ()
        return topology.member(only or self._parts.lock.node_id), members


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


def _serves_another_group(parts: NodeParts, group: str | None) -> bool:
    """Whether a node with another group-name is active with the data of this one: it takes this one no more."""
    member = parts.topology.member(parts.lock.node_id)
    active = member is not None and member.primary is not None
    return active and group is not None and member is not None and member.backup_group not in (None, group)


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


def replica_of(parts: NodeParts, used: ReplicationParts, options: ReplicationOptions, life: StandbyLife) -> ReplicaLink:
    """The copy on this node, which calls ``life``. Raises ConfigError: there is no cluster-connection."""
    configuration, settings = parts.configuration.current, used.settings
    own = parts.configuration.own_connector()
    if own is None or parts.credentials is None:
        raise ConfigError("replication needs a cluster-connection", path="core/ha-policy/replication")
    cluster = configuration.cluster_connection(settings.cluster_name)
    saved_max = settings.max_saved_replicated_journals_size
    search = ReplicaSearch(parts, settings, own, life)
    replica_options = ReplicaOptions(
        configuration.name,
        own,
        settings.group_name,
        options.wants_failback,
        parts.credentials,
        replace(peer_options(cluster), silence_ms=settings.silence_ms),
        used.authority.waiting_copy,
        search.node_id,
        search.not_asked,
        partial(others_not_asked, parts, own),
        parts.watch.had,
        parts.environment.replication_protocol,
    )
    return ReplicaLink(
        replica_options,
        ActiveNodes(search.candidates, LoopDialer(parts.loop, parts.turn, parts.configuration.tls_for)),
        life,
        lambda link: TargetCopy(parts, used.worker, used.local, saved_max, link),
        parts.environment.clock,
        parts.turn,
        parts.turn,
    )
