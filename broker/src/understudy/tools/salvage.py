"""Salvaging a damaged store: everything that can still be read, and a list of the rest (ADR 0020).

The old store is only read. ``Salvage.read`` takes the newest whole snapshot, if there is one, and every valid
record after it, also those after damage; it lists each range that it had to pass over. ``Salvage.messages`` reads
the messages that live then.

What a lost record said is unknown. Where that matters messages are kept rather than lost: a message whose
acknowledgement is lost comes again; the messages of a transaction that was open where something is lost, and
has no outcome, are kept, and the messages that it acknowledged stay; a message of a queue that is not described any
more goes to a queue ``recovered.<queue id>``.

With another copy of the store, damaged and missing bytes are read from it instead (``other_copy``), and messages that
the quarantine has set aside come back at the end of their queue. Everything that is listed as lost then is in neither
copy.

Not here: the new store (``salvaged_store``), the command (``cli.data.salvage``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, LargeMessageFailed, RemoteProtocolError, StoreError
from understudy.ids import NodeId
from understudy.limits import RECORD_BYTES_MAX
from understudy.message import LargeBody, Message, large_body_of
from understudy.ports import DiskReader
from understudy.store.log.chain import Link, highest_number, newest_epoch, read_chain
from understudy.store.log.reading.damage import CONSEQUENCES, DamagedRecord, find_passage
from understudy.store.log.reading.replay import (
    Cursor,
    Stop,
    find_next_record,
    read_frame,
    replay,
    unfinished_bytes,
)
from understudy.store.log.records import (
    HEADER_BYTES,
    MESSAGE_LARGE,
    AddressRecord,
    MessageRecord,
    QueueRecord,
    RecordType,
    decode,
)
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, seed_of, segment_name
from understudy.store.messages.large_messages import LargeReader
from understudy.store.messages.reference import MessageReference, pack_location, reference_to, unpack_location
from understudy.store.quarantine import read_entries, read_known_damage
from understudy.store.queue_ids import QueueIds
from understudy.store.snapshots.snapshot import read_snapshot, snapshot_names
from understudy.store.state import StoreState
from understudy.tools.other_copy import OtherCopy, RestoringDisk

#: Duplicate ids are the broker's to limit (id-cache-size): none is left out here.
ID_CACHE_SIZE: Final = 1 << 31
#: What reading a message or a body raises if it is damaged or missing.
_UNREADABLE: Final = (StoreError, LargeMessageFailed, RemoteProtocolError, ValueError, FileNotFoundError)
#: Problems that are listed one by one.
LISTED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Lost:
    """Something of the old store that is not in the new one."""

    file: str
    offset: int
    bytes: int
    records: int | None
    """Records that are missing there; None when that is unknown."""
    what: str


@dataclass(slots=True)
class SalvageReport:
    """Counts of a salvage, done or planned."""

    directory: str
    node_id: str | None
    snapshot: str | None
    """The snapshot that reading began with."""
    segments: int = field(default=0, init=False)
    lost: list[Lost] = field(default_factory=list, init=False)
    """Lost messages and records, at most ``LISTED_MAX``."""
    lost_count: int = field(default=0, init=False)
    addresses: int = field(default=0, init=False)
    queues: int = field(default=0, init=False)
    messages: int = field(default=0, init=False)
    """Number of messages in queues, once for each queue; those of prepared transactions included."""
    prepared_transactions: int = field(default=0, init=False)
    messages_lost: int = field(default=0, init=False)
    """Messages known to be in a queue whose bytes cannot be read."""
    doubtful_transactions: int = field(default=0, init=False)
    """Transactions whose outcome may be lost; their messages are kept."""
    other: str | None = None
    """Directory of the other copy of the store; None if there is none."""
    restored: dict[str, int] = field(default_factory=dict, init=False)
    """Number of parts taken from the other copy, by kind: types of records that lay at the same place, ``segment``,
    ``header``, ``snapshot``, ``message`` (a record found by its message id), ``body``; and ``quarantined message``, a
    message that was set aside and is in its queue again."""

    def add(self, lost: Lost) -> None:
        """Add a lost message or record to the report."""
        self.lost_count += 1
        if len(self.lost) < LISTED_MAX:
            self.lost.append(lost)


class Salvage:
    """The readable part of one damaged store."""

    def __init__(self, disk: DiskReader, directory: str, large_directory: str, other: OtherCopy | None = None) -> None:
        """Nothing is read yet, but with another copy both are compared.

        Args:
            disk: Where the store is; only read.
            large_directory: Directory of the bodies of its large messages.
            other: Where damaged and missing bytes are taken from; None: from nowhere.

        Raises:
            WrongNode: the other copy is of another node.
            DiskFailed: a file cannot be read at all.
            StoreVersionUnsupported: written by a newer Understudy.
        """
        self._restoring = None if other is None else RestoringDisk(disk, directory, other)
        self._disk: DiskReader = disk if self._restoring is None else self._restoring
        self.directory = directory
        self.large_directory = large_directory
        self._taken: set[tuple[str, int]] = set()
        """Kind and id of messages and bodies taken from the other copy."""
        self._bodies_elsewhere: set[int] = set()
        """Ids of the files of bodies that are read from the other copy."""
        self._begin()

    def _begin(self) -> None:
        self._names = self._disk.list(self.directory)
        self.epoch, self.number = newest_epoch(self._names), highest_number(self._names)
        self._known = read_known_damage(self._disk, self.directory)
        self.state = StoreState(ID_CACHE_SIZE)
        self._sequence = 0
        """Sequence of the last record that was read."""
        self._missing: tuple[Link, ...] = ()
        """Older segments that the newest epoch lists and that do not exist."""
        self._doubtful: set[int] = set()
        self._node_id: NodeId | None = None
        self._returned: list[tuple[int, MessageReference, MessageRecord]] = []
        """Messages that were set aside, with their queues."""
        other = self._restoring.other.directory if self._restoring is not None else None
        self.report = SalvageReport(self.directory, None, None, other=other)

    def read(self) -> None:
        """Read everything but the bodies.

        Raises:
            DiskFailed: a file cannot be read at all.
            StoreVersionUnsupported: written by a newer Understudy.
        """
        begin = self._read_log()
        if self._restoring is not None and self.report.lost_count:
            offered = self._restoring.offered_segments(
                {link.name for link in self._missing}, above=self.state.trimmed_to, after=begin
            )
            if offered:
                self._restoring.take_segments(offered)
                self._begin()
                self._read_log()
        if self._restoring is not None:
            self.report.restored.update(self._restoring.restored)
        self._end_epoch()
        self._name_queues()
        self._return_quarantined()
        report, state = self.report, self.state
        report.node_id = self.node_id
        report.addresses, report.queues = len(state.addresses), len(state.queues)
        report.prepared_transactions = len(state.transactions)

    def _read_log(self) -> int:
        """Snapshot and records; the number of the segment of the snapshot, 0 for none."""
        begin = self._load_snapshot()
        links = [link for link in self._links() if link.number > begin]
        for index, link in enumerate(links):
            self._take_in(link, is_last=index == len(links) - 1)
        self._report_missing(links)
        return begin

    def _count(self, kind: str, thing_id: int) -> None:
        """Count something that was taken from the other copy, once."""
        if (kind, thing_id) not in self._taken:
            self._taken.add((kind, thing_id))
            self.report.restored[kind] = self.report.restored.get(kind, 0) + 1

    def _load_snapshot(self) -> int:
        """Begin with the newest whole one; the number of its segment, 0 for none."""
        for name in snapshot_names(self._names):
            file = self._disk.open(f"{self.directory}/{name}", read_only=True)
            try:
                header, state = read_snapshot(file, name)
            except JournalCorrupt as error:
                self.report.add(Lost(error.file, error.offset, 0, None, "a damaged snapshot; it is not needed"))
                continue
            finally:
                file.close()
            state.id_cache_size = ID_CACHE_SIZE
            self.state, self._sequence = state, header.sequence
            self.report.snapshot = name
            return header.number
        return 0

    def _links(self) -> list[Link]:
        """The segments of the log, in order; of a log whose newest epoch is damaged all there are of it."""
        names = [name for name in self._names if parse_name(name) is not None]
        newer: list[Link] = []
        while True:
            try:
                chain = read_chain(self._disk, self.directory, names)
            except JournalCorrupt as error:
                epoch = newest_epoch(names)
                self._lose(error.file, error.offset, 0, None, f"where epoch {epoch} begins; all its segments are read")
                parsed = [pair for pair in map(parse_name, names) if pair is not None]
                newer = [Link(pair[0], pair[1], None) for pair in parsed if pair[1] == epoch and pair[2]] + newer
                names = [name for name in names if (parse_name(name) or (0, 0))[1] != epoch]
                continue
            self._node_id = chain.node_id
            self._missing = chain.missing
            return [*chain.links, *newer]

    def _report_missing(self, links: list[Link]) -> None:
        """List the missing segments that no snapshot stands for and no TRIM record has given up."""
        if self.report.snapshot is not None:
            return
        if self.state.first_sequence <= self.state.trimmed_to:
            first = links[0].number if links else 0
            lost = [link for link in self._missing if link.number > first]
        else:
            lost = list(self._missing)
            if links and not lost:
                what = f"everything before sequence {self.state.first_sequence}: the segments before it are missing"
                self._lose(f"{self.directory}/{links[0].name}", 0, 0, None, what)
        for missing in lost:
            self._lose(f"{self.directory}/{missing.name}", 0, missing.end or 0, None, "a segment that is missing")

    def _lose(self, file: str, offset: int, size_bytes: int, records: int | None, what: str) -> None:
        self.report.add(Lost(file, offset, size_bytes, records, what))

    # --- records --------------------------------------------------------------------------------

    def _take_in(self, link: Link, *, is_last: bool) -> None:
        """The valid records of one segment."""
        path = f"{self.directory}/{link.name}"
        file = self._disk.open(path, read_only=True)
        try:
            end = link.end if link.end is not None else file.size()
            data = file.read(HEADER_BLOCK_BYTES, max(end - HEADER_BLOCK_BYTES, 0))
        finally:
            file.close()
        self.report.segments += 1
        if link.epoch > self.state.epoch and self.state.epoch:
            self._end_epoch()
        seed = seed_of(link.number, link.epoch)
        cursor = Cursor(path, link.number, link.epoch, seed, sequence=self._sequence)
        while True:
            try:
                stop = replay(self.state, cursor, data[cursor.offset - HEADER_BLOCK_BYTES :])
            except JournalCorrupt:
                stop = Stop.BAD
            self._sequence = max(self._sequence, cursor.sequence)
            rest = data[cursor.offset - HEADER_BLOCK_BYTES :]
            if stop in (Stop.ENDED, Stop.SEALED, Stop.CLOSED):
                return
            lost_bytes = len(rest.rstrip(b"\0"))
            if link.end is None:
                lost_bytes = unfinished_bytes(rest, cursor.offset, seed, above=self._sequence)
            if not lost_bytes:
                return
            following = find_next_record(rest, cursor.offset, seed, above=self._sequence)
            self._pass_over(cursor, rest, following.offset if following else None, lost_bytes, is_last)
            if following is None:
                return
            # the sequence of a valid record after damage is taken as the next one
            cursor.offset, cursor.sequence = following.offset, following.sequence - 1
            if link.number not in self.state.segments:
                self.state.begin_segment(link.number, link.epoch, following.sequence)

    def _pass_over(self, cursor: Cursor, rest: bytes, following: int | None, lost_bytes: int, is_last: bool) -> None:
        """Report records lost between the cursor and the next valid record."""
        self._doubtful.update(
            tx_id for tx_id, transaction in self.state.transactions.items() if not transaction.prepared
        )
        passage = find_passage(rest, cursor, self._known, lambda: None) if cursor.sequence else None
        if passage is not None and passage.following is not None and passage.following.offset == following:
            for record in passage.records:
                if self._put_back(record):
                    continue
                self._lose(cursor.path, record.offset, record.length, 1, _describe(record))
            return
        if following is None:
            what = "the end of the log: a batch that may never have been confirmed"
            if not is_last:
                what = "everything up to the end of the segment"
            self._lose(cursor.path, cursor.offset, lost_bytes, None, what)
            return
        found = read_frame(rest, following - cursor.offset, cursor.offset, cursor.seed)
        assert found is not None, "it was found valid before"
        missing = found.sequence - self._sequence - 1 if self._sequence else None
        self._lose(cursor.path, cursor.offset, following - cursor.offset, missing, "records of unknown extents")

    def _put_back(self, damaged: DamagedRecord) -> bool:
        """Put a message whose record is damaged in its queues, if the other copy has its record; whether it has."""
        restoring = self._restoring
        if restoring is None or damaged.kind != RecordType.MESSAGE_ADD.name or not damaged.message_id:
            return False
        if (damaged.number, damaged.epoch, damaged.offset) in restoring.dropped:
            return False
        found = restoring.other.find_record(damaged.message_id)
        if found is None:
            return False
        # the crc of the damaged record proves the bytes; the field of the transaction differs in a copied message
        begin, end = HEADER_BYTES + 8, HEADER_BYTES + 16
        raw = b"".join(
            (damaged.raw[:HEADER_BYTES], found[1][HEADER_BYTES:begin], damaged.raw[begin:end], found[1][end:])
        )
        frame = read_frame(raw, 0, damaged.offset, seed_of(damaged.number, damaged.epoch))
        if frame is None:
            return False
        record = decode(RecordType.MESSAGE_ADD, frame.flags, raw[HEADER_BYTES:])
        if damaged.number not in self.state.segments:
            self.state.begin_segment(damaged.number, damaged.epoch, damaged.sequence)
        place = pack_location(damaged.number, damaged.offset, damaged.length)
        self.state.apply(record, damaged.sequence, damaged.number, place)
        return True

    def _end_epoch(self) -> None:
        """End the open transactions; those whose outcome may be among the lost records are kept."""
        state = self.state
        for tx_id, transaction in list(state.transactions.items()):
            if transaction.prepared:
                continue
            if tx_id in self._doubtful:
                self.report.doubtful_transactions += 1
                transaction.acknowledges = QueueIds()
                state.commit(tx_id)
            else:
                state.roll_back(tx_id)
        self._doubtful.clear()

    def _name_queues(self) -> None:
        """Messages of queues that nothing describes any more get queues of their own."""
        if not self.report.lost_count:
            return
        state = self.state
        for queue_id, backlog in state.references.items():
            if not backlog or queue_id in state.queues:
                continue
            name = f"recovered.{queue_id}"
            state.addresses[queue_id] = AddressRecord(queue_id, name, (1,))
            state.queues[queue_id] = QueueRecord(queue_id, queue_id, name, 1, None)
            self._lose(self.directory, 0, 0, None, f"what queue {queue_id} is: its messages go to {name!r}")
        for queue in state.queues.values():
            if queue.address_id not in state.addresses:
                self._lose(self.directory, 0, 0, None, f"the address of queue {queue.name!r}: it gets one of its name")
                state.addresses[queue.address_id] = AddressRecord(queue.address_id, queue.name, (queue.routing_type,))

    def _return_quarantined(self) -> None:
        """Read the messages that were set aside; their queues have acknowledged them."""
        if self._restoring is None:
            return
        for kept in read_entries(self._disk, self.directory):
            entry = kept.entry
            if entry.dropped or entry.held or not (entry.durable and entry.queue_id and entry.message_id):
                continue
            backlog = self.state.references.get(entry.queue_id)
            if backlog and any(each.message_id == entry.message_id for each in backlog.references()):
                continue
            try:
                if entry.queue_id not in self.state.queues:
                    raise JournalCorrupt(f"there is no queue {entry.queue!r} any more", file=self.directory, offset=0)
                record = self._read_record(entry.segment, entry.epoch, entry.offset, entry.length, entry.message_id)
                self._check_body(record)
            except _UNREADABLE as error:
                what = f"message {entry.message_id} of {entry.queue!r}, in the quarantine: {error}"
                self._lose(entry.path or self.directory, entry.offset, entry.length, 1, what)
                self.report.messages_lost += 1
                continue
            file_id = large_body_of(record.encoded).file_id if record.flags & MESSAGE_LARGE else None
            reference = reference_to(
                file_id,
                record.message_id,
                record.priority,
                record.expiration,
                record.scheduled_ms,
                len(record.encoded),
                True,
                None,
            )
            self._returned.append((entry.queue_id, reference, record))
            self._count("quarantined message", record.message_id)
            self.report.messages += 1

    # --- messages -------------------------------------------------------------------------------

    def messages(self) -> Iterator[tuple[int, MessageReference, MessageRecord]]:
        """Queue id, reference and record of each message in a queue that can be read, queue by queue in order; then
        those that were set aside. Messages that cannot be
        read are listed in the report.
        """
        for queue_id, backlog in self.state.references.items():
            for reference in backlog.references():
                record = self.read_message(reference)
                if record is not None:
                    yield queue_id, reference, record
        yield from self._returned

    @property
    def returned_ids(self) -> frozenset[int]:
        """Ids of the messages that were in the quarantine, and that the other copy has."""
        return frozenset(record.message_id for _, _, record in self._returned)

    def count_messages(self) -> None:
        """Read every message, also those of prepared transactions, for the report alone."""
        for _ in self.messages():
            pass
        for transaction in self.state.transactions.values():
            for _, reference in transaction.adds:
                self.read_message(reference)

    @property
    def node_id(self) -> NodeId | None:
        """Node id of the store; None if no record names it."""
        return self.state.node_id or self._node_id

    def read_message(self, reference: MessageReference) -> MessageRecord | None:
        """The record of a message with its body checked; None when it is lost."""
        assert reference.location is not None, "everything in a log has its location"
        number, offset, length = unpack_location(reference.location)
        use = self.state.segments.get(number)
        epoch = use.epoch if use is not None else 0
        try:
            record = self._read_record(number, epoch, offset, length, reference.message_id, reference)
            self._check_body(record)
        except _UNREADABLE as error:
            path = f"{self.directory}/{segment_name(number, epoch)}"
            self.report.messages_lost += 1
            self.report.add(Lost(path, offset, length, 1, f"message {reference.message_id}: {error}"))
            return None
        self.report.messages += 1
        return record

    def _read_record(
        self,
        number: int,
        epoch: int,
        offset: int,
        length: int,
        message_id: int,
        reference: MessageReference | None = None,
    ) -> MessageRecord:
        """The record of a message: from its place in the log, or from anywhere in the other copy.

        A record of the other copy must have the priority and the expiration of the reference, if there is one.
        """
        path = f"{self.directory}/{segment_name(number, epoch)}"
        try:
            if not epoch:
                raise JournalCorrupt("the segment is not part of the log", file=path, offset=offset)
            record = self._decode(path, number, epoch, offset, length)
            if record.message_id != message_id:
                raise JournalCorrupt(f"it is message {record.message_id}", file=path, offset=offset)
        except _UNREADABLE:
            found = self._restoring.find_message(message_id) if self._restoring is not None else None
            if found is None:
                raise
            if reference is not None and (found.priority, found.expiration) != (
                reference.priority,
                reference.expiration,
            ):
                raise
            Message.decode(found.encoded, trusted=True)
            self._count("message", message_id)
            return found
        return record

    def _decode(self, path: str, number: int, epoch: int, offset: int, length: int) -> MessageRecord:
        file = self._disk.open(path, read_only=True)
        try:
            raw = file.read(offset, min(length, RECORD_BYTES_MAX))
        finally:
            file.close()
        frame = read_frame(raw, 0, offset, seed_of(number, epoch))
        if frame is None:
            raise JournalCorrupt("it is damaged", file=path, offset=offset)
        # a copy (MESSAGE_MOVE) has the same fields, with its source in the place of the transaction
        kind = RecordType.MESSAGE_ADD if frame.kind == RecordType.MESSAGE_MOVE else frame.kind
        record = decode(kind, frame.flags, raw[HEADER_BYTES : frame.length])
        if not isinstance(record, MessageRecord):
            raise JournalCorrupt("it is no message", file=path, offset=offset)
        Message.decode(record.encoded, trusted=True)
        return record

    def _check_body(self, record: MessageRecord) -> None:
        """Read the body of a large message; that of the other copy if it is not right here."""
        if not record.flags & MESSAGE_LARGE:
            return
        large = large_body_of(record.encoded)
        try:
            self.open_body(large).verify()
        except (StoreError, LargeMessageFailed, FileNotFoundError) as error:
            if self._restoring is None or large.file_id in self._bodies_elsewhere:
                raise
            self._bodies_elsewhere.add(large.file_id)
            try:
                self.open_body(large).verify()
            except (StoreError, LargeMessageFailed, FileNotFoundError):
                self._bodies_elsewhere.discard(large.file_id)
                raise error from None
            self._count("body", large.file_id)

    def open_body(self, large: LargeBody) -> LargeReader:
        """A reader of the body of a message that ``messages`` has returned."""
        restoring = self._restoring
        elsewhere = restoring is not None and large.file_id in self._bodies_elsewhere
        directory = restoring.other.large_directory if restoring is not None and elsewhere else self.large_directory
        return LargeReader(self._disk, f"{directory}/{large.file_id}.large", large)


def _describe(record: DamagedRecord) -> str:
    """Text about a damaged record of known extent."""
    kind = RecordType.__members__.get(record.kind)
    consequence = CONSEQUENCES.get(kind, "its effect is lost") if kind is not None else "its effect is lost"
    message = f" (message {record.message_id})" if record.message_id else ""
    return f"record {record.sequence}, {record.kind}{message}: {consequence}"
