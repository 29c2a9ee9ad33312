"""Reads the element ``grouping-handler`` of broker.xml (artemis-ha s. 7.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from understudy.config.cluster_addresses import cluster_of
from understudy.config.document import Document, Node
from understudy.config.grouping import GroupingConfiguration, GroupingType
from understudy.config.model import ClusterConnectionConfiguration
from understudy.limits import NAME_UNITS_MAX


def read_grouping_handler(
    document: Document,
    plain: Callable[[Node, type], dict[str, Any]],
    core: Node,
    clusters: Sequence[ClusterConnectionConfiguration],
) -> GroupingConfiguration | None:
    """The grouping handler of a node; None: it has none, or no cluster connection.

    Args:
        document: Being read.
        plain: Values of the children of a node that have a field in a dataclass.
        core: The element ``core``.
        clusters: Cluster connections of the node.

    Raises:
        ConfigError: an invalid value.
    """
    node = core.child("grouping-handler")
    if node is None:
        return None
    name, values = str(node.attributes["name"]), plain(node, GroupingConfiguration)
    if not name or len(name) > NAME_UNITS_MAX:
        raise document.error_at(node, f"a name of {len(name)} characters, limit 1 to {NAME_UNITS_MAX}")
    child = node.child("group-timeout")
    if child is not None and child.value == 0:
        raise document.error_at(child, "0 is neither -1 nor more than 0")
    handler = GroupingConfiguration(**{**values, "name": name, "type": GroupingType(values["type"])})
    taking = cluster_of(clusters, handler.address)
    if not clusters or (taking is not None and taking.max_hops == 0):
        document.warn(
            "grouping-handler",
            "without a cluster-connection, or with its max-hops 0, it has no effect",
            node,
        )
        return None
    if taking is None:
        first = clusters[0]
        raise document.error_at(
            node.child("address") or node,
            f"{handler.address!r} is no address of cluster-connection {first.name!r} (address {first.address!r}):"
            " no proposal would reach the other members",
            hint="write one of its prefixes as address of the grouping-handler",
        )
    return handler
