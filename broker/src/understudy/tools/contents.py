"""Live contents of a copy of a log, and the part of them that another copy does not have.

Two copies that went different ways give out the same message ids for different messages, because
ids rise with the epoch and both began the same next one. So nothing here compares ids after the
split: what one side added or committed after it belongs to that side.

Not here: where two copies split (``tools.compare``); how messages are written to a file (``tools.export``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt
from understudy.limits import ID_CACHE_SIZE, RECORD_BYTES_MAX
from understudy.ports import File
from understudy.store.log.chain import Link
from understudy.store.log.reading.replay import Cursor, Stop, read_frame, replay
from understudy.store.log.records import (
    HEADER,
    HEADER_BYTES,
    MESSAGE_LARGE,
    AddressRecord,
    CommitRecord,
    MessageRecord,
    QueueRecord,
    RecordType,
    decode,
    decode_message,
)
from understudy.store.log.segment import seed_of
from understudy.store.messages.reference import Location, MessageReference, pack_location, unpack_location
from understudy.store.snapshots.snapshot import SnapshotLoader
from understudy.store.state import StoreState
from understudy.tools.log_copy import Entry, LogCopy

_READ_BYTES: Final = 4 * 1024 * 1024
#: Duplicate ids looked at per address, as nothing here says how many the broker remembers.
_DUPLICATE_IDS_MAX: Final = 10 * ID_CACHE_SIZE

Reference = tuple[int, int]
"""Queue id and message id."""


@dataclass(frozen=True, slots=True)
class Split:
    """Sequence from which a copy of a log differs: all later records are in that copy only."""

    sequence: int
    location: int
    """Smallest location (``reference``) of a record after the split in this copy."""


@dataclass(slots=True)
class Contents:
    """State of a log at its end."""

    state: StoreState
    open_at: dict[int, dict[int, frozenset[Reference]]] = field(default_factory=dict)
    """Additions of the transactions that were open at a split, by sequence of the split and by transaction."""

    @property
    def prepared(self) -> int:
        """Transactions that wait for their outcome; their messages are not live."""
        return sum(transaction.prepared for transaction in self.state.transactions.values())


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """A message in a queue, with where it comes from."""

    queue: QueueRecord
    address: AddressRecord | None
    reference: MessageReference
    epoch: int
    sequence: int
    record: MessageRecord

    @property
    def large(self) -> bool:
        """Whether the log has only the head of it."""
        return bool(self.record.flags & MESSAGE_LARGE)


def read_contents(copy: LogCopy, split_sequences: Sequence[int] = ()) -> Contents:
    """Replay a copy to its end.

    Args:
        copy: Damage that is met ends it there.
        split_sequences: Where to note the open transactions on the way.
    """
    contents = Contents(StoreState(_DUPLICATE_IDS_MAX))
    contents.state.origins = {}
    sequence = _load_base(copy, contents.state)
    splits = sorted({sequence for sequence in split_sequences if copy.extents}, reverse=True)
    index = 0
    while index < len(copy.extents):
        extent = copy.extents[index]
        index += 1
        path = f"{copy.directory}/{extent.name}"
        cursor = Cursor(path, extent.number, extent.epoch, seed_of(extent.number, extent.epoch), sequence=sequence)
        passed_at = copy.passed_at(extent.number, extent.epoch)
        file = copy.disk.open(path, read_only=True)
        try:
            while splits and splits[-1] <= extent.last_sequence:
                wanted = splits.pop()
                if wanted > extent.first_sequence:
                    stop_at = _offset_of(copy, wanted)
                    if stop_at is None or not _replay_to(contents.state, cursor, file, stop_at, passed_at):
                        break
                contents.open_at[wanted] = _open_transactions(contents.state)
            whole = _replay_to(contents.state, cursor, file, extent.end, passed_at)
        finally:
            file.close()
        if not whole:
            copy.damaged_at(extent, cursor.offset, cursor.sequence + 1 if cursor.sequence else extent.first_sequence)
            break
        sequence = cursor.sequence
    for wanted in splits:
        # at or after the end
        contents.open_at[wanted] = _open_transactions(contents.state)
    return contents


def _load_base(copy: LogCopy, state: StoreState) -> int:
    """State in the snapshot with which the copy begins, and the sequence up to which it stands, 0 for none."""
    if copy.base is None:
        return 0
    file = copy.disk.open(f"{copy.directory}/{copy.base.name}", read_only=True)
    try:
        loader = SnapshotLoader(file, copy.base, state)
        while loader.reader.end is None:
            loader.step(_READ_BYTES)
    finally:
        file.close()
    return copy.base.sequence


def _open_transactions(state: StoreState) -> dict[int, frozenset[Reference]]:
    return {tx_id: frozenset(transaction.added_ids) for tx_id, transaction in state.transactions.items()}


def _offset_of(copy: LogCopy, sequence: int) -> int | None:
    for entry in copy.read(sequence, sequence):
        return entry.frame.offset
    return None


def _replay_to(state: StoreState, cursor: Cursor, file: File, end: int, passed_at: Callable[[int], int]) -> bool:
    """Apply the records up to an offset; False if one cannot be read.

    Args:
        passed_at: Length of a record that was set aside, by its offset; 0 for none.
    """
    want = _READ_BYTES
    while cursor.offset < end:
        data = file.read(cursor.offset, min(want, end - cursor.offset))
        before = cursor.offset
        try:
            stop = replay(state, cursor, data)
        except JournalCorrupt:
            return False
        if cursor.offset > before:
            want = _READ_BYTES
            continue
        passed = passed_at(cursor.offset)
        if passed:
            cursor.offset += passed
            if cursor.sequence:
                cursor.sequence = state.sequence = cursor.sequence + 1
            continue
        needed_bytes = HEADER.unpack_from(data)[1] if len(data) >= HEADER_BYTES else 0
        if stop is not Stop.SHORT or not want < needed_bytes <= RECORD_BYTES_MAX:
            return False
        want = needed_bytes
    return cursor.offset == end


def beginning_is_missing(copy: LogCopy, contents: Contents) -> bool:
    """Whether the log begins later than anything in it gives up (docs/build/journal-format.md s. 3)."""
    return copy.base is None and copy.first_sequence > max(contents.state.trimmed_to, 1)


# --- what one copy has and another does not -----------------------------------------------------


@dataclass(slots=True)
class Tally:
    """Number of records of one side after the split, by kind."""

    records: int = 0
    messages: int = 0
    """Messages added, in a transaction or not."""
    acknowledgements: int = 0
    """Messages acknowledged, once per queue."""
    commits: int = 0
    rollbacks: int = 0
    prepares: int = 0
    committed: set[int] = field(default_factory=set)
    """Transactions that were open at the split and are committed after it."""


def tally(copy: LogCopy, first: int, open_at_split: frozenset[int] = frozenset()) -> Tally:
    """Count the records of a copy from a sequence on."""
    counts = Tally()
    for entry in copy.read(max(first, copy.first_sequence), copy.last_sequence):
        counts.records += 1
        kind = entry.frame.kind
        if kind == RecordType.MESSAGE_ADD:
            counts.messages += 1
        elif kind == RecordType.ACKNOWLEDGE:
            counts.acknowledgements += int.from_bytes(entry.raw[40:44], "little")
        elif kind == RecordType.TX_PREPARE:
            counts.prepares += 1
        elif kind == RecordType.TX_ROLLBACK:
            counts.rollbacks += 1
        elif kind == RecordType.TX_COMMIT:
            counts.commits += 1
            record = _decode(copy, entry)
            if isinstance(record, CommitRecord) and record.tx_id in open_at_split:
                counts.committed.add(record.tx_id)
    return counts


def _decode(copy: LogCopy, entry: Entry) -> object:
    try:
        return decode(entry.frame.kind, entry.frame.flags, entry.raw[HEADER_BYTES:])
    except ValueError as error:
        path = f"{copy.directory}/{copy.extent_of(entry.sequence).name}"
        raise JournalCorrupt(str(error), file=path, offset=entry.frame.offset) from error


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Another copy of a store whose log split from this one."""

    split: Split
    """The split that is looked at."""
    uncommitted: frozenset[Reference]
    """Messages added by transactions that were open at the split, unless the other side committed them."""
    other: StoreState
    """State at the end of the other copy."""
    origins: Mapping[int, Location]
    """Locations that the messages of the examined copy had before the consolidator copied them."""

    def common(self, queue_id: int, reference: MessageReference) -> bool:
        """Whether the other copy has, or had, this message in this queue too."""
        return self.had(reference) and (queue_id, reference.message_id) not in self.uncommitted

    def had(self, reference: MessageReference) -> bool:
        """Whether the message was added before the split, even if its record has been copied to a later place."""
        location = self.origins.get(reference.message_id, reference.location)
        return location is not None and location < self.split.location

    def lives_there(self, queue_id: int, message_id: int) -> bool:
        """Whether a common message is still in the queue on the other side."""
        return self.other.live.is_live(queue_id, message_id)


def live_messages(copy: LogCopy, contents: Contents, counterparts: Sequence[Counterpart] = ()) -> Iterator[LiveMessage]:
    """Messages in the queues of a copy, queue by queue, by priority and then in order; with counterparts only those
    that none of them ever had.

    Raises:
        JournalCorrupt: a message cannot be read back.
    """
    state = contents.state
    known = [_DuplicateIds(counterpart) for counterpart in counterparts]
    with_file = _Reader(copy)
    try:
        for queue_id, references in state.references.items():
            queue = state.queues.get(queue_id)
            if queue is None:
                continue
            address = state.addresses.get(queue.address_id)
            for reference in references.references():
                if any(counterpart.common(queue_id, reference) for counterpart in counterparts):
                    continue
                epoch, sequence, record = with_file.message(reference)
                if record.duplicate_id and any(ids.has(state, record.address_id, record.duplicate_id) for ids in known):
                    continue
                yield LiveMessage(queue, address, reference, epoch, sequence, record)
    finally:
        with_file.close()


def prepared_messages(
    copy: LogCopy, contents: Contents, transaction_id: int, counterparts: Sequence[Counterpart] = ()
) -> Iterator[LiveMessage]:
    """Messages that a prepared transaction would add, in order. With counterparts only those added after
    the split: the rest, and with it the question of its outcome, the other side has as well.

    Raises:
        JournalCorrupt: a message cannot be read back.
    """
    state = contents.state
    with_file = _Reader(copy)
    try:
        for queue_id, reference in state.transactions[transaction_id].adds:
            queue = state.queues.get(queue_id)
            if queue is None or any(other.had(reference) for other in counterparts):
                continue
            epoch, sequence, record = with_file.message(reference)
            yield LiveMessage(queue, state.addresses.get(queue.address_id), reference, epoch, sequence, record)
    finally:
        with_file.close()


class _DuplicateIds:
    """The duplicate ids of a counterpart by address name, as sets."""

    def __init__(self, counterpart: Counterpart) -> None:
        self._by_name: dict[str, set[bytes]] = {}
        for address_id, record in counterpart.other.addresses.items():
            ids = counterpart.other.duplicate_ids.get(address_id)
            if ids:
                self._by_name.setdefault(record.name, set()).update(ids)

    def has(self, state: StoreState, address_id: int, duplicate_id: bytes) -> bool:
        address = state.addresses.get(address_id)
        return address is not None and duplicate_id in self._by_name.get(address.name, ())


class _Reader:
    """Reads messages back by their location; neighbours from one open file."""

    def __init__(self, copy: LogCopy) -> None:
        self._copy = copy
        self._segments = {link.number: link for link in copy.older}
        self._segments |= {extent.number: Link(extent.number, extent.epoch, extent.end) for extent in copy.extents}
        self._file: File | None = None
        self._number = -1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def message(self, reference: MessageReference) -> tuple[int, int, MessageRecord]:
        assert reference.location is not None, "everything in a log has its location"
        number, offset, length = unpack_location(reference.location)
        segment = self._segments[number]
        path = f"{self._copy.directory}/{segment.name}"
        if self._file is None or number != self._number:
            self.close()
            self._file = self._copy.disk.open(path, read_only=True)
            self._number = number
        raw = self._file.read(offset, length)
        frame = read_frame(raw, 0, offset, seed_of(number, segment.epoch))
        if frame is not None:
            try:
                if frame.kind in (RecordType.MESSAGE_ADD, RecordType.MESSAGE_MOVE):
                    # a moved message is written as it was added
                    return segment.epoch, frame.sequence, decode_message(raw[HEADER_BYTES:])
            except ValueError as error:
                raise JournalCorrupt(str(error), file=path, offset=offset) from error
        raise JournalCorrupt("message is damaged", file=path, offset=offset)


def split_at(copy: LogCopy, sequence: int) -> Split:
    """The split of a copy before the record of a sequence, which may be its end."""
    for entry in copy.read(sequence, sequence):
        return Split(sequence, pack_location(entry.number, entry.frame.offset, 0))
    end = copy.extents[-1] if copy.extents else None
    return Split(sequence, pack_location(end.number, end.end, 0) if end is not None else 0)
