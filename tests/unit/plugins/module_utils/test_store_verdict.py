"""Goal: a volume that can lose messages is refused, and one that costs time at a failover is pointed out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.store_verdict import (
    Latency,
    Measured,
    judge,
    lease_of,
    options_of,
)

SAFE = ("rw", "sync", "vers=4.2", "soft", "noac", "lookupcache=none", "timeo=50", "retrans=1", "local_lock=none")
GOOD = Measured("nfs4", SAFE, 10, 1 << 30, Latency.of([0.001] * 100), 3, True)
WANTED = ("vers=4.2", "sync", "soft", "noac", "lookupcache=none", "timeo=50", "retrans=1")
STATS = """\
device /dev/ubda mounted on / with fstype ext4
device nas:/other mounted on /srv/other with fstype nfs4 statvers=1.1
\tnfsv4:\tbm0=0xfd,acl=0x3,sessions,pnfs=not configured,lease_time=90,lease_expired=0
device nas:/orders mounted on /srv/orders with fstype nfs4 statvers=1.1
\topts:\trw,sync,vers=4.2
\tnfsv4:\tbm0=0xfd,acl=0x3,sessions,pnfs=not configured,lease_time=10,lease_expired=0
"""
MOUNTS = """\
22 1 252:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
25 22 0:22 / /srv/orders rw,relatime shared:2 - nfs4 nas:/orders rw,vers=4.2,soft
26 22 0:23 / /srv/orders rw,noatime shared:3 - nfs4 nas:/orders rw,vers=4.2,hard
"""


def faults(measured: Measured, *, shared: bool = True) -> str:
    return "; ".join(judge(measured, shared=shared, wanted=WANTED, min_free_bytes=1 << 28).faults)


def advice(measured: Measured) -> str:
    return "; ".join(judge(measured, shared=True, wanted=(), min_free_bytes=1 << 28).advice)


def test_nothing_speaks_against_the_default_mount_of_the_role() -> None:
    assert faults(GOOD) == advice(GOOD) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": "nfs"}, "version 3"),
        ({"kind": "ext4"}, "one host at a time"),
        ({"lock_seen": False}, "both would be active"),
        ({"options": tuple(each for each in SAFE if each != "local_lock=none")}, "locks are local"),
        ({"options": tuple(each for each in SAFE if each != "soft")}, "has not the options soft"),
        ({"free_bytes": 1 << 20}, "1 MiB are free"),
    ],
)
def test_a_volume_that_can_lose_messages_is_refused(changed: dict[str, object], said: str) -> None:
    assert said in faults(replace(GOOD, **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lease_s": 90}, "lease is 90 s"),
        ({"options": ("hard", "sync", "noac", "local_lock=none")}, "hard mount"),
        ({"options": ("soft", "sync", "local_lock=none")}, "lacks noac"),
        ({"skew_ms": -5000}, "differs by -5000 ms"),
        ({"sync": Latency.of([0.05] * 20)}, "50.0 ms (median)"),
    ],
)
def test_a_volume_that_costs_time_is_pointed_out(changed: dict[str, object], said: str) -> None:
    assert said in advice(replace(GOOD, **changed))  # type: ignore[arg-type]


def test_a_local_disk_is_good_for_one_host() -> None:
    assert faults(replace(GOOD, kind="ext4", options=WANTED, lock_seen=None), shared=False) == ""


def test_options_that_only_mount_programs_know_are_not_missed() -> None:
    verdict = judge(GOOD, shared=True, wanted=("_netdev", "defaults"), min_free_bytes=0)
    assert verdict.faults == []


def test_the_lease_is_that_of_the_mount() -> None:
    assert lease_of(STATS, "/srv/orders") == 10
    assert lease_of(STATS, "/srv/other") == 90
    assert lease_of(STATS, "/") is None


def test_the_options_are_those_of_the_last_mount_on_the_point() -> None:
    assert options_of(MOUNTS, "/srv/orders") == ("rw", "noatime", "vers=4.2", "hard")
    assert options_of(MOUNTS, "/nowhere") == ()


def test_the_times_of_syncs_are_in_milliseconds() -> None:
    assert Latency.of([0.002, 0.001, 0.1]) == Latency(3, 2.0, 100.0, 100.0)
    with pytest.raises(ValueError, match="no sync"):
        Latency.of([])


@pytest.mark.parametrize("option", ["localflocks", "lockproto=lock_nolock"])
def test_a_cluster_file_system_with_local_locks_is_refused(option: str) -> None:
    volume = replace(GOOD, kind="gfs2", options=("rw", "noatime", "errors=panic", option), lease_s=None)
    verdict = judge(volume, shared=True, wanted=(), min_free_bytes=1 << 28)
    assert [each for each in verdict.faults if option in each and "local" in each]


def test_a_cluster_file_system_that_keeps_the_locks_of_a_host_without_device_is_pointed_out() -> None:
    safe = replace(GOOD, kind="gfs2", options=("rw", "noatime", "errors=panic"), lease_s=None)
    wanted = ("noatime", "errors=panic", "_netdev")
    verdict = judge(safe, shared=True, wanted=wanted, min_free_bytes=1 << 28)
    assert verdict.faults == verdict.advice == []
    assert "errors=panic" in advice(replace(safe, options=("rw", "noatime")))
