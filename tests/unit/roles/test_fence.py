"""Goal: a host is fenced when its killed broker does not end, and never because of one that ends or lives.

Method: the functions of the real script, over directories that look like /proc for the states that need a hanging file
server, and over real processes for the others.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles/broker_service/files/fence.py"
KILLED = 1 << (signal.SIGKILL - 1)
EXITING = 0x4


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fence", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Host:
    """A directory like /proc and a control group with one process, 70, whose name has a parenthesis and a blank."""

    def __init__(self, directory: Path) -> None:
        self.proc, self.cgroup = directory / "proc", directory / "cgroup"
        self.cgroup.mkdir()
        (self.cgroup / "cgroup.procs").write_text("70\n")
        self.thread(70)

    def thread(self, number: int, state: str = "S", flags: int = 0, pending: int = 0, shared: int = 0) -> None:
        """Writes the state of a thread; that of the first one is the state of the process too."""
        line = f"{number} (a) b) {state} 1 1 1 0 -1 {flags} " + " ".join(["0"] * 12) + " 4711 0 0\n"
        place = self.proc / "70" / "task" / str(number)
        place.mkdir(parents=True, exist_ok=True)
        (place / "stat").write_text(line)
        (place / "status").write_text(f"Name:\ta) b\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\n")
        if number == 70:
            (self.proc / "70" / "stat").write_text(line)

    def ending(self, script: ModuleType) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = script.ending(str(self.cgroup), str(self.proc))
        return found


@pytest.mark.parametrize(
    "threads",
    [
        {70: {"state": "D", "shared": KILLED}},
        {70: {"state": "Z", "flags": EXITING}, 71: {"state": "D", "pending": KILLED}},
        {70: {"state": "Z", "flags": EXITING}, 71: {"state": "D", "flags": EXITING}},
        {70: {"state": "D", "flags": EXITING}},
    ],
    ids=["killed in the kernel", "another thread is in the kernel", "another thread closes files", "it closes files"],
)
def test_a_process_that_has_to_end_is_found(
    script: ModuleType, tmp_path: Path, threads: dict[int, dict[str, object]]
) -> None:
    host = Host(tmp_path)
    for number, state in threads.items():
        host.thread(number, **state)  # type: ignore[arg-type]
    assert host.ending(script) == {(70, 4711)}


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"state": "D"},
        {"state": "D", "pending": 1 << (signal.SIGTERM - 1)},
        {"state": "D", "shared": 1 << (signal.SIGABRT - 1), "flags": 0x400040},
        {"state": "Z", "flags": EXITING, "pending": KILLED},
    ],
    ids=["idle", "in the kernel", "asked to end", "aborted", "zombie"],
)
def test_a_process_that_lives_or_has_ended_is_not_found(
    script: ModuleType, tmp_path: Path, state: dict[str, object]
) -> None:
    host = Host(tmp_path)
    host.thread(70, **state)  # type: ignore[arg-type]
    assert host.ending(script) == set()


def test_a_unit_without_processes(script: ModuleType, tmp_path: Path) -> None:
    host = Host(tmp_path)
    (host.cgroup / "cgroup.procs").write_text("71\n")
    assert host.ending(script) == set()
    assert script.ending(str(tmp_path / "none"), str(host.proc)) == set()


def test_real_processes_are_read(script: ModuleType, tmp_path: Path) -> None:
    """The fields are those of this kernel: one process lives, one is stopped, one was killed and not waited for."""
    processes = [subprocess.Popen(["sleep", "600"]) for _look in range(3)]
    try:
        os.kill(processes[1].pid, signal.SIGSTOP)
        processes[2].kill()
        os.waitid(os.P_PID, processes[2].pid, os.WEXITED | os.WNOWAIT)
        (tmp_path / "cgroup.procs").write_text("".join(f"{each.pid}\n" for each in processes))
        assert script.ending(str(tmp_path)) == set()
    finally:
        for each in processes:
            each.kill()
            each.wait()


def test_a_process_is_due_after_the_whole_time_in_a_row(script: ModuleType) -> None:
    watch = script.Watch(3)
    broker, other = (70, 4711), (70, 4712)
    assert [watch.due({broker}) for _look in range(3)] == [[], [], []]
    assert watch.due(set()) == []
    assert [watch.due({broker}) for _look in range(3)] == [[], [], []]
    assert watch.due({other}) == [], "another process got the same number"
    assert [watch.due({other}) for _look in range(3)] == [[], [], [70]]
    assert watch.due({other}) == [], "the command gets the whole time again"


@pytest.mark.parametrize(
    "arguments", [[], ["a.service", "10", "none"], ["a.service", "10", "command"], ["a.service", "10", "reboot", "x"]]
)
def test_wrong_arguments_end_it(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-I", SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "AFTER_S" in done.stderr
