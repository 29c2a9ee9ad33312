"""Reads the element ``grouping-handler`` of broker.xml (artemis-ha s. 7.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from understudy.config.cluster_addresses import cluster_of
from understudy.config.grouping import GroupingConfiguration, GroupingType
from understudy.config.model import ClusterConnectionConfiguration
from understudy.config.reading.document import Document, Node
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
        decides = handler.type is GroupingType.LOCAL
        effect = "it decides for messages that are sent at this node only" if decides else "it has no effect"
        document.warn(
            "grouping-handler",
            f"{handler.address!r} is no address of a cluster-connection, so no proposal reaches the other members:"
            f" {effect} (write one of the prefixes of {clusters[0].name!r} as address of the grouping-handler)",
            node.child("address") or node,
        )
        return handler if decides else None
    return handler
