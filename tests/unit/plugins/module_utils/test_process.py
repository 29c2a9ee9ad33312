"""Goal: a recorded process is found again, and a recycled pid never is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.process import (
    ProcessIdentity,
    ProcessTable,
    parse_stat,
    read_record,
)
from hypothesis import given
from hypothesis import strategies as st


@given(name=st.binary(max_size=15), start=st.integers(0, 2**40), state=st.sampled_from("RSDZTX"))
def test_the_command_name_cannot_confuse_the_fields(name: bytes, start: int, state: str) -> None:
    fields = [state.encode(), *[b"0"] * 18, str(start).encode(), *[b"0"] * 30]
    assert parse_stat(b"42 (" + name + b") " + b" ".join(fields) + b"\n") == (start, state)


@pytest.fixture
def sleeper() -> object:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_itself_and_a_signal_reaches_it(sleeper: subprocess.Popen[bytes]) -> None:
    table = ProcessTable()
    identity = table.identify(sleeper.pid)
    assert identity is not None
    assert table.is_alive(identity)
    assert table.send(identity, signal.SIGKILL)
    assert sleeper.wait() == -signal.SIGKILL
    assert not table.is_alive(identity)
    assert not table.send(identity, signal.SIGKILL)


def test_a_recycled_pid_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    table = ProcessTable()
    identity = table.identify(sleeper.pid)
    assert identity is not None
    for other in (replace(identity, start_ticks=identity.start_ticks + 1), replace(identity, boot_id="earlier")):
        assert not table.is_alive(other)
        assert not table.send(other, signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_process_belongs_to_its_user(sleeper: subprocess.Popen[bytes]) -> None:
    table = ProcessTable()
    identity = table.identify(sleeper.pid)
    assert identity is not None
    assert table.is_owned_by(identity, os.geteuid())
    assert not table.is_owned_by(identity, os.geteuid() + 1)
    assert not table.is_owned_by(replace(identity, pid=2**22 + 1), os.geteuid())


def test_a_zombie_is_dead() -> None:
    table = ProcessTable()
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert table.identify(process.pid) is None
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"pid": 5},
        {"pid": "5", "start_ticks": 1, "boot_id": "b"},
        {"pid": 1, "start_ticks": 1, "boot_id": "b"},
    ],
)
def test_a_record_without_identity_means_nobody(record: object) -> None:
    assert ProcessIdentity.from_record(record) is None


def test_a_record_is_read_back() -> None:
    assert ProcessIdentity.from_record({"pid": 5, "start_ticks": 1, "boot_id": "b"}) == ProcessIdentity(5, 1, "b")


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "\x00"])
def test_a_cut_file_is_an_empty_record(tmp_path: Path, content: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    assert read_record(path) == {}
    assert read_record(tmp_path / "missing") == {}
