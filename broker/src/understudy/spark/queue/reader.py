"""Readers of live queues: a stream that consumes, and a batch that browses (docs/use/pipeline.md).

Spark makes one stream reader in a process of its own beside the driver, which has the connection for as long as the
query runs. Tasks get the messages with their partitions. Works without a running Spark: tests call it as Spark does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructField, StructType

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.spark.queue.consumer import QueueConsumer, open_session, received_message, require_queue
from understudy.spark.queue.options import SourceOptions
from understudy.spark.queue.rows import COLUMNS, QueueMessage, batch_of, columns_ddl

log = logging.getLogger(__name__)


@dataclass
class QueuePartition(InputPartition):
    """Some messages of a batch: an Arrow stream, or nothing."""

    stream: bytes = b""


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Consumes a queue in batches, each acknowledged when Spark has committed it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """
        Raises:
            ConfigError: a column of the schema does not exist, or has another type.
        """
        self._options = options
        self._schema = checked_schema(schema)
        self._consumer: QueueConsumer | None = None
        self._number = 0
        """Offset at which the batch that is held ends; 0 for none."""
        self._left: int | None = None
        """Messages that a run with ``availableNow`` still takes."""

    @property
    def consumer(self) -> QueueConsumer:
        """Consumer of the stream, made at the first use: tasks have a copy of the stream and need no consumer."""
        if self._consumer is None:
            self._consumer = QueueConsumer(self._options)
        return self._consumer

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  the names are pyspark's
        """The offset before the first batch."""
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limit of the option ``maxMessages``; the other limits apply as well."""
        return ReadMaxRows(self._options.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take as many messages as the queue has now."""
        self._left = self.consumer.waiting()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; ``start`` if there is nothing to do.

        While the batch that ends at ``start`` is not acknowledged the next one is empty: Spark acknowledges the
        former one when it plans it.

        Raises:
            BrokerError: as ``QueueConsumer``.
        """
        number = self._number_of(start)
        if self._number == number + 1 or (self._number == number and self.consumer.messages):
            return self._offset(number + 1)
        if self._number > number:
            raise ConfigError(f"queue {self._options.queue!r}: Spark went back from batch {self._number} to {number}")
        most = self._options.messages_max
        if isinstance(limit, ReadMaxRows):
            most = min(most, limit.max_rows)
        if self._left is not None:
            most = min(most, self._left)
        if most <= 0:
            return start
        found = self.consumer.collect(most)
        if not found:
            self._left = None if self._left is None else 0
            return start
        if self._left is not None:
            self._left -= len(found)
        self._number = number + 1
        return self._offset(self._number)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[QueuePartition]:
        """Partitions with the messages of the batch that ends at ``end``.

        A batch that an earlier process planned has no messages: they were not acknowledged, and come in a later batch.
        """
        first, last = self._number_of(start), self._number_of(end)
        if last == first + 1 == self._number:
            return partitions_of(self.consumer.messages, self._schema, self._options.partition_bytes)
        return [QueuePartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        return batches_of(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed everything up to the offset: acknowledge it.

        Raises:
            ConnectionFailed: the connection was lost and no other came back.
        """
        if not self._number or self._number_of(end) < self._number or not self.consumer.messages:
            return  # no batch is held, or Spark repeats a commit
        if not self.consumer.acknowledge():
            log.warning("a batch was acknowledged during a failover; copies of its messages are dropped when they come")

    def stop(self) -> None:
        """The query ends; messages without an acknowledgement go back to the queue."""
        if self._consumer is not None:
            self._consumer.close()

    def _offset(self, number: int) -> dict[str, Any]:
        return {"batch": number, "queue": self._options.queue}

    def _number_of(self, offset: dict[str, Any]) -> int:
        number, queue = offset.get("batch"), offset.get("queue")
        if set(offset) != {"batch", "queue"} or type(number) is not int or number < 0:
            raise ConfigError("the checkpoint is not one of a stream of a queue", hint="give each query its own")
        if queue != self._options.queue:
            raise ConfigError(f"the checkpoint is of queue {queue!r}, the stream of {self._options.queue!r}")
        return number


class QueueBrowser(DataSourceReader):
    """Shows the messages of a queue, and leaves them there."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """
        Raises:
            ConfigError: a column of the schema does not exist, or has another type.
        """
        self._options = options
        self._schema = checked_schema(schema)

    def partitions(self) -> Sequence[QueuePartition]:
        """One partition, because the messages of a queue have one order."""
        return [QueuePartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages, up to maxMessages.

        Raises:
            BrokerError: no broker answers, the login or the queue is refused.
        """
        options = self._options
        connection, session = open_session(options)
        try:
            queue = require_queue(session, options.queue)
            found: list[QueueMessage] = []
            size_bytes = 0
            for count, received in enumerate(session.browser(queue, filter=options.filter), 1):
                body = received.read_body(options.message_bytes_max)
                message = received_message(connection, queue, received, body)
                found.append(message)
                size_bytes += message.size_bytes
                if size_bytes >= options.partition_bytes or count >= options.messages_max:
                    yield batch_of(found, self._schema)
                    found, size_bytes = [], 0
                if count >= options.messages_max:
                    return
            if found:
                yield batch_of(found, self._schema)
        finally:
            connection.abandon()


def checked_schema(schema: StructType) -> pa.Schema:
    """The schema in Arrow's types.

    Raises:
        ConfigError: a column does not exist, or has another type.
    """
    columns_ddl(",".join(schema.names))
    for given in schema.fields:
        if given.dataType.simpleString() != COLUMNS[given.name]:
            raise ConfigError(f"column {given.name} of a queue is {COLUMNS[given.name]}")
    return to_arrow_schema(
        StructType([StructField(each.name, each.dataType) for each in schema.fields]), timezone="UTC"
    )


def partitions_of(messages: Sequence[QueueMessage], schema: pa.Schema, partition_bytes: int) -> list[QueuePartition]:
    """Messages in their order, in partitions of about so many bytes."""
    found: list[QueuePartition] = []
    part: list[QueueMessage] = []
    size_bytes = 0
    for each in messages:
        if part and size_bytes + each.size_bytes > partition_bytes:
            found.append(_partition(part, schema))
            part, size_bytes = [], 0
        part.append(each)
        size_bytes += each.size_bytes
    if part:
        found.append(_partition(part, schema))
    return found or [QueuePartition()]


def _partition(messages: Sequence[QueueMessage], schema: pa.Schema) -> QueuePartition:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch_of(messages, schema))
    return QueuePartition(sink.getvalue().to_pybytes())


def batches_of(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; none of one that Spark made without a value."""
    if isinstance(partition, QueuePartition) and partition.stream:
        with pa.ipc.open_stream(partition.stream) as reader:
            yield from reader
