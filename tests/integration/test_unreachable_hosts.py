"""Goal: a roll that cannot reach a host says which one, and stops nothing.

Method: the inventory of a pair with a witness, whose hosts refuse connections; one of them runs tasks on this machine.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import HOST_PYTHON

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {
    "BROKER_WITNESS_SECRET": "the-secret-of-a-witness-in-a-test",
    "BROKER_CLUSTER_PASSWORD": "the-password-of-a-cluster",
    "BROKER_DRILL_PASSWORD": "the-password-of-a-drill",
}


def play(directory: Path, playbook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook; the directory has the inventory."""
    return subprocess.run(
        [
            *(str(ROOT / ".venv/bin/ansible-playbook"), "--inventory", str(directory / "hosts.yml")),
            *(str(ROOT / "playbooks" / playbook), *arguments),
        ],
        env={
            **os.environ,
            **SECRETS,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("lost", [("a1", "a2", "witness"), ("a2",)], ids=["all", "one"])
def test_a_roll_names_the_hosts_that_cannot_be_reached(tmp_path: Path, lost: tuple[str, ...]) -> None:
    text = (ROOT / "inventories/quorum/hosts.yml").read_text(encoding="utf-8")
    # nothing listens on the port
    text = text.replace("ansible_become: true", "ansible_become: false\n    broker_tls_files: []\n    ansible_port: 1")
    (tmp_path / "hosts.yml").write_text(text)
    directory = tmp_path / "host_vars"
    directory.mkdir()
    for name in {"a1", "a2", "witness"} - set(lost):
        (directory / f"{name}.yml").write_text(
            f"ansible_connection: local\nansible_python_interpreter: {HOST_PYTHON}\n", encoding="utf-8"
        )
    for number, name in enumerate(lost, start=1):
        (directory / f"{name}.yml").write_text(f"ansible_host: 127.0.0.{number}\n", encoding="utf-8")
    planned = play(tmp_path, "plan.yml", "--extra-vars", "rolling_kind=restart")
    assert planned.returncode != 0
    output = planned.stdout[-6000:] + planned.stderr[-2000:]
    assert "The restart is refused, and nothing was stopped:" in planned.stdout, output
    refused = planned.stdout.partition("The restart is refused")[2]
    for name in ("a1", "a2"):
        assert (f"{name} cannot be reached by Ansible" in refused) == (name in lost), output
    assert "no node of pair" not in refused
