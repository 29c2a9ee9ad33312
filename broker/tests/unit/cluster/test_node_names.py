"""The nodes of a pair know each other's names, and whether the other one was stopped (ADR 0173)."""

from __future__ import annotations

import pytest

from support.membership import Network, Node
from understudy.cluster.membership.node_names import NodeNames
from understudy.limits import CLUSTER_NODES_MAX
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core import packets


def named(node: Node, name: str) -> Node:
    node.topology.names.own = name
    return node


def pair() -> tuple[Network, Node, Node]:
    network = Network()
    active = named(network.node("host-a", "host-b"), "a").activate("A")
    passive = named(network.node("host-b", "host-a"), "b").stand_by("A")
    network.run(200)
    return network, active, passive


def test_both_nodes_of_a_pair_learn_the_name_of_the_other_one() -> None:
    _, active, passive = pair()
    assert passive.topology.names.shown("host-a:61616") == "a (host-a:61616)"
    assert active.topology.names.of("host-b:61616") == "b"


def test_a_node_without_a_name_states_and_is_answered_none() -> None:
    network = Network()
    active = network.node("host-a").activate("A")
    passive = named(network.node("host-b", "host-a"), "b").stand_by("A")
    network.run(200)
    assert active.topology.names.of("host-b:61616") == "b"
    assert passive.topology.names.shown("host-a:61616") == "host-a:61616"


@pytest.mark.parametrize("stopped", [True, False])
def test_a_node_that_was_stopped_is_distinguished_from_one_that_vanished(stopped: bool) -> None:
    network, active, passive = pair()
    if stopped:
        active.stop()
    else:
        active.die()
    network.run(200)
    names = passive.topology.names
    assert names.has_stopped("host-a:61616") is stopped
    assert names.of("host-a:61616") == "a", "the name is needed after the node has gone"
    active.activate("A")
    network.run(3_000)
    assert not names.has_stopped("host-a:61616"), "the node is reached again"


def test_a_vote_that_is_requested_after_the_name_is_answered() -> None:
    network, _, _ = pair()
    other = named(network.node("host-c", "host-a"), "c").activate("C")
    network.run(200)
    votes: list[packets.FailoverVote | None] = []
    other.membership.put_vote(packets.FailoverVote(True, "C"), votes.append, lambda: None)
    network.run(200)
    assert [each is not None and each.node_id for each in votes] == ["C"]


def test_a_stated_name_survives_encoding() -> None:
    packet = packets.QuorumVote(packets.NODE_NAME, packets.NodeName("a", "host-a:61616"))
    writer = Writer()
    packet.write_body(writer, 135)
    assert packets.QuorumVote.read_body(Reader(writer.getvalue()), 135) == packet


def test_names_are_limited_and_compared_by_address() -> None:
    names = NodeNames()
    for number in range(CLUSTER_NODES_MAX + 5):
        names.learn(f"host-{number}:1", "n" * 500)
    assert names.of("host-0:1") is None
    assert names.of(f"HOST-{CLUSTER_NODES_MAX}:1") == "n" * 100
    names.learn("", "a node without a connector")
    assert names.of("") is None
