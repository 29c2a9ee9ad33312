"""Cluster connections of one node with connectors of their own, as real processes (ADR 0082)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.members import depth, wait_knows, wait_until
from support.networks_of_two import TwoNetworks, nodes_of
from support.processes import READY_S, Node, invoke
from understudy.client.sync import connect


@pytest.fixture
def networks(tmp_path: Path, request: pytest.FixtureRequest) -> TwoNetworks:
    return TwoNetworks(tmp_path, **getattr(request, "param", {}))


SCALES_DOWN = (
    "<ha-policy><primary-only><scale-down><connectors><connector-ref>n1</connector-ref></connectors></scale-down>"
    "</primary-only></ha-policy>"
)


@pytest.fixture
def nodes(networks: TwoNetworks, tmp_path: Path) -> Iterator[list[Node]]:
    made = nodes_of(networks, tmp_path)
    for node in made:
        node.start()
    for node in made:
        node.wait_ready("active")
    yield made
    for node in made:
        node.end()


def places(node: Node, name: str) -> set[str]:
    """Host and port of the members of a cluster connection."""
    found: Any = invoke(node, f"clusterconnection.{name}", "getNodes")[1]
    return set(found.values())


def connections(node: Node) -> dict[str, Any]:
    found: Any = node.get("/api/v1/cluster")[1]["connections"]
    return {each["name"]: each for each in found}


def wait_members(node: Node, networks: TwoNetworks) -> None:
    first, second = networks.places()
    wait_until(lambda: (places(node, "cluster"), places(node, "second")) == (first, second), "not all known", node)


def known_to_a_client(port: int) -> set[str]:
    """Host and port of the members in the topology that a client gets at a port."""
    with connect(f"tcp://127.0.0.1:{port}") as connection:
        topology = connection._link.core.link.topology
        return {f"{each.primary.host}:{each.primary.port}" for each in topology if each.primary is not None}


def test_clients_get_the_topology_of_the_cluster_connection_of_their_acceptor(
    networks: TwoNetworks, nodes: list[Node]
) -> None:
    for node in nodes:
        wait_members(node, networks)
    first, second = networks.places()
    for number, node in enumerate(nodes):
        assert known_to_a_client(networks.ports[number]) == first
        assert known_to_a_client(networks.second_ports[number]) == second
        found = connections(node)
        assert found["cluster"]["connector"] == f"tcp://127.0.0.1:{networks.ports[number]}"
        assert found["second"]["connector"] == f"tcp://127.0.0.1:{networks.second_ports[number]}"
        assert {each["primary"] for each in found["second"]["members"]} == {f"tcp://{each}" for each in second}


def test_messages_of_each_go_by_its_own_connectors(networks: TwoNetworks, nodes: list[Node]) -> None:
    """``q2`` is STRICT on the second one, ``q`` ON_DEMAND on the first one; each queue is known once."""
    sender, other = nodes
    for queue in ("q", "q2"):
        wait_knows(sender, queue)
    with (
        connect(f"tcp://127.0.0.1:{sender.port}") as here,
        connect(f"tcp://127.0.0.1:{other.port}") as there,
        here.session() as writing,
        there.session() as reading,
    ):
        producer = writing.producer("q2")
        for number in range(20):
            producer.send(f"q2 {number}")
        wait_until(lambda: depth(other, "q2") == 10, "no half of the messages", other)
        assert depth(sender, "q2") == 10
        consumer = reading.consumer("q")
        wait_knows(sender, "q", consumers=1)
        producer = writing.producer("q")
        for number in range(10):
            producer.send(f"q {number}")
        for _ in range(10):
            taken = consumer.receive(READY_S)
            assert taken is not None, sender.tail()
            reading.acknowledge(taken)
        assert consumer.receive_nowait() is None
    cluster: Any = sender.get("/api/v1/cluster")[1]
    assert sorted(each["queue"] for each in cluster["remote_queues"]) == ["q", "q2"]
    targets = {each["name"].rpartition(".sf.")[2].partition(".")[0]: each["target"] for each in cluster["bridges"]}
    first, second = networks.places(1)
    assert targets == {"cluster": f"tcp://{first.pop()}", "second": f"tcp://{second.pop()}"}


def test_a_member_that_was_killed_leaves_both_and_returns_to_both(networks: TwoNetworks, nodes: list[Node]) -> None:
    here, other = nodes
    wait_members(here, networks)
    other.kill()
    first, second = networks.places(0)
    wait_until(lambda: (places(here, "cluster"), places(here, "second")) == (first, second), "not removed", here)
    with connect(f"tcp://127.0.0.1:{here.port}") as connection, connection.session() as session:
        producer = session.producer("q2")
        for number in range(20):
            producer.send(f"q2 {number}")
    waiting = connections(here)["second"]["waiting"]
    assert depth(here, "q2") + waiting == 20
    other.start().wait_ready("active")
    wait_members(here, networks)
    wait_until(lambda: depth(other, "q2") == waiting, "they do not arrive", other)


@pytest.mark.parametrize("networks", [{"discovery": True}], indirect=True)
def test_each_finds_its_members_in_a_discovery_group_of_its_own(networks: TwoNetworks, nodes: list[Node]) -> None:
    for node in nodes:
        wait_members(node, networks)
    found: Any = nodes[0].get("/api/v1/cluster")[1]["discovery"]
    first, second = networks.places(1)
    heard = {each["name"]: [entry["connectors"] for entry in each["entries"]] for each in found}
    assert heard == {
        "groups-of-cluster": [[f"tcp://{first.pop()}"]],
        "groups-of-second": [[f"tcp://{second.pop()}"]],
    }


@pytest.mark.parametrize(
    "networks", [{"count": 3, "extra": lambda number: SCALES_DOWN if number == 0 else ""}], indirect=True
)
def test_messages_of_all_move_when_the_node_is_scaled_down(networks: TwoNetworks, nodes: list[Node]) -> None:
    """Goal: messages of the queues of both, and those that wait for a member that is away, in the queues of both."""
    leaving, target, away = nodes
    for node in nodes:
        wait_members(node, networks)
    for queue in ("q", "q2"):
        wait_knows(leaving, queue, nodes=2)
    with connect(f"tcp://127.0.0.1:{away.port}") as connection, connection.session() as session:
        session.create_queue("sub", address="news", routing="multicast")
    wait_knows(leaving, "sub")
    away.kill()
    with connect(f"tcp://127.0.0.1:{leaving.port}") as connection, connection.session() as session:
        for queue in ("q", "q2", "news"):
            producer = session.producer(queue, routing="multicast" if queue == "news" else "anycast")
            for number in range(30):
                producer.send(f"{queue} {number}")
    assert connections(leaving)["second"]["waiting"] >= 30, "the subscription of the member that is away"
    assert leaving.terminate() == 0, leaving.tail()
    wait_until(lambda: depth(target, "q") == 30, "messages of the first are missing", target)
    away.start().wait_ready("active")
    wait_until(lambda: depth(target, "q2") + depth(away, "q2") == 30, "messages of the second are missing", target)
    wait_until(lambda: depth(away, "sub") == 30, "messages for the member that was away are missing", target)
    leaving.start().wait_ready("active")
    assert depth(leaving, "q") == depth(leaving, "q2") == 0
