"""Which segments form the log, and in what order (docs/build/journal-format.md s. 3).

The newest epoch decides: its first record says where every older segment ends. Everything else
in the directory was cut off or written by a zombie and is no part of the log.

Not here: reading the records of the segments, or waiting for more.
"""

from __future__ import annotations

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, WrongNode
from understudy.ids import NodeId, uuid_text
from understudy.limits import RECORD_BYTES_MAX
from understudy.ports import DiskReader, FileReader
from understudy.store.log.reading.replay import read_frame
from understudy.store.log.records import HEADER, HEADER_BYTES, EpochRecord, decode
from understudy.store.log.segment import (
    HEADER_BLOCK_BYTES,
    SegmentHeader,
    parse_name,
    read_header,
    seed_of,
    segment_name,
)


@dataclass(frozen=True, slots=True)
class Link:
    """One segment of the log with its place in the order of segments."""

    number: int
    epoch: int
    end: int | None
    """Offset at which the log ends in the segment; None in the newest epoch, where the records show the end."""

    @property
    def name(self) -> str:
        """File name of the segment."""
        return segment_name(self.number, self.epoch)


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The beginning of an epoch, as its EPOCH record has it. Two nodes that begin an epoch of the same number differ in
    the other fields.
    """

    epoch: int
    previous: int
    """Epoch of the record before; 0 for none."""
    activated_ms: int
    """Wall time of the activation, epoch milliseconds."""
    sequence: int
    """Sequence of the EPOCH record."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The log as the newest epoch describes it."""

    epoch: int
    """Newest epoch of the segments; 0 if there is no segment."""
    links: tuple[Link, ...]
    node_id: NodeId | None
    trimmed: bool
    """The beginning of the newest epoch itself is gone."""
    missing: tuple[Link, ...] = ()
    """Segments that a record of the log names and whose files are absent."""

    @property
    def hole(self) -> Link | None:
        """The first missing segment after a present one: only a snapshot can explain it."""
        first = self.links[0].number if self.links else 0
        return next((link for link in self.missing if link.number > first), None)


def newest_epoch(names: list[str]) -> int:
    """Highest epoch of any segment, complete or being made; 0 for none."""
    return max((parsed[1] for parsed in map(parse_name, names) if parsed is not None), default=0)


def highest_number(names: list[str]) -> int:
    """Highest number of any segment, complete or being made; 0 for none."""
    return max((parsed[0] for parsed in map(parse_name, names) if parsed is not None), default=0)


def read_chain(disk: DiskReader, directory: str, names: list[str], node_id: NodeId | None = None) -> Chain:
    """The chain of segments that the names of files in the log directory make up.

    Args:
        disk: Where the store is.
        directory: Directory of the segments; only read.
        names: What the directory holds.
        node_id: Id of the node whose log it must be; None for any.

    Raises:
        JournalCorrupt: a header or the first record of the newest epoch is damaged.
        StoreVersionUnsupported: written by a newer Understudy.
        WrongNode: the log belongs to another node id.
        FileNotFoundError: a segment was removed meanwhile; look again.
    """
    complete = sorted((parsed[0], parsed[1]) for parsed in map(parse_name, names) if parsed is not None and parsed[2])
    if not complete:
        return Chain(0, (), None, False)
    epoch = max(pair[1] for pair in complete)
    own = [Link(number, epoch, None) for number, of_epoch in complete if of_epoch == epoch]
    path = f"{directory}/{own[0].name}"
    file = disk.open(path, read_only=True)
    try:
        header = read_header(file, own[0].number, epoch)
        _check_node(header, path, node_id)
        if not header.first_of_epoch:
            return Chain(epoch, tuple(own), header.node_id, True)
        record = _read_epoch(file, path, header)
    finally:
        file.close()
    present = set(complete)
    older = [Link(end.number, end.epoch, end.end) for end in record.ends]
    kept = [link for link in older if (link.number, link.epoch) in present]
    missing = [link for link in older if (link.number, link.epoch) not in present]
    return Chain(epoch, (*kept, *own), header.node_id, False, tuple(missing))


def _check_node(header: SegmentHeader, path: str, node_id: NodeId | None) -> None:
    if node_id is not None and header.node_id != node_id:
        raise WrongNode(
            f"{path} belongs to node {header.node_id}, not to {node_id}",
            hint="another broker's store is mounted here, or server.lock was replaced",
        )


def _read_epoch(file: FileReader, path: str, header: SegmentHeader) -> EpochRecord:
    """The first record of an epoch, read again past the cache if it is damaged."""
    try:
        return _read_epoch_once(file, path, header)
    except JournalCorrupt:
        file.forget_cached(HEADER_BLOCK_BYTES, RECORD_BYTES_MAX)
        return _read_epoch_once(file, path, header)


def _read_epoch_once(file: FileReader, path: str, header: SegmentHeader) -> EpochRecord:
    start = file.read(HEADER_BLOCK_BYTES, HEADER_BYTES)
    length = HEADER.unpack(start)[1] if len(start) == HEADER_BYTES else 0
    if length <= RECORD_BYTES_MAX:
        data = file.read(HEADER_BLOCK_BYTES, length)
        frame = read_frame(data, 0, HEADER_BLOCK_BYTES, seed_of(header.number, header.epoch))
        if frame is not None:
            record = decode(frame.kind, frame.flags, data[HEADER_BYTES : frame.length])
            if isinstance(record, EpochRecord) and record.epoch == header.epoch:
                if uuid_text(record.node_id) != header.node_id:
                    raise JournalCorrupt("header and first record name different nodes", file=path, offset=32)
                return record
    raise JournalCorrupt("the first record of the epoch is damaged", file=path, offset=HEADER_BLOCK_BYTES)
