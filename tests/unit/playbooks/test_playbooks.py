"""Goal: a play reaches each host the way the inventory says, and puts no password into a command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
FILES = sorted(path for path in PLAYBOOKS.rglob("*.yml") if "vars" not in path.parts)
ON_A_NODE = ("ansible.builtin.command", "understudy.broker.instance", "understudy.broker.gate", "ansible.builtin.file")


def tasks(entries: list[dict[str, object]]) -> Iterator[dict[str, object]]:
    """Every task, also those of plays and blocks."""
    for entry in entries:
        nested = [entry[key] for key in ("tasks", "block", "rescue", "always") if key in entry]
        for group in nested:
            assert isinstance(group, list)
            yield from tasks(group)
        if not nested:
            yield entry


def load(path: Path) -> list[dict[str, object]]:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, list)
    return content


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_play_or_task_sets_a_connection(path: Path) -> None:
    """A keyword wins over a delegated host without ansible_connection, so its tasks would run on the controller."""
    for entry in [*load(path), *tasks(load(path))]:
        assert "connection" not in entry, entry.get("name")


@pytest.mark.parametrize("path", [PLAYBOOKS / "drill.yml", PLAYBOOKS / "tasks/drill_round.yml"], ids=lambda p: p.name)
def test_what_the_drill_does_to_a_node_is_delegated_to_it(path: Path) -> None:
    for task in tasks(load(path)):
        if any(module in task for module in ON_A_NODE) and task.get("become") is not False:
            assert "delegate_to" in task, task["name"]


def test_what_the_drill_does_on_the_controller_needs_no_root() -> None:
    for task in tasks(load(PLAYBOOKS / "drill.yml")):
        if "delegate_to" not in task and any("command" in key or "copy" in key for key in task):
            assert task["become"] is False, task["name"]


def test_a_password_reaches_the_clients_as_a_file() -> None:
    variables = yaml.safe_load((PLAYBOOKS / "vars/drill.yml").read_text())
    for name, value in variables.items():
        if name.startswith("drill_") and "~" in value:
            assert "drill_password " not in value.split(" if ")[0], name
    secret = [task for task in tasks(load(PLAYBOOKS / "drill.yml")) if "drill_password }}" in str(task)]
    assert secret
    assert all(task.get("no_log") is True for task in secret)
