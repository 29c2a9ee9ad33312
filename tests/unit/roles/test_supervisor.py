"""Goal: the supervisor restarts after a crash, and leaves alone what was stopped or killed on purpose.

Method: the real script over real small processes, through the real back end. Waits are bounded polls.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.process import (
    ProcessIdentity,
    ProcessTable,
    read_record,
)
from ansible_collections.understudy.broker.plugins.module_utils.service import (
    ServiceDefinition,
    SupervisedProcess,
    open_service,
)

SCRIPT = Path(__file__).resolve().parents[3] / "roles/broker_service/files/supervisor.py"
STAYS = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("supervisor", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Place:
    """An instance directory with a definition that runs a Python text."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("etc", "run", "log"):
            (directory / name).mkdir()

    def service(self, text: str, delay_s: float = 0.1) -> SupervisedProcess:
        record = {
            "name": "x",
            "backend": "process",
            "unit": "",
            "user": "",
            "command": [sys.executable, "-c", text],
            "supervisor": [sys.executable, "-I", str(SCRIPT)],
            "management_url": "http://127.0.0.1:1",
            "token_file": "/none",
            "restart": {"delay_min_s": delay_s, "delay_max_s": max(delay_s, 5), "reset_after_s": 60},
        }
        (self.directory / "etc/service.json").write_text(json.dumps(record))
        definition = ServiceDefinition.read(self.directory)
        assert definition is not None
        service = open_service(self.directory, definition, lambda command: (0, "", ""))
        assert isinstance(service, SupervisedProcess)
        return service

    def record(self) -> dict[str, object]:
        return read_record(self.directory / "run/supervisor.json")

    def broker(self) -> ProcessIdentity:
        identity = ProcessIdentity.from_record(self.record().get("broker"))
        assert identity is not None
        return identity


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    (tmp_path / "run/hold").touch()
    table = ProcessTable()
    for key in ("broker", "supervisor"):
        identity = ProcessIdentity.from_record(found.record().get(key))
        if identity is not None:
            table.send(identity, signal.SIGKILL)


def await_that(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s, "timed out"
        time.sleep(0.02)


def test_start_and_clean_stop(place: Place) -> None:
    service = place.service(STAYS)
    assert service.status().down
    service.start()
    await_that(lambda: service.status().running)
    status = service.status()
    assert status.kept
    assert status.pid == place.broker().pid
    service.stop()
    await_that(lambda: service.status().down)
    assert service.status().held
    assert service.status().last_exit == "killed by SIGTERM"


def test_a_crash_is_followed_by_a_restart(place: Place) -> None:
    service = place.service(STAYS)
    service.start()
    await_that(lambda: service.status().running)
    first = place.broker()
    ProcessTable().send(first, signal.SIGKILL)
    await_that(lambda: service.status().running and place.broker() != first)
    assert service.status().restarts == 1
    assert service.status().last_exit == "killed by SIGKILL"


def test_a_kill_on_purpose_stays_until_the_next_start(place: Place) -> None:
    service = place.service(STUBBORN)
    service.start()
    await_that(lambda: service.status().running)
    service.kill()
    await_that(lambda: service.status().down)
    assert service.status().last_exit == "killed by SIGKILL"
    assert service.status().restarts == 0
    service.start()
    await_that(lambda: service.status().running)


def test_two_starts_make_one_process(place: Place) -> None:
    service = place.service(STAYS)
    service.start()
    await_that(lambda: service.status().running)
    before = place.record()
    service.start()
    rival = subprocess.run([sys.executable, str(SCRIPT), str(place.directory)], check=False, timeout=60)
    assert rival.returncode == 3
    assert place.record() == before


@pytest.mark.parametrize(("status", "words"), [(0, "exited with 0"), (2, "exited with 2")])
def test_an_exit_that_a_restart_cannot_help_is_left(place: Place, status: int, words: str) -> None:
    service = place.service(f"raise SystemExit({status})")
    service.start()
    await_that(lambda: place.record().get("phase") == "ended" and service.status().down)
    assert service.status().last_exit == words
    assert service.status().restarts == 0


def test_a_broker_that_cannot_stay_up_is_tried_more_and_more_slowly(place: Place) -> None:
    service = place.service("raise SystemExit(1)", delay_s=0.05)
    service.start()
    await_that(lambda: service.status().restarts >= 2)
    assert service.status().kept
    service.stop()
    await_that(lambda: service.status().down)


def test_a_stop_between_two_tries_ends_the_trying(place: Place) -> None:
    service = place.service("raise SystemExit(1)", delay_s=600)
    service.start()
    await_that(lambda: place.record().get("phase") == "waiting")
    service.stop()
    await_that(lambda: service.status().down)
    assert service.status().restarts == 0


def test_sigterm_to_the_supervisor_stops_the_broker_cleanly(place: Place) -> None:
    service = place.service(STAYS)
    service.start()
    await_that(lambda: service.status().running)
    supervisor = ProcessIdentity.from_record(place.record()["supervisor"])
    assert supervisor is not None
    ProcessTable().send(supervisor, signal.SIGTERM)
    await_that(lambda: service.status().down)
    assert service.status().last_exit == "killed by SIGTERM"


def test_a_command_that_does_not_exist_is_reported(place: Place) -> None:
    service = place.service(STAYS)
    definition = json.loads((place.directory / "etc/service.json").read_text())
    (place.directory / "etc/service.json").write_text(json.dumps({**definition, "command": ["/no/such/understudy"]}))
    service.start()
    await_that(lambda: "could not be started" in service.status().last_exit)


def test_the_log_holds_what_the_broker_prints(place: Place) -> None:
    service = place.service("import sys; print('out'); print('err', file=sys.stderr)")
    service.start()
    await_that(lambda: place.record().get("phase") == "ended")
    assert sorted((place.directory / "log/understudy.log").read_text().split()) == ["err", "out"]


def test_delays_double_up_to_the_most(script: ModuleType) -> None:
    restart = {"delay_min_s": 1, "delay_max_s": 30}
    assert [script.restart_delay_s(failures, restart) for failures in (1, 2, 3, 6, 10_000)] == [1, 2, 4, 30, 30]


def test_usage_is_told(script: ModuleType) -> None:
    assert script.main(["supervisor.py"]) == 2
