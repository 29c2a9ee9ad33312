"""``understudy.state``: a data source of Spark for jobs on the state of a store.

It reads the rows of ``effects`` of a log that the driver has planned once, so that every pass of a job, and each
repeated task, reads the same bytes, also of a log that grows. It writes references and transactions as the records of
a snapshot have them, in parts that the driver puts together (``PackedParts``).

Not here: the public tables of journals (``journal_source``).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal.blocks import Damage, read_blocks
from understudy.spark.journal.log_plan import PARTITION_BYTES, LogPlan, Mode, Piece, pack
from understudy.spark.state.base_rows import base_rows
from understudy.spark.state.effects import SCHEMA, Netting, SegmentSummary, block_rows
from understudy.spark.state.packing import PACKERS

FORMAT: Final = "understudy.state"
_MANIFEST: Final = "parts.json"


class StateSource(DataSource):
    """The data source ``understudy.state``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> str:
        """Schema with all columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the log in option ``plan``."""
        return _Reader(self.options["plan"], int(self.options["partitions"]), schema)

    def writer(self, schema: StructType, overwrite: bool) -> PartWriter:
        """A writer of parts into the directory of option ``directory``."""
        return PartWriter(self.options["directory"], self.options["table"])


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass
class _Partition(InputPartition):
    pieces: tuple[Piece, ...]
    snapshot: bool = False


class _Reader(DataSourceReader):
    def __init__(self, plan: str, partitions: int, schema: StructType) -> None:
        found = json.loads(plan)
        self._plan = LogPlan(
            found["directory"],
            found["node_id"],
            [Piece(**each) for each in found["pieces"]],
            found["snapshot"],
            found["in_snapshot"],
        )
        self._partitions = partitions
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[_Partition]:
        """Ranges of segments, and the snapshot with which the log begins."""
        pieces = self._plan.pieces[self._plan.in_snapshot :]
        found = [_Partition(each) for each in pack(pieces, PARTITION_BYTES, self._partitions)]
        return [*found, _Partition((), snapshot=True)] if self._plan.snapshot is not None else found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition.

        Raises:
            JournalCorrupt: damage; names file and offset.
        """
        assert isinstance(partition, _Partition)
        disk, netting = RealDisk(), Netting(self._schema)
        if partition.snapshot:
            yield from base_rows(disk, self._plan, self._schema)
        for piece in partition.pieces:
            summary = SegmentSummary(piece)
            for block in read_blocks(disk, piece, Mode.FAIL):
                assert not isinstance(block, Damage), "damage is raised in mode FAIL"
                summary.note(block)
                for batch in block_rows(block, self._schema):
                    yield from netting.add(batch)
            yield summary.row(self._schema)
        yield from netting.flush()


def read_state(spark: SparkSession, plan: LogPlan) -> DataFrame:
    """The rows of ``effects`` of a log.

    Args:
        spark: A session of ``open_session``.
        plan: Result of ``log_plan.plan_logs``; bytes that are appended later are not read.
    """
    spark.dataSource.register(StateSource)
    return (
        spark.read.format(FORMAT)
        .option("plan", json.dumps(asdict(plan)))
        .option("partitions", str(spark.sparkContext.defaultParallelism))
        .load()
    )


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass
class _Part(WriterCommitMessage):
    partition: int
    name: str
    items: int
    size: int


class PartWriter(DataSourceArrowWriter):
    """Writes each partition, in the order of its rows, to a file of its own. A repeated task writes another file."""

    def __init__(self, directory: str, table: str) -> None:
        self._directory = directory
        self._table = table

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Part:
        """Write one partition.

        Raises:
            OSError: the file cannot be written.
        """
        context = TaskContext.get()
        assert context is not None, "called in a task"
        name = f"{self._table}-{uuid.uuid4().hex}"
        path = Path(self._directory) / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            items = PACKERS[self._table](iterator, file.write)
        return _Part(context.partitionId(), name, items, path.stat().st_size)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """List the parts of the tasks that succeeded."""
        found = sorted((each for each in messages if isinstance(each, _Part)), key=lambda each: each.partition)
        text = json.dumps([asdict(each) for each in found])
        (Path(self._directory) / f"{self._table}-{_MANIFEST}").write_text(text)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the job removes the directory of an aborted write."""


@dataclass(frozen=True, slots=True)
class PackedParts:
    """Parts that a query has written, in order."""

    paths: tuple[Path, ...]
    items: int
    """Number of references, or of transactions."""

    def chunks(self, size: int) -> Iterator[bytes]:
        """All bytes in pieces of ``size``, the last one perhaps shorter."""
        rest = b""
        for path in self.paths:
            with path.open("rb") as file:
                while data := file.read(size - len(rest)):
                    rest += data
                    if len(rest) == size:
                        yield rest
                        rest = b""
        if rest:
            yield rest

    def framed(self) -> Iterator[bytes]:
        """Values that were written with their lengths (``packing.pack_transactions``)."""
        for path in self.paths:
            with path.open("rb") as file:
                while head := file.read(4):
                    yield file.read(int.from_bytes(head, "little"))


def write_parts(frame: DataFrame, directory: Path, table: str) -> PackedParts:
    """Write the rows of a sorted frame as parts.

    Args:
        frame: Frame with the columns that the packer of the table wants, in the order of the partitions.
        directory: Exists, and every worker sees it.
        table: ``references`` or ``transactions``.

    Raises:
        BrokerError: a part is not in the directory as its task wrote it: the workers see another file system.
    """
    writer = frame.write.format(FORMAT).mode("append").option("directory", str(directory)).option("table", table)
    writer.save()
    try:
        found: list[dict[str, Any]] = json.loads((directory / f"{table}-{_MANIFEST}").read_text())
        paths = tuple(directory / each["name"] for each in found)
        whole = all(path.stat().st_size == each["size"] for path, each in zip(paths, found, strict=True))
    except FileNotFoundError:
        whole = False
    if not whole:
        raise BrokerError(
            f"{directory}: parts that workers wrote are missing", hint="the output must be on a file system they share"
        )
    return PackedParts(paths, sum(each["items"] for each in found))


Packer = Callable[[Iterator[pa.RecordBatch], Callable[[bytes], object]], int]
