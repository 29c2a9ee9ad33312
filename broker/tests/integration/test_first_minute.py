"""A broker without configuration: one command starts it, two commands use it, and it keeps its messages."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.processes import COMMAND, READY_S


class DefaultBroker:
    """``understudy run`` without ``--config``, with a state directory and ports of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"tcp://127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(directory), "UNDERSTUDY_URL": self.url}
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> list[str]:
        """Start it and return its output until it serves."""
        with (self.directory / "log").open("a") as log:
            self.process = subprocess.Popen(
                [str(COMMAND), "run", "--property", f"port={self.url.rpartition(':')[2]}", "--http", self.http],
                stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment,
            )  # fmt: skip
        assert self.process.stdout is not None
        lines: list[str] = []
        while not (lines and lines[-1].lstrip().startswith("understudy consume")):
            line = self.process.stdout.readline()
            assert line, (self.directory / "log").read_text()
            lines.append(line.rstrip("\n"))
        return lines

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(COMMAND), *arguments], capture_output=True, text=True, env=self.environment, timeout=60
        )

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(READY_S)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DefaultBroker]:
    made = DefaultBroker(tmp_path)
    yield made
    made.end()


def test_a_broker_without_configuration_serves_the_commands_it_prints_and_keeps_messages(broker: DefaultBroker) -> None:
    printed = broker.start()
    produce, consume = (line.split()[1:] for line in printed[-2:])
    sent = broker.command(*produce, "--json")
    assert json.loads(sent.stdout)["confirmed"] == 1000, sent.stderr
    assert broker.command("status").returncode == 0
    assert broker.command("stop").returncode == 0
    assert broker.process is not None
    assert broker.process.wait(READY_S) == 0
    broker.start()
    received = broker.command(*consume, "--json")
    assert json.loads(received.stdout)["acknowledged"] == 1000, received.stderr


def test_a_default_broker_whose_port_is_taken_names_it_and_prints_no_commands(broker: DefaultBroker) -> None:
    port = int(broker.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        done = broker.command("run", "--property", f"port={port}", "--http", broker.http)
    assert done.returncode == 1
    assert f"acceptor 'artemis' cannot listen on tcp://127.0.0.1:{port}: Address already in use" in done.stderr
    assert '"started"' not in done.stderr
    assert done.stdout == ""


def test_a_second_default_broker_says_that_the_instance_runs_already(broker: DefaultBroker) -> None:
    broker.start()
    second = broker.command("run", "--http", broker.http)
    assert second.returncode == 2
    assert "the instance runs already: process" in second.stderr
    assert broker.command("status").returncode == 0
