"""Goal: whatever fails in the middle of a wave, its other hosts serve again as before, and no later wave begins.

Method: the play of the waves with a model in place of each module that acts on a node; hosts get lost by a connection
that is refused. The calls and the final state of every node are compared.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.rollout import make_plan
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import Node, Order
from conftest import HOST_PYTHON, ROOT

MODEL = Path(__file__).with_name("modules") / "rolling_model.py"
MODELLED = ("failover", "gate", "instance", "node_info", "rollout_step")
OLD, NEW = "old", "new"
NAMES = ("east_primary", "east_backup", "west_primary", "west_backup")


@dataclass(frozen=True)
class Rolled:
    """How a roll ended."""

    code: int
    output: str
    nodes: dict[str, dict[str, object]]

    def calls(self, name: str) -> list[str]:
        calls = self.nodes[name]["calls"]
        assert isinstance(calls, list)
        return [call for call in calls if call not in ("look", "ready", "active")]

    def state(self, name: str) -> tuple[object, ...]:
        return tuple(self.nodes[name][key] for key in ("running", "release", "phase"))


def install_model(directory: Path) -> None:
    """The collection, with the model in place of the modules that act on a node."""
    made = directory / "ansible_collections/understudy/broker"
    (made / "plugins/modules").mkdir(parents=True)
    for name in ("playbooks", "roles", "meta", "galaxy.yml"):
        (made / name).symlink_to(ROOT / name)
    for path in (ROOT / "plugins").iterdir():
        if path.name != "modules":
            (made / "plugins" / path.name).symlink_to(path)
    for path in (ROOT / "plugins/modules").glob("*.py"):
        (made / "plugins/modules" / path.name).symlink_to(MODEL if path.stem in MODELLED else path)


def inventory(home: Path) -> dict[str, object]:
    """Hosts that are lost once a file says so."""
    lost = f"('{home}/' ~ inventory_hostname ~ '.lost') is exists"
    host = {
        "ansible_connection": f"{{{{ 'ssh' if {lost} else 'local' }}}}",
        "ansible_host": "127.0.0.1",
        "ansible_port": 1,
    }
    return {"broker": {"hosts": {name: {**host, "ansible_python_interpreter": HOST_PYTHON} for name in NAMES}}}


def playbook(home: Path) -> list[dict[str, object]]:
    """Takes over a plan instead of making one, and carries it out."""
    remember = {"name": "Remember the plan", "ansible.builtin.set_fact": {"rolling_planned": {"plan": "{{ plan }}"}}}
    line_up = {
        "name": "Line the hosts up",
        "ansible.builtin.add_host": {"name": "{{ item }}", "groups": ["rolling"]},
        "loop": "{{ plan.waves | map(attribute='hosts') | flatten }}",
        "run_once": True,
    }
    waves = home / "collections/ansible_collections/understudy/broker/playbooks/rolling/waves.yml"
    return [
        {"name": "Take over the plan", "hosts": "broker", "gather_facts": False, "tasks": [remember, line_up]},
        {"import_playbook": str(waves), "vars": {"rolling_kind": "update", "rolling_preflight_timeout_s": 10}},
    ]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    install_model(tmp_path / "collections")
    return tmp_path


def roll(home: Path, faults: dict[str, dict[str, str]]) -> Rolled:
    """An update of two pairs, with faults by node and call."""
    nodes = [
        Node(
            *(name, name[:4], "shared_store", name[5:]),
            state="active" if name.endswith("primary") else "passive",
            ready=True,
            pending=("release",),
        )
        for name in NAMES
    ]
    plan = make_plan(nodes, Order("update", "20260101T000000Z", NEW)).as_dict()
    for name in NAMES:
        fresh = {"running": True, "release": OLD, "saved": "", "phase": "idle", "roll": "", "calls": []}
        (home / f"{name}.json").write_text(json.dumps(fresh))
    (home / "faults.json").write_text(json.dumps(faults))
    (home / "hosts.json").write_text(json.dumps(inventory(home)))
    (home / "play.yml").write_text(json.dumps(playbook(home)))
    done = subprocess.run(
        [
            *(
                str(ROOT / ".venv/bin/ansible-playbook"),
                "-i",
                str(ROOT / "inventories/cluster"),
                "-i",
                str(home / "hosts.json"),
            ),
            *("--extra-vars", json.dumps({"plan": plan}), str(home / "play.yml")),
        ],
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(home / "collections"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "UNDERSTUDY_SCRATCH": str(home),
        },
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    read = {name: json.loads((home / f"{name}.json").read_text()) for name in NAMES}
    return Rolled(done.returncode, done.stdout + done.stderr, read)


def west_was_left_alone(rolled: Rolled) -> bool:
    return all(rolled.state(f"west_{role}") == (True, OLD, "idle") for role in ("primary", "backup"))


RESTORED = (True, OLD, "restored")
UPDATED = ["begin", "stopped", "apply", "started {}", "finish"]


def test_without_a_fault_every_node_runs_the_new_release(home: Path) -> None:
    rolled = roll(home, {})
    assert rolled.code == 0, rolled.output
    assert {rolled.state(name) for name in NAMES} == {(True, NEW, "done")}
    assert rolled.calls("west_backup") == [call.format("passive") for call in UPDATED]
    assert rolled.calls("west_primary") == [call.format("active") for call in UPDATED]


def test_a_release_that_does_not_start_is_replaced_by_the_former_one(home: Path) -> None:
    rolled = roll(home, {"east_primary": {f"started {NEW}": "fail"}})
    assert rolled.code != 0
    assert rolled.state("east_primary") == rolled.state("east_backup") == RESTORED
    assert "The wave east failed at the task Start primaries: started active fails on purpose" in rolled.output
    assert "Its nodes run with their former release" in rolled.output
    assert west_was_left_alone(rolled)


@pytest.mark.parametrize("last", ["begin", "apply", "started new"])
def test_a_lost_primary_lets_its_backup_serve_and_no_other_wave_begin(home: Path, last: str) -> None:
    rolled = roll(home, {"east_primary": {last: "lose"}})
    assert rolled.code != 0
    assert rolled.state("east_backup") == RESTORED
    # passive would wait for the lost primary, and after its clean stop the backup does not serve by itself
    assert rolled.calls("east_backup")[-3:] == ["started ready", "activate", "restart"]
    assert "Not restored: east_primary (cannot be reached)" in rolled.output
    assert west_was_left_alone(rolled), rolled.output


def test_a_primary_that_was_not_stopped_yet_is_left_alone(home: Path) -> None:
    rolled = roll(home, {"east_backup": {"begin": "lose"}})
    assert rolled.code != 0
    assert rolled.calls("east_primary") == ["begin"]
    assert rolled.state("east_primary") == (True, OLD, "begun")
    assert "Not restored: east_backup (cannot be reached)" in rolled.output
    assert west_was_left_alone(rolled), rolled.output


def test_a_primary_that_starts_with_neither_release_lets_its_backup_serve(home: Path) -> None:
    rolled = roll(home, {"east_primary": {"started": "fail"}})
    assert rolled.code != 0
    assert rolled.state("east_backup") == RESTORED
    assert rolled.calls("east_backup")[-3:] == ["started ready", "activate", "restart"]
    assert "Not restored: east_primary (started active fails on purpose)" in rolled.output
    assert west_was_left_alone(rolled)


def test_a_backup_that_does_not_serve_instead_is_named(home: Path) -> None:
    rolled = roll(home, {"east_primary": {"started": "fail"}, "east_backup": {"activate": "fail"}})
    assert rolled.code != 0
    assert "east_backup (activate fails on purpose)" in rolled.output
    assert west_was_left_alone(rolled), rolled.output
