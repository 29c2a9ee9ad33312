"""Scale-down of our node to an Artemis broker, and of that to our node (docs/operate/scale-down.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.artemis import ArtemisNode
from support.members import members_xml, wait_knows, wait_until
from support.processes import READY_S, Node
from understudy.client.sync import connect

pytestmark = [pytest.mark.maven, pytest.mark.long]


def scale_down(name: str) -> str:
    """The HA policy of a node that moves its messages to the connector of this name."""
    connectors = f"<connectors><connector-ref>{name}</connector-ref></connectors>"
    return f"<ha-policy><primary-only><scale-down>{connectors}</scale-down></primary-only></ha-policy>"


class Mixed:
    """Our node ``ours`` and the Artemis node ``theirs``; each moves its messages to the other one."""

    def __init__(self, artemis: Path, directory: Path) -> None:
        (port, text), (their_port, their_text) = members_xml(
            directory, 2, extra=lambda number: scale_down(f"n{1 - number}")
        )
        theirs = "<artemis-members><connector-ref>n1</connector-ref></artemis-members></cluster-connection>"
        self.ours = Node(directory / "n0", "primary", port)
        self.ours.config.parent.mkdir(parents=True)
        self.ours.config.write_text(text.replace("</cluster-connection>", theirs))
        nio = "<journal-type>NIO</journal-type>"
        their_text = their_text.replace("<connectors>", nio + "<connectors>", 1)
        self.theirs = ArtemisNode(artemis, directory / "instance", their_port, their_text)


@pytest.fixture
def mixed(artemis: Path, tmp_path: Path) -> Iterator[Mixed]:
    """A mixed cluster, ended after the test."""
    made = Mixed(artemis, tmp_path)
    made.theirs.start()
    made.ours.start().wait_ready("active")
    made.theirs.wait_ready("active")
    yield made
    made.ours.end()
    made.theirs.end()


def at(port: int) -> str:
    return f"tcp://127.0.0.1:{port}?initialConnectAttempts=-1&retryInterval=100&useTopologyForLoadBalancing=false"


LARGE = bytes(range(256)) * 2_000


def fill(port: int) -> None:
    """A queue with messages of several kinds, and two subscriptions of one address."""
    with connect(at(port)) as connection, connection.session() as session:
        session.create_queue("one", address="news", routing="multicast")
        session.create_queue("two", address="news", routing="multicast", filter="n = 1")
        producer = session.producer("orders")
        for number in range(50):
            producer.send(f"order {number}", priority=4)
        producer.send(LARGE)
        producer.send("later", delay_s=10)
        news = session.producer("news", routing="multicast")
        for number in range(10):
            news.send(f"item {number}", properties={"n": number % 2})


def check(port: int) -> None:
    """Everything that ``fill`` sent is there, once."""
    with connect(at(port)) as connection, connection.session() as session:
        consumer = session.consumer("orders")
        taken = [each for _ in range(52) if (each := consumer.receive(READY_S)) is not None]
        assert [each.text for each in taken[:50]] == [f"order {number}" for number in range(50)]
        assert LARGE in [each.message.body for each in taken[50:]]
        assert "later" in [each.text for each in taken[50:] if each.message.body != LARGE]
        assert consumer.receive(timeout_s=0.5) is None
        for name, wanted in (("one", range(10)), ("two", range(1, 10, 2))):
            items = session.consumer(name, routing="multicast")
            got = [each for _ in wanted if (each := items.receive(READY_S)) is not None]
            assert [each.text for each in got] == [f"item {number}" for number in wanted]
            assert items.receive(timeout_s=0.5) is None


@pytest.mark.feature("scale-down: consumers follow, messages to and from Artemis")
def test_our_node_is_scaled_down_to_an_artemis(mixed: Mixed) -> None:
    wait_knows(mixed.ours, "q", nodes=1)
    fill(mixed.ours.port)
    assert mixed.ours.terminate() == 0, mixed.ours.tail()
    assert '"scaled down"' in mixed.ours.log.read_text(), mixed.ours.tail()
    check(mixed.theirs.port)


@pytest.mark.feature("scale-down: consumers follow, messages to and from Artemis")
def test_an_artemis_is_scaled_down_to_our_node(mixed: Mixed) -> None:
    wait_knows(mixed.ours, "q", nodes=1)
    fill(mixed.theirs.port)
    mixed.theirs.terminate()
    wait_until(lambda: "was scaled down to this one" in mixed.ours.log.read_text(), "not scaled down", mixed.ours)
    check(mixed.ours.port)
