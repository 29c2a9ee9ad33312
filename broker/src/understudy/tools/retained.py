"""Messages of segments that were kept when they left the log (``retention``), for sending them again.

A retention directory holds segments of which the log had no more need: each is whole, but bindings
may have been stated before the first of them, and the outcome of a transaction may lie after the
last. So a message names the address it was sent to, and a transaction counts when its commit is here.

Strictly read-only. Not here: the bodies of large messages (``large_messages``, files beside the segments),
sending.
"""

from __future__ import annotations

from collections.abc import Iterator

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt
from understudy.message import LargeBody, Message, large_body_of
from understudy.ports import Disk
from understudy.store.log.reading.replay import read_frames, unfinished_bytes
from understudy.store.log.records import (
    HEADER_BYTES,
    MESSAGE_LARGE,
    CommitRecord,
    MessageRecord,
    Record,
    RecordType,
    decode,
)
from understudy.store.log.segment import SegmentHeader, parse_name, read_header, seed_of, segment_name


@dataclass(slots=True)
class RetainedCounts:
    """Figures of one reading of retained segments."""

    segments: int = 0
    messages: int = 0
    """Messages that were added, whatever became of them."""
    without_outcome: int = 0
    """Number of messages left out because their transaction was not committed, or only after the last segment."""


@dataclass(frozen=True, slots=True)
class RetainedMessage:
    """A message with where it comes from."""

    header: SegmentHeader
    sequence: int
    record: MessageRecord

    @property
    def large(self) -> LargeBody | None:
        """The file that has the body of a large message, and its expected contents; None for others.

        Raises:
            RemoteProtocolError: the log has a message that is none.
        """
        return large_body_of(self.record.encoded) if self.record.flags & MESSAGE_LARGE else None

    def decode(self) -> Message:
        """Decode the message, with the id 0; a large message has no body.

        Raises:
            RemoteProtocolError: the log has a message that is none.
        """
        return Message.decode(self.record.encoded, trusted=True).replace()


def retained_messages(disk: Disk, directory: str, counts: RetainedCounts) -> Iterator[RetainedMessage]:
    """Every message that was added and, in a transaction, committed; in the order of the log.

    Args:
        disk: Where they are; only read.
        directory: Directory with segments.
        counts: Counted anew on the way.

    Raises:
        JournalCorrupt: a segment is damaged before its end.
        StoreVersionUnsupported, DiskFailed: it cannot be read.
    """
    pairs = sorted(parsed[:2] for parsed in map(parse_name, disk.list(directory)) if parsed is not None and parsed[2])
    committed: set[int] = set()
    for _, _, record in _records(disk, directory, pairs, RecordType.TX_COMMIT):
        assert isinstance(record, CommitRecord), "its type says so"
        committed.add(record.tx_id)
    counts.segments = len(pairs)
    counts.messages = counts.without_outcome = 0
    for header, sequence, record in _records(disk, directory, pairs, RecordType.MESSAGE_ADD):
        assert isinstance(record, MessageRecord), "its type says so"
        counts.messages += 1
        if record.tx_id and record.tx_id not in committed:
            counts.without_outcome += 1
        else:
            yield RetainedMessage(header, sequence, record)


def _records(
    disk: Disk, directory: str, pairs: list[tuple[int, int]], wanted: RecordType
) -> Iterator[tuple[SegmentHeader, int, Record]]:
    for number, epoch in pairs:
        path = f"{directory}/{segment_name(number, epoch)}"
        file = disk.open(path, read_only=True)
        try:
            header = read_header(file, number, epoch)
            end = sequence = 0
            seed = seed_of(number, epoch)
            for frame, raw in read_frames(file, seed):
                end, sequence = frame.offset + frame.length, frame.sequence
                if frame.kind != wanted:
                    continue
                try:
                    record = decode(frame.kind, frame.flags, raw[HEADER_BYTES:])
                except ValueError as error:
                    raise JournalCorrupt(str(error), file=path, offset=frame.offset) from error
                yield header, frame.sequence, record
            rest = file.read(end, max(file.size() - end, 0)) if end else b""
            if unfinished_bytes(rest, end, seed, above=sequence):
                raise JournalCorrupt("a record is damaged", file=path, offset=end)
        finally:
            file.close()
