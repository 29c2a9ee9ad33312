"""The typical configuration of scale-down with replication: a hosted replica moves the messages of a dead member to its
host, and that member returns without them (ADR 0126).
"""

from __future__ import annotations

import pytest

from support.colocated import backup_of, colocated_members
from support.members import Members, wait_until
from support.nodes import Nodes
from support.processes import Node
from understudy.client.sync import connect

SCALE_DOWN = "<vote-retry-wait>300</vote-retry-wait><scale-down><group-name>boo!</group-name></scale-down>"


@pytest.fixture
def members(nodes: Nodes) -> Members:
    return nodes.keep(colocated_members(nodes.directory, "replication", hosted=SCALE_DOWN)).start()


def wait_backup(node: Node) -> None:
    wait_until(lambda: backup_of(node) is not None, "the node has no backup", node)


def send(node: Node, bodies: list[str]) -> None:
    with connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        producer = session.producer("q")
        for body in bodies:
            producer.send(body)


def receive(node: Node, count: int) -> list[str]:
    """Receive ``count`` messages of the queue, and all others that are there."""
    found: list[str] = []
    with connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        consumer = session.consumer("q")
        while (taken := consumer.receive(30.0 if len(found) < count else 0.5)) is not None:
            found.append(str(taken.text))
            session.acknowledge(taken)
    return found


def test_a_hosted_replica_moves_the_messages_to_its_host_and_its_primary_returns_empty(members: Members) -> None:
    first, second = members.nodes
    for life in (1, 2):
        # the second time, no message may be taken for one of the first time
        wait_backup(first)
        bodies = [f"{life}: {number}" for number in range(60)]
        send(first, bodies)
        first.kill()
        found = receive(second, len(bodies))
        assert sorted(found) == sorted(bodies), second.tail()
        first.start().wait_ready("active")
        assert receive(first, 0) == [], "everything has moved"
        (journal,) = {each.parent for each in first.directory.rglob("oldreplica.*") if "journal" in str(each)}
        assert (journal / f"oldreplica.{life}").is_dir()
    wait_backup(first)
    assert receive(second, 0) == []
    assert second.get("/health/ready")[0] == 200
