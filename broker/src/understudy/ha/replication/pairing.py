"""Which nodes of a cluster form a replicated pair: a store is never taken by the primary of another one (ADR 0119).

A node id stands for a pair. A node that is configured as primary keeps the store of its node id: it becomes a replica
only of the backup that is active with that store, never of another primary, and never of a backup that is active with
the store of another pair. A node that is configured as backup may become the replica of any node of its group.

Pure rules, used by both ends of the connection (``replication.active_link``, ``replication.replica_link``).
"""

from __future__ import annotations

from understudy.dataclass import dataclass

_HINT = "give each replicated pair of the cluster a group-name of its own"


@dataclass(frozen=True, slots=True)
class Registrant:
    """The node that asks to become a replica."""

    name: str
    primary_of: str | None
    """Node id of the data of a configured primary; empty: it has none; None: a configured backup, or not known."""
    wants_failback: bool
    """It is configured as primary and wants to be active again; also nodes of an earlier version say this."""
    grouped: bool
    """Both nodes have the same group-name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The active node that was asked."""

    node_id: str
    """Of its store."""
    primary: bool
    """It is configured as primary, and is not one of two equal nodes (coordination-id)."""
    other_pairs: bool
    """Its cluster has active nodes of other node ids."""


def refusal(registrant: Registrant, owner: Owner) -> str | None:
    """Why the registrant does not become the replica of the owner: it is the primary of another store; None: it may."""
    name, data = registrant.name, registrant.primary_of
    if data and data != owner.node_id:
        return f"{name} is the primary of node {data}, this is the store of node {owner.node_id}: {_HINT}"
    if registrant.wants_failback and owner.primary:
        return (
            f"{name} is configured as primary like this node, which has the store of node {owner.node_id}:"
            f" make one of them the backup, or {_HINT}"
        )
    if data == "" and owner.other_pairs and not registrant.grouped:
        return (
            f"{name} is a primary without data, and nothing shows that the store of node {owner.node_id} is that of its"
            f" pair: {_HINT}"
        )
    return None


def refuses_store(primary_of: str | None, node_id: str | None) -> str | None:
    """Why a configured primary does not become the replica of a store, whatever the active node says; None: it may.

    Args:
        primary_of: As in ``Registrant``, of this node.
        node_id: Of the store of the active node.
    """
    if primary_of and primary_of != node_id:
        return f"this node is the primary of node {primary_of}, that is the store of node {node_id}: {_HINT}"
    return None
