"""pika learns of the other nodes of a cluster and goes on at one of them, while nodes are killed (ADR 0194)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]  # has no types
import pytest

from support.members import third_of
from support.pika_clients import connected, connected_again
from support.processes import Node, Pair


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Pair, Node]]:
    """A pair and a third node."""
    pair = Pair(tmp_path / "pair")
    third = third_of(pair, tmp_path)
    try:
        pair.start()
        third.start().wait_ready("active")
        yield pair, third
    finally:
        pair.end()
        third.end()


def ports_of(connection: pika.BlockingConnection) -> list[int]:
    """Ports of the list in connection.open-ok, of which pika keeps the text."""
    text = connection._impl.known_hosts
    return [int(each.rpartition(":")[2]) for each in text.split(",") if each]


def awaited(channel: Any, queue: str, ports: set[int]) -> None:
    """The next lists of a queue until one names these ports; versions grow."""
    last = 0
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=60):
        assert method is not None, "no list came"
        headers = properties.headers
        assert body == b""
        assert headers["qpid.cluster.version"] > last
        last = headers["qpid.cluster.version"]
        if {int(each.rpartition(":")[2]) for each in headers["qpid.known.hosts.list"]} == ports:
            break
    channel.cancel()


@pytest.mark.feature("AMQP 0-9-1: known hosts and amq.qpid")
def test_a_client_that_knows_one_node_goes_on_at_the_listed_ones(cluster: tuple[Pair, Node]) -> None:
    pair, third = cluster
    primary, backup = pair.primary.port, pair.backup.port
    connection = connected(primary)
    channel = connection.channel()
    channel.queue_declare("hosts", durable=True)
    channel.queue_bind("hosts", "amq.qpid", "cluster")
    awaited(channel, "hosts", {backup, third.port})
    connection.close()
    connection = connected(primary)
    listed = ports_of(connection)
    assert listed == [backup, third.port]

    pair.primary.kill()
    connection = connected_again(*listed[:1])
    channel = connection.channel()
    # the queue is durable, and its binding brings the list of the node that has taken over
    awaited(channel, "hosts", {third.port})
    connection.close()

    connection = connected(third.port)
    channel = connection.channel()
    channel.queue_declare("hosts of the third", exclusive=True)
    channel.queue_bind("hosts of the third", "amq.qpid", "cluster")
    awaited(channel, "hosts of the third", {backup})
    connection.close()
    pair.backup.kill()
    connection = connected(third.port)
    channel = connection.channel()
    channel.queue_declare("hosts of the last", exclusive=True)
    channel.queue_bind("hosts of the last", "amq.qpid", "cluster")
    awaited(channel, "hosts of the last", set())
    connection.close()
