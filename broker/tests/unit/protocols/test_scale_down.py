"""The receiving side of a scale-down on the cluster channel, and the clients that follow (ADR 0070)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.cluster_links import PASSWORD
from support.core import CoreNode, CountingEntropy
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.scaled_down import REMEMBERED_MAX, ScaledDownNodes
from understudy.errors import ClusterSecurityError
from understudy.protocols.core import moved_stores
from understudy.wire.core import packets as p
from understudy.wire.core.packets_replication import ReplicaProblem
from understudy.wire.core.transport import TransportConfiguration

CONNECTOR = TransportConfiguration("c", parameters={"host": "h", "port": "1"})
GONE, ELSEWHERE = "gone-node", "third-node"
MOVED = p.StoreMoved(GONE, 4, 3, "replica:61616", 5, 700, 600, b"batch")


def member(node: CoreNode, credentials: ClusterCredentials) -> Any:
    """A connection of another node, after the proof."""
    client = node.client()
    client.prove(credentials)
    return client


@pytest.fixture
def credentials() -> ClusterCredentials:
    return ClusterCredentials("cluster", PASSWORD, CountingEntropy())


@pytest.mark.parametrize("packet", [p.ScaleDownAnnouncement("node", GONE), p.DuplicateIds("a", (b"x",)), MOVED])
def test_a_stranger_announces_nothing(packet: p.Packet, credentials: ClusterCredentials) -> None:
    node = CoreNode(credentials=credentials)
    with pytest.raises(ClusterSecurityError):
        node.client().send(packet, 3)
    assert "a" not in node.world.office.directory.addresses


def test_clients_of_a_node_are_served_once_its_messages_are_here(credentials: ClusterCredentials) -> None:
    node = CoreNode(credentials=credentials, scaled_down=ScaledDownNodes(can_scale_down=True))
    own_id = node.services.node_id
    moved: list[tuple[str, str]] = []
    node.core.cluster.scaled_down.moved = lambda *ids: moved.append(ids)
    other = member(node, credentials)

    def serves(node_id: str) -> bool:
        return bool(node.client().ask(p.CheckForFailover(node_id), p.CheckForFailoverReply, 1).ok)

    assert serves(own_id)
    assert not serves(GONE)
    other.send(p.ScaleDownAnnouncement(ELSEWHERE, GONE), 3)
    assert not serves(GONE), "its messages are at a third node"
    other.send(p.ScaleDownAnnouncement(own_id, GONE), 3)
    assert serves(GONE)
    assert not serves("unknown")
    assert moved == [(GONE, ELSEWHERE), (GONE, own_id)]


def test_clients_of_a_node_that_is_active_again_wait_for_its_next_scale_down(credentials: ClusterCredentials) -> None:
    """They sent again here what the node was about to move here: the message was stored twice."""
    node = CoreNode(credentials=credentials, scaled_down=ScaledDownNodes(can_scale_down=True))
    own_id, other = node.services.node_id, member(node, credentials)

    def serves() -> bool:
        return bool(node.client().ask(p.CheckForFailover(GONE), p.CheckForFailoverReply, 1).ok)

    other.send(p.ScaleDownAnnouncement(own_id, GONE), 3)
    other.send(p.NodeAnnounce(GONE, backup=True, current_event_id=1, connector=CONNECTOR), 3)
    assert serves(), "only a passive node of its pair runs"
    other.send(p.NodeAnnounce(GONE, current_event_id=2, connector=CONNECTOR), 3)
    assert not serves()
    other.send(p.ScaleDownAnnouncement(own_id, GONE), 3)
    assert serves()


def test_duplicate_ids_are_answered_when_they_are_stored(credentials: ClusterCredentials) -> None:
    node = CoreNode(credentials=credentials)
    other = member(node, credentials)
    other.send(p.DuplicateIds("a", (b"one", b"\xff")), 3)
    node.sync()
    assert any(isinstance(each, p.NullResponse) for each in other.received())
    assert list(node.world.office.directory.addresses["a"].duplicate_ids) == [b"one", b"\xff"]


def test_a_node_without_scale_down_serves_clients_of_any_other() -> None:
    """Artemis does the same: the node has no messages for which a client would have to wait."""
    assert ScaledDownNodes().serves_clients_of("whatever")


def test_the_nodes_that_are_remembered_are_limited() -> None:
    nodes = ScaledDownNodes(can_scale_down=True)
    for number in range(REMEMBERED_MAX + 10):
        nodes.add(str(number), "own")
    assert len(nodes.node_ids) == REMEMBERED_MAX
    assert not nodes.serves_clients_of("9")
    assert nodes.serves_clients_of("10")


def test_the_record_of_a_store_is_kept_and_given_to_the_node_that_looks_for_it(credentials: ClusterCredentials) -> None:
    node = CoreNode(credentials=credentials)
    other = member(node, credentials)
    other.send(MOVED, 3)
    node.sync()
    assert any(isinstance(each, p.NullResponse) for each in other.received())
    other.send(replace(MOVED, sequence=2), 3)
    node.sync()
    connector = TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": "1"})

    def answer(node_id: str | None) -> p.ReplicaAnswer:
        asking = member(node, credentials)
        registration = p.ReplicaRegistration(3, "n", None, False, connector, node_id)
        found = asking.ask(registration, p.ReplicaAnswer, 2)
        assert isinstance(found, p.ReplicaAnswer)
        return found

    found = answer(GONE)
    assert (found.problem, found.moved_sequence, found.moved_copied_at) == (ReplicaProblem.MOVED, 4, 3)
    assert (found.moved_place, found.moved_epoch, found.moved_log_sequence) == ("replica:61616", 5, 700)
    assert (found.moved_common, found.moved_last_batch) == (600, b"batch")
    assert answer(ELSEWHERE).problem == answer(None).problem == ReplicaProblem.NOT_CONFIGURED


def test_records_have_a_limit(credentials: ClusterCredentials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_stores, "MOVED_STORES_MAX", 1)
    node = CoreNode(credentials=credentials)
    other = member(node, credentials)
    other.send(MOVED, 3)
    other.send(replace(MOVED, node_id=ELSEWHERE), 3)
    node.sync()
    assert any(isinstance(each, p.ExceptionResponse) for each in other.received())
