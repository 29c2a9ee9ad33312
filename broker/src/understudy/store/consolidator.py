"""The log consolidator: snapshots, dropped segments, messages copied forward (ADR 0010).

``segment_began`` decides when there is something to do, ``turn`` lets it go on. One run is: a snapshot
up to the last finished segment; the segments it finds dead are dropped, as far as the snapshot
before stands for them; then messages are copied out of segments that are nearly dead, for the next
runs to drop. Every step leaves a store that any node can open.

Not here: the bytes of a snapshot (``snapshot_builder``), the dead beginning of a log (``trimming``),
sharing the disk with the group commit (``background``).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Generator
from typing import Any, Final

from understudy.errors import DiskFull, JournalCorrupt, StoreError
from understudy.ids import NodeId
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import Clock, Disk, File, LogWriter
from understudy.store.background import STEP_BYTES, Background, Durable, Job, read_job
from understudy.store.forwarding import Forwarding
from understudy.store.journal import Journal
from understudy.store.operation_context import OperationContext
from understudy.store.records import (
    HEADER_BYTES,
    MESSAGE_HEADER_BYTES,
    RecordType,
    SnapshotRecord,
    encode_drop,
    encode_move,
    encode_snapshot,
)
from understudy.store.reference import pack_location
from understudy.store.replay import read_frame
from understudy.store.segment import HEADER_BLOCK_BYTES, seed_of, segment_name
from understudy.store.snapshot import (
    SnapshotHeader,
    parse_snapshot_name,
    read_end,
    read_snapshot_header,
    snapshot_names,
    temporary_names,
)
from understudy.store.snapshot_builder import Built, SnapshotBuilder
from understudy.store.state import StoreState
from understudy.store.trimming import FileRemover, LogTrimmer

log = logging.getLogger(__name__)

#: A snapshot takes in at most so many times the segments after which it is due.
_CATCH_UP: Final = 4
#: Segments from which messages are copied in one run for each segment it has taken in.
_COPY: Final = 2
#: Above it, copying frees less than it writes, and copies would soon be copied again.
_PERCENT_MAX: Final = 75
_MESSAGES: Final = (int(RecordType.MESSAGE_ADD), int(RecordType.MESSAGE_MOVE))
_LENGTH: Final = struct.Struct("<I")
_COUNT: Final = struct.Struct("<I")
_MESSAGE_ID: Final = struct.Struct("<Q")

_Run = Generator[Job | Durable, Any, None]


class Consolidator:
    """See the module's text."""

    def __init__(
        self,
        *,
        disk: Disk,
        directory: str,
        writer: LogWriter,
        clock: Clock,
        node_id: NodeId,
        journal: Journal,
        state: StoreState,
        context: OperationContext,
        forwarding: Forwarding,
        trimmer: LogTrimmer,
        remover: FileRemover,
        segment_bytes: int,
        segments_min: int,
        percent: int,
    ) -> None:
        """
        Args:
            disk: Where the store is.
            directory: Absolute path of the store.
            writer: Where file work is done.
            clock: For stamps.
            node_id: Of the store.
            journal: What is said about all this goes there.
            state: Of the running store.
            context: Says what is durable.
            forwarding: Told of every message that is copied.
            trimmer: For the dead beginning.
            remover: For what was dropped.
            segment_bytes: Size of an ordinary segment.
            segments_min: Segments between snapshots, and before anything is copied; 0 for never.
            percent: Live share of a segment below which its messages are copied; 0 for never, more than 75 is 75.
        """
        self._disk = disk
        self._directory = directory
        self._clock = clock
        self._node_id = node_id
        self._journal = journal
        self._state = state
        self._forwarding = forwarding
        self._trimmer = trimmer
        self._remover = remover
        self._segment_bytes = segment_bytes
        self._segments_min = segments_min
        self._percent = min(percent, _PERCENT_MAX)
        self._background = Background(journal, writer, context)
        self._snapshots: list[SnapshotHeader] = []
        """Newest first: what can be begun with; older ones than two are being removed."""
        self._snapshot_bytes = 0
        self._live: dict[int, int] = {}
        """Bytes of live records by segment, as the last snapshot made here found them."""
        self._live_bytes = 0
        self._damaged: set[int] = set()
        """Segments from which nothing is copied, because it cannot be read."""
        self._broken = False
        """Damage in the log keeps snapshots from being made."""
        self.readers: dict[str, int] = {}
        """The place of named readers (design s. 4): name to the first segment number it still needs.
        Nothing from there on is dropped."""
        if segments_min:
            self._snapshots = self._find_snapshots()

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._background.busy

    @property
    def live_bytes(self) -> int:
        """Bytes of records known to be needed: live at the last snapshot, or younger than it."""
        newest = self._snapshots[0].number if self._snapshots else 0
        younger = sum(use.end for number, use in self._state.segments.items() if number > newest)
        return self._live_bytes + younger + self._journal.offset

    def stop(self) -> None:
        """Nothing more is begun; the journal is about to be closed."""
        self._background.stop()

    def turn(self) -> None:
        """Go on with what was begun; once per turn of the loop."""
        self._background.turn()

    def segment_began(self) -> None:
        """The journal has begun another segment: look whether there is something to do."""
        if self._background.busy or self._journal.failure is not None:
            return
        held = min(self.readers.values(), default=0)
        newest = self._snapshots[0].number if self._snapshots else 0
        if not held and self._trimmer.trim(newest, [header.name for header in self._snapshots]):
            self._snapshots = []
            self._snapshot_bytes = self._live_bytes = 0
        due = self._due()
        if due:
            self._background.start(self._run(due), self._ended)

    def _interval(self) -> int:
        """Segments after which a snapshot is due: it must not cost more than the log it stands for."""
        return max(self._segments_min, -(-self._snapshot_bytes // self._segment_bytes))

    def _due(self) -> int:
        """Segment up to which a snapshot is to be made; 0 for none."""
        if not self._segments_min or self._broken:
            return 0
        newest = self._snapshots[0].number if self._snapshots else 0
        since = [number for number in self._state.segments if newest < number < self._journal.number]
        interval = self._interval()
        return since[: _CATCH_UP * interval][-1] if len(since) >= interval else 0

    def _ended(self, error: BaseException | None) -> None:
        if error is None:
            # the log may have grown by more than one snapshot takes in
            due = self._due()
            if due:
                self._background.start(self._run(due), self._ended)
        elif isinstance(error, JournalCorrupt):
            self._broken = True
            log.error("the log is not consolidated any more: it is damaged", extra={"error": str(error)})
        elif isinstance(error, StoreError | OSError):
            log.warning("the log was not consolidated", extra={"error": str(error)})
        else:
            raise error

    # --- which snapshots there are ------------------------------------------------------------------

    def _find_snapshots(self) -> list[SnapshotHeader]:
        found: list[SnapshotHeader] = []
        for name in snapshot_names(self._disk.list(self._directory)):
            file = self._disk.open(f"{self._directory}/{name}", read_only=True)
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
        """Whether it is of this log, and the log behind it is whole."""
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

    def _run(self, last: int) -> _Run:
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
        self._live = built.live
        self._live_bytes = sum(built.live.values())
        yield from self._drop()
        yield from self._copy_forward(_COPY * taken)
        self._forwarding.sweep(self._state.live)

    def _build(self, last: int) -> Generator[Job | Durable, Any, Built | None]:
        while True:
            base = self._snapshots[0] if self._snapshots else None
            builder = SnapshotBuilder(
                disk=self._disk,
                directory=self._directory,
                clock=self._clock,
                node_id=self._node_id,
                epoch=self._journal.epoch,
                state=self._state,
                last_sequence=lambda: self._journal.sequence,
            )
            try:
                return (yield from builder.build(base, last))
            except JournalCorrupt as error:
                first = next(iter(self._state.segments))
                if base is None or error.file != f"{self._directory}/{base.name}":
                    raise
                log.warning("snapshot cannot be used", extra={"file": error.file, "error": str(error)})
                del self._snapshots[0]
                if not self._snapshots and first < self._state.complete:
                    raise

    def _drop(self) -> _Run:
        """Give up segments before the older snapshot in which the newer one found nothing alive."""
        if len(self._snapshots) < 2:
            return
        complete = self._snapshots[1].number
        before = min(self.readers.values(), default=complete)
        dead = [
            number for number in self._state.segments if number < min(complete, before) and number not in self._live
        ]
        if dead:
            sequence = self._journal.append(RecordType.SEGMENTS_DROP, encode_drop(complete, dead))
            self._state.complete = max(self._state.complete, complete)
            self._state.forget_segments(dead)
            yield Durable(sequence)
            log.info("segments dropped", extra={"segments": len(dead), "sequence": sequence})
        kept = [header.name for header in self._snapshots]
        names = yield Job(lambda: self._disk.list(self._directory))
        # older ones, damaged ones, and those of nodes that had lost the store
        stale = [name for name in snapshot_names(names) if name not in kept and _key(name) < _key(kept[0])]
        self._remover.remove(dead, [*stale, *temporary_names(names)])

    # --- copying forward ----------------------------------------------------------------------------

    def _copy_forward(self, segments_max: int) -> _Run:
        """Append live messages of nearly dead segments again, the emptiest first."""
        state = self._state
        newest = self._snapshots[0].number
        kept = {number: use.end for number, use in state.segments.items() if number <= newest}
        if len(kept) <= self._segments_min or 100 * self._live_bytes >= self._percent * sum(kept.values()):
            return
        sparse = sorted(
            (number for number, end in kept.items() if self._is_sparse(number, end)),
            key=lambda number: self._live[number] / kept[number],
        )
        for number in sorted(sparse[:segments_max]):
            try:
                yield from self._copy_segment(number)
            except DiskFull:
                return
            except JournalCorrupt as error:
                # what is damaged stays where it is, to be seen by whoever reads it
                self._damaged.add(number)
                log.error("a damaged segment is not consolidated", extra={"error": str(error)})

    def _is_sparse(self, number: int, end: int) -> bool:
        live = self._live.get(number, 0)
        return 0 < 100 * live < self._percent * end and number not in self._damaged

    def _copy_segment(self, number: int) -> _Run:
        use = self._state.segments[number]
        path = f"{self._directory}/{segment_name(number, use.epoch)}"
        seed = seed_of(number, use.epoch)
        file: File = yield Job(lambda: self._disk.open(path, read_only=True))
        origin, want = HEADER_BLOCK_BYTES, STEP_BYTES
        try:
            while origin < use.end:
                data = yield read_job(file, origin, min(want, use.end - origin))
                if self._journal.no_space:
                    raise DiskFull(f"no room to copy messages out of {path}")
                at = 0
                length = 0
                while at + HEADER_BYTES <= len(data):
                    (length,) = _LENGTH.unpack_from(data, at + 4)
                    if length < HEADER_BYTES:
                        raise JournalCorrupt("a record is damaged", file=path, offset=origin + at)
                    if at + length > len(data):
                        break
                    if data[at + 20] in _MESSAGES and origin + at >= use.moved and self._is_live(data, at):
                        if read_frame(data, at, origin, seed) is None:
                            raise JournalCorrupt("a record is damaged", file=path, offset=origin + at)
                        self._copy_record(number, origin + at, data[at : at + length])
                    at += length
                if not at and not want < length <= RECORD_BYTES_MAX:
                    raise JournalCorrupt("a record is damaged", file=path, offset=origin)
                want = STEP_BYTES if at else length
                origin += at
        finally:
            file.close()

    def _is_live(self, data: bytes, at: int) -> bool:
        """Whether any queue has the message of a record."""
        message_id, count = _MESSAGE_ID.unpack_from(data, at + HEADER_BYTES)[0], _COUNT.unpack_from(data, at + 68)[0]
        if at + MESSAGE_HEADER_BYTES + 8 * count > len(data):
            return False
        is_live = self._state.live.is_live
        if count == 1:
            return is_live(_MESSAGE_ID.unpack_from(data, at + MESSAGE_HEADER_BYTES)[0], message_id)
        queue_ids = struct.unpack_from(f"<{count}Q", data, at + MESSAGE_HEADER_BYTES)
        return any(is_live(queue_id, message_id) for queue_id in queue_ids)

    def _copy_record(self, number: int, offset: int, raw: bytes) -> None:
        """Append a message again."""
        journal = self._journal
        message_id: int = _MESSAGE_ID.unpack_from(raw, HEADER_BYTES)[0]
        journal.append(RecordType.MESSAGE_MOVE, encode_move(raw[HEADER_BYTES:], number, offset), flags=raw[21])
        location = pack_location(journal.number, journal.offset - len(raw), len(raw))
        journal.use.note(message_id)
        self._state.segments[number].moved = offset + 1
        self._forwarding.add(number, offset, message_id, location)


def _key(name: str) -> tuple[int, int]:
    parsed = parse_snapshot_name(name)
    assert parsed is not None
    return parsed[:2]
