"""When a node checks that its store is the one it used before, and when it notes how far that goes.

Before the node makes or opens anything, and again before it activates: the identity of the store (``check_identity``),
and that the log is not behind what was seen (``store.seen``). While it follows and while it is active, the highest
durable position is noted in the instance directory every second.
"""

from __future__ import annotations

import asyncio
from typing import Final

from understudy.config.model import Configuration
from understudy.ports import Disk
from understudy.store.follower import Follower
from understudy.store.message_store import MessageStore
from understudy.store.seen import Position, SeenPosition, WatchedFollower, check_identity

#: How often an active node notes how far its log is durable.
NOTE_MS: Final = 1_000


class StoreWatch:
    """The checks and notes of one node.

    Args:
        disk: Where store and instance directory are.
        configuration: Of the node.
        instance: Instance directory, absolute; None: nothing is checked or noted.
    """

    def __init__(self, disk: Disk, configuration: Configuration, instance: str | None) -> None:
        self._disk = disk
        self._configuration = configuration
        self._instance = instance
        self._seen = SeenPosition(disk, instance) if instance is not None else None
        self._syncs = configuration.journal_datasync and configuration.journal_sync_non_transactional
        self._timer: asyncio.TimerHandle | None = None

    def check(self) -> None:
        """What can be seen without opening the log.

        Raises:
            WrongStore: the store has another identity than the instance notes, or none.
            StoreBehind: its newest epochs are missing.
            StoreError: a file cannot be read.
        """
        if self._instance is None or self._seen is None:
            return
        directory = self._configuration.journal_directory
        locks = self._configuration.node_manager_lock_directory
        check_identity(self._disk, self._instance, (directory, locks))
        self._seen.check_epoch(self._disk.list(directory), directory)

    def follower(self) -> Follower:
        """A follower of the store; its ``finish`` refuses a log that is behind."""
        disk, directory = self._disk, self._configuration.journal_directory
        id_cache_size = self._configuration.id_cache_size
        quarantine = self._configuration.quarantine_damaged_records
        if self._seen is None:
            return Follower(disk, directory, id_cache_size=id_cache_size, quarantine=quarantine)
        return WatchedFollower(
            disk, directory, self._seen, syncs=self._syncs, id_cache_size=id_cache_size, quarantine=quarantine
        )

    def activated(self, store: MessageStore) -> None:
        """The node has begun an epoch: note it, and from now on what becomes durable."""
        self._note(store, sync=True)
        self._later(store)

    def closed(self, store: MessageStore) -> None:
        """The node has closed its store."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._syncs:
            self._note(store, sync=True)

    def _later(self, store: MessageStore) -> None:
        def note() -> None:
            self._note(store)
            self._later(store)

        if self._seen is not None and self._syncs:
            self._timer = asyncio.get_running_loop().call_later(NOTE_MS / 1000, note)

    def _note(self, store: MessageStore, *, sync: bool = False) -> None:
        if self._seen is not None:
            self._seen.note(Position(store.node_id, store.epoch, store.context.durable), sync=sync)
