"""The nodes of a cluster state where clients of other protocols reach them (ADR 0194)."""

from __future__ import annotations

import pytest

from support.membership import Network, Node
from understudy.cluster.membership.client_endpoints import NodeEndpoints, own_endpoints
from understudy.config.model import AcceptorConfiguration
from understudy.errors import RemoteProtocolError
from understudy.limits import CLIENT_ENDPOINTS_MAX, CLUSTER_NODES_MAX
from understudy.terms import Amqp091Options
from understudy.tls.settings import TlsSettings
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core import packets
from understudy.wire.core.packets import ClientEndpoint, ClientEndpoints

AMQP = "AMQP091"


def place(host: str, port: int = 5672) -> ClientEndpoint:
    return ClientEndpoint(AMQP, False, host, port)


def served(node: Node, node_id: str) -> Node:
    node.topology.endpoints.own = (place(node.host),)
    node.core.services.node_id = node_id
    return node


def test_active_nodes_and_a_backup_learn_the_places_of_each_other_in_both_directions() -> None:
    network = Network()
    one = served(network.node("host-a", "host-b"), "A").activate("A")
    other = served(network.node("host-b", "host-a"), "B").activate("B")
    backup = served(network.node("host-c", "host-a"), "A").stand_by("A")
    network.run(3_000)
    assert one.topology.endpoints.active(AMQP) == {"B": (place("host-b"),)}
    assert other.topology.endpoints.active(AMQP) == {"A": (place("host-a"),)}
    assert one.topology.endpoints.passive("A", AMQP) == (place("host-c"),)
    assert backup.topology.endpoints.active(AMQP) == {"A": (place("host-a"),), "B": (place("host-b"),)}
    assert one.topology.endpoints.active("MQTT") == {"B": ()}


def test_a_lost_node_is_forgotten_and_its_backup_states_that_it_is_active() -> None:
    network = Network()
    served(network.node("host-a", "host-b"), "A").activate("A")
    other = served(network.node("host-b", "host-a"), "B").activate("B")
    backup = served(network.node("host-c", "host-a", "host-b"), "A").stand_by("A")
    network.run(3_000)
    network.nodes["host-a"].die()
    network.run(500)
    assert other.topology.endpoints.active(AMQP) == {}
    backup.activate("A")
    network.run(3_000)
    assert other.topology.endpoints.active(AMQP) == {"A": (place("host-c"),)}


def test_a_new_replica_states_its_places_when_it_knows_the_node_id_of_its_pair() -> None:
    network = Network()
    one = served(network.node("host-a"), "A").activate("A")
    replica = served(network.node("host-c", "host-a"), "A")
    replica.membership.watch("")
    network.run(3_000)
    assert one.topology.endpoints.passive("A", AMQP) == ()
    replica.membership.watch("A")
    network.run(300)
    assert one.topology.endpoints.passive("A", AMQP) == (place("host-c"),)


def test_listeners_are_called_for_changes_only() -> None:
    calls: list[int] = []
    endpoints = NodeEndpoints()
    changed = lambda: calls.append(1)  # noqa: E731  # it is removed by its identity
    endpoints.listen(changed)
    endpoints.learn("one", ClientEndpoints("A", True, ()))
    endpoints.learn("one", ClientEndpoints("A", True, ()))
    assert calls == [1]
    endpoints.learn("one", ClientEndpoints("A", True, (place("a"),)))
    endpoints.forget("one")
    endpoints.forget("one")
    assert calls == [1, 1, 1]
    endpoints.unlisten(changed)
    endpoints.learn("one", ClientEndpoints("A", True, ()))
    assert calls == [1, 1, 1]


def test_the_statements_of_too_many_connections_are_ignored() -> None:
    endpoints = NodeEndpoints()
    for number in range(4 * CLUSTER_NODES_MAX + 1):
        endpoints.learn(number, ClientEndpoints(str(number), True, (place("a"),)))
    assert len(endpoints.active(AMQP)) == 4 * CLUSTER_NODES_MAX


@pytest.mark.parametrize("places", [(), (place("host"), ClientEndpoint("MQTT", True, "::1", 65535))])
def test_a_statement_survives_encoding(places: tuple[ClientEndpoint, ...]) -> None:
    packet = packets.QuorumVote(packets.CLIENT_ENDPOINTS, ClientEndpoints("A", True, places))
    writer = Writer()
    packet.write_body(writer, 135)
    assert packets.QuorumVote.read_body(Reader(writer.getvalue()), 135) == packet


@pytest.mark.parametrize(
    "places",
    [
        (place("host"),) * (CLIENT_ENDPOINTS_MAX + 1),
        (place(""),),
        (place("a" * 256),),
        (place("host\n"),),
        (place("host", 0),),
        (place("host", 65536),),
    ],
)
def test_a_statement_that_cannot_be_used_is_refused(places: tuple[ClientEndpoint, ...]) -> None:
    writer = Writer()
    packets.QuorumVote(packets.CLIENT_ENDPOINTS, ClientEndpoints("A", True, places)).write_body(writer, 135)
    with pytest.raises(RemoteProtocolError):
        packets.QuorumVote.read_body(Reader(writer.getvalue()), 135)


def test_the_places_of_a_node_are_those_of_its_acceptors() -> None:
    acceptors = [
        AcceptorConfiguration("all", "0.0.0.0", 5672),
        AcceptorConfiguration("tls", "10.0.0.1", 5671, ("AMQP091",), tls=TlsSettings()),
        AcceptorConfiguration("core", "0.0.0.0", 61616, ("CORE",)),
        AcceptorConfiguration("hidden", "0.0.0.0", 5673, amqp091=Amqp091Options(known_hosts=False)),
        AcceptorConfiguration("chosen", "0.0.0.0", 0),
        AcceptorConfiguration("other", "0.0.0.0", 5674, cluster_connection="second"),
    ]
    first = own_endpoints(acceptors, [None, "first"], "node-a")
    assert first == (place("node-a"), ClientEndpoint(AMQP, True, "10.0.0.1", 5671))
    assert own_endpoints(acceptors, ["second"], "node-a") == (place("node-a", 5674),)
