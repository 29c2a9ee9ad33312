"""Goal: a pair on NFSv4 loses nothing and serves again by itself, whichever host or cable fails.

Method: the collection deploys the pair on hosts with their own kernels; a producer and a consumer keep ledgers on a
third one; each fault hits the active node or the store; ``understudy ledger check`` judges, also that two nodes never
confirmed at once. Times go to .scratch/lab-results/shared_store.jsonl; none is asserted but the end of the waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from understudy_lab.hosts import Lab
from understudy_lab.pair import (
    BACKUP,
    PRIMARY,
    STORE,
    UNITS,
    Load,
    await_that,
    longest_window_s,
    make_ready,
    play,
    record,
    serves,
)

LEASE_S = 10
"""Of tests/lab/playbooks/nfs_server.yml."""


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Lab:
    """The hosts with the pair deployed."""
    for inventory in ("tests/lab/playbooks/nfs_server.yml", "tests/lab/playbooks/clients.yml", "playbooks/site.yml"):
        played = play(lab, "shared_store", inventory)
        assert played.code == 0, played.output[-3000:]
        record("shared_store", {"play": inventory, "seconds": round(played.seconds, 1)})
    return lab


def test_a_second_deployment_changes_nothing(pair: Lab) -> None:
    make_ready(pair)
    before = [pair.output(host, f"systemctl show -p MainPID {unit}") for host, unit in UNITS.items()]
    played = play(pair, "shared_store", "playbooks/site.yml")
    assert played.code == 0, played.output[-3000:]
    assert played.output.count("changed=0") == 2, played.output[-600:]
    assert before == [pair.output(host, f"systemctl show -p MainPID {unit}") for host, unit in UNITS.items()]
    record("shared_store", {"play": "site again", "seconds": round(played.seconds, 1)})


def kill(lab: Lab) -> None:
    lab.output(PRIMARY, f"kill -9 $(systemctl show -p MainPID --value {UNITS[PRIMARY]})")


def cut_power(lab: Lab) -> None:
    lab.cut_power(PRIMARY)


def cut_from_store(lab: Lab) -> None:
    lab.network.cut(2, 1)


def pause(lab: Lab) -> None:
    lab.pause(PRIMARY)


def restart_server(lab: Lab) -> None:
    lab.output(STORE, "systemctl restart nfs-server")


def pause_server(lab: Lab) -> None:
    lab.pause(STORE)


def cut_from_clients(lab: Lab) -> None:
    lab.network.cut(2, 4)


def nothing(lab: Lab) -> None:
    """For faults that end by themselves."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the table."""

    name: str
    strike: Callable[[Lab], None]
    lasts_s: float
    """Time until it is repaired."""
    repair: Callable[[Lab], None] = nothing
    taken_over: bool = True
    """Whether the backup must serve while the fault lasts."""


FAULTS = [
    Fault("the broker is killed", kill, 0.0, taken_over=False),
    Fault("power cut of the active host", cut_power, 40.0, lambda lab: lab.start([PRIMARY])),
    Fault("the active host is cut from the store and lives", cut_from_store, 40.0, lambda lab: lab.network.heal()),
    Fault("the active host pauses beyond the lease", pause, 40.0, lambda lab: lab.resume(PRIMARY)),
    Fault("the active host is cut from the clients", cut_from_clients, 8.0, lambda lab: lab.network.heal(), False),
    Fault("the NFS server is restarted", restart_server, 0.0, taken_over=False),
    Fault("the NFS server is away for three leases", pause_server, 3.0 * LEASE_S, lambda lab: lab.resume(STORE), False),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_nothing_is_lost_and_service_comes_back(pair: Lab, fault: Fault) -> None:
    make_ready(pair)
    load = Load(pair)
    load.await_progress(500)
    struck = time.monotonic()
    fault.strike(pair)
    if fault.taken_over:
        await_that(lambda: serves(pair, BACKUP), "the backup serves", fault.lasts_s)
    took_over_s = time.monotonic() - struck if fault.taken_over else None
    if fault.taken_over:
        load.await_progress(timeout_s=60.0)
    time.sleep(max(0.0, struck + fault.lasts_s - time.monotonic()))
    fault.repair(pair)
    load.await_progress(500)
    make_ready(pair)
    load.await_progress(200)
    report = load.end()
    row = {"fault": fault.name, "window_s": longest_window_s(report), "verdict": report["verdict"]}
    row.update({"taken_over_s": took_over_s, **{k: report["counts"][k] for k in ("confirmed", "lost", "duplicated")}})
    record("shared_store", row)
    assert report["verdict"] == "kept", report
    assert report["counts"]["unresolved"] == 0, report
