"""Job ``archive``: the confirmed messages of journals in Parquet, each exactly once, however often a run is killed.

The stores are only read. A run adds the messages that the archive does not have, merges small files, and publishes
the result with one rename (``archive_layout``). Numbers of rows are compared before that.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ConfigError
from understudy.local_paths import local_path
from understudy.spark.archive.files import Target, Written, merge_files, rows_in, write_messages
from understudy.spark.archive.layout import (
    INCOMING,
    KEEP_MS,
    Archive,
    DataFile,
    check_archive,
    open_archive,
)
from understudy.spark.archive.logs import Logs, ReaderLog, ReaderSettings, StoppedLogs
from understudy.spark.archive.rows import KEY, PARTITION, in_files, key_sum, not_archived
from understudy.spark.journal.log_plan import Layout

#: Aimed size of a file. Bytes.
FILE_BYTES: Final = 64 * 1024 * 1024
#: Files below this share of the aimed size are small.
SMALL_SHARE: Final = 0.5
#: Number of small files of one partition from which on they are merged.
COMPACT_FILES: Final = 4
#: Bodies of large messages above this are not archived. Bytes.
LARGE_BYTES_MAX: Final = 64 * 1024 * 1024

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run."""

    addresses: tuple[str, ...] = ()
    """Only messages to addresses that match one of these; all if there are none."""
    many_nodes: bool = False
    """The directories may be of different nodes."""
    retention: str | None = None
    """Directory of segments that have left the log of the one directory; without any directory it is read alone."""
    reader: ReaderSettings | None = None
    """Read the records since the last run, through this named reader."""
    large_directories: tuple[str, ...] = ()
    """Directories of the bodies of large messages; empty: ``large-messages`` beside each journal."""
    large_bytes_max: int = LARGE_BYTES_MAX
    file_bytes: int = FILE_BYTES
    compact_files: int = COMPACT_FILES
    """Number of small files of one partition from which on they are merged; 0 merges none."""
    keep_ms: int = KEEP_MS
    """Time in ms for which a replaced generation is kept, for queries that read it."""


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """The result of a run."""

    archive: str
    generation: int
    """Published now, or before if nothing was to be changed."""
    changed: bool
    found: int
    """Messages in the journals, to the wanted addresses."""
    unconfirmed: int
    """Number of these messages without a proof that they were in a queue."""
    known: int
    """Number of these messages that were confirmed and in the archive before."""
    archived: int
    """Number of these messages that this run added."""
    rows: int
    """Messages in the archive."""
    files: int
    size: int
    """Bytes of the files."""
    files_written: int
    files_merged: int
    """Files that were replaced by larger ones."""
    generations_kept: int
    """Former generations that are kept for queries that read them."""
    generations_removed: int
    """Former generations that were replaced too long ago, removed by this run."""
    without_body: dict[str, int]
    """State of bodies that could not be archived in this run -> messages."""
    reader: dict[str, Any] | None = None
    """The named reader: its name, the range that was read, and the position that was committed."""

    @property
    def complete(self) -> bool:
        """Whether every message that was added has its body."""
        return not self.without_body

    def to_json(self) -> dict[str, Any]:
        """The report for ``--json``."""
        return {name: getattr(self, name) for name in self.__slots__} | {"complete": self.complete}


def archive(
    spark: SparkSession,
    directories: Sequence[str],
    output: Path,
    settings: Settings | None = None,
    progress: Progress = lambda doing: None,
) -> ArchiveReport:
    """Add the confirmed messages of journals to an archive.

    Args:
        spark: A session of ``open_session``.
        directories: Directories of journals: copies of one node's, or of several nodes. Only read. None with only a
            retention directory.
        output: The archive; made if it is missing or empty.
        settings: Options.
        progress: Called with each step.

    Raises:
        StoreError: a journal cannot be read.
        ConfigError: the output is no archive, one of another schema version, damaged or in use.
        ConnectionFailed: a reader's node is not active.
        BrokerError: the numbers of rows do not agree; nothing was published. A reader was refused.
    """
    return _Run(spark, directories, output, settings or Settings(), progress).run()


@dataclass(frozen=True, slots=True)
class _Counts:
    found: int
    unconfirmed: int
    known: int
    new: int
    content: int


class _Run:
    """One run of the job."""

    def __init__(
        self, spark: SparkSession, directories: Sequence[str], output: Path, settings: Settings, progress: Progress
    ) -> None:
        self._spark = spark
        journals = [os.path.abspath(local_path(each, "a journal")) for each in directories]
        self._logs = _logs_of(journals, settings)
        self._output = Path(local_path(str(output), "the archive")).absolute()
        self._settings = settings
        self._progress = progress

    def run(self) -> ArchiveReport:
        """Run all steps of the job."""
        # the inputs were judged before anything is made
        check_archive(self._output)
        for directory in (*self._logs.directories, *filter(None, [self._logs.retention])):
            if self._output == Path(directory) or Path(directory) in self._output.parents:
                raise ConfigError("the archive would lie in a journal", file=str(self._output))
        with open_archive(self._output, self._settings.keep_ms) as opened, _errors():
            return self._add(opened)

    def _add(self, opened: Archive) -> ArchiveReport:
        self._progress("reading the journals")
        self._logs.begin(self._spark, opened.manifest.positions)
        found = self._logs.candidates(self._spark, self._settings.addresses)
        with _kept(not_archived(found, self._present(opened))) as rows:
            counts = _count(rows)
            stage = opened.stage()
            self._progress(f"writing {counts.new:,} messages")
            written = self._write(rows.where("confirmed AND NOT archived"), self._target(stage, opened))
        _place(stage, written)
        self._logs.check()
        position = self._logs.position(self._spark)
        _check_rows(stage, written, counts.new)
        kept, merged, replaced = self._compact(opened, stage, [each.placed() for each in written])
        manifest = opened.manifest
        changed = bool(written or merged)
        if changed or (position is not None and position not in manifest.positions):
            self._progress("publishing")
            manifest = manifest.extended(counts.content, [*kept, *merged], position)
            if manifest.rows != opened.manifest.rows + counts.new:
                raise BrokerError(
                    f"{manifest.rows} messages would be archived, not {opened.manifest.rows + counts.new}"
                )
            opened.publish(stage, manifest)
        else:
            opened.clean()
        without_body: Counter[str] = Counter()
        for each in written:
            without_body.update(each.without_body)
        return ArchiveReport(
            str(self._output), manifest.generation, changed, counts.found, counts.unconfirmed, counts.known,
            counts.new, manifest.rows, len(manifest.files), manifest.size, len(written), replaced, opened.former,
            opened.removed, dict(without_body), self._logs.commit(),
        )  # fmt: skip

    def _present(self, opened: Archive) -> DataFrame | None:
        """The keys in the archive."""
        if not opened.manifest.files:
            return None
        assert opened.published is not None
        schema = "node_id string, message_id bigint, content_hash bigint"
        return self._spark.read.schema(schema).parquet(str(opened.published.directory)).select(*KEY)

    def _target(self, stage: Path, opened: Archive) -> Target:
        given = self._settings.large_directories
        large = {directory: given or places for directory, places in self._logs.large_directories().items()}
        return Target(
            str(stage / INCOMING), opened.manifest.generation + 1, large, self._settings.large_bytes_max,
            self._settings.file_bytes, self._logs.retention,
        )  # fmt: skip

    def _write(self, rows: DataFrame, target: Target) -> list[Written]:
        group = [*PARTITION, "file_number"]
        # only places of records are shuffled: the tasks fetch the bytes
        placed = in_files(rows, target.file_bytes).drop("confirmed", "archived")
        ordered = placed.repartition(*group).sortWithinPartitions(*group, *KEY)
        return list(ordered.rdd.mapPartitions(partial(write_messages, target)).collect())

    def _compact(
        self, opened: Archive, stage: Path, added: list[DataFile]
    ) -> tuple[list[DataFile], list[DataFile], int]:
        """Join small files of the archive. Returns the kept files, which are linked into the stage, the new files, and
        the number of replaced ones."""
        old = list(opened.manifest.files)
        groups = _small_groups([*old, *added], self._settings)
        gone = {each.path for files in groups for each in files}
        kept = [each for each in old if each.path not in gone]
        opened.keep(stage, old)
        if not groups:
            return kept, added, 0
        self._progress(f"merging {len(gone):,} small files")
        merge = partial(_merge, self._target(stage, opened), str(stage))
        slices = self._spark.sparkContext.parallelize(groups, len(groups))
        merged = [each for found in slices.map(merge).collect() for each in found]
        _place(stage, merged)
        _check_rows(stage, merged, sum(each.rows for files in groups for each in files))
        for path in gone:
            (stage / path).unlink()
        new = [each for each in added if each.path not in gone] + [each.placed() for each in merged]
        return kept, new, len(gone)


def _logs_of(directories: Sequence[str], settings: Settings) -> Logs:
    """Open the logs of the run; raises the errors of ``archive``."""
    retention = (
        None
        if settings.retention is None
        else os.path.abspath(local_path(settings.retention, "the retention directory"))
    )
    if settings.reader is not None:
        return ReaderLog(directories, settings.reader, retention)
    if not directories and retention is not None:
        return StoppedLogs([retention], many_nodes=settings.many_nodes, layout=Layout.RETENTION)
    return StoppedLogs(directories, many_nodes=settings.many_nodes, retention=retention)


def _merge(target: Target, generation: str, files: list[DataFile]) -> list[Written]:
    return merge_files(target, generation, files[0].partition, files)


def _small_groups(files: Sequence[DataFile], settings: Settings) -> list[list[DataFile]]:
    """The files to be merged: those small ones of a partition, if they are enough, in groups of about one file."""
    if not settings.compact_files:
        return []
    small: dict[str, list[DataFile]] = {}
    for each in sorted(files, key=lambda each: each.path):
        if each.size < SMALL_SHARE * settings.file_bytes:
            small.setdefault(each.partition, []).append(each)
    groups: list[list[DataFile]] = []
    for found in small.values():
        if len(found) < max(settings.compact_files, 2):
            continue
        groups.append([])
        size = 0
        for each in found:
            if size + each.size > settings.file_bytes and groups[-1]:
                groups.append([])
                size = 0
            groups[-1].append(each)
            size += each.size
    return [group for group in groups if len(group) > 1]


def _count(rows: DataFrame) -> _Counts:
    new = F.col("confirmed") & ~F.col("archived")
    counts = rows.agg(
        F.count("*").alias("found"),
        F.count_if(~F.col("confirmed")).alias("unconfirmed"),
        F.count_if(F.col("confirmed") & F.col("archived")).alias("known"),
        F.count_if(new).alias("new"),
    ).first()
    content = rows.where(new).agg(key_sum().alias("content")).first()
    assert counts is not None, "an aggregate without groups has one row"
    assert content is not None, "an aggregate without groups has one row"
    return _Counts(counts["found"], counts["unconfirmed"], counts["known"], counts["new"], int(content["content"]))


def _place(stage: Path, written: Sequence[Written]) -> None:
    """Move files of tasks to their places."""
    for each in written:
        target = stage / each.placed().path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(stage / INCOMING / each.name, target)


def _check_rows(stage: Path, written: Sequence[Written], expected: int) -> None:
    """Raises BrokerError if the files do not have that number of rows together."""
    found = sum(rows_in(stage / each.placed().path) for each in written)
    if found != expected:
        raise BrokerError(f"{found} messages were written, {expected} were selected; nothing was published")


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame that is used several times only once."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


@contextmanager
def _errors() -> Iterator[None]:
    """Errors of files of the archive, with their names."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(error.filename)) from error
