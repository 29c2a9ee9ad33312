"""The objects of a node that concern other nodes, put together for its broker."""

from __future__ import annotations

from understudy.cluster.replicas import Replicas
from understudy.cluster.scaled_down import ScaledDownNodes
from understudy.cluster.services import ClusterServices
from understudy.runtime.connector import LoopDialer
from understudy.runtime.parts import NodeParts


def make_cluster_services(parts: NodeParts, replicas: Replicas | None) -> ClusterServices:
    """The services of a node.

    Args:
        parts: Of the node.
        replicas: Takes replicas; None in a node without replication.
    """
    return ClusterServices(
        parts.topology,
        parts.credentials,
        replicas,
        LoopDialer(parts.loop, parts.turn, parts.configuration.tls_for),
        parts.configuration.connector,
        parts.discovery.connectors,
        scaled_down=ScaledDownNodes(can_scale_down=parts.configuration.current.ha_policy.scale_down is not None),
    )
