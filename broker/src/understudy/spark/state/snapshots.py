"""Rows of table ``references``: messages in queues and in open transactions in the snapshot of a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from understudy.ports import Disk
from understudy.spark.journal.log_plan import LogPlan
from understudy.store.messages.reference import LargeReference, MessageReference, unpack_location
from understudy.store.snapshots.snapshot import (
    PartType,
    SnapshotReader,
    apply_part,
    decode_references,
    read_snapshot_header,
)
from understudy.store.state import StoreState

#: Times from here on have no date that Spark knows (the year 10,000). Epoch milliseconds.
TIME_MS_END: Final = 253_402_300_800_000

Row = dict[str, Any]


def reference_rows(disk: Disk, plan: LogPlan) -> Iterator[list[Row]]:
    """The rows of a snapshot, some at a time; none of a log without one.

    Raises:
        JournalCorrupt: the snapshot is damaged; names file and offset.
    """
    if plan.snapshot is None:
        return
    file = disk.open(f"{plan.directory}/{plan.snapshot}", read_only=True)
    try:
        header = read_snapshot_header(file, plan.snapshot)
        place = {
            "directory": plan.directory,
            "node_id": plan.node_id,
            "epoch": header.epoch,
            "sequence": header.sequence,
            "file": plan.snapshot,
            "logged_until": 1000 * header.created_ms or None,
        }
        reader = SnapshotReader(file.path, header)
        while reader.end is None:
            for kind, payload in reader.feed(file.read(reader.offset, reader.want)):
                if kind is PartType.REFERENCES:
                    yield [place | _row(queue_id, reference) for queue_id, reference in decode_references(payload)]
                elif kind is PartType.TRANSACTION:
                    yield [place | row for row in _transaction(payload)]
    finally:
        file.close()


def _row(queue_id: int, reference: MessageReference) -> Row:
    assert reference.location is not None, "a reference in a snapshot has a location"
    number, offset, length = unpack_location(reference.location)
    return {
        "queue_id": queue_id,
        "message_id": reference.message_id,
        "acknowledged": False,
        "segment": number,
        "offset": offset,
        "length": length,
        "size": reference.size_bytes,
        "priority": reference.priority,
        "delivery_count": reference.delivery_count,
        "expiration": _time(reference.expiration),
        "scheduled": _time(reference.scheduled_ms),
        "large_file_id": reference.file_id if isinstance(reference, LargeReference) else None,
    }


def _transaction(payload: bytes) -> Iterator[Row]:
    state = StoreState()
    apply_part(state, PartType.TRANSACTION, payload)
    for transaction in state.transactions.values():
        for queue_id, reference in transaction.adds:
            yield _row(queue_id, reference) | {"transaction_id": transaction.tx_id}
        for queue_id, message_id in transaction.acknowledges:
            yield {
                "queue_id": queue_id,
                "message_id": message_id,
                "acknowledged": True,
                "transaction_id": transaction.tx_id,
            }


def _time(milliseconds: int) -> int | None:
    """Microseconds; None for 0 and for times that are none (a client may send any number)."""
    return 1000 * milliseconds if 0 < milliseconds < TIME_MS_END else None
