"""Servers of one broker.xml: the element ``core`` and the elements ``server`` (ADR 0075).

Each element is read by itself; here they are compared with each other, because all run in one process. Not here: the
start of the servers (``runtime.process.servers``), and backups that other nodes request (``colocated``).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Final

from understudy.config.colocated import SERVER_NAME
from understudy.config.model import (
    AcceptorConfiguration,
    Configuration,
    ConfigWarning,
    ConnectorConfiguration,
    CriticalAnalyzerPolicy,
)
from understudy.config.reading.cluster_check import check_clusters
from understudy.config.reading.document import Document, Node
from understudy.dataclass import dataclass
from understudy.errors import ConfigError

#: A name of a server is also the name of a directory.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_MANAGEMENT: Final = re.compile(r"off|\S+:[0-9]{1,5}")
_ANY_ADDRESS: Final = ("0.0.0.0", "::", "")
#: Elements of the directories of a store (``Configuration.store_directories``), and their fields.
_DIRECTORIES: Final = {
    "bindings-directory": "bindings_directory",
    "journal-directory": "journal_directory",
    "large-messages-directory": "large_messages_directory",
    "paging-directory": "paging_directory",
    "node-manager-lock-directory": "node_manager_lock_directory",
    "journal-retention-directory": "journal_retention_directory",
}


#: Elements that a server with ``settings="core"`` takes from core if it does not have them itself.
SETTINGS_OF_CORE: Final = (
    "security-enabled",
    "security-settings",
    "cluster-user",
    "cluster-password",
    "mask-password",
    "password-codec",
    "address-settings",
    "resource-limit-settings",
    "wildcard-addresses",
    "wild-card-routing-enabled",
    "management-address",
    "management-notification-address",
)


@dataclass(frozen=True, slots=True)
class FurtherServer:
    """An element ``server`` (ADR 0075)."""

    configuration: Configuration
    management: str | None
    """Address ``host:port`` of the server's management, or ``off``; None: derived from that of ``core``."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """Result of reading a file."""

    configuration: Configuration
    """Configuration of the server in ``core``."""
    warnings: tuple[ConfigWarning, ...] = ()
    servers: tuple[FurtherServer, ...] = ()
    """Further servers of the process, in file order."""
    included: tuple[str, ...] = ()
    """Files that broker.xml includes; of an instance also the overlay beside it, which may not exist."""
    overrides: int = 0
    """Number of states of the overlay (``config.edit.overlay``)."""
    waiting: tuple[str, ...] = ()
    """Places of broker.xml with states of the overlay that do not count yet."""

    def server(self, name: str | None) -> Configuration:
        """Configuration of a further server, or of ``core`` (None). Raises ConfigError: there is no such server."""
        if name is None:
            return self.configuration
        for each in self.servers:
            if each.configuration.name == name:
                return each.configuration
        raise ConfigError(f"there is no server {name!r} in the file", path="configuration/server")

    def mapped(self, change: Callable[[Configuration], Configuration]) -> LoadedConfig:
        """A copy with a change of the configurations of all servers."""
        servers = tuple(replace(each, configuration=change(each.configuration)) for each in self.servers)
        return replace(self, configuration=change(self.configuration), servers=servers)

    def configurations(self) -> tuple[Configuration, ...]:
        """Configurations of all servers; that of ``core`` first."""
        return self.configuration, *(each.configuration for each in self.servers)


@dataclass(frozen=True, slots=True)
class _Server:
    """One server of the file."""

    node: Node
    configuration: Configuration

    @property
    def name(self) -> str:
        return self.configuration.name

    def child(self, name: str) -> Node:
        """Path for an error about an element of the server."""
        return self.node.child(name) or self.node

    def entry(self, container: str, entry: str, name: str) -> Node:
        """Path for an error about an entry of a list."""
        entries = self.child(container).all(entry)
        return next((each for each in entries if each.attributes.get("name") == name), self.child(container))


def _connectors_elsewhere(nodes: Sequence[Node], here: Node) -> dict[str, str]:
    """Names of the connectors of the other servers, each with the name of its server."""
    found: dict[str, str] = {}
    for node in nodes:
        holder = node.child("connectors")
        if node is not here and holder is not None:
            name = str(node.attributes.get("name") or node.text("name") or "core")
            found.update((str(each.attributes["name"]), name) for each in holder.all("connector"))
    return found


def read_servers(
    document: Document, nodes: Sequence[Node], read: Callable[[Node, Mapping[str, str]], Configuration]
) -> LoadedConfig:
    """The result of reading a file.

    Args:
        document: Makes errors and takes warnings.
        nodes: ``core``, and the elements ``server``.
        read: Reads one of them; gets also the names of connectors of the others, each with the name of its server.
            Raises ConfigError.

    Raises:
        ConfigError: an element cannot be used, or two servers could not run in one process; all errors together.
    """
    servers = []
    for node in nodes[1:]:
        _take_settings(nodes[0], node)
    for node in nodes:
        configuration = document.attempt(partial(read, node, _connectors_elsewhere(nodes, node)), None)
        if configuration is not None:
            servers.append(_Server(node, configuration))
    # the following compare whole configurations, which are not whole after an error
    if not document.errors:
        servers = [_with_clusters(document, each) for each in servers]
        if len(servers) > 1:
            document.attempt(partial(_compare, document, servers), None)
    document.finish()
    core, further = servers[0].configuration, servers[1:]
    return LoadedConfig(
        _without_halt(core) if further else core,
        tuple(document.warnings),
        tuple(_finished(document, server) for server in further),
        tuple(document.included),
    )


def _take_settings(core: Node, server: Node) -> None:
    """Give a server with ``settings="core"`` the elements of core that it does not have itself."""
    if server.attributes.get("settings") == "core":
        missing = [name for name in SETTINGS_OF_CORE if server.child(name) is None]
        server.children += [each for each in core.children if each.element.name in missing]


def _with_clusters(document: Document, server: _Server) -> _Server:
    """The server with the cluster connections that ``check_clusters`` gives it."""
    checked = document.attempt(partial(check_clusters, document, server.node, server.configuration), None)
    return server if checked is None else replace(server, configuration=checked)


def _compare(document: Document, servers: Sequence[_Server]) -> None:
    for server in servers:
        _check_alone(document, server)
    _check_names(document, servers)
    for one, other in combinations(servers, 2):
        _check_directories(document, one, other)
        _check_acceptors(document, one, other)
        _check_replication(document, one, other)
    for server in servers:
        _check_own_connectors(document, server, [each for each in servers if each is not server])


def _check_alone(document: Document, server: _Server) -> None:
    configuration = server.configuration
    if configuration.ha_policy.colocated is not None:
        message = "colocated is not possible in a file with several servers"
        raise document.error_at(
            server.child("ha-policy"), message, hint="configure the backup as a server, or request one"
        )
    if not configuration.persistence_enabled:
        message = "false is not possible in a file with several servers"
        raise document.error_at(server.child("persistence-enabled"), message)
    if configuration.critical_analyzer_policy is CriticalAnalyzerPolicy.HALT:
        message = "HALT would end all servers of the process: it means SHUTDOWN here"
        document.warn("critical-analyzer-policy of a server", message, server.child("critical-analyzer-policy"))


def _check_names(document: Document, servers: Sequence[_Server]) -> None:
    first: dict[str, int] = {}
    for server in servers:
        # a restart with another name would look for other notes
        if server.node.element.name == "server" and not _NAME.fullmatch(server.name):
            message = f"name {server.name!r}: 1 to 64 letters, digits, '_', '.' and '-', not '.' or '-' first"
            raise document.error_at(server.node, message)
        line = server.child("name").line
        if server.name in first:
            raise document.error_at(server.node, f"{server.name!r} stands twice, first on line {first[server.name]}")
        first[server.name] = line


def _directories(configuration: Configuration) -> Iterator[tuple[str, str]]:
    for element, field in _DIRECTORIES.items():
        path = getattr(configuration, field)
        if path is not None:
            yield element, str(path)


def _check_directories(document: Document, one: _Server, other: _Server) -> None:
    """Two servers with one store would be a node twice in a process, or a primary beside its own backup."""
    for element, path in _directories(other.configuration):
        for other_element, taken in _directories(one.configuration):
            if posixpath.commonpath((path, taken)) in (path, taken):
                message = f"{element} {path} and {other_element} {taken} of server {one.name!r} overlap"
                raise document.error_at(other.child(element), message, hint="each server has a store of its own")


def _meet(one: str, other: str) -> bool:
    return one.lower() == other.lower() or one in _ANY_ADDRESS or other in _ANY_ADDRESS


def _check_acceptors(document: Document, one: _Server, other: _Server) -> None:
    for acceptor in other.configuration.acceptors:
        for taken in one.configuration.acceptors:
            if not acceptor.port or acceptor.port != taken.port or not _meet(acceptor.host, taken.host):
                continue
            node = other.entry("acceptors", "acceptor", acceptor.name)
            where = f"acceptor {taken.name!r} of server {one.name!r}"
            if not (acceptor.http_upgrade and taken.http_upgrade):
                message = f"{where} listens on port {acceptor.port} already"
                raise document.error_at(node, message, hint="with httpUpgradeEnabled=true servers share a port")
            if acceptor.host.lower() != taken.host.lower():
                message = f"{where} listens on {taken.host}:{taken.port}: acceptors that share a port have one host"
                raise document.error_at(node, message)
            if acceptor.tls != taken.tls:
                message = f"{where} has other parameters of TLS: acceptors that share a port have the same"
                raise document.error_at(node, message)


def _check_replication(document: Document, one: _Server, other: _Server) -> None:
    """A replica on the machine of its primary protects nothing, and the two would find each other first."""
    pair = (one.configuration.ha_policy, other.configuration.ha_policy)
    first, second = (each.replication for each in pair)
    if first is None or second is None or not any(each.is_backup for each in pair):
        return
    if first.group_name == second.group_name:
        named = "no group-name" if first.group_name is None else f"the group-name {first.group_name!r}"
        message = f"server {one.name!r} has {named} as well: a backup could copy the server beside it"
        raise document.error_at(other.child("ha-policy"), message, hint="name the pairs of servers by group-name")


def _check_own_connectors(document: Document, server: _Server, others: Sequence[_Server]) -> None:
    configuration = server.configuration
    for connection in configuration.cluster_connections:
        connector = configuration.connector(connection.connector_ref)
        entry = server.entry("cluster-connections", "cluster-connection", connection.name)
        node = entry.child("connector-ref") or entry
        _check_address(document, server, others, connector, node)
        if server.node.element.name == "server" and connector.parameters.get("httpUpgradeEnabled") is True:
            named = connector.parameters.get(SERVER_NAME)
            if named != server.name:
                message = f"connector {connector.name!r} leads to server {named or '(main)'!r}, not to {server.name!r}"
                raise document.error_at(node, message, hint=f"{SERVER_NAME}={server.name}")


def _check_address(
    document: Document, server: _Server, others: Sequence[_Server], connector: ConnectorConfiguration, node: Node
) -> None:
    """Refuse an own connector with the address of another server, unless that shares the port."""
    if any(_accepts(each, connector) for each in server.configuration.acceptors):
        return
    for other in others:
        for acceptor in other.configuration.acceptors:
            if _accepts(acceptor, connector) and acceptor.host.lower() == connector.host.lower():
                message = f"connector {connector.name!r} is the address of server {other.name!r}"
                raise document.error_at(node, message, hint="connector-ref is the address of this server")


def _accepts(acceptor: AcceptorConfiguration, connector: ConnectorConfiguration) -> bool:
    return acceptor.port == connector.port and _meet(acceptor.host, connector.host)


def _finished(document: Document, server: _Server) -> FurtherServer:
    management = server.node.attributes.get("management")
    if management is not None and not _MANAGEMENT.fullmatch(str(management)):
        raise document.error_at(server.node, f"management {str(management)!r}: host:port or off")
    acceptors = tuple(_named(document, server, each) for each in server.configuration.acceptors)
    configuration = _without_halt(replace(server.configuration, acceptors=acceptors))
    return FurtherServer(configuration, None if management is None else str(management))


def _without_halt(configuration: Configuration) -> Configuration:
    if configuration.critical_analyzer_policy is not CriticalAnalyzerPolicy.HALT:
        return configuration
    return replace(configuration, critical_analyzer_policy=CriticalAnalyzerPolicy.SHUTDOWN)


def _named(document: Document, server: _Server, acceptor: AcceptorConfiguration) -> AcceptorConfiguration:
    """An acceptor that takes HTTP upgrades takes those that name its server; the others are for ``core``."""
    if not acceptor.http_upgrade:
        return acceptor
    named = acceptor.parameters.get(SERVER_NAME, server.name)
    if named != server.name:
        node = server.entry("acceptors", "acceptor", acceptor.name)
        raise document.error_at(node, f"{SERVER_NAME}={named} is not the name of the server, {server.name!r}")
    return replace(acceptor, parameters={**acceptor.parameters, SERVER_NAME: server.name})
