"""Planning and reading of one table of journals: the part of the source that Spark's planner and its tasks run.

Works without a running Spark: tests call it as Spark does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal import tables
from understudy.spark.journal.blocks import Damage, read_blocks
from understudy.spark.journal.decode import AcknowledgementRows, Block, MessageRows, RecordRows, Rows
from understudy.spark.journal.log_plan import LogPlan, Options, Piece, pack, plan_logs
from understudy.spark.journal.names import Names, binding_records, binding_rows, read_names, snapshot_rows
from understudy.spark.journal.predicates import mask_of, may_match
from understudy.spark.journal.stream_plan import names_by_directory, pieces_between
from understudy.spark.state.changes import change_columns, changes_of_references
from understudy.spark.state.snapshots import reference_rows

#: Columns that need the names of bindings.
_NAMED: Final = frozenset({"address", "queue"})


@dataclass
class JournalPartition(InputPartition):
    """Some segments that follow each other."""

    pieces: tuple[Piece, ...]
    snapshot_of: LogPlan | None = None
    """Log whose snapshot is read; only in table ``bindings``."""
    names: dict[str, Names] | None = None
    """Names of bindings by directory; None: those of the reader."""


class JournalReader(DataSourceReader):
    """Plans and reads one table."""

    def __init__(self, options: Options, schema: StructType, names: dict[str, Names] | None = None) -> None:
        """
        Args:
            schema: Columns to read.
            names: Names of bindings by directory; None: they are read if they are needed.

        Raises:
            ConfigError: a column of the schema is not in the table, or has another type there.
            BrokerError: as ``plan_logs``, if names of bindings are needed.
        """
        self._options = options
        self._columns = schema.names
        tables.ddl(options.table, ",".join(schema.names))
        for given in schema.fields:
            own = tables.TABLES[options.table][given.name]
            if given.dataType.simpleString() != own:
                raise ConfigError(f"column {given.name} of table {options.table} is {own}")
        fields = [StructField(each.name, each.dataType) for each in schema.fields]
        self._schema = to_arrow_schema(StructType(fields), timezone="UTC")
        self._names: dict[str, Names] = names or {}
        self.needs_names = options.table in ("messages", "acknowledgements") and bool(
            _NAMED & {*schema.names, *(each.column for each in options.where)}
        )
        """Whether rows have names of bindings."""
        if self.needs_names and names is None:
            # not in ``partitions``: Spark has serialised the reader for its tasks before it calls that
            if options.range is None:
                self._names = read_names(plan_logs(options), options.mode)
            else:
                self._names = names_by_directory(*pieces_between(options, *options.range))

    def partitions(self) -> Sequence[JournalPartition]:
        """Ranges of segments that may have wanted rows.

        Raises:
            BrokerError: as ``plan_logs``.
        """
        options = self._options
        if options.range is not None:
            pieces, _ = pieces_between(options, *options.range)
            wanted = [piece for piece in pieces if may_match(piece, options.where)]
            found = [JournalPartition(each) for each in pack(wanted, options.partition_bytes, options.min_partitions)]
            return found or [JournalPartition(())]
        plans = plan_logs(options)
        pieces = [
            piece
            for plan in plans
            for piece in plan.pieces[plan.in_snapshot if options.table == "changes" else 0 :]
            if may_match(piece, options.where)
        ]
        found = [JournalPartition(each) for each in pack(pieces, options.partition_bytes, options.min_partitions)]
        if options.table == "references":
            found = []
        if options.table in ("bindings", "changes", "references"):
            found += [JournalPartition((), plan) for plan in plans if plan.snapshot is not None]
        # pyspark turns an empty list into one partition without a value
        return found or [JournalPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition.

        Raises:
            JournalCorrupt: damage in mode FAIL; names file and offset.
        """
        assert isinstance(partition, JournalPartition)
        schema = self._schema
        disk = RealDisk()
        if self._options.table in ("changes", "references") and partition.snapshot_of is not None:
            for found in reference_rows(disk, partition.snapshot_of):
                yield self._batch(found if self._options.table == "references" else changes_of_references(found))
        if self._options.table == "bindings":
            yield from self._bindings(disk, partition)
            return
        for piece in map(self._found, partition.pieces):
            for block in read_blocks(disk, piece, self._options.mode):
                if isinstance(block, Damage):
                    if self._options.table == "records":
                        yield self._batch([_damage_row(block)])
                    continue
                if self._options.table == "changes":
                    changes = change_columns(block)
                    yield pa.RecordBatch.from_arrays([changes[name] for name in self._columns], schema=schema)
                    continue
                rows = self._rows(block, self._names if partition.names is None else partition.names)
                self._drop_rows(rows)
                if len(rows):
                    yield pa.RecordBatch.from_arrays(
                        [_as(rows.column(name), schema.field(name).type) for name in self._columns], schema=schema
                    )

    def _found(self, piece: Piece) -> Piece:
        """The segment where it is now: it may have moved to the retention directory since the query was planned."""
        retention = self._options.retention
        if retention is None or os.path.exists(piece.path):
            return piece
        return replace(piece, directory=retention)

    def _rows(self, block: Block, known: dict[str, Names]) -> Rows:
        names = known.get(block.piece.directory) or Names()
        if self._options.table == "records":
            return RecordRows(block)
        if self._options.table == "messages":
            return MessageRows(block, names.addresses, names.queues)
        return AcknowledgementRows(block, names.queues)

    def _drop_rows(self, rows: Rows) -> None:
        for each in self._options.where:
            if len(rows):
                rows.keep(mask_of(each, rows.column(each.column)))

    def _bindings(self, disk: RealDisk, partition: JournalPartition) -> Iterator[pa.RecordBatch]:
        found: list[dict[str, Any]] = []
        if partition.snapshot_of is not None:
            found += snapshot_rows(disk, partition.snapshot_of)
        for piece in partition.pieces:
            for record in binding_records(disk, piece, self._options.mode):
                found += binding_rows(record)
        if found:
            yield self._batch(found)

    def _batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Rows that were made one by one."""
        columns = [pa.array([row.get(each.name) for row in rows], each.type) for each in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def _damage_row(damage: Damage) -> dict[str, Any]:
    """The row of damaged bytes in table ``records``."""
    piece = damage.piece
    return {
        "directory": piece.directory, "node_id": piece.node_id, "epoch": piece.epoch,
        "sequence": damage.sequence or None, "segment": piece.number, "file": piece.name, "offset": damage.offset,
        "length": damage.length, "logged_from": 1000 * piece.first_ms or None,
        "logged_until": 1000 * piece.sealed_ms or None, "damage": damage.message,
    }  # fmt: skip
