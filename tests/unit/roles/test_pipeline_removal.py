"""Goal: a deployment removes the units and definitions of jobs that are not listed any more, and no others.

Method: the expression of the role is evaluated with files of listed and of former jobs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.understudy.broker.plugins.plugin_utils.pipeline_jobs import definitions

ROLE = Path(__file__).resolve().parents[3] / "roles" / "broker_pipeline"
ROOT = "/opt/understudy-pipeline"


def removed(units: list[str], defined: list[str], jobs: list[dict[str, object]], prefix: str) -> list[str]:
    """Paths that the role removes."""
    settings: dict[str, object] = dict.fromkeys(("python", "master", "java_home", "url", "user", "directory"), "")
    settings |= {"root": ROOT, "keep": 3, "backend": "systemd", "unit_prefix": "understudy-pipeline", "drill": True}
    settings |= {"system_user": "", "reader_group": "", "archive_keep_hours": 24}
    (task,) = (
        task
        for task in yaml.safe_load((ROLE / "tasks/units.yml").read_text())
        if task["name"] == "Remove those of jobs that are not listed any more"
    )
    names = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__broker_pipeline_unit_names"]
    variables: dict[str, object] = {
        "broker_pipeline_root": ROOT,
        "__broker_pipeline_units": prefix,
        "__broker_pipeline_definitions": definitions(jobs, settings),
        "__broker_pipeline_unit_names": trust_as_template(names),
        "__broker_pipeline_present": {"files": [{"path": f"{prefix}/{name}"} for name in units]},
        "__broker_pipeline_defined": {"files": [{"path": f"{ROOT}/etc/jobs/{name}"} for name in defined]},
    }
    found = Templar(DataLoader(), variables).template(trust_as_template(task["vars"]["__broker_pipeline_removed"]))
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("prefix", ["/etc/systemd/system", f"{ROOT}/units"])
def test_only_files_of_former_jobs_are_removed(prefix: str) -> None:
    jobs: list[dict[str, object]] = [{"name": "a", "job": "flow", "schedule": "daily"}, {"name": "b", "job": "audit"}]
    listed = ["understudy-pipeline-a.service", "understudy-pipeline-a.timer", "understudy-pipeline-b.service"]
    listed.append("understudy-pipeline-drill.service")
    assert removed(listed, ["a.json", "b.json", "drill.json"], jobs, prefix) == []
    # b had a schedule before, and there was a job c
    former = ["understudy-pipeline-b.timer", "understudy-pipeline-c.service"]
    assert removed([*listed, *former], ["a.json", "c.json", "drill.json"], jobs, prefix) == [
        *(f"{prefix}/{name}" for name in former),
        f"{ROOT}/etc/jobs/c.json",
    ]
