"""``spark.read.format("understudy.journal").load(DIRECTORIES)``: segments and snapshots (docs/use/pipeline.md).

Strictly read-only. The planner decides which bytes are the log (``log_plan``); a task reads the segments of one
partition and returns Arrow batches. Without a running Spark nothing here is used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from understudy.errors import ConfigError
from understudy.local_paths import local_path
from understudy.spark.archive.layout import read_published
from understudy.spark.journal import tables
from understudy.spark.journal.log_plan import parse_options, plan_logs
from understudy.spark.journal.reader import JournalReader
from understudy.spark.journal.stream_options import parse_stream_options, without_stream_options
from understudy.spark.journal.stream_reader import JournalStream
from understudy.spark.journal.tables import conditions_as_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

#: Name of the format.
FORMAT: Final = "understudy.journal"


class JournalSource(DataSource):
    """The data source ``understudy.journal``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> str:
        """All columns of the table, or those of option ``columns``."""
        # Spark asks for the schema before it states whether the read is a stream
        given = {name: value for name, value in self.options.items() if name.lower() != "endingoffset"}
        options = parse_options(without_stream_options(given))
        return tables.ddl(options.table, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of a schema, which may be fewer than the table has."""
        return JournalReader(parse_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  the name is pyspark's
        """A stream of the columns of a schema."""
        return JournalStream(parse_stream_options(self.options), schema)


def read_journal(
    spark: SparkSession,
    directories: str | Sequence[str],
    table: str = "records",
    columns: Sequence[str] | None = None,
    where: Sequence[tuple[str, str, Any]] = (),
    **options: str,
) -> DataFrame:
    """A table of the journals in some directories.

    Args:
        spark: A session of ``open_session``, or another one.
        directories: Visible to every worker.
        table: ``records``, ``messages``, ``acknowledgements`` or ``bindings``.
        columns: Read only these; Spark itself prunes no columns of a Python source.
        where: Conditions (column, operator, value) that every row satisfies; segments without such rows are not read.
        options: Further options of the source.

    Raises:
        ConfigError: an option, table or column that does not exist; a directory without a journal.
        StoreError: a log cannot be read; the same errors as a query would meet when it is planned.
    """
    paths = [directories] if isinstance(directories, str) else list(directories)
    given = {"table": table, "minPartitions": str(spark.sparkContext.defaultParallelism)} | options
    if columns is not None:
        given["columns"] = ",".join(columns)
    if where:
        given["where"] = conditions_as_text(where)
    if given.get("pushFilters") == "true":
        log.warning("option pushFilters has no effect any more: give conditions with where")
    parsed = parse_options({**given, "paths": json.dumps(paths)})
    tables.ddl(parsed.table, parsed.columns)
    plan_logs(parsed)
    register(spark)
    reader = spark.read.format(FORMAT)
    for name, value in given.items():
        reader = reader.option(name, value)
    return reader.load(paths)


def read_archive(spark: SparkSession, archive: str) -> DataFrame:
    """The messages of an archive, as they are now.

    The frame reads the generation that is published when this is called, also if later runs publish others meanwhile,
    for as long as these keep former generations (``--keep-hours``).

    Args:
        spark: Any session.
        archive: A directory that job ``archive`` has made.

    Raises:
        ConfigError: the directory is no archive, or nothing was published.
    """
    directory = Path(local_path(archive, "the archive")).absolute()
    published = read_published(directory)
    if published is None:
        raise ConfigError("has no messages yet", file=str(directory))
    return spark.read.parquet(str(published.directory))


def register(spark: SparkSession) -> None:
    """Make the format known to a session. ``open_session`` has done so."""
    spark.dataSource.register(JournalSource)
