"""The pytest plugin that gives the tests of an application a broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.client.sync import connect
from understudy.testing.pytest_broker import TestBroker

TESTS = """
from understudy.client.sync import connect

seen = []

def test_that_sends(understudy_broker):
    seen.append(understudy_broker)
    with connect(understudy_broker.url) as connection, connection.session() as session:
        session.producer("orders").send("x")

def test_that_receives(understudy_broker):
    assert seen == [understudy_broker], "one broker for all tests"
    with connect(understudy_broker.url) as connection, connection.session() as session:
        assert session.consumer("orders").receive(5).text == "x"
"""


def test_tests_of_an_application_share_one_broker(tmp_path: Path) -> None:
    (tmp_path / "test_application.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_message_whose_work_fails_three_times_is_a_dead_letter(understudy_broker: TestBroker) -> None:
    with connect(understudy_broker.url) as connection, connection.session("individual") as session:
        session.producer("failing").send("x")
        consumer = session.consumer("failing")
        for _ in range(3):
            message = consumer.receive(5)
            assert message is not None
            message.reject()
        dead = session.consumer("DLQ").receive(5)
        assert dead is not None
        assert dead.text == "x"


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = TestBroker(tmp_path)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", broker.port))
        listener.listen()
        with pytest.raises(RuntimeError, match="already in use"):
            broker.start()
    broker.stop()
