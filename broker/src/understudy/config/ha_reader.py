"""Reads the element ``ha-policy`` and the network check (artemis-ha s. 1, 3.6). Not here: the rest (``reader``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from understudy.config.document import Document, Node, nearest
from understudy.config.high_availability import (
    HighAvailabilityPolicy,
    NetworkCheckConfiguration,
    ReplicationConfiguration,
    Role,
)
from understudy.config.locking import read_lock_manager
from understudy.config.model import ClusterConnectionConfiguration


class HighAvailabilityReader:
    """Reads the element of one document."""

    def __init__(self, document: Document, plain: Callable[[Node, type], dict[str, Any]]) -> None:
        """Args:
        document: Makes errors.
        plain: Values of the children of an element that have a field of their name in a dataclass.
        """
        self._document = document
        self._plain = plain

    def read(self, core: Node, clusters: Sequence[ClusterConnectionConfiguration]) -> HighAvailabilityPolicy:
        """The policy of a server.

        Raises:
            ConfigError: not exactly one policy or role, a policy without the cluster connection that it needs.
        """
        check = NetworkCheckConfiguration(**self._plain(core, NetworkCheckConfiguration))
        return replace(self._policy(core, clusters), network_check=check)

    def _policy(self, core: Node, clusters: Sequence[ClusterConnectionConfiguration]) -> HighAvailabilityPolicy:
        policy = core.child("ha-policy")
        if policy is None:
            return HighAvailabilityPolicy()
        error = self._document.error_at
        if len(policy.children) != 1:
            raise error(policy, f"{len(policy.children)} policies, exactly one wanted")
        if policy.child("primary-only") is not None:
            return HighAvailabilityPolicy()
        # colocated was refused by the document: ignoring it would be unsafe
        kind = policy.children[0]
        if len(kind.children) != 1:
            raise error(kind, "exactly one of primary and backup is wanted")
        node = kind.children[0]
        role = Role.PRIMARY if node.element.name == "primary" else Role.BACKUP
        values = self._plain(node, HighAvailabilityPolicy)
        if kind.element.name == "replication":
            values["replication"] = self._replication(node, clusters)
        return HighAvailabilityPolicy(role=role, **values)

    def _replication(self, node: Node, clusters: Sequence[ClusterConnectionConfiguration]) -> ReplicationConfiguration:
        error = self._document.error_at
        values = self._plain(node, ReplicationConfiguration)
        for name in ("group_name", "cluster_name", "coordination_id"):
            if not values.get(name):
                values.pop(name, None)
        names = [each.name for each in clusters]
        if not names:
            raise error(node, "replication needs a cluster-connection")
        wanted = values.get("cluster_name")
        if wanted is not None and wanted not in names:
            raise error(node, f"there is no cluster-connection {wanted!r}", hint=nearest(wanted, names))
        manager = node.child("manager")
        if manager is None:
            hint = "a manager: ZooKeeper, a witness or a shared directory (docs/lock-managers.md)"
            raise error(node, "replication with votes is not available in this version", hint=hint)
        return ReplicationConfiguration(**values, lock_manager=read_lock_manager(self._document, manager))
