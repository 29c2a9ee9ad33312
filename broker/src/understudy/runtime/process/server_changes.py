"""The reload of servers of a process: what a changed file means for those that run (ADR 0180).

Not here: stopping and starting one (``servers``), and making its node (``cli.node.serving``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from understudy.config.changes import changes
from understudy.config.model import Configuration
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import BrokerError, ManagementError
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.process.server import Server
from understudy.store.seen import SeenPosition

log = logging.getLogger(__name__)


def nodes_of(loaded: LoadedConfig) -> int:
    """Number of the nodes of a process, with the backups that it may host."""
    colocated = loaded.configuration.ha_policy.colocated
    return 1 + len(loaded.servers) + (0 if colocated is None else colocated.max_backups)


class ServerChanges:
    """Reloads servers of one process."""

    def __init__(self, process: Server, keep: Callable[[str], None]) -> None:
        """Args:
        keep: Has a further server made when it is started.
        """
        self._process = process
        self._servers = process.servers
        self._keep = keep

    def reload(self, known_as: str, main: bool, loaded: LoadedConfig, forced: bool) -> None:
        """Begin to reload a server.

        With the main one, servers that the file has changed are reloaded, those that it has added are started, and
        those that it has no more are stopped; all are reloaded if their number changes, because they share the memory
        and descriptors of the process.

        Args:
            known_as: Name of the server.
            main: Whether it is that of ``core``.
            loaded: The present file.
            forced: Whether also servers are stopped that no node would replace, or that leave messages in a store.

        Raises:
            ManagementError: a server is being stopped, or may not be stopped.
        """
        if not main:
            self._begin({known_as: loaded.server(known_as)}, forced=forced)
            return
        wanted = [each.configuration.name for each in loaded.servers]
        known = [name for name in self._servers.makers if name != known_as]
        added, removed = [name for name in wanted if name not in known], [name for name in known if name not in wanted]
        stopped = {known_as: loaded.configuration}
        for name in wanted:
            configuration = loaded.server(name)
            if self._servers.is_running(name) and (added or removed or self._needs_restart(name, configuration)):
                stopped[name] = configuration
        self._begin(stopped, forced=forced)
        self._process.resize(nodes_of(loaded))
        for name in removed:
            self._servers.forget(name, "the configuration does not have it any more")
        for name in added:
            self._start(name)

    def _begin(self, stopped: dict[str, Configuration], *, forced: bool) -> None:
        if not forced:
            for name, configuration in stopped.items():
                self._check_store(name, configuration)
        self._servers.reload(tuple(stopped), "reload", forced=forced)

    def _start(self, name: str) -> None:
        self._keep(name)
        try:
            self._servers.start(name)
        except BrokerError as error:
            facts = {"server": name, "code": error.code, "error": str(error)}
            log.error("an added server could not be started", extra=facts)

    def _needs_restart(self, name: str, configuration: Configuration) -> bool:
        return bool(changes(self._servers.nodes[name].node.configuration, configuration).restart)

    def _check_store(self, server: str, wanted: Configuration) -> None:
        """Raises ManagementError: messages would stay in a store that a server does not use any more."""
        present, messages = self._servers.nodes[server].node.configuration, self._servers.messages(server)
        if present.store_directories() != wanted.store_directories() and messages:
            raise ManagementError(
                f"server {server!r} gets other directories, and its store has {messages} messages: they would stay in"
                " the present directories and not be served",
                hint="consume them first; :reload(force=true) reloads it nevertheless",
            )

    def forget_store(self, known_as: str, notes: Path, wanted: Configuration) -> None:
        """Forget the position of the log of a server that gets another directory by a reload: it is that of another
        store. Does nothing for a server that starts otherwise.

        Args:
            known_as: Name of the server.
            notes: Directory of its notes.
            wanted: The present configuration.

        Raises:
            StoreError: the note cannot be removed.
        """
        if not self._servers.reloads(known_as):
            return
        if wanted.journal_directory != self._servers.nodes[known_as].node.configuration.journal_directory:
            log.warning("a server uses another store", extra={"server": known_as, "store": wanted.journal_directory})
            SeenPosition(RealDisk(), str(notes)).forget()
