"""Goal: a primary without a store is refused beside a partner that has one, or that cannot be asked.

Method: the playbook preflight, whose tasks site and rolling_update begin with, for a replicated pair whose tasks run on
this machine, with Debian's own Python. The partner has the first file of a log, as after it has served.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import HOST_PYTHON, ROOT

ADDRESSES = {"a1": "127.0.0.151", "a2": "127.0.0.152"}


class Pair:
    """The inventory of a pair, and its directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.inventory = directory / "hosts.json"
        self.write()

    def write(self, unreachable: str = "") -> None:
        hosts = {}
        for name, address in ADDRESSES.items():
            # nothing listens on the port
            lost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
            hosts[name] = {
                "ansible_connection": "local",
                "broker_advertise_address": address,
                "broker_ha_role": "primary" if name == "a1" else "backup",
                **(lost if name == unreachable else {}),
            }
        common = {
            "ansible_python_interpreter": HOST_PYTHON,
            "broker_user": "",
            "broker_python": HOST_PYTHON,
            "broker_root": f"{self.directory}/{{{{ inventory_hostname }}}}",
            "broker_instance_directory": "{{ broker_root }}",
            "broker_service_backend": "process",
            "broker_management_address": "{{ broker_advertise_address }}",
            "broker_cluster_name": "orders",
            "broker_cluster_password": "a-password-of-a-test",
            "broker_security_enabled": False,
            "broker_pair": "east",
            "broker_ha_policy": "replication",
            "broker_lock_manager": "file",
            "broker_lock_manager_properties": {"locks-folder": str(self.directory)},
        }
        self.inventory.write_text(json.dumps({"broker": {"hosts": hosts, "vars": common}}))

    def put(self, node: str, name: str) -> None:
        """A file in the directory of the journal of a node."""
        file = self.directory / node / "data/journal" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        # as the role broker_store writes it when it makes the store
        identity = {"store_id": f"store-of-{node}", "cluster": "orders", "pair": "east"}
        (self.directory / node / "data/store.json").write_text(json.dumps(identity))

    def play(self, name: str, *options: str) -> tuple[int, str]:
        """Exit code and output of a playbook, without line breaks."""
        done = subprocess.run(
            [
                *(str(ROOT / ".venv/bin/ansible-playbook"), "--inventory", str(self.inventory)),
                *(str(ROOT / f"playbooks/{name}.yml"), *options),
            ],
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"),
                "ANSIBLE_INJECT_FACT_VARS": "false",
                "ANSIBLE_NOCOLOR": "1",
                "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


SEGMENT = "segment-000000000001-0000000001.log"


@pytest.mark.parametrize("options", [(), ("--limit", "a1")], ids=["both", "limited"])
def test_a_primary_without_a_store_is_refused_beside_the_store_of_its_partner(
    pair: Pair, options: tuple[str, ...]
) -> None:
    pair.put("a2", SEGMENT)
    code, output = pair.play("preflight", *options)
    assert code != 0
    assert "a1 is a primary without a store, and a2 has a store" in output, output[-3000:]
    assert "replace_host with -e replace_node=a1" in output


def test_a_partner_that_cannot_be_asked_is_no_empty_one(pair: Pair) -> None:
    pair.write(unreachable="a2")
    code, output = pair.play("preflight", "--limit", "a1")
    assert code != 0
    assert "its partner cannot say whether the pair has messages: a2 (" in output, output[-3000:]


@pytest.mark.parametrize(
    "files",
    [(), (("a1", SEGMENT), ("a2", SEGMENT)), (("a1", "replica.state"), ("a2", SEGMENT))],
    ids=["new pair", "both have it", "told to copy"],
)
def test_a_pair_that_begins_or_has_its_store_is_admitted(pair: Pair, files: tuple[tuple[str, str], ...]) -> None:
    for node, name in files:
        pair.put(node, name)
    code, output = pair.play("preflight")
    assert code == 0, output[-3000:]
    assert "primary without a store" not in output


def test_a_machine_without_an_instance_may_be_replaced_once_its_partner_serves(pair: Pair) -> None:
    code, output = pair.play("replace_host", "-e", "replace_node=a1")
    assert code != 0
    assert "No partner of a1 is active and ready" in output, output[-3000:]
