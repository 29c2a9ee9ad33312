"""Syntax checks of playbooks are forked for linters, with the outcome of an executed one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / ".ci" / "forked_playbooks.py"
PLAYBOOK = "- hosts: localhost\n  tasks:\n    - ansible.builtin.{}:\n"


def run(directory: Path, command: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, SCRIPT, "bash", "-c", command]
    return subprocess.run(program, cwd=directory, capture_output=True, text=True, check=False)


def test_outcomes_are_those_of_executed_commands(tmp_path: Path) -> None:
    (tmp_path / "right.yml").write_text(PLAYBOOK.format("ping"))
    (tmp_path / "wrong.yml").write_text(PLAYBOOK.format("no_such_module"))
    check = "ansible-playbook --syntax-check"
    done = run(tmp_path, f"{check} right.yml; echo $?; ANSIBLE_NOCOLOR=1 {check} wrong.yml; echo $?; exit 3")
    assert done.returncode == 3
    assert [line for line in done.stdout.splitlines() if line] == ["playbook: right.yml", "0", "4"]
    assert "no_such_module" in done.stderr


def test_other_calls_are_executed(tmp_path: Path) -> None:
    done = run(tmp_path, "ansible-playbook --version")
    assert done.returncode == 0
    assert done.stdout.startswith("ansible-playbook [core ")
    assert str(Path(sys.executable).with_name("ansible-playbook")) in done.stdout
