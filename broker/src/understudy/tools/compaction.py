"""Compacting the log of a store that no node serves from (``understudy data compact``).

The consolidator run to its end: an epoch of our own, snapshots, dropped segments, messages copied
forward, a clean close. Whatever interrupts it, the store is one that any node can open; beginning
again goes on. Large messages are left alone: their files belong to the node that activates next.

``plan`` lists the steps and only reads.

Not here: the lock of the store, which the caller holds while it compacts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, DiskFull
from understudy.ids import NodeId
from understudy.ports import Clock, Disk
from understudy.store.log.epoch import Epoch, begin_epoch
from understudy.store.log.journal import Journal
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.segment import (
    SEGMENT_BYTES,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    log_size_bytes,
    read_header,
)
from understudy.store.named_readers import NamedReaders, appended_to
from understudy.store.quarantine import read_known_damage
from understudy.store.retention import RetentionSettings
from understudy.store.settings import StoreSettings
from understudy.store.snapshots.consolidator import ConsolidatedLog, Consolidator, sparse_segments
from understudy.store.snapshots.references import LiveReferences, waiting_references
from understudy.store.snapshots.relocation import Relocations
from understudy.store.state import LateChanges, SegmentUse, StoreState
from understudy.tools.step_writer import stepped

#: A snapshot is only relied on once another was made from it, so copied segments are removed two rounds later.
_ROUNDS_AFTER: Final = 2
_ROUNDS_MAX: Final = 12
#: Duplicate ids are the broker's to limit (id-cache-size): none is lost here.
_ID_CACHE_SIZE: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Findings before a compaction."""

    node_id: str | None
    epoch: int
    sequence: int
    size_bytes: int
    """Bytes of segments and snapshots."""
    live_bytes: int
    """Bytes of records that are needed."""
    segments: int
    dead_segments: int
    """Segments without a record that is still needed, which the compaction removes."""
    sparse_segments: int
    """Little in them lives: it would be copied to the end of the log, and they would be dropped."""
    copy_bytes: int
    free_bytes: int
    """Bytes of the dead and the sparse ones, less those copied: about the bytes that would be freed."""


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """Results of a compaction."""

    node_id: str
    epoch: int
    """Epoch that the compaction began."""
    sequence: int
    size_bytes_before: int
    size_bytes_after: int
    live_bytes: int
    segments_before: int
    segments_after: int
    dropped_segments: int
    copied_messages: int
    trouble: str | None
    """Reason why not everything was done that could be."""


def plan(disk: Disk, directory: str, percent: int) -> CompactionPlan:
    """Plan a compaction; reads only.

    Args:
        disk: Where the store is.
        percent: See ``compact``.

    Raises:
        JournalCorrupt, StoreVersionUnsupported, DiskFailed: as a start would.
    """
    follower = recover(disk, directory)
    follower.close()
    state = follower.state
    ends = {end.number: end.end for end in follower.ends()}
    live = _live_bytes(state)
    dead = [number for number in ends if number not in live]
    sparse = set(sparse_segments(ends, live, percent))
    copy_bytes = sum(live[number] for number in sparse)
    return CompactionPlan(
        node_id=state.node_id,
        epoch=state.epoch,
        sequence=state.sequence,
        size_bytes=log_size_bytes(disk, directory),
        live_bytes=sum(live.values()),
        segments=len(ends),
        dead_segments=len(dead),
        sparse_segments=len(sparse),
        copy_bytes=copy_bytes,
        free_bytes=sum(ends[number] for number in (*dead, *sparse)) - copy_bytes,
    )


def _live_bytes(state: StoreState) -> dict[int, int]:
    live = LiveReferences(state.live, LateChanges())
    for queue_id, backlog in state.references.items():
        for payload in waiting_references(queue_id, backlog):
            live.passing(payload)
    live.count_transactions(state.transactions.values())
    return live.bytes.by_segment


class Compaction:
    """An offline compaction of a store, which begins a new epoch."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        node_id: NodeId,
        clock: Clock,
        percent: int,
        retention: RetentionSettings | None = None,
    ) -> None:
        """Begin an epoch for the compaction.

        Args:
            disk: Where the store is, writable; the store's lock is held.
            node_id: Id of the node whose store it must be.
            clock: Used for times in the log.
            percent: Live share of a segment below which its messages are copied; above 75 is 75.
            retention: Where dropped segments go; None if they just go.

        Raises:
            StoreError: see ``begin_epoch``; nothing was changed.
        """
        self._disk = disk
        self._directory = directory
        self._size_bytes_before = log_size_bytes(disk, directory)
        follower = Follower(disk, directory, node_id=node_id, id_cache_size=_ID_CACHE_SIZE)
        settings = StoreSettings(
            segment_bytes=_segment_bytes(follower, disk, directory),
            compact_segments_min=1,
            compact_percent=percent,
            retention=retention,
        )
        files, self._writer = stepped(disk, directory, retention)
        epoch: Epoch = begin_epoch(follower, files.applier, clock, node_id, settings.segment_bytes)
        files.applier.apply([epoch.tidy_up()])
        self._state = epoch.state
        self._first = epoch.number
        self._segments_before = len(epoch.state.segments) - 1
        self._failures: list[BaseException] = []
        self._journal = Journal(
            files=files,
            clock=clock,
            epoch=epoch,
            settings=settings,
            on_failure=self._failures.append,
            on_segment=self._begin_segment,
            on_space=lambda: None,
        )
        self._consolidator = Consolidator(
            consolidated=ConsolidatedLog(files, self._journal, self._state, Relocations(), self._forget),
            clock=clock,
            readers=NamedReaders(self._journal, self._state, clock, appended_to(self._journal, self._state)),
            known=read_known_damage(disk, directory),
            # no queue is served here: a damaged record stays where it is
            damaged=lambda number, offset: None,
            settings=settings,
        )
        self._consolidator.begin(disk, epoch.names)

    def _begin_segment(self, number: int, first_sequence: int) -> SegmentUse:
        return self._state.begin_segment(number, self._journal.epoch, first_sequence)

    def _forget(self, number: int) -> int | None:
        return self._state.removable.get(number)

    def run(
        self, progress: Callable[[int, int, int], None] = lambda segments, dropped, copied: None
    ) -> CompactionReport:
        """Copy the live messages, remove the segments, and close the log.

        Args:
            progress: Gets the numbers of segments left, segments dropped and messages copied, after each round.

        Raises:
            DiskFull: there is no space to go on; the work done so far is kept.
            DiskFailed: a write or sync has failed; likewise.
        """
        idle = 0
        for _ in range(_ROUNDS_MAX):
            before = self._old_segments(), self._consolidator.copied_messages
            self._journal.begin_segment()
            self._settle()
            if not self._consolidator.consolidate_all():
                break
            self._settle()
            progress(len(self._state.segments), self._consolidator.dropped_segments, self._consolidator.copied_messages)
            idle = idle + 1 if before == (self._old_segments(), self._consolidator.copied_messages) else 0
            if self._consolidator.trouble is not None or idle == _ROUNDS_AFTER:
                break
        trouble = self._consolidator.trouble
        self._consolidator.stop()
        closed: list[bool] = []
        self._journal.close(lambda: closed.append(True))
        while not closed and self._writer.drain():
            continue
        self._check()
        return CompactionReport(
            node_id=str(self._state.node_id),
            epoch=self._journal.epoch,
            sequence=self._journal.sequence,
            size_bytes_before=self._size_bytes_before,
            size_bytes_after=log_size_bytes(self._disk, self._directory),
            live_bytes=sum(self._consolidator.live.values()),
            segments_before=self._segments_before,
            segments_after=len(self._state.segments),
            dropped_segments=self._consolidator.dropped_segments,
            copied_messages=self._consolidator.copied_messages,
            trouble=None if trouble is None else str(trouble),
        )

    def _old_segments(self) -> int:
        return sum(number < self._first for number in self._state.segments)

    def _settle(self) -> None:
        """Until everything is durable and the consolidator has nothing to do."""
        while True:
            self._journal.flush()
            self._consolidator.background.turn()
            did = self._writer.drain()
            self._check()
            if not self._consolidator.busy and not self._journal.backlog_bytes and not did:
                return
            if not did:
                raise DiskFull(f"{self._directory}: no space for the next segment of the journal")

    def _check(self) -> None:
        if self._failures:
            raise DiskFailed(f"{self._directory}: {self._failures[0]}") from self._failures[0]


def _segment_bytes(follower: Follower, disk: Disk, directory: str) -> int:
    """The size with which the newest segment was made."""
    follower.poll(1)
    if not follower.chain.links:
        return SEGMENT_BYTES
    link = follower.chain.links[-1]
    file = disk.open(f"{directory}/{link.name}", read_only=True)
    try:
        allocated_bytes = read_header(file, link.number, link.epoch).allocated_bytes
    finally:
        file.close()
    return min(max(allocated_bytes, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX)
