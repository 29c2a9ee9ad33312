"""Goal: after the controller of a roll has died, site refuses, health says what to do, and a roll can be undone.

Method: a rolling update of two pairs is held before a phase of its first wave, and its run is killed with all of its
processes. Each phase of each kind of roll, with the resumption, is a row of test_faults_and_rolls.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from understudy_lab.hosts import Lab
from understudy_lab.pair import INSTANCE, Load, Played, play
from understudy_lab.rolls import (
    INVENTORY,
    NODES,
    PAIRS,
    Cluster,
    await_service,
    deploy_cluster,
    judge,
    release_of,
)

HOSTS = 6
RATE = 20


@pytest.fixture(scope="module")
def deployed(lab: Lab) -> Cluster:
    return deploy_cluster(lab)


@pytest.fixture
def cluster(deployed: Cluster) -> Cluster:
    deployed.look()
    return deployed


def health(cluster: Cluster) -> tuple[Played, dict[str, Any]]:
    """The playbook health, and its report for monitors."""
    path: Path = cluster.scratch / "health.json"
    path.unlink(missing_ok=True)
    options = ("--extra-vars", json.dumps({"health_output": str(path)}))
    return play(cluster.lab, INVENTORY, "playbooks/health.yml", options=options), json.loads(path.read_text())


def plain(output: str) -> str:
    return re.sub(r"\\n|\s+", " ", output)


def kill_before(cluster: Cluster, task: str) -> None:
    run = cluster.roll(task)
    run.await_held()
    run.kill()


def refused_and_reported(cluster: Cluster, phase: str) -> None:
    """site refuses and starts nothing, and health names the roll and the pair."""
    lab = cluster.lab
    processes = cluster.processes(*NODES.values())
    site = play(lab, INVENTORY, "playbooks/site.yml", options=cluster.next.options)
    assert site.code != 0
    assert "has not finished" in plain(site.output), site.output[-3000:]
    assert "Resume it with ansible-playbook -i INVENTORY understudy.broker.rolling_update" in plain(site.output)
    assert cluster.processes(*NODES.values()) == processes
    played, report = health(cluster)
    assert played.code != 0
    assert report["healthy"] is False
    assert len(report["roll_unfinished"]) == 1
    phases = {each["name"]: each["roll_phase"] for each in report["nodes"]}
    assert phases == {"a1": phase, "a2": phase, "b1": "", "b2": ""}
    assert [each["name"] for each in report["pairs"]] == ["east", "west"]


def test_a_killed_roll_is_undone_and_site_works_again(cluster: Cluster) -> None:
    lab = cluster.lab
    kill_before(cluster, "Start primaries")
    refused_and_reported(cluster, "applied")
    undone = play(lab, INVENTORY, "playbooks/rollback.yml", options=cluster.now.options)
    assert undone.code == 0, undone.output[-4000:]
    assert {release_of(lab, host) for host in NODES.values()} == {cluster.now.version}
    for pair in PAIRS:
        await_service(lab, pair)
    site = play(lab, INVENTORY, "playbooks/site.yml", options=cluster.now.options)
    assert site.code == 0, site.output[-3000:]
    assert site.output.count("changed=0") == len(NODES)


BESIDE_A_ROLL = (
    "site",
    "stop",
    "uninstall",
    "failover -e switch_pair=west",
    "failback -e switch_pair=west",
    "drain_node -e drain_node=b1",
    "add_node -e add_nodes=b1,b2",
)
"""Playbooks that start, stop or install, with their inputs.

rotate_tls would refuse this inventory because it has no certificates.
"""


def test_other_playbooks_and_modules_beside_a_roll_are_refused(cluster: Cluster) -> None:
    lab = cluster.lab
    run = cluster.roll("Start primaries")
    run.await_held()
    processes = cluster.processes(*NODES.values())
    for playbook in BESIDE_A_ROLL:
        name, *options = playbook.split()
        played = play(lab, INVENTORY, f"playbooks/{name}.yml", options=(*options, *cluster.next.options))
        assert played.code != 0, name
        assert "is carried out by process" in plain(played.output), played.output[-3000:]
    module = ("--module-name", "understudy.broker.instance", "--args", f"directory={INSTANCE} state=started")
    refused = play(lab, INVENTORY, "a1", options=module, program="ansible")
    assert refused.code != 0
    assert "is in the roll" in plain(refused.output), refused.output[-3000:]
    assert cluster.processes(*NODES.values()) == processes
    run.go()
    done = run.end()
    assert done.code == 0, done.output[-4000:]
    cluster.rolled()


def test_site_crosses_a_killed_roll_where_it_is_told_to_and_the_roll_is_resumed(cluster: Cluster) -> None:
    lab = cluster.lab
    kill_before(cluster, "Start primaries")
    crossing = ("--limit", "a1,a2", "--extra-vars", "broker_ignore_hold=true")
    site = play(lab, INVENTORY, "playbooks/site.yml", options=(*cluster.next.options, *crossing))
    assert site.code == 0, site.output[-3000:]
    assert "A roll is ignored, because of broker_ignore_hold" in plain(site.output), site.output[-3000:]
    await_service(lab, "east")
    _played, report = health(cluster)
    assert len(report["roll_unfinished"]) == 1
    releases = {each["name"]: each["running_release"].split("-")[0] for each in report["nodes"]}
    assert releases == {
        **dict.fromkeys(("a1", "a2"), cluster.next.version),
        **dict.fromkeys(("b1", "b2"), cluster.now.version),
    }
    assert any("different releases" in problem for problem in report["problems"]), report
    resumed = cluster.roll().end()
    assert resumed.code == 0, resumed.output[-4000:]
    cluster.rolled()
    _played, report = health(cluster)
    assert report["healthy"], report


def test_a_misspelt_variable_is_refused_once_with_the_nearest_name(cluster: Cluster) -> None:
    misspelt = ("--extra-vars", json.dumps({"broker_failbak": True}))
    refused = play(cluster.lab, INVENTORY, "playbooks/site.yml", options=(*cluster.now.options, *misspelt))
    assert refused.code != 0
    said = plain(refused.output)
    assert said.count("broker_failbak") == 1, refused.output[-3000:]
    assert "did you mean broker_failback?" in said, refused.output[-3000:]


def test_with_a_host_down_health_reports_all_others(cluster: Cluster) -> None:
    lab = cluster.lab
    lab.cut_power(NODES["a2"])
    try:
        played, report = health(cluster)
        assert played.code != 0
        states = {each["name"]: each["state"] for each in report["nodes"]}
        assert states == {"a1": "active", "a2": "host unreachable", "b1": "active", "b2": "passive"}
        east, west = report["pairs"]
        assert "a1 serves, and NO NODE MAY TAKE OVER. a2 cannot be reached by Ansible" in east["sentence"]
        assert west["sentence"] == "Pair west: b1 serves, and b2 may take over. Nothing is to be done."
    finally:
        lab.start([NODES["a2"]])
    await_service(lab, "east")


def test_a_restart_works_after_a_planned_switch(cluster: Cluster) -> None:
    lab = cluster.lab
    load = Load(lab, RATE, PAIRS)
    load.await_progress()
    switched = play(lab, INVENTORY, "playbooks/failover.yml", options=("-e", "switch_pair=east", *cluster.now.options))
    assert switched.code == 0, switched.output[-3000:]
    restarted = play(lab, INVENTORY, "playbooks/rolling_restart.yml", options=cluster.now.options)
    assert restarted.code == 0, restarted.output[-4000:]
    assert "bring back: a1" in plain(restarted.output)
    for pair in PAIRS:
        await_service(lab, pair)
    load.await_progress()
    judge(load, {"roll": "restart after failover", "seconds": round(restarted.seconds, 1)})


def test_a_refused_site_has_put_no_user_in_force(cluster: Cluster) -> None:
    lab = cluster.lab
    late = {"broker_users": [{"name": "late", "password": "a-late-password"}]}
    restart = {"broker_address_settings": [{"match": "#", "settings": {"max-delivery-attempts": 7}}]}

    def users() -> list[str]:
        return [lab.output(host, f"sha256sum {INSTANCE}/etc/artemis-users.properties") for host in NODES.values()]

    before = users()
    both = ("--extra-vars", json.dumps({**late, **restart}))
    refused = play(lab, INVENTORY, "playbooks/site.yml", options=(*cluster.now.options, *both))
    assert refused.code != 0
    assert "Changed users, roles and rules of the firewall are not in force either" in plain(refused.output)
    assert users() == before
    alone = ("--extra-vars", json.dumps(late))
    written = play(lab, INVENTORY, "playbooks/site.yml", options=(*cluster.now.options, *alone))
    assert written.code == 0, written.output[-3000:]
    assert all(now != then for now, then in zip(users(), before, strict=True))
