"""Store of an active broker: it records changes and says when they are durable.

Every ``store_*`` appends one record to the journal and returns at once; answers that may only be sent
once it is durable wait in ``context`` for ``last_sequence``. ``flush`` hands the collected
records to the writer, once per turn of the loop.

``store_message`` and ``store_acknowledges`` are hot paths and write into the journal's
buffers themselves: one ``Struct.pack``, one crc over the parts, no copy of the message.

When the disk is full (``full``) messages are refused with ``DiskFull`` before anything is
appended; all that frees space goes on (``journal``).

Not here: recovery (``follower``, ``epoch``), queues, when a transaction commits.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, DiskFull, LimitExceeded
from understudy.ids import NodeId, first_id_of_epoch
from understudy.kernel.log import acknowledge_record, crc32
from understudy.limits import DUPLICATE_ID_BYTES_MAX, RECORD_BYTES_MAX
from understudy.message import Message
from understudy.ports import Clock, Disk, Space
from understudy.store.disk_usage import DiskUsage
from understudy.store.log.applier import LogFiles
from understudy.store.log.epoch import Epoch, begin_epoch
from understudy.store.log.journal import Journal
from understudy.store.log.reading.follower import Follower
from understudy.store.log.records import (
    ACKNOWLEDGE_HEADER_BYTES,
    ENCODING_SHIFT,
    HEADER_BYTES,
    MESSAGE_HEADER_BYTES,
    MESSAGE_ONE_REST,
    MESSAGE_REST,
    AddressRecord,
    QueueRecord,
    RecordType,
    encode_address,
    encode_delivery_count,
    encode_duplicate_id,
    encode_id,
    encode_prepare,
    encode_queue,
)
from understudy.store.log.segment import log_size_bytes
from understudy.store.log_format import LogFormat
from understudy.store.messages.large_messages import LargeMessages
from understudy.store.messages.message_run import append_ids, append_run, hold_room
from understudy.store.messages.read_back import ReadBack
from understudy.store.messages.reference import Location
from understudy.store.named_readers import NamedReaders
from understudy.store.quarantine import DIRECTORY_NAME, Quarantine
from understudy.store.setting_record import SettingRecord, encode_setting
from understudy.store.settings import StoreSettings
from understudy.store.snapshots.consolidator import ConsolidatedLog, Consolidator
from understudy.store.snapshots.relocation import Relocations
from understudy.store.state import SegmentUse

log = logging.getLogger(__name__)

_MESSAGE_ADD: Final = int(RecordType.MESSAGE_ADD)
_MESSAGE_ONE_BYTES: Final = MESSAGE_HEADER_BYTES + 8

#: Most ids in one ACKNOWLEDGE record.
_ACKNOWLEDGE_IDS_MAX: Final = 64 * 1024
#: Payload of an ACKNOWLEDGE of nothing.
NO_ACKNOWLEDGES: Final = bytes(ACKNOWLEDGE_HEADER_BYTES - HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class StoreOwner:
    """Calls to the owner of a store."""

    failed: Callable[[BaseException], None]
    """Called once, when the store has failed for good."""
    opened: Callable[[MessageStore], None] = lambda store: None
    """Called once the store has jobs at the writers. From then on it has to be closed, also after an error."""


class MessageStore:
    """Durable messages, bindings and transactions of one activation. Made by ``MessageStore.activate``."""

    full = False
    """Whether the disk is full, so that ``store_message`` refuses."""

    def __init__(
        self,
        *,
        files: LogFiles,
        clock: Clock,
        epoch: Epoch,
        settings: StoreSettings,
        large: LargeMessages,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Goes on where an activation stopped; use ``activate``.

        Args:
            clock: Used for times in segments, retries.
            epoch: Epoch that has begun.
            settings: See there.
            large: The bodies of large messages.
            on_failure: Called once, when the store has failed for good.
        """
        state = epoch.state
        disk, directory, housekeeper = files.applier.disk, files.applier.directory, files.housekeeper
        assert state.node_id is not None
        self.state = state
        self.node_id: NodeId = state.node_id
        self.epoch_start = epoch.start
        self.large = large
        self.quarantine = Quarantine(disk, directory, housekeeper, large, made=DIRECTORY_NAME in epoch.names)
        self._disk = disk
        self._directory = directory
        self.settings = settings
        self._usage = DiskUsage(disk, [directory], settings.disk_usage_percent_max, settings.disk_free_bytes_min)
        self._marked = state.sequence
        """Sequence of the last record that says nothing new: the mark of a quiet log, at first the epoch's."""
        self.last_id = first_id_of_epoch(self.epoch) - 1
        """The id that was given last. Ids for several messages at once are taken by adding their number."""
        self._epochs = {segment: use.epoch for segment, use in state.segments.items()}
        self._segment_began = True
        relocations = Relocations()
        self._journal = Journal(
            files=files,
            clock=clock,
            epoch=epoch,
            settings=settings,
            on_failure=on_failure,
            on_segment=self._begin_segment,
            on_space=self._update_full,
        )
        self.context = context = self._journal.context
        large.begin(context, state.epoch, self.quarantine.with_files(state.large_files()))
        self.read_back = ReadBack(disk, directory, self._journal, self._epochs, relocations)
        self.read_message, self.reader = self.read_back.read, self.read_back.reader
        self.hold_room = partial(hold_room, self._journal)
        """Keep space for messages that are recorded later; see ``message_run.hold_room``."""
        self.store_run = partial(append_run, self._journal, context, state)
        """Record messages that came together; see ``message_run.append_run``."""
        self.fail = self._journal.fail
        """Told that something of the store cannot be used any more: nothing is confirmed from then on."""
        self.format = LogFormat(self._journal, state)
        """The format version of the log."""
        self.readers = NamedReaders(self._journal, state, clock, self.store_setting)
        """The named readers, for which segments are kept."""
        self._consolidator = Consolidator(
            consolidated=ConsolidatedLog(files, self._journal, state, relocations, self._forget_segment),
            clock=clock,
            readers=self.readers,
            known=self.quarantine.known,
            damaged=lambda number, offset: self.quarantine.damage_met(number, offset),
            settings=settings,
        )

    @classmethod
    def activate(
        cls,
        follower: Follower,
        *,
        files: LogFiles,
        clock: Clock,
        node_id: NodeId,
        owner: StoreOwner,
        settings: StoreSettings | None = None,
        large: LargeMessages | None = None,
    ) -> MessageStore:
        """Finish reading the log, begin the next epoch and accept records.

        Blocks for a few syncs and the unread tail, however much the log holds. The references of
        ``state`` are the caller's from here on (``state.take_references``), as are the ``adds``
        of its prepared transactions.

        Args:
            follower: Follower of the same directory, fresh or following; closed afterwards.
            files: Files of the log, writable; both writers are closed by ``close``.
            clock: Used for times in the log.
            node_id: Id of the node whose store it must be.
            owner: Called when the store is open and when it has failed.
            settings: Defaults if None.
            large: Bodies of large messages; by default in the directory ``large`` of the store.

        Raises:
            StoreError: see ``epoch.begin_epoch``.
        """
        settings = settings or StoreSettings()
        applier = files.applier
        with applier.disk.within(applier.directory) as here:
            epoch = begin_epoch(follower, applier, clock, node_id, settings.segment_bytes, here)
            store = cls(
                files=files,
                clock=clock,
                epoch=epoch,
                settings=settings,
                large=large or LargeMessages(applier, files.writer, clock, folder="large"),
                on_failure=owner.failed,
            )
            owner.opened(store)
            # before anything else is removed: it may be a segment that is cut there
            files.housekeeper.submit([epoch.tidy_up()], lambda error: store._room_was_made())
            store._consolidator.begin(here, epoch.names)
            store.quarantine.begin(epoch.state.segments, epoch.set_aside)
            store.check_disk(here)
        return store

    def _room_was_made(self) -> None:
        """Use freed space, on a full disk too: files of earlier activations have been removed."""
        self._journal.retry(at_once=True)

    @property
    def epoch(self) -> int:
        """Number of the present epoch."""
        return self.epoch_start.epoch

    # --- ids and positions ----------------------------------------------------------------------

    def next_id(self) -> int:
        """A new id for a message, queue, address or transaction, never used again."""
        if self.context.gathered is not None:
            # message ids rise with the log
            self.context.gathered.close()
        self.last_id += 1
        return self.last_id

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record appended: what a confirmation waits for."""
        return self._journal.sequence

    @property
    def backlog_bytes(self) -> int:
        """Bytes appended and not yet durable."""
        return self._journal.backlog_bytes

    @property
    def congestion(self) -> Journal:
        """The journal, whose ``congested`` says whether too much waits to be written to read from any socket."""
        return self._journal

    @property
    def segment_count(self) -> int:
        """Segments of the log."""
        return len(self._epochs)

    @property
    def kept(self) -> tuple[int, int]:
        """Number and bytes of the files of removed segments that are kept for later ones."""
        return self._journal.kept

    def size_bytes(self) -> int:
        """Bytes of the directory's segments, snapshots and kept files on the disk, the prepared segment included."""
        return log_size_bytes(self._disk, self._directory)

    @property
    def consolidating(self) -> bool:
        """Whether the log is being consolidated."""
        return self._consolidator.busy

    @property
    def live_bytes(self) -> int:
        """Bytes of the log known to be needed: what lived at the last snapshot, and everything since."""
        return self._consolidator.live_bytes

    # --- bindings -------------------------------------------------------------------------------

    def store_address(self, record: AddressRecord) -> int:
        """An address exists or has changed; the sequence."""
        sequence = self._journal.append(RecordType.ADDRESS_ADD, encode_address(record))
        self.state.addresses[record.address_id] = record
        return sequence

    def delete_address(self, address_id: int) -> int:
        """The address is gone with its duplicate ids; the sequence."""
        sequence = self._journal.append(RecordType.ADDRESS_REMOVE, encode_id(address_id))
        self.state.remove_address(address_id)
        return sequence

    def store_queue(self, record: QueueRecord) -> int:
        """A queue exists or has changed; the sequence."""
        sequence = self._journal.append(RecordType.QUEUE_ADD, encode_queue(record))
        self.state.queues[record.queue_id] = record
        return sequence

    def delete_queue(self, queue_id: int) -> int:
        """The queue is gone with its messages; the sequence."""
        sequence = self._journal.append(RecordType.QUEUE_REMOVE, encode_id(queue_id))
        self.state.remove_queue(queue_id)
        return sequence

    def store_setting(self, record: SettingRecord) -> int:
        """A setting was added, replaced or removed; the sequence. Raises as ``LogFormat.prepare``."""
        self.format.prepare(record)
        sequence = self._journal.append(RecordType.SETTING, encode_setting(record))
        self.state.apply_setting(record)
        return sequence

    # --- messages -------------------------------------------------------------------------------

    def store_message(
        self,
        message: Message,
        address_id: int,
        queue_ids: Sequence[int],
        *,
        tx_id: int = 0,
        duplicate_id: bytes = b"",
        scheduled_ms: int = 0,
        large: bool = False,
    ) -> Location:
        """Record a durable message with its queues; return the place of the record.

        Args:
            message: Message with its id assigned.
            address_id: Id of the address it was sent to.
            queue_ids: At least one.
            tx_id: Transaction it belongs to; 0 for none.
            duplicate_id: Remembered for the address with it.
            scheduled_ms: Epoch milliseconds before which it is not delivered; 0 for at once.
            large: ``message`` is the header of a large message.

        Raises:
            DiskFull: the disk is full; nothing was appended.
            LimitExceeded: the record would be larger than ``RECORD_BYTES_MAX``.
            StoreError: the journal has failed.
        """
        if self.full:
            self._refuse()
        encoded = message.encoded
        message_id = message.message_id
        journal = self._journal
        count = len(queue_ids)
        one = count == 1 and not duplicate_id
        length = len(encoded) + (_MESSAGE_ONE_BYTES if one else MESSAGE_HEADER_BYTES + 8 * count + len(duplicate_id))
        offset = journal.offset
        if offset + length > journal.room or len(duplicate_id) > DUPLICATE_ID_BYTES_MAX:
            self._check_size(length, duplicate_id)
            journal.make_room(length)
            offset = journal.offset
        sequence = journal.sequence + 1
        flags = large | message.encoding << ENCODING_SHIFT
        if one:
            rest = MESSAGE_ONE_REST.pack(
                length, sequence, journal.batch, _MESSAGE_ADD, 0, 0, message_id, tx_id, address_id,
                message.expiration, scheduled_ms, message.priority, flags, 0, 1, queue_ids[0],
            )  # fmt: skip
        else:
            head = MESSAGE_REST.pack(
                length, sequence, journal.batch, _MESSAGE_ADD, 0, 0, message_id, tx_id, address_id,
                message.expiration, scheduled_ms, message.priority, flags, len(duplicate_id), count,
            )  # fmt: skip
            rest = b"".join((head, struct.pack(f"<{count}Q", *queue_ids), duplicate_id))
        crc = crc32(encoded, crc32(rest, journal.seed))
        journal.parts.append(b"".join((crc.to_bytes(4, "little"), rest, encoded)))
        journal.offsets.append(offset)
        journal.offset = offset + length
        journal.room -= 4
        journal.sequence = self.context.appended = sequence
        use = journal.use
        if message_id > use.message_id_max and use.message_id_min:
            use.message_id_max = message_id
        else:
            use.note(message_id)
        block = message_id >> 6
        bit = 1 << (message_id & 63)
        live_queues = self.state.live.queues
        for queue_id in queue_ids:
            masks = live_queues.get(queue_id)
            if masks is None:
                masks = live_queues[queue_id] = {}
            masks[block] = masks.get(block, 0) | bit
        if tx_id:
            journal.belong_to_open(sequence - 1)
            transaction = self.state.transaction(tx_id, journal.number)
            for queue_id in queue_ids:
                transaction.added_ids.add(queue_id, message_id)
            if duplicate_id:
                transaction.duplicate_ids.append((address_id, duplicate_id))
        elif duplicate_id:
            self.state.remember_duplicate(address_id, duplicate_id)
        # pack_location, in line
        return Location(journal.number << 64 | offset << 32 | length)

    def store_acknowledges(self, queue_id: int, message_ids: Sequence[int], tx_id: int = 0) -> None:
        """The messages have left the queue, in one record."""
        count = len(message_ids)
        if count > _ACKNOWLEDGE_IDS_MAX:
            for start in range(0, count, _ACKNOWLEDGE_IDS_MAX):
                self.store_acknowledges(queue_id, message_ids[start : start + _ACKNOWLEDGE_IDS_MAX], tx_id)
            return
        if not count:
            return
        journal = self._journal
        length = ACKNOWLEDGE_HEADER_BYTES + 8 * count
        if journal.offset + length > journal.room:
            journal.make_room(length)
        sequence = journal.sequence + 1
        journal.parts.append(acknowledge_record(queue_id, tx_id, message_ids, sequence, journal.batch, journal.seed))
        journal.offsets.append(journal.offset)
        journal.offset += length
        journal.room -= 4
        journal.sequence = self.context.appended = sequence
        if tx_id:
            journal.belong_to_open(sequence - 1)
            self.state.transaction(tx_id, journal.number).acknowledges.extend(queue_id, message_ids)
        else:
            self.state.live.remove(queue_id, message_ids)

    def store_delivery_count(self, queue_id: int, message_id: int, count: int, *, not_before_ms: int = 0) -> None:
        """Record how often a message of the queue was delivered, up to ``StoreSettings.delivery_count_max``, and always
        the wall time of its redelivery.
        """
        if not_before_ms or not 0 <= self.settings.delivery_count_max < count:
            payload = encode_delivery_count(queue_id, message_id, count, not_before_ms)
            self._journal.append(RecordType.DELIVERY_COUNT, payload)

    def store_duplicate_ids(self, address_id: int, duplicate_ids: Sequence[bytes], tx_id: int = 0) -> None:
        """Record the duplicate ids of an address, in order (with a transaction: once it commits)."""
        for duplicate_id in duplicate_ids:
            if len(duplicate_id) > DUPLICATE_ID_BYTES_MAX:
                self._check_size(0, duplicate_id)
        if not tx_id:
            append_ids(self._journal, self.context, self.state, address_id, duplicate_ids)
            return
        for duplicate_id in duplicate_ids:
            sequence = self._journal.append(
                RecordType.DUPLICATE_ID, encode_duplicate_id(address_id, duplicate_id, tx_id)
            )
            self._journal.belong_to_open(sequence - 1)
            transaction = self.state.transaction(tx_id, self._journal.number)
            transaction.duplicate_ids.append((address_id, duplicate_id))

    def _refuse(self) -> None:
        if self._usage.problem:
            raise DiskFull(self._usage.problem, hint="max-disk-usage or min-disk-free")
        raise DiskFull(f"{self._directory}: no space for the next segment of the journal")

    def _check_size(self, length: int, duplicate_id: bytes) -> None:
        """Off the hot path: only when a record does not simply fit."""
        if length > RECORD_BYTES_MAX:
            raise LimitExceeded(f"journal record of {length} bytes, limit {RECORD_BYTES_MAX}")
        if len(duplicate_id) > DUPLICATE_ID_BYTES_MAX:
            raise LimitExceeded(f"duplicate id of {len(duplicate_id)} bytes, limit {DUPLICATE_ID_BYTES_MAX}")
        needed_bytes = length + self.settings.segment_bytes
        if length > self.settings.segment_bytes // 2 and self._disk.space(self._directory).free_bytes < needed_bytes:
            # a record of its own segment must not use up the reserve and then wait for space
            raise DiskFull(f"{self._directory}: no space for a record of {length} bytes")

    # --- transactions ---------------------------------------------------------------------------

    def store_prepare(self, tx_id: int, xid: bytes) -> int:
        """Record a prepared transaction, which from then on awaits its outcome; return the sequence of the record.

        Args:
            tx_id: The transaction.
            xid: Name of the transaction in a form the caller can read back from ``state.transactions``.
        """
        sequence = self._journal.append(RecordType.TX_PREPARE, encode_prepare(tx_id, xid))
        self.state.transaction(tx_id, self._journal.number).xid = xid
        return sequence

    def store_commit(self, tx_id: int) -> int:
        """Everything in the transaction counts; the sequence."""
        sequence = self._journal.append(RecordType.TX_COMMIT, encode_id(tx_id))
        transaction = self.state.transactions.get(tx_id)
        if transaction is not None:
            # references belong to routing while the store is active
            transaction.adds.clear()
            self.state.commit(tx_id)
        return sequence

    def store_rollback(self, tx_id: int) -> int:
        """Nothing in the transaction ever was; the sequence."""
        sequence = self._journal.append(RecordType.TX_ROLLBACK, encode_id(tx_id))
        self.state.roll_back(tx_id)
        return sequence

    # --- turns, disk, end -----------------------------------------------------------------------

    def flush(self, *, gather: bool = False) -> bool:
        """Hand the collected records to the writer if it is free; once per turn.

        Args:
            gather: Allow the log to wait one turn for a larger batch.

        Returns:
            Whether it waits for the next turn.
        """
        if self._segment_began:
            self._segment_began = False
            # the segment before is finished once its seal is durable
            before = self._journal.use.first_sequence - 1
            self.context.when_durable(before, self._consolidator.segment_finished)
        if self.large.leaving:
            self.large.flush()
        waits = self._journal.flush(gather=gather)
        background = self._consolidator.background
        if background.steps is not None:
            background.turn()
        return waits

    def watch(self, directories: Sequence[str]) -> None:
        """Have ``check_disk`` look at these as well: they may lie on other file systems."""
        self._usage.directories = tuple(dict.fromkeys((self._directory, *directories)))

    @property
    def disk_used_percent(self) -> float:
        """Percentage of the log's file system in use at the last scan (disk-scan-period)."""
        return self._usage.used_percent

    @property
    def disk_space(self) -> Space | None:
        """Space of the log's file system at the last scan; None: there was none."""
        return self._usage.space

    def check_disk(self, disk: Disk | None = None) -> None:
        """Compare the disks with ``max-disk-usage`` and ``min-disk-free``, and end a log that has become quiet
        with a mark; every few seconds (disk-scan-period).

        Args:
            disk: Disk of the files, if it is not that of the store.

        Raises:
            DiskFailed: a disk cannot be asked.
        """
        self._usage.look(disk)
        if self._usage.problem and self._journal.empty_pool(self._pool_was_emptied):
            # files that are kept for later segments must not stop a producer
            self._usage.problem = ""
        self._journal.retry()
        self.large.flush()
        self._journal.prune_retention()
        self.quarantine.retry()
        self._update_full()
        if self.full:
            self._consolidator.free_space()
        self._mark()

    def _pool_was_emptied(self, error: BaseException | None) -> None:
        # a disk that gives no answer is reported by the next check
        with suppress(DiskFailed):
            self._usage.look()
        self._update_full()

    def _mark(self) -> None:
        """Prove that the last batch was synced, by a batch after it (docs/build/journal-format.md s. 2.3)."""
        journal = self._journal
        if journal.failure is None and self._marked != journal.sequence == self.context.durable:
            self._marked = journal.append(RecordType.ACKNOWLEDGE, NO_ACKNOWLEDGES)
            journal.flush()

    @property
    def full_reason(self) -> str:
        """Reason for which messages are refused; empty while they are accepted."""
        if not self.full:
            return ""
        return self._usage.problem or f"{self._directory}: no space for the next segment of the journal"

    def _update_full(self) -> None:
        full = bool(self._usage.problem) or self._journal.no_space
        if full == self.full:
            return
        self.full = full
        if full:
            log.warning("the disk is full: messages are refused", extra={"id": "AMQ222210", "reason": self.full_reason})
        else:
            log.info("the disk has space again: messages are accepted")

    def close(self, done: Callable[[], None]) -> None:
        """Write appended records, seal the segment, then call ``done``. Nothing may be stored
        afterwards.
        """
        self.read_back.close()
        self._consolidator.stop()
        self.large.close()
        self.quarantine.close()
        self._journal.close(done)

    # --- segments -------------------------------------------------------------------------------

    def _begin_segment(self, number: int, first_sequence: int) -> SegmentUse:
        self._epochs[number] = self.epoch
        # not now: the journal is in the middle of an append
        self._segment_began = True
        return self.state.begin_segment(number, self.epoch, first_sequence)

    def _forget_segment(self, number: int) -> int | None:
        """Forget a trimmed segment: nothing will be read back from it."""
        self.read_back.forget(number)
        return self._epochs.pop(number, None)
