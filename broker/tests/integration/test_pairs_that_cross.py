"""Two replicated pairs of one cluster without group-names, as real processes: a primary keeps its store (ADR 0119)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import forked
from support.ports import free_port
from support.processes import COMMAND, Node
from support.replicated import XML, property_of, wait_in_sync, wait_until


class Cluster:
    """Primaries ``east1`` and ``west1`` with the backups ``east2`` and ``west2``."""

    def __init__(self, directory: Path, seeds: dict[str, list[str]]) -> None:
        """``seeds``: the static connectors of each node."""
        locks = directory / "locks"
        locks.mkdir()
        ports = {name: free_port() for name in seeds}
        connectors = "".join(
            f'<connector name="{name}">tcp://127.0.0.1:{port}</connector>' for name, port in ports.items()
        )
        folder = property_of("locks-folder", locks)
        self.nodes: dict[str, Node] = {}
        for name, others in seeds.items():
            role = "primary" if name.endswith("1") else "backup"
            node = self.nodes[name] = Node(directory / name, role, ports[name])
            node.config.parent.mkdir(parents=True)
            node.config.write_text(
                XML.format(
                    name=name,
                    store=directory / name / "store",
                    connectors=connectors,
                    host="127.0.0.1",
                    port=ports[name],
                    acceptor="",
                    connection_ttl_ms=60_000,
                    call_timeout_ms=30_000,
                    others="".join(f"<connector-ref>{each}</connector-ref>" for each in others),
                    role=role,
                    manager=f"<class-name>file</class-name><properties>{folder}</properties>",
                    settings="<allow-failback>true</allow-failback>" if role == "backup" else "",
                    extra="",
                )
            )

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def end(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.kill()


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Cluster]:
    """Every node names all others, as the collection writes it."""
    names = ("east1", "east2", "west1", "west2")
    cluster = Cluster(tmp_path, {name: [each for each in names if each != name] for name in names})
    yield cluster
    cluster.end()


def node_id(node: Node) -> object:
    return node.facts()["node_id"]


def test_a_roll_over_pairs_with_exchanged_backups_leaves_each_primary_its_store(four: Cluster) -> None:
    east, west = four["east1"].start(), four["west1"].start()
    for primary in (east, west):
        primary.wait_ready("active")
    own = {east: node_id(east), west: node_id(west)}
    # the backup of one pair registers while only the other primary has a free place
    for backup, taken in ((four["west2"], east), (four["east2"], west)):
        other = west if taken is east else east
        other.terminate()
        backup.start()
        wait_in_sync(taken, backup)
        other.start().wait_ready("active")
    # a rolling restart stops the nodes that the inventory calls a pair, and starts the primary first
    for primary, backup in ((east, four["east2"]), (west, four["west2"])):
        backup.terminate()
        primary.terminate()
        primary.start()
        backup.start()
    for primary in (east, west):
        primary.wait_ready("active")
        assert node_id(primary) == own[primary]
    wait_until(lambda: all(each.facts()["peer"] is not None for each in (east, west)), "a replica at both primaries")
    assert {node_id(east), node_id(west)} == set(own.values())
    warning = "two replicated pairs of this cluster have no group-name"
    assert any(warning in each.log.read_text() for each in (east, west))

    def problems() -> set[str]:
        command = [str(COMMAND), "cluster", "check", "--instance", str(east.directory), "--json"]
        checked = forked.run(command, capture_output=True, text=True, timeout=60)
        return {each["code"] for each in json.loads(checked.stdout)["problems"]}

    # the other primary, which has just started again, has to be in the topology
    wait_until(lambda: "pairs-without-group-name" in problems(), "the problem of pairs without group names")


def test_a_node_that_names_only_a_seed_of_another_pair_finds_its_partner(tmp_path: Path) -> None:
    """A node with a lock manager finds the active node of its own pair in the topology of the seed."""
    cluster = Cluster(tmp_path, {"east1": ["west1"], "east2": ["west1"], "west1": ["east1"]})
    try:
        east, backup, seed = cluster["east1"], cluster["east2"], cluster["west1"]
        for node in cluster.nodes.values():
            text = node.config.read_text()
            group = "<group-name>east</group-name>" if node is not seed else "<group-name>west</group-name>"
            node.config.write_text(text.replace("<retry-replication-wait>", f"{group}<retry-replication-wait>"))
        east.start().wait_ready("active")
        seed.start().wait_ready("active")
        backup.start()
        wait_in_sync(east, backup)
        # the backup serves alone, and the returning primary finds it
        east.kill()
        backup.wait_ready("active")
        east.start().wait_ready("active")
        assert "set the activation sequence" not in east.tail()
    finally:
        cluster.end()
