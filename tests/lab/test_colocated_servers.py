"""Goal: two hosts with a primary and the other one's backup each survive the loss of a host, and are rolled under load.

Method: the inventory ``colocated_servers`` on hosts with their own kernels; clients with ledgers at both pairs.
"""

from __future__ import annotations

import json
import re

import pytest
from understudy_lab.errors import LabError
from understudy_lab.hosts import Lab
from understudy_lab.pair import Load, assert_kept, await_that, longest_window_s, play, record

INVENTORY = TABLE = "colocated_servers"
NODES = {"east_primary": "h2", "west_backup": "h2", "west_primary": "h3", "east_backup": "h3"}
PAIRS = {"east": ("h2:5445", "h3:5446"), "west": ("h3:5445", "h2:5446")}
SETTLED = {"east_primary": "active", "east_backup": "passive", "west_primary": "active", "west_backup": "passive"}
RATE = 100


def state_of(lab: Lab, node: str) -> str:
    """State that a node reports; empty if it does not answer."""
    root = f"/opt/understudy/{node}"
    try:
        done = lab.execute(NODES[node], f"{root}/current/bin/understudy status --instance {root}/instance --json", 15.0)
        answer = json.loads(done.output)
        return str(answer["ha"]["state"]) if answer["ready"] else ""
    except (LabError, ValueError, KeyError, TypeError):
        return ""


def await_settled(lab: Lab) -> None:
    await_that(lambda: {node: state_of(lab, node) for node in NODES} == SETTLED, "all nodes have their roles", 180.0)


def processes(lab: Lab) -> list[str]:
    return [lab.output(host, f"systemctl show -p MainPID understudy-{node}") for node, host in NODES.items()]


def judge(load: Load, row: dict[str, object]) -> None:
    report = load.end()
    counts = report["counts"]
    assert isinstance(counts, dict)
    windows = {f"{pair}_window_s": longest_window_s(report, pair) for pair in PAIRS}
    kept = {name: counts[name] for name in ("confirmed", "lost", "duplicated", "reordered", "unresolved")}
    record(TABLE, {**row, **windows, **kept})
    assert_kept(report)


@pytest.fixture(scope="module")
def servers(lab: Lab) -> Lab:
    """Both hosts with both servers each."""
    for playbook in ("tests/lab/playbooks/nfs_server.yml", "playbooks/clients.yml", "playbooks/site.yml"):
        played = play(lab, INVENTORY, playbook)
        assert played.code == 0, played.output[-3000:]
        record(TABLE, {"play": playbook, "seconds": round(played.seconds, 1)})
    return lab


def test_a_second_deployment_changes_nothing(servers: Lab) -> None:
    await_settled(servers)
    before = processes(servers)
    played = play(servers, INVENTORY, "playbooks/site.yml")
    assert played.code == 0, played.output[-3000:]
    recaps = dict(re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", played.output, re.MULTILINE))
    assert recaps == dict.fromkeys(NODES, "0"), played.output[-800:]
    assert processes(servers) == before


def test_stores_and_ports_stand_crosswise(servers: Lab) -> None:
    for host, primary, backup in (("h2", "east", "west"), ("h3", "west", "east")):
        for role, pair in (("primary", primary), ("backup", backup)):
            core = f"/opt/understudy/{pair}_{role}/instance/etc/broker.xml"
            directories = servers.output(host, f"grep -o '/srv/orders/[^<]*' {core} | sort -u").split()
            stores = ("bindings", "journal", "large-messages", "lock", "paging")
            assert directories == [f"/srv/orders/{pair}/{name}" for name in stores]
        listening = servers.output(host, "ss -Hltn | grep -c -E ':544[56] ' || true").strip()
        assert listening == "1", f"{host}: the backup listens although it is passive"


def test_the_other_host_serves_both_pairs_after_a_power_cut(servers: Lab) -> None:
    await_settled(servers)
    load = Load(servers, RATE, PAIRS)
    load.await_progress()
    servers.cut_power("h2")
    await_that(lambda: state_of(servers, "east_backup") == "active", "h3 serves both pairs", 60.0)
    load.await_progress(timeout_s=60.0)
    servers.start(["h2"])
    await_settled(servers)
    load.await_progress()
    judge(load, {"fault": "power cut of a host"})


def test_a_rolling_restart_loses_nothing(servers: Lab) -> None:
    await_settled(servers)
    before = processes(servers)
    load = Load(servers, RATE, PAIRS)
    load.await_progress()
    played = play(servers, INVENTORY, "playbooks/rolling_restart.yml")
    assert played.code == 0, played.output[-4000:]
    await_settled(servers)
    load.await_progress()
    judge(load, {"roll": "restart", "seconds": round(played.seconds, 1)})
    assert not set(processes(servers)) & set(before)
