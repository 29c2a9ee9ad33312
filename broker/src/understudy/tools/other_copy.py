"""Another copy of the same store, as the source of bytes that are damaged or missing in the first one (ADR 0114).

``RestoringDisk`` shows a store as its files would be with the right bytes of the other copy in place of wrong ones; no
file is written. These parts are taken, if they fit:

- a record of a segment: both copies have that segment, of the same activation (the same header); the record of the
  other copy lies at the same offset, its crc is right, and its sequence is the next one;
- a header of a segment, and a snapshot: valid in the other copy, damaged here;
- a segment that is missing here (``offered_segments``);
- the record of one message, wherever it lies in the other copy: by its message id and crc (``find_message``). An id is
  unique in a log, but both copies may have given it out after they diverged, so it counts only up to that epoch;
- a body of a large message: by the size and crc in the record that names it (``tools.salvage``).

The other copy may be damaged, too, and may have segments and epochs that the first one has not. The end of the newest
segment is never continued from it: the first copy is then an older state of the store, not a damaged one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, WrongNode
from understudy.ids import EPOCH_SHIFT
from understudy.ports import DiskReader, FileReader
from understudy.store.log.chain import read_chain
from understudy.store.log.reading.replay import Frame, find_next_record, read_frame, unfinished_bytes
from understudy.store.log.records import HEADER_BYTES, MessageRecord, RecordType, decode
from understudy.store.log.segment import (
    HEADER_BLOCK_BYTES,
    SegmentHeader,
    decode_header,
    parse_name,
    seed_of,
    segment_name,
)
from understudy.store.quarantine import read_entries
from understudy.store.snapshots.snapshot import read_snapshot, snapshot_names

_MESSAGES: Final = (RecordType.MESSAGE_ADD, RecordType.MESSAGE_MOVE)


@dataclass(frozen=True, slots=True)
class _Place:
    """A valid record of a message in a segment of the other copy."""

    name: str
    frame: Frame


class OtherCopy:
    """The store that bytes are taken from; only read."""

    def __init__(self, disk: DiskReader, directory: str, large_directory: str) -> None:
        """
        Args:
            disk: Where the copy is.
            large_directory: Directory of the bodies of its large messages.
        """
        self.disk = disk
        self.directory = directory
        self.large_directory = large_directory
        self.names = disk.list(directory)
        self.headers = read_headers(disk, directory, self.names)
        self._places: dict[int, _Place] | None = None

    def check_node(self, headers: Iterable[SegmentHeader]) -> None:
        """Raises WrongNode: a segment of either copy belongs to another node than the others."""
        ids = {header.node_id for header in (*headers, *self.headers.values())}
        if len(ids) > 1:
            raise WrongNode(
                f"{self.directory} belongs to another node: {' and '.join(sorted(ids))}",
                hint="name a copy of the same store, or of the other node of its pair",
            )

    def read(self, name: str) -> bytes:
        """Every byte of a file of the journal; empty if it does not exist."""
        return read_file(self.disk, f"{self.directory}/{name}")

    def find_message(self, message_id: int) -> MessageRecord | None:
        """The record of a message, from any segment of this copy; None if no valid one is there."""
        found = self.find_record(message_id)
        if found is None:
            return None
        frame, raw = found
        record = decode_message(frame, raw)
        # a copied message was committed before
        return record if record is None or frame.kind == RecordType.MESSAGE_ADD else replace(record, tx_id=0)

    def find_record(self, message_id: int) -> tuple[Frame, bytes] | None:
        """A valid record of a message with its bytes."""
        place = self._index().get(message_id)
        if place is None:
            return None
        file = self.disk.open(f"{self.directory}/{place.name}", read_only=True)
        try:
            return place.frame, file.read(place.frame.offset, place.frame.length)
        finally:
            file.close()

    def _index(self) -> dict[int, _Place]:
        """The places of all messages; read when the first one is looked for."""
        if self._places is None:
            self._places = {}
            for name, header in self.headers.items():
                data = self.read(name)
                for frame in valid_frames(data, header):
                    if frame.kind in _MESSAGES:
                        record = decode_message(frame, data[frame.offset : frame.offset + frame.length])
                        if record is not None:
                            self._places.setdefault(record.message_id, _Place(name, frame))
        return self._places


class RestoringDisk:
    """A store with the right bytes of another copy in place of wrong ones. Implements ``DiskReader``."""

    def __init__(self, disk: DiskReader, directory: str, other: OtherCopy) -> None:
        """Compare both copies of the store.

        Args:
            disk: Where the damaged store is; only read.
            other: The copy to take bytes from.

        Raises:
            WrongNode: the copies belong to different nodes.
            DiskFailed: a file cannot be read at all.
            StoreVersionUnsupported: written by a newer Understudy.
        """
        self._disk = disk
        self._directory = directory
        self.other = other
        self.restored: Counter[str] = Counter()
        """Number of restored things of each kind: types of records, ``segment``, ``header``, ``snapshot``."""
        self._patches: dict[str, list[tuple[int, bytes]]] = {}
        self._whole: set[str] = set()
        """Paths of files that are taken as a whole."""
        names = disk.list(directory)
        self._names = names
        headers = read_headers(disk, directory, names)
        other.check_node(headers.values())
        self.diverged_from = _divergence(headers, other.headers)
        """First epoch that both copies began on their own; beyond every epoch if there is none."""
        self.dropped = {
            (kept.entry.segment, kept.entry.epoch, kept.entry.offset)
            for kept in read_entries(disk, directory)
            if kept.entry.dropped
        }
        """Segment, epoch and offset of records that an operator has given up."""
        ends = self._ends()
        for name in names:
            if name in other.headers:
                self._compare_segment(name, headers.get(name), ends.get(name, 0))
        for name in snapshot_names(names):
            if name not in other.names or _is_snapshot(disk, directory, name):
                continue
            if _is_snapshot(other.disk, other.directory, name):
                self._whole.add(f"{directory}/{name}")
                self.restored["snapshot"] += 1

    def find_message(self, message_id: int) -> MessageRecord | None:
        """The record of a message in the other copy; None if it has none, or may have given the id to another one."""
        return self.other.find_message(message_id) if message_id >> EPOCH_SHIFT < self.diverged_from else None

    def _ends(self) -> dict[str, int | None]:
        """End of the log in the segments for which the newest epoch records it; None where a later segment
        follows.

        A segment without an entry is the last of its epoch: its log ends with the bytes that are written in it.
        """
        segments = sorted(parsed[:2] for parsed in map(parse_name, self._names) if parsed is not None and parsed[2])
        found: dict[str, int | None] = {
            segment_name(number, epoch): None
            for number, epoch in segments
            if any(of_epoch == epoch and later > number for later, of_epoch in segments)
        }
        with suppress(JournalCorrupt):
            links = read_chain(self._disk, self._directory, self._names).links
            found.update({link.name: link.end for link in links if link.end is not None})
        return found

    def _compare_segment(self, name: str, header: SegmentHeader | None, end: int | None) -> None:
        """Note the records of the other copy that replace damaged ones of a segment.

        Args:
            header: The valid one here; None if it is damaged.
            end: Where the log ends in it; None: with the segment; 0: after the last byte that is not zero.
        """
        theirs_header = self.other.headers[name]
        if header is not None and header != theirs_header:
            return
        if header is None and theirs_header.epoch >= self.diverged_from:
            return
        ours = read_file(self._disk, f"{self._directory}/{name}")
        theirs = self.other.read(name)
        patches: list[tuple[int, bytes]] = []
        if ours[:HEADER_BLOCK_BYTES] != theirs[:HEADER_BLOCK_BYTES]:
            patches.append((0, theirs[:HEADER_BLOCK_BYTES]))
            self.restored["header"] += 1
        # nothing was written after the end of the last segment of an epoch
        limit = len(theirs) if end is None else end or _written_end(ours, theirs_header)
        for frame in self._missing_frames(ours, theirs, theirs_header, limit):
            patches.append((frame.offset, theirs[frame.offset : frame.offset + frame.length]))
            self.restored[RecordType(frame.kind).name] += 1
        if patches:
            self._patches[f"{self._directory}/{name}"] = patches

    def _missing_frames(self, ours: bytes, theirs: bytes, header: SegmentHeader, limit: int) -> list[Frame]:
        """Valid records of the other copy at places where the first copy has no valid record."""
        seed, found = seed_of(header.number, header.epoch), []
        at, sequence = HEADER_BLOCK_BYTES, 0
        while at < limit:
            frame = read_frame(ours[at : at + _length_at(ours, at)], 0, at, seed)
            if frame is None or (sequence and frame.sequence != sequence + 1):
                frame = read_frame(theirs[at : at + _length_at(theirs, at)], 0, at, seed)
                if frame is None or (sequence and frame.sequence != sequence + 1):
                    following = [
                        each
                        for data in (ours, theirs)
                        if (each := find_next_record(data[at:], at, seed, above=sequence)) is not None
                    ]
                    if not following:
                        break
                    nearest = min(following, key=lambda each: each.offset)
                    if nearest.offset <= at:
                        break
                    at, sequence = nearest.offset, nearest.sequence - 1
                    continue
                if (header.number, header.epoch, at) not in self.dropped:
                    found.append(frame)
            at, sequence = at + frame.length, frame.sequence
        return found

    def offered_segments(self, missing: Collection[str], *, above: int, after: int) -> list[str]:
        """Segments of the log that only the other copy has, older than the newest one here.

        Args:
            missing: Names of older epochs that belong to the log.
            above: Sequence up to which the log has given up its records.
            after: Number of the segment up to which a snapshot stands for the log.
        """
        own = [parsed[:2] for parsed in map(parse_name, self._names) if parsed is not None and parsed[2]]
        newest = max(own, default=(0, 0))
        found = []
        for name, header in self.other.headers.items():
            if name in self._names or not after < header.number < newest[0] or header.epoch >= self.diverged_from:
                continue
            if name not in missing and header.epoch != newest[1]:
                continue
            last = max((frame.sequence for frame in valid_frames(self.other.read(name), header)), default=0)
            if last > above:
                found.append(name)
        return found

    def take_segments(self, names: Iterable[str]) -> None:
        """Add these segments of the other copy to the files of the store."""
        for name in names:
            self._whole.add(f"{self._directory}/{name}")
            self._names = sorted({*self._names, name})
            self.restored["segment"] += 1

    # --- DiskReader -----------------------------------------------------------------------------

    def open(self, path: str, *, read_only: bool = False) -> FileReader:
        if path in self._whole:
            return self.other.disk.open(f"{self.other.directory}/{path.rpartition('/')[2]}", read_only=True)
        file = self._disk.open(path, read_only=True)
        patches = self._patches.get(path)
        return file if patches is None else _Patched(file, patches)

    def list(self, directory: str) -> list[str]:
        return list(self._names) if directory == self._directory else self._disk.list(directory)


class _Patched:
    """A file with some of its bytes replaced. Implements ``FileReader``."""

    def __init__(self, file: FileReader, patches: list[tuple[int, bytes]]) -> None:
        self._file = file
        self._patches = patches

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return max(self._file.size(), *(offset + len(data) for offset, data in self._patches))

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size())
        data = bytearray(self._file.read(offset, length).ljust(max(end - offset, 0), b"\0"))
        for at, patch in self._patches:
            begin, stop = max(at, offset), min(at + len(patch), end)
            if begin < stop:
                data[begin - offset : stop - offset] = patch[begin - at : stop - at]
        return bytes(data)

    def forget_cached(self, offset: int, length: int) -> None:
        self._file.forget_cached(offset, length)

    def data_ranges(self, offset: int) -> list[tuple[int, int]]:
        return [(offset, self.size())] if offset < self.size() else []

    def close(self) -> None:
        self._file.close()


def _written_end(data: bytes, header: SegmentHeader) -> int:
    """Offset up to which a segment has records, or parts of some."""
    seed = seed_of(header.number, header.epoch)
    rest = data[HEADER_BLOCK_BYTES:]
    end = HEADER_BLOCK_BYTES + unfinished_bytes(rest, HEADER_BLOCK_BYTES, seed, above=0)
    return end + unfinished_bytes(data[end:], end, seed, above=0)


def read_file(disk: DiskReader, path: str) -> bytes:
    """Every byte of a file; empty if it does not exist."""
    try:
        file = disk.open(path, read_only=True)
    except FileNotFoundError:
        return b""
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def read_headers(disk: DiskReader, directory: str, names: Iterable[str]) -> dict[str, SegmentHeader]:
    """The valid headers of the complete segments among these names."""
    found: dict[str, SegmentHeader] = {}
    for name in names:
        parsed = parse_name(name)
        if parsed is None or not parsed[2]:
            continue
        file = disk.open(f"{directory}/{name}", read_only=True)
        try:
            header = decode_header(file.read(0, HEADER_BLOCK_BYTES), file.path)
        except JournalCorrupt:
            continue
        finally:
            file.close()
        if (header.number, header.epoch) == parsed[:2]:
            found[name] = header
    return found


def _divergence(ours: dict[str, SegmentHeader], theirs: dict[str, SegmentHeader]) -> int:
    """First epoch that two copies began on their own: its first segment, or one of the same name, differs."""
    firsts = {header.epoch: header for header in ours.values() if header.first_of_epoch}
    differing = [header.epoch for name, header in theirs.items() if name in ours and ours[name] != header]
    differing += [
        header.epoch
        for header in theirs.values()
        if header.first_of_epoch and header.epoch in firsts and firsts[header.epoch] != header
    ]
    return min(differing, default=1 << EPOCH_SHIFT)


def _is_snapshot(disk: DiskReader, directory: str, name: str) -> bool:
    file = disk.open(f"{directory}/{name}", read_only=True)
    try:
        read_snapshot(file, name)
    except JournalCorrupt:
        return False
    finally:
        file.close()
    return True


def _length_at(data: bytes, at: int) -> int:
    """Length that the record at an offset states."""
    return max(int.from_bytes(data[at + 4 : at + 8], "little"), HEADER_BYTES)


def valid_frames(data: bytes, header: SegmentHeader) -> list[Frame]:
    """The valid records of a segment, also those after damage."""
    seed, found = seed_of(header.number, header.epoch), []
    at, sequence = HEADER_BLOCK_BYTES, 0
    while at < len(data):
        frame = read_frame(data[at : at + _length_at(data, at)], 0, at, seed)
        if frame is None:
            frame = find_next_record(data[at:], at, seed, above=sequence)
        if frame is None:
            break
        found.append(frame)
        at, sequence = frame.offset + frame.length, frame.sequence
    return found


def decode_message(frame: Frame, raw: bytes) -> MessageRecord | None:
    """The message in a valid record; None if it is none."""
    # a copy (MESSAGE_MOVE) has the same fields, with its source in the place of the transaction
    kind = RecordType.MESSAGE_ADD if frame.kind == RecordType.MESSAGE_MOVE else frame.kind
    with suppress(ValueError):
        record = decode(RecordType(kind), frame.flags, raw[HEADER_BYTES : frame.length])
        if isinstance(record, MessageRecord):
            return record
    return None
