"""Goal: both back ends report the same facts and do what they are asked, with a hold before every kill."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessIdentity, ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.service import (
    ServiceDefinition,
    ServiceError,
    SupervisedProcess,
    SystemdUnit,
    exit_in_words,
    open_service,
    parse_unit_status,
    set_hold,
)

DEFINITION = {
    "name": "east-1",
    "backend": "systemd",
    "unit": "understudy-east-1.service",
    "user": "",
    "command": ["understudy", "run"],
    "supervisor": ["python3", "supervisor.py"],
    "management_url": "http://127.0.0.1:8161",
    "token_file": "/none",
}


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    for name in ("etc", "run", "log"):
        (tmp_path / name).mkdir()
    (tmp_path / "etc/service.json").write_text(json.dumps(DEFINITION))
    return tmp_path


class Systemctl:
    """Records commands; answers ``show`` with what the test sets."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.shown = "ActiveState=inactive\nMainPID=0\n"
        self.output = ""
        self.code = 0
        self.sync_code = 0

    def __call__(self, command: Sequence[str]) -> tuple[int, str, str]:
        self.commands.append(list(command))
        if command[0] == "sync":
            return self.sync_code, "", "Input/output error"
        return self.code, self.shown if command[1] == "show" else self.output, "refused"


def unit(instance: Path, systemctl: Systemctl) -> SystemdUnit:
    definition = ServiceDefinition.read(instance)
    assert definition is not None
    service = open_service(instance, definition, systemctl)
    assert isinstance(service, SystemdUnit)
    return service


def test_start_lifts_the_hold_and_kill_sets_it_first(instance: Path) -> None:
    systemctl = Systemctl()
    service = unit(instance, systemctl)
    hold = instance / "run/hold"
    service.kill()
    assert hold.exists()
    assert service.status().held
    service.start()
    assert not hold.exists()
    service.stop()
    assert [command[1:-1] for command in systemctl.commands if command[0] == "systemctl" and command[1] != "show"] == [
        ["kill", "--signal=SIGKILL"],
        ["--no-block", "start"],
        ["--no-block", "stop"],
    ]


def test_a_broker_starts_after_its_files_are_on_the_disk(instance: Path) -> None:
    """Goal: a power cut after the start leaves no empty unit or configuration."""
    systemctl = Systemctl()
    unit(instance, systemctl).start()
    written, started = systemctl.commands
    assert written[:2] == ["sync", "--file-system"]
    assert {str(instance), "/etc/systemd/system"} >= set(written[2:]) >= {str(instance)}
    assert started == ["systemctl", "--no-block", "start", "understudy-east-1.service"]


def test_no_broker_starts_on_a_disk_that_fails(instance: Path) -> None:
    systemctl = Systemctl()
    systemctl.sync_code = 1
    with pytest.raises(ServiceError, match=r"sync --file-system .* ended with 1: Input/output error"):
        unit(instance, systemctl).start()
    assert [command[0] for command in systemctl.commands] == ["sync"]


class EndsWhileLookedAt(ProcessTable):
    """The supervisor and its broker end, which is written down, just when the code asks whether they are alive."""

    def __init__(self, record: Path) -> None:
        super().__init__()
        self._record = record

    def is_alive(self, identity: ProcessIdentity | None) -> bool:
        ended = {"status": 0, "at_ms": 1}
        self._record.write_text(json.dumps({"phase": "ended", "broker": None, "restarts": 3, "last_exit": ended}))
        return False


def test_a_status_is_of_one_moment(instance: Path) -> None:
    """Goal: a report that all is down also says how it ended."""
    record = instance / "run/supervisor.json"
    who = {"pid": 4_000_000, "start_ticks": 1, "boot_id": "b"}
    record.write_text(json.dumps({"phase": "running", "supervisor": who, "broker": who, "restarts": 3}))
    definition = ServiceDefinition.read(instance)
    assert definition is not None
    status = SupervisedProcess(instance, definition, EndsWhileLookedAt(record), Systemctl()).status()
    assert status.down
    assert (status.restarts, status.last_exit) == (3, "exited with 0")


def test_a_refusal_says_what_was_run_and_answered(instance: Path) -> None:
    systemctl = Systemctl()
    systemctl.code = 5
    with pytest.raises(
        ServiceError, match=r"systemctl --no-block start understudy-east-1.service ended with 5: refused"
    ):
        unit(instance, systemctl).start()


@pytest.mark.parametrize(
    ("text", "running", "kept", "pid"),
    [
        ("ActiveState=active\nSubState=running\nMainPID=42\nNRestarts=3\nResult=success", True, True, 42),
        (
            "ActiveState=activating\nSubState=auto-restart\nMainPID=0\nResult=signal\nExecMainStatus=9",
            False,
            True,
            None,
        ),
        ("ActiveState=deactivating\nMainPID=42", True, True, 42),
        ("ActiveState=failed\nMainPID=0\nResult=exit-code\nExecMainStatus=2", False, False, None),
        ("ActiveState=inactive\nMainPID=0\nResult=success", False, False, None),
        ("", False, False, None),
    ],
)
def test_unit_states(text: str, running: bool, kept: bool, pid: int | None) -> None:
    status = parse_unit_status(text, held=False)
    assert (status.running, status.kept, status.pid) == (running, kept, pid)
    assert status.down is not (running or kept)
    assert ("status 2" in status.last_exit) is ("exit-code" in text)


@pytest.mark.parametrize(("tried_at", "words"), [("0", ""), ("81234", "is its store mounted?")])
def test_a_unit_whose_assertion_failed_says_so(tried_at: str, words: str) -> None:
    text = f"ActiveState=inactive\nMainPID=0\nResult=success\nAssertResult=no\nAssertTimestampMonotonic={tried_at}"
    status = parse_unit_status(text, held=False)
    assert status.down
    assert status.last_exit.endswith(words)
    assert bool(status.last_exit) is bool(words)


def test_the_last_lines_are_those_of_the_journal(instance: Path) -> None:
    systemctl = Systemctl()
    systemctl.output = "one\ntwo\nthree\n"
    assert unit(instance, systemctl).last_lines(2) == ["two", "three"]
    assert systemctl.commands[-1][:3] == ["journalctl", "--unit=understudy-east-1.service", "--lines=2"]
    systemctl.code = 1
    assert unit(instance, systemctl).last_lines(2) == []


def test_the_last_lines_of_a_supervised_broker_are_those_of_its_log(tmp_path: Path) -> None:
    definition = ServiceDefinition("a", "process", "", "", (), (), "", "")
    service = open_service(tmp_path, definition, lambda command: (1, "", "unused"))
    assert service.last_lines(2) == []
    (tmp_path / "log").mkdir()
    (tmp_path / "log/understudy.log").write_bytes(b"x" * 200_000 + b"\none\ntwo \xff\nthree\n")
    assert service.last_lines(2) == ["two \ufffd", "three"]


def test_nothing_deployed_is_no_definition(tmp_path: Path) -> None:
    assert ServiceDefinition.read(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{}", json.dumps({**DEFINITION, "command": "understudy run"})])
def test_a_broken_definition_is_an_error(instance: Path, content: str) -> None:
    (instance / "etc/service.json").write_text(content)
    with pytest.raises(ServiceError, match="is no service definition"):
        ServiceDefinition.read(instance)


def test_an_unknown_back_end_is_an_error(instance: Path) -> None:
    (instance / "etc/service.json").write_text(json.dumps({**DEFINITION, "backend": "cron"}))
    definition = ServiceDefinition.read(instance)
    assert definition is not None
    with pytest.raises(ServiceError, match="unknown back end 'cron'"):
        open_service(instance, definition, Systemctl())


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, ""),
        ({"status": 1}, "exited with 1"),
        ({"status": -9}, "killed by SIGKILL"),
        ({"status": -200}, "killed by signal 200"),
        ({"status": None, "error": "no such file"}, "could not be started: no such file"),
    ],
)
def test_exits_in_words(record: object, words: str) -> None:
    assert exit_in_words(record) == words


def test_a_link_in_place_of_the_hold_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "hold").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        set_hold(tmp_path / "hold")
    assert not (tmp_path / "elsewhere").exists()
