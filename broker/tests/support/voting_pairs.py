"""Real broker processes of replicated pairs without a lock manager, in one cluster: the active nodes vote."""

from __future__ import annotations

from pathlib import Path

from support.networks import Network
from support.ports import free_port
from support.processes import Node
from support.replicated import XML, wait_in_sync

#: Short times, so that a lost connection and a lost vote are noticed soon.
VOTES = "<vote-retries>20</vote-retries><vote-retry-wait>250</vote-retry-wait><quorum-vote-wait>5</quorum-vote-wait>"


class VotingPairs:
    """Pairs ``1``, ``2`` … of a primary and a backup each; every node knows the connectors of all others."""

    def __init__(
        self,
        directory: Path,
        *,
        pairs: int = 3,
        allow_failback: bool = True,
        primary: str = "",
        both: str = "",
        connection_ttl_ms: int = 60_000,
        call_timeout_ms: int = 30_000,
        network: Network | None = None,
        acceptor: str = "",
        connector: str = "",
    ) -> None:
        """Args:
        directory: Scratch directory.
        pairs: Number of pairs.
        allow_failback: Whether the backups give the service back to a returned primary.
        primary: More elements of the primaries.
        both: More elements of the primaries and the backups.
        network: Has the hosts ``primary`` and ``backup``, of the first pair, and ``third``, of all others; None: all
            are on loopback.
        connection_ttl_ms: Silence after which a connection between the nodes is closed.
        call_timeout_ms: Longest time without progress of a replica.
        acceptor: More of the URL of each acceptor.
        connector: More of the URL of each connector.
        """
        names = [f"{role}{number}" for number in range(1, pairs + 1) for role in ("primary", "backup")]
        ports = {name: free_port() for name in names}
        places = {name: {"primary1": "primary", "backup1": "backup"}.get(name, "third") for name in names}
        hosts = {name: network.address(places[name]) if network is not None else "127.0.0.1" for name in names}
        connectors = "".join(
            f'<connector name="{name}">tcp://{hosts[name]}:{ports[name]}{connector}</connector>' for name in names
        )
        self.nodes: dict[str, Node] = {}
        for name in names:
            role = name.rstrip("0123456789")
            node = Node(directory / name, role, ports[name], hosts[name])
            if network is not None:
                node.command = (*network.command(places[name]), *node.command)
            node.config.parent.mkdir(parents=True)
            settings = f"{VOTES}{both}<group-name>pair{name[len(role) :]}</group-name>"
            settings += (
                f"<allow-failback>{str(allow_failback).lower()}</allow-failback>" if role == "backup" else primary
            )
            text = XML.format(
                name=name,
                host=node.host,
                acceptor=acceptor,
                extra="",
                store=node.directory / "data",
                connectors=connectors,
                port=node.port,
                call_timeout_ms=call_timeout_ms,
                connection_ttl_ms=connection_ttl_ms,
                others="".join(f"<connector-ref>{other}</connector-ref>" for other in names if other != name),
                role=role,
                manager="",
                settings=settings,
            )
            node.config.write_text(text.replace("<manager></manager>", ""))
            self.nodes[name] = node
        servers = ",".join(f"tcp://{hosts[name]}:{ports[name]}" for name in ("primary1", "backup1"))
        self.url = f"({servers})?ha=true&reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def start(self) -> VotingPairs:
        """Start all nodes; returns when every backup is in sync."""
        for name, node in self.nodes.items():
            node.start()
            if name.startswith("primary"):
                node.wait_ready("active")
        for name, node in self.nodes.items():
            if name.startswith("backup"):
                wait_in_sync(self.nodes[name.replace("backup", "primary")], node)
        return self

    def end(self) -> None:
        """End every process."""
        for node in self.nodes.values():
            node.end()
