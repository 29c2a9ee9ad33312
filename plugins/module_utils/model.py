"""What the inventory says a cluster is: nodes, pairs, and the faults found in the saying.

Plain frozen records without behaviour beyond their own derived names; ``topology.py`` fills and judges them. Nothing
here knows Ansible, files or the network.
"""

from __future__ import annotations

import ipaddress
from dataclasses import asdict, dataclass

PRIMARY = "primary"
BACKUP = "backup"
ROLES = (PRIMARY, BACKUP)

PRIMARY_ONLY = "primary_only"
SHARED_STORE = "shared_store"
POLICIES = (PRIMARY_ONLY, SHARED_STORE)


def tcp_url(address: str, port: int) -> str:
    """``tcp://`` URL of a broker socket; an IPv6 address gets its brackets."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def http_url(address: str, port: int) -> str:
    """``http://`` URL of a management socket; an IPv6 address gets its brackets."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address; a name is taken as reachable unless it is localhost."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the inventory: which host, which variable, and what to do about it."""

    host: str
    variable: str
    problem: str

    def __str__(self) -> str:
        return f"{self.host}: {self.variable}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Connector:
    """How others reach a node; the name is the inventory name of the node."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Node:
    """One broker process, as the inventory variables of its host describe it."""

    name: str
    """Inventory name of the host; also the broker's name and the name of its connector."""
    cluster_name: str
    pair: str
    """Empty for a node that has no partner."""
    ha_policy: str
    ha_role: str
    failback: bool
    failure_domain: str
    advertise_address: str
    bind_address: str
    port: int
    management_address: str
    management_port: int
    root: str
    instance_directory: str
    store_directory: str
    store_is_given: bool
    """The inventory names the store; False means the default inside the instance directory."""
    uid: int
    """Number of the system user; 0 leaves it to the host."""
    gid: int
    """Number of its group; 0 leaves it to the host."""
    gate_timeout_s: int
    """How long the node may take to reach a state."""
    machine: str
    """Nodes with the same value share one operating system, so their sockets and directories must differ."""

    @property
    def connector(self) -> Connector:
        return Connector(self.name, tcp_url(self.advertise_address, self.port))

    @property
    def acceptor_url(self) -> str:
        return tcp_url(self.bind_address, self.port)

    @property
    def unit(self) -> str:
        """Name of the systemd unit."""
        return f"understudy-{self.name}.service"

    @property
    def management_url(self) -> str:
        return http_url(self.management_address, self.management_port)

    @property
    def management_options(self) -> list[str]:
        """Options of ``understudy run`` for the management interface; leaving the machine takes a word of its own."""
        options = ["--http", self.management_url.removeprefix("http://"), "--http-token-file", self.token_file]
        return options if is_loopback(self.management_address) else [*options, "--http-allow-remote"]

    @property
    def token_file(self) -> str:
        return f"{self.instance_directory}/etc/management.token"

    @property
    def command(self) -> str:
        """The ``understudy`` command of the current release."""
        return f"{self.root}/current/bin/understudy"

    @property
    def start_gate(self) -> str:
        """The state to wait for after a start.

        With failback the intended role is what a settled pair comes back to; without it a node that is ready in
        either state is right, because the active node goes on serving.
        """
        if self.ha_policy == PRIMARY_ONLY:
            return "active"
        if not self.failback:
            return "ready"
        return "active" if self.ha_role == PRIMARY else "passive"


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary and its backups, which share one store."""

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

    def cluster_of(self, node: Node) -> tuple[Node, ...]:
        """Every other node of the same cluster, by name: the static connectors of its cluster connection."""
        members = [other for other in self.nodes if other.cluster_name == node.cluster_name and other.name != node.name]
        return tuple(sorted(members, key=lambda other: other.name))

    def as_dict(self) -> dict[str, object]:
        """The whole as plain dicts and lists, for templates."""
        return {
            "nodes": {node.name: self._node_dict(node) for node in self.nodes},
            "pairs": {pair.name: {**asdict(pair), "backups": list(pair.backups)} for pair in self.pairs},
            "faults": [str(fault) for fault in self.faults],
        }

    def client_url_of(self, node: Node) -> str:
        """What clients connect with: the whole pair, or the node where there is none."""
        return next((pair.client_url for pair in self.pairs if pair.name == node.pair), node.connector.url)

    def _node_dict(self, node: Node) -> dict[str, object]:
        return {
            **asdict(node),
            "client_url": self.client_url_of(node),
            "acceptor_url": node.acceptor_url,
            "connector": asdict(node.connector),
            "remote_connectors": [asdict(other.connector) for other in self.cluster_of(node)],
            "peers": [other.name for other in self.peers_of(node)],
            "management_options": node.management_options,
            "management_url": node.management_url,
            "token_file": node.token_file,
            "command": node.command,
            "start_gate": node.start_gate,
            "unit": node.unit,
        }
