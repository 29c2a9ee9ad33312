"""State that a log describes: bindings, references, duplicate ids, open transactions.

``StoreState`` is built by applying records in order, by a follower (all of it) and by the active
store (everything but ``references``, which routing owns from the activation on). The same records
always give the same state; that is what makes a passive node ready.

Invariants: a reference is in at most one place, a queue's ``references`` or the ``adds`` of an open
transaction; ``live`` covers both. Acknowledgements of unknown messages are ignored: their segment
may have been trimmed.

Not here: reading the log (``replay``, ``follower``), writing it, or what queues do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.ids import NodeId, uuid_text
from understudy.limits import ID_CACHE_SIZE, SKIMMED_BYTES_MAX
from understudy.message import large_body_of
from understudy.store.known_ids import KnownIds, newest_of
from understudy.store.live_index import LiveIndex
from understudy.store.log.checkpoint import encode_duplicate_ids, encode_item
from understudy.store.log.format_version import FORMAT_VERSION_FIRST
from understudy.store.log.records import (
    MESSAGE_LARGE,
    AcknowledgeRecord,
    AddressRecord,
    AddressRemoveRecord,
    CheckpointItem,
    CheckpointRecord,
    CommitRecord,
    DeliveryCountRecord,
    DropRecord,
    DuplicateIdRecord,
    DuplicateIdsItem,
    EpochRecord,
    MessageRecord,
    MoveRecord,
    PrepareRecord,
    QueueRecord,
    QueueRemoveRecord,
    Record,
    RecordType,
    RollbackRecord,
    SealRecord,
    SettingsTexts,
    SnapshotRecord,
    TrimRecord,
    encode_address,
    encode_queue,
)
from understudy.store.log.segment_skim import Skim
from understudy.store.messages.backlog import Backlog
from understudy.store.messages.columns import Rows
from understudy.store.messages.reference import LargeReference, Location, MessageReference, pack_location, reference_to
from understudy.store.messages.staged_references import StagedReferences
from understudy.store.queue_ids import QueueIds
from understudy.store.session_numbers import NO_ADDRESS, NUMBER_ID_BYTES, SessionNumbers, has_numbers, is_number
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting, settings_by_key


@dataclass(slots=True)
class TransactionRecord:
    """A transaction that has neither been committed nor rolled back."""

    tx_id: int
    first_segment: int
    """Segment of the transaction's first record, which is kept as long as the transaction is open."""
    xid: bytes | None = None
    """Encoded xid once the transaction is prepared; None before."""
    adds: StagedReferences = field(default_factory=StagedReferences)
    """References that the transaction adds; filled by a follower."""
    added_ids: QueueIds = field(default_factory=QueueIds)
    """Ids of queues of the same, also filled in the active store."""
    acknowledges: QueueIds = field(default_factory=QueueIds)
    duplicate_ids: list[tuple[int, bytes]] = field(default_factory=list)
    """Address id and duplicate id."""

    @property
    def prepared(self) -> bool:
        """Whether only an outcome is missing; it survives a crash."""
        return self.xid is not None


@dataclass(slots=True)
class SegmentUse:
    """Facts of a segment: its end, and the range of message ids in it."""

    epoch: int
    """Epoch of the segment, part of its file name."""
    first_sequence: int
    """Sequence of the first record of the segment."""
    message_id_min: int = 0
    """0 when no message was added."""
    message_id_max: int = 0
    end: int = 0
    """Offset after its last record; 0 while it is being filled, or in a follower."""
    moved: int = 0
    """Live messages below this offset lie in other segments by now."""
    skimmed: Skim | None = field(default=None, compare=False)
    """Records of the segment in short, if this process wrote it and no snapshot includes it yet."""

    def note(self, message_id: int) -> None:
        """Note that a message was added in the segment."""
        if message_id > self.message_id_max:
            self.message_id_max = message_id
            if self.message_id_min:
                return
        if message_id < self.message_id_min or not self.message_id_min:
            self.message_id_min = message_id


@dataclass(slots=True)
class LateChanges:
    """Changes to references that are not in this state but in the previous snapshot."""

    counts: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Queue id and message id to the delivery count, and to the wall time of the redelivery or 0."""
    locations: dict[int, Location] = field(default_factory=dict)
    """Present locations of copied messages, by message id."""


class StoreState:
    """Bindings, references, duplicate ids and open transactions at one position of the log."""

    def __init__(self, id_cache_size: int = ID_CACHE_SIZE) -> None:
        """An empty log's state.

        Args:
            id_cache_size: Duplicate ids kept per address; the oldest go.
        """
        self.id_cache_size = id_cache_size
        self.node_id: NodeId | None = None
        self.epoch = 0
        self.format_version = FORMAT_VERSION_FIRST
        """Lowest version that a reader of the log must know."""
        self.sequence = 0
        """Sequence of the last record applied."""
        self.addresses: dict[int, AddressRecord] = {}
        self.queues: dict[int, QueueRecord] = {}
        self.settings: dict[tuple[SettingKind, str], SettingRecord] = {}
        """Settings made by management, by kind and match."""
        self.references: dict[int, Backlog] = {}
        """Queue id to its waiting references. Routing takes these over at the activation; the store does
        not look at them afterwards."""
        self.duplicate_ids: dict[int, KnownIds] = {}
        """Duplicate ids by address id."""
        self.session_numbers = SessionNumbers()
        """Numbers of publishes of client sessions of AMQP 0-9-1; a duplicate id that is one is not in
        ``duplicate_ids``."""
        self.transactions: dict[int, TransactionRecord] = {}
        self.live = LiveIndex()
        self.segments: dict[int, SegmentUse] = {}
        """Segments of the log by number, in order."""
        self.first_sequence = 1
        """Sequence of the first record that was read."""
        self.trimmed_to = 1
        """First sequence that the last TRIM record says is still needed."""
        self.checkpoint_segment: int | None = None
        """Segment in which the last complete checkpoint begins."""
        self.complete = 0
        """Every segment from this number on is still there; 0 when none was dropped."""
        self.removable: dict[int, int] = {}
        """Number to epoch of segments that are no part of the log any more and may still be there."""
        self.announced: SnapshotRecord | None = None
        """The last snapshot the log speaks of."""
        self.base: tuple[int, int] | None = None
        """Epoch of the snapshot this began with, and the sequence up to which it needs the log."""
        self.refuted = False
        """The log shows that the snapshot was written by a node that had lost the store."""
        self.late: LateChanges | None = None
        """Set by the consolidator, which replays without the older references."""
        self.origins: dict[int, Location] | None = None
        """Set by tools that ask where a message lay first: message id to the source of its first move."""
        self._checkpoint: list[CheckpointItem] | None = None
        self._checkpoint_began = 0

    def take_references(self, queue_id: int) -> Backlog:
        """The references of a queue, now the caller's."""
        return self.references.pop(queue_id, None) or Backlog()

    def backlog(self, queue_id: int) -> Backlog:
        """Backlog of a queue, created if it is missing."""
        backlog = self.references.get(queue_id)
        if backlog is None:
            backlog = self.references[queue_id] = Backlog()
        return backlog

    def add_reference(self, queue_id: int, reference: MessageReference) -> None:
        """Append a message to the queue."""
        self.backlog(queue_id).append_reference(reference)

    def relocate(self, queue_id: int, message_id: int, location: Location) -> bool:
        """Record the new place of a message in the log; return whether the message waits in the queue."""
        backlog = self.references.get(queue_id)
        # checked first because a search for an absent id is slow
        return (
            backlog is not None and self.live.is_live(queue_id, message_id) and backlog.relocate(message_id, location)
        )

    def waiting(self) -> Iterator[tuple[int, MessageReference]]:
        """Queue id and reference of all that waits; per queue in order."""
        for queue_id, references in self.references.items():
            for reference in references.references():
                yield queue_id, reference

    def needed(self) -> Iterator[MessageReference]:
        """All that waits and all that open transactions have added."""
        yield from (reference for _, reference in self.waiting())
        for transaction in self.transactions.values():
            yield from (reference for _, reference in transaction.adds)

    @property
    def in_checkpoint(self) -> bool:
        """Whether the last record was a part of a checkpoint that is not complete."""
        return self._checkpoint is not None

    def large_files(self) -> dict[int, int]:
        """File id to the number of references to that large message, ``adds`` of open transactions
        included; to be asked before references are taken.
        """
        files: Counter[int] = Counter()
        for backlog in self.references.values():
            files.update(backlog.files)
        for transaction in self.transactions.values():
            files.update(each.file_id for _, each in transaction.adds if isinstance(each, LargeReference))
        return dict(files)

    def begin_segment(self, number: int, epoch: int, first_sequence: int) -> SegmentUse:
        """The next segment of the log begins with that sequence."""
        if not self.segments and self.sequence == 0:
            self.first_sequence = first_sequence
        use = self.segments[number] = SegmentUse(epoch, first_sequence)
        return use

    def end_of_epoch(self, epoch: int) -> int | None:
        """Highest sequence that a record of that epoch, or of an earlier one, can have in this log; None if no later
        epoch has begun. It may be too high if the beginning of the epoch that followed was trimmed.
        """
        later = [use.first_sequence for use in self.segments.values() if use.epoch > epoch]
        return min(later) - 1 if later else None

    def bound_skimmed(self, newest: int) -> None:
        """Let go of what segments up to ``newest`` say, and of the oldest of the others if it is too much."""
        kept_bytes = 0
        for number, use in reversed(self.segments.items()):
            if use.skimmed is not None:
                kept_bytes += use.skimmed.kept_bytes
                if number <= newest or kept_bytes > SKIMMED_BYTES_MAX:
                    use.skimmed = None
            elif number <= newest:
                break

    def apply(self, record: Record, sequence: int, segment: int, location: Location) -> None:
        """Apply one record of the log.

        Args:
            record: The decoded record.
            segment: Number of its segment, for which ``begin_segment`` was called.
            location: Where it lies.
        """
        self.sequence = sequence
        _APPLY[type(record)](self, record, segment, location)

    def remember_duplicate(self, address_id: int, duplicate_id: bytes) -> None:
        """The address has seen this id; one that the log does not have (any more) remembers nothing."""
        self.remember_duplicates(address_id, (duplicate_id,))

    def remember_duplicates(self, address_id: int, duplicate_ids: Sequence[bytes]) -> None:
        """Remember duplicate ids that an address has seen, in order; see ``remember_duplicate``."""
        if has_numbers(duplicate_ids):
            self.session_numbers.note(duplicate_ids, lambda uuid: (SettingKind.CLIENT_SESSION, uuid) in self.settings)
            duplicate_ids = [each for each in duplicate_ids if not is_number(each)]
        if address_id not in self.addresses:
            return
        ids = self.duplicate_ids.get(address_id)
        if ids is None:
            ids = self.duplicate_ids[address_id] = KnownIds(self.id_cache_size)
        ids.extend(duplicate_ids)

    def remember_packed(self, address_id: int, length: int, ids: bytes) -> None:
        """The address has seen these ids of ``length`` bytes each, one after the other; see ``remember_duplicate``."""
        if length == NUMBER_ID_BYTES:
            # numbers of sessions displace no other ids, so none is left out
            self.remember_duplicates(address_id, [ids[at : at + length] for at in range(0, len(ids), length)])
        else:
            self.remember_duplicates(address_id, newest_of(ids, length, self.id_cache_size))

    def transaction(self, tx_id: int, segment: int) -> TransactionRecord:
        """The open transaction of that id; begins it if there is none."""
        transaction = self.transactions.get(tx_id)
        if transaction is None:
            transaction = self.transactions[tx_id] = TransactionRecord(tx_id, segment)
        return transaction

    def commit(self, tx_id: int) -> None:
        """Everything in the transaction counts."""
        transaction = self.transactions.pop(tx_id, None)
        if transaction is None:
            return
        transaction.adds.commit(self.references)
        for queue_id, message_ids in transaction.acknowledges.by_queue.items():
            self.remove_references(queue_id, message_ids)
        for address_id, duplicate_id in transaction.duplicate_ids:
            self.remember_duplicate(address_id, duplicate_id)

    def roll_back(self, tx_id: int) -> None:
        """Nothing in the transaction ever was."""
        transaction = self.transactions.pop(tx_id, None)
        if transaction is not None:
            for queue_id, message_ids in transaction.added_ids.by_queue.items():
                self.live.remove(queue_id, message_ids)

    def add_rows(self, queue_id: int, priority: int, segment: int, rows: Rows, tx_id: int = 0) -> None:
        """Append rows of messages of one priority to a queue; ``tx_id``: they wait for that transaction, 0 for none."""
        if tx_id:
            transaction = self.transaction(tx_id, segment)
            transaction.adds.extend(queue_id, priority, segment, rows)
            transaction.added_ids.extend(queue_id, rows.ids)
        else:
            self.backlog(queue_id).extend(priority, segment, rows)
        self.live.add_all(queue_id, rows.ids)

    def remove_references(self, queue_id: int, message_ids: Sequence[int]) -> None:
        """Called when the messages have left the queue."""
        backlog = self.references.get(queue_id)
        if backlog is not None:
            # checked first because a search for an absent id is slow
            backlog.remove_all(message_ids, partial(self.live.is_live, queue_id))
        self.live.remove(queue_id, message_ids)

    def remove_queue(self, queue_id: int) -> None:
        """Note that a queue was deleted with all its messages."""
        self.queues.pop(queue_id, None)
        self.references.pop(queue_id, None)
        self.live.remove_queue(queue_id)
        for transaction in self.transactions.values():
            transaction.adds.remove_queue(queue_id)
            transaction.added_ids.remove_queue(queue_id)
            transaction.acknowledges.remove_queue(queue_id)

    def remove_address(self, address_id: int) -> None:
        """Called when the address is gone with its duplicate ids."""
        self.addresses.pop(address_id, None)
        self.duplicate_ids.pop(address_id, None)

    def checkpoint_items(self) -> Iterator[bytes]:
        """Bindings, duplicate ids and settings as items of a checkpoint; nothing may change meanwhile."""
        of_addresses, of_queues = SettingsTexts(), SettingsTexts()
        for address in self.addresses.values():
            yield encode_item(RecordType.ADDRESS_ADD, encode_address(address, of_addresses))
        for queue in self.queues.values():
            yield encode_item(RecordType.QUEUE_ADD, encode_queue(queue, of_queues))
        for address_id, ids in self.duplicate_ids.items():
            yield from encode_duplicate_ids(address_id, ids)
        for setting in self.settings.values():
            yield encode_item(RecordType.SETTING, encode_setting(setting))
        yield from encode_duplicate_ids(NO_ADDRESS, self.session_numbers.ids())

    def apply_setting(self, record: SettingRecord) -> None:
        """Management or a client has added, replaced or removed a setting."""
        if record.scope is SettingKind.CLIENT_SESSION:
            self.session_numbers.follow(record)
        if record.values is None:
            self.settings.pop(record.key, None)
        else:
            self.settings[record.key] = record

    def holds_live(self, use: SegmentUse) -> bool:
        """Whether a live message has an id within the range of ids of a segment; it may lie in another segment."""
        return use.message_id_min > 0 and self.live.any_between(use.message_id_min, use.message_id_max)

    def dead_prefix(self, before: int) -> list[int]:
        """Segments from the beginning of the log on, numbers below ``before``, that hold nothing
        needed. They may be removed once a later checkpoint is durable.
        """
        held = min((transaction.first_segment for transaction in self.transactions.values()), default=before)
        dead: list[int] = []
        for number, use in self.segments.items():
            if number >= min(before, held):
                break
            if self.holds_live(use):
                break
            dead.append(number)
        return dead

    # --- one method per record ------------------------------------------------------------------

    def _apply_epoch(self, record: EpochRecord, segment: int, location: Location) -> None:
        self.node_id = NodeId(uuid_text(record.node_id))
        self.epoch = record.epoch
        self._checkpoint = None
        if self.base is not None and record.epoch > self.base[0] and self.sequence <= self.base[1]:
            self.refuted = True
        for tx_id in [tx_id for tx_id, transaction in self.transactions.items() if not transaction.prepared]:
            self.roll_back(tx_id)

    def _apply_message(self, record: MessageRecord, segment: int, location: Location) -> None:
        self.segments[segment].note(record.message_id)
        file_id = large_body_of(record.encoded).file_id if record.flags & MESSAGE_LARGE else None
        self.add_message(record, len(record.encoded), file_id, segment, location)

    def add_message(
        self, record: MessageRecord, size_bytes: int, file_id: int | None, segment: int, location: Location
    ) -> None:
        """A message of that size waits in its queues, or will when its transaction is committed.

        Args:
            record: What the log says of it; ``encoded`` is not looked at.
            segment: Segment in which it lies.
            location: Where it lies.
        """
        message_id = record.message_id
        transaction = self.transaction(record.tx_id, segment) if record.tx_id else None
        for queue_id in record.queue_ids:
            reference = reference_to(
                file_id,
                message_id,
                record.priority,
                record.expiration,
                record.scheduled_ms,
                size_bytes,
                True,
                location,
            )
            self.live.add(queue_id, message_id)
            if transaction is None:
                self.add_reference(queue_id, reference)
            else:
                transaction.adds.append(queue_id, reference)
                transaction.added_ids.add(queue_id, message_id)
        if record.duplicate_id:
            if transaction is None:
                self.remember_duplicate(record.address_id, record.duplicate_id)
            else:
                transaction.duplicate_ids.append((record.address_id, record.duplicate_id))

    def _apply_acknowledge(self, record: AcknowledgeRecord, segment: int, location: Location) -> None:
        if record.tx_id:
            self.transaction(record.tx_id, segment).acknowledges.extend(record.queue_id, record.message_ids)
        else:
            self.remove_references(record.queue_id, record.message_ids)

    def _apply_delivery_count(self, record: DeliveryCountRecord, segment: int, location: Location) -> None:
        backlog = self.references.get(record.queue_id)
        if backlog is not None and self.live.is_live(record.queue_id, record.message_id):
            backlog.set_delivery_count(record.message_id, record.count, record.not_before_ms)
        elif self.late is not None:
            key = record.queue_id, record.message_id
            earlier_ms = self.late.counts.get(key, (0, 0))[1]
            self.late.counts[key] = record.count, record.not_before_ms or earlier_ms

    def _apply_duplicate_id(self, record: DuplicateIdRecord, segment: int, location: Location) -> None:
        if record.tx_id:
            duplicate_ids = self.transaction(record.tx_id, segment).duplicate_ids
            duplicate_ids.append((record.address_id, record.duplicate_id))
        else:
            self.remember_duplicate(record.address_id, record.duplicate_id)

    def _apply_prepare(self, record: PrepareRecord, segment: int, location: Location) -> None:
        self.transaction(record.tx_id, segment).xid = record.xid

    def _apply_commit(self, record: CommitRecord, segment: int, location: Location) -> None:
        self.commit(record.tx_id)

    def _apply_rollback(self, record: RollbackRecord, segment: int, location: Location) -> None:
        self.roll_back(record.tx_id)

    def _apply_address(self, record: AddressRecord, segment: int, location: Location) -> None:
        self.addresses[record.address_id] = record

    def _apply_address_remove(self, record: AddressRemoveRecord, segment: int, location: Location) -> None:
        self.remove_address(record.address_id)

    def _apply_queue(self, record: QueueRecord, segment: int, location: Location) -> None:
        self.queues[record.queue_id] = record

    def _apply_queue_remove(self, record: QueueRemoveRecord, segment: int, location: Location) -> None:
        self.remove_queue(record.queue_id)

    def _apply_setting(self, record: SettingRecord, segment: int, location: Location) -> None:
        self.apply_setting(record)

    def _apply_trim(self, record: TrimRecord, segment: int, location: Location) -> None:
        self.trimmed_to = record.first_sequence
        self.forget_segments([number for number in self.segments if number < record.first_number])

    def forget_segments(self, numbers: Iterable[int]) -> None:
        """Remove segments that do not belong to the log any more."""
        for number in numbers:
            use = self.segments.pop(number, None)
            if use is not None:
                self.removable[number] = use.epoch

    def _apply_drop(self, record: DropRecord, segment: int, location: Location) -> None:
        self.complete = max(self.complete, record.complete)
        self.forget_segments(record.numbers)

    def _apply_snapshot(self, record: SnapshotRecord, segment: int, location: Location) -> None:
        self.announced = record

    def _apply_move(self, record: MoveRecord, segment: int, location: Location) -> None:
        self.segments[segment].note(record.message_id)
        source = self.segments.get(record.source_number)
        if source is not None:
            source.moved = max(source.moved, record.source_offset + 1)
        if self.origins is not None:
            self.origins.setdefault(record.message_id, pack_location(record.source_number, record.source_offset, 0))
        found = [self.relocate(queue_id, record.message_id, location) for queue_id in record.queue_ids]
        if all(found):
            return
        if self.late is not None:
            self.late.locations[record.message_id] = location
        for transaction in self.transactions.values():
            transaction.adds.relocate(record.message_id, location)

    def _apply_checkpoint(self, record: CheckpointRecord, segment: int, location: Location) -> None:
        if record.first:
            self._checkpoint = []
            self._checkpoint_began = segment
        if self._checkpoint is None:
            return
        self._checkpoint += record.items
        if not record.last:
            return
        items, self._checkpoint = self._checkpoint, None
        self.addresses = {item.address_id: item for item in items if isinstance(item, AddressRecord)}
        self.queues = {item.queue_id: item for item in items if isinstance(item, QueueRecord)}
        self.settings = settings_by_key(items)
        self.duplicate_ids = {}
        self.session_numbers = SessionNumbers()
        for item in items:
            if isinstance(item, DuplicateIdsItem):
                self.remember_duplicates(item.address_id, item.duplicate_ids)
        known = self.references.keys() | self.live.queues.keys()
        for queue_id in known - self.queues.keys():
            self.remove_queue(queue_id)
        self.checkpoint_segment = self._checkpoint_began

    def _apply_seal(self, record: SealRecord, segment: int, location: Location) -> None:
        """A seal says nothing about messages."""


_APPLY: Final[dict[type[Any], Callable[..., None]]] = {
    EpochRecord: StoreState._apply_epoch,
    MessageRecord: StoreState._apply_message,
    AcknowledgeRecord: StoreState._apply_acknowledge,
    DeliveryCountRecord: StoreState._apply_delivery_count,
    DuplicateIdRecord: StoreState._apply_duplicate_id,
    PrepareRecord: StoreState._apply_prepare,
    CommitRecord: StoreState._apply_commit,
    RollbackRecord: StoreState._apply_rollback,
    AddressRecord: StoreState._apply_address,
    AddressRemoveRecord: StoreState._apply_address_remove,
    QueueRecord: StoreState._apply_queue,
    QueueRemoveRecord: StoreState._apply_queue_remove,
    TrimRecord: StoreState._apply_trim,
    CheckpointRecord: StoreState._apply_checkpoint,
    SealRecord: StoreState._apply_seal,
    SnapshotRecord: StoreState._apply_snapshot,
    DropRecord: StoreState._apply_drop,
    MoveRecord: StoreState._apply_move,
    SettingRecord: StoreState._apply_setting,
}
