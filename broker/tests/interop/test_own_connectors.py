"""Cluster connections with connectors of their own: the stock client, and a cluster with a real Artemis."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.artemis import ArtemisNode
from support.members import depth, url, wait_knows, wait_until
from support.networks_of_two import TwoNetworks, nodes_of
from support.processes import READY_S, Node, invoke
from understudy.client.sync import connect

pytestmark = [pytest.mark.maven, pytest.mark.long]

Java = Callable[..., "subprocess.Popen[str]"]


def seen(java: Java, port: int) -> set[str]:
    """Host and port of the members that a stock client learns at a port."""
    process = java("Members", f"tcp://127.0.0.1:{port}?ha=true", "2")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return {line.removeprefix("member ") for line in output.splitlines() if line.startswith("member ")}


@pytest.mark.feature("useTopologyForLoadBalancing")
def test_a_stock_client_gets_the_topology_of_the_cluster_connection_of_its_acceptor(java: Java, tmp_path: Path) -> None:
    networks = TwoNetworks(tmp_path)
    nodes = nodes_of(networks, tmp_path)
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_ready("active")
        first, second = networks.places()
        assert seen(java, networks.ports[0]) == first
        assert seen(java, networks.second_ports[0]) == second
    finally:
        for node in nodes:
            node.end()


class Mixed:
    """Our node and an Artemis node with two cluster connections, each with connectors and acceptors of its own."""

    def __init__(self, artemis: Path, directory: Path) -> None:
        self.networks = TwoNetworks(directory)
        (self.ours, _) = nodes_of(self.networks, directory)
        text = self.ours.config.read_text()
        parts = text.split("</cluster-connection>")
        assert len(parts) == 3
        named = ("<artemis-members><connector-ref>{}1</connector-ref></artemis-members></cluster-connection>").format
        self.ours.config.write_text(parts[0] + named("n") + parts[1] + named("s") + parts[2])
        nio = "<journal-type>NIO</journal-type><connectors>"
        their_text = self.networks.texts[1].replace("<connectors>", nio, 1)
        self.theirs = ArtemisNode(artemis, directory / "artemis", self.networks.ports[1], their_text)

    def start(self) -> Mixed:
        self.theirs.start()
        self.ours.start().wait_ready("active")
        self.theirs.wait_ready("active")
        return self

    def end(self) -> None:
        self.ours.end()
        self.theirs.end()


@pytest.fixture
def mixed(artemis: Path, tmp_path: Path) -> Iterator[Mixed]:
    made = Mixed(artemis, tmp_path)
    try:
        yield made.start()
    finally:
        made.end()


def their_url(mixed: Mixed) -> str:
    return url(mixed.theirs)  # type: ignore[arg-type]


def places(node: Node, name: str) -> set[str]:
    found = invoke(node, f"clusterconnection.{name}", "getNodes")[1]
    assert isinstance(found, dict)
    return set(found.values())


@pytest.mark.feature("load balancing between members")
def test_artemis_and_this_broker_have_the_same_topologies_and_share_messages(mixed: Mixed, java: Java) -> None:
    """Each cluster connection of both has its own members, and messages go both ways by its connectors."""
    first, second = mixed.networks.places()
    wait_until(
        lambda: (places(mixed.ours, "cluster"), places(mixed.ours, "second")) == (first, second),
        "not all members are known",
        mixed.ours,
    )
    for port, wanted in zip(
        (*mixed.networks.ports, *mixed.networks.second_ports), (first, first, second, second), strict=True
    ):
        assert seen(java, port) == wanted
    wait_knows(mixed.ours, "q2")
    with (
        connect(url(mixed.ours)) as here,
        connect(their_url(mixed)) as there,
        here.session() as ours,
        there.session() as theirs,
    ):
        for source, target in ((ours, theirs), (theirs, ours)):
            producer, consumer = source.producer("q2"), target.consumer("q2")
            # Artemis knows our queue only when its own connection has reported it
            for _ in range(200):
                producer.send("probe")
                if consumer.receive(0.1) is not None:
                    break
            else:
                raise AssertionError("q2 is not balanced")
            other = source.consumer("q2")
            for each in (consumer, other):
                while each.receive(0.5) is not None:
                    pass
            bodies = [f"strict {number}" for number in range(40)]
            for body in bodies:
                producer.send(body)
            taken = [each.receive(READY_S) for each in (consumer, other) for _ in range(20)]
            assert sorted(each.text or "" for each in taken if each is not None) == sorted(bodies)
            consumer.close()
            other.close()
    assert depth(mixed.ours, "q2") == 0
    cluster = mixed.ours.get("/api/v1/cluster")[1]
    assert isinstance(cluster, dict)
    targets = {each["name"].rpartition(".sf.")[2].partition(".")[0]: each["target"] for each in cluster["bridges"]}
    assert targets["second"] == f"tcp://127.0.0.1:{mixed.networks.second_ports[1]}"
