"""Order of topology events (artemis-core s. 8.1)."""

from __future__ import annotations

from understudy.client.core.connection.topology import Topology
from understudy.client.core.url.options import Connector

A, B, C = Connector("a", 1), Connector("b", 2), Connector("c", 3)


def test_newer_replaces_older_does_not() -> None:
    topology = Topology()
    assert topology.node_up("n", 5, A, B)
    assert not topology.node_up("n", 4, C, C)
    assert topology.node_up("n", 6, C, None)
    node = topology.get("n")
    assert node is not None
    assert (node.primary, node.backup) == (C, B), "a missing connector erases nothing"


def test_older_fills_gaps() -> None:
    topology = Topology()
    topology.node_up("n", 5, A, None)
    assert topology.node_up("n", 4, C, B)
    node = topology.get("n")
    assert node is not None
    assert (node.primary, node.backup, node.event_id) == (A, B, 5)


def test_removal_is_remembered() -> None:
    topology = Topology()
    topology.node_up("n", 5, A, B)
    assert not topology.node_down("n", 4), "older than the known event"
    assert topology.node_down("n", 6)
    assert not topology.node_up("n", 5, A, B), "older than the removal"
    assert topology.node_up("n", 7, A, B)


def test_forgetting_does_not_bar_the_way_back() -> None:
    topology = Topology()
    topology.node_up("n", 5, A, B)
    topology.forget("n")
    assert topology.get("n") is None
    assert topology.node_up("n", 5, A, B)


def test_node_at() -> None:
    topology = Topology()
    assert topology.node_at(A) is None
    topology.node_up("n", 1, A, B)
    assert topology.node_at(Connector("other-spelling", 1)) is None, "the broker may list other nodes, and itself later"
    topology.complete = True
    found = topology.node_at(Connector("other-spelling", 1))
    assert found is not None
    assert found.node_id == "n", "a single node is the one that answered"
    topology.node_up("m", 1, C, None)
    assert topology.node_at(Connector("other-spelling", 1)) is None
    by_backup = topology.node_at(B)
    assert by_backup is not None
    assert by_backup.node_id == "n"


def test_the_primaries_are_in_the_same_order_whichever_node_told_them() -> None:
    ours, theirs = Topology(), Topology()
    for node_id, primary in (("n2", B), ("n1", A), ("n3", None)):
        ours.node_up(node_id, 1, primary, C)
    for node_id, primary in (("n3", None), ("n1", A), ("n2", B)):
        theirs.node_up(node_id, 1, primary, C)
    assert ours.primaries() == theirs.primaries() == (A, B)


def test_bounded() -> None:
    topology = Topology()
    for number in range(2000):
        topology.node_up(str(number), 1, A, None)
        topology.node_down(f"gone-{number}", 1)
    assert len(topology) == 1024
