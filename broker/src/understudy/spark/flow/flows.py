"""Job ``flow``: the movement of messages in journals, what keeps their disks in use, and when disks will be full.

The stores are only read. Everything that grows with messages is worked out by Spark (``flow_rows``); the driver gets
numbers per queue, address, segment and interval.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.local_paths import local_path
from understudy.runtime.base.disk import RealDisk
from understudy.spark.base.driver_rows import frame_of
from understudy.spark.flow import rows as flow_rows
from understudy.spark.flow.forecasts import forecast_disk, forecast_take_over, free_bytes_of, used_bytes_of
from understudy.spark.flow.report import Axis, Series, assemble, stretches
from understudy.spark.flow.tables import write_tables
from understudy.spark.journal.log_plan import LogPlan, Mode, parse_options, plan_logs
from understudy.spark.journal.names import read_names
from understudy.spark.journal.source import read_journal
from understudy.store.log.records import RecordType

#: Intervals of a series, about, if their length is not given.
INTERVALS: Final = 300
#: Names of store-and-forward queues begin so: internal-naming-prefix and ``sf.``, of Understudy and of Artemis.
FORWARDING_PREFIXES: Final = ("$.activemq.internal.sf.", "$.artemis.internal.sf.")

#: Columns of the place of a record, and of its message.
_PLACE: Final = ("directory", "segment", "offset", "length")
_IDS: Final = ("queue_id", "message_id", "transaction_id")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run."""

    many_nodes: bool = False
    in_use: bool = False
    bucket_ms: int | None = None
    """Length of an interval; None for about ``INTERVALS`` of them."""
    capacity: int | None = None
    """Bytes that each journal may use; None for the free space of its file system."""
    replay_bytes_s: float | None = None
    """Bytes that a backup replays in a second; None to measure it here."""
    forwarding_prefixes: tuple[str, ...] = FORWARDING_PREFIXES
    listed: int = 20
    """Addresses, queues and segments that are listed, the greatest first."""
    tables: Path | None = None
    """Directory for all figures as Parquet (``flow_tables``)."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The result of a run."""

    report: dict[str, Any]
    """The report for ``--json``."""
    series: Series
    """Series for the page."""


def flow(
    spark: SparkSession,
    directories: Sequence[str],
    settings: Settings | None = None,
    progress: Progress = lambda doing: None,
) -> Flow:
    """Measure the movement of messages in journals.

    Args:
        spark: A session of ``open_session``.
        directories: Directories of journals, of different nodes with ``many_nodes``. Only read.
        settings: Options.
        progress: Called with each step.

    Raises:
        StoreError: a journal cannot be read.
        ConfigError: a journal is empty.
    """
    journals = [os.path.abspath(local_path(each, "a journal")) for each in directories]
    return _Run(spark, journals, settings or Settings(), progress).run()


class _Run:
    """One run of the job."""

    def __init__(self, spark: SparkSession, directories: Sequence[str], settings: Settings, progress: Progress) -> None:
        self._spark = spark
        self._directories = directories
        self._settings = settings
        self._progress = progress
        self._options = {
            "nodes": "many" if settings.many_nodes else "one",
            "inUse": "read" if settings.in_use else "refuse",
        }

    def run(self) -> Flow:
        """Everything."""
        plans = plan_logs(parse_options({"paths": json.dumps(self._directories), **self._options}))
        for plan in plans:
            if not plan.pieces:
                raise ConfigError(f"{plan.directory} has no records")
        self._progress("reading the journals")
        read = self._table("messages", *_PLACE, *_IDS, "address_id", "moved", "size", "timestamp", "user_id")
        with _kept(read) as messages:
            times = self._times(plans, messages)
            adds = flow_rows.with_time(messages, times)
            records = flow_rows.with_time(self._table("records", *_PLACE, "kind", "transaction_id"), times)
            with _kept(self._stays(adds, records, times)) as stays:
                return self._report(plans, times, adds, records, stays)

    def _stays(self, adds: DataFrame, records: DataFrame, times: Sequence[flow_rows.SegmentTime]) -> DataFrame:
        """Times of each message in each queue: its arrival and its end."""
        acknowledgements = flow_rows.with_time(self._table("acknowledgements", *_PLACE, *_IDS), times)
        commits = records.where(F.col("kind") == RecordType.TX_COMMIT.name)
        held = self._table("references", *_PLACE, *_IDS, "size", "acknowledged")
        # messages of transactions that were open in the snapshot count from the commit on
        unknown = F.lit(None).cast("bigint").alias("at_ms")
        staged = held.where("transaction_id IS NOT NULL")
        columns = (*_PLACE, *_IDS, "size", "moved", "at_ms")
        staged_adds = staged.where("NOT acknowledged").select(
            *_PLACE, *_IDS, "size", F.lit(False).alias("moved"), unknown
        )
        return flow_rows.stays(
            adds.select(*columns).unionByName(staged_adds),
            acknowledgements.unionByName(staged.where("acknowledged").select(*_PLACE, *_IDS, unknown)),
            commits.select("directory", "transaction_id", "at_ms"),
            self._removed(times),
            held.where("transaction_id IS NULL AND NOT acknowledged"),
        )

    def _table(self, name: str, *columns: str, where: Sequence[tuple[str, str, Any]] = ()) -> DataFrame:
        return read_journal(self._spark, self._directories, name, list(columns), where, **self._options)

    def _times(self, plans: Sequence[LogPlan], messages: DataFrame) -> list[flow_rows.SegmentTime]:
        greatest = messages.where("NOT moved").groupBy("directory", "segment")
        newest: dict[str, dict[int, int]] = {}
        for row in greatest.agg(F.unix_millis(F.max("timestamp")).alias("at_ms")).collect():
            newest.setdefault(row["directory"], {})[row["segment"]] = row["at_ms"] or 0
        ends = {(plan.directory, piece.number): piece.end for plan in plans for piece in plan.pieces}
        sent = flow_rows.sent_times(messages, ends)

        def of(plan: LogPlan) -> list[flow_rows.SegmentTime]:
            own = {segment: slices for (directory, segment), slices in sent.items() if directory == plan.directory}
            return flow_rows.segment_times(plan, newest.get(plan.directory, {}), own)

        return [each for plan in plans for each in of(plan)]

    def _removed(self, times: Sequence[flow_rows.SegmentTime]) -> DataFrame:
        """Queues that were removed, with the time."""
        # payloads of other records are not copied
        removals = self._table("records", *_PLACE, "payload", where=[("kind", "=", RecordType.QUEUE_REMOVE.name)])
        gone = flow_rows.with_time(removals, times)
        digits = F.concat(*(F.substring(F.hex("payload"), 15 - 2 * place, 2) for place in range(8)))
        queue_id = F.conv(digits, 16, 10).cast("bigint")
        return gone.groupBy("directory", queue_id.alias("queue_id")).agg(F.max("at_ms").alias("gone_ms"))

    def _axis(self, times: Sequence[flow_rows.SegmentTime]) -> Axis:
        begin, end = min(each.begin_ms for each in times), max(each.end_ms for each in times)
        bucket_ms = self._settings.bucket_ms or max((end - begin) // INTERVALS, 1000)
        return Axis(begin, end, bucket_ms)

    def _report(
        self,
        plans: Sequence[LogPlan],
        times: Sequence[flow_rows.SegmentTime],
        adds: DataFrame,
        records: DataFrame,
        stays: DataFrame,
    ) -> Flow:
        axis = self._axis(times)
        self._progress("counting")
        names = read_names(plans, Mode.FAIL)
        forwarding = [
            (directory, queue_id)
            for directory, each in names.items()
            for queue_id, name in each.queues.items()
            if name.startswith(self._settings.forwarding_prefixes)
        ]
        known = frame_of(self._spark, "directory string, queue_id bigint", forwarding)
        hops = flow_rows.hops(adds, known).first()
        assert hops is not None, "an aggregate without groups has one row"
        series = Series(
            axis,
            [row.asDict() for row in flow_rows.queue_series(stays, axis.begin_ms, axis.bucket_ms).collect()],
            [row.asDict() for row in flow_rows.address_series(adds, axis.begin_ms, axis.bucket_ms).collect()],
            names,
            self._unknown(adds, records, axis),
        )
        kinds = [row.asDict() for row in flow_rows.bytes_by_kind(records).collect()]
        pins = [row.asDict(recursive=True) for row in flow_rows.pins(stays).collect()]
        report = assemble(plans, series, kinds, pins, hops.asDict(), self._settings.listed, forwarding)
        self._progress("forecasting")
        report["forecasts"] = [self._forecast(plan, axis, series) for plan in plans]
        if self._settings.tables is not None:
            write_tables(self._settings.tables, plans, series, pins, times)
        return Flow(report, series)

    def _unknown(self, adds: DataFrame, records: DataFrame, axis: Axis) -> dict[str, list[tuple[int, int]]]:
        """The stretches of time without messages by directory, in which the times of other records are guesses."""
        found: dict[str, dict[int, bool]] = {}
        for row in flow_rows.without_times(records, adds, axis.begin_ms, axis.bucket_ms).collect():
            found.setdefault(row["directory"], {})[row["begin_ms"]] = row["known"]
        return {directory: stretches(axis, known) for directory, known in sorted(found.items())}

    def _forecast(self, plan: LogPlan, axis: Axis, series: Series) -> dict[str, Any]:
        used = used_bytes_of(plan.directory)
        free = free_bytes_of(plan.directory, used, self._settings.capacity)
        written = sum(piece.end for piece in plan.pieces[plan.in_snapshot :])
        disk = forecast_disk(used, free, series.live_bytes(plan.directory), written, axis.end_ms - axis.begin_ms)
        take_over = forecast_take_over(RealDisk(), plan, self._settings.replay_bytes_s)
        return {"directory": plan.directory, "disk": asdict(disk), "take_over": asdict(take_over)}


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame that is used several times only once."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()
