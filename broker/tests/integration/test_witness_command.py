"""``understudy witness``: real processes on loopback."""

from __future__ import annotations

import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.witnesses import WAIT_S, WitnessProcess


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[WitnessProcess]:
    made = WitnessProcess(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait(WAIT_S)


def test_status_identity_notifications_and_metrics(witness: WitnessProcess, tmp_path: Path) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(WAIT_S)
    scrape = free_port()
    witness.start("--metrics", f"127.0.0.1:{scrape}", environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert manager.recv(100).startswith(b"READY=1")
    before = witness.status()
    assert before["lease_max_ms"] == 10_000
    assert int(str(before["grants_in_ms"])) > 0
    with urllib.request.urlopen(f"http://127.0.0.1:{scrape}/metrics", timeout=WAIT_S) as answer:
        text = answer.read().decode()
    assert 'understudy_witness_frames_total{kind="status"} 1.0' in text
    node_id, secret = "6bf474c7-7b6b-19cf-9325-8c3e598acf46", str(witness.secret)
    assert witness.command("set", witness.address, node_id, "7", "--secret-file", secret).returncode == 0
    wrong = witness.command("set", witness.address, node_id[1:], "8", "--secret-file", secret)
    assert (wrong.returncode, "is no node id" in wrong.stderr) == (2, True)
    assert witness.end() == 0
    assert manager.recv(100) == b"STOPPING=1"
    manager.close()
    witness.start()
    after = witness.status()
    assert (after["identity"], after["numbers"]) == (before["identity"], {node_id: 7})
    assert oct(witness.state.parent.stat().st_mode & 0o777) == "0o700"
    assert oct(witness.secret.stat().st_mode & 0o777) == "0o600"


def test_a_second_witness_of_a_directory_and_a_wrong_secret_are_refused(
    witness: WitnessProcess, tmp_path: Path
) -> None:
    witness.start()
    other = tmp_path / "other"
    assert witness.command("secret", str(other)).returncode == 0
    found = witness.command("status", witness.address, "--secret-file", str(other))
    assert found.returncode == 3
    assert "does not know the secret" in found.stderr
    again = witness.command(
        "run",
        "--directory",
        str(witness.state.parent),
        "--listen",
        f"127.0.0.1:{free_port()}",
        "--secret-file",
        str(other),
    )
    assert again.returncode == 1
    assert "another witness uses this directory" in again.stderr


def test_a_directory_that_cannot_be_made_is_named(witness: WitnessProcess, tmp_path: Path) -> None:
    secret, file = tmp_path / "a-secret", tmp_path / "file"
    file.touch()
    assert witness.command("secret", str(secret)).returncode == 0
    place = ("--listen", f"127.0.0.1:{free_port()}", "--secret-file", str(secret))
    refused = witness.command("run", "--directory", str(file / "d"), *place)
    assert (refused.returncode, refused.stderr) == (2, f"understudy: {file / 'd'}: cannot be made: Not a directory\n")


def test_a_witness_answers_after_more_log_lines_than_a_pipe_holds(witness: WitnessProcess) -> None:
    """Rounds of faults on a pair ended because the witness, whose log was a pipe without a reader, stopped for good."""
    witness.start()
    pipe_bytes = 65_536
    while witness.log.stat().st_size < 2 * pipe_bytes:
        for _ in range(50):
            with socket.create_connection((witness.host, witness.port), WAIT_S) as dialled:
                dialled.sendall(bytes(100))
                while dialled.recv(4096):
                    pass
    assert witness.status()["identity"]


@pytest.mark.long
def test_bad_configuration_and_damaged_state(witness: WitnessProcess) -> None:
    witness.start()
    assert witness.end(signal.SIGKILL) == -signal.SIGKILL
    data = witness.state.read_bytes()
    witness.state.write_bytes(data[:-1] + b"x")
    found = witness.command(*witness.arguments())
    assert found.returncode == 1
    assert f"{witness.state} at offset 18: the checksum is wrong" in found.stderr
    witness.state.write_bytes(data)
    assert witness.command("secret", str(witness.secret)).returncode == 2, "an existing secret is kept"
    witness.secret.chmod(0o644)
    found = witness.command(*witness.arguments())
    assert found.returncode == 2
    assert "can be read by all users" in found.stderr
    witness.secret.chmod(0o600)
    witness.secret.write_text("short")
    found = witness.command(*witness.arguments())
    assert found.returncode == 2
    assert "5 bytes; at least 24" in found.stderr


def test_an_unreachable_witness(witness: WitnessProcess) -> None:
    found = witness.command("status", witness.address, "--secret-file", str(witness.secret))
    assert found.returncode == 3
    assert witness.address in found.stderr
