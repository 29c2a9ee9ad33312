"""The format ``understudy.queue`` against a real broker process: reading, consuming, sending, and refusals."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.support.ports import free_port
from tests.support.processes import Node, Pair

from understudy.client.sync import connect
from understudy.errors import (
    AddressNotFound,
    AuthenticationFailed,
    BrokerError,
    ConfigError,
    QueueNotFound,
    SecurityError,
    Unreachable,
)
from understudy.properties import STRING, Properties
from understudy.spark.queue.source import browse_queue, consume, queue_stream_writer, queue_writer, stream_queue

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SECURITY = """
    <security-settings>
      <security-setting match="#">
        <permission type="send" roles="everything"/>
        <permission type="consume" roles="everything"/>
        <permission type="createAddress" roles="everything"/>
        <permission type="createDurableQueue" roles="everything"/>
      </security-setting>
      <security-setting match="secret.#">
        <permission type="createAddress" roles="everything"/>
        <permission type="createDurableQueue" roles="everything"/>
      </security-setting>
    </security-settings>
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    pair = Pair(tmp_path)
    try:
        pair.primary.start().wait_ready("active")
        yield pair.primary
    finally:
        pair.end()


def url_of(node: Node) -> str:
    return f"tcp://127.0.0.1:{node.port}"


def fill(node: Node, queue: str, count: int, **login: str) -> list[str]:
    """Texts with a property of every kind of value."""
    with connect(url_of(node), **login) as connection, connection.session() as session:
        session.create_queue(queue)
        producer = session.producer(queue)
        for number in range(count):
            properties = Properties({"n": number, "even": number % 2 == 0, "raw": b"\x01\xff"})
            properties.set_typed("ledger_producer", STRING, "p")
            producer.send(f"text {number}", properties=properties, priority=number % 10)
    return [f"text {number}" for number in range(count)]


def received(node: Node, queue: str) -> list[tuple[str | None, dict[str, object]]]:
    """Texts and properties of all messages, which are consumed."""
    found = []
    with connect(url_of(node)) as connection, connection.session() as session:
        consumer = session.consumer(queue)
        while (message := consumer.receive_nowait()) is not None:
            found.append((message.text, dict(message.properties)))
    return found


def test_a_browser_shows_what_the_client_sees_and_leaves_it_there(node: Node, spark: SparkSession) -> None:
    fill(node, "q", 30)
    with connect(url_of(node)) as connection, connection.session() as session:
        expected = [
            (each.message_id, each.text, each.message.priority, each.message.timestamp, each.properties["n"])
            for each in session.browser("q")
        ]
        node_id = connection.node_id
    frame = browse_queue(spark, url=url_of(node), queue="q", partitionBytes="1000")
    assert frame.count() == 30
    rows = frame.select("*", F.unix_millis("timestamp").alias("sent_ms")).collect()
    assert [(r.message_id, r.text, r.priority, r.sent_ms, int(r.properties["n"])) for r in rows] == expected
    assert {(r.id, r.node_id, r.queue, r.address, r.producer, r.durable, r.large) for r in rows} == {
        (f"{node_id}:{each[0]}", node_id, "q", "q", "p", True, False) for each in expected
    }
    assert {(r.properties["even"], r.properties["raw"]) for r in rows} == {("true", "01ff"), ("false", "01ff")}
    assert [r.n for r in browse_queue(spark, url=url_of(node), queue="q", filter="n < 7", maxMessages="5")
            .select(F.col("properties")["n"].alias("n")).collect()] == ["6", "5", "4", "3", "2"]  # fmt: skip
    facts = node.queue("q")
    assert facts is not None
    assert (facts["message_count"], facts["messages_acknowledged"]) == (30, 0)


def test_a_block_that_ends_consumes_and_one_that_raises_does_not(
    node: Node, spark: SparkSession, tmp_path: Path
) -> None:
    texts = fill(node, "q", 25)
    options = {"url": url_of(node), "queue": "q", "maxMessages": "10"}
    with pytest.raises(ZeroDivisionError), consume(spark, **options) as frame:
        assert frame.count() == 10
        raise ZeroDivisionError
    found: list[str] = []
    for turn in range(4):
        with consume(spark, columns="id,text,delivery_count", **options) as frame:
            frame.write.parquet(str(tmp_path / str(turn)))
    for turn in range(4):
        found += [row.text for row in spark.read.parquet(str(tmp_path / str(turn))).collect()]
    assert Counter(found) == Counter(texts)
    facts = node.queue("q")
    assert facts is not None
    assert (facts["message_count"], facts["messages_acknowledged"]) == (0, 25)


def test_a_body_is_read_whole_or_its_message_stays(node: Node, spark: SparkSession) -> None:
    body = bytes(range(256)) * 12_000
    with connect(url_of(node)) as connection, connection.session() as session:
        session.create_queue("q")
        session.producer("q").send(body)
    options = {"url": url_of(node), "queue": "q"}
    text = r"queue 'q': message \d+ has a body of more than 1000000 bytes"
    with pytest.raises(ConfigError, match=text) as refused, consume(spark, maxMessageBytes="1000000", **options):
        pytest.fail("it gives no rows")
    assert "\n" not in str(refused.value)
    with consume(spark, **options) as frame:
        (row,) = frame.collect()
    assert (row.large, bytes(row.body)) == (True, body)
    assert row["size"] > len(body)


def run_to_the_end(stream: DataFrame, checkpoint: Path, **options: str) -> list[int]:
    """Rows in each batch."""
    writer = queue_stream_writer(stream, checkpointLocation=str(checkpoint), **options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_a_stream_moves_each_message_once_and_keeps_its_fields(node: Node, spark: SparkSession, tmp_path: Path) -> None:
    texts = fill(node, "in", 50)
    fill(node, "out", 0)
    url = url_of(node)
    for more in (0, 0, 3):
        with connect(url) as connection, connection.session() as session:
            for number in range(more):
                session.producer("in").send(f"more {number}")
        stream = stream_queue(spark, url=url, queue="in", maxMessages="20")
        rows = stream.select("id", "text", "properties", "priority")
        sizes = run_to_the_end(rows, tmp_path / "checkpoint", url=url, address="out", idColumn="id")
        assert max(sizes, default=0) <= 20
    facts = node.queue("in")
    assert facts is not None
    assert (facts["message_count"], facts["messages_acknowledged"]) == (0, 53)
    found = received(node, "out")
    assert Counter(text for text, _ in found) == Counter([*texts, "more 0", "more 1", "more 2"])
    assert {properties["raw"] for text, properties in found if text in texts} == {"01ff"}


def test_repeated_tasks_double_nothing(node: Node, spark: SparkSession, tmp_path: Path) -> None:
    fill(node, "out", 0)
    marks = str(tmp_path)

    def fail_in_the_middle(number: int) -> str:
        """Ends the first two attempts of each task after some rows were sent."""
        if number % 500 == 400:
            for attempt in range(2):
                mark = Path(marks) / f"{number}-{attempt}"
                if not mark.exists():
                    mark.touch()
                    time.sleep(0.5)  # the rows before are at the broker
                    raise RuntimeError("this attempt fails")
        return f"text {number}"

    # Arrow would need pandas, and Spark warns of its absence
    failing = F.udf(fail_in_the_middle, "string", useArrow=False)
    frame = spark.range(0, 2000, 1, 4).select(failing("id").alias("text"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    spark.conf.set("spark.sql.execution.python.udf.maxRecordsPerBatch", "50")
    try:
        queue_writer(frame, url=url_of(node), address="out", writeId="nightly").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        spark.conf.unset("spark.sql.execution.python.udf.maxRecordsPerBatch")
    assert len(list(tmp_path.glob("*-1"))) == 4, "each task failed twice"
    # a whole write again, under its name, adds nothing either
    queue_writer(frame, url=url_of(node), address="out", writeId="nightly").save()
    facts = node.queue("out")
    assert facts is not None
    assert facts["messages_added"] == 2000
    found = received(node, "out")
    assert Counter(text for text, _ in found) == Counter(f"text {number}" for number in range(2000))
    assert {str(properties["_AMQ_DUPL_ID"]).split("/")[0] for _, properties in found} == {"nightly"}


def test_row_with_an_address_that_is_too_long_leaves_the_others_alone(
    node: Node, spark: SparkSession, tmp_path: Path
) -> None:
    fill(node, "out", 0)
    long = F.when(F.col("id") % 10 == 3, F.repeat(F.lit("a"), 30_000)).otherwise(F.lit("out"))
    frame = spark.range(0, 40, 1, 2).select(F.concat(F.lit("text "), "id").alias("text"), long.alias("address"))
    # without a place for them the write fails, and says so, after the others were sent
    with pytest.raises(Exception, match="4 rows cannot be sent, 36 messages were sent") as failed:
        queue_writer(frame, url=url_of(node), writeId="nightly").save()
    assert "its address has 30,000 characters, at most 4,096" in str(failed.value)
    dead = tmp_path / "dead"
    queue_writer(frame, url=url_of(node), writeId="nightly", deadRows=str(dead)).save()
    assert sorted(path.name for path in dead.iterdir()) == ["nightly-0.jsonl", "nightly-1.jsonl"]
    rows = spark.read.json(str(dead)).select("row", "values.text", F.length("values.address").alias("characters"))
    assert sorted(row["text"] for row in rows.collect()) == ["text 13", "text 23", "text 3", "text 33"]
    assert {row["characters"] for row in rows.collect()} == {30_000}
    found = received(node, "out")
    assert Counter(text for text, _ in found) == Counter(f"text {number}" for number in range(40) if number % 10 != 3)


def one_line(error: pytest.ExceptionInfo[BrokerError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert "secret of" not in text
    return text


def test_refusals_of_a_broker_are_one_line_each(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(tmp_path, security=True)
    pair.primary.config.write_text(
        pair.primary.config.read_text().partition("<security-settings>")[0].rstrip()
        + SECURITY
        + "</core></configuration>"
    )
    password, wrong = tmp_path / "password", tmp_path / "wrong"
    password.write_text("secret of bob\n")
    wrong.write_text("secret of eve\n")
    login = {"user": "bob", "passwordFile": str(password)}
    frame = spark.range(3).selectExpr("cast(id as string) as text")
    try:
        pair.primary.start().wait_ready("active")
        url = url_of(pair.primary)
        fill(pair.primary, "q", 3, user="bob", password="secret of bob")
        fill(pair.primary, "secret.q", 0, user="bob", password="secret of bob")
        with consume(spark, url=url, queue="q", **login) as consumed:
            assert consumed.count() == 3
        with connect(url, "bob", "secret of bob") as connection, connection.session() as session:
            session.create_address("empty")
        with pytest.raises(AuthenticationFailed) as refused:
            browse_queue(spark, url=url, queue="q", user="bob", passwordFile=str(wrong))
        one_line(refused)
        with pytest.raises(QueueNotFound) as refused:
            stream_queue(spark, url=url, queue="none", **login)
        assert "the broker has no queue 'none'" in one_line(refused)
        with pytest.raises(SecurityError) as refused, consume(spark, url=url, queue="secret.q", **login):
            pytest.fail("it gives no rows")
        assert "secret.q" in one_line(refused)
        for address, text in (("none", "address 'none' does not exist"), ("empty", "address 'empty' has no queue")):
            with pytest.raises(AddressNotFound) as refused:
                queue_writer(frame, url=url, address=address, **login)
            assert text in one_line(refused)
        # Spark wraps the errors of tasks
        with pytest.raises(Exception, match=r"secret\.q") as failed:
            queue_writer(frame, url=url, address="secret.q", **login).save()
        assert "has no permission 'send'" in str(failed.value)
        assert "secret of bob" not in str(failed.value)
        explained = browse_queue(spark, url=url, queue="q", **login)._jdf.queryExecution().toString()
        assert "secret of bob" not in explained
    finally:
        pair.end()
    for make in (
        lambda url: browse_queue(spark, url=url, queue="q"),
        lambda url: stream_queue(spark, url=url, queue="q"),
        lambda url: queue_writer(frame, url=url, address="q"),
    ):
        with pytest.raises(Unreachable) as refused:
            make(f"tcp://127.0.0.1:{free_port()}")
        one_line(refused)
