"""Objects of a node that concern other nodes, given to the connections of an active node."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.cluster.credentials import ClusterCredentials
from understudy.cluster.replicas import Replicas
from understudy.cluster.topology import Topology


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """Services of one node."""

    topology: Topology
    credentials: ClusterCredentials | None = None
    """None without a cluster connection: connections of other nodes are refused."""
    replicas: Replicas | None = None
    """Takes replicas of this node; None in a node without replication."""
