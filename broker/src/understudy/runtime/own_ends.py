"""Ends at which other nodes reach a node, from its configuration (``cluster.link_ends``)."""

from __future__ import annotations

from collections.abc import Iterator

from understudy.cluster.link_ends import OwnEnds, place_of
from understudy.config.colocated import SERVER_NAME
from understudy.config.model import AcceptorConfiguration, Configuration
from understudy.runtime.node_configuration import NodeConfiguration


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
