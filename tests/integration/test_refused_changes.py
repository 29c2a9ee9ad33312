"""Goal: a run that is refused because of a restart names everything that it has brought in force already.

Method: the last tasks of the role broker on this machine, with the facts that the roles before it have set.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import HOST_PYTHON, ROOT

PENDING = {"broker_config_pending": ["broker.xml"]}


def finish(directory: Path, facts: dict[str, object], *options: str) -> tuple[int, str]:
    """Exit code and output of the tasks, without line breaks."""
    playbook = directory / "finish.yml"
    playbook.write_text(
        json.dumps(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "tasks": [
                        {
                            "ansible.builtin.include_role": {
                                "name": "understudy.broker.broker", "tasks_from": "finish",
                            }
                        }
                    ],
                }
            ]
        )
    )  # fmt: skip
    host = {"ansible_connection": "local", "ansible_python_interpreter": HOST_PYTHON, **facts}
    inventory = directory / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"a1": host}}}))
    done = subprocess.run(
        [str(ROOT / ".venv/bin/ansible-playbook"), "--inventory", str(inventory), str(playbook), *options],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("in_force", "told"),
    [
        ({}, "Changed users, roles and rules of the firewall are not in force either."),
        (
            {"broker_store_in_force": ["mount of /srv/store"], "broker_service_in_force": ["unit of the broker"]},
            "In force already: mount of /srv/store, unit of the broker. Changed users, roles and rules of the firewall",
        ),
    ],
)
def test_a_refused_run_names_the_changes_that_are_in_force(
    tmp_path: Path, in_force: dict[str, object], told: str
) -> None:
    code, output = finish(tmp_path, PENDING | in_force)
    assert code == 2, output
    assert f"a1 runs and would have to be restarted for: broker.xml. {told}" in output


def test_a_run_without_a_restart_is_not_refused(tmp_path: Path) -> None:
    code, output = finish(tmp_path, {"broker_store_in_force": ["mount of /srv/store"]})
    assert code == 0, output
