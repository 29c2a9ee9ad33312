"""Goal: the playbook monitoring installs alerts and dashboards, changes nothing a second time, and removes them again.

Method: this machine as the host of Prometheus and Grafana, without root, with a script in the place of ``promtool``.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


class Host:
    """The inventory of one host, and the files that the playbook makes there."""

    def __init__(self, directory: Path) -> None:
        self.rules = directory / "rules.yml"
        self.dashboards = directory / "dashboards"
        self.reloads = directory / "reloads"
        promtool = directory / "promtool"
        promtool.write_text('#!/bin/sh\n[ "$1 $2" = "check rules" ] && grep -q UnderstudyDown "$3"\n')
        promtool.chmod(0o755)
        self.inventory = directory / "hosts.yml"
        self.variables: dict[str, object] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": str(ROOT / ".venv/bin/python"),
            "broker_monitoring_rules_file": str(self.rules),
            "broker_monitoring_dashboards_directory": str(self.dashboards),
            "broker_monitoring_promtool": str(promtool),
            "broker_monitoring_reload": ["sh", "-c", f"echo reload >> {self.reloads}"],
        }

    def play(self, **changes: object) -> tuple[int, str, int]:
        """Exit code, output, and number of changed tasks."""
        hosts = {"monitor": self.variables | changes}
        self.inventory.write_text(yaml.safe_dump({"broker_monitoring": {"hosts": hosts}}))
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        }
        command = [str(ROOT / ".venv/bin/ansible-playbook"), "--inventory", str(self.inventory)]
        played = subprocess.run(
            [*command, str(ROOT / "playbooks/monitoring.yml")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        changed = re.search(r"changed=(\d+)", played.stdout)
        return played.returncode, played.stdout + played.stderr, int(changed[1]) if changed else 0


def test_files_are_installed_once_and_removed_again(tmp_path: Path) -> None:
    host = Host(tmp_path)
    code, output, changed = host.play()
    assert (code, changed > 0) == (0, True), output[-4000:]
    assert host.rules.read_text() == (ROOT / "monitoring/prometheus/understudy.rules.yml").read_text()
    for path in (ROOT / "monitoring/grafana").glob("*.json"):
        assert (host.dashboards / path.name).read_text() == path.read_text()
    assert host.rules.stat().st_mode & 0o777 == 0o644
    assert host.reloads.read_text() == "reload\n"

    code, output, changed = host.play()
    assert (code, changed) == (0, 0), output[-4000:]
    assert host.reloads.read_text() == "reload\n"

    own = host.dashboards / "own.json"
    own.write_text("{}")
    code, output, changed = host.play(broker_monitoring_state="absent")
    assert (code, changed > 0) == (0, True), output[-4000:]
    assert not host.rules.exists()
    assert list(host.dashboards.iterdir()) == [own]
    assert host.reloads.read_text() == "reload\nreload\n"


def test_rules_that_promtool_refuses_and_wrong_paths_are_not_installed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    code, output = host.play(broker_monitoring_promtool="/bin/false")[:2]
    assert code != 0
    assert "failed to validate" in output
    assert not host.rules.exists()
    code, output = host.play(broker_monitoring_rules_file="rules.yml")[:2]
    assert code != 0
    assert "absolute paths or empty" in output
    code, output = host.play(broker_monitoring_rules_file="", broker_monitoring_dashboards_directory="")[:2]
    assert code != 0
    assert "Give broker_monitoring_rules_file" in output
