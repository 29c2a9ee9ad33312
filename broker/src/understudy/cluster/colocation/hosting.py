"""The backups that a node hosts for other members (artemis-ha s. 5).

A backup that was accepted is noted in a file of the instance directory and started again when the node is: its store
may have newer data than that of its primary. It keeps its place, and with it its ports and directories, until it ends
cleanly, which it does after a failback. One that failed keeps its place too, and is started again, after a wait that
doubles with each failure: its primary may be gone, so there may be no further request.

Not here: the requests of this node for its own backup (``requests``), the configuration of a backup
(``config.colocated``), and its start (``runtime.members.colocation``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from understudy.cluster.membership.backup_host import Requester
from understudy.config.colocated import HostedBackup, StoreDirectories
from understudy.config.high_availability import ColocatedConfiguration
from understudy.config.model import ConnectorConfiguration
from understudy.errors import StoreError
from understudy.ports import Timers
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

VERSION: Final = 1
#: Longest wait before a backup that has failed is started again.
RESTART_MS_MAX: Final = 60_000


class Notes(Protocol):
    """A file with the hosted backups."""

    place: str
    """Path of the file, for errors."""

    def read(self) -> bytes | None:
        """Contents of the file; None: there is none. Raises DiskFailed."""
        ...

    def write(self, data: bytes) -> None:
        """Replace the stored notes, durably. Raises DiskFailed."""
        ...


class Starter(Protocol):
    """Starts backups in this process."""

    def refusal(self, backup: HostedBackup) -> str | None:
        """Reason why a backup cannot be started here, such as directories that do not exist; None: it can."""
        ...

    def start(self, backup: HostedBackup, ended: Callable[[bool], None]) -> None:
        """Start a backup; ``ended`` is called with whether it ended cleanly, unless the process ends with it."""
        ...


class Hosting:
    """The hosted backups of one node. Implements ``cluster.membership.backup_host.BackupHost``."""

    def __init__(
        self,
        colocated: ColocatedConfiguration,
        own_id: Callable[[], str],
        notes: Notes,
        starter: Starter,
        timers: Timers,
    ) -> None:
        """No backup is started before ``restore`` or a request.

        Args:
            own_id: Node id of this node.
            starter: Starts backups.
            timers: Used for the start after a failure.
        """
        self.backups: dict[str, HostedBackup] = {}
        """Accepted ones, by the node id of their primary."""
        self.running: set[str] = set()
        """Node ids of backups that were started and have not ended."""
        self._colocated = colocated
        self._own_id = own_id
        self._notes = notes
        self._starter = starter
        self._timers = timers
        self._closed = False
        self._failures: dict[str, int] = {}
        """Failures of a backup, by the node id of its primary, since it was accepted."""
        self._unreadable: str | None = None
        """Reason why the file cannot be read. It is not replaced: it may name a backup with the newest data of its
        pair."""

    # --- BackupHost --------------------------------------------------------------------------------

    def vote(self, asking: str | None) -> packets.BackupVote:
        """See ``BackupHost``. A node that hosts the backup of the asking one already is the best host: it answers as
        one without backups.
        """
        if asking is not None and asking in self.backups:
            return packets.BackupVote(0, self._own_id(), available=True)
        count = len(self.backups)
        available = count < self._colocated.max_backups and self._unreadable is None
        return packets.BackupVote(count, self._own_id(), available=available)

    def host(self, requester: Requester, request: packets.BackupRequest) -> str | None:
        known = self.backups.get(requester.node_id)
        if known is not None and requester.node_id in self.running:
            return None
        refusal = None if known is not None else self._refusal(requester, request)
        backup = known or HostedBackup(
            self._free_place(), requester.node_id, _configured(requester.connector), _directories(request)
        )
        refusal = refusal or self._starter.refusal(backup)
        if refusal is None and known is None:
            refusal = self._note(backup)
        if refusal is not None:
            log.warning("no backup is hosted", extra={"node_id": requester.node_id, "reason": refusal})
            return refusal
        self._start(backup)
        return None

    def _refusal(self, requester: Requester, request: packets.BackupRequest) -> str | None:
        if self._unreadable is not None:
            return self._unreadable
        if requester.node_id == self._own_id():
            return "it is the node id of this node"
        if len(self.backups) >= self._colocated.max_backups:
            return f"{len(self.backups)} backups are hosted, max-backups is {self._colocated.max_backups}"
        if request.backup_size != len(self.backups):
            return f"{len(self.backups)} backups are hosted, the request expects {request.backup_size}"
        replication = self._colocated.backup.replication
        if replication is None:
            return None if _directories(request) is not None else "the request names no directories of a shared store"
        if _directories(request) is not None:
            return "the request names the directories of a shared store, the backups here are replicas"
        if replication.group_name != requester.group:
            return f"the group-name of the node is {requester.group!r}, that of backups here {replication.group_name!r}"
        return None

    def _free_place(self) -> int:
        """Artemis takes the number of backups, which may be the place of another one after the end of an earlier."""
        taken = {each.place for each in self.backups.values()}
        return next(place for place in range(len(taken) + 1) if place not in taken)

    # --- life of the backups -----------------------------------------------------------------------

    def restore(self) -> None:
        """Start the backups that were hosted before this node was stopped. If the file with them cannot be read, none
        is started or accepted; this node serves nevertheless.
        """
        try:
            noted = _decode(self._notes.read())
        except StoreError as error:
            self._unreadable = f"{self._notes.place}: {error}"
            hint = "repair or remove the file, then restart this node; the other nodes ask for backups again"
            log.error("no backups are hosted", extra={"reason": self._unreadable, "hint": hint})
            return
        for backup in noted:
            if backup.node_id in self.running:
                continue
            self.backups[backup.node_id] = backup
            self._start_again(backup)

    def _start(self, backup: HostedBackup) -> None:
        log.info("a backup is hosted", extra={"server": backup.name, "node_id": backup.node_id})
        self.running.add(backup.node_id)
        self._starter.start(backup, lambda clean: self._ended(backup, clean=clean))

    def _ended(self, backup: HostedBackup, *, clean: bool) -> None:
        self.running.discard(backup.node_id)
        facts = {"server": backup.name, "node_id": backup.node_id}
        if not clean:
            wait_ms = self._wait_ms(backup)
            log.error("a hosted backup has failed, and is started again", extra={**facts, "wait_ms": wait_ms})
            self._timers.call_later(wait_ms, lambda: self._start_again(backup))
            return
        log.info("a hosted backup has ended, its place is free", extra=facts)
        self.backups.pop(backup.node_id, None)
        self._failures.pop(backup.node_id, None)
        refusal = self._write()
        if refusal is not None:
            log.error("the end of a hosted backup cannot be noted", extra={**facts, "reason": refusal})

    def _wait_ms(self, backup: HostedBackup) -> int:
        failures = self._failures.get(backup.node_id, 0)
        self._failures[backup.node_id] = failures + 1
        return min(self._colocated.backup_request_retry_interval_ms << min(failures, 16), RESTART_MS_MAX)

    def _start_again(self, backup: HostedBackup) -> None:
        if self.backups.get(backup.node_id) is not backup or backup.node_id in self.running or self._closed:
            return
        refusal = self._starter.refusal(backup)
        if refusal is None:
            self._start(backup)
            return
        wait_ms = self._wait_ms(backup)
        log.error(
            "a hosted backup is not started again",
            extra={"server": backup.name, "node_id": backup.node_id, "reason": refusal, "wait_ms": wait_ms},
        )
        self._timers.call_later(wait_ms, lambda: self._start_again(backup))

    def close(self) -> None:
        """Start no backup any more; called when the node has ended."""
        self._closed = True

    def _note(self, backup: HostedBackup) -> str | None:
        self.backups[backup.node_id] = backup
        refusal = self._write()
        if refusal is not None:
            del self.backups[backup.node_id]
        return refusal

    def _write(self) -> str | None:
        """Reason why the backups could not be noted; None: they are."""
        try:
            self._notes.write(_encode(self.backups.values()))
        except StoreError as error:
            return str(error)
        return None


def _configured(connector: TransportConfiguration) -> ConnectorConfiguration:
    parameters = {key: value for key, value in connector.parameters.items() if key not in ("host", "port")}
    return ConnectorConfiguration("", connector.host, connector.port, parameters=parameters)


def _directories(request: packets.BackupRequest) -> StoreDirectories | None:
    named = (
        request.journal_directory,
        request.bindings_directory,
        request.large_messages_directory,
        request.paging_directory,
    )
    return StoreDirectories(*(each or "" for each in named)) if any(named) else None


def _encode(backups: Any) -> bytes:
    listed = [
        {
            "place": each.place,
            "node_id": each.node_id,
            "requester": {
                "host": each.requester.host,
                "port": each.requester.port,
                "parameters": dict(each.requester.parameters),
            },
            "directories": None if each.directories is None else list(each.directories.named()),
        }
        for each in backups
    ]
    return json.dumps({"version": VERSION, "backups": listed}, indent=1).encode() + b"\n"


def _decode(data: bytes | None) -> list[HostedBackup]:
    """Raises StoreError: the file is damaged, or of another version."""
    if data is None or not data.strip(b"\0"):
        return []
    try:
        found = json.loads(data)
        if found["version"] != VERSION:
            raise StoreError(f"it has version {found['version']}, this node reads {VERSION}")
        return [_backup(each) for each in found["backups"]]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"it is damaged: {error}") from None


def _backup(entry: dict[str, Any]) -> HostedBackup:
    requester, directories = entry["requester"], entry["directories"]
    connector = ConnectorConfiguration(
        "", str(requester["host"]), int(requester["port"]), parameters=dict(requester["parameters"])
    )
    named = None if directories is None else StoreDirectories(*map(str, directories))
    return HostedBackup(int(entry["place"]), str(entry["node_id"]), connector, named)
