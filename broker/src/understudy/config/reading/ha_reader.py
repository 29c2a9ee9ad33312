"""Reads the element ``ha-policy`` and the network check (artemis-ha s. 1, 3.6). Not here: the rest (``reader``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from understudy.config.colocated import check_colocated
from understudy.config.high_availability import (
    ColocatedConfiguration,
    HighAvailabilityPolicy,
    NetworkCheckConfiguration,
    ReplicationConfiguration,
    Role,
    ScaleDownConfiguration,
)
from understudy.config.model import ClusterConnectionConfiguration, Configuration
from understudy.config.reading.document import Document, Node, nearest
from understudy.config.reading.locking import read_lock_manager
from understudy.config.schema.cluster_rows import HA_POLICY, OLD_HA_ROWS

#: Elements of replication that only votes use, and that only a lock manager uses.
_OF_VOTES: Final = (
    "vote-on-replication-failure",
    "quorum-size",
    "vote-retries",
    "vote-retry-wait",
    "quorum-vote-wait",
    "check-for-active-server",
)
#: Elements of ``ha-policy`` by the name that they had in the root of a server.
_NEW_NAMES: Final = {
    "check-for-live-server": "check-for-active-server",
    "backup-group-name": "group-name",
    "replication-clustername": "cluster-name",
    "scale-down-clustername": "scale-down",
}
_OF_MANAGER: Final = ("coordination-id", "replica-silence")


class HighAvailabilityReader:
    """Reads the element of one document."""

    def __init__(
        self,
        document: Document,
        plain: Callable[[Node, type], dict[str, Any]],
        connectors: Callable[[Node | None], tuple[str, ...]],
        discovery: Callable[[Node], str | None],
    ) -> None:
        """Args:
        document: Makes errors.
        plain: Values of the children of an element that have a field of their name in a dataclass.
        connectors: Names of the connectors that an element refers to; none for None.
        discovery: Name of the discovery group that an element refers to.
        """
        self._document = document
        self._plain = plain
        self._connectors = connectors
        self._discovery = discovery

    def read(self, core: Node, clusters: Sequence[ClusterConnectionConfiguration]) -> HighAvailabilityPolicy:
        """The policy of a server.

        Raises:
            ConfigError: not exactly one policy or role, a policy without the cluster connection that it needs.
        """
        check = NetworkCheckConfiguration(**self._plain(core, NetworkCheckConfiguration))
        return replace(self._policy(core, clusters), network_check=check)

    def check(self, core: Node, configuration: Configuration) -> None:
        """Compare the policy with the rest of the file. Raises ConfigError: see ``check_colocated``."""
        check_colocated(self._document, core, configuration)

    def _policy(self, core: Node, clusters: Sequence[ClusterConnectionConfiguration]) -> HighAvailabilityPolicy:
        policy = core.child("ha-policy")
        old = [child for child in core.children if child.element in OLD_HA_ROWS]
        error = self._document.error_at
        if policy is None:
            return self._old_policy(core, old, clusters) if old else HighAvailabilityPolicy()
        if old:
            hint = "write everything in ha-policy"
            raise error(old[0], f"{old[0].element.name} is the old form, and there is an ha-policy", hint=hint)
        if not policy.children:
            self._document.warn("ha-policy", "is empty: the node has no partner, as with primary-only", policy)
            return HighAvailabilityPolicy()
        if len(policy.children) != 1:
            raise error(policy, f"{len(policy.children)} policies, exactly one wanted")
        alone = policy.child("primary-only")
        if alone is not None:
            return HighAvailabilityPolicy(scale_down=self._scale_down(alone, clusters))
        kind = policy.children[0]
        roles = [child for child in kind.children if child.element.name != "manager"]
        if len(roles) != 1:
            name = kind.element.name
            hint = f"write <{name}><primary/></{name}> in one node of a pair, <{name}><backup/></{name}> in the other"
            raise error(kind, "exactly one of primary, backup and colocated is wanted", hint=hint)
        node = self._with_manager(kind, roles[0])
        if node.element.name == "colocated":
            return self._colocated(kind, node, clusters)
        return self._server(kind, node, node.element.name, clusters)

    def _old_policy(
        self, core: Node, old: Sequence[Node], clusters: Sequence[ClusterConnectionConfiguration]
    ) -> HighAvailabilityPolicy:
        """The policy of elements in the root of a server, which 002 calls deprecated and still honours."""
        values = {node.element.name: node for node in old}
        shared = values.pop("shared-store", None)
        backup = values.pop("backup", None)
        kind = "replication" if shared is not None and shared.value is False else "shared-store"
        role = "backup" if backup is not None and backup.value is True else "primary"
        row = HA_POLICY.by_name[kind].by_name[role]
        node = Node(row, core.path, old[0].line, file=core.file)
        for name, written in values.items():
            new = row.by_name.get(_NEW_NAMES.get(name, name))
            if new is None:
                self._document.warn(name, f"{name} has no effect in a {role} with {kind}", written)
                continue
            child = Node(new, written.path, written.line, written.value, file=written.file)
            if new.name == "scale-down":
                child.value = None
                self._check_cluster_name(written, clusters)
            node.children.append(child)
        names = ", ".join(each.element.name for each in old)
        message = f"{names}: the old form of ha-policy, read as <{kind}><{role}>; write ha-policy"
        self._document.warn("old ha-policy", message, old[0])
        return self._server(Node(HA_POLICY.by_name[kind], core.path, old[0].line, file=core.file), node, role, clusters)

    def _check_cluster_name(self, node: Node, clusters: Sequence[ClusterConnectionConfiguration]) -> None:
        names = [each.name for each in clusters]
        if node.value not in names:
            error = self._document.error_at(
                node, f"there is no cluster-connection {node.value!r}", hint=nearest(str(node.value), names)
            )
            raise self._document.consequence("cluster-connection", error, str(node.value))

    def _with_manager(self, kind: Node, role: Node) -> Node:
        """The element of the role; a ``manager`` beside it counts as one in it (002, "Lock manager").

        Raises:
            ConfigError: both have one, or the role is colocated.
        """
        manager = kind.child("manager")
        if manager is None:
            return role
        if role.element.name == "colocated":
            raise self._document.error_at(
                manager, "a manager beside colocated", hint="it belongs in its primary and backup"
            )
        if role.child("manager") is not None:
            raise self._document.error_at(manager, f"{role.element.name} has a manager already")
        return replace(role, children=[*role.children, manager])

    def _server(
        self, kind: Node, node: Node, role: str, clusters: Sequence[ClusterConnectionConfiguration]
    ) -> HighAvailabilityPolicy:
        """A primary or a backup.

        Args:
            kind: Element of the kind of store.
            node: Element of the role, or the one without it.
            role: ``primary`` or ``backup``.
        """
        values = self._plain(node, HighAvailabilityPolicy)
        if kind.element.name == "replication":
            values["replication"] = self._replication(node, clusters)
        policy = HighAvailabilityPolicy(role=Role(role), scale_down=self._scale_down(node, clusters), **values)
        replication = policy.replication
        voting = replication is not None and replication.lock_manager is None
        if voting and policy.moves_instead_of_serving and any(each.artemis_members for each in clusters):
            message = "scale-down of a replica without a manager, in a cluster with artemis-members: no Artemis broker"
            hint = "write a manager, which keeps the record of it (docs/operate/scale-down.md)"
            raise self._document.error_at(
                node.child("scale-down") or node, f"{message} keeps the record of it", hint=hint
            )
        return policy

    def _colocated(
        self, kind: Node, node: Node, clusters: Sequence[ClusterConnectionConfiguration]
    ) -> HighAvailabilityPolicy:
        """A primary whose process hosts backups; without an element for one of the two, its defaults apply.

        Raises:
            ConfigError: there is no cluster connection, on which backups are asked for.
        """
        if not clusters:
            message = "colocated needs a cluster-connection: members ask each other for backups"
            raise self._document.consequence("cluster-connection", self._document.error_at(node, message))
        found: dict[str, HighAvailabilityPolicy] = {}
        for role in ("primary", "backup"):
            written = node.child(role)
            if written is None:
                written = Node(node.element.by_name[role], node.path, node.line, file=node.file)
            found[role] = self._server(kind, written, role, clusters)
        colocated = ColocatedConfiguration(
            backup=found["backup"],
            excludes=self._connectors(node.child("excludes")),
            **self._plain(node, ColocatedConfiguration),
        )
        return replace(found["primary"], colocated=colocated)

    def _scale_down(
        self, node: Node, clusters: Sequence[ClusterConnectionConfiguration]
    ) -> ScaleDownConfiguration | None:
        """Raises ConfigError: two kinds of targets, or no cluster whose members could be one."""
        element = node.child("scale-down")
        if element is None:
            return None
        values = self._plain(element, ScaleDownConfiguration)
        values["connectors"] = self._connectors(element.child("connectors"))
        values["discovery_group"] = self._discovery(element)
        values["group_name"] = values.get("group_name") or None
        found = ScaleDownConfiguration(**values)
        error = self._document.error_at
        if found.connectors and found.discovery_group is not None:
            raise error(element, "connectors and discovery-group-ref exclude each other")
        if found.enabled and not clusters:
            message = "scale-down needs a cluster-connection: messages go to a member of the cluster"
            raise self._document.consequence("cluster-connection", error(element, message))
        return found

    def _replication(self, node: Node, clusters: Sequence[ClusterConnectionConfiguration]) -> ReplicationConfiguration:
        error = self._document.error_at
        values = self._plain(node, ReplicationConfiguration)
        for name in ("group_name", "cluster_name", "coordination_id"):
            if not values.get(name):
                values.pop(name, None)
        names = [each.name for each in clusters]
        if not names:
            missing = error(node, "replication needs a cluster-connection: by it the replica finds the other node")
            raise self._document.consequence("cluster-connection", missing)
        wanted = values.get("cluster_name")
        if wanted is not None and wanted not in names:
            missing = error(node, f"there is no cluster-connection {wanted!r}", hint=nearest(wanted, names))
            raise self._document.consequence("cluster-connection", missing, str(wanted))
        manager = node.child("manager")
        if manager is None:
            self._warn_unused(node, _OF_MANAGER, "without a manager: the nodes vote")
            return ReplicationConfiguration(**values)
        self._warn_unused(node, _OF_VOTES, "with a manager: it decides which node is active")
        settings = ReplicationConfiguration(**values, lock_manager=read_lock_manager(self._document, manager))
        used = clusters[0] if wanted is None else clusters[names.index(wanted)]
        self._compare_with_lease(node, settings, used)
        return settings

    def _warn_unused(self, node: Node, names: Sequence[str], reason: str) -> None:
        for name in names:
            child = node.child(name)
            if child is not None:
                self._document.warn(f"unused {name}", f"has no effect {reason}", child)

    def _compare_with_lease(
        self, node: Node, settings: ReplicationConfiguration, used: ClusterConnectionConfiguration
    ) -> None:
        """Warn if the lock of an active node that is cut off is free before its replica asks for it."""
        lease_ms = settings.lock_manager.lease_limit_ms if settings.lock_manager is not None else None
        limits = [each for each in (settings.replica_silence_ms, used.connection_ttl_ms) if each > 0]
        silence_ms = min(limits, default=None)
        if lease_ms is not None and (silence_ms is None or silence_ms > lease_ms):
            written = node.child("replica-silence") or node
            found = "without limit" if silence_ms is None else f"{silence_ms} ms"
            self._document.warn(
                "replica-silence",
                f"replica-silence is {found}, longer than the {lease_ms} ms for which a lock outlives its node: after a"
                " silent loss of the active node the replica asks for the lock later than it could",
                written,
            )
