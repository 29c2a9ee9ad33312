"""One copy of a node's log as tools see it: which records it holds, and how far they can be trusted.

A copy may come from anywhere: a disk that was pulled, a ``cp`` that was interrupted, a store whose
beginning was trimmed, a directory set aside. So nothing here insists that a node could start from
it. The valid records from the first one on are its log; where that ends, and why, is ``state`` and
``problem``. Sealed segments are known by their seals alone, without reading their records; a caller that
reads them later and meets damage calls ``damaged_at``, and the log ends there from then on.

Strictly read-only. Not here: comparing copies (``tools.compare``), live contents (``tools.contents``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from hashlib import sha256
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, JournalCorrupt
from understudy.ids import NodeId
from understudy.kernel.log import crc32
from understudy.ports import Disk, File
from understudy.store.log.chain import Chain, Link, newest_epoch, read_chain
from understudy.store.log.reading.replay import Frame, find_later_record, read_frames, unfinished_bytes
from understudy.store.log.records import HEADER, HEADER_BYTES, RecordType, SealRecord
from understudy.store.log.segment import (
    HEADER_BLOCK_BYTES,
    SegmentHeader,
    parse_name,
    read_header,
    read_seal,
    seed_of,
    segment_name,
)
from understudy.store.quarantine import read_known_damage
from understudy.store.snapshots.snapshot import SnapshotHeader, read_snapshot, snapshot_names
from understudy.tools.inspect import Problem

_READ_BYTES: Final = 4 * 1024 * 1024
#: Number of changes of a copy after which its examination is given up.
_ATTEMPTS: Final = 5


class CopyState(Enum):
    """How a copy's log ends."""

    WHOLE = "whole"
    CUT = "cut"
    """The copy ends in a torn tail, as after a power loss; a node would start from it."""
    SHORT = "short"
    """Bytes or files are missing at the end, as after an interrupted copy; a node refuses it."""
    DAMAGED = "damaged"
    """Something before the end is wrong; nothing after it is used."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The records of the log that lie in one segment."""

    number: int
    epoch: int
    first_sequence: int
    last_sequence: int
    end: int
    """Offset after the last of them."""
    seal: bytes = b""
    """Digest of the seal, which covers the digest of the segment; empty if there is none."""

    @property
    def name(self) -> str:
        """File name of the segment."""
        return segment_name(self.number, self.epoch)

    def is_same(self, other: Extent) -> bool:
        """Whether the seals say that both hold the same bytes."""
        return bool(self.seal) and self == other


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a copied log with its place."""

    number: int
    epoch: int
    frame: Frame
    raw: bytes
    """The whole record, header included."""

    @property
    def sequence(self) -> int:
        """Sequence of the record."""
        return self.frame.sequence

    def is_same(self, other: Entry) -> bool:
        """Whether both say the same, wherever they lie: what only describes the layout of files
        (offsets, digests, batches) does not count.
        """
        return (
            self.frame.sequence == other.frame.sequence
            and self.epoch == other.epoch
            and self.frame.kind == other.frame.kind
            and self.frame.flags == other.frame.flags
            and _meaning(self.frame.kind, self.raw) == _meaning(other.frame.kind, other.raw)
        )


def _meaning(kind: int, raw: bytes) -> bytes:
    """The part of a record that does not describe the layout of files."""
    if kind == RecordType.SEAL:
        return b""
    if kind == RecordType.EPOCH:
        return raw[24:56]
    if kind == RecordType.TRIM:
        return raw[32:40]
    return raw[24:]


class LogCopy:
    """One copy of a log, which is only read, up to the last record that can be read."""

    def __init__(self, disk: Disk, directory: str, *, full: bool = False) -> None:
        """Reads headers, seals, and the records of segments without a seal.

        Args:
            disk: Where the copy is.
            full: Check the bytes of sealed segments against their digests too.

        Raises:
            StoreVersionUnsupported: written by a newer Understudy.
            DiskFailed: it cannot be read.
        """
        self.disk = disk
        self.directory = directory
        self._full = full
        self._known = read_known_damage(disk, directory)
        before: Problem | None = None
        for _ in range(_ATTEMPTS):
            try:
                self._scan_all()
            except FileNotFoundError:
                # a running broker has trimmed the segment
                continue
            if self.problem is None or self.problem == before:
                return
            # a broker that goes on writing while we read looks like damage, but never twice the same
            before = self.problem
        if before is None:
            raise DiskFailed(f"{directory}: segments disappear while they are read", hint="is a broker running there?")

    def _scan_all(self) -> None:
        self.extents: list[Extent] = []
        self._firsts: list[int] = []
        self.state = CopyState.WHOLE
        self.problem: Problem | None = None
        self.base: SnapshotHeader | None = None
        """The snapshot that replaces the log before ``extents``; only if the segments alone are not whole."""
        self.older: list[Link] = []
        """Segments that hold messages of the snapshot."""
        self.tail_bytes = 0
        """Bytes after the end of the log that are not zero."""
        chain = self._find_chain()
        self.node_id: NodeId | None = chain.node_id
        self._find_base(chain)
        for link in chain.links:
            if (self.base is None or link.number > self.base.number) and not self._scan(link):
                break
        self._judge_end(chain)

    @property
    def first_sequence(self) -> int:
        """Sequence of the first record; 0 for an empty log."""
        return self.extents[0].first_sequence if self.extents else 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last valid record; 0 for an empty log."""
        return self.extents[-1].last_sequence if self.extents else 0

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and sequence of the last valid record: what makes one copy newer than another."""
        return (self.extents[-1].epoch, self.last_sequence) if self.extents else (0, 0)

    # --- reading --------------------------------------------------------------------------------

    def extent_of(self, sequence: int) -> Extent:
        """The segment that holds a record of the log."""
        return self.extents[bisect_right(self._firsts, sequence) - 1]

    def read(self, first: int, last: int) -> Iterator[Entry]:
        """The records from one sequence to another, both included. Where one turns out to be
        damaged the log ends from then on, and so does this.
        """
        while first <= min(last, self.last_sequence):
            extent = self.extent_of(first)
            path = f"{self.directory}/{extent.name}"
            file = self.disk.open(path, read_only=True)
            wanted = extent.first_sequence
            offset = HEADER_BLOCK_BYTES
            try:
                for frame, raw in self._frames(file, extent.number, extent.epoch, extent.end):
                    if not self._follows(extent.number, extent.epoch, wanted, frame):
                        break
                    wanted = frame.sequence + 1
                    offset = frame.offset + frame.length
                    if frame.sequence >= first:
                        yield Entry(extent.number, extent.epoch, frame, raw)
                    if frame.sequence == last:
                        return
            finally:
                file.close()
            if wanted != extent.last_sequence + 1:
                self.damaged_at(extent, offset, wanted)
                return
            first = wanted

    def _frames(self, file: File, number: int, epoch: int, end: int | None) -> Iterator[tuple[Frame, bytes]]:
        """The valid records of a segment, also those after records that were set aside."""
        return read_frames(file, seed_of(number, epoch), end, self.passed_at(number, epoch))

    def passed_at(self, number: int, epoch: int) -> Callable[[int], int]:
        """Length of a record of a segment that was set aside, by its offset; 0 for none."""
        return partial(self._known.length_at, number, epoch)

    def _follows(self, number: int, epoch: int, expected: int, frame: Frame) -> bool:
        """Whether a record is the next one, or the next that was not set aside."""
        return frame.sequence == expected or (self._known.touches(number, epoch) and frame.sequence > expected)

    def damaged_at(self, extent: Extent, offset: int, sequence: int) -> None:
        """The record of that sequence cannot be read: the log ends before it."""
        index = self.extents.index(extent)
        del self.extents[index:]
        if sequence > extent.first_sequence:
            self.extents.append(Extent(extent.number, extent.epoch, extent.first_sequence, sequence - 1, offset))
        self._firsts = [each.first_sequence for each in self.extents]
        self._damaged(extent.name, offset, f"record {sequence} is damaged or missing")

    def _damaged(self, name: str, offset: int, message: str) -> None:
        path = f"{self.directory}/{name}"
        if not self.disk.exists(path):
            # removed by a running node while it was read, and a later segment is made of the file
            raise FileNotFoundError(path)
        self.state = CopyState.DAMAGED
        self.problem = Problem(path, offset, message)

    # --- what the log is --------------------------------------------------------------------------

    def _find_chain(self) -> Chain:
        """The chain of the newest epoch that can be read; an older one is a prefix of it."""
        names = [name for name in self.disk.list(self.directory) if parse_name(name) is not None]
        while True:
            try:
                return read_chain(self.disk, self.directory, names)
            except JournalCorrupt as error:
                if self.problem is None:
                    self.state = CopyState.DAMAGED
                    self.problem = Problem(error.file, error.offset, bare_message(error))
                epoch = newest_epoch(names)
                names = [name for name in names if (parse_name(name) or (0, 0))[1] != epoch]

    def _find_base(self, chain: Chain) -> None:
        """Snapshot that replaces dropped segments: the oldest whole one that fits, because most of the log is left
        after it. None where all that is missing was trimmed.
        """
        gapless, first_sequence = self._continuity(chain)
        if gapless and first_sequence <= 1:
            return
        names = self.disk.list(self.directory)
        present = {link.number: link for link in chain.links}
        for name in reversed(snapshot_names(names)):
            file = self.disk.open(f"{self.directory}/{name}", read_only=True)
            try:
                header, state = read_snapshot(file, name)
            except JournalCorrupt as error:
                if self.problem is None:
                    self.problem = Problem(error.file, error.offset, bare_message(error))
                continue
            finally:
                file.close()
            link = present.get(header.number)
            if link is None or link.epoch != header.segment_epoch or link.end not in (None, header.offset):
                continue
            if gapless and first_sequence <= state.trimmed_to:
                return
            self.base = header
            parsed = [pair for pair in map(parse_name, names) if pair is not None and pair[2]]
            self.older = [Link(pair[0], pair[1], None) for pair in parsed if pair[0] <= header.number]
            return

    def _continuity(self, chain: Chain) -> tuple[bool, int]:
        """Whether, by what the seals say, no segment between two is missing; and the first sequence, 0 for none."""
        first = after = 0
        gapless = True
        for link in chain.links:
            file = self.disk.open(f"{self.directory}/{link.name}", read_only=True)
            try:
                raw = file.read(HEADER_BLOCK_BYTES, HEADER_BYTES)
                sequence = HEADER.unpack(raw)[2] if len(raw) == HEADER_BYTES else 0
                found = read_seal(file, read_header(file, link.number, link.epoch))
            except JournalCorrupt:
                # damage of the segment is found by the scan
                found = None
            finally:
                file.close()
            gapless = gapless and (not after or not sequence or sequence == after)
            first = first or sequence
            after = found[1].last_sequence + 2 if found is not None else 0
        return gapless, first

    def _scan(self, link: Link) -> bool:
        """Read one segment; False when the log does not continue after it."""
        file = self.disk.open(f"{self.directory}/{link.name}", read_only=True)
        try:
            try:
                header = read_header(file, link.number, link.epoch)
            except JournalCorrupt as error:
                if self.state is not CopyState.DAMAGED:
                    self._damaged(link.name, error.offset, bare_message(error))
                return False
            return self._scan_sealed(file, link, header) or self._scan_open(file, link, header)
        finally:
            file.close()

    def _expected(self) -> int:
        """Sequence of the next record; 0 for any."""
        return self.last_sequence + 1 if self.extents else self.base.sequence + 1 if self.base is not None else 0

    def _scan_sealed(self, file: File, link: Link, header: SegmentHeader) -> bool:
        size = file.size()
        if link.end is not None and link.end != size:
            return False
        found = read_seal(file, header)
        if found is None:
            return False
        at, seal = found
        if self._expected() not in (0, seal.first_sequence):
            return False
        if self._full and _digest(file, at) != seal.digest:
            return False
        raw = file.read(at, size - at)
        # the digest in the seal is of 32 bits; its array of offsets and times make it as good as the bytes
        self._add(
            Extent(
                link.number,
                link.epoch,
                seal.first_sequence,
                seal.last_sequence + 1,
                size,
                sha256(raw).digest(),
            )
        )
        return True

    def _add(self, extent: Extent) -> None:
        self.extents.append(extent)
        self._firsts.append(extent.first_sequence)

    def _scan_open(self, file: File, link: Link, header: SegmentHeader) -> bool:
        expected = self._expected()
        first = last = 0
        end = HEADER_BLOCK_BYTES
        sealed = False
        for frame, _ in self._frames(file, link.number, link.epoch, link.end):
            if expected and not self._follows(link.number, link.epoch, expected, frame):
                break
            first = first or expected or frame.sequence
            last = frame.sequence
            expected = last + 1
            end = frame.offset + frame.length
            sealed = frame.kind == RecordType.SEAL
        if last:
            self._add(Extent(link.number, link.epoch, first, last, end))
        if link.end is not None:
            if end != link.end:
                self._end_badly(file, link, end, last)
            return end == link.end
        if not sealed:
            self._judge_tail(file, link, header, end, last)
        return sealed

    def _end_badly(self, file: File, link: Link, end: int, last: int) -> None:
        size = file.size()
        if self.state is CopyState.DAMAGED:
            return
        rest = file.read(end, max(size - end, 0))
        if not unfinished_bytes(rest, end, seed_of(link.number, link.epoch), above=last):
            message = f"the segment ends here and should have gone on to {link.end}"
        else:
            message = f"record {last + 1} is damaged or missing" if last else "the first record is damaged"
        self._damaged(link.name, end, message)

    def _judge_tail(self, file: File, link: Link, header: SegmentHeader, end: int, last: int) -> None:
        """Reason why the valid records of an unsealed segment end where they do."""
        size = file.size()
        rest = file.read(end, max(size - end, 0))
        seed = seed_of(link.number, link.epoch)
        above = last or self.last_sequence
        self.tail_bytes = unfinished_bytes(rest, end, seed, above=above)
        if self.state is CopyState.DAMAGED:
            return
        if find_later_record(rest, end, seed, above=above, after=end) is not None or read_seal(file, header):
            self._damaged(link.name, end, f"record {above + 1} is damaged or missing")
        elif size < header.allocated_bytes:
            self.state = CopyState.SHORT
            message = f"the file has {size} of {header.allocated_bytes} allocated bytes and no seal"
            self.problem = Problem(f"{self.directory}/{link.name}", end, message)
        elif self.tail_bytes:
            self.state = CopyState.CUT

    def _judge_end(self, chain: Chain) -> None:
        """Whether something is missing, or too much, after the last record."""
        if not self.extents or self.state is CopyState.DAMAGED:
            return
        last = self.extents[-1]
        for link in chain.links:
            if link.number <= last.number:
                continue
            file = self.disk.open(f"{self.directory}/{link.name}", read_only=True)
            try:
                later = next(read_frames(file, seed_of(link.number, link.epoch)), None)
            finally:
                file.close()
            if later is not None:
                self._damaged(last.name, last.end, f"record {last.last_sequence + 1} is damaged or missing")
                return
        if chain.links[-1].number == last.number and self._sealed_open(last):
            self.state = CopyState.SHORT
            self.problem = Problem(
                f"{self.directory}/{last.name}", last.end, "the segment is sealed and the next one is missing"
            )

    def _sealed_open(self, extent: Extent) -> bool:
        """Whether the segment ends in a seal that promises another one."""
        if not extent.seal:
            return False
        file = self.disk.open(f"{self.directory}/{extent.name}", read_only=True)
        try:
            found = read_seal(file, read_header(file, extent.number, extent.epoch))
        finally:
            file.close()
        return found is not None and isinstance(found[1], SealRecord) and not found[1].closed


def bare_message(error: JournalCorrupt) -> str:
    """The message of an error without file and offset."""
    return str(error).removeprefix(f"{error.file} at offset {error.offset}: ")


def _digest(file: File, end: int) -> int:
    digest = 0
    for start in range(0, end, _READ_BYTES):
        digest = crc32(file.read(start, min(_READ_BYTES, end - start)), digest)
    return digest
