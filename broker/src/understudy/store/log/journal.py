"""The append side of the log: collects records, hands batches to the writer, changes segments.

Group commit: records are collected as buffers; ``flush`` hands everything collected
to the log writer if no batch is under way, and the next batch collects meanwhile. When a batch is
durable the operation context advances and the next one goes out at once. A few records for which nothing waits
(``resting``) stay collected. With syncing off (``Sync``)
most batches count as durable once they are written; their records then name the first one that no
sync has covered as the beginning of their batch, so that a torn tail can still be distinguished from damage.

Segments: the next ones (``preallocation``) are prepared through the writer while the current one
fills. The current one is sealed only when the spare is ready, so the reserve exists whenever the disk
fills up: then ``no_space`` is set, callers refuse new messages, and what frees space
(acknowledgements, commits) goes on in the spare. A file system that copies on write may be full
within an allocated segment, too: then the batch is written again, every second, until there is space, and
everything waits for it.

Invariants: batches of one journal reach the disk in order, one at a time; sequences are
consecutive; a failed write or sync is final (``failure``), nothing is released after it, and
appending raises it.

Not here: what records mean, activation (``epoch``), records accepted on a full disk
(``message_store``). The fast paths there use the attributes marked *hot*.
"""

from __future__ import annotations

import logging
import sys
from array import array
from collections import deque
from collections.abc import Callable
from typing import Final

from understudy.errors import DiskFailed, DiskFull, StoreError
from understudy.limits import JOURNAL_BACKLOG_BYTES_PAUSE
from understudy.ports import Clock, Operation
from understudy.store.log.applier import LogFiles
from understudy.store.log.batch import (
    BATCH_BYTES_MAX,
    LONE_RECORDS_MAX,
    SMALL_BATCH_BYTES,
    Batch,
    Seal,
    Sync,
    batch_of,
)
from understudy.store.log.epoch import Epoch
from understudy.store.log.journal_life import JournalEvent, JournalLife, JournalState
from understudy.store.log.operation_context import OperationContext
from understudy.store.log.operations import (
    Append,
    CloseFiles,
    EmptyPool,
    GiveUpReserve,
    PruneRetained,
    RemoveFile,
    RequireEpoch,
    SealSegment,
    SyncDirectory,
    append_of,
)
from understudy.store.log.preallocation import PREPARE_RETRY_MS, Preallocation, Readiness, Segment
from understudy.store.log.records import HEADER_BYTES, SEAL_FIXED_BYTES, RecordType, SealRecord
from understudy.store.log.segment import (
    HEADER_BLOCK_BYTES,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SegmentHeader,
    frame,
    parse_name,
    seed_of,
    segment_name,
)
from understudy.store.retention import PRUNE_EVERY_MS
from understudy.store.settings import StoreSettings
from understudy.store.state import SegmentUse

log = logging.getLogger(__name__)

_COMMITS: Final = frozenset({RecordType.TX_COMMIT, RecordType.TX_PREPARE})
#: Record types that may wait for a sync when syncing is off: the rest decides whether the log can be read at all.
_MAY_WAIT: Final = frozenset({RecordType.DELIVERY_COUNT, RecordType.DUPLICATE_ID, RecordType.TX_ROLLBACK}) | _COMMITS


class Journal:
    """The append side of the log of one activation."""

    def __init__(
        self,
        *,
        files: LogFiles,
        clock: Clock,
        epoch: Epoch,
        settings: StoreSettings,
        on_failure: Callable[[BaseException], None],
        on_segment: Callable[[int, int], SegmentUse],
        on_space: Callable[[], None],
    ) -> None:
        """Continues an epoch whose first segment holds its EPOCH record already.

        Args:
            files: Files of the log; both writers are closed by ``close``.
            clock: Used for the times in segments and for trying again.
            epoch: Epoch that has begun.
            settings: Settings of the store. A record larger than a segment gets a larger one.
            on_failure: Called once, when a write has failed for good.
            on_segment: Called when records go to another segment, with its number and first sequence; returns its
                entry in the state.
            on_space: Called when ``no_space`` has changed.
        """
        assert epoch.state.node_id is not None
        self._applier = files.applier
        self._directory = files.applier.directory
        self._writer = files.writer
        self._housekeeper = files.housekeeper
        self._clock = clock
        self.context = OperationContext(epoch.state.sequence)
        """Advanced when a batch is durable, failed when one fails."""
        self._on_failure = on_failure
        self._on_segment = on_segment
        self._on_space = on_space
        self._retains = settings.retention is not None
        self._prune_at_ms = 0
        segment_bytes = min(max(settings.segment_bytes, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX)
        self.epoch = epoch.state.epoch
        self.failure: BaseException | None = None
        self._queue: deque[Batch | Seal] = deque()
        self._under_way: Batch | Seal | None = None
        self._queued_bytes = 0
        self.congested = False
        """Whether too much waits to be written to read from any socket; decided when a batch is closed or written."""
        self._sealed_bytes = 0
        self._stalled_until_ms: int | None = None
        """Time at which a batch that waits for space in its segment is written again; None: no batch waits."""
        self._life = JournalLife(self)
        self._asked_at_close = False
        """The segment of the seal was asked for once more when the journal was to be closed."""
        number, position = epoch.number, epoch.position
        self._segment = Segment(
            number,
            segment_name(number, self.epoch),
            max(segment_bytes, position + SEAL_FIXED_BYTES + 8),
            Readiness.READY,
            made=True,
        )
        self._start_collecting(number, position, epoch.state.sequence, epoch.state.segments[number], settings.sync)
        self.spares = Preallocation(
            writer=files.writer,
            clock=clock,
            first=SegmentHeader(
                node_id=epoch.state.node_id,
                epoch=self.epoch,
                number=number + 1,
                created_ms=clock.wall_ms(),
                allocated_bytes=segment_bytes,
                first_of_epoch=False,
                format_version=epoch.state.format_version,
            ),
            ahead=settings.ahead,
            on_prepared=self._prepared,
            on_failure=self.fail,
            on_space=on_space,
        )

    def _start_collecting(self, number: int, position: int, sequence: int, use: SegmentUse, sync: Sync) -> None:
        self.parts: list[bytes] = []
        """Hot: buffers of the batch that is being collected, each of whole records."""
        self._batched = sequence
        """Sequence of the last record before it."""
        self._gathered = False
        """Whether records of it were gathered (``OperationContext.gathered``), mostly those of several clients."""
        self._gather_until = 0
        """Sequence before which the last record must be for the journal to wait one turn; 0: it may not wait, or it
        did.
        """
        self.sequence = sequence
        """Hot: of the last record appended."""
        self.number = number
        """Hot: of the segment that is being filled."""
        self.offset = position
        """Hot: where the next record goes."""
        self.batch = position
        """Hot: offset of the first record that the last sync before did not cover; of the batch that
        is being collected, unless syncing is off."""
        self._begin = position
        """Offset of the first record that is being collected."""
        self._sync = sync
        self._must_sync = sync is Sync.ALWAYS
        """Whether the batch that is being collected may not go unsynced."""
        self.seed = seed_of(number, self.epoch)
        """Hot: crc seed of the segment."""
        self.offsets = array("I", [HEADER_BLOCK_BYTES])
        """Hot: of every record in the segment."""
        self.use = use
        """Hot: message ids in the segment."""
        self.room = 0
        """Hot: a record that would end after this needs ``make_room`` first; 4 less per record. -1 while records are
        gathered (``OperationContext.gathered``), and when nothing may be appended any more."""
        self._first_sequence = sequence
        self._first_ms = self._clock.wall_ms()
        self._set_room(0)

    # --- appending ------------------------------------------------------------------------------

    def append(self, kind: RecordType, *parts: bytes, flags: int = 0) -> int:
        """Add one record to the batch and return its sequence. The operation context says when the record is durable.

        Raises:
            StoreError: the journal has failed or is closed.
        """
        length = HEADER_BYTES
        for part in parts:
            length += len(part)
        if self.offset + length > self.room:
            self.make_room(length)
        if not self._must_sync and (kind not in _MAY_WAIT or (self._sync is Sync.COMMITS and kind in _COMMITS)):
            self._must_sync = True
        sequence = self.sequence = self.sequence + 1
        self.parts.append(b"".join(frame(kind, flags, sequence, self.batch, self.seed, *parts)))
        self.offsets.append(self.offset)
        self.offset += length
        self.room -= 4
        self.context.appended = sequence
        return sequence

    def belong_to_open(self, before: int) -> None:
        """Note that the records after the sequence ``before`` belong to a transaction that is open."""
        self.context.resting.add(before, self.sequence)

    def make_room(self, length: int) -> None:
        """Begin another batch or segment so that a record of ``length`` bytes fits.

        Raises:
            StoreError: the journal has failed or is closed.
        """
        if self.failure is not None:
            if isinstance(self.failure, StoreError):
                raise self.failure
            raise DiskFailed(f"journal of {self._directory} has failed: {self.failure}")
        if self._life.state is not JournalState.OPEN:
            raise StoreError(f"journal of {self._directory} is closed")
        if self.context.gathered is not None:
            # the journal appears full while records are gathered, so that every append comes here first
            self._gathered = True
            self.context.gathered.close()
            if self.offset + length <= self.room:
                return
        if self.parts and self.offset + length - self._begin > BATCH_BYTES_MAX:
            self._close_batch()
        self._set_room(length)
        if self.offset + length > self.room:
            # the batch has space for the record, so the segment is full
            self._change_segment(length)

    def begin_segment(self) -> None:
        """Begin the next segment although this one is not full: its records can be consolidated then.

        Raises:
            StoreError: the journal has failed or is closed.
        """
        self.make_room(0)
        self._change_segment(0)

    def use_format(self, version: int) -> None:
        """Begin another segment for records of a later format version (``store.log_format``).

        Raises:
            StoreError: the journal has failed or is closed.
            DiskFull: there is no space to make a segment now.
        """
        self.make_room(0)
        if self.no_space:
            raise DiskFull(f"no space for a segment of format version {version} in {self._directory}")
        self.spares.use_format(version)
        self._change_segment(0)

    def _set_room(self, length: int) -> None:
        segment_room = self._segment.needed_bytes - SEAL_FIXED_BYTES - 4 * (len(self.offsets) + 1)
        self.room = min(segment_room, max(self._begin + BATCH_BYTES_MAX, self.offset + length))

    def _close_batch(self) -> None:
        """Queue the collected records; the next record begins another batch."""
        if self.parts:
            size_bytes = self.offset - self._begin
            count = self.sequence - self._batched
            # what the client of a single request sends next may be less, as the commit of a branch after its
            # preparation: only the work of several clients, or of one that does not wait, makes the next batch wait
            several = self._gathered or count > LONE_RECORDS_MAX or self.context.waiting > 1
            self._gather_until = self.sequence + count if several and size_bytes <= SMALL_BATCH_BYTES else 0
            self._gathered = False
            hurries = not self.context.resting.unanswered(self._batched, self.sequence)
            self._batched = self.sequence
            sync = self._must_sync or self.offset - self.batch > BATCH_BYTES_MAX
            segment = self._segment
            append = append_of((segment.name, self._begin, self.parts, size_bytes, self.sequence, hurries))
            self._queue.append(batch_of((segment, append, self.sequence, sync)))
            self._queued_bytes += size_bytes
            if self._queued_bytes > JOURNAL_BACKLOG_BYTES_PAUSE:
                self.congested = True
            self.parts = []
            self._begin = self.offset
            if sync:
                self.batch = self.offset
                self._must_sync = self._sync is Sync.ALWAYS

    def _change_segment(self, length: int) -> None:
        self._close_batch()
        following = self.spares.take(HEADER_BLOCK_BYTES + length + SEAL_FIXED_BYTES + 8)
        self._queue_seal(following)
        self._sealed_bytes += self.use.end
        self._segment = following
        self.number = following.number
        # the seal syncs all earlier records
        self.offset = self.batch = self._begin = HEADER_BLOCK_BYTES
        self.seed = seed_of(following.number, self.epoch)
        self.offsets = array("I")
        self._first_sequence = self.sequence + 1
        self._first_ms = self._clock.wall_ms()
        self._set_room(length)
        self.use = self._on_segment(self.number, self._first_sequence)

    def _queue_seal(self, following: Segment | None) -> None:
        record = SealRecord(
            following is None,
            len(self.offsets),
            0,
            self._first_sequence,
            self.sequence,
            self._first_ms,
            self._clock.wall_ms(),
            self.use.message_id_min,
            self.use.message_id_max,
            (),
        )
        self.use.end = self.offset + SEAL_FIXED_BYTES + 4 * len(self.offsets)
        self.sequence += 1
        self.context.appended = self.sequence
        offsets = self.offsets
        if sys.byteorder == "big":
            offsets = offsets[:]
            offsets.byteswap()
        operation = SealSegment(self._segment.name, record, self.sequence, offsets.tobytes())
        self._queue.append(Seal(self._segment, following, operation, self.use, self.sequence))

    @property
    def appended_bytes(self) -> int:
        """Bytes of the log that this journal has filled so far."""
        return self._sealed_bytes + self.offset

    @property
    def backlog_bytes(self) -> int:
        """Bytes appended and not yet durable."""
        return self._queued_bytes + self.offset - self._begin

    @property
    def writes(self) -> bool:
        """Whether records are being written, or will be at the end of this turn."""
        return self._queued_bytes > 0 or (bool(self.parts) and not self._rests())

    def pending(self, number: int, offset: int, length: int) -> bytes | None:
        """The bytes of a record that may not be written yet; None when it is."""
        batches = [item for item in (self._under_way, *self._queue) if isinstance(item, Batch)]
        if self.parts:
            append = Append(self._segment.name, self._begin, self.parts, self.offset - self._begin, self.sequence)
            batches.append(Batch(self._segment, append, 0))
        for batch in batches:
            start = offset - batch.append.offset
            if batch.segment.number == number and 0 <= start < batch.append.size_bytes:
                return b"".join(batch.append.parts)[start : start + length]
        return None

    # --- writing --------------------------------------------------------------------------------

    def flush(self, *, gather: bool = False) -> bool:
        """Hand the next batch to the writer if none is under way; called once per turn.

        Args:
            gather: Allow it to wait one turn if less is collected than in the batch before, because clients that
                waited for that one are likely to send by then. Syncs cost more than turns.

        Returns:
            Whether it waits for the next turn.
        """
        if self.context.gathered is not None:
            self._gathered = True
            self.context.gathered.close()
        if self._under_way is not None or self.failure is not None:
            return False
        if self._stalled_until_ms is not None and self._clock.monotonic_ms() < self._stalled_until_ms:
            return False
        if self.spares.no_space:
            self.spares.retry()
        if not self._queue:
            if not self.parts:
                return False
            if self._rests() and self.context.resting.may_wait_a_turn():
                return False
            if gather and self.sequence < self._gather_until:
                self._gather_until = 0
                return True
            self._close_batch()
        item = self._queue[0]
        if item.segment.readiness is not Readiness.READY:
            return False
        if isinstance(item, Seal):
            if item.following is not None and item.following.readiness is not Readiness.READY:
                return False
            self._queue.popleft()
            self._under_way = item
            self._writer.submit((item.operation,), self._written)
            return False
        self._queue.popleft()
        self._under_way = item
        measured = self.context.measured
        if measured is not None and not measured.sequence:
            measured.sequence, measured.began_ns = item.last_sequence, measured.now_ns()
        self._writer.submit((item.append, item.segment.sync) if item.sync else (item.append,), self._written)
        return False

    def _rests(self) -> bool:
        """Whether the collected records wait for a later one: all of them belong to open transactions or are
        acknowledgements without an answer, nothing waits until they are durable, and the batch is small, so that its
        sync would cost more than it takes off that of a later one.
        """
        context = self.context
        return context.resting.are(self._batched, self.sequence, self.offset - self._begin) and not context.waiting

    def _written(self, error: BaseException | None) -> None:
        item = self._under_way
        assert item is not None
        self._under_way = None
        if error is not None:
            if isinstance(error, DiskFull) and self._may_write_again():
                self._stall(item, error)
            else:
                self.fail(error)
            return
        if self._stalled_until_ms is not None:
            self._stalled_until_ms = None
            log.info("the journal resumes: disk space is available", extra={"path": self._directory})
            self._on_space()
        # of a batch; less than 0: it was a seal
        size_bytes = -1
        if isinstance(item, Batch):
            size_bytes = item.append.size_bytes
            self._queued_bytes -= size_bytes
            if self.congested:
                self.congested = self._queued_bytes > JOURNAL_BACKLOG_BYTES_PAUSE
        else:
            item.use.skimmed = self._applier.take_skim(item.segment.name)
        try:
            self.context.advance(item.last_sequence)
        finally:
            # an internal error of a released call is not an error of the log
            if size_bytes < 0 and isinstance(item, Seal) and item.following is None:
                self._life.fire(JournalEvent.SEALED)
            else:
                if self._queue or self.parts:
                    self.flush()
                if self.spares.wants_zeros and 0 <= size_bytes <= SMALL_BATCH_BYTES and self._under_way is None:
                    self.spares.zero()

    @property
    def no_space(self) -> bool:
        """Whether the next segment could not be allocated, or a batch could not be written for lack of space."""
        return self.spares.no_space or self._stalled_until_ms is not None

    def retry(self, *, at_once: bool = False) -> None:
        """Ask again for the space that was missing; every few seconds, and at once when something was removed."""
        self.spares.retry(at_once=at_once)
        if self._stalled_until_ms is not None:
            self.flush()

    def _may_write_again(self) -> bool:
        """Whether a full disk loses nothing: all bytes since the last sync are in the batch, and nothing is closed."""
        return self._life.state is JournalState.OPEN and self._sync is Sync.ALWAYS

    def _stall(self, item: Batch | Seal, error: DiskFull) -> None:
        """The disk is full where space was reserved: a file system that copies on write. The item goes first again."""
        self._queue.appendleft(item)
        if self._stalled_until_ms is None:
            log.error("the journal waits for disk space", extra={"error": str(error)})
            # a failed removal changes nothing
            self._writer.submit([EmptyPool(), GiveUpReserve()], lambda failed: None)
        self._stalled_until_ms = self._clock.monotonic_ms() + PREPARE_RETRY_MS
        self._on_space()

    def fail(self, error: BaseException) -> None:
        """A write or sync has failed, here or in other work on the store's files: nothing is released any more."""
        if self.failure is not None:
            return
        self.failure = error
        self.room = -1
        self.spares.stop()
        self.context.fail(error)
        self._life.fire(JournalEvent.FAIL)
        self._on_failure(error)

    def _prepared(self) -> None:
        """Called when a spare segment was made, or the disk has no space for it."""
        if self._life.state is JournalState.DRAINING:
            self.drain()
        self.flush()

    # --- removing and closing -------------------------------------------------------------------

    def remove_files(self, names: list[str], done: Callable[[BaseException | None], None]) -> None:
        """Remove files of the directory in order, each durably before the next; stops at the first error. None is
        removed if another node has begun an epoch: for that node they may be part of the log. With retention segments
        are moved away instead.
        """
        operations: list[Operation] = [RequireEpoch(self.epoch)]
        operations += [RemoveFile(name, retain=parse_name(name) is not None, sync=True) for name in names]
        if self._retains:
            operations.append(PruneRetained(self._clock.wall_ms()))

        def removed(error: BaseException | None) -> None:
            if self._applier.unsynced is not None:
                self.fail(self._applier.unsynced)
            done(error)

        self._housekeeper.submit(operations, removed)

    @property
    def kept(self) -> tuple[int, int]:
        """Number and bytes of the files that are kept for later segments."""
        return self._applier.kept

    def empty_pool(self, done: Callable[[BaseException | None], None]) -> bool:
        """Remove the files that are kept for later segments, then call ``done``; whether there are any."""
        if not self._applier.kept[0] or self._life.state is not JournalState.OPEN:
            return False
        self._housekeeper.submit([EmptyPool()], done)
        return True

    def prune_retention(self) -> None:
        """Remove retained segments that are too old; called every few seconds."""
        moment_ms = self._clock.monotonic_ms()
        if not self._retains or moment_ms < self._prune_at_ms or self._life.state is not JournalState.OPEN:
            return
        self._prune_at_ms = moment_ms + PRUNE_EVERY_MS
        self._housekeeper.submit([PruneRetained(self._clock.wall_ms())], lambda error: None)

    def close(self, done: Callable[[], None]) -> None:
        """Write appended records, seal, remove the unused spare, then ``done``. After a failure,
        or when the disk is so full that no segment is left, nothing more is written.
        """
        if self.context.gathered is not None:
            self.context.gathered.close()
        self.room = -1
        self.spares.stop()
        # once more at once, then the batch that waits for space is given up
        self._stalled_until_ms = None
        self._life.fire(JournalEvent.CLOSE, done)

    # --- store.log.journal_life.ClosableJournal -----------------------------------------------------

    def drain(self) -> None:
        """Seal once no segment is needed by operations queued already; give up if there is no space for one."""
        if self.spares.preparing:
            return
        if self._segment.readiness is Readiness.READY:
            self._life.fire(JournalEvent.DRAINED)
        elif not self.spares.no_space or not self._asked_at_close:
            self._asked_at_close = True
            self.spares.prepare_next()
        else:
            # records in memory were never confirmed and cannot be any more
            self.failure = DiskFull(f"no space to close {self._directory} cleanly")
            self.context.fail(self.failure)
            self._life.fire(JournalEvent.FAIL)

    def seal_last(self) -> None:
        """The last batch and the seal of the segment go out."""
        self._close_batch()
        self._queue_seal(None)
        self.flush()

    def close_files(self) -> None:
        """Begin nothing before the housekeeper has ended: another node may have the store after this."""
        self._housekeeper.run(lambda: None, lambda error: self._close_files())

    def _close_files(self) -> None:
        operations: list[Operation] = [CloseFiles()]
        unused = self.spares.unused()
        if self.failure is None and unused:
            # the last segments first, so that the remaining ones never begin after a gap
            operations += [RemoveFile(name) for name in reversed(unused)]
            operations.append(SyncDirectory())
        # an unused spare that cannot be removed is harmless: the next activation does it
        self._writer.submit(operations, lambda error: self._life.fire(JournalEvent.FILES_CLOSED))
        self._housekeeper.close()
        self._writer.close()
