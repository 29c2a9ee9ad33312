"""Records of a log as rows of their effects on the state of a store, for the jobs that work out that state.

One pass gives everything: messages and acknowledgements per queue, moves, delivery counts, duplicate ids, decisions of
transactions, binding records as they are, and a summary of each segment. Messages that were added and acknowledged in
the same part of the log, both outside of transactions, leave no row (``Netting``).

Not here: the state that the rows make together (``state_rows``, ``small_state``), finding the records (``blocks``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from understudy.spark.journal.decode import AcknowledgementRows, Block, MessageRows
from understudy.spark.journal.log_plan import Piece
from understudy.store.log.records import MESSAGE_LARGE, RecordType

#: Columns and their types in Spark's DDL. Those that a kind of row does not have are null.
SCHEMA: Final = (
    "kind tinyint, epoch bigint, sequence bigint, place int, segment bigint, offset bigint, length bigint,"
    " queue_id bigint, message_id bigint, transaction_id bigint, address_id bigint, priority tinyint,"
    " expiration bigint, scheduled bigint, size bigint, count bigint, file_id bigint, value binary"
)
#: Kinds of rows are record types. SEAL: one row for each segment, whether it has a seal or not (``summary``).
SEGMENT: Final = int(RecordType.SEAL)
#: And one that is no record type of the log: a message in a queue of the snapshot with which the log begins.
REFERENCE: Final = 36
#: Likewise: an open transaction in that snapshot; ``segment`` is that of its first record.
TRANSACTION: Final = 35
#: Record types that are rare; their rows have the payload in ``value`` and the flags in ``count``.
SMALL: Final = (
    RecordType.EPOCH, RecordType.CHECKPOINT, RecordType.TRIM, RecordType.ADDRESS_ADD, RecordType.ADDRESS_REMOVE,
    RecordType.QUEUE_ADD, RecordType.QUEUE_REMOVE, RecordType.SETTING, RecordType.SNAPSHOT, RecordType.SEGMENTS_DROP,
)  # fmt: skip
#: Messages are netted against acknowledgements within so many rows, or one segment.
CHUNK_ROWS: Final = 500_000
_DECISIONS: Final = (RecordType.TX_PREPARE, RecordType.TX_COMMIT, RecordType.TX_ROLLBACK)
#: Offsets in records.
_SEQUENCE, _BATCH, _FLAGS = 8, 16, 21
_EXPIRATION, _SCHEDULED, _MOVED_FROM, _REDELIVERY = 48, 56, 32, 48
#: In an encoded message, of the id of the file of a large message.
_FILE_ID: Final = 4

Columns = dict[str, pa.Array]


class _Adds(MessageRows):
    """Messages, with the fields as the log has them."""

    def __init__(self, block: Block, kind: RecordType) -> None:
        super().__init__(block, {}, {}, (kind,))

    def first(self) -> pa.Array:
        """Whether a row is the first of its record."""
        return _changes(self.starts)

    def place(self) -> pa.Array:
        """Number of the row among those of its record."""
        rows = pa.array(range(len(self)), pa.int64())
        return pc.subtract(rows, pc.cumulative_max(pc.if_else(self.first(), rows, 0)))

    def references(self) -> Columns:
        """References of the records: a row for each message in each queue."""
        names = ("sequence", "offset", "length", "queue_id", "message_id", "transaction_id", "address_id", "priority")
        return {name: self.column(name) for name in names} | {
            "place": self.place(),
            "expiration": self._field(_EXPIRATION, 8),
            "scheduled": self._field(_SCHEDULED, 8),
            "size": self.column("size"),
            "file_id": self._file_id(),
        }

    def _file_id(self) -> pa.Array:
        large = pc.not_equal(pc.bit_wise_and(self._field(65, 1), MESSAGE_LARGE), 0)
        if not pc.any(large, min_count=0).as_py():
            return pa.nulls(len(self), pa.int64())
        # of other messages these are bytes of the header of the record, which are not used
        at = pc.if_else(large, pc.add(self._at_message, _FILE_ID), self.starts)
        found = self._once(at, lambda where: self.block.little(where, 0, 8))
        return pc.if_else(large, found, pa.scalar(None, pa.int64()))

    def duplicate_ids(self) -> Columns:
        """Duplicate ids of the messages that have one."""
        names = ("sequence", "transaction_id", "address_id")
        values = self.column("duplicate_id")
        wanted = pc.and_(pc.is_valid(values), self.first())
        return {name: self.column(name).filter(wanted) for name in names} | {"value": values.filter(wanted)}

    def moves(self) -> Columns:
        """Each message once, with its source: ``segment number << 32 | offset``."""
        first = self.first()
        found = {name: self.column(name).filter(first) for name in ("sequence", "offset", "length", "message_id")}
        return found | {"transaction_id": self._field(_MOVED_FROM, 8).filter(first)}


def _changes(starts: pa.Array) -> pa.Array:
    return pc.not_equal(starts, pa.concat_arrays([pa.array([-1], starts.type), starts])[:-1])


def block_rows(block: Block, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the records in one block.

    Raises:
        JournalCorrupt: a record that cannot be.
    """
    adds = _Adds(block, RecordType.MESSAGE_ADD)
    if len(adds):
        yield _batch(schema, block, RecordType.MESSAGE_ADD, adds.references())
        yield _batch(schema, block, RecordType.DUPLICATE_ID, adds.duplicate_ids())
    moves = _Adds(block, RecordType.MESSAGE_MOVE)
    if len(moves):
        yield _batch(schema, block, RecordType.MESSAGE_MOVE, moves.moves())
    acknowledgements = AcknowledgementRows(block, {})
    if len(acknowledgements):
        names = ("sequence", "queue_id", "transaction_id", "message_id")
        columns = {name: acknowledgements.column(name) for name in names}
        columns["place"] = pa.array(range(len(acknowledgements)), pa.int64())
        yield _batch(schema, block, RecordType.ACKNOWLEDGE, columns)
    for kind in (RecordType.DELIVERY_COUNT, RecordType.DUPLICATE_ID, *_DECISIONS, *SMALL):
        starts, ends = block.select(kind)
        if len(starts):
            columns = {"sequence": block.little(starts, _SEQUENCE, 8)} | _rare(block, kind, starts, ends)
            yield _batch(schema, block, kind, columns)


def _rare(block: Block, kind: RecordType, starts: pa.Array, ends: pa.Array) -> Columns:
    def number(at: int, width: int = 8) -> pa.Array:
        return block.little(starts, at, width)

    def rest(at: int) -> pa.Array:
        return block.cut(pc.add(starts, at), ends)

    if kind is RecordType.DELIVERY_COUNT:
        waits = pc.greater(pc.subtract(ends, starts), _REDELIVERY)
        redelivery = block.little(pc.if_else(waits, pc.add(starts, _REDELIVERY), starts), 0, 8)
        return {
            "queue_id": number(24), "message_id": number(32), "count": number(40, 4),
            "scheduled": pc.if_else(waits, redelivery, pa.scalar(None, redelivery.type)),
        }  # fmt: skip
    if kind is RecordType.DUPLICATE_ID:
        tx_ids = number(32)
        transactions = pc.if_else(pc.equal(tx_ids, 0), pa.scalar(None, pa.int64()), tx_ids)
        return {"address_id": number(24), "transaction_id": transactions, "value": rest(40)}
    if kind is RecordType.TX_PREPARE:
        return {"transaction_id": number(24), "value": rest(32)}
    if kind in _DECISIONS:
        return {"transaction_id": number(24)}
    return {"count": number(_FLAGS, 1), "value": rest(24), "length": pc.subtract(ends, starts)}


def _batch(schema: pa.Schema, block: Block, kind: RecordType, columns: Columns) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    same: dict[str, Any] = {"kind": int(kind), "epoch": block.piece.epoch, "segment": block.piece.number}
    return make_batch(schema, count, columns, same)


def make_batch(schema: pa.Schema, count: int, columns: Columns, same: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch of ``count`` rows: columns, one value for all rows, or null."""
    arrays = []
    for field in schema:
        if field.name in columns:
            arrays.append(columns[field.name].cast(field.type))
        elif field.name in same:
            arrays.append(pa.repeat(pa.scalar(same[field.name], field.type), count))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class SegmentSummary:
    """Facts of one segment that a store keeps: the range of message ids, and its last record."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self._ids: list[int] = []
        self._first = self._last = self._end = self._batch = 0

    def note(self, block: Block) -> None:
        """Add a block of the records of the segment."""
        sequences = block.little(block.starts, _SEQUENCE, 8)
        self._first = self._first or sequences[0].as_py()
        self._last = sequences[-1].as_py()
        self._end = block.origin + block.data.size
        self._batch = block.little(block.starts[-1:], _BATCH, 4)[0].as_py()
        starts, _ = block.select(RecordType.MESSAGE_ADD, RecordType.MESSAGE_MOVE)
        if len(starts):
            bounds = pc.min_max(block.little(starts, 24, 8)).as_py()
            self._ids += [bounds["min"], bounds["max"]]

    def row(self, schema: pa.Schema) -> pa.RecordBatch:
        """The row: first and last sequence in ``file_id`` and ``sequence``, the end in ``offset``, the batch of the
        last record in ``count``, message ids in ``message_id`` and ``address_id``, 0 for none.
        """
        piece = self._piece
        found = {
            "kind": SEGMENT, "epoch": piece.epoch, "segment": piece.number, "sequence": self._last,
            "file_id": self._first, "offset": self._end, "count": self._batch,
            "message_id": min(self._ids, default=0), "address_id": max(self._ids, default=0),
        }  # fmt: skip
        return make_batch(schema, 1, {}, found)


class Netting:
    """Leaves out messages with their acknowledgements, if both came here and neither is of a transaction."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Some rows of one kind; gives those that are not held."""
        kind = batch.column("kind")[0].as_py() if len(batch) else None
        if kind not in (RecordType.MESSAGE_ADD, RecordType.ACKNOWLEDGE):
            if len(batch):
                yield batch
            return
        self._held.append(batch)
        self._rows += len(batch)
        if self._rows >= CHUNK_ROWS:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The rows held that are left."""
        held, self._held, self._rows = self._held, [], 0
        if not held:
            return
        table = pa.Table.from_batches(held, schema=self._schema).combine_chunks()
        outside = pc.is_null(table["transaction_id"])
        adds = pc.equal(table["kind"], int(RecordType.MESSAGE_ADD))
        keys = _pairs(table["queue_id"], table["message_id"])
        added = keys.filter(pc.and_(adds, outside).combine_chunks())
        acknowledged = keys.filter(pc.and_(pc.invert(adds), outside).combine_chunks())
        other_side = pc.if_else(
            adds.combine_chunks(),
            pc.is_in(keys, value_set=acknowledged),
            pc.is_in(keys, value_set=added),
        )
        left = pc.invert(pc.and_(other_side, outside.combine_chunks()))
        yield from table.filter(left).to_batches()


def _pairs(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.Array:
    """Two numbers as one value of 16 bytes."""
    both = array("q", bytes(16 * len(first)))
    both[0::2], both[1::2] = _numbers(first), _numbers(second)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(first), [None, pa.py_buffer(both)])


def _numbers(column: pa.ChunkedArray) -> array[int]:
    found = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.int64())
    return array("q", bytes(found.buffers()[1])[8 * found.offset : 8 * (found.offset + len(found))])
