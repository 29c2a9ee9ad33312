"""Our client against a real Artemis broker and against ours, the same tests: messages, acknowledgements,
transactions, duplicate ids, XA, large messages.

Goal: nothing that the client offers depends on which of the two it talks to. Method: every test takes
the ``broker`` of both kinds; queues have names of their own, so all share one broker of each kind.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import time
from pathlib import Path

import pytest

from support.targets import Target
from understudy.client.sync import Connection, Consumer, Session, connect
from understudy.errors import (
    DuplicateIdRejected,
    IllegalState,
    InvalidSelector,
    QueueNotFound,
    UnexpectedRoutingType,
    XaCode,
    XaError,
)
from understudy.ids import Xid
from understudy.message import Message, MessageType
from understudy.properties import BYTE, CHAR, FLOAT, INT, SHORT, Properties

pytestmark = pytest.mark.maven

_numbers = itertools.count(1)


def texts(consumer: Consumer, count: int, timeout_s: float = 60) -> list[str | None]:
    """The texts of the next messages."""
    found = []
    for _ in range(count):
        received = consumer.receive(timeout_s)
        assert received is not None, f"only {found}"
        found.append(received.text)
    return found


def count_of(session: Session, queue: str) -> int:
    return session.query_queue(queue).message_count


def wait_for_count(session: Session, queue: str, count: int, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while count_of(session, queue) != count and time.monotonic() < deadline:
        time.sleep(0.05)
    assert count_of(session, queue) == count


# messages


@pytest.mark.feature("bodies: bytes, text, map, empty")
def test_bodies(session: Session, queue: str) -> None:
    producer = session.producer(queue)
    bodies = [b"", b"\x00\xff", "", "a", "äöü€𝄞" * 100, "x" * 5000]
    for body in bodies:
        producer.send(body)
    producer.send({"k": 1, "text": "v", "raw": b"\x01"})
    producer.send(None)
    consumer = session.consumer(queue)
    for body in bodies:
        received = consumer.receive(60)
        assert received is not None
        assert (received.text if isinstance(body, str) else received.body) == body
    received = consumer.receive(60)
    assert received is not None
    assert received.content == {"k": 1, "text": "v", "raw": b"\x01"}
    received = consumer.receive(60)
    assert received is not None
    assert (received.body, received.message.type) == (b"", MessageType.DEFAULT)


@pytest.mark.feature("properties of every type, header fields")
def test_properties(session: Session, queue: str) -> None:
    typed = Properties({"yes": True, "long": 1 << 40, "double": 1.5, "text": "ä𝄞", "raw": b"\x00\x01", "none": None})
    for name, kind, value in (
        ("b", BYTE, -1),
        ("s", SHORT, 300),
        ("i", INT, 70_000),
        ("f", FLOAT, 0.5),
        ("c", CHAR, 120),
    ):
        typed.set_typed(name, kind, value)
    user_id = bytes(range(16))
    with session.producer(queue) as producer:
        producer.send(Message(b"x", priority=7, durable=False, timestamp=12345, user_id=user_id, properties=typed))
    received = session.consumer(queue).receive(60)
    assert received is not None
    message = received.message
    assert (message.priority, message.durable, message.timestamp, message.user_id) == (7, False, 12345, user_id)
    for name, value in typed.items():
        assert received.properties[name] == value, name
    assert received.delivery_count == 1


@pytest.mark.feature("order and pipelined sends")
def test_pipelined_sends_keep_their_order(session: Session, queue: str) -> None:
    producer = session.producer(queue)
    futures = []
    for number in range(500):
        producer.wait_sendable()
        futures.append(producer.send_nowait(str(number)))
    for future in futures:
        future.result(20)
    assert texts(session.consumer(queue), 500) == [str(number) for number in range(500)]


@pytest.mark.feature("priorities")
def test_priorities(session: Session, queue: str) -> None:
    producer = session.producer(queue)
    for priority in (0, 4, 9, 4, 0, 9):
        producer.send(str(priority), priority=priority)
    assert texts(session.consumer(queue), 6) == ["9", "9", "4", "4", "0", "0"]


@pytest.mark.feature("expiry")
def test_expiry(session: Session, queue: str) -> None:
    """An expired message goes to the expiry address, with its original queue as a property."""
    producer = session.producer(queue)
    producer.send("gone", ttl_s=0.05)
    producer.send("there")
    expired = session.consumer("expired", filter=f"_AMQ_ORIG_ADDRESS = '{queue}'")
    received = expired.receive(60)
    assert received is not None
    assert received.text == "gone"
    assert received.properties["_AMQ_ORIG_QUEUE"] == queue
    assert isinstance(received.properties["_AMQ_ACTUAL_EXPIRY"], int)
    assert texts(session.consumer(queue), 1) == ["there"]


@pytest.mark.feature("scheduled delivery")
def test_scheduled(session: Session, queue: str) -> None:
    producer = session.producer(queue)
    due_ms = int(time.time() * 1000) + 3_000
    producer.send("later", deliver_at=due_ms / 1000)
    producer.send("now")
    consumer = session.consumer(queue)
    assert texts(consumer, 1) == ["now"]
    assert consumer.receive_nowait() is None
    assert texts(consumer, 1) == ["later"]
    assert time.time() * 1000 >= due_ms


@pytest.mark.feature("selectors")
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n > 2", ["3", "4"]),
        ("n BETWEEN 2 AND 3 AND colour <> 'red'", ["3"]),
        ("colour IN ('red') OR n = 4", ["2", "4"]),
        ("colour LIKE 'g%'", ["1", "3"]),
        ("missing IS NULL AND NOT (n * 2 < 6)", ["3", "4"]),
        ("AMQPriority = 9", ["4"]),
    ],
)
def test_selectors(session: Session, queue: str, selector: str, expected: list[str]) -> None:
    producer = session.producer(queue)
    for number, colour in ((1, "green"), (2, "red"), (3, "grey"), (4, "blue")):
        producer.send(str(number), properties={"n": number, "colour": colour}, priority=9 if number == 4 else 4)
    consumer = session.consumer(queue, filter=selector)
    found = []
    while (received := consumer.receive_nowait()) is not None:
        found.append(received.text)
    assert sorted(found) == expected  # type: ignore[type-var]


@pytest.mark.feature("selectors")
def test_a_broken_selector_is_refused(session: Session, queue: str) -> None:
    session.create_queue(queue)
    with pytest.raises(InvalidSelector):
        session.consumer(queue, filter="n >")


@pytest.mark.feature("message groups")
def test_groups(connection: Connection, queue: str) -> None:
    """All of one group go to one consumer; a later one gets other groups only."""
    with connection.session() as session, connection.session() as other:
        session.create_queue(queue)
        consumers = [session.consumer(queue), other.consumer(queue)]
        producer = session.producer(queue)
        for number in range(40):
            producer.send(str(number), group_id=f"g{number % 4}")
        seen: dict[str, set[int]] = {}
        order: dict[str, list[int]] = {}
        deadline = time.monotonic() + 60
        while sum(map(len, order.values())) < 40:
            assert time.monotonic() < deadline, order
            for index, consumer in enumerate(consumers):
                while (received := consumer.receive(0.05)) is not None:
                    group = str(received.properties["_AMQ_GROUP_ID"])
                    seen.setdefault(group, set()).add(index)
                    order.setdefault(group, []).append(int(received.text or ""))
        assert all(len(indexes) == 1 for indexes in seen.values()), seen
        assert [consumer.receive_nowait() for consumer in consumers] == [None, None]
        assert all(numbers == sorted(numbers) for numbers in order.values())


@pytest.mark.feature("message groups")
@pytest.mark.parametrize("parameter", ["groupID=mine", "autoGroup=true"])
def test_groups_by_url(broker: Target, queue: str, parameter: str) -> None:
    with connect(f"{broker.url}?{parameter}") as connection, connection.session() as session:
        producers = [session.producer(queue), session.producer(queue)]
        for producer in producers:
            producer.send("x")
            producer.send("y")
        producers[0].send("z", group_id="own")
        consumer = session.consumer(queue)
        groups = [
            received.properties["_AMQ_GROUP_ID"] for received in (consumer.receive(60) for _ in range(5)) if received
        ]
        if parameter == "groupID=mine":
            assert groups == ["mine"] * 4 + ["own"]
        else:
            assert groups[0] == groups[1] != groups[2] == groups[3]


# acknowledging


@pytest.mark.feature("acknowledgement modes")
@pytest.mark.parametrize("mode", ["auto", "dups-ok", "client", "individual", "transacted", "pre"])
def test_acknowledged_messages_are_gone(connection: Connection, queue: str, mode: str) -> None:
    with connection.session(mode) as session:
        producer = session.producer(queue)
        for number in range(5):
            producer.send(str(number))
        if mode == "transacted":
            session.commit()
        consumer = session.consumer(queue)
        for number in range(5):
            received = consumer.receive(60)
            assert received is not None
            assert received.text == str(number)
            if mode == "individual":
                assert consumer.acknowledge(received)
        if mode == "client":
            assert consumer.acknowledge(received)
        if mode == "transacted":
            session.commit()
    with connection.session() as session:
        wait_for_count(session, queue, 0)
        assert session.consumer(queue).receive_nowait() is None


@pytest.mark.feature("acknowledgement modes")
@pytest.mark.parametrize("mode", ["client", "individual", "transacted"])
def test_unacknowledged_messages_come_again(connection: Connection, queue: str, mode: str) -> None:
    with connection.session() as session:
        producer = session.producer(queue)
        for number in range(3):
            producer.send(str(number))
    with connection.session(mode) as session:
        consumer = session.consumer(queue)
        assert texts(consumer, 3) == ["0", "1", "2"]
    with connection.session() as session:
        assert texts(session.consumer(queue), 3) == ["0", "1", "2"]


@pytest.mark.feature("acknowledgement modes")
def test_individual_acknowledgements_leave_the_others(connection: Connection, queue: str) -> None:
    with connection.session("individual") as session:
        producer = session.producer(queue)
        for number in range(4):
            producer.send(str(number))
        consumer = session.consumer(queue)
        received = [consumer.receive(60) for _ in range(4)]
        for each in (received[1], received[3]):
            assert each is not None
            assert consumer.acknowledge(each)
    with connection.session() as session:
        assert texts(session.consumer(queue), 2) == ["0", "2"]


@pytest.mark.feature("pre-acknowledge")
@pytest.mark.parametrize("by_url", [False, True])
def test_pre_acknowledged_messages_are_gone_when_they_are_sent(broker: Target, queue: str, by_url: bool) -> None:
    connection = connect(broker.url + ("?preAcknowledge=true" if by_url else ""))
    session = connection.session("auto" if by_url else "pre")
    producer = session.producer(queue)
    for number in range(3):
        producer.send(str(number))
    consumer = session.consumer(queue)
    assert texts(consumer, 1) == ["0"]
    wait_for_count(session, queue, 0)
    connection.abandon()
    with connect(broker.url) as connection, connection.session() as session:
        assert session.consumer(queue).receive_nowait() is None, "at most once"


@pytest.mark.feature("blockOnAcknowledge and other blockOn settings")
def test_blocking_settings(broker: Target, queue: str) -> None:
    url = f"{broker.url}?blockOnAcknowledge=true&blockOnDurableSend=false&blockOnNonDurableSend=true"
    with connect(url) as connection, connection.session() as session:
        producer = session.producer(queue)
        for number in range(50):
            producer.send(str(number), durable=bool(number % 2))
        assert texts(session.consumer(queue), 50) == [str(number) for number in range(50)]
    with connect(broker.url) as connection, connection.session() as session:
        assert session.consumer(queue).receive_nowait() is None


# transactions


@pytest.mark.feature("local transactions")
def test_commit_and_rollback(connection: Connection, queue: str) -> None:
    with connection.session(transacted=True) as work, connection.session() as session:
        session.create_queue(queue)
        producer = work.producer(queue)
        producer.send("undone")
        work.rollback()
        producer.send("1")
        producer.send("2")
        assert count_of(session, queue) == 0, "not before the commit"
        work.commit()
        assert count_of(session, queue) == 2
        consumer = work.consumer(queue)
        assert texts(consumer, 2) == ["1", "2"]
        work.rollback()
        again = [consumer.receive(60), consumer.receive(60)]
        assert [(each.text, each.delivery_count, each.redelivered) for each in again if each] == [
            ("1", 2, True),
            ("2", 2, True),
        ]
        work.commit()
        wait_for_count(session, queue, 0)


@pytest.mark.feature("dead letters after max-delivery-attempts")
def test_dead_letters(connection: Connection, queue: str) -> None:
    with connection.session(transacted=True) as work:
        work.producer(queue).send("poison")
        work.commit()
        consumer = work.consumer(queue)
        for attempt in (1, 2, 3):
            received = consumer.receive(60)
            assert received is not None
            assert received.delivery_count == attempt
            work.rollback()
        assert consumer.receive(0.3) is None
    with connection.session() as session:
        received = session.consumer("dead", filter=f"_AMQ_ORIG_QUEUE = '{queue}'").receive(60)
        assert received is not None
        assert received.text == "poison"
        assert received.properties["_AMQ_ORIG_ADDRESS"] == queue


@pytest.mark.feature("redelivery delay")
def test_redelivery_delay(connection: Connection) -> None:
    queue = f"delayed.q{next(_numbers)}"
    with connection.session(transacted=True) as work:
        work.producer(queue).send("x")
        work.commit()
        consumer = work.consumer(queue)
        assert texts(consumer, 1) == ["x"]
        began = time.monotonic()
        work.rollback()
        assert texts(consumer, 1) == ["x"]
        assert time.monotonic() - began >= 0.28
        work.commit()


@pytest.mark.feature("duplicate ids")
def test_duplicates_are_dropped(session: Session, queue: str) -> None:
    producer = session.producer(queue)
    for duplicate_id in ("a", "a", b"raw", b"raw", "b"):
        producer.send(str(duplicate_id), duplicate_id=duplicate_id)
    consumer = session.consumer(queue)
    assert texts(consumer, 3) == ["a", str(b"raw"), "b"]
    assert consumer.receive_nowait() is None


@pytest.mark.feature("duplicate ids in transactions")
def test_a_transaction_done_twice_is_refused(connection: Connection, queue: str) -> None:
    """Recovery from CommitOutcomeUnknown: the transaction is repeated with the same duplicate ids."""
    with connection.session(transacted=True) as work, connection.session() as session:
        producer = work.producer(queue)
        for round_ in range(2):
            producer.send("1", duplicate_id="order-1")
            producer.send("2", duplicate_id="order-2")
            if round_ == 0:
                work.commit()
            else:
                with pytest.raises(DuplicateIdRejected):
                    work.commit()
                work.rollback()
        producer.send("3", duplicate_id="order-3")
        work.commit()
        assert texts(session.consumer(queue), 3) == ["1", "2", "3"]
        assert session.consumer(queue).receive_nowait() is None


# XA


def xid(number: int) -> Xid:
    return Xid(4711, number.to_bytes(4, "big"), hashlib.sha256(str(number).encode()).digest())


@pytest.mark.feature("XA transactions")
def test_xa(connection: Connection, queue: str) -> None:
    first, second, third = (xid(next(_numbers) + int(time.time())) for _ in range(3))
    with connection.session(xa=True) as work, connection.session() as session:
        session.create_queue(queue)
        producer = work.producer(queue)
        work.xa.start(first)
        producer.send("1")
        work.xa.end(first)
        work.xa.prepare(first)
        assert first in work.xa.recover()
        assert count_of(session, queue) == 0
        work.xa.commit(first)
        assert count_of(session, queue) == 1
        work.xa.start(second)
        producer.send("2")
        work.xa.end(second)
        work.xa.commit(second, one_phase=True)
        work.xa.start(third)
        consumer = work.consumer(queue)
        assert texts(consumer, 2) == ["1", "2"]
        work.xa.end(third)
        work.xa.prepare(third)
        work.xa.rollback(third)
        with pytest.raises(XaError) as caught:
            work.xa.commit(third)
        assert caught.value.xa_code == XaCode.UNKNOWN_XID
        consumer.close()
        assert texts(session.consumer(queue), 2) == ["1", "2"]


@pytest.mark.feature("XA transactions")
def test_xa_suspend_join_and_timeout(broker: Target, connection: Connection, queue: str) -> None:
    branch = xid(next(_numbers) + int(time.time()))
    with connection.session(xa=True) as work, connection.session(xa=True) as helper, connection.session() as session:
        session.create_queue(queue)
        assert work.xa.set_timeout(120)
        # Artemis takes it for its branches but names the node's own when asked
        assert work.xa.timeout() == (300 if broker.name == "artemis" else 120)
        work.xa.start(branch)
        work.producer(queue).send("1")
        work.xa.suspend()
        work.xa.start(branch, resume=True)
        work.producer(queue).send("2")
        helper.xa.start(branch, join=True)
        helper.producer(queue).send("3")
        helper.xa.end(branch)
        work.xa.end(branch)
        work.xa.prepare(branch)
        work.xa.commit(branch)
        assert sorted(map(str, texts(session.consumer(queue), 3))) == ["1", "2", "3"]
        with pytest.raises(IllegalState):
            session.xa.start(branch)


# large messages


@pytest.mark.feature("large messages")
@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
def test_large_messages(broker: Target, queue: str, tmp_path: Path, compress: bool) -> None:
    """Bodies of 3 MiB are sent from bytes, a file and an iterator, and are read whole, in pieces, and into a file."""
    body = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(96 * 1024))
    path = tmp_path / "body"
    path.write_bytes(body)
    options = "?compressLargeMessage=true&compressionLevel=6" if compress else ""
    with connect(broker.url + options) as connection, connection.session() as session:
        producer = session.producer(queue)
        producer.send(body, properties={"n": 1})
        producer.send(path)
        producer.send(io.BytesIO(body))
        producer.send(body[start : start + 50_000] for start in range(0, len(body), 50_000))
        producer.send("ä" * 200_000)
        producer.send(b"small")
        consumer = session.consumer(queue)
        received = consumer.receive(60)
        assert received is not None
        assert received.properties["n"] == 1
        assert received.properties["_AMQ_LARGE_SIZE"] == len(body)
        assert received.read_body() == body
        received = consumer.receive(60)
        assert received is not None
        assert received.save_to(tmp_path / "copy") == len(body)
        assert (tmp_path / "copy").read_bytes() == body
        received = consumer.receive(60)
        assert received is not None
        assert b"".join(received.body_stream) == body
        assert consumer.receive(60) is not None, "not read at all"
        received = consumer.receive(60)
        assert received is not None
        assert received.text == "ä" * 200_000
        received = consumer.receive(60)
        assert received is not None
        assert received.body == b"small"


@pytest.mark.feature("large messages")
def test_large_messages_in_transactions_and_browsed(connection: Connection, queue: str) -> None:
    body = bytes(range(256)) * 4096
    with connection.session(transacted=True) as work, connection.session() as session:
        producer = work.producer(queue)
        producer.send(body)
        work.rollback()
        producer.send(body)
        work.commit()
        assert [each.read_body() == body for each in session.browser(queue)] == [True]
        consumer = work.consumer(queue)
        for count in (1, 2):
            received = consumer.receive(60)
            assert received is not None
            assert received.delivery_count == count
            assert received.read_body() == body
            if count == 1:
                work.rollback()
        work.commit()
        wait_for_count(session, queue, 0)


@pytest.mark.feature("minLargeMessageSize")
def test_smaller_pieces(broker: Target, queue: str) -> None:
    with connect(f"{broker.url}?minLargeMessageSize=2000") as connection, connection.session() as session:
        session.producer(queue).send(b"p" * 5001)
        received = session.consumer(queue).receive(60)
        assert received is not None
        assert received.read_body() == b"p" * 5001
        assert received.properties["_AMQ_LARGE_SIZE"] == 5001


# looking and asking


@pytest.mark.feature("browsers")
def test_browsing(session: Session, queue: str) -> None:
    producer = session.producer(queue)
    for number in range(5):
        producer.send(str(number), properties={"n": number})
    browser = session.browser(queue)
    assert [each.text for each in browser] == ["0", "1", "2", "3", "4"]
    assert [each.text for each in browser] == ["0", "1", "2", "3", "4"], "again from the top"
    assert [each.text for each in session.browser(queue, filter="n >= 3")] == ["3", "4"]
    assert count_of(session, queue) == 5


@pytest.mark.feature("queue and address queries")
def test_queries(session: Session, queue: str) -> None:
    assert not session.query_queue(queue).exists
    assert not session.query_address(queue).exists
    session.create_queue(queue, filter="n = 1", max_consumers=3)
    found = session.query_queue(queue)
    assert (found.exists, found.durable, found.temporary, found.address, found.filter) == (
        True,
        True,
        False,
        queue,
        "n = 1",
    )
    assert found.max_consumers == 3  # type: ignore[attr-defined]
    assert queue in session.query_address(queue).queue_names
    session.delete_queue(queue)
    assert not session.query_queue(queue).exists
    with pytest.raises(QueueNotFound):
        session.delete_queue(queue)


@pytest.mark.feature("queue and address queries")
def test_routing_types_do_not_mix(session: Session, queue: str) -> None:
    session.create_queue(queue)
    with pytest.raises(UnexpectedRoutingType):
        session.consumer(queue, routing="multicast")
