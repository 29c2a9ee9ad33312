"""Core bridges between our node and a real Artemis, in both directions, with the same ``bridges`` in both files."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.artemis import ArtemisNode
from support.management_driver import ManagementDriver
from support.members import Traffic, url, wait_until
from support.ports import free_port
from support.processes import COMMAND, READY_S, Node
from support.targets import PASSWORD, USER
from understudy.client.sync import Connection, connect
from understudy.terms import ADD_HEADERS_TRANSFORMER

pytestmark = pytest.mark.maven

_XML = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{name}</name>
    <security-enabled>true</security-enabled>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>
    <journal-type>NIO</journal-type>
    <cluster-user>cluster</cluster-user>
    <cluster-password>a-secret-of-this-test</cluster-password>
    <connectors>
      <connector name="nothing">tcp://127.0.0.1:{free}</connector>
      <connector name="own">tcp://127.0.0.1:{port}</connector>
      <connector name="other">tcp://127.0.0.1:{other}</connector>
    </connectors>
    <acceptors><acceptor name="core">tcp://127.0.0.1:{port}</acceptor></acceptors>
    {groups}
    <bridges>{bridges}</bridges>
    <security-settings><security-setting match="#">
      <permission type="send" roles="everything"/><permission type="consume" roles="everything"/>
      <permission type="browse" roles="everything"/><permission type="manage" roles="everything"/>
      <permission type="createAddress" roles="everything"/><permission type="createDurableQueue" roles="everything"/>
      <permission type="createNonDurableQueue" roles="everything"/>
    </security-setting></security-settings>
    <addresses>
      <address name="q"><anycast><queue name="q"/></anycast></address>
      <address name="in"><anycast><queue name="in"/></anycast></address>
      <address name="topic"><multicast><queue name="subscription"/></multicast></address>
    </addresses>
    <address-settings><address-setting match="full">
      <max-size-bytes>100K</max-size-bytes><address-full-policy>BLOCK</address-full-policy>
    </address-setting></address-settings>
  </core>
</configuration>
"""
LOGIN = f"<user>{USER}</user><password>{PASSWORD}</password>"
STATIC = (
    "<static-connectors><connector-ref>nothing</connector-ref><connector-ref>other</connector-ref></static-connectors>"
)
PLAIN = f"<queue-name>q</queue-name><retry-interval>100</retry-interval>{LOGIN}{STATIC}"
EVERYTHING = f"""<queue-name>q</queue-name><forwarding-address>in</forwarding-address><ha>true</ha>
<filter string="n &lt; 90"/>
<transformer><class-name>{ADD_HEADERS_TRANSFORMER}</class-name><property key="by" value="a bridge"/></transformer>
<min-large-message-size>20000</min-large-message-size><check-period>5000</check-period>
<connection-ttl>10000</connection-ttl><retry-interval>100</retry-interval>
<retry-interval-multiplier>1.5</retry-interval-multiplier><max-retry-interval>500</max-retry-interval>
<initial-connect-attempts>-1</initial-connect-attempts><reconnect-attempts>-1</reconnect-attempts>
<use-duplicate-detection>true</use-duplicate-detection><confirmation-window-size>50000</confirmation-window-size>
<producer-window-size>30000</producer-window-size>{LOGIN}
<reconnect-attempts-same-node>2</reconnect-attempts-same-node><routing-type>PASS</routing-type>
<concurrency>2</concurrency>{STATIC}"""


def bridge(inside: str) -> str:
    return f'<bridge name="b">{inside}</bridge>'


@dataclass
class Both:
    """Our node and an Artemis, one of which has the bridge."""

    ours: Node
    theirs: ArtemisNode
    source: Node | ArtemisNode
    target: Node | ArtemisNode

    def end(self) -> None:
        self.ours.end()
        self.theirs.end()


Make = Callable[..., Both]
DIRECTIONS = pytest.mark.parametrize("target", ["artemis", "understudy"])


@pytest.fixture
def make_both(artemis: Path, tmp_path: Path) -> Iterator[Make]:
    """Make both brokers with these bridges at the source, start them, and end them after the test."""
    made: list[Both] = []

    def make(target: str, bridges: str = "", groups: dict[str, str] | None = None) -> Both:
        ports = {"understudy": free_port(), "artemis": free_port()}
        texts = {}
        for name, other in (("understudy", "artemis"), ("artemis", "understudy")):
            texts[name] = _XML.format(
                name=name, store=tmp_path / name / "data", port=ports[name], other=ports[other], free=free_port(),
                bridges="" if name == target else bridges, groups=(groups or {}).get(name, ""),
            )  # fmt: skip
        ours = Node(tmp_path / "understudy", "primary", ports["understudy"])
        ours.config.parent.mkdir(parents=True)
        ours.config.write_text(texts["understudy"])
        hashed = subprocess.run(
            [str(COMMAND), "user", "hash", USER], input=f"{PASSWORD}\n", capture_output=True, text=True, check=True
        )
        (ours.config.parent / "artemis-users.properties").write_text(hashed.stdout)
        (ours.config.parent / "artemis-roles.properties").write_text("everything = bob\n")
        theirs = ArtemisNode(artemis, tmp_path / "instance", ports["artemis"], texts["artemis"], security=True)
        pair = (ours, theirs) if target == "artemis" else (theirs, ours)
        both = Both(ours, theirs, *pair)
        made.append(both)
        theirs.start()
        ours.start().wait_ready("active")
        theirs.wait_ready("active")
        return both

    yield make
    for each in made:
        each.end()


def client(node: Node | ArtemisNode) -> Connection:
    return connect(url(node), user=USER, password=PASSWORD)  # type: ignore[arg-type]


def send(node: Node | ArtemisNode, count: int, *, address: str = "q", routing: str = "anycast") -> None:
    with client(node) as connection, connection.session() as session:
        producer = session.producer(address, routing=routing)
        for number in range(count):
            producer.send(f"message {number}", properties={"n": number}, priority=number % 10)


def receive(node: Node | ArtemisNode, queue: str, count: int, **options: Any) -> list[Any]:
    """Receive ``count`` messages of a queue, and check that there are no more within half a second."""
    with client(node) as connection, connection.session() as session:
        consumer = session.consumer(queue, **options)
        found = [consumer.receive(READY_S) for _ in range(count)]
        assert None not in found, f"{sum(each is not None for each in found)} of {count}: {node.tail()}"
        assert consumer.receive(0.5) is None
        return found


@DIRECTIONS
@pytest.mark.feature("core bridges")
def test_a_bridge_with_every_element(make_both: Make, target: str) -> None:
    both = make_both(target, bridge(EVERYTHING))
    send(both.source, 100)
    found = receive(both.target, "in", 90)
    assert sorted(each.properties["n"] for each in found) == list(range(90))
    assert {each.properties["by"] for each in found} == {"a bridge"}
    assert all(each.message.priority == each.properties["n"] % 10 for each in found)
    left = receive(both.source, "q", 10)
    assert sorted(each.properties["n"] for each in left) == list(range(90, 100))


@pytest.mark.long
@DIRECTIONS
@pytest.mark.feature("core bridges")
def test_large_messages_travel_whole(make_both: Make, target: str) -> None:
    both = make_both(target, bridge(PLAIN))
    bodies = [bytes([number]) * size for number, size in enumerate((10, 90_000, 150_000, 2_000_000, 5_000_001))]
    with client(both.source) as connection, connection.session() as session:
        producer = session.producer("q", routing="anycast")
        for number, body in enumerate(bodies):
            producer.send(body, properties={"n": number})
    with client(both.target) as connection, connection.session() as session:
        consumer = session.consumer("q")
        for number, body in enumerate(bodies):
            found = consumer.receive(READY_S)
            assert found is not None, number
            assert found.properties["n"] == number
            assert found.read_body() == body
        assert consumer.receive(0.5) is None


@pytest.mark.long
@DIRECTIONS
@pytest.mark.feature("core bridges")
@pytest.mark.parametrize("routing_type", ["STRIP", "MULTICAST"])
def test_a_bridge_gives_the_routing_type(make_both: Make, target: str, routing_type: str) -> None:
    inside = PLAIN.replace("<retry-interval>", "<forwarding-address>topic</forwarding-address><retry-interval>", 1)
    inside = inside.replace("<static", f"<routing-type>{routing_type}</routing-type><static")
    both = make_both(target, bridge(inside))
    send(both.source, 5)
    found = receive(both.target, "subscription", 5, routing="multicast")
    assert sorted(each.properties["n"] for each in found) == list(range(5))


@pytest.mark.long
@DIRECTIONS
@pytest.mark.feature("core bridges")
def test_without_duplicate_detection_everything_arrives(make_both: Make, target: str) -> None:
    detection = "<use-duplicate-detection>false</use-duplicate-detection><user>"
    both = make_both(target, bridge(PLAIN.replace("<user>", detection)))
    send(both.source, 200)
    assert sorted(each.properties["n"] for each in receive(both.target, "q", 200)) == list(range(200))


@pytest.mark.long
@DIRECTIONS
@pytest.mark.feature("core bridges")
def test_a_full_address_at_the_target_holds_the_bridge_back(make_both: Make, target: str) -> None:
    """The target has 100 KiB for the address; the bridge waits for credit, and goes on when messages are taken."""
    inside = PLAIN.replace("<retry-interval>", "<forwarding-address>full</forwarding-address><retry-interval>", 1)
    inside = inside.replace("<user>", "<producer-window-size>10000</producer-window-size><user>")
    both = make_both(target, bridge(inside))
    with client(both.target) as connection, connection.session() as session:
        session.create_queue("full", address="full", routing="anycast")
    with client(both.source) as connection, connection.session() as session:
        producer = session.producer("q", routing="anycast")
        for number in range(300):
            producer.send(b"x" * 1_000, properties={"n": number})
    if both.source is both.ours:

        def explained() -> bool:
            status, found = both.ours.get("/api/v1/queues/q/explain")
            return status == 200 and "bridge-credit" in json.dumps(found["reasons"])

        wait_until(explained, "the bridge does not say that it waits for credit", both.ours)
    assert sorted(each.properties["n"] for each in receive(both.target, "full", 300)) == list(range(300))


@pytest.mark.long
@DIRECTIONS
@pytest.mark.feature("core bridges")
def test_kills_of_both_brokers_lose_and_double_nothing(make_both: Make, tmp_path: Path, target: str) -> None:
    both = make_both(target, bridge(PLAIN))
    login = "&user=bob&password=secret%20of%20bob"
    traffic = Traffic(tmp_path, url(both.source) + login, url(both.target) + login, 3_000)  # type: ignore[arg-type]
    try:
        for count, node in ((500, both.target), (1_200, both.source), (2_000, both.target)):
            wait_until(lambda count=count: traffic.confirmed() >= count, "nothing is confirmed", both.ours)  # type: ignore[misc]
            node.kill()
            node.start()
            node.wait_ready("active")
        traffic.finish()
    finally:
        traffic.end()


@pytest.mark.long
@pytest.mark.feature("core bridges")
def test_artemis_finds_our_broker_in_a_discovery_group(make_both: Make) -> None:
    port = free_port()
    at = (
        "<local-bind-address>127.0.0.1</local-bind-address><group-address>231.7.7.7</group-address>"
        f"<group-port>{port}</group-port>"
    )
    ours = (
        f"<broadcast-groups><broadcast-group name='b'>{at}<broadcast-period>200</broadcast-period>"
        "<connector-ref>own</connector-ref></broadcast-group></broadcast-groups>"
    )
    theirs = f"<discovery-groups><discovery-group name='d'>{at}</discovery-group></discovery-groups>"
    inside = PLAIN.replace(STATIC, "<discovery-group-ref discovery-group-name='d'/>")
    both = make_both("understudy", bridge(inside), {"understudy": ours, "artemis": theirs})
    send(both.theirs, 20)
    assert sorted(each.properties["n"] for each in receive(both.ours, "q", 20)) == list(range(20))


@pytest.mark.long
@pytest.mark.feature("core bridges")
def test_the_same_requests_make_bridges_at_both(make_both: Make) -> None:
    both = make_both("artemis")
    login = {"user": USER, "password": PASSWORD}
    values = {"name": "j", "queue-name": "q", "forwarding-address": "in", "retry-interval": 100,
              "static-connectors": ["other"], "concurrency": 1, "ha": False} | login  # fmt: skip
    retries = (100, 1.0, -1, -1, True, 1024 * 1024)
    rest = (30_000, "other", False, False, USER, PASSWORD)
    attributes = ("Name", "QueueName", "ForwardingAddress", "FilterString", "StaticConnectors", "RetryInterval",
                  "ReconnectAttempts", "UseDuplicateDetection", "HA")  # fmt: skip
    seen = []
    for node in (both.ours, both.theirs):
        with client(node) as connection:
            asking = ManagementDriver(connection)
            for parameters in (
                (json.dumps(values),),
                ("p", "q", "in", "n = 1", None, *retries, 1_048_576, *rest),
                ("t", "q", "in", None, ADD_HEADERS_TRANSFORMER, '{"k": "v"}', *retries, 1_048_576, *rest),
                ("w", "q", "in", None, None, *retries, *rest),
            ):
                reply = asking.operation("broker", "createBridge", *parameters)
                assert reply.succeeded, (node, parameters, reply)
            values_of = [
                [asking.attribute(f"bridge.{name}", attribute).value for attribute in attributes] for name in "jptw"
            ]
            assert asking.operation("broker", "destroyBridge", "j").succeeded
            names = sorted(asking.attribute("broker", "BridgeNames").value)
            seen.append((values_of, names))
    assert seen[0] == seen[1]
    assert seen[0][1] == ["p", "t", "w"]


@pytest.mark.long
@pytest.mark.feature("core bridges")
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_bridges_made_at_run_time_are_there_after_the_next_start(make_both: Make, how: str) -> None:
    """Both brokers keep bridges that were created at run time."""
    both = make_both("artemis")
    values = {"name": "j", "queue-name": "q", "static-connectors": ["other"], "retry-interval": 100,
              "user": USER, "password": PASSWORD, "forwarding-address": "in"}  # fmt: skip
    for node in (both.ours, both.theirs):
        with client(node) as connection:
            assert ManagementDriver(connection).operation("broker", "createBridge", json.dumps(values)).succeeded
        if how == "kill":
            node.kill()
        else:
            node.terminate()
        node.start()
        node.wait_ready("active")
        with client(node) as connection:
            assert ManagementDriver(connection).attribute("broker", "BridgeNames").value == ["j"]
    send(both.ours, 10)
    assert len(receive(both.theirs, "in", 10)) == 10


@pytest.mark.long
@pytest.mark.feature("core bridges")
def test_connectors_added_at_run_time_serve_bridges_and_are_there_after_the_next_start(make_both: Make) -> None:
    both = make_both("artemis")
    values = {"name": "j", "queue-name": "q", "static-connectors": ["made"], "retry-interval": 100,
              "user": USER, "password": PASSWORD, "forwarding-address": "in"}  # fmt: skip

    def connectors(asking: ManagementDriver) -> set[str]:
        return {each["name"] for each in json.loads(asking.operation("broker", "getConnectorsAsJSON").value)}

    for node, other in ((both.ours, both.theirs), (both.theirs, both.ours)):
        with client(node) as connection:
            asking = ManagementDriver(connection)
            assert "made" not in connectors(asking)
            assert asking.operation("broker", "addConnector", "made", f"tcp://127.0.0.1:{other.port}").succeeded
            assert "made" in connectors(asking)
            # the deliberate difference
            again = asking.operation("broker", "addConnector", "made", f"tcp://127.0.0.1:{other.port}")
            assert again.succeeded is (node is both.theirs)
            assert asking.operation("broker", "createBridge", json.dumps(values)).succeeded
        node.terminate()
        node.start()
        node.wait_ready("active")
        with client(node) as connection:
            asking = ManagementDriver(connection)
            assert "made" in connectors(asking)
            assert asking.attribute("broker", "BridgeNames").value == ["j"]
    send(both.ours, 10)
    assert len(receive(both.theirs, "in", 10)) == 10
    for node in (both.ours, both.theirs):
        with client(node) as connection:
            asking = ManagementDriver(connection)
            assert asking.operation("broker", "removeConnector", "made").succeeded
            assert "made" not in connectors(asking)


def _started_and_stopped(port: int) -> str:
    """A cluster connection over groups that no other broker has."""
    at = (
        "<local-bind-address>127.0.0.1</local-bind-address><group-address>231.7.7.7</group-address>"
        f"<group-port>{port}</group-port>"
    )
    return (
        f"<broadcast-groups><broadcast-group name='bg'>{at}<connector-ref>own</connector-ref></broadcast-group>"
        f"</broadcast-groups><discovery-groups><discovery-group name='dg'>{at}</discovery-group></discovery-groups>"
        "<cluster-connections><cluster-connection name='cc'><connector-ref>own</connector-ref>"
        "<discovery-group-ref discovery-group-name='dg'/></cluster-connection></cluster-connections>"
    )


_PARTS = ("BROADCAST_GROUP", "DISCOVERY_GROUP", "CLUSTER_CONNECTION", "BRIDGE", "ACCEPTOR", "BINDING_UPDATED")


def _noticed(node: Node | ArtemisNode) -> dict[str, set[tuple[tuple[str, str], ...]]]:
    """Notifications about the parts of a broker, by type: their properties, without values that differ by nature."""
    found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    with client(node) as connection, connection.session() as session:
        consumer = session.consumer("activemq.notifications::told", routing="multicast")
        while (received := consumer.receive(2)) is not None:
            properties = dict(received.message.properties.items())
            kind = str(properties.pop("_AMQ_NotifType"))
            properties.pop("_AMQ_NotifTimestamp")
            if kind.startswith(_PARTS):
                if "port" in properties:
                    assert properties["port"] == node.port
                    properties["port"] = 0
                if "_AMQ_ClusterName" in properties:
                    properties["_AMQ_ClusterName"] = str(properties["_AMQ_ClusterName"])[:2]
                found.setdefault(kind, set()).add(
                    tuple(sorted((name, str(value)) for name, value in properties.items()))
                )
    return found


@pytest.mark.long
@pytest.mark.feature("notifications of bridges, groups, cluster connections and acceptors")
def test_the_parts_of_both_brokers_are_notified_with_the_same_properties(make_both: Make) -> None:
    """A durable queue takes the notifications, here those of a clean stop and of the next start."""
    groups = {name: _started_and_stopped(free_port()) for name in ("understudy", "artemis")}
    both = make_both("artemis", bridge(PLAIN), groups)
    seen = []
    for node in (both.theirs, both.ours):
        with client(node) as connection:
            asking = ManagementDriver(connection)
            told = ("activemq.notifications", "MULTICAST", "told", None, True, -1, False, True)
            assert asking.operation("broker", "createQueue", *told).succeeded
            if node is both.theirs:
                # the bridge of broker.xml is at the other broker
                values = {"name": "b", "queue-name": "q", "static-connectors": ["other"], "user": USER,
                          "password": PASSWORD}  # fmt: skip
                assert asking.operation("broker", "createBridge", json.dumps(values)).succeeded
            made = {"name": "made", "address": "made", "routing-type": "ANYCAST"}
            assert asking.operation("broker", "createQueue", json.dumps(made)).succeeded
            changed = asking.operation("broker", "updateQueue", json.dumps({"name": "made", "filter-string": "n = 1"}))
            assert changed.succeeded, changed
            # the parts of an Artemis stop and start one by one, those of our broker with it
            parts = ("bridge.b",) if node is both.ours else ("bridge.b", "broadcastgroup.bg", "clusterconnection.cc")
            for part in parts:
                for operation in ("stop", "start"):
                    assert asking.operation(part, operation).succeeded, part
        if node is both.ours:
            node.terminate()
            node.start()
            node.wait_ready("active")
        seen.append(_noticed(node))
    theirs, ours = seen
    both_ways = {
        f"{part}_{event}"
        for part in ("BROADCAST_GROUP", "CLUSTER_CONNECTION", "BRIDGE")
        for event in ("STARTED", "STOPPED")
    }
    assert theirs.keys() >= {*both_ways, "BINDING_UPDATED"}
    assert {kind: ours.get(kind) for kind in theirs} == theirs
    assert ours.keys() >= {"ACCEPTOR_STARTED", "ACCEPTOR_STOPPED", "DISCOVERY_GROUP_STARTED", "DISCOVERY_GROUP_STOPPED"}
