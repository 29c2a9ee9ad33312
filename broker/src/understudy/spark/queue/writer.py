"""Writers into live queues: rows as messages with duplicate ids that a repeated task repeats (docs/use/pipeline.md).

Rows that cannot be sent are counted, described, and written to a directory if there is one. A task writes them under a
hidden name of its own and the driver renames the file when Spark commits the write, so that an attempt that fails or is
repeated leaves no rows twice.

A task connects, sends, and ends after the last confirmation. Nothing is left to do at the commit of a batch, and
nothing to undo when it is aborted: the broker drops messages that it had as copies when they are sent again.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from understudy.client.sync import Connection, Producer, connect
from understudy.client.sync import Session as ClientSession
from understudy.dataclass import dataclass
from understudy.errors import AddressNotFound, ConfigError, QueueNotFound
from understudy.message import Message
from understudy.spark.queue.options import SEND_WINDOW, SinkOptions
from understudy.spark.queue.rows import RowRefused, check_sent, message_to_send, sent_rows

log = logging.getLogger(__name__)

#: Local properties of a task that belongs to a stream.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


#: Characters of a reason, which may quote a value of the row.
_REASON_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Refused:
    """Rows that one task could not send."""

    rows: int
    first: str
    """Place of the first one, and why it cannot be sent."""
    file: str | None
    """Hidden file with all of them; None without a directory."""
    name: str
    """Name of the file after the commit."""


class DeadRows:
    """Rows that one attempt of a task could not send."""

    def __init__(self, directory: str | None, task: str) -> None:
        """
        Args:
            directory: Used for the rows; None keeps only their number and the first reason.
            task: The same for every attempt of the task, and of no other task: the begin of its duplicate ids.
        """
        self._directory = None if directory is None else Path(directory)
        self._task = task
        self._rows = 0
        self._first = ""
        self._path: Path | None = None
        self._file: TextIO | None = None

    def __enter__(self) -> DeadRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if kind is not None and self._path is not None:
            self._path.unlink(missing_ok=True)

    def add(self, number: int, row: Mapping[str, Any], reason: str) -> None:
        """Keep a row that could not be sent.

        Args:
            number: Number of the row in its task.
            row: Values by column, as ``sent_rows`` gives them.
            reason: Why it cannot be sent.

        Raises:
            ConfigError: the directory cannot be written.
        """
        reason = reason if len(reason) <= _REASON_CHARACTERS_MAX else f"{reason[:_REASON_CHARACTERS_MAX]}..."
        self._rows += 1
        self._first = self._first or f"row {number} of {self._task}: {reason}"
        if self._directory is None:
            return
        try:
            if self._file is None:
                self._directory.mkdir(parents=True, mode=0o700, exist_ok=True)
                self._path = self._directory / f".{uuid.uuid4().hex}.new"
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                self._file = os.fdopen(descriptor, "w", encoding="utf-8")
            values = {"reason": reason, "task": self._task, "row": number, "values": row}
            self._file.write(json.dumps(values, default=_plain) + "\n")
        except OSError as error:
            raise _unwritable(self._directory, error) from error

    def refused(self) -> Refused | None:
        """The rows, durable if they are in a file; None if there are none.

        Raises:
            ConfigError: the directory cannot be written.
        """
        if self._file is not None:
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError as error:
                assert self._directory is not None
                raise _unwritable(self._directory, error) from error
        if not self._rows:
            return None
        path = None if self._path is None else str(self._path)
        return Refused(self._rows, self._first, path, f"{self._task.replace('/', '-')}.jsonl")


def publish(refused: Iterable[Refused]) -> None:
    """Give the files of committed tasks their names; a batch that is repeated replaces its own.

    Raises:
        ConfigError: a file cannot be renamed.
    """
    for each in refused:
        if each.file is None:
            continue
        path = Path(each.file)
        try:
            os.replace(path, path.parent / each.name)
        except OSError as error:
            raise _unwritable(path.parent, error) from error


def drop(refused: Iterable[Refused]) -> None:
    """Remove the files of tasks whose write is aborted."""
    for each in refused:
        if each.file is not None:
            Path(each.file).unlink(missing_ok=True)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _unwritable(directory: Path, error: OSError) -> ConfigError:
    hint = "all workers and the driver must be able to write there"
    return ConfigError(f"option deadRows: cannot be written: {error.strerror}", file=str(directory), hint=hint)


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
    """The sends of one task."""

    def __init__(self, options: SinkOptions, task: str) -> None:
        """
        Args:
            options: Login, address and the directory for rows that cannot be sent.
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
