"""Goal: a broker whose thread waits in the kernel, and which SIGKILL cannot end, is fenced within a bounded time.

Method: the pair of test_shared_store.py with the fencing program beside each broker and a short limit of the critical
analyzer. The file system of the NFS server's export is frozen for longer than both: the server goes on, keeps the locks
and answers no write, so a soft mount does not end the wait either. The host must be restarted meanwhile, no node may
confirm anything, and afterwards the pair serves again with every message.
"""

from __future__ import annotations

import json
import time

import pytest
from understudy_lab.faults import Fault, endure, freeze, thaw
from understudy_lab.hosts import Lab
from understudy_lab.pair import UNITS, UNLIMITED_DELIVERIES, deploy, record

TABLE = "fencing"
ANALYZER_S = 10
FENCE_S = 10
FROZEN_S = 90.0
ENDED_WITHIN_S = 1.5 * ANALYZER_S + 1 + 5
"""The limit, its check period of half of it, the second look, and the time to write the reason to the log."""
FENCED_WITHIN_S = ENDED_WITHIN_S + FENCE_S + 10
"""Until the kernel is there again; the rest is the time of these hosts to start."""
OPTIONS = UNLIMITED_DELIVERIES | {
    "broker_service_fence": "reboot",
    "broker_service_fence_after_s": FENCE_S,
    "broker_config_extra": {"critical-analyzer-timeout": ANALYZER_S * 1000},
}


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Lab:
    """The hosts with the pair deployed."""
    return deploy(
        lab,
        "shared_store",
        TABLE,
        *("tests/lab/playbooks/nfs_server.yml", "playbooks/clients.yml", "playbooks/site.yml"),
        options=("--extra-vars", json.dumps(OPTIONS)),
    )


def test_the_host_of_a_hanging_broker_is_restarted_and_nothing_is_lost(pair: Lab) -> None:
    struck: list[tuple[str, float]] = []

    def strike(lab: Lab, victim: str) -> None:
        struck.append((victim, time.time()))
        freeze(lab, victim)

    name = "the file system of the export is frozen, the host is fenced"
    endure(pair, Fault(name, strike, FROZEN_S, thaw, no_service=True, ends_within_s=ENDED_WITHIN_S + 10), TABLE)
    victim, begun = struck[0]
    (other,) = set(UNITS) - {victim}
    fenced_after_s = booted_at(pair, victim) - begun
    record(TABLE, {"fault": name, "fenced_after_s": round(fenced_after_s, 1)})
    assert 0 < fenced_after_s < FENCED_WITHIN_S
    assert booted_at(pair, other) < begun, "the host of the backup was restarted"


def booted_at(lab: Lab, host: str) -> float:
    """When the kernel of a host began, in seconds since the epoch."""
    return float(lab.output(host, "awk '/^btime/ {print $2}' /proc/stat"))
