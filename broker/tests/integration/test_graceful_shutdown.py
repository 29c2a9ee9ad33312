"""A stop that waits for clients, with real processes, and logins that delay no other connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import Node, Pair
from understudy.client.sync import connect
from understudy.errors import BrokerError

_GRACEFUL = """
    <graceful-shutdown-enabled>true</graceful-shutdown-enabled>
    <graceful-shutdown-timeout>{timeout_ms}</graceful-shutdown-timeout>
"""


def node(directory: Path, timeout_ms: int) -> Iterator[Node]:
    pair = Pair(directory, extra=_GRACEFUL.format(timeout_ms=timeout_ms))
    try:
        pair.primary.start().wait_ready("active")
        yield pair.primary
    finally:
        pair.end()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Node]:
    """A node that waits for clients without a time limit."""
    yield from node(tmp_path, -1)


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Node]:
    """Waits for 300 ms."""
    yield from node(tmp_path, 300)


def wait_stopping(broker: Node) -> None:
    """Until the node itself says that it is on its way."""
    deadline = time.monotonic() + 60
    while broker.get("/health/ready")[1].get("state") != "stopping":
        assert time.monotonic() < deadline, broker.tail()
        time.sleep(0.02)


def test_sessions_go_on_until_they_are_closed_and_new_ones_are_refused(patient: Node) -> None:
    url = f"tcp://127.0.0.1:{patient.port}"
    with connect(url) as connection, connection.session() as session:
        producer = session.producer("q")
        producer.send("before")
        assert patient.process is not None
        patient.process.terminate()
        wait_stopping(patient)
        producer.send("meanwhile")
        consumer = session.consumer("q")
        assert [message.text for message in (consumer.receive(30), consumer.receive(30)) if message] == [
            "before",
            "meanwhile",
        ]
        with pytest.raises(BrokerError), connect(url) as refused:
            refused.session()
        assert patient.process.poll() is None
    assert patient.process.wait(60) == 0


def test_the_wait_ends_when_its_time_is_over(hasty: Node) -> None:
    with connect(f"tcp://127.0.0.1:{hasty.port}") as connection, connection.session() as session:
        session.producer("q").send("safe")
        assert hasty.process is not None
        hasty.process.terminate()
        assert hasty.process.wait(60) == 0
    assert "clients did not disconnect in time" in hasty.log.read_text()
    hasty.start().wait_ready("active")
    queue = hasty.queue("q")
    assert queue is not None
    assert queue["message_count"] == 1


def test_a_second_stop_does_not_wait(patient: Node) -> None:
    with connect(f"tcp://127.0.0.1:{patient.port}") as connection, connection.session():
        assert patient.process is not None
        patient.process.terminate()
        wait_stopping(patient)
        patient.process.terminate()
        assert patient.process.wait(60) == 0


def test_without_sessions_there_is_nothing_to_wait_for(patient: Node) -> None:
    assert patient.terminate() == 0


def test_many_logins_at_once_are_all_answered(tmp_path: Path) -> None:
    """Right and wrong passwords of many connections at once, none of them remembered before."""
    pair = Pair(tmp_path, security=True)
    try:
        pair.primary.start().wait_ready("active")
        url = f"tcp://127.0.0.1:{pair.primary.port}"
        outcomes: list[str] = []

        def log_in(password: str) -> None:
            try:
                with connect(url, user="bob", password=password) as connection, connection.session() as session:
                    session.producer("q").send(password)
                outcomes.append("in")
            except BrokerError:
                outcomes.append("refused")

        passwords = ["secret of bob"] * 20 + [f"guess {number}" for number in range(5)]
        threads = [threading.Thread(target=log_in, args=(password,)) for password in passwords]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(outcomes) == ["in"] * 20 + ["refused"] * 5
    finally:
        pair.end()
