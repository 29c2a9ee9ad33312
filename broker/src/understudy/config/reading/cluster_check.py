"""Checks of the cluster connections of a server: addresses, connectors, acceptors, announcements of a pair.

Source: artemis-ha s. 7.2, ADR 0075 and ADR 0082.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from understudy.config.cluster_addresses import by_connector, common_prefix
from understudy.config.colocated import SERVER_NAME
from understudy.config.model import ClusterConnectionConfiguration, Configuration, ConnectorConfiguration
from understudy.config.reading.document import Document, Node, nearest


def check_clusters(document: Document, core: Node, configuration: Configuration) -> Configuration:
    """Compare the cluster connections of a server with each other and with its acceptors.

    Args:
        document: Makes errors and takes warnings.
        core: The element of the server.

    Returns:
        The configuration in which cluster connections whose connectors lead to one acceptor have one ``connector-ref``.

    Raises:
        ConfigError: an acceptor names a cluster connection that does not exist, or a replica would never find its
            primary.
    """
    connections, holder = configuration.cluster_connections, core.child("cluster-connections")
    _check_acceptors(document, core, configuration)
    if not connections and configuration.ha_policy.is_pair:
        message = (
            "a pair without a cluster-connection: the backup takes over, but it is announced to no client, so clients"
            " with one address do not follow"
        )
        document.warn("pair", message, core.child("ha-policy") or core)
    if holder is None or not connections:
        return configuration
    nodes: dict[str, Node] = {}
    for each in holder.all("cluster-connection"):
        nodes.setdefault(str(each.attributes["name"]), each)
    configuration = _with_names(configuration)
    _check_addresses(document, nodes, connections)
    configuration = _joined(document, nodes, configuration)
    if configuration.ha_policy.is_pair:
        for sharing in by_connector(configuration.cluster_connections):
            _check_announcement(document, nodes[sharing[0].name], configuration, sharing)
    return configuration


def _check_addresses(
    document: Document, nodes: Mapping[str, Node], connections: Sequence[ClusterConnectionConfiguration]
) -> None:
    """Warn of cluster connections that take the same address: which of them a queue belongs to depends on the members
    that they lead to.
    """
    for one, other in combinations(connections, 2):
        prefix = common_prefix(one.address, other.address)
        if prefix is not None:
            node = nodes[other.name]
            taken = f"addresses that begin with {prefix!r}" if prefix else "all addresses"
            message = (
                f"cluster-connection {one.name!r} takes {taken} as well: a queue of another member belongs to the first"
                " that hears of it, and messages are balanced as the first one says (write prefixes that exclude each"
                " other, such as 'news' and '!news')"
            )
            document.warn(f"addresses of {one.name} and {other.name}", message, node.child("address") or node)


def _with_names(configuration: Configuration) -> Configuration:
    """Name the server in its own connectors that begin with an HTTP upgrade: clients of Artemis compare servers by the
    name, and take two nodes without one for the same (ADR 0179).
    """
    own = {each.connector_ref for each in configuration.cluster_connections}

    def named(connector: ConnectorConfiguration) -> ConnectorConfiguration:
        parameters = connector.parameters
        if connector.name not in own or parameters.get("httpUpgradeEnabled") is not True or SERVER_NAME in parameters:
            return connector
        return replace(connector, parameters={**parameters, SERVER_NAME: configuration.name})

    return replace(configuration, connectors=tuple(map(named, configuration.connectors)))


def _check_acceptors(document: Document, core: Node, configuration: Configuration) -> None:
    """``clusterConnection`` of each acceptor names a cluster connection. Raises ConfigError."""
    names = [each.name for each in configuration.cluster_connections]
    holder = core.child("acceptors")
    for acceptor in configuration.acceptors:
        named = acceptor.cluster_connection
        if named is not None and named not in names:
            found = () if holder is None else holder.all("acceptor")
            node = next((each for each in found if each.attributes["name"] == acceptor.name), core)
            message = f"acceptor {acceptor.name!r}: there is no cluster-connection {named!r}"
            raise document.error_at(node, message, hint=nearest(named, names))


def _joined(document: Document, nodes: Mapping[str, Node], configuration: Configuration) -> Configuration:
    """Join cluster connections whose connectors lead to one acceptor: they get the connector of the one that the
    acceptor belongs to, because members announce themselves at the acceptor and clients get its topology from it.
    """
    connections = configuration.cluster_connections
    if len(by_connector(connections)) < 2:
        return configuration
    owners: dict[str, str] = {}
    for each in connections:
        owner, place = _owner_of(configuration, each)
        owners[each.name] = owner
        if owner != each.name:
            message = (
                f"connector {each.connector_ref!r} {place}: this cluster-connection shares links, topology and"
                f" connector with {owner!r} (for links of its own: clusterConnection={each.name} in the URL of the"
                f" acceptor that {each.connector_ref!r} leads to)"
            )
            node = nodes[each.name]
            document.warn(f"connector of {each.name}", message, node.child("connector-ref") or node)
    refs = {each.name: each.connector_ref for each in connections}
    joined = [replace(each, connector_ref=refs[_last_owner(owners, each.name)]) for each in connections]
    return replace(configuration, cluster_connections=tuple(joined))


def _owner_of(configuration: Configuration, connection: ClusterConnectionConfiguration) -> tuple[str, str]:
    """Name of the cluster connection of the acceptor that a connector leads to, and which acceptor that is."""
    connector, acceptors = configuration.connector(connection.connector_ref), configuration.acceptors
    default = configuration.cluster_connections[0].name
    owners = [each.cluster_connection or default for each in acceptors]
    served = [configuration.cluster_connection(each).connector_ref == connector.name for each in owners]
    at_port = [index for index, each in enumerate(acceptors) if each.port == connector.port]
    # where addresses are translated on the way, the ports differ, and nothing can be compared
    if not acceptors or any(served[index] for index in at_port) or (any(served) and not at_port):
        return connection.name, ""
    if at_port:
        owner = owners[at_port[0]]
        return owner, f"leads to acceptor {acceptors[at_port[0]].name!r} of cluster-connection {owner!r}"
    return owners[0], "leads to no acceptor of this server"


def _last_owner(owners: Mapping[str, str], name: str) -> str:
    """The cluster connection at the end of a chain of owners; the first of the file where the chain is a circle."""
    seen = [name]
    while owners[seen[-1]] not in seen:
        seen.append(owners[seen[-1]])
    circle = seen[seen.index(owners[seen[-1]]) :]
    return next(each for each in owners if each in circle)


def _check_announcement(
    document: Document, entry: Node, configuration: Configuration, sharing: Sequence[ClusterConnectionConfiguration]
) -> None:
    """A node of a pair announces itself, with the connector of its cluster connections, to the addresses of their
    static connectors that are not its own. Where none is left it would never be announced: the other node would not
    fail back, and clients would not learn of the backup. A replica would never find its primary.
    """
    first, statics = sharing[0], [name for each in sharing for name in each.static_connectors]
    places = {each.name: (each.host.lower(), each.port) for each in configuration.connectors}
    host, port = own = places[first.connector_ref]
    found = any(each.discovery_group for each in sharing) or any(places[name] != own for name in statics)
    if found or not statics:
        return
    node = entry.child("connector-ref") or entry
    message = (
        f"connector-ref {first.connector_ref!r} and every static connector of {first.name!r} are tcp://{host}:{port}:"
        " this node would never announce itself to the other one"
    )
    hint = "connector-ref is the address of this node, static-connectors name the other node"
    if configuration.ha_policy.is_backup and configuration.ha_policy.replication is not None:
        raise document.error_at(node, message, hint=hint)
    document.warn("announcement", f"{message} ({hint})", node)
