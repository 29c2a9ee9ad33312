"""Goal: a fault of users, roles or passwords is printed once, with all hosts that have it."""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[3] / "roles/broker"


def lines(faults: dict[str, list[str]]) -> list[str]:
    text = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__broker_credential_lines"]
    hostvars = {name: {"__broker_credential_faults": found} for name, found in faults.items()}
    templar = Templar(DataLoader(), {"hostvars": hostvars, "ansible_play_hosts": list(faults)})
    found = templar.template(trust_as_template(text))
    assert isinstance(found, list)
    return found


def test_a_fault_of_both_hosts_of_a_pair_is_one_line() -> None:
    assert lines({"a1": ["broker_users[0] lacks a password"], "a2": ["broker_users[0] lacks a password"]}) == [
        "a1, a2: broker_users[0] lacks a password"
    ]


def test_a_fault_of_one_host_names_only_that_host() -> None:
    assert lines({"a1": ["x"], "a2": ["x", "y"], "b1": []}) == ["a1, a2: x", "a2: y"]


def test_hosts_without_faults_have_no_line() -> None:
    assert lines({"a1": [], "a2": []}) == []


def test_the_refusal_is_made_once_for_all_hosts() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/credentials.yml").read_text())
    (refusal,) = [task for task in tasks if "ansible.builtin.fail" in task]
    assert refusal["run_once"] is True
