"""The next snapshot from the one before and the log since (ADR 0010).

The small state is replayed (``skim``); references are those of the snapshot before that are still live, as
they are in its file, then the new ones. So memory holds the log's last part and never the backlog.
While the references pass by, the bytes they keep alive are counted per segment.

Not here: when (``consolidator``), the bytes (``snapshot``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, StoreError
from understudy.kernel.log import crc32
from understudy.kernel.log.skim import Step
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import Clock, Disk, File
from understudy.store.log.reading.replay import Cursor, Stop, replay
from understudy.store.log.reading.skim import apply_steps, read_steps
from understudy.store.log.records import HEADER, HEADER_BYTES, SEAL_FIXED_BYTES, SealRecord
from understudy.store.log.segment import HEADER_BLOCK_BYTES, read_header, read_seal, seed_of, segment_name
from understudy.store.quarantine import KnownDamage
from understudy.store.snapshots.background import PAUSE, STEP_BYTES, Durable, Job, Request, read_job
from understudy.store.snapshots.references import LiveReferences, waiting_references
from understudy.store.snapshots.snapshot import (
    PART_ITEMS,
    READ_BYTES,
    REFERENCE,
    PartType,
    SnapshotEnd,
    SnapshotHeader,
    SnapshotReader,
    apply_part,
    encode_end,
    small_parts,
)
from understudy.store.snapshots.writer import SnapshotWriter
from understudy.store.state import LateChanges, SegmentUse, StoreState

#: Bytes written and synced at a time.
WRITE_BYTES: Final = 512 * 1024
#: References that are looked at in one step: read from the snapshot before, or of the log since. Bytes.
_PASS_BYTES: Final = 4 * READ_BYTES
#: Work of one step on the loop, in units of about 1 µs.
_STEP_WORK: Final = 1_000
#: Work of one summary (``Step``), and of one of its records that is decoded alone. Rows and duplicate ids are columns:
#: four of them are one unit.
_SUMMARY_WORK: Final = 4
_RECORD_WORK: Final = 4


@dataclass(frozen=True, slots=True)
class Built:
    """A snapshot that is complete, synced and renamed."""

    header: SnapshotHeader
    size_bytes: int
    live: dict[int, int]
    """Bytes of live records by segment, none of it 0."""


class SnapshotBuilder:
    """Builder of one snapshot from the previous one and the later part of the log."""

    def __init__(
        self,
        *,
        disk: Disk,
        directory: str,
        clock: Clock,
        epoch: int,
        state: StoreState,
        last_sequence: Callable[[], int],
        known: KnownDamage,
    ) -> None:
        """
        Args:
            disk: Where the store is.
            directory: Absolute path of the store.
            epoch: Epoch of the node that writes.
            state: State of the running store: live messages, ends of segments.
            last_sequence: Sequence of the last record appended.
            known: Damaged records that were set aside: they are passed over.
        """
        self._disk = disk
        self._directory = directory
        self._clock = clock
        assert state.node_id is not None
        self._node_id = state.node_id
        self._epoch = epoch
        self._state = state
        self._last_sequence = last_sequence
        self._known = known
        self._replayed = StoreState(state.id_cache_size)
        self._late = self._replayed.late = LateChanges()

    def build(self, base: SnapshotHeader | None, last: int) -> Generator[Request, Any, Built | None]:
        """Make the snapshot of the log up to the end of the segment ``last``.

        Args:
            base: The snapshot to begin with; None to begin with the log's first segment.
            last: A finished segment.

        Returns:
            None when the log cannot be cut there, within a checkpoint.

        Raises:
            JournalCorrupt: in ``base`` or in a segment; the error names it.
            DiskFull, DiskFailed: the disk said no; nothing is left behind if it can be helped.
        """
        base_file: File | None = None
        reader: SnapshotReader | None = None
        cursor: Cursor | None = None
        try:
            older: list[bytes] = []
            if base is not None:
                path = f"{self._directory}/{base.name}"
                base_file = yield Job(lambda: self._disk.open(path, read_only=True))
                assert base_file is not None
                reader = SnapshotReader(path, base)
                older = yield from self._read_small(base_file, reader)
                self._replayed.node_id, self._replayed.sequence = base.node_id, base.sequence
                cursor = base.cursor(self._directory)
            for number in [n for n in self._state.segments if n <= last and (cursor is None or n > cursor.number)]:
                cursor = yield from self._take_in(number, cursor)
            if cursor is None or self._replayed.in_checkpoint:
                return None
            header = SnapshotHeader(
                self._node_id,
                self._epoch,
                self._clock.wall_ms(),
                cursor.number,
                cursor.epoch,
                cursor.offset,
                cursor.sequence,
                cursor.batch,
                cursor.sealed,
                self._state.format_version,
            )
            return (yield from self._write(header, older, base_file, reader))
        finally:
            if base_file is not None:
                base_file.close()

    # --- reading --------------------------------------------------------------------------------

    def _read_small(self, file: File, reader: SnapshotReader) -> Generator[Request, Any, list[bytes]]:
        """Everything before the references; the references that were read with it."""
        references: list[bytes] = []
        while reader.end is None and not references:
            data = yield read_job(file, reader.offset, reader.want)
            for kind, payload in reader.feed(data):
                if kind is PartType.REFERENCES:
                    references.append(payload)
                else:
                    apply_part(self._replayed, kind, payload)
        return references

    def _take_in(self, number: int, before: Cursor | None) -> Generator[Request, Any, Cursor]:
        """Apply one more segment of the log; return where it ends."""
        use, state = self._state.segments[number], self._replayed
        path = f"{self._directory}/{segment_name(number, use.epoch)}"
        cursor = Cursor(
            path,
            number,
            use.epoch,
            seed_of(number, use.epoch),
            sequence=before.sequence if before is not None else use.first_sequence - 1,
        )
        state.begin_segment(number, use.epoch, use.first_sequence)
        skimmed = use.skimmed
        damaged = self._known.touches(number, use.epoch)
        if skimmed is not None and skimmed.steps is not None and skimmed.seal is not None and not damaged:
            self._follow(cursor, skimmed.seal[1], use)
            yield from self._apply(cursor, skimmed.steps)
            self._behind_seal(cursor, *skimmed.seal)
        else:
            yield from self._read_back(cursor, use, damaged=damaged)
        taken = state.segments[number]
        taken.message_id_min, taken.message_id_max, taken.end = use.message_id_min, use.message_id_max, use.end
        state.sequence = cursor.sequence
        return cursor

    def _read_back(self, cursor: Cursor, use: SegmentUse, *, damaged: bool) -> Generator[Request, Any, None]:
        """Read a segment of which this process has no summary."""
        path, number = cursor.path, cursor.number
        file: File = yield Job(lambda: self._disk.open(path, read_only=True))
        try:
            found = yield Job(lambda: read_seal(file, read_header(file, number, use.epoch)))
            if found is None or damaged or found[0] + SEAL_FIXED_BYTES + 4 * found[1].count != use.end:
                yield from self._replay(self._replayed, file, cursor, use.end)
            else:
                at, seal = found
                self._follow(cursor, seal, use)
                yield from self._skim(file, cursor, at, seal)
                self._behind_seal(cursor, at, seal)
        finally:
            file.close()

    @staticmethod
    def _follow(cursor: Cursor, seal: SealRecord, use: SegmentUse) -> None:
        if seal.first_sequence != (cursor.sequence + 1 if cursor.sequence else use.first_sequence):
            raise JournalCorrupt("the segment does not follow the one before", file=cursor.path, offset=0)

    @staticmethod
    def _behind_seal(cursor: Cursor, at: int, seal: SealRecord) -> None:
        cursor.offset = at + SEAL_FIXED_BYTES + 4 * seal.count
        cursor.batch = at
        cursor.sequence = seal.last_sequence + 1
        cursor.sealed = Stop.CLOSED if seal.closed else Stop.SEALED

    def _apply(self, cursor: Cursor, steps: list[Step]) -> Generator[Request, Any, None]:
        """Apply records of a segment."""
        work = 0
        for step in steps:
            apply_steps(self._replayed, self._state.live.queues, cursor.number, cursor.path, (step,))
            groups, duplicates, others = step
            # each queue gets rows of its own
            rows = sum(len(queue_ids) * len(ids) >> 3 for _, queue_ids, _, ids, *_ in groups)
            rows += sum(len(ids) // length for _, length, ids in duplicates)
            work += _SUMMARY_WORK + rows // 4 + _RECORD_WORK * len(others)
            if work >= _STEP_WORK:
                work = 0
                yield PAUSE

    def _skim(self, file: File, cursor: Cursor, end: int, seal: SealRecord) -> Generator[Request, Any, None]:
        """The records of a sealed segment that was not written by this process, checked by its digest."""
        digest = yield Job(lambda: crc32(file.read(0, HEADER_BLOCK_BYTES)))
        position = HEADER_BLOCK_BYTES
        rest, want = b"", STEP_BYTES
        while position < end:
            length = min(want, end - position)
            behind, digest, steps, rest = yield Job(partial(read_steps, file, position, length, rest, digest), length)
            if behind < position + length:
                break
            position = behind
            yield from self._apply(cursor, steps)
            want = STEP_BYTES
            if len(rest) >= HEADER_BYTES:
                want = max(want, HEADER.unpack_from(rest)[1] - len(rest))
        if digest != seal.digest or rest:
            # records are checked one by one, to name the damaged one
            scratch = StoreState()
            scratch.begin_segment(cursor.number, cursor.epoch, seal.first_sequence)
            yield from self._replay(scratch, file, cursor, end)
            raise JournalCorrupt("the digest in the seal is not that of the segment", file=cursor.path, offset=end)

    def _replay(self, state: StoreState, file: File, cursor: Cursor, end: int) -> Generator[Request, Any, None]:
        """Record by record up to an offset."""
        want = STEP_BYTES
        path = cursor.path
        while cursor.offset < end:
            data = yield read_job(file, cursor.offset, min(want, end - cursor.offset))
            offset = cursor.offset
            stop = replay(state, cursor, data)
            if stop in (Stop.SEALED, Stop.CLOSED):
                cursor.sealed = stop
            if cursor.offset > offset or self._pass_over(state, cursor, end):
                want = STEP_BYTES
                continue
            needed_bytes = HEADER.unpack_from(data)[1] if len(data) >= HEADER_BYTES else 0
            if stop is not Stop.SHORT or not want < needed_bytes <= RECORD_BYTES_MAX:
                raise JournalCorrupt(f"record {cursor.sequence + 1} is damaged", file=path, offset=offset)
            want = needed_bytes

    def _pass_over(self, state: StoreState, cursor: Cursor, end: int) -> bool:
        """Whether the record at the cursor is damaged and was set aside: reading continues after it."""
        length = self._known.length_at(cursor.number, cursor.epoch, cursor.offset)
        if not length or not cursor.sequence:
            return False
        cursor.offset += length
        cursor.sequence += 1
        state.sequence = cursor.sequence
        if cursor.offset == end:
            # the values that a seal would have
            cursor.sealed = Stop.SEALED
        return True

    # --- writing --------------------------------------------------------------------------------

    def _write(
        self, header: SnapshotHeader, older: list[bytes], base_file: File | None, reader: SnapshotReader | None
    ) -> Generator[Request, Any, Built]:
        writer = SnapshotWriter(header)
        try:
            yield from writer.create()
            for kind, payload in small_parts(self._replayed, dict(self._state.removable)):
                writer.encoder.add(kind, payload)
                yield from writer.put(at_least=WRITE_BYTES)
                yield PAUSE
            live = LiveReferences(self._state.live, self._late)
            live.count_transactions(self._replayed.transactions.values())
            yield from self._write_references(writer, older, base_file, reader, live)
            # leaving out acknowledged messages relies on all records appended so far
            needs = self._last_sequence()
            writer.encoder.add(PartType.END, encode_end(SnapshotEnd(needs, live.count, live.bytes.total)))
            yield from writer.put()
            yield Durable(needs)
        except StoreError:
            yield from writer.remove()
            raise
        yield from writer.publish()
        return Built(header, writer.size_bytes, live.bytes.by_segment)

    def _write_references(
        self,
        writer: SnapshotWriter,
        older: list[bytes],
        base_file: File | None,
        reader: SnapshotReader | None,
        live: LiveReferences,
    ) -> Generator[Request, Any, None]:
        packed = bytearray()
        full_bytes = PART_ITEMS * REFERENCE.size
        passed_bytes = 0

        def put(payload: bytes) -> Generator[Request, Any, None]:
            nonlocal passed_bytes
            passed_bytes += len(payload)
            if passed_bytes > _PASS_BYTES:
                passed_bytes = len(payload)
                yield PAUSE
            packed.extend(live.passing(payload))
            while len(packed) >= full_bytes:
                writer.encoder.add(PartType.REFERENCES, bytes(packed[:full_bytes]))
                del packed[:full_bytes]
                yield from writer.put(at_least=WRITE_BYTES)

        while True:
            for payload in older:
                yield from put(payload)
            if reader is None or base_file is None or reader.end is not None:
                break
            data = yield read_job(base_file, reader.offset, max(reader.want, _PASS_BYTES))
            passed_bytes = 0
            older = [payload for _, payload in reader.feed(data)]
        for queue_id, backlog in self._replayed.references.items():
            for payload in waiting_references(queue_id, backlog):
                yield from put(payload)
        if packed:
            writer.encoder.add(PartType.REFERENCES, bytes(packed))
