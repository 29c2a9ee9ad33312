"""A broker for the tests of an application: a pytest plugin, which pip registers with this package.

::

    def test_orders(understudy_broker):
        with connect(understudy_broker.url) as connection: ...

One broker runs for all tests of a session, in a process of its own, without a disk and without a login; addresses and
queues are created on first use, dead letters go to ``DLQ`` after three deliveries. Not for nodes of this project's own
tests.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

#: Time within which the broker must serve, on a slow machine.
_START_TIMEOUT_S: Final = 60
_ANSWER_TIMEOUT_S: Final = 5
_RETRY_MS: Final = 20
_XML: Final = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>pytest</name>
    <persistence-enabled>false</persistence-enabled>
    <security-enabled>false</security-enabled>
    <acceptors><acceptor name="core">tcp://127.0.0.1:{port}</acceptor></acceptors>
    <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
      <address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
    </addresses>
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <expiry-address>ExpiryQueue</expiry-address>
        <max-delivery-attempts>3</max-delivery-attempts>
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""


class TestBroker:
    """A broker in a process of its own."""

    __test__ = False

    def __init__(self, directory: Path) -> None:
        """Write its configuration; ``start`` runs it.

        Args:
            directory: An empty directory for its files.
        """
        self.directory = directory
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL for ``understudy.client`` and for other clients of the CORE protocol."""
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """The lines that the broker has logged."""
        file = self.directory / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def start(self) -> None:
        """Run the broker, and wait until it serves.

        Raises:
            RuntimeError: it does not start; with the end of its log.

        Failover and concurrency: to be called once.
        """
        config = self.directory / "etc" / "broker.xml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(_XML.format(port=self.port))
        management = f"127.0.0.1:{_free_port()}"
        command = [sys.executable, "-m", "understudy", "run", "--http", management]
        command += ["--config", str(config), "--instance", str(self.directory)]
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if _ready(management):
                return
            time.sleep(_RETRY_MS / 1000)
        self.stop()
        raise RuntimeError(f"the broker does not start: {self.log[-3000:]}")

    def stop(self) -> None:
        """End the process; its messages are gone.

        Failover and concurrency: may be called at any time, also twice.
        """
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="session")
def understudy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A broker that all tests of the session share; names of queues are best made unique for each test."""
    broker = TestBroker(tmp_path_factory.mktemp("understudy"))
    broker.start()
    yield broker
    broker.stop()


def _ready(management: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{management}/health/ready", timeout=_ANSWER_TIMEOUT_S) as answer:
            return bool(answer.status == http.client.OK)
    except (OSError, http.client.HTTPException):
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
