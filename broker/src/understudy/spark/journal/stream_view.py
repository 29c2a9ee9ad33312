"""The log in one directory as a stream sees it: its segments, the sequences in them, and up to where they are durable.

Where a broker writes meanwhile, the files alone prove the following. A record whose batch begins after an offset proves
that everything before the offset was synced and permitted by the fence of the node, because one batch at a time is
under way (docs/build/journal-format.md s. 2.2). So the last batch of the newest epoch is left out, and the last seal
as well. A segment of an older epoch ends where the newest epoch says: bytes of a node that had lost the store come
after that.

What does not change any more is kept from look to look; of the segment that is being written only new records are read.

Not here: which of several copies is read (``stream_plan``), decoding (``decode``).
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError, DiskFailed, JournalCorrupt, WrongNode
from understudy.kernel.log.records import SHORT
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import Disk, File
from understudy.spark.journal.blocks import scan_records
from understudy.spark.journal.log_plan import Layout, Piece, read_small_state, snapshot_links
from understudy.spark.journal.names import Names, note_names, piece_bindings
from understudy.store.log.chain import Chain, Link, read_chain
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.records import ACKNOWLEDGE_HEADER_BYTES, HEADER, HEADER_BYTES, SEAL_TRAILER, RecordType
from understudy.store.log.segment import HEADER_BLOCK_BYTES, SegmentHeader, parse_name, read_header, read_seal, seed_of
from understudy.store.quarantine import read_known_damage
from understudy.store.replication.replica_state import ReplicaStatus, read_replica_state
from understudy.store.snapshots.snapshot import parse_snapshot_name, snapshot_names

#: Bytes of the segment that is being written that are read at a time.
_STEP_BYTES: Final = 1024 * 1024
#: A broker may remove segments while the directory is read; each attempt lists it anew.
_ATTEMPTS: Final = 5
_ENTRY_OF_READER: Final = b'"kind":"reader"'


@dataclass(slots=True)
class Extent:
    """Records of one segment."""

    piece: Piece
    """The piece with first and last sequence and the offset at which the last record ends."""
    proved: int = 0
    """Last sequence that is durable as far as the file itself proves it."""
    work: int = 0
    """Last sequence of a record that is neither a mark nor the position of a named reader."""
    offsets: Sequence[int] = ()
    """Rising offsets of the records, in a segment without a seal."""
    sequences: Sequence[int] = ()

    @property
    def last(self) -> int:
        """Sequence of the last record."""
        return self.piece.last_sequence


@dataclass(slots=True)
class _Growing:
    """A segment that is being written, as far as it was read."""

    header: SegmentHeader
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    sequences: array[int] = field(default_factory=lambda: array("Q"))
    end: int = HEADER_BLOCK_BYTES
    batch: int = 0
    work: int = 0


@dataclass(slots=True)
class LogView:
    """The log of one directory at one time."""

    directory: str
    node_id: str
    epoch: int
    """Newest epoch of the log."""
    extents: list[Extent]
    """Segments with records, in the order of the log; records may be missing between two."""

    @property
    def last(self) -> int:
        """Last valid sequence; 0 for an empty log."""
        return self.extents[-1].last if self.extents else 0

    @property
    def proved(self) -> int:
        """Last sequence that is durable as far as the files prove it."""
        if not self.extents:
            return 0
        last = self.extents[-1]
        if last.piece.epoch < self.epoch:
            return last.last
        if last.piece.digest is not None:
            # a seal is no batch, so the fence was not asked for it
            return last.last - 1
        if last.proved >= last.piece.first_sequence or len(self.extents) == 1:
            return last.proved
        before = self.extents[-2]
        return before.last - (before.piece.epoch == self.epoch)

    @property
    def earliest(self) -> int:
        """Last sequence before the records that are complete up to the end."""
        found = 0
        after = None
        for extent in reversed(self.extents):
            if after is not None and extent.last + 1 != after:
                break
            after = extent.piece.first_sequence
            found = after - 1
        return found

    def extent_of(self, sequence: int) -> Extent | None:
        """The segment with a record; None if it is not here."""
        at = bisect_right(self.extents, sequence, key=lambda extent: extent.piece.first_sequence) - 1
        return self.extents[at] if at >= 0 and sequence <= self.extents[at].last else None

    def epoch_of(self, sequence: int) -> int:
        """Epoch of a record; 0 if it is not here."""
        found = self.extent_of(sequence)
        return found.piece.epoch if found is not None else 0

    def between(self, after: int, until: int) -> Iterator[Piece]:
        """The pieces with the records above one sequence and up to another.

        Raises:
            JournalCorrupt: records are missing between two segments.
        """
        wanted = after + 1
        before: Piece | None = None
        for extent in self.extents:
            piece = extent.piece
            if extent.last < wanted:
                before = piece
                continue
            if wanted > until:
                return
            if piece.first_sequence > wanted:
                where = f"between {before.name} and this one" if before is not None else "before this one"
                raise JournalCorrupt(
                    f"the records {wanted} to {piece.first_sequence - 1} are missing: no segment {where}",
                    file=piece.path,
                    offset=HEADER_BLOCK_BYTES,
                )
            yield replace(piece, after=after, until=min(until, extent.last))
            wanted = extent.last + 1
            before = piece

    def limited(self, after: int, until: int, bytes_max: int) -> int:
        """Last sequence up to ``until`` with about so many bytes of records above ``after``; at least one record."""
        left = bytes_max
        reached = after
        for piece in self.between(after, until):
            extent = self.extent_of(piece.until)
            assert extent is not None
            offsets, sequences = _offsets_of(extent)
            first = bisect_right(sequences, after)
            last = bisect_right(sequences, until)
            if first >= last:
                continue
            begin = offsets[first]
            if extent.piece.end - begin <= left and last == len(sequences):
                left -= extent.piece.end - begin
                reached = piece.until
                continue
            at = bisect_right(offsets, begin + left, first, last)
            if at > first:
                reached = sequences[at - 1]
            elif reached == after:
                reached = sequences[first]
            if at < last:
                return reached
            left -= offsets[last - 1] - begin
        return reached


def _offsets_of(extent: Extent) -> tuple[Sequence[int], Sequence[int]]:
    """Offsets and sequences of all records."""
    piece = extent.piece
    if extent.offsets:
        return extent.offsets, extent.sequences
    # nothing is set aside in a segment with a valid digest, so that sequences follow each other
    count = piece.last_sequence - piece.first_sequence + 1
    with open(piece.path, "rb") as file:
        file.seek(-SEAL_TRAILER.size, os.SEEK_END)
        file.seek(SEAL_TRAILER.unpack(file.read(SEAL_TRAILER.size))[0])
        return _seal_offsets(file.read(), count), range(piece.first_sequence, piece.last_sequence + 1)


def _seal_offsets(seal: bytes, count: int) -> array[int]:
    found = array("I")
    found.frombytes(seal[80 : 80 + 4 * count])
    return found


class LogDirectory:
    """A directory that is read repeatedly."""

    def __init__(self, disk: Disk, directory: str, layout: Layout, retention: str | None) -> None:
        """
        Args:
            disk: Where it is; only read.
            directory: Absolute path.
            retention: Where segments are that have left the log; None if they are not read.
        """
        self._disk = disk
        self.directory = directory
        self._layout = layout
        self._retention = retention
        self._ended: dict[tuple[str, int], Extent] = {}
        """Segments that do not change any more, by path and inode."""
        self._growing: dict[tuple[str, int], _Growing] = {}
        self._bindings: dict[tuple[str, int], list[object]] = {}
        """Binding records of segments in ``_ended``."""

    def look(self) -> LogView:
        """Read the present state of the log.

        Raises:
            ConfigError: the directory cannot be read, or has no journal.
            WrongNode: segments of two nodes.
            StoreVersionUnsupported: written by a newer Understudy.
            JournalCorrupt: damaged; names file and offset.
            DiskFailed: it is an incomplete copy, or changes too fast.
        """
        for _ in range(_ATTEMPTS):
            try:
                return self._look()
            except FileNotFoundError:
                # the segment was trimmed, or moved to the retention directory, meanwhile
                continue
            except JournalCorrupt as error:
                if os.path.exists(error.file):
                    raise
                # trimmed while it was read, and a later segment is made of the file
        raise DiskFailed(f"{self.directory}: segments disappear while they are read")

    def _look(self) -> LogView:
        names = self._names(self.directory)
        if self._layout is Layout.RETENTION:
            extents = self._retained(self.directory, names, ())
            return _view(self.directory, max((each.piece.epoch for each in extents), default=0), extents)
        if read_replica_state(self._disk, self.directory).status is ReplicaStatus.INCOMPLETE:
            raise DiskFailed(f"{self.directory} is an incomplete copy of another node's store")
        chain = read_chain(self._disk, self.directory, names)
        if not chain.links:
            raise ConfigError(f"{self.directory} holds no journal: no file is named segment-*.log")
        links = [*self._older_links(chain, names), *chain.links]
        extents = [found for link in links if (found := self._extent(self.directory, link, chain.epoch)) is not None]
        if self._retention is not None:
            present = {(each.piece.number, each.piece.epoch) for each in extents}
            retained = self._retained(self._retention, self._names(self._retention), present)
            numbers = {each.piece.number for each in extents}
            extents += [each for each in retained if each.piece.number not in numbers]
        return _view(self.directory, chain.epoch, extents)

    def _names(self, directory: str) -> list[str]:
        try:
            return os.listdir(directory)
        except OSError as error:
            raise ConfigError(f"{directory} cannot be read: {error.strerror}") from error

    def _older_links(self, chain: Chain, names: list[str]) -> list[Link]:
        """Segments of older epochs, listed by a snapshot, where the first segment of the newest epoch is gone."""
        if not chain.trimmed:
            return []
        for name in snapshot_names(names):
            parsed = parse_snapshot_name(name)
            if parsed is not None and parsed[0] == chain.epoch:
                try:
                    links = snapshot_links(self._disk, self.directory, name)
                except JournalCorrupt:
                    continue
                return [link for link in links if link.epoch < chain.epoch]
        return []

    def _retained(self, directory: str, names: list[str], present: set[tuple[int, int]] | tuple[()]) -> list[Extent]:
        parsed = sorted(pair[:2] for pair in map(parse_name, names) if pair is not None and pair[2])
        links = [Link(number, epoch, None) for number, epoch in parsed if (number, epoch) not in present]
        return [found for link in links if (found := self._extent(directory, link, -1)) is not None]

    def _extent(self, directory: str, link: Link, newest: int) -> Extent | None:
        """The records of a segment; None if it has none."""
        path = f"{directory}/{link.name}"
        file = self._disk.open(path, read_only=True)
        try:
            key = (path, os.stat(path).st_ino)
            extent: Extent | None
            ended = self._ended.get(key)
            if ended is not None and link.end in (None, ended.piece.end):
                return ended
            header = read_header(file, link.number, link.epoch)
            size = file.size()
            found = read_seal(file, header) if link.end in (None, size) else None
            if found is not None:
                self._growing.pop(key, None)
                extent = self._sealed(directory, header, size, found[1].first_sequence, found[1])
            elif link.end is None and link.epoch == newest:
                return self._grown(directory, file, key, header)
            else:
                extent = self._walked(directory, file, header, link)
                if extent is None:
                    return None
            self._ended[key] = extent
            return extent
        finally:
            file.close()

    def _piece(self, directory: str, header: SegmentHeader, end: int, first: int, last: int) -> Piece:
        # times are those of the header: a seal that came later must not change rows of a repeated batch
        return Piece(
            directory, str(header.node_id), header.number, header.epoch, end, first, last, None, header.created_ms,
            stated=True,
        )  # fmt: skip

    def _sealed(self, directory: str, header: SegmentHeader, size: int, first: int, seal: object) -> Extent:
        last = seal.last_sequence + 1  # type: ignore[attr-defined]
        piece = replace(self._piece(directory, header, size, first, last), digest=seal.digest)  # type: ignore[attr-defined]
        return Extent(piece, last, last)

    def _walked(self, directory: str, file: File, header: SegmentHeader, link: Link) -> Extent | None:
        """A segment without a seal that has ended."""
        known = partial(read_known_damage(self._disk, directory).length_at, link.number, link.epoch)
        offsets, sequences = array("Q"), array("Q")
        end = HEADER_BLOCK_BYTES
        for frame, _ in read_frames(file, seed_of(link.number, link.epoch), link.end, known):
            offsets.append(frame.offset)
            sequences.append(frame.sequence)
            end = frame.offset + frame.length
        if not sequences:
            return None
        if link.end is not None and end != link.end:
            raise JournalCorrupt(f"record {sequences[-1] + 1} is damaged or missing", file=file.path, offset=end)
        piece = self._piece(directory, header, end, sequences[0], sequences[-1])
        return Extent(piece, sequences[-1], sequences[-1], offsets, sequences)

    def _grown(self, directory: str, file: File, key: tuple[str, int], header: SegmentHeader) -> Extent | None:
        """The segment that is being written, or one that waits to be."""
        growing = self._growing.get(key)
        if growing is None:
            growing = self._growing[key] = _Growing(header)
        self._read_on(file, growing)
        if not growing.sequences:
            return None
        offsets, sequences = growing.offsets, growing.sequences
        piece = self._piece(directory, header, growing.end, sequences[0], sequences[-1])
        proved = bisect_right(offsets, growing.batch - 1)
        return Extent(piece, sequences[proved - 1] if proved else sequences[0] - 1, growing.work, offsets, sequences)

    def _read_on(self, file: File, growing: _Growing) -> None:
        seed = seed_of(growing.header.number, growing.header.epoch)
        want = _STEP_BYTES
        while True:
            head = file.read(growing.end, HEADER_BYTES)
            if len(head) < HEADER_BYTES or not head.strip(b"\0"):
                return
            data = file.read(growing.end, want)
            last = growing.sequences[-1] if growing.sequences else 0
            positions, used, _, stop = scan_records(data, growing.end, seed, last)
            if not positions:
                needed = HEADER.unpack(head)[1]
                if stop == SHORT and want < needed <= RECORD_BYTES_MAX:
                    want = needed
                    continue
                # not written completely yet
                return
            for position in positions:
                _, length, sequence, batch, kind, *_ = HEADER.unpack_from(data, position)
                growing.offsets.append(growing.end + position)
                growing.sequences.append(sequence)
                if not _is_of_stream(kind, length, data, position):
                    growing.work = sequence
            growing.batch = batch
            growing.end += used
            want = _STEP_BYTES

    # --- names ------------------------------------------------------------------------------------

    def names(self, view: LogView) -> Names:
        """Names of addresses and queues by id that the log has."""
        found = Names()
        if self._layout is Layout.STORE:
            for name in snapshot_names(self._names(self.directory)):
                try:
                    state = read_small_state(self._disk, self.directory, name)
                except (JournalCorrupt, FileNotFoundError):
                    continue
                for records in (state.addresses, state.queues):
                    for record in records.values():
                        note_names(found, record)
                break
        for extent in view.extents:
            key = (extent.piece.path, extent.piece.end)
            records_of = self._bindings.get(key)
            if records_of is None:
                records_of = piece_bindings(self._disk, extent.piece)
                if extent.piece.epoch < view.epoch or extent.piece.digest is not None:
                    self._bindings[key] = records_of
            for each in records_of:
                note_names(found, each)
        return found


def _view(directory: str, epoch: int, extents: list[Extent]) -> LogView:
    """A view of segments, which end before the next one begins: records after that were not part of the log."""
    extents = sorted(extents, key=lambda extent: extent.piece.number)
    ordered: list[Extent] = []
    for extent in extents:
        if ordered and extent.piece.node_id != ordered[-1].piece.node_id:
            before = ordered[-1].piece
            raise WrongNode(
                f"{before.path} belongs to node {before.node_id}, {extent.piece.path} to node {extent.piece.node_id}"
            )
        if ordered and ordered[-1].last >= extent.piece.first_sequence:
            before = ordered[-1].piece
            limit = extent.piece.first_sequence - 1
            if limit < before.first_sequence:
                ordered.pop()
            else:
                ordered[-1] = Extent(
                    replace(before, last_sequence=limit), limit, limit, ordered[-1].offsets, ordered[-1].sequences
                )
        ordered.append(extent)
    return LogView(directory, ordered[0].piece.node_id if ordered else "", epoch, ordered)


def _is_of_stream(kind: int, length: int, data: bytes, position: int) -> bool:
    """Whether the record is a mark or about a named reader; a commit of the stream itself is one."""
    if kind == RecordType.ACKNOWLEDGE:
        return length == ACKNOWLEDGE_HEADER_BYTES
    return kind == RecordType.SETTING and _ENTRY_OF_READER in data[position : position + length]
