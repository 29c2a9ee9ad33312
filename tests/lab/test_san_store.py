"""Goal: a pair on GFS2 on a block device loses nothing and serves again by itself, whichever host or cable fails.

Method: as in test_shared_store.py. The first host serves the device over iSCSI; corosync and dlm on the pair fence a
lost host by its reservation of the device. A host that loses the device panics (mount option ``errors=panic``) and
stays off, as these hosts have nothing that would start them again.
"""

from __future__ import annotations

import pytest
from understudy_lab.faults import Fault, cut_from, cut_power, endure, heal, kill, pause, power_on
from understudy_lab.hosts import Lab
from understudy_lab.pair import CLIENT, STORE, UNITS, await_that, deploy, deploy_again, play

INVENTORY = "shared_store_san"
TABLE = "shared_store_san"
OUTAGE_S = 15
"""``san_outage_s`` of the inventory."""


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Lab:
    """The hosts with the pair deployed."""
    return deploy(
        lab,
        INVENTORY,
        TABLE,
        *("tests/lab/playbooks/san.yml", "playbooks/clients.yml", "playbooks/site.yml"),
    )


def test_a_second_deployment_changes_nothing(pair: Lab) -> None:
    deploy_again(pair, INVENTORY, TABLE)


def test_the_volume_is_measured(pair: Lab) -> None:
    played = play(pair, INVENTORY, "playbooks/preflight.yml")
    assert played.code == 0, played.output[-3000:]
    assert played.output.count("(gfs2)") == 2, played.output[-3000:]


def heal_and_power_on(lab: Lab, victim: str) -> None:
    """The cable is back; the host has panicked without its device."""
    await_that(lambda: is_off(lab, victim), "the host panicked without its device")
    lab.network.heal()
    lab.start([victim])


def resume_and_power_on(lab: Lab, victim: str) -> None:
    """The host goes on, finds that it was fenced, and panics."""
    lab.resume(victim)
    await_that(lambda: is_off(lab, victim), "the host panicked without its reservation")
    lab.start([victim])


def is_off(lab: Lab, name: str) -> bool:
    """Whether the kernel of a host has ended."""
    return any(host.name == name and host.state == "off" for host in lab.hosts())


def storage_back(lab: Lab, victim: str) -> None:
    """The storage server goes on; the hosts that panicked without it are started."""
    lab.resume(STORE)
    lab.start(host for host in UNITS if is_off(lab, host))


FAULTS = [
    Fault("the broker is killed", kill),
    Fault("power cut of the active host", cut_power, 40.0, power_on, taken_over=True),
    Fault("the active host is cut from the device", cut_from(STORE), 60.0, heal_and_power_on, taken_over=True),
    Fault("the active host pauses until it is fenced", pause, 40.0, resume_and_power_on, taken_over=True),
    Fault("the active host is cut from the clients", cut_from(CLIENT), 8.0, heal),
    Fault(
        "the storage server is away for less than the time limit", lambda lab, _: lab.pause(STORE), 5.0, storage_back
    ),
    Fault(
        "the storage server is away for three time limits",
        lambda lab, _: lab.pause(STORE),
        3.0 * OUTAGE_S,
        storage_back,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_nothing_is_lost_and_service_comes_back(pair: Lab, fault: Fault) -> None:
    endure(pair, fault, TABLE)
