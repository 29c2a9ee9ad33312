"""The configuration of a colocated backup, made from that of the server that hosts it (artemis-ha s. 5).

A hosted backup is a server of its own in the process of its parent. It has the configuration of the parent, with other
ports, the directories of its store, and the HA policy of the element ``backup``. Not here: the requests for backups
(``colocation``), and the start of one (``runtime.members.colocation``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from understudy.config.high_availability import ColocatedConfiguration, HighAvailabilityPolicy, ScaleDownConfiguration
from understudy.config.model import (
    AcceptorConfiguration,
    ClusterConnectionConfiguration,
    Configuration,
    ConnectorConfiguration,
    CriticalAnalyzerPolicy,
    ParameterValue,
)
from understudy.config.reading.document import Document, Node
from understudy.dataclass import dataclass

#: Name of the connector to the requesting node in the configuration of a hosted backup.
REQUESTER: Final = "requester-of-the-backup"
#: Parameter of transports with the name of the server that is meant.
SERVER_NAME: Final = "activemqServerName"
#: Parameter of transports whose port a hosted backup has as well.
DO_NOT_OFFSET: Final = "doNotOffset"
_PORT_MAX: Final = 65535
_ANY_ADDRESS: Final = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class StoreDirectories:
    """Absolute directories of one store."""

    journal: str
    bindings: str
    large_messages: str
    paging: str

    @classmethod
    def of(cls, configuration: Configuration) -> StoreDirectories:
        """The directories of a server."""
        return cls(
            configuration.journal_directory,
            configuration.bindings_directory,
            configuration.large_messages_directory,
            configuration.paging_directory,
        )

    def with_suffix(self, suffix: str) -> StoreDirectories:
        """The directories with a suffix at the end of each path."""
        return StoreDirectories(
            f"{self.journal}{suffix}",
            f"{self.bindings}{suffix}",
            f"{self.large_messages}{suffix}",
            f"{self.paging}{suffix}",
        )

    def named(self) -> tuple[str, str, str, str]:
        """The directories in the order of the fields."""
        return self.journal, self.bindings, self.large_messages, self.paging


@dataclass(frozen=True, slots=True)
class HostedBackup:
    """One backup that a server hosts for another node."""

    place: int
    """Index among the backups of the server, from 0."""
    node_id: str
    """Node id of the requesting node."""
    requester: ConnectorConfiguration
    """The connector by which the requesting node is reached."""
    directories: StoreDirectories | None
    """Directories of the shared store; None: replication, in directories beside those of the parent."""

    @property
    def name(self) -> str:
        """The name that Artemis gives it: ``colocated_backup_01``, then ``colocated_backup_11``."""
        return f"colocated_backup_{self.place}1"


def hosted_configuration(parent: Configuration, backup: HostedBackup) -> Configuration:
    """The configuration of a hosted backup.

    Args:
        parent: Server that hosts it, with a colocated policy.
    """
    colocated = parent.ha_policy.colocated
    assert colocated is not None, "a server without the element colocated hosts no backups"
    shift = _Shift(backup.name, colocated.backup_port_offset * (backup.place + 1), colocated.excludes)
    scales_down = colocated.backup.moves_instead_of_serving
    connectors = parent.connectors if scales_down else tuple(map(shift.connector, parent.connectors))
    own = StoreDirectories.of(parent)
    directories = backup.directories or own.with_suffix(backup.name)
    retention = None
    if backup.directories is None and parent.journal_retention_directory is not None:
        retention = f"{parent.journal_retention_directory}{backup.name}"
    policy = parent.critical_analyzer_policy
    return replace(
        parent,
        name=backup.name,
        acceptors=() if scales_down else tuple(map(shift.acceptor, parent.acceptors)),
        connectors=(*connectors, replace(backup.requester, name=REQUESTER)),
        cluster_connections=tuple(
            _with_members(parent, each, with_parent=scales_down and colocated.backup.replication is not None)
            for each in parent.cluster_connections
        ),
        journal_directory=directories.journal,
        bindings_directory=directories.bindings,
        large_messages_directory=directories.large_messages,
        paging_directory=directories.paging,
        node_manager_lock_directory=directories.journal,
        create_bindings_dir=True,
        create_journal_dir=True,
        journal_retention_directory=retention,
        # HALT would end the parent as well
        critical_analyzer_policy=CriticalAnalyzerPolicy.SHUTDOWN if policy is CriticalAnalyzerPolicy.HALT else policy,
        configuration_file_refresh_period_ms=-1,
        ha_policy=_policy(parent, colocated, backup),
    )


def _policy(parent: Configuration, colocated: ColocatedConfiguration, backup: HostedBackup) -> HighAvailabilityPolicy:
    policy = colocated.backup
    replication, scale_down = policy.replication, policy.scale_down
    if replication is not None:
        replication = replace(replication, of_node=backup.node_id)
    if scale_down is not None and replication is not None:
        # a hosted backup cannot serve messages that no other node takes
        scale_down = replace(scale_down, host=parent.pair_connection.connector_ref)
    elif scale_down is not None and not scale_down.connectors and scale_down.discovery_group is None:
        scale_down = _to_parent(parent, scale_down)
    return replace(
        policy,
        # after a failback the hosted backup's place is free, and the other node requests a backup again
        restart_backup=False,
        replication=replication,
        scale_down=scale_down,
        network_check=parent.ha_policy.network_check,
    )


def _to_parent(parent: Configuration, scale_down: ScaleDownConfiguration) -> ScaleDownConfiguration:
    """Without other targets the messages go to the parent."""
    return replace(scale_down, connectors=(parent.cluster_connections[0].connector_ref,))


def _with_members(
    parent: Configuration, connection: ClusterConnectionConfiguration, *, with_parent: bool
) -> ClusterConnectionConfiguration:
    """A cluster connection with the requesting node, and the parent if that is to vote and to take messages."""
    if connection.connector_ref != parent.pair_connection.connector_ref:
        # the requesting node is on another cluster connection, where its connector is known
        return connection
    added = (REQUESTER, connection.connector_ref) if with_parent else (REQUESTER,)
    return replace(connection, static_connectors=(*connection.static_connectors, *added))


def keeps_port(parameters: Mapping[str, ParameterValue]) -> bool:
    """Whether a transport of a hosted backup has the port of its parent.

    A request for an HTTP upgrade names the server, so the port is shared; ``doNotOffset`` says it of other transports
    (reference/000).
    """
    return any(parameters.get(name) is True for name in ("httpUpgradeEnabled", DO_NOT_OFFSET))


@dataclass(frozen=True, slots=True)
class _Shift:
    """Transports of the parent as those of one hosted backup."""

    name: str
    offset: int
    excludes: tuple[str, ...]

    def acceptor(self, acceptor: AcceptorConfiguration) -> AcceptorConfiguration:
        return replace(
            acceptor,
            port=self._port(acceptor.port, acceptor.parameters),
            parameters=self._named(acceptor.parameters),
        )

    def connector(self, connector: ConnectorConfiguration) -> ConnectorConfiguration:
        if connector.name in self.excludes:
            return connector
        return replace(
            connector,
            port=self._port(connector.port, connector.parameters),
            parameters=self._named(connector.parameters),
        )

    def _port(self, port: int, parameters: Mapping[str, ParameterValue]) -> int:
        """The port 0 lets the system choose."""
        return port if port == 0 or keeps_port(parameters) else port + self.offset

    def _named(self, parameters: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
        return {**parameters, SERVER_NAME: self.name}


# --- checks of a file ----------------------------------------------------------------------------------------


def check_colocated(document: Document, core: Node, configuration: Configuration) -> None:
    """Check the element ``colocated`` together with the rest of the file.

    Args:
        document: Makes errors and takes warnings.
        core: The root element.
        configuration: Read from it.

    Raises:
        ConfigError: a hosted backup could not use its ports, directories or connectors.
    """
    colocated = configuration.ha_policy.colocated
    policy = core.child("ha-policy")
    if colocated is None or policy is None:
        return
    node = policy.children[0].children[0]
    if colocated.backup.replication is None:
        _check_directories(document, core, node, colocated, configuration)
    if colocated.max_backups > 0 and not colocated.backup.moves_instead_of_serving:
        _check_ports(document, node, colocated, configuration)
        _check_connectors(document, node, colocated, configuration)


def _check_directories(
    document: Document, core: Node, node: Node, colocated: ColocatedConfiguration, configuration: Configuration
) -> None:
    if colocated.request_backup and configuration.node_manager_lock_directory != configuration.journal_directory:
        message = "a request for a backup names no such directory: with request-backup it is journal-directory"
        raise document.error_at(core.child("node-manager-lock-directory") or node, message)
    if configuration.journal_retention_directory is not None:
        written = core.child("journal-retention-directory") or node
        message = "a hosted backup does not know the retention directory of its primary: it keeps no files"
        document.warn("retention of hosted backups", message, written)


def _ports(colocated: ColocatedConfiguration, configuration: Configuration) -> Iterator[tuple[str, str, int]]:
    """Server, host and port of all acceptors with a fixed port of their own."""
    fixed = [each for each in configuration.acceptors if each.port]
    yield from ((f"acceptor {each.name!r}", each.host, each.port) for each in fixed)
    for place in range(colocated.max_backups):
        offset = colocated.backup_port_offset * (place + 1)
        for each in fixed:
            if not each.http_upgrade:
                port = each.port if keeps_port(each.parameters) else each.port + offset
                yield f"acceptor {each.name!r} of hosted backup {place + 1}", each.host, port


def _check_ports(
    document: Document, node: Node, colocated: ColocatedConfiguration, configuration: Configuration
) -> None:
    written = node.child("backup-port-offset") or node.child("max-backups") or node
    taken: dict[int, list[tuple[str, str]]] = {}
    for name, host, port in _ports(colocated, configuration):
        if port > _PORT_MAX:
            raise document.error_at(written, f"{name} would listen on port {port}, the highest is {_PORT_MAX}")
        for other, other_host in taken.get(port, ()):
            if host == other_host or host in _ANY_ADDRESS or other_host in _ANY_ADDRESS:
                raise document.error_at(written, f"{name} and {other} would both listen on port {port}")
        taken.setdefault(port, []).append((name, host))


def _check_connectors(
    document: Document, node: Node, colocated: ColocatedConfiguration, configuration: Configuration
) -> None:
    excludes = node.child("excludes") or node
    own = {each.connector_ref for each in configuration.cluster_connections}
    for name in own:
        if name in colocated.excludes:
            message = f"connector {name!r} is the address of this node: a hosted backup needs one of its own"
            raise document.error_at(excludes, message)
    remote = {name for each in configuration.cluster_connections for name in each.static_connectors}
    for name in sorted(remote - own - set(colocated.excludes)):
        message = f"connector {name!r} of static-connectors is not in excludes: a hosted backup adds the offset to it"
        document.warn(f"connector {name} of hosted backups", message, excludes)
