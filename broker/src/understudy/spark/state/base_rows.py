"""The state in the snapshot with which a log begins, as rows of ``effects``: their sequence is 0.

References have kind REFERENCE and their number in ``address_id``. Rows of open transactions have the kinds of the
records that they came from, and their order in ``place``; the bindings are read by the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa

from understudy.ports import Disk
from understudy.spark.journal.log_plan import LogPlan
from understudy.spark.state.effects import REFERENCE, TRANSACTION
from understudy.store.log.records import RecordType
from understudy.store.messages.reference import LargeReference, MessageReference, unpack_location
from understudy.store.snapshots.snapshot import (
    PartType,
    SnapshotReader,
    apply_part,
    decode_references,
    read_snapshot_header,
)
from understudy.store.state import StoreState

Row = dict[str, Any]


def base_rows(disk: Disk, plan: LogPlan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the snapshot of a plan.

    Raises:
        JournalCorrupt: the snapshot is damaged; names file and offset.
    """
    assert plan.snapshot is not None
    file = disk.open(f"{plan.directory}/{plan.snapshot}", read_only=True)
    try:
        header = read_snapshot_header(file, plan.snapshot)
        epoch = header.segment_epoch
        reader, numbers, places = SnapshotReader(file.path, header), count(), count()
        while reader.end is None:
            for kind, payload in reader.feed(file.read(reader.offset, reader.want)):
                rows: list[Row] = []
                if kind is PartType.REFERENCES:
                    for queue_id, reference in decode_references(payload):
                        rows.append(_reference(REFERENCE, queue_id, reference) | {"address_id": next(numbers)})
                elif kind is PartType.TRANSACTION:
                    rows = [each | {"place": next(places)} for each in _transaction(payload)]
                if rows:
                    yield _batch(schema, [each | {"epoch": epoch, "sequence": 0} for each in rows])
    finally:
        file.close()


def _batch(schema: pa.Schema, rows: list[Row]) -> pa.RecordBatch:
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _reference(kind: int, queue_id: int, reference: MessageReference) -> Row:
    assert reference.location is not None, "a reference in a snapshot has a location"
    segment, offset, length = unpack_location(reference.location)
    return {
        "kind": kind, "queue_id": queue_id, "message_id": reference.message_id, "expiration": reference.expiration,
        "scheduled": reference.scheduled_ms, "segment": segment, "offset": offset, "length": length,
        "size": reference.size_bytes, "count": reference.delivery_count, "priority": reference.priority,
        "file_id": reference.file_id if isinstance(reference, LargeReference) else None,
    }  # fmt: skip


def _transaction(payload: bytes) -> Iterator[Row]:
    state = StoreState()
    apply_part(state, PartType.TRANSACTION, payload)
    for transaction in state.transactions.values():
        same = {"transaction_id": transaction.tx_id}
        yield same | {"kind": TRANSACTION, "segment": transaction.first_segment}
        if transaction.prepared:
            yield same | {"kind": int(RecordType.TX_PREPARE), "value": transaction.xid}
        for queue_id, reference in transaction.adds:
            yield same | _reference(int(RecordType.MESSAGE_ADD), queue_id, reference)
        for queue_id, message_id in transaction.acknowledges:
            yield same | {"kind": int(RecordType.ACKNOWLEDGE), "queue_id": queue_id, "message_id": message_id}
        for address_id, duplicate_id in transaction.duplicate_ids:
            yield same | {"kind": int(RecordType.DUPLICATE_ID), "address_id": address_id, "value": duplicate_id}
