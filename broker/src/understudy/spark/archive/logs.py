"""The input of job ``archive``: journals of stopped brokers, retention directories, or a log through a named reader.

A named reader (ADR 0079) holds the log of a running node for the archive. A run reads from the reader's position to the
end that the active node has confirmed, and commits its position after the archive is published. If it is killed in
between, the next run reads the same records again, and their messages are in the archive already. The position stays in
front of the first message of a transaction that is still open, so that a later commit finds its messages (ADR 0097).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from understudy.dataclass import dataclass
from understudy.errors import ConfigError, ConnectionFailed, JournalCorrupt, StoreInUse
from understudy.limits import READER_HELD_BYTES
from understudy.runtime.base.disk import RealDisk
from understudy.spark.archive.rows import HELD, first_undecided, read_candidates
from understudy.spark.base.driver_rows import frame_of
from understudy.spark.journal.broker_positions import ActiveNode
from understudy.spark.journal.log_plan import Layout, parse_options, plan_logs
from understudy.spark.journal.source import read_journal
from understudy.spark.journal.stream_offsets import StreamOffset
from understudy.spark.journal.stream_options import StreamOptions, parse_stream_options
from understudy.spark.journal.stream_plan import StreamPlan
from understudy.store.snapshots.snapshot import parse_snapshot_name

_LARGE: Final = "large-messages"
#: A broker may replace its snapshot while it is read.
_ATTEMPTS: Final = 5


class Logs(Protocol):
    """The logs that one run reads."""

    @property
    def directories(self) -> Sequence[str]:
        """Directories of the logs, in which nothing may be written."""

    @property
    def retention(self) -> str | None:
        """Directory in which a segment may be that has left the log since the plan was made."""

    def begin(self, spark: SparkSession, positions: Sequence[StreamOffset]) -> None:
        """Decide which records are read.

        Args:
            spark: A session of ``open_session``.
            positions: Up to where the archive has read the logs of nodes.
        """

    def candidates(self, spark: SparkSession, addresses: Sequence[str]) -> DataFrame:
        """The messages, as ``archive_rows.candidates``."""

    def check(self) -> None:
        """Raises StoreInUse if the records have changed meanwhile."""

    def position(self, spark: SparkSession) -> StreamOffset | None:
        """Up to where a named reader has read everything; None without one."""

    def commit(self) -> dict[str, Any] | None:
        """Everything is published: commit the position. For the report."""

    def large_directories(self) -> Mapping[str, tuple[str, ...]]:
        """Directory of segments to those in which bodies of their large messages may lie."""


class StoppedLogs:
    """Journals whose brokers are stopped, one of them with its retention directory; or retention directories alone,
    also of running brokers: segments in them do not change.
    """

    def __init__(
        self,
        directories: Sequence[str],
        *,
        many_nodes: bool,
        layout: Layout = Layout.STORE,
        retention: str | None = None,
    ) -> None:
        """
        Args:
            directories: Absolute paths.
            many_nodes: They may be of different nodes.
        """
        self.directories = directories
        self.retention = retention
        self._layout = layout
        self._options = {"nodes": "many" if many_nodes else "one", "layout": layout.value}
        if retention is not None:
            self._options["retention"] = retention
        self._before = self._plan()

    def _plan(self) -> object:
        return plan_logs(parse_options({"paths": json.dumps(list(self.directories)), **self._options}))

    def begin(self, spark: SparkSession, positions: Sequence[StreamOffset]) -> None:
        """Read everything from the beginning."""

    def candidates(self, spark: SparkSession, addresses: Sequence[str]) -> DataFrame:
        """The messages of all of it."""
        one = self.retention is not None
        return read_candidates(spark, self.directories, addresses, one_log=one, options=self._options)

    def check(self) -> None:
        """Retained segments are only added and removed: a task that misses one fails."""
        if self._layout is Layout.STORE and self._plan() != self._before:
            raise StoreInUse("a journal was changed while it was read", hint="stop its broker, or archive a copy")

    def position(self, spark: SparkSession) -> None:
        """Return no position: the run has no named reader."""

    def commit(self) -> None:
        """Do nothing: the run has no named reader."""

    def large_directories(self) -> Mapping[str, tuple[str, ...]]:
        """Bodies lie beside a journal, and in a retention directory."""
        if self._layout is Layout.RETENTION:
            return {each: (each,) for each in self.directories}
        return _beside(self.directories, self.retention)


def _beside(directories: Sequence[str], retention: str | None) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {each: (f"{each.rpartition('/')[0]}/{_LARGE}",) for each in directories}
    if retention is None:
        return found
    every = (*(each for places in found.values() for each in places), retention)
    return dict.fromkeys((*directories, retention), every)


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The named reader, and where its node is."""

    name: str
    servers: tuple[str, ...]
    """Management URLs of the nodes that may be active."""
    token_file: str | None = None
    max_bytes: int = READER_HELD_BYTES
    """Position that a newly registered named reader of this run begins with; None: it is registered already."""
    accept_gap: bool = False
    """Go on although records after the position of the archive are gone."""


class ReaderLog:
    """The log of one node, stopped or running, through a named reader: copies that are visible here."""

    def __init__(self, directories: Sequence[str], reader: ReaderSettings, retention: str | None) -> None:
        """
        Args:
            directories: A shared store, or copies of a replicated pair. Absolute paths.
            retention: Directory of segments that have left the log.

        Raises:
            ConfigError: an option is wrong, or the token cannot be read.
        """
        self.directories = directories
        self.retention = retention
        self._reader = reader
        self._options: dict[str, str] = {} if retention is None else {"retention": retention}
        self._active = ActiveNode(reader.servers, reader.token_file)
        self._plan = StreamPlan(self._stream_options(), RealDisk(), self._active)
        self._range: tuple[StreamOffset, StreamOffset] | None = None
        self._held: DataFrame | None = None
        """Messages of the snapshot with which the log begins, if nothing before it was read."""
        self._registered: StreamOffset | None = None
        """Position of the reader when the run began."""
        self._position: StreamOffset | None = None

    def _stream_options(self) -> StreamOptions:
        given = {"paths": json.dumps(list(self.directories)), "reader": self._reader.name, **self._options}
        return parse_stream_options(given | {"servers": ",".join(self._reader.servers)})

    def begin(self, spark: SparkSession, positions: Sequence[StreamOffset]) -> None:
        """Register the reader, or find its position, and ask for the confirmed end.

        Raises:
            ConfigError: records between the archive and the reader are missing.
            ConnectionFailed: no node is active, or no copy has its epoch.
            JournalCorrupt: the records after the position are gone.
            ManagementError: the broker refuses the reader.
        """
        earliest = self._plan.first("earliest")
        recorded = next((each for each in positions if each.node_id == earliest.node_id), None)
        first = earliest if recorded is None else self._from(recorded, earliest)
        held = self._active.positions().earliest
        wanted = held if held.sequence > first.sequence else first
        self._registered = self._active.register(self._reader.name, wanted.as_json(), self._reader.max_bytes)
        # a reader that an operator has registered says where an archive begins
        start = first if recorded is not None or self._registered.sequence == wanted.sequence else self._registered
        snapshot_sequence = 0
        if recorded is None:
            # later runs skip records that the consolidator copied: an earlier run has archived their messages
            self._held, snapshot_sequence = _read_snapshot(spark, self._plan.directory_with(start))
        end = self._plan.latest(start, None, must=True)
        if end.sequence < snapshot_sequence:
            raise ConnectionFailed(
                f"the active node has confirmed up to sequence {end.sequence}, the snapshot is of {snapshot_sequence}",
                hint="a copy lags: run it again",
            )
        self._range = start, end
        self._options |= {"startingOffset": start.as_json(), "endingOffset": end.as_json(), "inUse": "read"}

    def _from(self, recorded: StreamOffset, earliest: StreamOffset) -> StreamOffset:
        """Position at which a run after others begins."""
        try:
            return self._plan.first(recorded)
        except JournalCorrupt:
            if self._reader.accept_gap:
                return earliest
            raise ConfigError(
                f"the records {recorded.sequence + 1} to {earliest.sequence} of node {recorded.node_id} are gone: the"
                " archive has read the records before, and nothing has held these",
                hint="archive them from a retention directory or a copy, then give --accept-gap",
            ) from None

    def candidates(self, spark: SparkSession, addresses: Sequence[str]) -> DataFrame:
        """The messages of the range."""
        held = self._held
        if held is None:
            schema = "directory string, message_id bigint, transaction_id bigint, acknowledged boolean"
            held = frame_of(spark, schema, [])
        return read_candidates(spark, self.directories, addresses, held=held, one_log=True, options=self._options)

    def check(self) -> None:
        """Records of a range never change."""

    def position(self, spark: SparkSession) -> StreamOffset | None:
        """Position before the first message of an open transaction, or the end of the range."""
        assert self._range is not None
        start, end = self._range
        first, copied = None, False
        if end != start:
            first, copied = first_undecided(spark, self.directories, self._held, end, self._options)
        if first is None:
            self._position = end
        elif copied or first - 1 <= start.sequence:
            # only the snapshot says the transaction of a copy, so the next run reads it again
            self._position = start
        else:
            self._position = self._plan.at(first - 1, end)
        return None if copied else self._position

    def commit(self) -> dict[str, Any]:
        """Commit it at the broker; the next run does it again if no node is active now."""
        assert self._range is not None
        assert self._registered is not None
        assert self._position is not None
        start, end = self._range
        committed = True
        try:
            if self._position.sequence > self._registered.sequence:
                self._active.commit(self._reader.name, self._position)
        except ConnectionFailed:
            committed = False
        return {
            "name": self._reader.name, "from": start.as_dict(), "until": end.as_dict(),
            "position": self._position.as_dict(), "committed": committed,
        }  # fmt: skip

    def large_directories(self) -> Mapping[str, tuple[str, ...]]:
        """Bodies lie beside the journals, and in the retention directory."""
        return _beside(self.directories, self.retention)


def _read_snapshot(spark: SparkSession, directory: str) -> tuple[DataFrame, int]:
    """The messages of the snapshot with which a log begins, and its sequence; a broker may replace it meanwhile.

    The rows are kept, and never read again: a later snapshot would not fit to the range.
    """
    options = parse_options({"path": directory, "inUse": "read"})
    for _ in range(_ATTEMPTS):
        before = plan_logs(options)[0].snapshot
        held = read_journal(spark, directory, "references", list(HELD), inUse="read").localCheckpoint()
        if plan_logs(options)[0].snapshot == before:
            parsed = None if before is None else parse_snapshot_name(before)
            return held, 0 if parsed is None else parsed[1]
    raise StoreInUse(f"{directory}: the snapshots are replaced faster than they are read")
