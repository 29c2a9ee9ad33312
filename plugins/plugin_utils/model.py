"""The cluster that an inventory describes: nodes, pairs, and the faults that were found.

Frozen records; ``topology.py`` fills and judges them. Nothing here knows Ansible, files or the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.understudy.broker.plugins.plugin_utils.elements import core_of
from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import MEMBERS, Sockets, tcp_url

PRIMARY = "primary"
BACKUP = "backup"

PRIMARY_ONLY = "primary_only"
SHARED_STORE = "shared_store"
REPLICATION = "replication"
COLOCATED = "colocated_"
"""Beginning of the policies of nodes that host each other's backups; the kind of the store follows."""

VOTES = "votes"
"""Value of ``broker_lock_manager`` for replication without a lock manager."""
CREDENTIALS = ("auth",)
"""Properties of a lock manager that are not shown."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the inventory: which host, which variable, and what to do about it."""

    host: str
    variable: str
    problem: str

    def __str__(self) -> str:
        return f"{self.host}: {self.variable}: {self.problem}"


@dataclass(frozen=True)
class Node:
    """One broker process, as the inventory variables of its host describe it.

    ``values`` holds the judged value of every variable of the table with scope pair or node. The properties are those
    that the rules and the playbooks use; a variable that is only rendered needs none.
    """

    name: str
    """Inventory name of the host; also the broker's name and the name of its connector."""
    machine: str
    """Nodes with the same value share one operating system, so their sockets and directories must differ."""
    values: Mapping[str, Any]
    """Values by the name of the variable without ``broker_``."""
    given: frozenset[str]
    """Full names of the variables that the inventory sets."""
    sockets: Sockets

    @property
    def cluster_name(self) -> str:
        return str(self.values["cluster_name"])

    @property
    def pair(self) -> str:
        """Empty for a node that has no partner."""
        return str(self.values["pair"])

    @property
    def ha_policy(self) -> str:
        return str(self.values["ha_policy"])

    @property
    def store_kind(self) -> str:
        """The policy without the mark of colocated nodes."""
        return self.ha_policy.removeprefix(COLOCATED)

    @property
    def colocated(self) -> bool:
        """Whether the node hosts backups of other nodes in its process."""
        return self.ha_policy.startswith(COLOCATED)

    @property
    def ha_role(self) -> str:
        return str(self.values["ha_role"])

    @property
    def failback(self) -> bool:
        return bool(self.values["failback"])

    @property
    def lock_manager(self) -> str:
        return str(self.values["lock_manager"])

    @property
    def uses_lock_manager(self) -> bool:
        return self.store_kind == REPLICATION and self.lock_manager != VOTES

    @property
    def lock_manager_properties(self) -> Mapping[str, object]:
        """Given properties, and the file of the secret of a witness."""
        given: Mapping[str, object] = self.values["lock_manager_properties"]
        secret = {"secret-file": f"{self.instance_directory}/etc/witness-secret"}
        return {**(secret if self.lock_manager == "witness" else {}), **given}

    @property
    def lock_service(self) -> dict[str, object]:
        """The lock manager as the module ``lock_manager_info`` takes it, without logins; empty where none is used."""
        if not self.uses_lock_manager:
            return {}
        properties = {name: value for name, value in self.lock_manager_properties.items() if name not in CREDENTIALS}
        return {"manager": self.lock_manager, "properties": properties}

    @property
    def coordination_id(self) -> str:
        """Not empty in a replicated pair of equal primaries."""
        return str(self.values["coordination_id"]) if self.ha_policy == REPLICATION else ""

    @property
    def failure_domain(self) -> str:
        return str(self.values["failure_domain"])

    @property
    def root(self) -> str:
        return str(self.values["root"])

    @property
    def instance_directory(self) -> str:
        return str(self.values["instance_directory"])

    @property
    def store_directory(self) -> str:
        return str(self.values["store_directory"])

    @property
    def unit(self) -> str:
        """Name of the systemd unit."""
        return f"understudy-{self.name}.service"

    @property
    def command(self) -> str:
        """The ``understudy`` command of the current release."""
        return f"{self.root}/current/bin/understudy"

    @property
    def trust_path(self) -> str:
        """File on the host with the certificates that clients trust; empty without one.

        A relative path of a connector begins at ``etc`` of the instance, which is no place that a client knows.
        """
        path = str(self.sockets.connector.parameters.get("trustStorePath", ""))
        return path if not path or path.startswith("/") else f"{self.instance_directory}/etc/{path}"

    @property
    def client_url(self) -> str:
        """URL of this node as clients take it, which know ``&`` only between parameters."""
        connector = self.sockets.connector
        trusted = {"trustStorePath": self.trust_path} if self.trust_path else {}
        return tcp_url(connector.address, connector.port, {**connector.parameters, **trusted}, separator="&")

    @property
    def start_gate(self) -> str:
        """The state to wait for after a start.

        With failback the nodes of a settled pair have their intended roles. Without it, and between equal peers, a
        node that is ready in either state is right, because the active node goes on serving.
        """
        if self.ha_policy == PRIMARY_ONLY or (self.colocated and self.failback):
            return "active"
        if not self.failback or self.coordination_id:
            return "ready"
        return "active" if self.ha_role == PRIMARY else "passive"


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary and its backups. Of equal primaries the first by name counts as the primary."""

    name: str
    primary: str
    backups: tuple[str, ...]
    client_url: str


@dataclass(frozen=True, slots=True)
class Topology:
    """All nodes of the inventory with what follows from them; ``faults`` is empty when it may be deployed."""

    nodes: tuple[Node, ...]
    pairs: tuple[Pair, ...]
    faults: tuple[Fault, ...]

    def peers_of(self, node: Node) -> tuple[Node, ...]:
        """The other members of the node's pair, primaries first, then by name."""
        if not node.pair:
            return ()
        members = [other for other in self.nodes if other.pair == node.pair and other.name != node.name]
        return tuple(sorted(members, key=lambda other: (other.ha_role != PRIMARY, other.name)))

    def store_users(self, node: Node) -> tuple[Node, ...]:
        """Other nodes whose process may open the store of the node: of its pair, or all that may host its backup."""
        if node.store_kind != SHARED_STORE:
            return ()
        if not node.colocated:
            return self.peers_of(node)
        return tuple(other for other in self.cluster_of(node) if other.ha_policy == node.ha_policy)

    def cluster_of(self, node: Node) -> tuple[Node, ...]:
        """Every other node of the same cluster, by name."""
        members = [other for other in self.nodes if other.cluster_name == node.cluster_name and other.name != node.name]
        return tuple(sorted(members, key=lambda other: other.name))

    def as_dict(self) -> dict[str, object]:
        """The whole as plain dicts and lists, for templates."""
        return {
            "nodes": {node.name: self._node_dict(node) for node in self.nodes},
            "pairs": {pair.name: {**asdict(pair), "backups": list(pair.backups)} for pair in self.pairs},
            "clusters": {name: self._cluster_dict(name) for name in sorted({node.cluster_name for node in self.nodes})},
            "faults": [str(fault) for fault in self.faults],
        }

    def _cluster_dict(self, name: str) -> dict[str, object]:
        members = [node for node in self.nodes if node.cluster_name == name]
        groups: dict[str, list[str]] = {}
        for key in ("group_name", "scale_down_group_name"):
            for node in members:
                # the name of a pair is also that of its group, which only replication uses
                if node.values[key] and (key != "group_name" or node.store_kind == REPLICATION):
                    groups.setdefault(str(node.values[key]), []).append(node.name)
        rings: dict[str, list[str]] = {}
        for node in members:
            if node.colocated:
                rings.setdefault(node.ha_policy, []).append(node.name)
        return {
            "members": [node.name for node in members],
            "connectors": {node.name: node.sockets.connector.url for node in members},
            "groups": groups,
            "rings": list(rings.values()),
        }

    def client_url_of(self, node: Node) -> str:
        """What clients connect with: the whole pair, or the node where there is none.

        The place of a colocated backup is learned from the node.
        """
        own = node.client_url
        if node.colocated:
            return f"({own})?ha=true&reconnectAttempts=-1"
        return next((pair.client_url for pair in self.pairs if pair.name == node.pair), own)

    def _node_dict(self, node: Node) -> dict[str, object]:
        core, origins = core_of(node, self.cluster_of(node))
        return {
            **node.values,
            "name": node.name,
            "core": core,
            "origins": origins,
            "client_url": self.client_url_of(node),
            "trust_path": node.trust_path,
            "advertised": node.sockets.connector.place,
            "partners": [other.sockets.connector.place for other in self.peers_of(node)],
            "peers": [other.name for other in self.peers_of(node)],
            "store_peers": [other.name for other in self.peers_of(node) if node.ha_policy == SHARED_STORE],
            "store_users": [other.name for other in self.store_users(node)],
            "hosted_stores": [other.store_directory for other in self.store_users(node) if node.colocated],
            "management_socket": {"address": node.sockets.management_address, "port": node.sockets.management_port},
            "management_url": node.sockets.management_url,
            "endpoints": [
                {"name": f"{node.name} {each.name}", "address": each.advertised, "port": each.port}
                for each in node.sockets.acceptors
                if MEMBERS in each.sources
            ],
            "tls_endpoints": [
                {"name": f"{node.name} {each.name}", "address": each.advertised, "port": each.port}
                for each in node.sockets.acceptors
                if str(each.parameters.get("sslEnabled")).lower() == "true"
            ],
            "lock_service": node.lock_service,
            "command": node.command,
            "start_gate": node.start_gate,
            "throttle": int(any(other.machine == node.machine for other in self.nodes if other is not node)),
            "unit": node.unit,
        }
