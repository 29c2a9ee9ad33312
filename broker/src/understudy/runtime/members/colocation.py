"""The colocated backups of one node: those that it hosts, and the one that it asks another member to host.

The hosted ones are nodes of their own in the process (``runtime.process.server``); this starts them. Not here: which
are accepted (``cluster.colocation.hosting``), when this node asks (``cluster.colocation.requests``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from understudy.cluster.colocation.hosting import Hosting
from understudy.cluster.colocation.requests import BackupRequests
from understudy.config.colocated import HostedBackup, StoreDirectories, hosted_configuration
from understudy.config.high_availability import ColocatedConfiguration
from understudy.config.model import Configuration
from understudy.errors import BrokerError, StoreError
from understudy.ha.locks.replaced_file import read_file, replace_file
from understudy.ports import Disk
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.base.process import HostedServer, Process
from understudy.store.node_lock import read_node_id
from understudy.wire.core.packets import BackupRequest

log = logging.getLogger(__name__)

#: Below the instance directory.
NOTES_FOLDER: Final = "run"
NOTES_FILE: Final = "colocated-backups.json"
_NOTES_BYTES_MAX: Final = 1024 * 1024


class NotesFile:
    """The file with the hosted backups. Implements ``cluster.colocation.hosting.Notes``."""

    def __init__(self, disk: Disk, instance: str | None) -> None:
        """Args:
        disk: Where the instance directory is.
        instance: Absolute path of the instance; None: nothing is kept.
        """
        self._disk = disk
        self._folder = None if instance is None else f"{instance}/{NOTES_FOLDER}"
        self.place = f"{self._folder}/{NOTES_FILE}"

    def read(self) -> bytes | None:
        return None if self._folder is None else read_file(self._disk, self.place, _NOTES_BYTES_MAX)

    def write(self, data: bytes) -> None:
        if self._folder is not None:
            self._disk.make_directory(self._folder)
            replace_file(self._disk, self._folder, NOTES_FILE, data)


class HostedStarter:
    """Starts hosted backups. Implements ``cluster.colocation.hosting.Starter``."""

    def __init__(self, parts: NodeParts, process: Process) -> None:
        self._parts = parts
        self._process = process
        self.servers: dict[str, HostedServer] = {}
        """Servers by the node id of their primary; also those that have ended."""

    def refusal(self, backup: HostedBackup) -> str | None:
        """See ``Starter``. A store that is not shared would be taken for that of the other node, and served empty."""
        try:
            if backup.directories is None:
                self._set_aside(backup, self._configuration(backup))
                return None
            disk = self._parts.environment.disk
            for directory in backup.directories.named():
                if not directory.startswith("/") or not disk.exists(directory):
                    return f"directory {directory!r} of the shared store does not exist here"
            found = read_node_id(disk, backup.directories.journal)
        except StoreError as error:
            return str(error)
        if found != backup.node_id:
            return f"{backup.directories.journal} is not the store of the node: it has the node id {found or '(none)'}"
        return None

    def _set_aside(self, backup: HostedBackup, configuration: Configuration) -> None:
        """Rename the directories of a replica of another node, which had the place before.

        Raises:
            StoreError: they cannot be read or renamed.
        """
        disk, directories = self._parts.environment.disk, StoreDirectories.of(configuration)
        found = read_node_id(disk, directories.journal)
        if found in (None, backup.node_id):
            return
        # the journal is moved last, because its node id says whether all directories were moved
        for directory in dict.fromkeys((*directories.named()[1:], directories.journal)):
            if disk.exists(directory):
                disk.rename(directory, f"{directory}.of-{found}")
        log.warning("the replica of another node is set aside", extra={"server": backup.name, "node_id": found})

    def start(self, backup: HostedBackup, ended: Callable[[bool], None]) -> None:
        try:
            self.servers[backup.node_id] = self._process.host(backup, self._configuration(backup), ended)
        except BrokerError as error:
            log.error("a hosted backup cannot be made", extra={"server": backup.name, "error": str(error)})
            ended(False)

    def _configuration(self, backup: HostedBackup) -> Configuration:
        return hosted_configuration(self._parts.configuration.current, backup)


class NodeColocation:
    """The colocated backups of one node."""

    def __init__(self, parts: NodeParts, colocated: ColocatedConfiguration) -> None:
        """Args:
        parts: Parts of the node, which has a cluster connection. Without a process it hosts no backups, without an
            instance directory they are not started again.
        """
        assert parts.membership is not None, "colocated needs a cluster-connection"
        self._parts = parts
        self._restored = False
        self._starter = None if parts.process is None else HostedStarter(parts, parts.process)
        self.hosting: Hosting | None = None
        """Backups that the process hosts for other nodes; None: it hosts none."""
        if self._starter is not None:
            notes = NotesFile(parts.environment.disk, parts.instance_directory)
            self.hosting = Hosting(colocated, lambda: parts.lock.node_id, notes, self._starter, parts.turn)
        self.requests: BackupRequests | None = None
        """Requests for backups at other members; None without request-backup."""
        if colocated.request_backup:
            self.requests = BackupRequests(
                parts.membership,
                self._has_backup,
                self._request,
                parts.turn,
                retries=colocated.backup_request_retries,
                interval_ms=colocated.backup_request_retry_interval_ms,
            )

    def begin(self) -> None:
        """Start noted backups, and ask for the own one; called when the node is active and in the cluster."""
        if self.hosting is not None and not self._restored:
            self._restored = True
            self.hosting.restore()
        if self.requests is not None:
            self.requests.start()

    def end(self) -> None:
        """The node does not serve any more. Hosted backups go on until the process of the node ends them."""
        if self.requests is not None:
            self.requests.stop()

    def close(self) -> None:
        """Called when the node has ended."""
        if self.hosting is not None:
            self.hosting.close()

    def _has_backup(self) -> bool:
        member = self._parts.topology.member(self._parts.lock.node_id)
        return member is not None and member.backup is not None

    def _request(self) -> BackupRequest:
        configuration = self._parts.configuration.current
        if configuration.ha_policy.replication is not None:
            return BackupRequest(0, node_id=self._parts.lock.node_id)
        used = StoreDirectories.of(configuration)
        return BackupRequest(
            0, used.journal, used.bindings, used.large_messages, used.paging, node_id=self._parts.lock.node_id
        )

    def hosted(self) -> Iterator[tuple[HostedBackup, str, list[str]]]:
        """Each hosted backup with its state and the addresses at which it listens once it is active."""
        if self.hosting is None or self._starter is None:
            return
        for backup in self.hosting.backups.values():
            server = self._starter.servers.get(backup.node_id)
            configuration = hosted_configuration(self._parts.configuration.current, backup)
            state = "stopped" if server is None else server.state
            yield backup, state, [each.url for each in configuration.acceptors]


def make_colocation(parts: NodeParts) -> NodeColocation | None:
    """The colocated backups of a node; None without a colocated policy."""
    colocated = parts.configuration.current.ha_policy.colocated
    return None if colocated is None else NodeColocation(parts, colocated)
