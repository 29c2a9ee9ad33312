"""The cluster credentials of a node, and the ends at which other nodes reach it, from its configuration."""

from __future__ import annotations

from collections.abc import Iterator

from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.link_ends import OwnEnds, place_of
from understudy.config.colocated import SERVER_NAME
from understudy.config.model import AcceptorConfiguration, Configuration
from understudy.ports import Entropy
from understudy.runtime.base.node_configuration import NodeConfiguration


def make_credentials(configuration: NodeConfiguration, entropy: Entropy) -> ClusterCredentials | None:
    """The cluster credentials of a node; None: it has no cluster connection and no cluster password of its own."""
    current = configuration.current
    if not current.cluster_connections and not current.has_cluster_password:
        return None
    # needed without a cluster connection, too: bridges prove the password
    artemis = dict.fromkeys(name for each in current.cluster_connections for name in each.artemis_members)
    plain = [configuration.connectors.transport(name) for name in artemis]
    return ClusterCredentials(
        current.cluster_user,
        current.cluster_password,
        entropy,
        plain,
        own_ends(configuration),
        public=not current.has_cluster_password,
    )


def own_ends(configuration: NodeConfiguration) -> OwnEnds:
    """The acceptors of a node, and the connectors by which it announces itself: those of its cluster connections and of
    its broadcast groups. An acceptor at all addresses is known by the address of each connection.
    """
    current = configuration.current
    announced = [each.connector_ref for each in current.cluster_connections]
    announced += [name for group in current.broadcast_groups for name in group.connectors]
    connectors = map(configuration.connectors.transport, dict.fromkeys(announced))
    ends = {(place_of(each.host, each.port), each.server_name) for each in connectors}
    ends.update(end for acceptor in current.acceptors for end in _of_acceptor(acceptor, current))
    return OwnEnds(frozenset(ends))


def _of_acceptor(acceptor: AcceptorConfiguration, configuration: Configuration) -> Iterator[tuple[str, str]]:
    place = place_of(acceptor.host, acceptor.port)
    name = acceptor.parameters.get(SERVER_NAME) if acceptor.http_upgrade else None
    if name is None:
        yield place, ""
        if acceptor.http_upgrade:
            yield place, configuration.name
    else:
        yield place, str(name)
