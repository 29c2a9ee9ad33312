"""Several cluster connections of one node with different addresses, as real processes (ADR 0075)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.members import Members, depth, url, wait_knows, wait_until
from support.nodes import Nodes
from support.processes import READY_S, Node, invoke
from understudy.client.sync import connect

QUEUES = "".join(
    f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>' for name in ("spread", "kept", "q2")
)
OTHERS = """</cluster-connection>
  <cluster-connection name="strict"><connector-ref>n{number}</connector-ref><address>spread</address>
    <retry-interval>100</retry-interval><message-load-balancing>STRICT</message-load-balancing>{statics}
  </cluster-connection>
  <cluster-connection name="off"><connector-ref>n{number}</connector-ref><address>kept</address>
    <retry-interval>100</retry-interval><message-load-balancing>OFF</message-load-balancing>{statics}
  </cluster-connection></cluster-connections>"""


def members_of(directory: Path, count: int = 2) -> Members:
    """Each with the cluster connections ``cluster`` (all other addresses, ON_DEMAND), ``strict`` and ``off``."""
    members = Members(directory, count, cluster="<address>!spread,!kept</address>")
    for number, node in enumerate(members.nodes):
        refs = "".join(f"<connector-ref>n{other}</connector-ref>" for other in range(count) if other != number)
        others = OTHERS.format(number=number, statics=f"<static-connectors>{refs}</static-connectors>")
        text = node.config.read_text().replace("</cluster-connection></cluster-connections>", others)
        node.config.write_text(text.replace("<addresses>", f"<addresses>{QUEUES}"))
    return members


@pytest.fixture
def make(nodes: Nodes) -> Callable[..., Members]:
    def make(count: int = 2) -> Members:
        return nodes.keep(members_of(nodes.directory, count)).start()

    return make


def connections(node: Node) -> dict[str, Any]:
    """The cluster connections of a node, by name."""
    found: Any = node.get("/api/v1/cluster")[1]["connections"]
    return {each["name"]: each for each in found}


def send(node: Node, queue: str, count: int) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        producer = session.producer(queue)
        for number in range(count):
            producer.send(f"{queue} {number}")


def test_each_address_is_balanced_as_its_cluster_connection_says(make: Callable[..., Members]) -> None:
    """STRICT: half of the messages without a consumer there. OFF: none. ON_DEMAND: with a consumer."""
    first, second = make().nodes
    for queue in ("spread", "kept", "q"):
        wait_knows(first, queue)
    send(first, "spread", 20)
    send(first, "kept", 20)
    wait_until(lambda: depth(second, "spread") == 10, "no half of the messages", second)
    assert (depth(first, "spread"), depth(first, "kept"), depth(second, "kept")) == (10, 20, 0)
    with connect(url(second)) as connection, connection.session() as session:
        consumer = session.consumer("q")
        wait_knows(first, "q", consumers=1)
        send(first, "q", 10)
        for _ in range(10):
            taken = consumer.receive(READY_S)
            assert taken is not None, first.tail()
            session.acknowledge(taken)
        assert consumer.receive_nowait() is None, "each message comes once"
    found = connections(first)
    assert {name: each["message_load_balancing"] for name, each in found.items()} == {
        "cluster": "ON_DEMAND", "strict": "STRICT", "off": "OFF",
    }  # fmt: skip
    assert [found[name]["remote_queues"] for name in ("strict", "off")] == [1, 1]
    wait_until(lambda: connections(first)["strict"]["acknowledged"] == 10, "not confirmed", first)
    assert connections(first)["cluster"]["acknowledged"] == 10
    assert connections(first)["off"]["forwarded"] == 0
    other = second.facts()["node_id"]
    names = {each["name"] for each in first.get("/api/v1/cluster")[1]["bridges"]}  # type: ignore[attr-defined]
    assert {name.rpartition(".sf.")[2] for name in names} == {f"{name}.{other}" for name in found}
    for name, count in (("strict", 10), ("cluster", 10), ("off", 0)):
        resource = f"clusterconnection.{name}"
        assert invoke(first, resource, "getMetrics")[1]["messagesAcknowledged"] == count  # type: ignore[index]
        assert invoke(first, resource, "getName")[1] == name


def test_messages_of_each_wait_for_a_member_that_was_killed(make: Callable[..., Members]) -> None:
    """They are in the store-and-forward queues of their cluster connections, also after a restart of the sender."""
    first, second = make().nodes
    for queue in ("spread", "q"):
        wait_knows(first, queue)
    with connect(url(first)) as connection, connection.session() as session:
        second.kill()
        producer = session.producer("spread")
        for number in range(20):
            producer.send(f"spread {number}")
    here = depth(first, "spread")
    waiting = connections(first)["strict"]["waiting"]
    assert here + waiting == 20
    first.kill()
    first.start().wait_ready("active")
    second.start().wait_ready("active")
    wait_until(lambda: depth(second, "spread") == waiting, "they do not arrive", second)
    assert depth(first, "spread") == here
    wait_knows(first, "spread")
    send(first, "spread", 10)
    wait_until(lambda: depth(second, "spread") + depth(first, "spread") == 30, "messages are missing", second)
    assert depth(second, "spread") == waiting + 5


def test_a_queue_that_moves_to_an_address_of_another_cluster_connection(make: Callable[..., Members]) -> None:
    first, second = make().nodes
    wait_knows(first, "q2")
    assert invoke(second, "broker", "destroyQueue", "q2")[0] == 200
    configuration = '{"name": "q2", "address": "spread", "routing-type": "MULTICAST"}'
    assert invoke(second, "broker", "updateAddress", "spread", "ANYCAST,MULTICAST")[0] == 200
    assert invoke(second, "broker", "createQueue", configuration)[0] == 200

    def through() -> set[str]:
        known: Any = first.get("/api/v1/cluster")[1]["remote_queues"]
        return {each["through"].rpartition(".sf.")[2].partition(".")[0] for each in known if each["queue"] == "q2"}

    wait_until(lambda: through() == {"strict"}, "it is not known at its new address", first)


def test_direct_connections_only_of_one_of_several(tmp_path: Path) -> None:
    """Messages of ``strict`` go to its static connector only; those of the others go to all members."""
    members = members_of(tmp_path, 3)
    first, second, third = members.nodes
    text = first.config.read_text()
    before = "<static-connectors><connector-ref>n1</connector-ref><connector-ref>n2</connector-ref>"
    direct = '<static-connectors allow-direct-connections-only="true"><connector-ref>n1</connector-ref>'
    head, strict = text.split('<cluster-connection name="strict">')
    assert before in strict
    first.config.write_text(f'{head}<cluster-connection name="strict">{strict.replace(before, direct, 1)}')
    try:
        members.start()
        wait_knows(first, "q", nodes=2)
        wait_knows(first, "spread")
        found = connections(first)
        others = {node.facts()["node_id"] for node in (second, third)}
        assert set(found["cluster"]["nodes"]) == set(found["off"]["nodes"]) == others
        assert found["strict"]["nodes"] == [second.facts()["node_id"]]
        send(first, "spread", 20)
        wait_until(lambda: depth(second, "spread") == 10, "no half of the messages", second)
        assert (depth(first, "spread"), depth(third, "spread")) == (10, 0)
    finally:
        members.end()
