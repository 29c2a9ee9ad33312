"""Goal: a run of a job leaves a whole report, ends when its time is over, and removes the files of old runs only.

Method: the program of the role runs real commands, small scripts instead of Spark, in directories of the test.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "roles/broker_pipeline/files/pipeline_job.py"
TIMEOUT_S = 120


class Host:
    """The directories of one job, and its definition."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.reports = directory / "reports"
        self.path = directory / "job.json"

    def define(self, script: str, **changes: object) -> None:
        """A job that runs a Python script; its arguments are those of the definition."""
        content = {
            "name": "nightly",
            "job": "flow",
            "command": [sys.executable, "-c", script],
            "arguments": [],
            "environment": {"GIVEN": "yes"},
            "user": "",
            "group": "",
            "directory": str(self.directory),
            "reports": str(self.reports),
            "work": str(self.directory / "work"),
            "keep": 3,
            "timeout_s": TIMEOUT_S,
            "accepted_exit_codes": [],
            **changes,
        }
        self.path.write_text(json.dumps(content))

    def start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-I", str(PROGRAM), str(self.path)], stdout=pipe, stderr=pipe, text=True
        )

    def run(self) -> tuple[int, dict[str, Any]]:
        """Exit code and the newest report."""
        process = self.start()
        process.communicate(timeout=TIMEOUT_S)
        return process.returncode, self.latest()

    def latest(self) -> dict[str, Any]:
        found = json.loads((self.reports / "latest.json").read_text())
        assert isinstance(found, dict)
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def ends(code: int, output: object = None) -> str:
    printed = "" if output is None else f"print({json.dumps(output)!r});"
    return f"import sys; {printed} print('said', file=sys.stderr); sys.exit({code})"


@pytest.mark.parametrize(
    ("code", "output", "accepted", "outcome"),
    [
        (0, {"lost": 0}, [], "done"),
        (1, {"lost": 1}, [], "finding"),
        (1, None, [], "failed"),
        (3, {"unresolved": 2}, [3], "finding"),
        (2, None, [3], "failed"),
    ],
)
def test_the_report_says_how_the_job_ended(
    host: Host, code: int, output: object, accepted: list[int], outcome: str
) -> None:
    host.define(ends(code, output), accepted_exit_codes=accepted)
    ended, report = host.run()
    assert ended == code == report["exit_code"]
    assert (report["outcome"], report["result"]) == (outcome, output)
    assert report["accepted"] is (code == 0 or code in accepted)
    assert report["errors"] == ["said"]
    assert not list(host.reports.glob("*.new"))
    assert all(path.stat().st_mode & 0o077 == 0 for path in host.reports.iterdir() if not path.is_symlink())


def test_arguments_stand_for_files_of_the_run_and_for_all_files_that_match(host: Host) -> None:
    for name in ("b.jsonl", "a.jsonl"):
        (host.directory / name).touch()
    script = (
        "import json, os, sys; open(sys.argv[1].partition('=')[2], 'w');"
        "print(json.dumps({'given': sys.argv[1:], 'env': os.environ['GIVEN']}))"
    )
    host.define(script, arguments=["--html={run}.html", f"{host.directory}/*.jsonl", "orders.*"])
    code, report = host.run()
    assert code == 0
    html, *others = report["result"]["given"]
    assert html == f"--html={host.reports}/{report['run']}.html"
    assert others == [f"{host.directory}/a.jsonl", f"{host.directory}/b.jsonl", "orders.*"]
    assert report["result"]["env"] == "yes"
    assert (host.reports / f"{report['run']}.html").exists()


def test_a_pattern_without_a_file_is_an_error_that_names_it(host: Host) -> None:
    host.define(ends(0), arguments=[f"{host.directory}/*.jsonl"])
    code, report = host.run()
    assert (code, report["outcome"]) == (2, "failed")
    assert report["errors"] == [f"no file is named {host.directory}/*.jsonl"]


def test_all_files_of_old_runs_are_removed_and_no_others(host: Host) -> None:
    host.define("import sys; open(sys.argv[1], 'w')", arguments=["{run}.html"], keep=2)
    host.reports.mkdir()
    (host.reports / "notes.txt").touch()
    names = [host.run()[1]["run"] for _time in range(4)]
    left = {path.name for path in host.reports.iterdir()} - {"latest.json", "notes.txt", ".lock"}
    assert left == {f"{name}{ending}" for name in names[2:] for ending in (".html", ".json", ".log", ".out")}
    assert (host.reports / "notes.txt").exists()


def test_what_a_killed_run_left_in_the_directory_of_spark_is_removed(host: Host) -> None:
    (host.directory / "work/understudy-spark-x/blocks").mkdir(parents=True)
    host.define(ends(0, {}))
    assert host.run()[0] == 0
    assert list((host.directory / "work").iterdir()) == []


WAITS = "import sys, time; sys.stderr.write('begun\\n'); sys.stderr.flush(); time.sleep(600)"


def test_a_job_that_takes_too_long_is_ended(host: Host) -> None:
    host.define(WAITS, timeout_s=1)
    code, report = host.run()
    assert code == 124
    assert (report["outcome"], report["accepted"]) == ("timed out", False)


def test_a_second_run_is_refused_and_a_stop_ends_the_job_with_a_report(host: Host) -> None:
    host.define(WAITS)
    first = host.start()
    try:
        # an event of the job itself, not a time: its first line is in the log of its run
        while not any(path.read_text() for path in host.reports.glob("*.log")):
            assert first.poll() is None
        second = host.start()
        _output, said = second.communicate(timeout=TIMEOUT_S)
        assert second.returncode == 75
        assert "another run of this job goes on" in said
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=TIMEOUT_S)
    finally:
        first.kill()
    assert first.returncode == 143
    assert host.latest()["outcome"] == "stopped"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_becomes_the_user_of_the_jobs() -> None:
    with tempfile.TemporaryDirectory() as name:  # the directories of pytest are private to root
        host = Host(Path(name))
        for path in (host.directory, host.reports, host.directory / "work"):
            path.mkdir(exist_ok=True)
            shutil.chown(path, "nobody")
        user = pwd.getpwnam("nobody")
        script = (
            "import json, os; print(json.dumps({'ids': os.getresuid(), 'gid': os.getgid(), 'groups': os.getgroups()}))"
        )
        host.define(script, user="nobody", group="mail", command=["/usr/bin/python3", "-c", script])
        code, report = host.run()
        assert code == 0, report
        ids = {"ids": [user.pw_uid] * 3, "gid": user.pw_gid, "groups": [grp.getgrnam("mail").gr_gid]}
        assert report["result"] == ids
        assert (host.reports / "latest.json").lstat().st_uid == user.pw_uid


def test_an_unknown_user_is_named(host: Host) -> None:
    host.define(ends(0), user="no-such-user-of-a-test")
    process = host.start()
    _output, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert "no-such-user-of-a-test" in said


def test_a_definition_that_cannot_be_read_is_named(host: Host) -> None:
    host.path.write_text("{")
    process = host.start()
    _output, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert str(host.path) in said
    assert not os.path.exists(host.reports)
