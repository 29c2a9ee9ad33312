"""The store that a salvage writes: the readable messages, with addresses, queues, settings, duplicate ids and prepared
transactions, of the same node and with a newer epoch, so that no id is given out twice (ADR 0020).
"""

from __future__ import annotations

from typing import Final

from understudy.errors import DiskFailed, DiskFull
from understudy.ids import NodeId
from understudy.message import LargeMessage, Message
from understudy.ports import Clock, Disk
from understudy.store.log.reading.follower import Follower
from understudy.store.log.records import MESSAGE_LARGE, MessageRecord
from understudy.store.log.segment import NEW_SUFFIX, segment_name
from understudy.store.messages.large_messages import LargeMessages
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.store.messages.reference import MessageReference
from understudy.store.session_numbers import NO_ADDRESS
from understudy.store.settings import StoreSettings
from understudy.tools.salvage import ID_CACHE_SIZE, Salvage
from understudy.tools.step_writer import stepped

#: Bytes appended to the new store before they are written.
_BACKLOG_BYTES: Final = 4 * 1024 * 1024


def write(salvage: Salvage, disk: Disk, directory: str, large_directory: str, clock: Clock, node_id: NodeId) -> None:
    """Write what ``salvage.read`` has found into a new store.

    Args:
        disk: Where the new one will be.
        directory: Directory of its journal, empty.
        large_directory: Directory of the bodies of its large messages.
        clock: Used for times in the log.

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
            Follower(disk, directory, id_cache_size=ID_CACHE_SIZE),
            files=log,
            clock=clock,
            node_id=node_id,
            owner=StoreOwner(self._failures.append),
            settings=StoreSettings(compact_segments_min=0, id_cache_size=ID_CACHE_SIZE, disk_usage_percent_max=-1),
            large=LargeMessages(bodies.applier, self._bodies, clock),
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
        store.store_duplicate_ids(NO_ADDRESS, list(state.session_numbers.ids()))
        for queue_id, reference, record in salvage.messages():
            self._store_message(queue_id, reference, record, 0)
            backlog = state.references.get(queue_id)
            not_before_ms = backlog.redeliveries.get(reference.message_id, 0) if backlog is not None else 0
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
        message = (LargeMessage if large else Message).decode(record.encoded, trusted=True)
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
        source = self._salvage.open_body(large)
        self._disk.make_directory(self._large_directory)
        target = self._disk.open(f"{self._large_directory}/{name}", create=True)
        try:
            source.copy_into(target)
        finally:
            target.close()
        self._disk.sync_directory(self._large_directory)

    def _settle_some(self) -> None:
        if self._store.backlog_bytes > _BACKLOG_BYTES:
            self._settle()

    def _settle(self) -> None:
        """Wait until everything is on the medium."""
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
