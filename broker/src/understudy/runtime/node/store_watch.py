"""Checks that the store is the one that the node used before, and records its position.

Of a node with a store of its own the end of the log is also compared with the position that the lock manager keeps, and
with the one that a replica proves (ADR 0118).

Before the node creates or opens anything, and again before it activates, it checks the identity of the store
(``check_identity``) and that the log does not end before the recorded position (``store.seen``). While it follows and
while it is active, the highest durable position is recorded in the instance directory every second.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from understudy.config.model import Configuration
from understudy.errors import BrokerError
from understudy.ports import Disk, LogWriter
from understudy.store.log.operation_context import Voter
from understudy.store.log.reading.end import ends_before
from understudy.store.log.reading.follow_pace import FollowPace
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.messages.message_store import MessageStore
from understudy.store.replication.replica_state import ReplicaStatus, read_replica_state
from understudy.store.scrubbing import Scrubber, ScrubberState, ScrubReport
from understudy.store.seen import (
    Position,
    SeenPosition,
    WatchedFollower,
    behind_kept,
    check_identity,
    position_of,
)

log = logging.getLogger(__name__)

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
        self.syncs = configuration.journal_datasync and configuration.journal_sync_non_transactional
        """Whether each batch of the log is synced before the next is begun."""
        self.pace = FollowPace(replica=configuration.ha_policy.replication is not None)
        """Time of the next record of a passive node."""
        self.scrubber: Scrubber | None = None
        """Compares the files with their checksums, or did until it was closed."""
        self._timer: asyncio.TimerHandle | None = None
        self._noting: MessageStore | None = None
        """The store whose positions are recorded."""
        self._compared: tuple[Position, bool] | None = None
        """The position that was compared last with the copy on this node, and whether the copy ends before it."""

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
            disk, directory, self._seen, syncs=self.syncs, id_cache_size=id_cache_size, quarantine=quarantine
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

    # --- a store that was put back to an older state (ADR 0118) -------------------------------------

    def end_of_log(self) -> Position:
        """The position at which the log ends, read from its beginning: a follower stops before a damaged record that an
        activation passes over. Blocks.

        Raises:
            StoreError: the log cannot be read.
        """
        configuration = self._configuration
        quarantine = configuration.quarantine_damaged_records
        follower = recover(self._disk, configuration.journal_directory, quarantine=quarantine)
        follower.close()
        return position_of(follower)

    def check_kept(self, found: Position, kept: tuple[int, int], keeper: str) -> None:
        """Compare the end of the log with the position that the lock manager keeps; see ``SeenPosition.check_kept``.

        Raises:
            StoreBehind: the log ends before it, and no operator has accepted that.
            StoreError: the record of this node cannot be read or written.
        """
        if self._seen is not None:
            self._seen.check_kept(found, kept, keeper)
        elif not found.reaches(*kept):
            raise behind_kept(found, kept, keeper, "")

    def had(self) -> tuple[str, int, int] | None:
        """Node id, epoch and sequence that the writer of the complete copy on this node had synced: the last position
        that a later batch in the copy proves. None: the data is no copy, nothing was recorded, or the copy ends before
        that position. Then the record is wrong or this node has lost the rest itself, which proves nothing about
        another node (ADR 0124).

        Raises:
            StoreError: the record, the state of the copy, or its log cannot be read.
        """
        state = read_replica_state(self._disk, self._configuration.journal_directory)
        if self._seen is None or not self.syncs or state.status is not ReplicaStatus.IN_SYNC:
            return None
        noted = self._seen.read()
        if noted is None or (noted.node_id, noted.epoch) != (state.node_id, state.epoch):
            return None
        if self._lacks(noted):
            return None
        return noted.node_id, noted.epoch, noted.sequence

    def _lacks(self, noted: Position) -> bool:
        """Whether the copy ends before a position. Its files do not change while the node looks for an active one, so
        they are read once for each position.
        """
        if self._compared is None or self._compared[0] != noted:
            lacks = ends_before(self._disk, self._configuration.journal_directory, noted.epoch, noted.sequence)
            if lacks:
                text = "the copy on this node ends before the position that it has noted: nothing is said about it"
                log.warning(text, extra={"noted": str(noted)})
            self._compared = (noted, lacks)
        return self._compared[1]

    def put_back(self, store: MessageStore, epoch: int, sequence: int) -> BrokerError | None:
        """The copy of a replica proves that the store of this node had a position. If it has not any more, and no
        operator has accepted that, this is recorded durably, and the reason why the store must not be served returned.
        """
        end = store.state.end_of_epoch(epoch)
        if end is None:
            # a batch is begun when the one before is synced, so this node has synced what the copy proves
            end = store.context.mark(Voter.LOCAL_DISK)
        if self._seen is None or not self.syncs or sequence <= end:
            return None
        try:
            if self._seen.has_accepted(end):
                return None
            self._seen.put_back(epoch, sequence)
            return self._seen.why_not_serve()
        except BrokerError as error:
            return error

    def why_not_serve(self) -> BrokerError | None:
        """The reason why the store must not be served: see ``put_back``.

        Raises:
            StoreError: the record cannot be read.
        """
        return None if self._seen is None else self._seen.why_not_serve()

    def accept_next(self) -> None:
        """Let this node serve with the data that it has, because an operator requires it.

        Raises:
            StoreError: that cannot be recorded.
        """
        if self._seen is not None:
            self._seen.accept_next()

    def forget(self) -> None:
        """Forget the recorded position: the store is about to be replaced by a copy of that of another node.

        Raises:
            StoreError: the file cannot be removed.
        """
        self._compared = None
        if self._seen is not None:
            self._seen.forget()

    def closed(self, store: MessageStore) -> None:
        """Stop recording: the node has closed its store."""
        self._noting = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.syncs:
            self._note(store, sync=True)

    def _later(self, store: MessageStore) -> None:
        def note() -> None:
            self._note(store)
            self._later(store)

        if self.syncs and self._noting is store:
            self._timer = asyncio.get_running_loop().call_later(NOTE_MS / 1000, note)

    def _note(self, store: MessageStore, *, sync: bool = False) -> None:
        if self._seen is not None:
            self._seen.note(self._position(store), sync=sync)

    def _position(self, store: MessageStore) -> Position:
        return Position(store.node_id, store.epoch, store.context.durable)
