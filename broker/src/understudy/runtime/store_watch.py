"""Checks that the store is the one that the node used before, and records its position.

Before the node creates or opens anything, and again before it activates, it checks the identity of the store
(``check_identity``) and that the log does not end before the recorded position (``store.seen``). While it follows and
while it is active, the highest durable position is recorded in the instance directory every second.
"""

from __future__ import annotations

import asyncio
from typing import Final

from understudy.config.model import Configuration
from understudy.ports import Disk, LogWriter
from understudy.store.log.follow_pace import FollowPace
from understudy.store.log.follower import Follower
from understudy.store.message_store import MessageStore
from understudy.store.scrubbing import Scrubber, ScrubberState, ScrubReport
from understudy.store.seen import Position, SeenPosition, WatchedFollower, check_identity

#: Period for recording the durable position of an active node.
NOTE_MS: Final = 1_000


class StoreWatch:
    """Checks and records of one node.

    Args:
        disk: File system of the store and of the instance directory.
        configuration: Configuration of the node.
        instance: Instance directory, absolute; None: nothing is checked or recorded.
    """

    def __init__(self, disk: Disk, configuration: Configuration, instance: str | None) -> None:
        self._disk = disk
        self._configuration = configuration
        self._instance = instance
        self._seen = SeenPosition(disk, instance) if instance is not None else None
        self._syncs = configuration.journal_datasync and configuration.journal_sync_non_transactional
        self.pace = FollowPace(replica=configuration.ha_policy.replication is not None)
        """Time of the next record of a passive node."""
        self.scrubber: Scrubber | None = None
        """Compares the files with their checksums, or did until it was closed."""
        self._timer: asyncio.TimerHandle | None = None
        self._noting: MessageStore | None = None
        """The store whose positions are recorded."""

    @property
    def scrub_report(self) -> ScrubReport | None:
        """Report of the scrubber; None while there is none."""
        scrubber = self.scrubber
        return None if scrubber is None or scrubber.state is ScrubberState.CLOSED else scrubber.report

    def check(self) -> None:
        """Check the identity and the newest epochs, without opening the log.

        Raises:
            WrongStore, StoreError: as ``check_identity``.
            StoreBehind: its newest epochs are missing.
        """
        self.check_identity()
        if self._seen is not None:
            directory = self._configuration.journal_directory
            self._seen.check_epoch(self._disk.list(directory), directory)

    def check_identity(self) -> None:
        """Check the identity before an activation; the follower checks the epochs (``WatchedFollower.finish``).

        Raises:
            WrongStore: the store has another identity than the one recorded by the instance, or none.
            StoreError: a file cannot be read.
        """
        if self._instance is not None:
            directory = self._configuration.journal_directory
            locks = self._configuration.node_manager_lock_directory
            check_identity(self._disk, self._instance, (directory, locks))

    def follower(self) -> Follower:
        """A follower of the store; its ``finish`` refuses a log that ends before the recorded position."""
        disk, directory = self._disk, self._configuration.journal_directory
        id_cache_size = self._configuration.id_cache_size
        quarantine = self._configuration.quarantine_damaged_records
        if self._seen is None:
            return Follower(disk, directory, id_cache_size=id_cache_size, quarantine=quarantine)
        return WatchedFollower(
            disk, directory, self._seen, syncs=self._syncs, id_cache_size=id_cache_size, quarantine=quarantine
        )

    def activated(self, store: MessageStore, writer: LogWriter) -> None:
        """Record the epoch that the node has begun, and from now on its durable position.

        Args:
            store: The store, in the epoch.
            writer: Records the epoch, so that no client waits for the sync. A power failure before that
                makes the check less strict, as between two later records.
        """
        if self._seen is None:
            return
        seen, begun = self._seen, self._position(store)
        self._noting = store
        writer.run(lambda: seen.note(begun, sync=True), lambda error: self._later(store))

    def forget(self) -> None:
        """Forget the recorded position: the store is about to be replaced by a copy of that of another node.

        Raises:
            StoreError: the file cannot be removed.
        """
        if self._seen is not None:
            self._seen.forget()

    def closed(self, store: MessageStore) -> None:
        """Stop recording: the node has closed its store."""
        self._noting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._syncs:
            self._note(store, sync=True)

    def _later(self, store: MessageStore) -> None:
        def note() -> None:
            self._note(store)
            self._later(store)

        if self._syncs and self._noting is store:
            self._timer = asyncio.get_running_loop().call_later(NOTE_MS / 1000, note)

    def _note(self, store: MessageStore, *, sync: bool = False) -> None:
        if self._seen is not None:
            self._seen.note(self._position(store), sync=sync)

    def _position(self, store: MessageStore) -> Position:
        return Position(store.node_id, store.epoch, store.context.durable)
