"""Nodes and clients that find each other by multicast on loopback, by a list of hosts, and by files."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.processes import READY_S, Node
from understudy.client import aio
from understudy.client.sync import Connection, ConnectionFactory, connect
from understudy.cluster.discovery.carriers import Multicast
from understudy.cluster.discovery.sockets import multicast_listener, multicast_sender
from understudy.errors import ConfigError, Unreachable
from understudy.limits import BROADCAST_NODES_PER_SOURCE_MAX
from understudy.wire.core.broadcast import Broadcast, to_channel
from understudy.wire.core.transport import TransportConfiguration

GROUP = "231.7.7.7"
XML = """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>{name}</name>
  <security-enabled>false</security-enabled>
  <bindings-directory>data/bindings</bindings-directory>
  <journal-directory>{journal}</journal-directory>
  <large-messages-directory>data/large-messages</large-messages-directory>
  <paging-directory>data/paging</paging-directory>
  <cluster-user>cluster</cluster-user>
  <cluster-password>a-secret-of-this-test</cluster-password>
  <connectors><connector name="core">tcp://127.0.0.1:{port}</connector></connectors>
  <acceptors><acceptor name="core">tcp://127.0.0.1:{port}</acceptor></acceptors>
  <broadcast-groups>
    <broadcast-group name="b">
      {carrier}<broadcast-period>200</broadcast-period><connector-ref>core</connector-ref>
    </broadcast-group>
  </broadcast-groups>
  <discovery-groups>
    <discovery-group name="d">{carrier}<refresh-timeout>2000</refresh-timeout></discovery-group>
  </discovery-groups>
  <cluster-connections>
    <cluster-connection name="c">
      <connector-ref>core</connector-ref>
      <notification-interval>300</notification-interval>
      <discovery-group-ref discovery-group-name="d"/>
    </cluster-connection>
  </cluster-connections>
  {policy}
</core></configuration>
"""


def multicast_works() -> bool:
    """Whether a datagram to a group comes back on the loopback interface."""
    carrier = Multicast(GROUP, free_port(), "127.0.0.1")
    try:
        with multicast_listener(carrier) as listening, multicast_sender(carrier) as sending:
            sending.sendto(b"x", (GROUP, carrier.port))
            listening.settimeout(2)
            return listening.recv(1) == b"x"
    except OSError:
        return False


needs_multicast = pytest.mark.skipif(not multicast_works(), reason="no multicast on the loopback interface")


class DiscoveringNodes:
    """Nodes with one carrier."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.all: list[Node] = []

    def add(self, carrier: str, *, journal: str = "data/journal", policy: str = "") -> Node:
        name = f"node-{len(self.all)}"
        node = Node(self.directory / name, name, free_port())
        node.config.parent.mkdir(parents=True)
        node.config.write_text(XML.format(name=name, port=node.port, carrier=carrier, journal=journal, policy=policy))
        self.all.append(node)
        return node

    def start(self, carrier: str, count: int) -> list[Node]:
        """Start nodes; returns when each of them knows every other one."""
        found = [self.add(carrier).start() for _ in range(count)]
        for node in found:
            node.wait_ready("active")
        for node in found:
            wait_for(lambda node=node: members(node) == count, node)  # type: ignore[misc]
        return found


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[DiscoveringNodes]:
    made = DiscoveringNodes(tmp_path)
    yield made
    for each in made.all:
        each.end()


def wait_for(condition: Callable[[], bool], *nodes: Node) -> None:
    deadline = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < deadline, "\n---\n".join(node.tail() for node in nodes)
        time.sleep(0.02)


def cluster(node: Node) -> dict[str, list[dict[str, object]]]:
    status, facts = node.get("/api/v1/cluster")
    assert status in (0, 200), facts
    return facts  # type: ignore[return-value]


def members(node: Node) -> int:
    return len(cluster(node).get("members", []))


def logged(node: Node, text: str) -> bool:
    return text in node.log.read_text(errors="replace")


def udp(port: int) -> str:
    return (
        f"<local-bind-address>127.0.0.1</local-bind-address><group-address>{GROUP}</group-address>"
        f"<group-port>{port}</group-port>"
    )


def port_of(connection: Connection) -> int:
    """Port of the node that serves a connection; the node is known once there is a session."""
    connection.session().close()
    return int(connection.serving_node.address.rpartition(":")[2])


@needs_multicast
@pytest.mark.parameter(
    "broadcast-group/group-address",
    "broadcast-group/group-port",
    "broadcast-group/connector-ref",
    "broadcast-group/local-bind-address",
    "discovery-group/group-address",
    "discovery-group/group-port",
    "discovery-group/refresh-timeout",
    "cluster-connection/discovery-group-ref",
    "client/udp://GROUP:PORT",
    "client/localBindAddress",
    "client/connectionLoadBalancingPolicyClassName",
    "client/useTopologyForLoadBalancing",
)
def test_nodes_and_clients_find_each_other_by_multicast(nodes: DiscoveringNodes) -> None:
    port = free_port()
    one, two = nodes.start(udp(port), 2)
    (entry,) = cluster(one)["discovery"][0]["entries"]  # type: ignore[misc]
    assert entry["connectors"] == [f"tcp://127.0.0.1:{two.port}"]
    url = f"udp://{GROUP}:{port}?localBindAddress=127.0.0.1"
    with connect(url) as connection:
        assert port_of(connection) in (one.port, two.port)
    with pytest.raises(ConfigError, match="datagram"):
        connect(url, "user", "password")

    async def by_loop() -> None:
        async with await aio.connect(url) as found, await found.session():
            assert found.serving_node.node_id

    asyncio.run(by_loop())
    both = {one.port, two.port}
    for policy in ("RoundRobin", "Random", "RandomSticky", "FirstElement"):
        for more in ("", "&useTopologyForLoadBalancing=false"):
            balanced = f"{url}&connectionLoadBalancingPolicyClassName={policy}{more}"
            used = [*by_factory(balanced), *asyncio.run(by_factory_of_loop(balanced))]
            if policy == "RoundRobin" and not more:
                assert set(used[1:3]) == set(used[5:7]) == both, (used, more)
            elif not more and policy != "Random":
                # the first one of the topology, or always the same of it
                assert len(set(used[1:4])) == len(set(used[5:8])) == 1, (used, policy)
            assert set(used) <= both
    two.kill()
    # its entry expires although nothing else is heard
    wait_for(lambda: not cluster(one)["discovery"][0]["entries"], one)


@needs_multicast
def test_forged_datagrams_change_nothing(nodes: DiscoveringNodes) -> None:
    """A flood of forged and damaged datagrams: the nodes still find each other, the table stays small."""
    port = free_port()
    carrier = Multicast(GROUP, port, "127.0.0.1")
    one = nodes.add(udp(port)).start()
    one.wait_ready("active")
    dead = TransportConfiguration("core", parameters={"host": "127.0.0.1", "port": str(free_port())})
    with multicast_sender(carrier) as sending:
        for number in range(2_000):
            datagram = Broadcast(f"forged-{number}", "x", (dead,)).encode()
            for each in (datagram, datagram[: number % len(datagram)], bytes(30_000)):
                try:
                    sending.sendto(each, (GROUP, port))
                except BlockingIOError:
                    time.sleep(0.01)
    wait_for(lambda: cluster(one)["discovery"][0]["outcomes"]["damaged"] > 0, one)  # type: ignore[index,call-overload]
    group = cluster(one)["discovery"][0]
    assert len(group["entries"]) <= BROADCAST_NODES_PER_SOURCE_MAX  # type: ignore[arg-type]
    two = nodes.add(udp(port)).start()
    two.wait_ready("active")
    wait_for(lambda: members(one) == members(two) == 2, one, two)
    assert one.process is not None
    assert one.process.poll() is None


@needs_multicast
def test_the_younger_of_two_nodes_with_one_id_ends(nodes: DiscoveringNodes) -> None:
    """A copy of the store of a running node."""
    carrier = udp(free_port())
    first = nodes.add(carrier).start()
    first.wait_ready("active")
    copy = nodes.add(carrier)
    shutil.copytree(first.directory / "data", copy.directory / "data")
    copy.start()
    assert copy.process is not None
    assert copy.process.wait(READY_S) == 1
    assert logged(copy, "was active under the node id of this node before this node")
    assert logged(first, "AMQ212034")
    assert first.facts()["ha"]["state"] == "active"  # type: ignore[index,call-overload]


@pytest.mark.long
@needs_multicast
def test_a_backup_finds_its_primary_by_multicast(nodes: DiscoveringNodes) -> None:
    carrier = udp(free_port())
    store = str(nodes.directory / "shared")
    for role in ("primary", "backup"):
        policy = f"<ha-policy><shared-store><{role}/></shared-store></ha-policy>"
        nodes.add(carrier, journal=store, policy=policy).start().wait_ready(
            "active" if role == "primary" else "passive"
        )
    primary, backup = nodes.all
    wait_for(lambda: primary.facts()["peer"] is not None, primary, backup)
    primary.kill()
    backup.wait_ready("active")


@pytest.mark.long
@needs_multicast
@pytest.mark.parametrize("votes", [True, False])
def test_a_replica_finds_its_primary_by_multicast(nodes: DiscoveringNodes, votes: bool) -> None:
    """The first start of a pair with votes waits for the initial-wait-timeout: an active node could be heard."""
    carrier, manager = udp(free_port()), ""
    if not votes:
        locks = nodes.directory / "locks"
        locks.mkdir()
        folder = f'<properties><property key="locks-folder" value="{locks}"/></properties>'
        manager = f"<manager><class-name>file</class-name>{folder}</manager>"
    more = "<retry-replication-wait>200</retry-replication-wait>"
    for role in ("primary", "backup"):
        policy = f"<ha-policy><replication><{role}>{manager}{more}</{role}></replication></ha-policy>"
        nodes.add(carrier, policy=policy).start()
    primary, backup = nodes.all
    wait_for(lambda: logged(primary, "replica in sync"), primary, backup)
    primary.kill()
    backup.wait_ready("active")


def by_factory(url: str) -> list[int]:
    """Ports of the nodes to which the connections of one factory lead; the first one is made without a topology."""
    factory = ConnectionFactory(url)
    found = []
    for _ in range(4):
        with factory.connect() as connection:
            found.append(port_of(connection))
    return found


async def by_factory_of_loop(url: str) -> list[int]:
    """The same with the other shell."""
    factory = aio.ConnectionFactory(url)
    found = []
    for _ in range(4):
        async with await factory.connect() as connection, await connection.session():
            found.append(int(connection.serving_node.address.rpartition(":")[2]))
    return found


def stack(directory: Path, text: str) -> str:
    file = directory / "stack.xml"
    file.write_text(f'<config xmlns="urn:org:jgroups">{text}<pbcast.GMS/></config>')
    return f"<jgroups-file>{file}</jgroups-file><jgroups-channel>test</jgroups-channel>"


@pytest.mark.parametrize(
    "kind",
    [
        "list",
        pytest.param("files", marks=pytest.mark.long),
        pytest.param("multicast", marks=[pytest.mark.long, needs_multicast]),
    ],
)
@pytest.mark.parameter(
    "broadcast-group/jgroups-file",
    "broadcast-group/jgroups-channel",
    "discovery-group/jgroups-file",
    "discovery-group/jgroups-channel",
    "client/jgroups://CHANNEL?file=STACK",
    "client/discoveryInitialWaitTimeout",
)
def test_nodes_and_clients_find_each_other_by_a_jgroups_stack(nodes: DiscoveringNodes, kind: str) -> None:
    directory = nodes.directory
    if kind == "list":
        port = free_port()
        text = f'<TCP bind_addr="127.0.0.1" bind_port="{port}"/><TCPPING initial_hosts="localhost[{port}]"/>'
    elif kind == "files":
        text = f'<TCP/><FILE_PING location="{directory / "shared"}"/>'
    else:
        text = f'<UDP bind_addr="127.0.0.1" mcast_addr="{GROUP}" mcast_port="{free_port()}"/><PING/>'
    ports = {node.port for node in nodes.start(stack(directory, text), 2)}
    url = f"jgroups://test?file={directory / 'stack.xml'}"
    with connect(url) as connection:
        assert port_of(connection) in ports

    async def by_loop() -> None:
        async with await aio.connect(url) as found, await found.session():
            assert int(found.serving_node.address.rpartition(":")[2]) in ports

    asyncio.run(by_loop())
    with pytest.raises(Unreachable, match="no broker heard"):
        connect(f"jgroups://another?file={directory / 'stack.xml'}&discoveryInitialWaitTimeout=300")
    if kind == "files":
        for node in nodes.all:
            assert node.terminate() == 0
        assert not list((directory / "shared" / "test").iterdir()), "a clean stop removes the file"


@pytest.mark.long
def test_a_request_of_a_stranger_gets_no_answer(nodes: DiscoveringNodes) -> None:
    """A member of a list answers requests of its own channel only, so it cannot be used to send to others at will."""
    port = free_port()
    text = f'<TCP bind_addr="127.0.0.1" bind_port="{port}"/><TCPPING initial_hosts="127.0.0.1[{port}]"/>'
    nodes.add(stack(nodes.directory, text)).start().wait_ready("active")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.settimeout(0.5)
        stranger.sendto(b"", ("127.0.0.1", port))
        stranger.sendto(to_channel("another", b""), ("127.0.0.1", port))
        with pytest.raises(TimeoutError):
            stranger.recv(10)
        stranger.sendto(to_channel("test", b""), ("127.0.0.1", port))
        stranger.settimeout(READY_S)
        assert stranger.recv(20_000)


def test_a_stack_that_cannot_be_mapped_ends_the_start(nodes: DiscoveringNodes) -> None:
    node = nodes.add(stack(nodes.directory, "<TCP/>\n<S3_PING/>")).start()
    assert node.process is not None
    assert node.process.wait(READY_S) == 2
    assert logged(node, "stack.xml:2 config/S3_PING: protocol S3_PING cannot be mapped")
