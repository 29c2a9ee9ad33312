"""Salvaging a damaged store: everything that can still be read, and a list of the rest (ADR 0020).

The old store is only read. ``Salvage.read`` takes the newest whole snapshot, if there is one, and every valid
record after it, also those after damage; it lists each range that it had to pass over. ``Salvage.messages`` reads
the messages that live then. ``write`` puts them, with addresses, queues, settings, duplicate ids and prepared
transactions, into a new store of the same node, with a newer epoch, so that no id is given out twice.

What a lost record said is unknown. Where that matters messages are kept rather than lost: a message whose
acknowledgement is lost comes again; the messages of a transaction that was open where something is lost, and
has no outcome, are kept, and the messages that it acknowledged stay; a message of a queue that is not described any
more goes to a queue ``recovered.<queue id>``.

Not here: the command (``cli.data_salvage``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, DiskFull, JournalCorrupt, LargeMessageFailed, RemoteProtocolError, StoreError
from understudy.ids import NodeId
from understudy.limits import RECORD_BYTES_MAX
from understudy.message import LargeMessage, Message, large_body_of
from understudy.ports import Clock, Disk
from understudy.store.large_messages import LargeMessages, LargeReader
from understudy.store.log.chain import Link, highest_number, newest_epoch, read_chain
from understudy.store.log.damage import CONSEQUENCES, DamagedRecord, find_passage
from understudy.store.log.follower import Follower
from understudy.store.log.records import (
    HEADER_BYTES,
    MESSAGE_LARGE,
    AddressRecord,
    MessageRecord,
    QueueRecord,
    RecordType,
    decode,
)
from understudy.store.log.replay import Cursor, Stop, find_next_record, read_frame, replay
from understudy.store.log.segment import HEADER_BLOCK_BYTES, NEW_SUFFIX, parse_name, seed_of, segment_name
from understudy.store.message_store import MessageStore
from understudy.store.quarantine import read_known_damage
from understudy.store.queue_ids import QueueIds
from understudy.store.reference import MessageReference, unpack_location
from understudy.store.settings import StoreSettings
from understudy.store.snapshots.snapshot import read_snapshot, snapshot_names
from understudy.store.state import StoreState
from understudy.tools.step_writer import stepped

_PIECE_BYTES: Final = 1024 * 1024
#: Bytes appended to the new store before they are written.
_BACKLOG_BYTES: Final = 4 * 1024 * 1024
#: Duplicate ids are the broker's to limit (id-cache-size): none is left out here.
_ID_CACHE_SIZE: Final = 1 << 31
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
    """At most ``LISTED_MAX``."""
    lost_count: int = field(default=0, init=False)
    addresses: int = field(default=0, init=False)
    queues: int = field(default=0, init=False)
    messages: int = field(default=0, init=False)
    """In queues, once for each queue; those of prepared transactions included."""
    prepared_transactions: int = field(default=0, init=False)
    messages_lost: int = field(default=0, init=False)
    """Messages known to be in a queue whose bytes cannot be read."""
    doubtful_transactions: int = field(default=0, init=False)
    """Transactions whose outcome may be lost; their messages are kept."""

    def add(self, lost: Lost) -> None:
        """Something is lost."""
        self.lost_count += 1
        if len(self.lost) < LISTED_MAX:
            self.lost.append(lost)


class Salvage:
    """The readable part of one damaged store."""

    def __init__(self, disk: Disk, directory: str, large_directory: str) -> None:
        """Nothing is read yet.

        Args:
            disk: Where the store is; only read.
            directory: Of its journal.
            large_directory: Of the bodies of its large messages.
        """
        self._disk = disk
        self.directory = directory
        self.large_directory = large_directory
        self._names = disk.list(directory)
        self.epoch, self.number = newest_epoch(self._names), highest_number(self._names)
        self._known = read_known_damage(disk, directory)
        self.state = StoreState(_ID_CACHE_SIZE)
        self._sequence = 0
        """Of the last record that was read."""
        self._missing: tuple[Link, ...] = ()
        """Older segments that the newest epoch lists and that do not exist."""
        self._doubtful: set[int] = set()
        self._node_id: NodeId | None = None
        self.report = SalvageReport(directory, None, None)

    def read(self) -> None:
        """Read everything but the bodies.

        Raises:
            DiskFailed: a file cannot be read at all.
            StoreVersionUnsupported: written by a newer Understudy.
        """
        begin = self._load_snapshot()
        links = [link for link in self._links() if link.number > begin]
        for index, link in enumerate(links):
            self._take_in(link, is_last=index == len(links) - 1)
        self._report_missing(links)
        self._end_epoch()
        self._name_queues()
        report, state = self.report, self.state
        report.node_id = self.node_id
        report.addresses, report.queues = len(state.addresses), len(state.queues)
        report.prepared_transactions = len(state.transactions)

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
            state.id_cache_size = _ID_CACHE_SIZE
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
            if stop in (Stop.ENDED, Stop.SEALED, Stop.CLOSED) or not rest.strip(b"\0"):
                return
            following = find_next_record(rest, cursor.offset, seed, above=self._sequence)
            self._pass_over(cursor, rest, following.offset if following else None, is_last)
            if following is None:
                return
            # whatever its sequence is, it is the next
            cursor.offset, cursor.sequence = following.offset, following.sequence - 1
            if link.number not in self.state.segments:
                self.state.begin_segment(link.number, link.epoch, following.sequence)

    def _pass_over(self, cursor: Cursor, rest: bytes, following: int | None, is_last: bool) -> None:
        """Report records lost between the cursor and the next valid record."""
        self._doubtful.update(
            tx_id for tx_id, transaction in self.state.transactions.items() if not transaction.prepared
        )
        passage = find_passage(rest, cursor, self._known, lambda: None) if cursor.sequence else None
        if passage is not None and passage.following is not None and passage.following.offset == following:
            for record in passage.records:
                self._lose(cursor.path, record.offset, record.length, 1, _describe(record))
            return
        if following is None:
            what = "the end of the log: a batch that may never have been confirmed"
            if not is_last:
                what = "everything up to the end of the segment"
            self._lose(cursor.path, cursor.offset, len(rest.rstrip(b"\0")), None, what)
            return
        found = read_frame(rest, following - cursor.offset, cursor.offset, cursor.seed)
        assert found is not None, "it was found valid before"
        missing = found.sequence - self._sequence - 1 if self._sequence else None
        self._lose(cursor.path, cursor.offset, following - cursor.offset, missing, "records of unknown extents")

    def _end_epoch(self) -> None:
        """Open transactions end: those that may have lost their outcome are kept."""
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

    # --- messages -------------------------------------------------------------------------------

    def messages(self) -> Iterator[tuple[int, MessageReference, MessageRecord]]:
        """Queue id, reference and record of each message in a queue that can be read, queue by queue in order. What
        cannot be read is listed in the report.
        """
        for queue_id, backlog in self.state.references.items():
            for reference in backlog.references():
                record = self.read_message(reference)
                if record is not None:
                    yield queue_id, reference, record

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
        path = f"{self.directory}/{segment_name(number, use.epoch if use is not None else 0)}"
        try:
            if use is None:
                raise JournalCorrupt("the segment is not part of the log", file=path, offset=offset)
            record = self._decode(path, number, use.epoch, offset, length)
            if record.flags & MESSAGE_LARGE:
                self._check_body(record)
        except (StoreError, LargeMessageFailed, RemoteProtocolError, ValueError, FileNotFoundError) as error:
            self.report.messages_lost += 1
            self.report.add(Lost(path, offset, length, 1, f"message {reference.message_id}: {error}"))
            return None
        self.report.messages += 1
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
        Message.decode(record.encoded)
        return record

    def _check_body(self, record: MessageRecord) -> None:
        large = large_body_of(record.encoded)
        reader = LargeReader(self._disk, f"{self.large_directory}/{large.file_id}.large", large)
        try:
            while reader.left_bytes:
                reader.read(_PIECE_BYTES)
        finally:
            reader.pause()


def _describe(record: DamagedRecord) -> str:
    """Text about a damaged record of known extent."""
    kind = RecordType.__members__.get(record.kind)
    consequence = CONSEQUENCES.get(kind, "its effect is lost") if kind is not None else "its effect is lost"
    message = f" (message {record.message_id})" if record.message_id else ""
    return f"record {record.sequence}, {record.kind}{message}: {consequence}"


def write(salvage: Salvage, disk: Disk, directory: str, large_directory: str, clock: Clock, node_id: NodeId) -> None:
    """Write what ``salvage.read`` has found into a new store.

    Args:
        salvage: Of the old one.
        disk: Where the new one will be.
        directory: Of its journal, empty.
        large_directory: Of the bodies of its large messages.
        clock: For times in the log.
        node_id: Of the old store.

    Raises:
        DiskFull, DiskFailed: the disk refused; the new store is of no use then.
    """
    _Writing(salvage, disk, directory, large_directory, clock, node_id).run()


class _Writing:
    def __init__(
        self, salvage: Salvage, disk: Disk, directory: str, large_directory: str, clock: Clock, node_id: NodeId
    ) -> None:
        self._salvage = salvage
        self._disk = disk
        self._large_directory = large_directory
        self._copied: set[int] = set()
        log, self._writer = stepped(disk, directory)
        bodies, self._bodies = stepped(disk, large_directory)
        self._failures: list[BaseException] = []
        disk.make_directory(directory)
        # a segment that was begun says which epochs and numbers were given out; the activation removes it
        seen = disk.open(f"{directory}/{segment_name(salvage.number, salvage.epoch)}{NEW_SUFFIX}", create=True)
        seen.close()
        self._store = MessageStore.activate(
            Follower(disk, directory, id_cache_size=_ID_CACHE_SIZE),
            files=log,
            clock=clock,
            node_id=node_id,
            settings=StoreSettings(compact_segments_min=0, id_cache_size=_ID_CACHE_SIZE, disk_usage_percent_max=-1),
            large=LargeMessages(bodies.applier, self._bodies, clock),
            on_failure=self._failures.append,
        )

    def run(self) -> None:
        store, state, salvage = self._store, self._salvage.state, self._salvage
        self._settle()
        for address in state.addresses.values():
            store.store_address(address)
        for queue in state.queues.values():
            store.store_queue(queue)
        for setting in state.settings.values():
            if not setting.of_this_log:
                store.store_setting(setting)
        for address_id, ids in state.duplicate_ids.items():
            store.store_duplicate_ids(address_id, list(ids))
            self._settle_some()
        for queue_id, reference, record in salvage.messages():
            self._store_message(queue_id, reference, record, 0)
            not_before_ms = state.references[queue_id].redeliveries.get(reference.message_id, 0)
            if reference.delivery_count or not_before_ms:
                store.store_delivery_count(
                    queue_id, reference.message_id, reference.delivery_count, not_before_ms=not_before_ms
                )
        for transaction in state.transactions.values():
            tx_id = store.next_id()
            for queue_id, reference in transaction.adds:
                found = salvage.read_message(reference)
                if found is not None:
                    self._store_message(queue_id, reference, found, tx_id)
            for queue_id, message_id in transaction.acknowledges:
                store.store_acknowledges(queue_id, (message_id,), tx_id)
            for address_id, duplicate_id in transaction.duplicate_ids:
                store.store_duplicate_ids(address_id, (duplicate_id,), tx_id)
            store.store_prepare(tx_id, transaction.xid or b"")
        self._settle()
        closed: list[bool] = []
        store.close(lambda: closed.append(True))
        while not closed and self._writer.drain():
            continue
        self._check()

    def _store_message(self, queue_id: int, reference: MessageReference, record: MessageRecord, tx_id: int) -> None:
        large = bool(record.flags & MESSAGE_LARGE)
        message = LargeMessage.decode(record.encoded) if large else Message.decode(record.encoded)
        if isinstance(message, LargeMessage):
            self._copy_body(message)
        self._store.store_message(
            message, record.address_id, (queue_id,), tx_id=tx_id, scheduled_ms=reference.scheduled_ms, large=large
        )
        self._settle_some()

    def _copy_body(self, message: LargeMessage) -> None:
        large = message.large
        if large.file_id in self._copied:
            return
        self._copied.add(large.file_id)
        name = f"{large.file_id}.large"
        source = LargeReader(self._disk, f"{self._salvage.large_directory}/{name}", large)
        self._disk.make_directory(self._large_directory)
        target = self._disk.open(f"{self._large_directory}/{name}", create=True)
        try:
            offset = 0
            while source.left_bytes:
                data = source.read(_PIECE_BYTES)
                target.write(offset, (data,))
                offset += len(data)
            target.sync()
        finally:
            source.pause()
            target.close()
        self._disk.sync_directory(self._large_directory)

    def _settle_some(self) -> None:
        if self._store.backlog_bytes > _BACKLOG_BYTES:
            self._settle()

    def _settle(self) -> None:
        """Until everything is on the medium."""
        while True:
            self._store.flush()
            did = self._writer.drain()
            self._check()
            if not self._store.backlog_bytes and not did:
                return
            if not did:
                raise DiskFull("no space for the new journal")

    def _check(self) -> None:
        if self._failures:
            raise DiskFailed(f"the new journal cannot be written: {self._failures[0]}") from self._failures[0]
