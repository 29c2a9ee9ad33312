"""Goal: a rolling update of two pairs loses nothing, also when a host, its volume or its disk fails during a wave.

Method: hosts with their own kernels go between two releases under load. A callback of Ansible holds the run between two
phases of the first wave, a fault hits the primary of its pair, and the run goes on: it must restore the wave, leave the
other pair alone and fail. After the repair the same command finishes the roll. ``understudy ledger check`` judges.
"""

from __future__ import annotations

import pytest
from understudy_lab.hosts import Lab, number_of
from understudy_lab.pair import INSTANCE, Load, play
from understudy_lab.rolls import (
    INVENTORY,
    NODES,
    PAIRS,
    UPDATE,
    Cluster,
    Fault,
    await_one_serving,
    await_service,
    crash_new_release,
    deploy_cluster,
    end_crashes,
    judge,
    release_of,
)

HOSTS = 6
"""The store, two pairs, and the clients."""
STORE, PRIMARY = "h1", "h2"
RATE = 100
MOUNT = "srv-orders.mount"


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    return deploy_cluster(lab)


def test_two_pairs_under_load(cluster: Cluster) -> None:
    load = Load(cluster.lab, RATE, PAIRS)
    load.await_progress()
    run = cluster.roll()
    done = run.end()
    assert done.code == 0, done.output[-4000:]
    for pair in PAIRS:
        await_service(cluster.lab, pair)
    load.await_progress()
    judge(
        load,
        {
            "roll": f"{cluster.now.version} to {cluster.next.version}",
            "seconds": round(done.seconds, 1),
            "tasks": run.tasks(),
        },
    )
    cluster.rolled()


def test_a_second_run_stops_nothing(cluster: Cluster) -> None:
    before = cluster.processes(*NODES.values())
    played = play(cluster.lab, INVENTORY, UPDATE, options=cluster.now.options)
    assert played.code == 0, played.output[-3000:]
    assert "Nothing to do" in played.output
    assert played.output.count("changed=0") == len(NODES)
    assert before == cluster.processes(*NODES.values())


def lose_mount(lab: Lab, victim: str) -> None:
    """The volume is gone, and what it is mounted from does not exist any more."""
    lab.output(
        victim,
        f"""
        set -e
        systemctl stop {MOUNT}
        mkdir -p /run/systemd/system/{MOUNT}.d
        printf '[Mount]\\nWhat=10.77.0.11:/gone\\n' >/run/systemd/system/{MOUNT}.d/lost.conf
        systemctl daemon-reload
        """,
    )


def mount_again(lab: Lab, victim: str) -> None:
    lab.output(
        victim,
        f"""
        rm -r /run/systemd/system/{MOUNT}.d
        systemctl daemon-reload; systemctl reset-failed; systemctl start {MOUNT}
        """,
    )


def fill_disk(lab: Lab, victim: str) -> None:
    """No block is left, also none of those that are kept for root."""
    lab.output(
        victim,
        """
        fallocate -l $(df --output=avail -B1 / | tail -n 1) /filler
        cat /dev/zero >>/filler
        ! cp /etc/services /var/tmp/probe
        """,
        300.0,
    )


FAULTS = [
    Fault(
        "the new release ends again and again",
        "Start primaries",
        crash_new_release,
        end_crashes,
        "failed at the task Start primaries",
    ),
    Fault(
        "the staged configuration is damaged",
        "Apply | Put the release and the configuration in place",
        lambda lab, victim: lab.output(victim, f"truncate -s 200 {INSTANCE}/etc/broker.xml.staged"),
        lambda lab, victim: None,
        "failed at the task Start primaries",
    ),
    Fault(
        "the volume of the store is lost",
        "Start primaries",
        lose_mount,
        mount_again,
        "Not restored: a1",
        restored=False,
    ),
    Fault(
        "the disk is full",
        "Start primaries",
        fill_disk,
        lambda lab, victim: lab.output(victim, "rm /filler"),
        "Not restored: a1",
        restored=False,
    ),
    Fault(
        "power cut of the host",
        "Start primaries",
        lambda lab, victim: lab.cut_power(victim),
        lambda lab, victim: lab.start([victim]),
        "Not restored: a1 (cannot be reached)",
        restored=False,
    ),
    Fault(
        "the host is cut from the controller",
        "Start primaries",
        lambda lab, victim: lab.network.cut_controller(number_of(victim)),
        lambda lab, victim: lab.network.heal(),
        "Not restored: a1 (cannot be reached)",
        restored=False,
    ),
    Fault(
        "the host is cut from the store",
        "Start primaries",
        lambda lab, victim: lab.network.cut(number_of(victim), number_of(STORE)),
        lambda lab, victim: lab.network.heal(),
        "Not restored: a1",
        restored=False,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_in_the_middle_of_a_wave(cluster: Cluster, fault: Fault) -> None:
    lab = cluster.lab
    for pair in PAIRS:
        await_service(lab, pair)
    others = cluster.processes(*PAIRS["west"])
    load = Load(lab, RATE, PAIRS)
    load.await_progress()
    run = cluster.roll(fault.hold)
    run.await_held()
    fault.strike(lab, PRIMARY)
    run.go()
    failed = run.end()
    row = {"fault": fault.name, "failed_after_s": round(failed.seconds, 1)}
    # The wave serves again although the fault lasts, the other one was not begun, and the run says why.
    assert failed.code != 0, failed.output[-4000:]
    assert "The wave east failed" in failed.output, failed.output[-4000:]
    assert fault.reason in failed.output, failed.output[-4000:]
    await_one_serving(lab, "east")
    assert others == cluster.processes(*PAIRS["west"]), "a later wave began"
    assert release_of(lab, NODES["a2"]) == cluster.now.version
    if fault.restored:
        assert release_of(lab, NODES["a1"]) == cluster.now.version
    load.await_progress(timeout_s=60.0)
    fault.repair(lab, PRIMARY)
    resumed = cluster.roll().end()
    assert resumed.code == 0, resumed.output[-4000:]
    for pair in PAIRS:
        await_service(lab, pair)
    load.await_progress()
    judge(load, {**row, "resumed_s": round(resumed.seconds, 1)})
    cluster.rolled()
