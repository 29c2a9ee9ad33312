"""``address`` of cluster connections: prefixes of the addresses whose messages they take (artemis-ha s. 7.2).

A node may have several cluster connections. An address belongs to one of them: otherwise a message would have two ways
to the same queue (ADR 0075).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from understudy.config.document import Document, Node
from understudy.config.model import ClusterConnectionConfiguration


def split_addresses(text: str) -> tuple[list[str], list[str]]:
    """``address`` of a cluster connection: prefixes that are included (none: all) and those that are excluded."""
    parts = [each.strip() for each in text.split(",") if each.strip()]
    return [each for each in parts if each[0] != "!"], [each[1:] for each in parts if each[0] == "!"]


def covers(address: str, included: Sequence[str], excluded: Sequence[str]) -> bool:
    """Whether an address is one of a cluster connection (``split_addresses``)."""
    if any(map(address.startswith, excluded)):
        return False
    return not included or any(map(address.startswith, included))


def cluster_of(
    connections: Sequence[ClusterConnectionConfiguration], address: str
) -> ClusterConnectionConfiguration | None:
    """The cluster connection that takes the messages of an address; None: they stay here."""
    return next((each for each in connections if covers(address, *split_addresses(each.address))), None)


def common_prefix(one: str, other: str) -> str | None:
    """A prefix of addresses that both texts take, empty for all addresses; None: there is no such address."""
    included, excluded = split_addresses(one)
    other_included, other_excluded = split_addresses(other)
    for prefix in included or [""]:
        for other_prefix in other_included or [""]:
            longer, shorter = sorted((prefix, other_prefix), key=len, reverse=True)
            if longer.startswith(shorter) and not any(map(longer.startswith, (*excluded, *other_excluded))):
                return longer
    return None


def check_clusters(document: Document, core: Node, connections: Sequence[ClusterConnectionConfiguration]) -> None:
    """Compare the cluster connections of a server.

    Args:
        document: Makes errors.
        core: The element of the server.
        connections: Of the server.

    Raises:
        ConfigError: two take the same address, or have different connectors.
    """
    holder = core.child("cluster-connections")
    if holder is None:
        return
    nodes = {str(each.attributes["name"]): each for each in holder.all("cluster-connection")}
    for one, other in combinations(connections, 2):
        node = nodes[other.name]
        if one.connector_ref != other.connector_ref:
            message = f"cluster-connection {one.name!r} has connector-ref {one.connector_ref!r}: a node has one address"
            raise document.error_at(node.child("connector-ref") or node, message)
        prefix = common_prefix(one.address, other.address)
        if prefix is not None:
            taken = f"addresses that begin with {prefix!r}" if prefix else "all addresses"
            message = f"cluster-connection {one.name!r} takes {taken} as well: their messages would have two ways"
            hint = "write prefixes that exclude each other, such as 'news' and '!news'"
            raise document.error_at(node.child("address") or node, message, hint=hint)
