"""``format("understudy.queue")``: live queues of a broker, read by the client and written into (docs/use/pipeline.md).

A batch reader browses, a stream consumes, ``consume`` consumes one batch in the driver, and both writers send with
duplicate ids. The functions here check options and connect first, and raise the errors of the package, while
Spark shows the errors of a source as tracebacks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from understudy.client.sync import connect
from understudy.errors import ConfigError
from understudy.spark.queue.consumer import QueueConsumer, open_session, require_queue
from understudy.spark.queue.options import parse_sink, parse_source
from understudy.spark.queue.reader import QueueBrowser, QueueStream, checked_schema
from understudy.spark.queue.rows import batch_of, check_sent, columns_ddl
from understudy.spark.queue.writer import QueueStreamWriter, QueueWriter, require_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Name of the format.
FORMAT: Final = "understudy.queue"


class QueueSource(DataSource):
    """The data source ``understudy.queue``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> str:
        """All columns of a queue, or those of option ``columns``."""
        return columns_ddl(parse_source(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A browser: the messages stay in the queue."""
        return QueueBrowser(parse_source(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  the names are pyspark's
        """A consumer, which acknowledges batches that Spark has committed."""
        return QueueStream(parse_source(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of one write, which appends: a queue cannot be overwritten."""
        if overwrite:
            raise ConfigError("a queue cannot be overwritten", hint='mode("append")')
        options = parse_sink(self.options)
        return QueueWriter(options, schema, options.write_id or uuid.uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer of all batches of a query."""
        if overwrite:
            raise ConfigError("a queue cannot be overwritten", hint='outputMode("append")')
        return QueueStreamWriter(parse_sink(self.options), schema)


def register_queue(spark: SparkSession) -> None:
    """Make the format known to a session. ``open_session`` has done so."""
    spark.dataSource.register(QueueSource)


def browse_queue(spark: SparkSession, **options: str) -> DataFrame:
    """The messages of a queue, which stay there.

    Args:
        spark: A session of ``open_session``.

    Raises:
        BrokerError: an option is wrong, no broker answers, or it refuses the login or the queue.
    """
    _check_source(options)
    return spark.read.format(FORMAT).options(**options).load()


def stream_queue(spark: SparkSession, **options: str) -> DataFrame:
    """A stream that consumes a queue, at least once; column ``id`` is the same in each copy of a message.

    Args:
        spark: A session of ``open_session``.

    Raises:
        BrokerError: an option is wrong, no broker answers, or it refuses the login or the queue.
    """
    _check_source(options)
    return spark.readStream.format(FORMAT).options(**options).load()


@contextmanager
def consume(spark: SparkSession, **options: str) -> Iterator[DataFrame]:
    """One batch of a queue, consumed: acknowledged when the block ends, given back when it raises.

    Args:
        spark: A session of ``open_session``.

    Raises:
        BrokerError: an option is wrong, no broker answers, or it refuses the login or the queue.
    """
    parsed = parse_source(options)
    given = cast(StructType, StructType.fromDDL(columns_ddl(parsed.columns)))
    schema = checked_schema(given)
    consumer = QueueConsumer(parsed)
    try:
        messages = consumer.collect(parsed.messages_max)
        table = pa.Table.from_batches([batch_of(messages, schema)])
        yield spark.createDataFrame(table, given)
        if messages:
            consumer.acknowledge()
    finally:
        consumer.close()


def queue_writer(frame: DataFrame, **options: str) -> DataFrameWriter:
    """A writer that sends the rows of a frame; ``save()`` does so.

    Args:
        frame: Rows whose columns are those of a message.

    Raises:
        BrokerError: an option or a column is wrong, no broker answers, or it refuses the login or the address.
    """
    _check_sink(frame, options)
    return frame.write.format(FORMAT).mode("append").options(**options)


def queue_stream_writer(frame: DataFrame, **options: str) -> DataStreamWriter:
    """A writer that sends the rows of a stream; ``start()`` begins it.

    Args:
        frame: A stream whose columns are those of a message.
        options: Options of the sink; Spark's ``checkpointLocation`` as well.

    Raises:
        BrokerError: an option or a column is wrong, no broker answers, or it refuses the login or the address.
    """
    _check_sink(frame, options)
    return frame.writeStream.format(FORMAT).options(**options)


def _check_source(options: Mapping[str, str]) -> None:
    parsed = parse_source(options)
    columns_ddl(parsed.columns)
    connection, session = open_session(parsed)
    try:
        require_queue(session, parsed.queue)
    finally:
        connection.abandon()


def _check_sink(frame: DataFrame, options: Mapping[str, str]) -> None:
    parsed = parse_sink(options)
    check_sent(dict(frame.dtypes), parsed.address, parsed.id_column)
    login = parsed.login
    connection = connect(login.client_url(), login.user, login.password())
    try:
        session = connection.session()
        if parsed.address is not None and parsed.check_queue:
            require_address(session, parsed.address.partition("::")[0])
    finally:
        connection.abandon()
