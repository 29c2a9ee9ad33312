"""The blocking client with real brokers: threads that share a connection, interrupts, forks, failover by SIGKILL."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from support.processes import Pair
from support.targets import Target
from support.transports import TRANSPORTS, url_by
from understudy.client import FailureCode
from understudy.client.sync import Connection, Session, connect
from understudy.errors import (
    CommitOutcomeUnknown,
    DuplicateIdRejected,
    IllegalState,
    ObjectClosed,
    TransactionRolledBack,
)


def until(condition: Callable[[], object], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Threads:
    """Threads whose errors are those of the test."""

    def __init__(self, *works: Callable[[], object]) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(len(works))
        self._ends = [self._pool.submit(work) for work in works]

    def join(self) -> list[object]:
        found = [each.result(60) for each in self._ends]
        self._pool.shutdown()
        return found


def test_threads_share_a_connection_a_session_and_a_consumer(broker: Target) -> None:
    """Goal: every message is confirmed and received once, whatever thread reads the socket."""
    with connect(broker.url) as connection, connection.session() as session, connection.session("individual") as other:
        producer, consumer = session.producer("shared"), other.consumer("shared")
        got: Counter[str] = Counter()
        lock = threading.Lock()

        def send(name: int) -> None:
            for number in range(50):
                producer.send(f"{name}-{number}")

        def send_ahead() -> None:
            for each in [producer.send_nowait(f"ahead-{number}") for number in range(100)]:
                each.result(30)

        def receive() -> None:
            while sum(got.values()) < 250:
                received = consumer.receive(0.2)
                if received is not None:
                    assert consumer.acknowledge(received)
                    with lock:
                        got[received.text or ""] += 1

        works = [lambda name=name: send(name) for name in range(3)]
        Threads(*works, send_ahead, receive, receive, receive).join()
        assert len(got) == 250
        assert set(got.values()) == {1}
        assert session.query_queue("shared").message_count == 0


def test_closing_ends_the_waits_of_other_threads(broker: Target) -> None:
    connection = connect(broker.url)
    session = connection.session()
    consumers = [session.consumer(f"closing-{number}") for number in range(3)]
    waiting = threading.Barrier(4)

    def receive(number: int) -> type[BaseException]:
        waiting.wait()
        with pytest.raises(ObjectClosed) as caught:
            consumers[number].receive()
        return caught.type

    threads = Threads(*(lambda number=number: receive(number) for number in range(3)))
    waiting.wait()
    connection.close()
    assert threads.join() == [ObjectClosed] * 3
    with pytest.raises(ObjectClosed):
        session.query_queue("closing-0")


class Stop(KeyboardInterrupt):
    """An exception of a signal handler that is no ``Exception``."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[float], None]]:
    """Raises ``Stop`` in the main thread after so many seconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    yield lambda delay_s: (signal.setitimer(signal.ITIMER_REAL, delay_s), None)[1]
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_interrupted_wait_leaves_the_connection_usable(broker: Target, interrupt: Callable[[float], None]) -> None:
    """Also for the threads that waited while another one read the socket."""
    with connect(broker.url) as connection, connection.session() as session:
        consumer, other = session.consumer("interrupted"), session.consumer("interrupted-other")

        def receive() -> str | None:
            received = other.receive(30)
            assert received is not None
            return received.text

        threads = Threads(receive)
        interrupt(0.2)
        with pytest.raises(Stop):
            consumer.receive()
        session.producer("interrupted-other").send("for the other thread")
        assert threads.join() == ["for the other thread"]
        session.producer("interrupted").send("still usable")
        received = consumer.receive(10)
        assert received is not None
        assert received.text == "still usable"


def test_an_interrupt_at_any_moment_leaves_a_usable_or_a_closed_connection(
    broker: Target, interrupt: Callable[[float], None]
) -> None:
    """Goal: no lock is left locked and no wait goes on without end. Method: many interrupts at random moments."""
    outcomes: Counter[str] = Counter()
    connection = connect(broker.url)
    producer = connection.session().producer("random")
    for round_number in range(60):
        try:
            interrupt(0.0005 + round_number * 0.00007)
            while True:
                producer.send("x", durable=False)
        except Stop:
            outcomes["interrupted"] += 1
        except ObjectClosed:
            outcomes["closed while sending"] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            with connection.session() as session:
                session.query_queue("random")
        except ObjectClosed:
            outcomes["closed"] += 1
            connection.close()
            connection = connect(broker.url)
            producer = connection.session().producer("random")
    connection.close()
    assert outcomes["interrupted"] > 30


def test_a_connection_is_not_usable_after_a_fork(broker: Target) -> None:
    with connect(broker.url) as connection, connection.session() as session:
        session.producer("forked").send("before")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(IllegalState, match="before a fork"):
                    session.query_queue("forked")
                connection.close()
                with connect(broker.url) as own, own.session() as works:
                    works.producer("forked").send("of the child")
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert session.query_queue("forked").message_count == 2


def test_callbacks_may_use_the_client(broker: Target) -> None:
    with connect(broker.url) as connection, connection.session() as session:
        producer = session.producer("callbacks")
        answered: list[int] = []
        producer.send_nowait("first").add_done_callback(
            lambda future: (producer.send("second"), answered.append(session.query_queue("callbacks").message_count))
        )
        until(lambda: answered)
        assert answered == [2]


def test_confirmations_come_while_no_thread_waits(broker: Target) -> None:
    with connect(broker.url) as connection, connection.session() as session:
        producer = session.producer("unattended")
        futures = [producer.send_nowait(str(number)) for number in range(200)]
        done, open_ = concurrent.futures.wait(futures, 30)
        assert (len(done), len(open_)) == (200, 0)
        assert producer.in_flight == 0


def test_a_body_that_waits_on_its_own_connection_is_refused(broker: Target) -> None:
    with connect(broker.url) as connection, connection.session() as session:

        def body() -> Iterator[bytes]:
            yield bytes(200_000)
            session.query_queue("refused")
            yield b"never"

        with pytest.raises(IllegalState, match="wait for itself"):
            session.producer("refused").send(body())
        assert session.query_queue("refused").message_count == 0


def test_large_messages_in_both_directions_at_a_time(broker: Target, tmp_path: Path) -> None:
    body = os.urandom(3_000_000)
    with connect(broker.url) as connection, connection.session() as session, connection.session() as other:
        producer, consumer = session.producer("films"), other.consumer("films")

        def receive() -> list[bytes]:
            found = []
            for number in range(4):
                received = consumer.receive(30)
                assert received is not None
                if number % 2:
                    found.append(received.read_body())
                else:
                    received.save_to(tmp_path / "film")
                    found.append((tmp_path / "film").read_bytes())
            return found

        def send() -> None:
            for _ in range(2):
                producer.send(body)

        (found, _, _) = Threads(receive, send, send).join()
        assert found == [body] * 4


def pay(session: Session, number: int, *, decided: bool) -> None:
    """One transaction of two messages, done again until it is certain.

    Args:
        session: A transacted one.
        number: Number of the transaction.
        decided: Whether the broker decides each commit, so that no duplicate ids are needed.
    """
    producer = session.producer("payments")
    while True:
        for side in ("from", "to"):
            producer.send(f"{number}-{side}", duplicate_id=None if decided else f"{number}-{side}")
        try:
            session.commit()
        except CommitOutcomeUnknown:
            assert not decided
            continue
        except TransactionRolledBack:
            continue
        except DuplicateIdRejected:
            session.rollback()
        return


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_thread_goes_on_at_the_backup_after_a_kill(pair: Pair, transport: str) -> None:
    """Goal: blocking sends, windows, transactions, consumers and listeners of one connection survive a failover, and
    so does a connection at which no thread waits.
    """
    pair.start()
    url = url_by(transport, pair.url)
    heard: list[tuple[bool, FailureCode]] = []
    with connect(url) as connection, connect(url) as idle:
        for each in (connection, idle):
            each.add_failure_listener(lambda error, failed_over, code: heard.append((failed_over, code)))
        sent: set[str] = set()
        got: Counter[str] = Counter()
        killed = threading.Event()

        def send(name: str) -> None:
            with connection.session() as session:
                producer = session.producer("survivors")
                number = 0
                while number < 40 or not killed.is_set() or connection.failovers == 0:
                    producer.send(f"{name}-{number}")
                    sent.add(f"{name}-{number}")
                    number += 1

        def transact() -> None:
            with connection.session(transacted=True) as session:
                number = 0
                while number < 20 or not killed.is_set() or connection.failovers == 0:
                    pay(session, number, decided=transport == "amqp091")
                    number += 1
                paid.append(number)

        paid: list[int] = []
        threads = Threads(lambda: send("a"), lambda: send("b"), transact)
        until(lambda: len(sent) > 20)
        pair.primary.kill()
        killed.set()
        threads.join()
        until(lambda: idle.failovers == 1 and len(heard) == 2)
        assert heard == [(True, FailureCode.FAILOVER)] * 2
        consume(connection, "survivors", got)
        assert got == Counter(sent), "each confirmed message once"
        payments: Counter[str] = Counter()
        consume(idle, "payments", payments)
        assert payments == Counter(f"{number}-{side}" for number in range(paid[0]) for side in ("from", "to"))


def consume(connection: Connection, queue: str, got: Counter[str]) -> None:
    with connection.session() as session, session.consumer(queue) as consumer:
        while (received := consumer.receive_nowait()) is not None:
            got[received.text or ""] += 1
