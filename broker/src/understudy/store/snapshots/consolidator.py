"""The log consolidator: snapshots, dropped segments, messages copied forward (ADR 0010).

``segment_finished`` decides when there is something to do, ``turn`` lets it go on. One run is: a snapshot
up to the last finished segment; the segments it finds dead are dropped, as far as the snapshot
before stands for them; then messages are copied out of segments that are nearly dead, for the next
runs to drop. Every step leaves a store that any node can open.

Not here: the bytes of a snapshot (``builder``), copying (``relocation``), the dead beginning
of a log (``truncation``), sharing the disk with the group commit (``background``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFull, JournalCorrupt, StoreError
from understudy.ports import Clock, Disk
from understudy.store.log.applier import LogFiles
from understudy.store.log.journal import Journal
from understudy.store.log.operations import GiveUpReserve
from understudy.store.log.records import RecordType, SnapshotRecord, encode_drop, encode_snapshot
from understudy.store.log.segment import parse_name
from understudy.store.named_readers import NamedReaders
from understudy.store.quarantine import KnownDamage
from understudy.store.settings import StoreSettings
from understudy.store.snapshots.background import Background, Change, Durable, Job, Request
from understudy.store.snapshots.builder import Built, SnapshotBuilder
from understudy.store.snapshots.relocation import Relocations, SegmentCopy
from understudy.store.snapshots.reserve import RESERVE_NAME
from understudy.store.snapshots.snapshot import (
    SnapshotHeader,
    parse_snapshot_name,
    read_end,
    read_snapshot_header,
    snapshot_names,
    temporary_names,
)
from understudy.store.snapshots.truncation import FileRemover, LogTruncation
from understudy.store.state import StoreState

log = logging.getLogger(__name__)

#: A snapshot takes in at most so many times the segments after which it is due.
_CATCH_UP: Final = 4
#: Segments from which messages are copied in one run for each segment it has taken in.
_COPY: Final = 2
#: Highest share of live bytes in percent: above it, copying frees less than it writes, and copies would soon be copied
#: again.
PERCENT_MAX: Final = 75
#: Pause between two attempts to free space on a full disk.
_RETRY_MS: Final = 10_000

_Run = Generator[Request, Any, None]


@dataclass(frozen=True, slots=True)
class ConsolidatedLog:
    """The log of an active store as the consolidator changes it."""

    files: LogFiles
    journal: Journal
    """Takes the records about snapshots."""
    state: StoreState
    relocations: Relocations
    """Told of every message that is copied."""
    forget: Callable[[int], int | None]
    """Lets the store forget the segment of that number, which is to be removed; returns its epoch."""


class Consolidator:
    """Runs the consolidation of one active store, step by step."""

    def __init__(
        self,
        *,
        consolidated: ConsolidatedLog,
        clock: Clock,
        readers: NamedReaders,
        known: KnownDamage,
        damaged: Callable[[int, int], None],
        settings: StoreSettings,
    ) -> None:
        """
        Args:
            readers: Hold segments: none that a reader needs is dropped, and nothing is copied out of it.
            known: Damage that was set aside: it is passed over.
            damaged: Gets the segment number and offset of a damaged record that is not in ``known``.
        """
        files, journal, state = consolidated.files, consolidated.journal, consolidated.state
        self._disk = files.applier.disk
        self._directory = files.applier.directory
        self._clock = clock
        self._journal = journal
        self._state = state
        self._relocations = consolidated.relocations
        self._known = known
        self._damaged = damaged
        self._context = context = journal.context
        self._readers = readers
        self._remover = FileRemover(journal, state, consolidated.forget)
        self._truncation = LogTruncation(journal, state, readers, settings.segment_bytes, self._remover)
        self._segment_bytes = settings.segment_bytes
        self._segments_min = settings.compact_segments_min
        self._percent = min(settings.compact_percent, PERCENT_MAX)
        self.background = Background(journal, files.housekeeper, context)
        self._snapshots: list[SnapshotHeader] = []
        """Usable snapshots, newest first; all but the first two are being removed."""
        self._snapshot_bytes = 0
        self.live: dict[int, int] = {}
        """Bytes of live records by segment, as the last snapshot made here found them."""
        self._live_bytes = 0
        self._passed: set[int] = set()
        """Segments from which nothing is copied, because it cannot be read."""
        self._passed_known = known.count
        """Number of known damaged extents at the moment when the segments were passed over."""
        self._stopped = False
        self._reserve_used = False
        self._retry_at_ms = 0
        self.trouble: BaseException | None = None
        """Reason why the last run did not get to its end."""
        self.copied_messages = 0
        """Messages copied to the end of the log so far, so that their segments can be removed."""
        self.dropped_segments = 0
        """Segments removed so far."""
        self._broken_at = -1
        """Damage in the log keeps snapshots from being made as long as no more damage is known than this."""

    def begin(self, disk: Disk, names: Sequence[str]) -> None:
        """Find the snapshots, and remove the segments that the node before had given up and not removed.

        Args:
            disk: Reads the snapshots.
            names: What the directory holds.
        """
        if self._segments_min:
            self._snapshots = self._find_snapshots(disk, names)
        self._remover.remove_left()

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self.background.busy

    @property
    def live_bytes(self) -> int:
        """Bytes of records known to be needed: live at the last snapshot, or younger than it."""
        newest = self._snapshots[0].number if self._snapshots else 0
        younger = sum(use.end for number, use in self._state.segments.items() if number > newest)
        return self._live_bytes + younger + self._journal.offset

    def stop(self) -> None:
        """Nothing more is begun; the journal is about to be closed."""
        self._stopped = True
        self.background.stop()

    def segment_finished(self) -> None:
        """Another segment of the log ends and is durable: look whether there is something to do."""
        newest = self._snapshots[0].number if self._snapshots else 0
        self._state.bound_skimmed(newest if self._segments_min else self._journal.number)
        if not self._stopped and self._journal.failure is None:
            self._readers.enforce()
        if self._free_to_begin() and not self._trim():
            self._start(self._interval())

    def free_space(self) -> None:
        """The disk is full: whatever can be given up goes, even if it is little. To be called now and then."""
        moment_ms = self._clock.monotonic_ms()
        if not self._free_to_begin() or moment_ms < self._retry_at_ms:
            return
        self._retry_at_ms = moment_ms + _RETRY_MS
        if not self._trim(urgent=True):
            self._start(1)

    def consolidate_all(self) -> bool:
        """Take in every finished segment and copy out of every sparse one; whether there is anything to take in."""
        due = self._due(1, at_most=None)
        if due:
            self.background.start(self._run(due, copy_all=True), self._ended)
        return bool(due)

    def _free_to_begin(self) -> bool:
        return not self._stopped and not self.background.busy and self._journal.failure is None

    def _trim(self, *, urgent: bool = False) -> bool:
        newest = self._snapshots[0].number if self._snapshots else 0
        if not self._truncation.trim(newest, [header.name for header in self._snapshots], urgent=urgent):
            return False
        self._snapshots = []
        self._snapshot_bytes = self._live_bytes = 0
        return True

    def _start(self, interval: int) -> bool:
        due = self._due(interval, _CATCH_UP * self._interval())
        if due:
            self.background.start(self._run(due), self._ended)
        return bool(due)

    def _interval(self) -> int:
        """Segments after which a snapshot is due: it must not cost more than the log it stands for. The bindings and
        duplicate ids in it are read and made again, which costs more than trimming a log in which nothing old lives.
        """
        stated = 2 * self._truncation.checkpoint_worth_bytes() // self._segment_bytes
        return max(self._segments_min, -(-self._snapshot_bytes // self._segment_bytes), stated)

    def _due(self, interval: int, at_most: int | None) -> int:
        """Segment up to which a snapshot is to be made, so many segments at most; 0 for none."""
        if not self._segments_min or self._known.count == self._broken_at:
            return 0
        newest = self._snapshots[0].number if self._snapshots else 0
        since: list[int] = []
        for number, use in self._state.segments.items():
            if since and use.first_sequence - 1 > self._context.durable:
                # the segment before has no seal yet
                since.pop()
            if newest < number < self._journal.number:
                since.append(number)
        return since[:at_most][-1] if len(since) >= interval else 0

    def _ended(self, error: BaseException | None) -> None:
        if self._reserve_used:
            # the space that this run or the next one frees is enough for it again
            self._journal.spares.keep_reserve()
        self.trouble = error
        if error is None:
            # the log may have grown by more than one snapshot takes in
            self._start(self._interval())
        elif isinstance(error, JournalCorrupt):
            self._broken_at = self._known.count
            self._report(error)
            log.error("the log is not consolidated: it is damaged", extra={"error": str(error)})
        elif isinstance(error, StoreError | OSError):
            log.warning("the log was not consolidated", extra={"error": str(error)})
        else:
            raise error

    def _report(self, error: JournalCorrupt) -> None:
        """Tell where a record is damaged, unless the damage is in a snapshot."""
        parsed = parse_name(error.file.rsplit("/", 1)[-1])
        if parsed is not None:
            self._damaged(parsed[0], error.offset)

    # --- which snapshots there are ------------------------------------------------------------------

    def _find_snapshots(self, disk: Disk, names: Sequence[str]) -> list[SnapshotHeader]:
        found: list[SnapshotHeader] = []
        for name in snapshot_names(names):
            file = disk.open(f"{self._directory}/{name}", read_only=True)
            try:
                header = read_snapshot_header(file, name)
                end = read_end(file, header)
                if self._fits(header, end.needs):
                    if not found:
                        self._snapshot_bytes, self._live_bytes = file.size(), end.live_bytes
                    found.append(header)
            except JournalCorrupt as error:
                log.warning("snapshot cannot be used", extra={"file": error.file, "error": str(error)})
            finally:
                file.close()
        return found

    def _fits(self, header: SnapshotHeader, needs: int) -> bool:
        """Whether a snapshot belongs to this log and no segment after it is missing."""
        state = self._state
        use = state.segments.get(header.number)
        next_epoch = next((use for use in state.segments.values() if use.epoch > header.epoch), None)
        return (
            use is not None
            and (use.epoch, use.end) == (header.segment_epoch, header.offset)
            and header.number >= state.complete
            and header.epoch <= state.epoch
            and next_epoch is not None
            and needs < next_epoch.first_sequence
        )

    # --- one run ------------------------------------------------------------------------------------

    def _run(self, last: int, *, copy_all: bool = False) -> _Run:
        built = yield from self._build(last)
        if built is None:
            return
        header = built.header
        before = self._snapshots[0].number if self._snapshots else 0
        taken = sum(before < number <= header.number for number in self._state.segments)
        record = SnapshotRecord(header.epoch, header.sequence, header.number, built.size_bytes)
        sequence = self._journal.append(RecordType.SNAPSHOT, encode_snapshot(record))
        self._state.announced = record
        yield Durable(sequence)
        self._snapshots = [header, *self._snapshots][:2]
        self._snapshot_bytes = built.size_bytes
        self.live = built.live
        self._live_bytes = sum(built.live.values())
        yield from self._drop()
        yield from self._copy_forward(None if copy_all else _COPY * taken)
        self._relocations.sweep(self._state.live)

    def _build(self, last: int) -> Generator[Request, Any, Built | None]:
        while True:
            base = self._snapshots[0] if self._snapshots else None
            builder = SnapshotBuilder(
                disk=self._disk,
                directory=self._directory,
                clock=self._clock,
                epoch=self._journal.epoch,
                state=self._state,
                last_sequence=lambda: self._journal.sequence,
                known=self._known,
            )
            try:
                return (yield from builder.build(base, last))
            except DiskFull:
                if not (yield Job(lambda: self._disk.exists(f"{self._directory}/{RESERVE_NAME}"))):
                    raise
                yield Change((GiveUpReserve(),))
                self._reserve_used = True
            except JournalCorrupt as error:
                first = next(iter(self._state.segments))
                if base is None or error.file != f"{self._directory}/{base.name}":
                    raise
                log.warning("snapshot cannot be used", extra={"file": error.file, "error": str(error)})
                del self._snapshots[0]
                if not self._snapshots and first < self._state.complete:
                    raise

    def _drop(self) -> _Run:
        """Give up segments before the older snapshot in which the newer one found nothing alive, and snapshots
        that no reader can use any more.
        """
        # an only snapshot frees no segment: if it were damaged, nodes would have to start from the log alone
        complete = self._snapshots[1].number if len(self._snapshots) > 1 else 0
        before = min(complete, self._readers.needed_from or complete)
        dead = [number for number in self._state.segments if number < before and number not in self.live]
        if dead:
            sequence = self._journal.append(RecordType.SEGMENTS_DROP, encode_drop(complete, dead))
            self._state.complete = max(self._state.complete, complete)
            self._state.forget_segments(dead)
            yield Durable(sequence)
            self.dropped_segments += len(dead)
            log.info("segments dropped", extra={"segments": len(dead), "sequence": sequence})
        kept = [header.name for header in self._snapshots]
        names = yield Job(lambda: self._disk.list(self._directory))
        # older ones, damaged ones, and those of nodes that had lost the store
        stale = [name for name in snapshot_names(names) if name not in kept and _key(name) < _key(kept[0])]
        self._remover.remove(dead, [*stale, *temporary_names(names)])

    # --- copying forward ----------------------------------------------------------------------------

    def _copy_forward(self, segments_max: int | None) -> _Run:
        """Append live messages of nearly dead segments again, so many segments at most, the emptiest first."""
        if self._known.count != self._passed_known:
            # damaged records of the segment may be in the quarantine since
            self._passed.clear()
            self._passed_known = self._known.count
        newest = self._snapshots[0].number
        held = self._readers.needed_from
        if held is not None:
            # copying frees nothing while a reader holds the segment
            newest = min(newest, held - 1)
        kept = {number: use.end for number, use in self._state.segments.items() if number <= newest}
        if len(kept) <= self._segments_min or 100 * self._live_bytes >= self._percent * sum(kept.values()):
            return
        sparse = sparse_segments(kept, self.live, self._percent)
        wanted = [number for number in sparse if number not in self._passed][:segments_max]
        for number in sorted(wanted):
            copy = SegmentCopy(
                self._disk, self._directory, number, self._journal, self._state, self._relocations, self._known
            )
            try:
                yield from copy.run()
            except DiskFull as error:
                log.warning("messages were not copied forward", extra={"error": str(error)})
                return
            except JournalCorrupt as error:
                # the record stays where it is; once its messages are set aside the segment is tried again
                self._passed.add(number)
                self._report(error)
                log.error("a damaged segment is not consolidated", extra={"error": str(error)})
            else:
                self.copied_messages += copy.messages
                if not copy.messages:
                    # dead by now, or what lives there cannot be found
                    self._passed.add(number)


def sparse_segments(ends: dict[int, int], live: dict[int, int], percent: int) -> list[int]:
    """Segments of which less than that share is live, but something, the emptiest first.

    Args:
        ends: Number to bytes used.
        live: Number to bytes of live records.
        percent: The share.
    """
    percent = min(percent, PERCENT_MAX)
    sparse = [number for number, end in ends.items() if 0 < 100 * live.get(number, 0) < percent * end]
    return sorted(sparse, key=lambda number: live[number] / ends[number])


def _key(name: str) -> tuple[int, int]:
    parsed = parse_snapshot_name(name)
    assert parsed is not None
    return parsed[:2]
