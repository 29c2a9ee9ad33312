"""Writers into live queues: rows as messages with duplicate ids that a repeated task makes again (docs/pipeline.md).

A task connects, sends, and ends after the last confirmation. Nothing is left to do at the commit of a batch, and
nothing to undo when it is aborted: the broker drops messages that it had as copies when they are sent again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from understudy.client.sync import Connection, Producer, connect
from understudy.client.sync import Session as ClientSession
from understudy.dataclass import dataclass
from understudy.errors import AddressNotFound, ConfigError, QueueNotFound
from understudy.message import Message
from understudy.spark.dead_rows import DeadRows, Refused, drop, publish
from understudy.spark.queue_options import SEND_WINDOW, SinkOptions
from understudy.spark.queue_rows import RowRefused, check_sent, message_to_send, sent_rows

log = logging.getLogger(__name__)

#: Local properties of a task that belongs to a stream.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """A task has sent its rows."""

    messages: int = 0
    """Confirmed by the broker, copies that it dropped included."""
    unrouted: int = 0
    """Messages that no queue took."""
    refused: Refused | None = None
    """Rows that cannot be sent."""


class _Sending:
    """One task."""

    def __init__(self, options: SinkOptions, task: str) -> None:
        """
        Args:
            options: Of the sink.
            task: Begin of the duplicate ids of the task, and its name.
        """
        self._options = options
        self._task = task
        self._dead = DeadRows(options.dead_rows, task)
        login = options.login
        self._connection: Connection = connect(login.client_url(), login.user, login.password())
        self._unconfirmed: deque[Future[None]] = deque()
        self._checked: set[str] = set()
        self.count = 0
        self.unrouted = 0

    def __enter__(self) -> _Sending:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # everything is confirmed, or the task failed and is repeated
        self._connection.abandon()
        self._dead.__exit__(kind, error, trace)

    def send(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        """Send all rows that can be sent, and wait for the confirmations.

        Raises:
            ConfigError: the directory of rows that cannot be sent cannot be written.
            AddressNotFound: an address has no queue.
            QueueNotFound: no queue takes a message, and ``checkQueue`` is not false.
            BrokerError: the broker refuses a message, or does not answer.
        """
        column = self._options.id_column
        session = self._connection.session()
        producer = session.producer(routing=None, duplicate_ids=False, window=SEND_WINDOW)
        rows = (row for batch in batches for row in sent_rows(batch))
        for number, row in enumerate(rows):
            own = None if column is None else row[column]
            name = f"{self._task}/{number}" if own is None else own if isinstance(own, bytes) else str(own)
            try:
                message = message_to_send(row, self._options.address, name, time.time_ns() // 1_000_000)
            except RowRefused as error:
                self._dead.add(number, row, str(error))
                continue
            self._send_one(session, producer, message)
        while self._unconfirmed:
            self._take_answer()
        return Sent(self.count, self.unrouted, self._dead.refused())

    def _take_answer(self) -> None:
        try:
            self._unconfirmed.popleft().result()
        except QueueNotFound as error:
            if self._options.check_queue:
                hint = "change its filter or the rows, or set option checkQueue to false"
                raise QueueNotFound(str(error), hint=hint) from error
            self.unrouted += 1
        else:
            self.count += 1

    def _send_one(self, session: ClientSession, producer: Producer, message: Message) -> None:
        address = (message.address or "").partition("::")[0]
        if self._options.check_queue and address not in self._checked:
            require_address(session, address)
            self._checked.add(address)
        producer.wait_sendable()
        self._unconfirmed.append(producer.send_nowait(message))
        while self._unconfirmed and self._unconfirmed[0].done():
            self._take_answer()


def require_address(session: ClientSession, address: str) -> None:
    """The address must have a queue: a broker confirms messages to one without, and drops them.

    Raises:
        AddressNotFound: there is no such address, or it has no queue.
        NotAuthorized: the user may not ask.
    """
    found = session.query_address(address)
    if not found.exists or not found.queue_names:
        what = "has no queue: messages to it would be in none" if found.exists else "does not exist"
        raise AddressNotFound(f"address {address!r} {what}", hint="create it, or set option checkQueue to false")


class QueueWriter(DataSourceArrowWriter):
    """Sends the rows of a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType, write_id: str) -> None:
        """
        Args:
            write_id: Names the write; the same in all its tasks and their repetitions.

        Raises:
            ConfigError: the rows cannot be sent.
        """
        _check(options, schema)
        self._options = options
        self._write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition; called by its task, once for each attempt.

        Raises:
            BrokerError: as ``_Sending.send``.
        """
        partition = _context().partitionId()
        with _Sending(self._options, f"{self._write_id}/{partition}") as sending:
            return sending.send(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Report messages that no queue took, and rows that were not sent.

        Raises:
            ConfigError: rows were not sent, and there is no directory for them; the others were sent.
        """
        _report(messages, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove files of rows that were not sent."""
        drop(_refused(messages))


def _refused(messages: Sequence[WriterCommitMessage | None]) -> list[Refused]:
    return [each.refused for each in messages if isinstance(each, Sent) and each.refused is not None]


def _report(messages: Sequence[WriterCommitMessage | None], options: SinkOptions) -> None:
    unrouted = sum(each.unrouted for each in messages if isinstance(each, Sent))
    if unrouted:
        log.warning("%d messages were taken by no queue and are lost (checkQueue is false)", unrouted)
    refused = _refused(messages)
    if not refused:
        return
    rows, sent = sum(each.rows for each in refused), sum(each.messages for each in messages if isinstance(each, Sent))
    text = f"{rows} rows cannot be sent, {sent} messages were sent: {refused[0].first}"
    if options.dead_rows is None:
        raise ConfigError(text, hint="option deadRows names a directory for such rows; the write then succeeds")
    publish(refused)
    log.warning("%s; the rows are in %s", text, options.dead_rows)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """
        Raises:
            ConfigError: the rows cannot be sent.
        """
        _check(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition of a batch; called by its task, once for each attempt.

        Raises:
            BrokerError: as ``_Sending.send``.
        """
        context = _context()
        partition = context.partitionId()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise RuntimeError(f"Spark gives no {_QUERY} and {_BATCH} to a task of a stream")
        prefix = self._options.write_id or query
        with _Sending(self._options, f"{prefix}/{batch}/{partition}") as sending:
            return sending.send(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Report messages that no queue took, and rows that were not sent; the others were confirmed before.

        Raises:
            ConfigError: rows were not sent, and there is no directory for them; the others were sent.
        """
        _report(messages, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove files of rows that were not sent. The batch is repeated, and the broker drops the copies."""
        drop(_refused(messages))


def _check(options: SinkOptions, schema: StructType) -> None:
    columns = {each.name: each.dataType.simpleString() for each in schema.fields}
    check_sent(columns, options.address, options.id_column)


def _context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None, "called outside of a task"
    return found
