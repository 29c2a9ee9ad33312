"""Reads the element ``grouping-handler`` of broker.xml (artemis-ha s. 7.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
    if not clusters or clusters[0].max_hops == 0:
        document.warn(
            "grouping-handler",
            "without a cluster-connection, or with its max-hops 0, it has no effect",
            node,
        )
        return None
    rejected = next((each for each in clusters[:1] if not _passes(handler.address, each.address)), None)
    if rejected is not None:
        raise document.error_at(
            node.child("address") or node,
            f"{handler.address!r} is no address of cluster-connection {rejected.name!r} (address {rejected.address!r}):"
            " no proposal would reach the other members",
            hint="write one of its prefixes as address of the grouping-handler",
        )
    return handler


def _passes(address: str, prefixes: str) -> bool:
    """Whether the filter of another member takes a notification with this address (artemis-ha s. 7.2)."""
    parts = [each.strip() for each in prefixes.split(",") if each.strip()]
    excluded = [each[1:] for each in parts if each[0] == "!"]
    included = [each for each in parts if each[0] != "!"]
    if any(map(address.startswith, excluded)):
        return False
    return not included or any(map(address.startswith, included))
