"""Rows as the bytes that a snapshot has: references back to back, and the records of open transactions.

The encoders are those of the store (``store.snapshots.snapshot``). Called by tasks (``state_source``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from understudy.store.log.records import RecordType
from understudy.store.messages.reference import pack_location, reference_to
from understudy.store.snapshots.snapshot import REFERENCE, PartType, small_parts
from understudy.store.state import StoreState, TransactionRecord

#: Columns of a reference, in the order in which a snapshot packs them.
REFERENCE_COLUMNS: Final = (
    "queue_id", "message_id", "expiration", "scheduled", "segment", "offset", "length", "size", "count", "priority",
    "file_id",
)  # fmt: skip
#: Columns of a row of an open transaction.
TRANSACTION_COLUMNS: Final = (
    "transaction_id", "first_segment", "xid", "prepared", "kind", "address_id", "value", *REFERENCE_COLUMNS,
)  # fmt: skip

Write = Callable[[bytes], object]
_Row = dict[str, Any]


def pack_references(batches: Iterator[pa.RecordBatch], write: Write) -> int:
    """Write references in packed form and return their number."""
    count = 0
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in REFERENCE_COLUMNS]
        write(b"".join(map(REFERENCE.pack, *columns)))
        count += len(batch)
    return count


def pack_transactions(batches: Iterator[pa.RecordBatch], write: Write) -> int:
    """Write the payloads of TRANSACTION records, each after its length (u32); the number of transactions.

    Rows of one transaction follow each other, in the order of the log.
    """
    count = 0
    for _, rows in groupby(_rows(batches), key=lambda row: row["transaction_id"]):
        state = StoreState()
        transaction = _transaction(state, rows)
        for kind, payload in small_parts(state, {}):
            if kind is PartType.TRANSACTION:
                write(len(payload).to_bytes(4, "little") + payload)
        count += 1
        transaction.adds.clear()
    return count


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        yield from batch.to_pylist()


def _transaction(state: StoreState, rows: Iterator[_Row]) -> TransactionRecord:
    transaction = None
    for row in rows:
        if transaction is None:
            transaction = state.transaction(row["transaction_id"], row["first_segment"])
            transaction.xid = row["xid"] if row["prepared"] else None
        if row["kind"] == RecordType.ACKNOWLEDGE:
            transaction.acknowledges.add(row["queue_id"], row["message_id"])
        elif row["kind"] == RecordType.DUPLICATE_ID:
            transaction.duplicate_ids.append((row["address_id"], row["value"]))
        elif row["kind"] == RecordType.MESSAGE_ADD:
            reference = reference_to(
                row["file_id"] or None, row["message_id"], row["priority"], row["expiration"], row["scheduled"],
                row["size"], True, pack_location(row["segment"], row["offset"], row["length"]),
            )  # fmt: skip
            transaction.adds.append(row["queue_id"], reference)
    assert transaction is not None, "a group has rows"
    return transaction


PACKERS: Final[dict[str, Callable[[Iterator[pa.RecordBatch], Write], int]]] = {
    "references": pack_references,
    "transactions": pack_transactions,
}
