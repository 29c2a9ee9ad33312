"""Goal: a pair on NFSv4 loses nothing and serves again by itself, whichever host or cable fails.

Method: the collection deploys the pair on hosts with their own kernels; a producer and a consumer keep ledgers on a
fourth one; each fault hits the active node or the store; ``understudy ledger check`` judges, also that two nodes never
confirmed at once. Times go to .scratch/lab-results/shared_store.jsonl; none is asserted but the end of the waiting.
"""

from __future__ import annotations

import json
import re

import pytest
from understudy_lab.faults import (
    Fault,
    cut_from,
    cut_power,
    endure,
    freeze,
    heal,
    kill,
    pause,
    power_on,
    resume,
    shut_down,
    thaw,
)
from understudy_lab.hosts import Lab
from understudy_lab.pair import CLIENT, STORE, UNLIMITED_DELIVERIES, deploy, deploy_again, play
from understudy_lab.traffic import record_idle_traffic

TABLE = "shared_store"
OPTIONS = ("--extra-vars", json.dumps(UNLIMITED_DELIVERIES))
LEASE_S = 10
"""Seconds of the lease that tests/lab/playbooks/nfs_server.yml sets."""
HALT_S = 195.0
"""Default critical-analyzer-timeout and -check-period, the second look, and the time to write the reason to the log."""


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Lab:
    """The hosts with the pair deployed."""
    return deploy(
        lab,
        "shared_store",
        TABLE,
        *("tests/lab/playbooks/nfs_server.yml", "playbooks/clients.yml", "playbooks/site.yml"),
        options=OPTIONS,
    )


def test_a_second_deployment_changes_nothing(pair: Lab) -> None:
    deploy_again(pair, "shared_store", TABLE, OPTIONS)


def test_the_volume_is_measured(pair: Lab) -> None:
    played = play(pair, "shared_store", "playbooks/preflight.yml")
    assert played.code == 0, played.output[-3000:]
    assert played.output.count("10.77.0.11:/ (nfs4)") == 2, played.output[-3000:]


def test_the_time_of_a_synchronous_write_is_measured(pair: Lab) -> None:
    pair.output(STORE, "tc qdisc add dev vec0 root netem delay 60ms")
    try:
        played = play(pair, "shared_store", "playbooks/preflight.yml")
    finally:
        pair.output(STORE, "tc qdisc del dev vec0 root")
    assert played.code == 0, played.output[-3000:]
    measured = [float(each) for each in re.findall(r"sync ([0-9.]+) ms", played.output)]
    assert len(measured) == 2
    assert min(measured) >= 60.0


def test_a_file_server_that_grants_delegations_is_refused(pair: Lab) -> None:
    pair.output(STORE, "sysctl -w fs.leases-enable=1")
    try:
        played = play(pair, "shared_store", "playbooks/preflight.yml")
    finally:
        pair.output(STORE, "sysctl -w fs.leases-enable=0")
    assert played.code != 0
    assert "grants delegations (fs.leases-enable is 1" in played.output, played.output[-3000:]


def test_a_store_that_is_not_mounted_is_refused(pair: Lab) -> None:
    elsewhere = {"broker_store_mount_source": "", "broker_store_mount_point": "/srv/absent"}
    inside = {**elsewhere, "broker_store_directory": "/srv/absent/pair"}
    played = play(pair, "shared_store", "playbooks/preflight.yml", options=("--extra-vars", json.dumps(inside)))
    assert played.code != 0
    assert "nothing is mounted on /srv/absent (broker_store_mount_point)" in played.output, played.output[-3000:]


def test_a_file_server_that_does_not_answer_is_refused(pair: Lab) -> None:
    other = {"broker_store_mount_source": "10.77.0.14:/", "broker_store_mount_point": "/srv/other"}
    inside = {**other, "broker_store_directory": "/srv/other/pair"}
    played = play(pair, "shared_store", "playbooks/preflight.yml", options=("--extra-vars", json.dumps(inside)))
    assert played.code != 0
    assert "10.77.0.14:2049" in played.output, played.output[-3000:]


def test_traffic_of_the_idle_pair(pair: Lab) -> None:
    rates = record_idle_traffic(pair, TABLE, {STORE: "store"})
    assert all(packets > 0 for packets, _bytes in rates.values()), rates


def cut_power_without_store(lab: Lab, victim: str) -> None:
    """The host is back while the server of its volume is not: the mount fails at boot."""
    lab.pause(STORE)
    lab.cut_power(victim)
    lab.start([victim])


FAULTS = [
    Fault("the broker is killed", kill),
    Fault("power cut of the active host", cut_power, 40.0, power_on, taken_over=True),
    Fault("shutdown of the active host", shut_down, 30.0, power_on, taken_over=True),
    Fault("the active host is cut from the store and lives", cut_from(STORE), 40.0, heal, taken_over=True),
    Fault("the active host pauses beyond the lease", pause, 40.0, resume, taken_over=True),
    Fault("the active host is cut from the clients", cut_from(CLIENT), 8.0, heal),
    Fault("the NFS server is restarted", lambda lab, _: lab.output(STORE, "systemctl restart nfs-server") and None),
    Fault(
        "the NFS server is away for three leases",
        lambda lab, _: lab.pause(STORE),
        3.0 * LEASE_S,
        lambda lab, _: lab.resume(STORE),
        no_service=True,
    ),
    Fault("the file system of the export is frozen for a minute", freeze, 60.0, thaw, no_service=True),
    Fault(
        "the file system of the export is frozen until the broker ends itself",
        freeze,
        HALT_S,
        thaw,
        no_service=True,
        ends_within_s=HALT_S,
    ),
    Fault(
        "the active host boots before the NFS server", cut_power_without_store, 60.0, lambda lab, _: lab.resume(STORE)
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_nothing_is_lost_and_service_comes_back(pair: Lab, fault: Fault) -> None:
    endure(pair, fault, TABLE)
