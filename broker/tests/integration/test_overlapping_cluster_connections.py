"""Cluster connections of one node that take the same addresses, or whose connectors lead to one acceptor, as real
processes (ADR 0136).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.members import depth, url, wait_knows, wait_until
from support.networks_of_two import TwoNetworks, nodes_of
from support.processes import READY_S, Node
from understudy.client.sync import Consumer, Session, connect

COUNT = 20


def without_addresses(text: str) -> str:
    """A broker.xml in which both cluster connections take all addresses."""
    return text.replace("<address>!news,!q2</address>", "").replace("<address>news,q2</address>", "")


def with_one_acceptor(networks: TwoNetworks, text: str) -> str:
    """A broker.xml in which the connectors of both cluster connections lead to the acceptor ``core``."""
    for number, (port, second) in enumerate(zip(networks.ports, networks.second_ports, strict=True)):
        acceptor = f'<acceptor name="second">tcp://127.0.0.1:{second}?clusterConnection=second</acceptor>'
        connector = f'<connector name="s{number}">tcp://127.0.0.1:'
        text = text.replace(acceptor, "").replace(f"{connector}{second}", f"{connector}{port}")
    return text


@pytest.fixture
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Node]]:
    networks = TwoNetworks(tmp_path)
    if "overlap" in request.param:
        networks.texts = [without_addresses(text) for text in networks.texts]
    if "one acceptor" in request.param:
        networks.texts = [with_one_acceptor(networks, text) for text in networks.texts]
    made = nodes_of(networks, tmp_path)
    try:
        for node in made:
            node.start()
        for node in made:
            node.wait_ready("active")
        yield made
    finally:
        for node in made:
            node.end()


def cluster(node: Node) -> Any:
    return node.get("/api/v1/cluster")[1]


def received(session: Session, consumer: Consumer, count: int, node: Node) -> list[str]:
    """The texts of so many messages; fails if there is one more."""
    texts = []
    for _ in range(count):
        message = consumer.receive(READY_S)
        assert message is not None, node.tail()
        texts.append(str(message.text))
        session.acknowledge(message)
    assert consumer.receive(0.3) is None, "a message came twice"
    return texts


@pytest.mark.parametrize("nodes", ["overlap", "overlap, one acceptor", "one acceptor"], indirect=True)
def test_a_message_has_one_way_to_a_queue_of_another_member(nodes: list[Node]) -> None:
    """Also after a kill of the other member."""
    here, there = nodes
    for restarted in (False, True):
        if restarted:
            there.kill()
            there.start().wait_ready("active")
        with ExitStack() as stack:
            writing = stack.enter_context(stack.enter_context(connect(url(here))).session())
            reading = stack.enter_context(stack.enter_context(connect(url(there))).session())
            topic = reading.consumer("news::subscription", routing="multicast")
            queue = reading.consumer("q")
            wait_knows(here, "subscription", consumers=1)
            wait_knows(here, "q", consumers=1)
            for address, consumer in (("news", topic), ("q", queue)):
                wanted = [f"{address} {restarted} {number}" for number in range(COUNT)]
                producer = writing.producer(address, routing="multicast" if address == "news" else "anycast")
                for text in wanted:
                    producer.send(text)
                assert sorted(received(reading, consumer, COUNT, here)) == sorted(wanted)
    known = [each["queue"] for each in cluster(here)["remote_queues"]]
    assert sorted(known) == sorted(set(known))


@pytest.mark.parametrize("nodes", ["one acceptor"], indirect=True)
def test_cluster_connections_with_one_acceptor_share_topology_and_keep_their_balancing(nodes: list[Node]) -> None:
    here, there = nodes
    wait_knows(here, "q2")
    found = {each["name"]: each for each in cluster(here)["connections"]}
    assert found["cluster"]["connector"] == found["second"]["connector"] == f"tcp://127.0.0.1:{here.port}"
    assert found["second"]["message_load_balancing"] == "STRICT"
    with connect(url(here)) as connection, connection.session() as session:
        producer = session.producer("q2")
        for number in range(COUNT):
            producer.send(f"q2 {number}")
    wait_until(lambda: depth(there, "q2") == COUNT // 2, "no half of the messages", there)
    assert "shares links, topology and connector" in here.log.read_text()
