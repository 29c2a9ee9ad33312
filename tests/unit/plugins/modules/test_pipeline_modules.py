"""Goal: the modules of the pipeline run the job that is named, return its newest report, and say why there is none."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.pipeline_runs import PipelineError, open_job
from ansible_collections.understudy.broker.plugins.module_utils.platforms import install_advice, this_host
from ansible_collections.understudy.broker.plugins.modules import pipeline_host_info, pipeline_job

WRITES = """
import json, os, sys
reports = os.path.dirname(os.path.dirname(os.path.dirname(sys.argv[1]))) + "/reports"
json.dump({"name": "nightly", "job": "flow", "exit_code": 1, "outcome": "finding", "accepted": False, "seconds": 0.1,
           "result": {"lost": 1}, "errors": [], "release": "r"}, open(f"{reports}/T2.json", "w"))
open(f"{reports}/T2.html", "w")
os.path.lexists(f"{reports}/latest.json") and os.unlink(f"{reports}/latest.json")
os.symlink("T2.json", f"{reports}/latest.json")
sys.exit(1)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc/jobs").mkdir(parents=True)
    (tmp_path / "reports").mkdir()
    define(tmp_path, WRITES)
    return tmp_path


def define(root: Path, script: str, **changes: object) -> None:
    program = root / "program.py"
    program.write_text(script)
    content = {"unit": "", "runner": [sys.executable, str(program)], "reports": str(root / "reports"), **changes}
    (root / "etc/jobs/nightly.json").write_text(json.dumps(content))


def test_the_report_of_the_run_is_returned_whatever_its_exit_code(root: Path, run_module: Any) -> None:
    found = run_module(pipeline_job, root=str(root), name="nightly")
    assert found["changed"]
    assert (found["exit_code"], found["outcome"], found["accepted"]) == (1, "finding", False)
    assert found["result"] == {"lost": 1}
    assert found["report"] == str(root / "reports/T2.json")
    assert found["files"] == [str(root / "reports/T2.html")]


def test_check_mode_runs_nothing(root: Path, run_module: Any) -> None:
    assert run_module(pipeline_job, check_mode=True, root=str(root), name="nightly")["changed"]
    assert list((root / "reports").iterdir()) == []


def test_an_unknown_job_is_answered_with_the_names(root: Path, run_module: Any) -> None:
    for name in ("weekly", "../jobs/nightly"):
        found = run_module(pipeline_job, root=str(root), name=name)
        assert found["failed"]
        assert found["msg"].endswith("it has: nightly")


def test_a_run_without_a_report_fails_with_what_the_program_said(root: Path, run_module: Any) -> None:
    (root / "reports/T1.json").write_text("{}")
    (root / "reports/latest.json").symlink_to("T1.json")
    define(root, "import sys; sys.exit('another run of this job goes on')")
    found = run_module(pipeline_job, root=str(root), name="nightly")
    assert found["msg"] == "job nightly left no report: another run of this job goes on"


def test_a_link_out_of_the_directory_of_reports_is_not_followed(root: Path) -> None:
    (root / "reports/latest.json").symlink_to("/etc/passwd")
    with pytest.raises(PipelineError, match="leads out of"):
        open_job(root, "nightly").newest()


def test_under_systemd_the_unit_is_started_and_its_journal_is_quoted(root: Path) -> None:
    define(root, "", unit="understudy-pipeline-nightly.service")
    ran: list[list[str]] = []

    def run(command: Any) -> tuple[int, str, str]:
        ran.append(list(command))
        return (0, "a line of the journal\n", "") if command[0] == "journalctl" else (1, "", "Job failed.")

    with pytest.raises(PipelineError, match=r"left no report: Job failed\.\na line of the journal"):
        open_job(root, "nightly").run(run)
    assert ran[0] == ["systemctl", "start", "understudy-pipeline-nightly.service"]


def test_a_definition_that_is_none_is_refused(root: Path) -> None:
    for text in ("{", "[]", "{}"):
        (root / "etc/jobs/nightly.json").write_text(text)
        with pytest.raises(PipelineError, match=r"nightly\.json"):
            open_job(root, "nightly")


def test_the_host_is_described_without_a_change(tmp_path: Path, run_module: Any) -> None:
    found = run_module(pipeline_host_info, space_path=str(tmp_path / "a/b"), java_home=str(tmp_path), stores=[])
    assert not found["changed"]
    assert found["user_id"] == os.geteuid()
    assert found["free_bytes"] > 0
    assert install_advice(this_host(), "java") in found["java"]["problem"]
    assert found["store_problems"] == []
    assert list(tmp_path.iterdir()) == []


def test_stores_are_asked_about(tmp_path: Path, run_module: Any) -> None:
    found = run_module(pipeline_host_info, space_path=str(tmp_path), stores=[str(tmp_path / "absent")])
    assert found["store_problems"] == [f"{tmp_path}/absent: No such file or directory"]
    for unknown in ({"user": "no-such-user-of-a-test"}, {"group": "no-such-group-of-a-test"}):
        failed = run_module(pipeline_host_info, space_path=str(tmp_path), stores=[str(tmp_path)], **unknown)
        assert "broker_pipeline_stores cannot be checked" in failed["msg"]
