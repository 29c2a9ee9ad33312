"""The streaming source: ``spark.readStream.format("understudy.journal")`` (docs/use/pipeline.md).

Spark asks one object for offsets and partitions, in a process of its own beside the driver; tasks read partitions with
the code of the batch source. Rows of a batch depend on its two offsets only, so that a batch that is repeated after a
crash has the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from understudy.errors import ConnectionFailed
from understudy.runtime.base.disk import RealDisk
from understudy.spark.journal.broker_positions import ActiveNode
from understudy.spark.journal.log_plan import pack
from understudy.spark.journal.reader import JournalPartition, JournalReader
from understudy.spark.journal.stream_offsets import StreamOffset, parse_offset
from understudy.spark.journal.stream_options import StreamOptions
from understudy.spark.journal.stream_plan import StreamPlan, names_by_directory

log = logging.getLogger(__name__)


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of one table of the journal."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        """
        Raises:
            ConfigError: as ``JournalReader``; the token of the servers cannot be read.
        """
        self._options = options
        self._rows = JournalReader(options.table, schema, names={})
        self._plan: StreamPlan | None = None
        self._active: ActiveNode | None = None
        self._uncommitted: StreamOffset | None = None
        """Processed, and not committed to the broker because no node was active."""
        self._registered = False

    @property
    def plan(self) -> StreamPlan:
        """Plan of the stream, made at the first use: tasks have a copy of the stream and need no plan."""
        if self._plan is None:
            options = self._options
            if options.servers:
                self._active = ActiveNode(options.servers, options.token_file)
            self._plan = StreamPlan(options, RealDisk(), self._active)
        return self._plan

    # --- offsets ------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  the names are pyspark's
        """Position at which a new query begins: that of the named reader if it exists."""
        options, plan = self._options, self.plan
        first = plan.first(options.starting)
        if options.reader is not None and self._active is not None:
            held = self._active.register(options.reader, first.as_json(), options.reader_max_bytes)
            self._registered = True
            if held.sequence != first.sequence:
                first = plan.first(held)
        return first.as_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; ``start`` if there is nothing to read, also while no node is active."""
        offset = parse_offset(start)
        self._commit_again()
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return self.plan.latest(offset, bytes_max).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limit of the option ``maxBytesPerBatch``."""
        return ReadMaxBytes(self._options.batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the present end only."""
        plan = self.plan
        plan.target = None
        plan.target = plan.first("latest")

    # --- reading ------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[JournalPartition]:
        """Ranges of segments between two offsets."""
        first, last = parse_offset(start), parse_offset(end)
        if last.sequence <= first.sequence:
            return []
        options = self._options.table
        pieces, names = self.plan.pieces(first, last)
        known = names_by_directory(pieces, names) if self._rows.needs_names else None
        return [
            JournalPartition(each, names=known)
            for each in pack(pieces, options.partition_bytes, options.min_partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition.

        Raises:
            JournalCorrupt: damage, or a segment that is gone; names the file.
        """
        assert isinstance(partition, JournalPartition)
        yield from self._rows.read(partition)

    # --- the named reader ---------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to the offset was processed: commit it to the broker.

        Raises:
            ManagementError: the broker refuses; names the reader.
        """
        if self._options.reader is not None:
            self._uncommitted = parse_offset(end)
            self._commit_again()

    def _commit_again(self) -> None:
        reader, offset = self._options.reader, self._uncommitted
        plan = self.plan
        if reader is None or offset is None or self._active is None:
            return
        assert plan is not None
        try:
            self._active.commit(reader, offset)
        except ConnectionFailed as error:
            log.warning("the position is committed later", extra={"reader": reader, "error": str(error)})
            return
        self._uncommitted = None
