"""Goal: a deployment deals with lines of the management CLI as ``broker_cli_overrides`` says, and loses none silently.

Method: one node on a loopback address, deployed by the playbooks with the release of this checkout. Lines change it;
then it is deployed again with each value of the variable, twice where a second run has to change nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HOST_PYTHON, ROOT, UNDERSTUDY

PLAYBOOKS = ROOT / "playbooks"
ADDRESS = "127.0.0.134"
SERVER = "/subsystem=messaging-activemq/server=default"
LINES = (
    f"{SERVER}:write-attribute(name=id-cache-size,value=1000)",
    f"{SERVER}/address-setting=late:add(redelivery-delay=7)",
)


class Site:
    """The inventory of one node, and its deployment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.instance = directory / "node"
        self.inventory = directory / "hosts.json"
        self.variables: dict[str, object] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": HOST_PYTHON,
            "broker_user": "",
            "broker_python": HOST_PYTHON,
            "broker_install_build_python": str(ROOT / ".venv/bin/python"),
            "broker_root": str(self.instance),
            "broker_instance_directory": str(self.instance),
            "broker_store_directory": str(directory / "store"),
            "broker_service_backend": "process",
            "broker_advertise_address": ADDRESS,
            "broker_management_address": ADDRESS,
            "broker_cluster_password": "a-password-of-a-test",
            "broker_drill_password": "another-password-of-a-test",
            "broker_gate_timeout_s": 240,
        }

    def play(self, name: str, fails: bool = False, **given: object) -> str:
        """Run a playbook with further variables; its output."""
        self.inventory.write_text(json.dumps({"broker": {"hosts": {"node": self.variables}}}))
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "true",
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        }
        command = [str(ROOT / ".venv/bin/ansible-playbook"), "--inventory", str(self.inventory)]
        options = ["--extra-vars", json.dumps(given)]
        played = subprocess.run(
            [*command, "--skip-tags", "broker_install", str(PLAYBOOKS / f"{name}.yml"), *options],
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert (played.returncode != 0) is fails, played.stdout[-6000:] + played.stderr[-2000:]
        return played.stdout

    def changes(self, output: str) -> int:
        """The number of changed tasks in the output of a play."""
        (found,) = re.findall(r"^node .* changed=(\d+) ", output, re.MULTILINE)
        return int(found)

    def command(self, *arguments: str, code: int = 0, **given: str) -> str:
        """The output of a command on the instance."""
        command = [str(UNDERSTUDY), *arguments, "--instance", str(self.instance)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **given)
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def write(self) -> None:
        """Change the node by lines."""
        self.command("cli", input="\n".join(LINES))

    def paths(self) -> list[str]:
        """Places of the changes that the node has."""
        code = 1 if (self.instance / "etc/broker.d/50-cli.json").exists() else 0
        return [row["path"] for row in json.loads(self.command("config", "diff", "--json", code=code) or "[]")]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    # the release of this checkout instead of an installation
    made.instance.mkdir()
    (made.instance / "current").symlink_to(ROOT / ".venv")
    yield made
    made.play("uninstall", broker_uninstall_purge_data=True)


def test_changes_by_lines_are_kept_and_reported(site: Site) -> None:
    site.play("site")
    directory = site.instance / "etc/broker.d"
    assert (directory.stat().st_mode & 0o777, list(directory.iterdir())) == (0o750, [])
    document = (site.instance / "etc/broker.xml").read_bytes()
    site.write()
    reported = site.play("site")
    assert site.changes(reported) == 0
    assert "core/id-cache-size: set 1000" in reported
    kept = site.play("site", broker_cli_overrides="keep")
    assert site.changes(kept) == 0
    assert "id-cache-size" not in kept
    assert len(site.paths()) == 3
    assert (site.instance / "etc/broker.xml").read_bytes() == document

    refused = site.play("preflight", fails=True, preflight_strict=True)
    assert "lines of the management CLI have changed core/id-cache-size" in refused
    # the report is a long line, which Ansible folds
    healthy = " ".join(site.play("health").split())
    assert "changes of the management CLI override broker.xml (3)" in healthy, healthy
    assert "used after a restart or reload: id-cache-size" in healthy, healthy


def test_changes_by_lines_are_adopted_or_dropped(site: Site) -> None:
    site.play("site")
    overlay = site.instance / "etc/broker.d/50-cli.json"
    site.write()
    # the variables that make the changes superfluous, which are then those of the inventory
    adopted = site.play("site", broker_cli_overrides="adopt")
    assert site.changes(adopted) == 0
    for text in ("broker_config_extra:", "id-cache-size: '1000'", "broker_address_settings:", "match: late"):
        assert text in adopted, adopted
    site.variables |= {
        "broker_config_extra": {"id-cache-size": 1000},
        "broker_address_settings": [{"match": "late", "settings": {"redelivery-delay": 7}}],
    }
    site.play("stop")
    # one deployment writes broker.xml, and the next one drops the changes that it has as well
    site.play("site", broker_cli_overrides="adopt")
    assert b"<id-cache-size>1000</id-cache-size>" in (site.instance / "etc/broker.xml").read_bytes()
    assert len(site.paths()) == 3
    assert site.changes(site.play("site", broker_cli_overrides="adopt")) == 1
    assert json.loads(overlay.read_text())["overrides"] == []
    # the inventory is the only source
    site.command("cli", "--command", f"{SERVER}:write-attribute(name=id-cache-size,value=3)")
    removed = site.play("site", broker_cli_overrides="remove")
    assert site.changes(removed) == 1
    assert "core/id-cache-size" in removed
    assert json.loads(overlay.read_text())["overrides"] == []
    assert site.changes(site.play("site", broker_cli_overrides="remove")) == 0
