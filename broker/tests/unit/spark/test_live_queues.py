"""Options, rows and batches of live queues, without a broker and without a running Spark.

Goal: no message is lost or in two batches of one process, whatever failovers come when; a wrong option is one clear
line. Method: ``Held`` and ``QueueStream`` are driven as Spark and a broker would, against a queue of plain Python.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from understudy.errors import BrokerError, ConfigError, InvalidSelector
from understudy.message import DUPLICATE_ID, TRANSFER, Message, MessageType
from understudy.properties import BYTE, LONG, STRING, encode_simple_string
from understudy.spark.queue import reader as queue_reader
from understudy.spark.queue.consumer import Held
from understudy.spark.queue.options import MESSAGE_BYTES, parse_sink, parse_source
from understudy.spark.queue.reader import QueuePartition, QueueStream, batches_of, checked_schema, partitions_of
from understudy.spark.queue.rows import (
    COLUMNS,
    QueueMessage,
    RowRefused,
    batch_of,
    check_sent,
    columns_ddl,
    message_to_send,
    sent_rows,
)
from understudy.spark.queue.writer import DeadRows, QueueStreamWriter, Refused, Sent, publish

pytestmark = pytest.mark.spark

SOURCE = {"url": "tcp://127.0.0.1:61616", "queue": "orders"}
SINK = {"url": "tcp://127.0.0.1:61616", "address": "orders"}


def message(number: int, body: bytes = b"body", **fields: Any) -> QueueMessage:
    made = Message(body, message_id=number, address="orders", **fields)
    return QueueMessage("node", "orders", made, body, False, made.encode_size, 1)


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "tinyint": ByteType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def schema(columns: str | None = None) -> StructType:
    names = list(COLUMNS) if columns is None else columns.split(",")
    return StructType([StructField(name, TYPES[COLUMNS[name]]) for name in names])


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"maxMesages": "1"}, "unknown option 'maxmesages'"),
        ({"password": "secret"}, "option password: Spark shows options in its plans"),
        ({"url": "tcp://h:1?user=a&password=secret"}, "option url has a password"),
        ({"url": "tcp://h:1?sslEnabled=true&keyStorePath=k.pem&keyStorePassword=secret"}, "option url has a password"),
        ({"url": ""}, "option url is missing"),
        ({"queue": ""}, "option queue is missing"),
        ({"maxMessages": "0"}, "option maxMessages: '0' is no positive number"),
        ({"maxBytes": "many"}, "option maxBytes: 'many' is no positive number"),
        ({"maxWaitMs": "-1"}, "option maxWaitMs: '-1' is no positive number"),
        ({"maxMessageBytes": str(MESSAGE_BYTES + 1)}, f"option maxMessageBytes: at most {MESSAGE_BYTES}"),
        ({"passwordFile": "f"}, "option passwordFile needs option user"),
    ],
)
def test_wrong_options_of_a_reader_are_one_line(more: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_source(SOURCE | more)
    assert str(refused.value).startswith(text)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"queue": "q"}, "unknown option 'queue'"),
        ({"checkQueue": "maybe"}, "option checkQueue: 'maybe' is none of true, false"),
        ({"address": ""}, "option address is empty"),
        ({"url": "tcp://h:x"}, ""),
    ],
)
def test_wrong_options_of_a_writer_are_one_line(more: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_sink(SINK | more)
    assert str(refused.value).startswith(text)
    assert "\n" not in str(refused.value)


def test_a_filter_is_checked_before_anything_is_connected() -> None:
    with pytest.raises(InvalidSelector):
        parse_source(SOURCE | {"filter": "a = "})


def test_the_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    login = parse_source(SOURCE | {"user": "bob", "passwordFile": str(file)}).login
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        login.password()
    file.write_text("\n")
    with pytest.raises(ConfigError, match="its first line is empty"):
        login.password()
    file.write_text("secret of bob\nnot this\n")
    assert login.password() == "secret of bob"
    assert "secret" not in repr(login)


@pytest.mark.parametrize(
    ("columns", "address", "identity", "text"),
    [
        ({"body": "binary", "message_id": "bigint"}, "a", None, "column message_id cannot be sent"),
        ({"body": "string"}, "a", None, "column body is string, and binary is sent"),
        ({"priority": "tinyint"}, "a", None, "there is nothing to send"),
        ({"body": "binary"}, None, None, "there is no address to send to"),
        ({"body": "binary"}, "a", "id", "option idColumn: there is no column 'id'"),
        ({"body": "binary", "id": "double"}, "a", "id", "option idColumn: column id is double"),
    ],
)
def test_columns_that_cannot_be_sent_are_named(
    columns: dict[str, str], address: str | None, identity: str | None, text: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_sent(columns, address, identity)
    assert str(refused.value).startswith(text)


# --- rows -----------------------------------------------------------------------------------------------------------

MESSAGES = st.builds(
    lambda number, text, fields: (number, text, fields),
    st.integers(1, 2**62),
    st.one_of(st.binary(max_size=40), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    st.fixed_dictionaries(
        {
            "priority": st.integers(0, 9),
            "durable": st.booleans(),
            "expiration": st.integers(0, 2**40),
            "timestamp": st.integers(0, 2**40),
            "user_id": st.none() | st.binary(min_size=16, max_size=16),
            "properties": st.dictionaries(
                st.text("abc", min_size=1, max_size=3), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
            ),
        }
    ),
)


@given(MESSAGES)
def test_a_message_that_is_read_and_sent_is_the_same(drawn: tuple[int, bytes | str, dict[str, Any]]) -> None:
    number, content, fields = drawn
    is_text = isinstance(content, str)
    body = b"\x01" + encode_simple_string(content) if isinstance(content, str) else content
    given_message = message(number, body, type=MessageType.TEXT if is_text else MessageType.BYTES, **fields)
    batch = batch_of([given_message], checked_schema(schema()))
    assert batch.schema.names == list(COLUMNS)
    (row,) = sent_rows(batch)
    assert row["id"] == f"node:{number}"
    assert row["text"] == (content if is_text else None)
    sent = message_to_send(row, None, row["id"], 77)
    original = given_message.message
    for name in ("body", "address", "type", "durable", "priority", "expiration", "user_id"):
        assert getattr(sent, name) == getattr(original, name), name
    assert sent.timestamp == 77
    assert dict(sent.properties) == {**fields["properties"], DUPLICATE_ID: f"node:{number}", TRANSFER: 3}


def test_properties_of_brokers_are_not_sent_as_text() -> None:
    row = {"body": b"", "properties": [("_AMQ_DUPL_ID", "other"), ("_AMQ_ROUTING_TYPE", "1"), ("kept", "1")]}
    assert dict(message_to_send(row, "a", "own", 1).properties) == {"kept": "1", DUPLICATE_ID: "own", TRANSFER: 3}
    with pytest.raises(RowRefused, match="it has no address"):
        message_to_send({"body": b""}, None, "own", 1)


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(1, 900))
def test_partitions_have_all_messages_in_order(sizes: list[int], limit: int) -> None:
    messages = [message(number, bytes(size)) for number, size in enumerate(sizes, 1)]
    wanted = checked_schema(schema("message_id,size,body"))
    parts = partitions_of(messages, wanted, limit)
    batches = [[each for batch in batches_of(part) for each in batch.to_pylist()] for part in parts]
    assert [row["message_id"] for rows in batches for row in rows] == list(range(1, len(sizes) + 1))
    for rows in batches:
        assert len(rows) <= 1 or sum(row["size"] for row in rows) <= limit
    assert list(batches_of(QueuePartition())) == []


# --- batches --------------------------------------------------------------------------------------------------------


class PlainQueue:
    """A broker's queue with one consumer, whose session ends with each failover."""

    def __init__(self, count: int) -> None:
        self.messages = list(range(1, count + 1))
        self.delivered: list[int] = []
        self.generation = 0

    def next(self) -> int | None:
        waiting = [each for each in self.messages if each not in self.delivered]
        if not waiting:
            return None
        self.delivered.append(waiting[0])
        return waiting[0]

    def fail_over(self) -> None:
        self.delivered.clear()
        self.generation += 1

    def acknowledge(self) -> None:
        self.messages = [each for each in self.messages if each not in self.delivered]
        self.delivered.clear()


class PlainConsumer:
    """``QueueConsumer`` on a plain queue, with failovers where a test says."""

    def __init__(self, queue: PlainQueue, failovers: list[bool], lost_answers: list[bool]) -> None:
        self.queue, self.held = queue, Held()
        self._failovers, self._lost_answers = failovers, lost_answers
        self._last: int | None = None

    @property
    def messages(self) -> list[QueueMessage]:
        return self.held.messages

    def waiting(self) -> int:
        return len(self.queue.messages)

    def collect(self, messages_max: int) -> list[QueueMessage]:
        while len(self.held.messages) < messages_max:
            if self._failovers and self._failovers.pop():
                self.queue.fail_over()
            number = self.queue.next()
            if number is None:
                break
            self._last = self.queue.generation
            self.held.take(message(number), self.queue.generation)
        if self.held.owes and not self.held.messages:
            self.acknowledge()
        return self.held.messages

    def acknowledge(self) -> bool:
        if self._failovers and self._failovers.pop():
            self.queue.fail_over()
        last, self._last = self._last, None
        confirmed = last == self.queue.generation
        if confirmed:
            self.queue.acknowledge()
            if self._lost_answers and self._lost_answers.pop():
                confirmed = False
                self.queue.fail_over()
        self.held.acknowledged(last if confirmed else None)
        return confirmed

    def close(self) -> None:
        self.queue.fail_over()


def stream_on(queue: PlainQueue, failovers: list[bool], lost: list[bool], most: int) -> QueueStream:
    made = QueueStream(parse_source(SOURCE | {"maxMessages": str(most)}), schema("message_id"))
    made._consumer = PlainConsumer(queue, failovers, lost)  # type: ignore[assignment]
    return made


def rows_of(stream: QueueStream, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        row["message_id"]
        for part in stream.partitions(start, end)
        for batch in stream.read(part)
        for row in batch.to_pylist()
    ]


@given(
    st.integers(0, 25),
    st.integers(1, 6),
    st.lists(st.booleans(), max_size=40),
    st.lists(st.booleans(), max_size=8),
    st.data(),
)
def test_messages_are_in_one_batch_over_failovers_and_come_again_only_after_a_kill(
    count: int, most: int, failovers: list[bool], lost: list[bool], data: st.DataObject
) -> None:
    queue = PlainQueue(count)
    stream = stream_on(queue, failovers, lost, most)
    sink: dict[int, list[int]] = {}
    offsets: list[dict[str, Any]] = [stream.initialOffset()]
    uncertain: set[int] = set()
    kills = 0
    while True:
        start = offsets[-1]
        end = stream.latestOffset(start, ReadMaxRows(most))
        if len(offsets) > 1 and end != start:
            stream.commit(start)
        if end == start:
            if not queue.messages:
                break
            continue  # only copies of a finished batch came
        rows = rows_of(stream, start, end)
        assert rows == rows_of(stream, start, end), "a repeated task gets the same"
        assert len(rows) <= most
        if kills < 3 and data.draw(st.integers(0, 9)) == 0:
            # the whole query is killed before or after the sink has the batch; Spark repeats the batch
            kills += 1
            if data.draw(st.booleans()):
                sink[end["batch"]] = rows
                uncertain |= set(rows)
            queue.fail_over()
            stream = stream_on(queue, failovers, lost, most)
            assert rows_of(stream, start, end) == []
            sink.setdefault(end["batch"], [])
        else:
            sink[end["batch"]] = rows
        offsets.append(end)
        assert len(sink) < 400
    delivered = [each for batch in sink.values() for each in batch]
    assert set(delivered) == set(range(1, count + 1)), "a message was lost"
    assert len([each for each in delivered if each not in uncertain]) == len(set(delivered) - uncertain)
    if not kills:
        assert delivered == sorted(delivered)


def test_a_copy_is_dropped_until_one_of_its_deliveries_is_acknowledged() -> None:
    held = Held()
    assert held.take(message(1), 0)
    held.acknowledged(None)
    assert not held.take(message(1), 1)
    assert not held.take(message(1), 2), "the delivery of generation 1 was not acknowledged"
    held.acknowledged(2)
    assert held.take(message(1), 2), "acknowledged: another message of this id would be new"


def test_a_batch_that_spark_commits_twice_is_acknowledged_once(caplog: pytest.LogCaptureFixture) -> None:
    queue = PlainQueue(2)
    stream = stream_on(queue, [], [], 2)
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadMaxRows(2))
    end = stream.latestOffset(first, ReadMaxRows(2))
    # a batch of Spark without new data, such as one that only moves a watermark, ends where the one before does
    for offset in (first, end, end):
        stream.commit(offset)
    assert not queue.messages
    assert not caplog.messages, "there was no failover"


def test_a_run_to_the_present_end_takes_the_messages_of_its_start_and_acknowledges_them() -> None:
    queue = PlainQueue(7)
    stream = stream_on(queue, [], [], 3)
    stream.prepareForTriggerAvailableNow()
    queue.messages.append(8)
    offset, sizes = stream.initialOffset(), []
    while True:
        end = stream.latestOffset(offset, stream.getDefaultReadLimit())
        if sizes:
            stream.commit(offset)
        if end == offset:
            break
        sizes.append(len(rows_of(stream, offset, end)))
        offset = end
    assert sizes == [3, 0, 3, 0, 1, 0]
    assert queue.messages == [8]


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(100)])
def test_the_limit_of_the_options_holds_whatever_spark_asks_for(limit: ReadLimit) -> None:
    stream = stream_on(PlainQueue(9), [], [], 4)
    end = stream.latestOffset(stream.initialOffset(), limit)
    assert rows_of(stream, stream.initialOffset(), end) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        ({"epoch": 1, "node_id": "n", "sequence": 4}, "the checkpoint is not one of a stream of a queue"),
        ({"batch": -1, "queue": "orders"}, "the checkpoint is not one of a stream of a queue"),
        ({"batch": 1, "queue": "other"}, "the checkpoint is of queue 'other', the stream of 'orders'"),
    ],
)
def test_a_checkpoint_of_another_stream_is_refused(offset: dict[str, Any], text: str) -> None:
    with pytest.raises(BrokerError) as refused:
        stream_on(PlainQueue(1), [], [], 1).latestOffset(offset, ReadMaxRows(1))
    assert str(refused.value).startswith(text)


def test_a_schema_has_columns_of_a_queue_only() -> None:
    with pytest.raises(ConfigError, match="a queue has no column 'sequence'"):
        columns_ddl("id,sequence")
    with pytest.raises(ConfigError, match="column size of a queue is int"):
        checked_schema(StructType([StructField("size", LongType())]))
    assert checked_schema(schema("timestamp")).field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert queue_reader.QueueBrowser(parse_source(SOURCE), schema("id")).partitions() == [QueuePartition()]


def test_the_origin_of_a_dead_letter_is_sent_with_its_types() -> None:
    origin = {
        "_AMQ_ORIG_ADDRESS": "work", "_AMQ_ORIG_QUEUE": "q", "_AMQ_ORIG_MESSAGE_ID": "7",
        "_AMQ_ORIG_ROUTING_TYPE": "1", "_AMQ_ACTUAL_EXPIRY": "1700000000000",
    }  # fmt: skip
    properties = message_to_send({"body": b"", "properties": list(origin.items())}, "a", "own", 1).properties
    found = {name: (properties.tag(name), properties[name]) for name in origin}
    assert found == {
        "_AMQ_ORIG_ADDRESS": (STRING, "work"),
        "_AMQ_ORIG_QUEUE": (STRING, "q"),
        "_AMQ_ORIG_MESSAGE_ID": (LONG, 7),
        "_AMQ_ORIG_ROUTING_TYPE": (BYTE, 1),
        "_AMQ_ACTUAL_EXPIRY": (LONG, 1_700_000_000_000),
    }
    with pytest.raises(RowRefused, match="no number"):
        message_to_send({"body": b"", "properties": [("_AMQ_ORIG_MESSAGE_ID", "x")]}, "a", "own", 1)


def test_messages_that_no_queue_took_are_reported_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    QueueStreamWriter(parse_sink(SINK), schema("body")).commit([Sent(3, 2), None, Sent(1, 0)], 1)
    assert "2 messages were taken by no queue" in caplog.text


# --- rows that cannot be sent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"address": "a" * 30_000}, "its address has 30,000 characters, at most 4,096"),
        ({"address": "\U0001f600" * 2_049}, "its address has 4,098 characters"),
        ({"address": "a", "priority": 12}, "priority 12: 0 to 9"),
        ({"address": "a", "user_id": b"short"}, "user id of 5 bytes"),
        ({"address": "a", "properties": [("p", "x" * 1_048_577)]}, "its property 'p' has 1,048,577 characters"),
        ({"address": "a", "properties": [("p" * 1_048_577, "x")]}, "its property 'pppp"),
        ({"address": "a", "properties": [(f"p{n}", "") for n in range(16_384)]}, "it has 16,386 properties"),
        ({"address": "a", "properties": [(f"p{n}", "x" * 1_048_576) for n in range(30)]}, "its properties have"),
        ({"address": "a", "properties": [("_AMQ_ORIG_MESSAGE_ID", str(1 << 63))]}, "its property _AMQ_ORIG_MES"),
    ],
)
def test_row_that_no_broker_takes_is_refused_before_it_is_sent(row: dict[str, Any], text: str) -> None:
    with pytest.raises(RowRefused) as refused:
        message_to_send({"body": b"", **row}, None, "own", 1)
    assert str(refused.value).startswith(text)
    assert len(str(refused.value)) < 300


def test_refused_rows_are_in_a_file_once_the_write_is_committed(tmp_path: Path) -> None:
    directory = tmp_path / "dead"
    with DeadRows(str(directory), "write/3") as first:
        first.add(5, {"body": b"\x01\xff", "address": "a"}, "it is too long")
        first.add(9, {"body": b"", "address": "b"}, "x" * 1_000)
        kept = first.refused()
    assert kept is not None
    assert (kept.rows, kept.first) == (2, "row 5 of write/3: it is too long")
    assert [path.name for path in directory.iterdir() if not path.name.startswith(".")] == []
    # another attempt of the same task, and one that failed
    with DeadRows(str(directory), "write/3") as second:
        second.add(5, {"body": b"\x01\xff", "address": "a"}, "it is too long")
        again = second.refused()
    with pytest.raises(ValueError, match="killed"), DeadRows(str(directory), "write/3") as third:
        third.add(5, {}, "it is too long")
        raise ValueError("killed")
    assert again is not None
    publish([kept])
    publish([again])
    assert [path.name for path in directory.iterdir()] == ["write-3.jsonl"]
    lines = [json.loads(line) for line in (directory / "write-3.jsonl").read_text().splitlines()]
    values = {"body": "01ff", "address": "a"}
    assert lines == [{"reason": "it is too long", "task": "write/3", "row": 5, "values": values}]


def test_files_of_an_aborted_write_are_removed(tmp_path: Path) -> None:
    with DeadRows(str(tmp_path), "write/3") as dead:
        dead.add(1, {"body": b""}, "it is too long")
        refused = dead.refused()
    assert refused is not None
    writer = QueueStreamWriter(parse_sink(SINK | {"deadRows": str(tmp_path)}), schema("body"))
    writer.abort([Sent(1, 0, pickle.loads(pickle.dumps(refused)))], 4)
    assert list(tmp_path.iterdir()) == []


def test_refused_rows_without_a_directory_end_the_write_after_the_others_were_sent() -> None:
    writer = QueueStreamWriter(parse_sink(SINK), schema("body"))
    refused = Refused(2, "row 5 of write/3: it is too long", None, "write-3.jsonl")
    with pytest.raises(ConfigError) as ended:
        writer.commit([Sent(7, 0, refused), None, Sent(4)], 4)
    text = "2 rows cannot be sent, 11 messages were sent: row 5 of write/3: it is too long"
    assert str(ended.value).startswith(text)


def test_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    dead = DeadRows(str(tmp_path / "file"), "write/3")
    with pytest.raises(ConfigError, match="option deadRows: cannot be written"):
        dead.add(1, {}, "it is too long")
