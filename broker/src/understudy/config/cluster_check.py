"""Checks of the cluster connections of a server: addresses, connectors, acceptors, announcements of a pair.

Source: artemis-ha s. 7.2, ADR 0075 and ADR 0082.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from understudy.config.cluster_addresses import by_connector, common_prefix
from understudy.config.colocated import SERVER_NAME
from understudy.config.document import Document, Node, nearest
from understudy.config.model import ClusterConnectionConfiguration, Configuration


def check_clusters(document: Document, core: Node, configuration: Configuration) -> None:
    """Compare the cluster connections of a server with each other and with its acceptors.

    Args:
        document: Makes errors.
        core: The element of the server.

    Raises:
        ConfigError: two take the same address; members and clients that use the connector of one would get the
            topology of another one; or a backup would never announce itself.
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
        return
    nodes = {str(each.attributes["name"]): each for each in holder.all("cluster-connection")}
    _check_upgrades(document, nodes, configuration)
    if configuration.ha_policy.is_pair:
        for sharing in by_connector(connections):
            _check_announcement(document, nodes[sharing[0].name], configuration, sharing)
    for one, other in combinations(connections, 2):
        node = nodes[other.name]
        prefix = common_prefix(one.address, other.address)
        if prefix is not None:
            taken = f"addresses that begin with {prefix!r}" if prefix else "all addresses"
            message = f"cluster-connection {one.name!r} takes {taken} as well: their messages would have two ways"
            hint = "write prefixes that exclude each other, such as 'news' and '!news'"
            raise document.error_at(node.child("address") or node, message, hint=hint)
    if len(by_connector(connections)) > 1:
        for each in connections:
            _check_connector(document, nodes[each.name].child("connector-ref") or holder, configuration, each)


def _check_upgrades(document: Document, nodes: Mapping[str, Node], configuration: Configuration) -> None:
    """Warn of the connector of a node with a backup that begins with an HTTP upgrade and names no server: clients of
    Artemis compare servers by that name and take both nodes of the pair for one, so they never fail over (ADR 0069).
    """
    policy = configuration.ha_policy
    if not policy.is_pair and policy.colocated is None:
        return
    for each in configuration.cluster_connections:
        name = each.connector_ref
        parameters = configuration.connector(name).parameters
        if parameters.get("httpUpgradeEnabled") is True and SERVER_NAME not in parameters:
            message = (
                f"connector {name!r} has no {SERVER_NAME}: clients of Artemis do not fail over from it"
                f" (add {SERVER_NAME} with the name of this server)"
            )
            node = nodes[each.name]
            document.warn(f"connector {name} without {SERVER_NAME}", message, node.child("connector-ref") or node)


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


def _check_connector(
    document: Document, node: Node, configuration: Configuration, connection: ClusterConnectionConfiguration
) -> None:
    """The connector of a cluster connection leads to an acceptor of the same one, or of one that shares the connector.

    Members announce themselves at the acceptor, and clients get their topology from it.
    """
    connector = configuration.connector(connection.connector_ref)
    default = configuration.cluster_connections[0].name
    served = [
        each
        for each in configuration.acceptors
        if configuration.cluster_connection(each.cluster_connection or default).connector_ref == connector.name
    ]
    hint = f"clusterConnection={connection.name} in the URL of the acceptor that connector {connector.name!r} leads to"
    if not served:
        message = f"no acceptor belongs to cluster-connection {connection.name!r}, which has a connector of its own"
        raise document.error_at(node, message, hint=hint)
    # where addresses are translated on the way, the ports differ, and nothing can be compared
    same_port = [each for each in configuration.acceptors if each.port == connector.port]
    if same_port and not any(each.port == connector.port for each in served):
        message = (
            f"connector {connector.name!r} leads to acceptor {same_port[0].name!r}, which belongs to cluster-connection"
            f" {same_port[0].cluster_connection or default!r}"
        )
        raise document.error_at(node, message, hint=hint)


def _check_announcement(
    document: Document, entry: Node, configuration: Configuration, sharing: Sequence[ClusterConnectionConfiguration]
) -> None:
    """A node of a pair announces itself, with the connector of its cluster connections, to the addresses of their
    static connectors that are not its own. Where none is left it would never be announced: the other node would not
    fail back, and clients would not learn of the backup.
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
    if configuration.ha_policy.is_backup:
        raise document.error_at(node, message, hint=hint)
    document.warn("announcement", f"{message} ({hint})", node)
