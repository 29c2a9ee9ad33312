"""One real broker on loopback, kept by the supervisor of the collection on Debian's own Python."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.deployed import open_instance
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = Path(__file__).with_name("playbooks")
UNDERSTUDY = ROOT / ".venv/bin/understudy"
HOST_PYTHON = "/usr/bin/python3"
"""Interpreter of the hosts of an operator, without any package of this project."""
ADMIN_PASSWORD = "an-administrator-of-a-test"
READY_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Broker:
    """A deployed instance and its ports."""

    directory: Path
    port: int
    http_port: int

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def command(self, *arguments: str, password: str = ADMIN_PASSWORD) -> subprocess.CompletedProcess[str]:
        """Run a command of the client with the login of the environment."""
        environment = {**os.environ, "UNDERSTUDY_PASSWORD": password}
        return subprocess.run(
            [str(UNDERSTUDY), *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def produce(self, queue: str, count: int) -> None:
        made = self.command("produce", "--url", self.url, "--user", "admin", "--address", queue, "--count", str(count))
        assert made.returncode == 0, made.stderr

    def purge(self, queue: str) -> None:
        """Begin with an empty queue, whatever tests before have left."""
        deployed = open_instance(self.directory, lambda command: (0, "", ""), Clock())
        assert deployed is not None
        assert deployed.management().invoke("removeAllMessages", resource=f"queue.{queue}").status == 200

    def deploy(self) -> None:
        """Write what the role broker_service would."""
        token = self.directory / "etc/management-token"
        record = {
            "name": self.directory.name,
            "backend": "process",
            "unit": "",
            "user": "",
            "command": [
                *(str(UNDERSTUDY), "run", "--config", str(self.directory / "etc/broker.xml")),
                *("--instance", str(self.directory), "--http", f"127.0.0.1:{self.http_port}"),
                *("--http-token-file", str(token)),
            ],
            "supervisor": [HOST_PYTHON, "-I", str(ROOT / "roles/broker_service/files/supervisor.py")],
            "management_url": f"http://127.0.0.1:{self.http_port}",
            "token_file": str(token),
            "restart": {"delay_min_s": 1, "delay_max_s": 5, "reset_after_s": 60},
        }
        for name in ("run", "log"):
            (self.directory / name).mkdir(exist_ok=True)
        (self.directory / "etc/service.json").write_text(json.dumps(record))

    def start(self) -> None:
        self._reach("started", "active")

    def stop(self) -> None:
        self._reach("stopped", "stopped")

    def _reach(self, state: str, gate: str) -> None:
        deployed = open_instance(self.directory, lambda command: (0, "", ""), Clock())
        assert deployed is not None
        outcome = deployed.instance.reach(state, gate, READY_S, dry_run=False)
        assert not outcome.failed, outcome.message


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with security on, an administrator ``admin``, and the queue ``orders``."""
    directory = tmp_path_factory.mktemp("integration") / "node"
    made = Broker(directory, free_port(), free_port())
    created = made.command(
        *("create", str(directory), "--port", str(made.port), "--queue", "orders", "--queue", "DLQ"),
    )
    assert created.returncode == 0, created.stderr
    made.deploy()
    made.start()
    try:
        yield made
    finally:
        made.stop()


def play(name: str, variables: Mapping[str, object]) -> str:
    """Run a playbook of these tests against this machine; its output. A failed task fails the test."""
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"),
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "true",
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
    }
    given = {"ansible_python_interpreter": HOST_PYTHON, "understudy": str(UNDERSTUDY), **variables}
    played = subprocess.run(
        [
            *(str(ROOT / ".venv/bin/ansible-playbook"), "--inventory", "localhost,", "--connection", "local"),
            *("--extra-vars", json.dumps(given), str(PLAYBOOKS / name)),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert played.returncode == 0, played.stdout[-6000:] + played.stderr[-2000:]
    return played.stdout
