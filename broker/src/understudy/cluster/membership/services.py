"""Objects of a node that concern other nodes, given to the connections of an active node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from understudy.cluster.membership.backup_host import BackupHost
from understudy.cluster.membership.connectors import Connectors
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.held_votes import HeldVotes
from understudy.cluster.membership.network import ClusterNetwork
from understudy.cluster.membership.passive_formats import PassiveFormats
from understudy.cluster.membership.replicas import Replicas
from understudy.cluster.membership.scaled_down import ScaledDownNodes
from understudy.cluster.membership.topology import Topology
from understudy.dataclass import dataclass
from understudy.wire.core.peer import Dialer
from understudy.wire.core.transport import TransportConfiguration


@dataclass(frozen=True, slots=True)
class ClusterPeers:
    """Parts of a node that serve other nodes."""

    replicas: Replicas | None
    """Takes replicas; None in a node without replication."""
    backups: BackupHost | None
    """Host of backups of other nodes; None in a node that hosts none."""


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """Services of the cluster for one node."""

    topology: Topology
    """Topology of the cluster connection that its pair uses."""
    credentials: ClusterCredentials | None = None
    """Cluster user and password; None without a cluster connection: connections of other nodes are refused."""
    replicas: Replicas | None = None
    """Takes replicas of this node; None in a node without replication."""
    dialer: Dialer | None = None
    """Opens connections to other brokers; None: there are no bridges."""
    connectors: Connectors = field(default_factory=Connectors)
    """Connectors of the node, by name."""
    discovered: Callable[[str | None], Sequence[TransportConfiguration]] = lambda group: ()
    """Connectors of the nodes that were heard in a discovery group."""
    votes: HeldVotes = field(default_factory=HeldVotes)
    """Votes of this node, since it became active."""
    scaled_down: ScaledDownNodes = field(default_factory=ScaledDownNodes)
    """Nodes that were scaled down since this one became active."""
    formats: PassiveFormats = field(default_factory=PassiveFormats)
    """Format versions that the passive nodes of this one read."""
    backups: BackupHost | None = None
    """Hosts backups of other nodes; None in a node that hosts none."""
    networks: Sequence[ClusterNetwork] = ()
    """Networks of all cluster connections."""

    def of(self, connection: str | None) -> ClusterServices:
        """The services with the topology and the connections of one cluster connection.

        Args:
            connection: Name of the cluster connection; None: the first one.
        """
        for network in self.networks:
            if connection is None or connection in network.connections:
                return replace(self, topology=network.topology, dialer=network.dialer)
        return self
