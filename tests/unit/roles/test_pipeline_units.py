"""Goal: a job runs with the least rights that it needs, and with the command of its definition.

Method: the units are rendered with the variables of the role.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.understudy.broker.plugins.plugin_utils.pipeline_jobs import definitions

ROLE = Path(__file__).resolve().parents[3] / "roles" / "broker_pipeline"
JOB = {
    "name": "nightly",
    "job": "flow",
    "arguments": ["/srv/50% of it/journal"],
    "schedule": "*-*-* 02:00:00",
    "memory_mib": 3000,
    "timeout_s": 600,
    "on_failure": ["mail@%n.service", "page.service"],
    "accepted_exit_codes": [1, 3],
}
SETTINGS: dict[str, object] = {
    "root": "/opt/understudy-pipeline",
    "directory": "/var/lib/understudy-pipeline",
    "python": "/opt/understudy-pipeline/current/bin/python3",
    "master": "local[*]",
    "java_home": "",
    "keep": 30,
    "backend": "systemd",
    "unit_prefix": "understudy-pipeline",
    "url": "",
    "user": "",
    "drill": False,
    "archive_keep_hours": 24,
    "system_user": "understudy-pipeline",
    "reader_group": "understudy-readers",
}


def settings(template: str, job: dict[str, object], **inputs: object) -> dict[str, list[str]]:
    """Settings of a rendered unit, each with all its values."""
    (definition,) = definitions([job], SETTINGS)
    variables: dict[str, object] = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    variables = {name: value for name, value in variables.items() if "{{" not in str(value)}
    variables |= {"broker_pipeline_stores": ["/srv/50% of it"], "job": definition, **inputs}
    templar = Templar(DataLoader(), variables)
    text = str(templar.template(trust_as_template((ROLE / "templates" / template).read_text())))
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def service(**inputs: object) -> dict[str, list[str]]:
    return settings("pipeline.service.j2", JOB, **inputs)


def test_the_service_runs_the_definition_of_the_job_with_its_limits() -> None:
    found = service()
    (command,) = found["ExecStart"]
    assert shlex.split(command) == [
        "/opt/understudy-pipeline/current/bin/python3",
        "-I",
        "/opt/understudy-pipeline/bin/pipeline_job.py",
        "/opt/understudy-pipeline/etc/jobs/nightly.json",
    ]
    assert found["Type"] == ["oneshot"]
    assert found["MemoryMax"] == ["3000M"]
    # later than the program itself ends the job
    assert found["TimeoutStartSec"] == ["690"]
    assert found["SuccessExitStatus"] == ["1 3"]
    assert found["OnFailure"] == ["mail@%n.service", "page.service"]
    assert "SuccessExitStatus" not in settings("pipeline.service.j2", {"name": "a", "job": "flow"})


def test_the_service_may_write_its_directory_and_the_outputs_and_nothing_else() -> None:
    found = service(broker_pipeline_outputs=["/srv/archive"], broker_pipeline_hidden=["/opt/understudy/instance/etc"])
    assert found["ProtectSystem"] == ["strict"]
    assert shlex.split(found["ReadWritePaths"][0]) == ["/var/lib/understudy-pipeline", "/srv/archive"]
    assert shlex.split(found["ReadOnlyPaths"][0]) == ["/srv/50%% of it"]
    assert shlex.split(found["InaccessiblePaths"][0]) == ["-/opt/understudy/instance/etc"]
    assert "/srv/50%% of it" in shlex.split(found["RequiresMountsFor"][0])
    assert found["CapabilityBoundingSet"] == [""]
    assert found["NoNewPrivileges"] == ["true"]


def test_only_the_service_is_in_the_group_of_readers() -> None:
    found = service(broker_pipeline_reader_group="understudy-readers")
    assert (found["User"], found["Group"]) == (["understudy-pipeline"], ["understudy-pipeline"])
    assert found["SupplementaryGroups"] == ["understudy-readers"]
    user = (ROLE / "tasks/user.yml").read_text()
    assert "groups: []" in user
    alone = service(broker_pipeline_user="", broker_pipeline_reader_group="")
    assert not {"User", "Group", "SupplementaryGroups"} & set(alone)


def test_the_timer_starts_the_service_on_its_schedule_and_makes_up_for_a_missed_run() -> None:
    found = settings("pipeline.timer.j2", JOB)
    assert found["OnCalendar"] == ["*-*-* 02:00:00"]
    assert found["Unit"] == ["understudy-pipeline-nightly.service"]
    assert found["Persistent"] == ["true"]
