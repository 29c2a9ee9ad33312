"""A backup that announced itself, and the connections on which it did (artemis-ha s. 2.2)."""

from __future__ import annotations

import pytest

from support.cluster_links import PASSWORD
from support.core import Client, CoreNode, CountingEntropy
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.wire.core import packets as p
from understudy.wire.core.transport import TransportConfiguration

BACKUP = TransportConfiguration("c", parameters={"host": "h", "port": "1"})
OTHER = TransportConfiguration("c", parameters={"host": "h", "port": "2"})
PRIMARY = TransportConfiguration("c", parameters={"host": "p", "port": "1"})


@pytest.fixture
def credentials() -> ClusterCredentials:
    return ClusterCredentials("cluster", PASSWORD, CountingEntropy())


@pytest.fixture
def node(credentials: ClusterCredentials) -> CoreNode:
    """An active node of a cluster."""
    node = CoreNode(credentials=credentials)
    node.core.cluster.topology.set_primary(node.services.node_id, PRIMARY, 1)
    return node


def announced(node: CoreNode, credentials: ClusterCredentials, connector: TransportConfiguration = BACKUP) -> Client:
    """A connection on which the node's backup has announced itself."""
    client = node.client()
    client.prove(credentials)
    client.send(p.NodeAnnounce(node.services.node_id, backup=True, current_event_id=1, connector=connector), 3)
    return client


def backup_of(node: CoreNode) -> TransportConfiguration | None:
    member = node.core.cluster.topology.member(node.services.node_id)
    assert member is not None
    return member.backup


def test_a_backup_is_forgotten_with_its_connection(node: CoreNode, credentials: ClusterCredentials) -> None:
    connection = announced(node, credentials)
    assert backup_of(node) == BACKUP
    connection.lose()
    assert backup_of(node) is None


def test_a_backup_that_came_back_stays_when_its_former_connection_ends_late(
    node: CoreNode, credentials: ClusterCredentials
) -> None:
    """After a power cut of its host: the end of the former connection is noticed by its time limit only."""
    former = announced(node, credentials)
    present = announced(node, credentials)
    former.lose()
    assert backup_of(node) == BACKUP
    present.lose()
    assert backup_of(node) is None


def test_the_end_of_an_earlier_announcement_leaves_another_backup_alone(
    node: CoreNode, credentials: ClusterCredentials
) -> None:
    former = announced(node, credentials)
    announced(node, credentials, OTHER)
    former.lose()
    assert backup_of(node) == OTHER
