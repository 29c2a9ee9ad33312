"""``address`` of cluster connections: prefixes of the addresses whose messages they take (artemis-ha s. 7.2).

A node may have several cluster connections. Where two take an address, a queue of another member belongs to the first
of them that hears of it, so that a message has one way to it (ADR 0136).
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """The first cluster connection that takes the messages of an address; None: they stay here."""
    return next((each for each in connections if covers(address, *split_addresses(each.address))), None)


def by_connector(
    connections: Sequence[ClusterConnectionConfiguration],
) -> list[tuple[ClusterConnectionConfiguration, ...]]:
    """Cluster connections with the same ``connector-ref`` together, in the order of the first of each."""
    found: dict[str, list[ClusterConnectionConfiguration]] = {}
    for each in connections:
        found.setdefault(each.connector_ref, []).append(each)
    return [tuple(each) for each in found.values()]


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
