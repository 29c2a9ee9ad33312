"""Job ``consolidate``: a log of any size becomes a store that begins with a snapshot of its state.

The snapshot is the one that the broker's consolidator would write at the same position of the same log, by the same
encoders. Spark works out the references, open transactions and duplicate ids; tasks write them in order, and the driver
streams them into the file. The source is only read; the new store is published with one rename (``store_output``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ConfigError, StoreInUse
from understudy.ids import NodeId
from understudy.limits import ID_CACHE_SIZE
from understudy.local_paths import local_path
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import SystemClock
from understudy.spark.journal.log_plan import LogPlan, parse_options, plan_logs
from understudy.spark.journal.snapshot_file import Contents, write_snapshot
from understudy.spark.state import rows as state_rows
from understudy.spark.state.effects import SEGMENT, SMALL
from understudy.spark.state.rows import At
from understudy.spark.state.segment_copies import BodyCopies, copies_of_entries, copies_of_segments
from understudy.spark.state.small_state import Position, SmallReplay, SmallState
from understudy.spark.state.source import PackedParts, read_state, write_parts
from understudy.spark.state.store_output import LARGE_MESSAGES, StoreOutput, check_output, copy_file, open_output
from understudy.store.log.segment import segment_name

#: Rows of references in one range of a sort, about.
_RANGE_ROWS: Final = 2_000_000

Progress = Callable[[str], None]


class Segments(Enum):
    """Segments that the new store has."""

    NEEDED = "needed"
    """Segments with live messages, and those after the snapshot."""
    ALL = "all"
    """All segments of the log."""
    NONE = "none"
    """None: only the snapshot is made, for a copy of the store."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run."""

    segments: Segments = Segments.NEEDED
    in_use: bool = False
    """Read a store whose broker is running, up to its present end."""
    lock_directory: str | None = None
    """Directory of serverlock.1, if it is not in the directory itself."""
    large_directories: tuple[str, ...] = ()
    """Directory of the bodies of large messages; empty for ``large-messages`` beside the journal."""
    id_cache_size: int = ID_CACHE_SIZE
    """Duplicate ids kept per address."""


@dataclass(frozen=True, slots=True)
class ConsolidationReport:
    """The result of a run."""

    directory: str
    output: str
    node_id: str
    snapshot: str
    """File name."""
    epoch: int
    sequence: int
    """Sequence of the last record that the snapshot stands for."""
    last_sequence: int
    """Last sequence of the log."""
    queues: int
    references: int
    """Messages in queues, once per queue."""
    transactions: int
    """Open, prepared or not."""
    prepared: int
    duplicate_ids: int
    live_bytes: int
    """Bytes of records that are needed."""
    log_bytes: int
    """Bytes of the segments of the log."""
    segments: int
    segments_copied: int
    bytes_copied: int
    large_messages: int
    """Bodies copied."""
    large_missing: int
    """Bodies that are not where they should be."""

    @property
    def complete(self) -> bool:
        """Whether every message has its body."""
        return not self.large_missing

    def to_json(self) -> dict[str, Any]:
        """The report for ``--json``."""
        return asdict(self) | {"complete": self.complete}


def consolidate(
    spark: SparkSession,
    directory: str,
    output: Path,
    settings: Settings | None = None,
    progress: Progress = lambda doing: None,
) -> ConsolidationReport:
    """Make a store that begins with a snapshot.

    Args:
        spark: A session of ``open_session``.
        directory: Directory of a journal. Only read.
        output: Made; nothing is there, or an empty directory.
        settings: Options.
        progress: Called with each step.

    Raises:
        StoreError: the journal cannot be read.
        ConfigError: the output cannot be made, or no segment of the log is finished.
        BrokerError: the numbers of references do not agree; nothing was published.
    """
    source = os.path.abspath(local_path(directory, "the journal"))
    new = Path(local_path(str(output), "the output")).absolute()
    return _Run(spark, source, new, settings or Settings(), progress).run()


@dataclass(frozen=True, slots=True)
class _Log:
    """The log and its state at the position of the snapshot."""

    plan: LogPlan
    position: Position
    small: SmallState
    at: At
    rows: DataFrame
    decided: DataFrame
    found: DataFrame
    """Live references."""
    staged: DataFrame
    """Rows of open transactions."""


@dataclass(frozen=True, slots=True)
class _Copied:
    segments: int = 0
    size: int = 0
    bodies: int = 0
    missing: int = 0


class _Run:
    """One run of the job."""

    def __init__(
        self, spark: SparkSession, directory: str, output: Path, settings: Settings, progress: Progress
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._output = output
        self._settings = settings
        self._progress = progress
        self._disk = RealDisk()

    def run(self) -> ConsolidationReport:
        """Everything."""
        plan = self._plan()
        # the output is judged before Spark works
        check_output(self._output, [self._directory])
        self._progress("reading the journal")
        with _kept(read_state(self._spark, plan)) as rows:
            position, small = self._small(plan, rows)
            at = At(position.sequence, position.epoch, small.last_sequence, small.removed, small.removed_later)
            decided = state_rows.decisions(rows)
            with (
                _kept(state_rows.references(rows, decided, at)) as found,
                _kept(state_rows.open_transactions(rows, decided, at)) as staged,
                open_output(self._output, [self._directory]) as output,
            ):
                return self._make(_Log(plan, position, small, at, rows, decided, found, staged), output)

    def _plan(self) -> LogPlan:
        options = {"path": self._directory, "inUse": "read" if self._settings.in_use else "refuse"}
        if self._settings.lock_directory is not None:
            options["lockDirectory"] = self._settings.lock_directory
        return plan_logs(parse_options(options))[0]

    def _small(self, plan: LogPlan, rows: DataFrame) -> tuple[Position, SmallState]:
        kinds = [SEGMENT, *map(int, SMALL)]
        # the state has bindings and segments, never messages
        collected = [row.asDict() for row in rows.where(F.col("kind").isin(kinds)).collect()]
        replay = SmallReplay(self._disk, plan, collected, self._settings.id_cache_size)
        chosen = replay.choose()
        if chosen is None:
            raise ConfigError(
                f"{self._directory}: no segment of the log is finished and followed by another one",
                hint="a snapshot would have nothing to stand for; start from the journal as it is",
            )
        return chosen

    def _make(self, log: _Log, output: StoreOutput) -> ConsolidationReport:
        self._progress("writing the snapshot")
        small, state = log.small, log.small.state
        duplicate_ids = self._remember(log)
        for row in state_rows.moved_up_to(log.rows, log.at).collect():
            use = state.segments.get(row["source"])
            if use is not None:
                use.moved = max(use.moved, row["moved"])
        live = {row["segment"]: row["bytes"] for row in state_rows.live_bytes(log.found, log.staged).collect()}
        dead = self._leave_out(log, live)
        references = self._references(log, output)
        staged = self._parts(state_rows.transactions_in_order(log.staged, self._spark_partitions), output)
        prepared = log.staged.where("prepared").select("transaction_id").distinct().count()
        removable = self._removable(small) if self._settings.segments is Segments.NONE else {}
        contents = Contents(
            log.position, state, removable, small.epoch, small.last_sequence, sum(live.values()), references, staged
        )
        name = write_snapshot(output.journal, log.plan, contents, SystemClock())
        copied = self._copy(log, output, dead)
        self._check_source(log.plan)
        queues = len(state.queues)
        report = ConsolidationReport(
            self._directory, str(self._output), log.plan.node_id, name, log.position.epoch, log.position.sequence,
            small.last_sequence, queues, references.items, staged.items, prepared, duplicate_ids, sum(live.values()),
            sum(piece.end for piece in log.plan.pieces), len(log.plan.pieces), copied.segments, copied.size,
            copied.bodies, copied.missing,
        )  # fmt: skip
        output.write("consolidated.json", json.dumps(report.to_json(), indent=1).encode())
        self._progress("publishing")
        output.publish()
        return report

    @property
    def _spark_partitions(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def _removable(self, small: SmallState) -> dict[int, int]:
        """Segments in the directory of the log, where the snapshot is to be put, that do not belong to the log any
        more."""
        names = set(self._disk.list(self._directory))
        return {number: epoch for number, epoch in small.removable.items() if segment_name(number, epoch) in names}

    def _remember(self, log: _Log) -> int:
        """Put the duplicate ids that the log has into the state; how many it has then."""
        small, limit = log.small, self._settings.id_cache_size
        rows = state_rows.duplicate_ids(log.rows, log.decided, log.at, small.duplicate_ids_from, limit)
        for row in rows.orderBy("visible", "sequence", "place").toLocalIterator():
            small.state.remember_duplicate(row["address_id"], bytes(row["value"]))
        return sum(map(len, small.state.duplicate_ids.values()))

    def _leave_out(self, log: _Log, live: Mapping[int, int]) -> list[int]:
        """Forget the segments that the new store does not need; their numbers."""
        state, position = log.small.state, log.position
        if self._settings.segments is not Segments.NEEDED:
            return []
        dead = [number for number in state.segments if number < position.number and number not in live]
        state.forget_segments(dead)
        # a reader without this snapshot would miss the dropped records
        state.complete = position.number if dead else state.complete
        present = state.segments.keys()
        return [piece.number for piece in log.plan.pieces if piece.number <= position.number - 1
                and piece.number not in present]  # fmt: skip

    def _references(self, log: _Log, output: StoreOutput) -> PackedParts:
        heads = state_rows.queue_ranks(log.found).collect()
        heads.sort(key=lambda row: (row["visible"], row["sequence"], row["place"] or 0))
        ranks = {row["queue_id"]: rank for rank, row in enumerate(heads)}
        count = log.found.count()
        partitions = max(self._spark_partitions, -(-count // _RANGE_ROWS))
        parts = self._parts(state_rows.in_order(log.found, ranks, partitions), output)
        if parts.items != count:
            raise BrokerError(f"{parts.items} references were written, {count} were found; nothing was published")
        return parts

    def _parts(self, frame: DataFrame, output: StoreOutput) -> PackedParts:
        table = "transactions" if "xid" in frame.columns else "references"
        return write_parts(frame, output.parts, table)

    def _copy(self, log: _Log, output: StoreOutput, dead: list[int]) -> _Copied:
        if self._settings.segments is Segments.NONE:
            return _Copied()
        self._progress("copying segments")
        target = str(output.journal)
        segments = copies_of_segments(self._disk, log.plan, target, frozenset(dead))
        entries = copies_of_entries(self._disk, self._directory, target)
        if entries:
            (output.journal / "quarantine").mkdir(mode=0o700)
        copies = [*segments, *entries]
        self._spark.sparkContext.parallelize(copies, min(len(copies), 1000)).foreach(copy_file)
        output.write_node_id(NodeId(log.plan.node_id))
        bodies = self._copy_bodies(log, output)
        size = sum(each.length for each in copies)
        return replace(bodies, segments=len(segments), size=bodies.size + size)

    def _copy_bodies(self, log: _Log, output: StoreOutput) -> _Copied:
        sources = self._settings.large_directories or (f"{os.path.dirname(self._directory)}/{LARGE_MESSAGES}",)
        copier = BodyCopies(sources, str(output.large_messages))
        files = state_rows.needed_files(log.rows, log.decided, log.at)
        found, count, size = files.rdd.mapPartitions(copier.copy).fold((0, 0, 0), _add)
        return _Copied(0, size, found, count - found)

    def _check_source(self, before: LogPlan) -> None:
        if not self._settings.in_use and self._plan() != before:
            raise StoreInUse("the journal was changed while it was read", hint="stop its broker, or use a copy")


def _add(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame that is used several times only once; it spills to disk."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()
