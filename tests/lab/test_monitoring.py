"""Goal: on a host with systemd the alerts and dashboards are installed, read by the service, and removed again.

Method: one host has a user and a unit named prometheus, whose reload writes a line to a file. The real programs are not
on the host; ``promtool`` checks the rules in a unit test of the broker (test_monitoring.py).
"""

from __future__ import annotations

import pytest
from understudy_lab.hosts import Lab
from understudy_lab.pair import ROOT, play

HOSTS = 1
HOST = "h1"
INVENTORY = "tests/lab/inventories/monitoring.yml"
PLAYBOOK = "playbooks/monitoring.yml"
RULES = "/etc/prometheus/rules/understudy.yml"
DASHBOARDS = "/var/lib/grafana/dashboards/understudy"
RELOADS = "/var/lib/grafana/reloads"
PREPARE = f"""
useradd --system --user-group --no-create-home prometheus
mkdir -p /etc/prometheus/rules /var/lib/grafana
cat >/etc/systemd/system/prometheus.service <<'END'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecReload=/bin/sh -c 'echo reload >>{RELOADS}'
END
systemctl daemon-reload
systemctl start prometheus
"""


@pytest.fixture(scope="module")
def host(lab: Lab) -> Lab:
    """The host with the user and the unit."""
    lab.output(HOST, PREPARE)
    return lab


def played(lab: Lab, *options: str) -> str:
    """Output of the playbook, which must succeed."""
    done = play(lab, INVENTORY, PLAYBOOK, options=options)
    assert done.code == 0, done.output[-3000:]
    return done.output


def reloads(lab: Lab) -> int:
    """How often the service was reloaded."""
    return len(lab.execute(HOST, f"cat {RELOADS}").output.splitlines())


def test_the_files_are_installed_and_the_service_reads_them(host: Lab) -> None:
    played(host)
    assert host.output(HOST, f"cat {RULES}") == (ROOT / "monitoring/prometheus/understudy.rules.yml").read_text()
    wanted = sorted(path.name for path in (ROOT / "monitoring/grafana").glob("*.json"))
    assert host.output(HOST, f"ls {DASHBOARDS}").split() == wanted
    owners = host.output(HOST, f"stat -c '%U %G %a' {RULES} {DASHBOARDS}/*").splitlines()
    assert set(owners) == {"prometheus prometheus 644"}
    assert reloads(host) == 1


def test_a_second_run_changes_and_reloads_nothing(host: Lab) -> None:
    before = reloads(host)
    assert "changed=0" in played(host)
    assert reloads(host) == before


def test_the_files_are_removed_and_the_service_reads_the_rest(host: Lab) -> None:
    before = reloads(host)
    played(host, "--extra-vars", "broker_monitoring_state=absent")
    assert host.execute(HOST, f"ls {RULES} {DASHBOARDS}/*").code != 0
    assert reloads(host) == before + 1
