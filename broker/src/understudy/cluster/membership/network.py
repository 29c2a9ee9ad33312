"""Cluster connections of a node with one connector: they have one topology and one membership (ADR 0082)."""

from __future__ import annotations

from understudy.cluster.membership.membership import Membership
from understudy.cluster.membership.topology import Topology
from understudy.dataclass import dataclass
from understudy.wire.core.peer import Dialer
from understudy.wire.core.transport import TransportConfiguration


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """The members that a node reaches by the cluster connections of one connector."""

    connections: tuple[str, ...]
    """Names of the cluster connections."""
    connector: TransportConfiguration
    """The connector by which the others reach this node; it has the name of the ``connector-ref``."""
    topology: Topology
    """Given to the clients and members that connect to the acceptors of these cluster connections."""
    membership: Membership
    dialer: Dialer
    """Opens connections to the members."""
