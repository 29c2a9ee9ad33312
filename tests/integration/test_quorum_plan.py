"""Goal: a roll finds three witnesses as they are, plans one wave for each, and refuses to take their majority.

Method: three witnesses on loopback addresses; the entry points of the role broker_quorum that change nothing, with the
Python of Debian.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
UNDERSTUDY = ROOT / ".venv/bin/understudy"
SECRET = "the-secret-of-three-witnesses"
LEASE_MS = 1000


def free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server((host, 0))) for host in 3 * ["127.0.0.1"]]
        return [int(probe.getsockname()[1]) for probe in probes]


class Group:
    """Three witnesses, and the inventory that names them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.places = [f"127.0.0.1:{port}" for port in free_ports()]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.secret_file = directory / "secret"
        self.secret_file.write_text(f"{SECRET}\n")
        self.secret_file.chmod(0o600)
        (directory / "current/bin").mkdir(parents=True)
        (directory / "current/bin/understudy").symlink_to(UNDERSTUDY)

    def start(self) -> None:
        for number, place in enumerate(self.places):
            arguments = ["--directory", str(self.directory / f"w{number}"), f"--listen={place}"]
            arguments += ["--secret-file", str(self.secret_file), "--lease-max-ms", str(LEASE_MS)]
            self.processes.append(subprocess.Popen([str(UNDERSTUDY), "witness", "run", *arguments]))
        for place in self.places:
            host, _colon, port = place.partition(":")
            limit = time.monotonic() + 60
            while time.monotonic() < limit:
                with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                    break
        form = [str(UNDERSTUDY), "witness", "form", ",".join(self.places), "--secret-file", str(self.secret_file)]
        subprocess.run(form, check=True, timeout=60)

    def stop(self, number: int) -> None:
        self.processes[number].terminate()
        self.processes[number].wait(30)

    def play(self) -> subprocess.CompletedProcess[str]:
        """Run the playbook with a host for each witness."""
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "/usr/bin/python3",
            "broker_quorum_members": self.places,
            "broker_quorum_secret": SECRET,
            "broker_quorum_secret_file": str(self.secret_file),
            "broker_quorum_root": str(self.directory),
            "broker_quorum_lease_max_ms": LEASE_MS,
            "broker_quorum_unit": "understudy-witness-of-a-test.service",
        }
        hosts = {f"q{number}": {"broker_quorum_listen": [place]} for number, place in enumerate(self.places, 1)}
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"vars": variables, "hosts": hosts}}))
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        }
        return subprocess.run(
            [
                str(ROOT / ".venv/bin/ansible-playbook"),
                "-i",
                str(inventory),
                str(ROOT / "tests/integration/playbooks/quorum.yml"),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        made.start()
        yield made
    finally:
        for process in made.processes:
            process.terminate()
            process.wait(30)


def test_three_witnesses_are_planned_one_at_a_time_and_their_majority_is_kept(group: Group) -> None:
    played = group.play()
    assert played.returncode == 0, played.stdout[-5000:] + played.stderr[-1000:]
    for number in (1, 2, 3):
        line = f"quorum {number}: q{number} (until all 3 members answer): understudy-witness-of-a-test.service"
        assert line in " ".join(played.stdout.split()), played.stdout[-5000:]
    group.stop(2)
    played = group.play()
    assert played.returncode != 0
    text = " ".join(played.stdout.split())
    assert "q1: without it 1 of 3 members of the quorum answer, which is no majority" in text, played.stdout[-5000:]
