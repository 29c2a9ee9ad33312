"""Judgement of the volume of a store: which of its properties forbid it, and which cost time at a failover. Pure.

The measurements are the module ``store_probe``'s. The reasons are in docs/operate/store.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

CLUSTER_KINDS = ("nfs4", "gfs2", "ocfs2")
"""File systems that several hosts may mount at once and whose locks they share."""
LEASE_ADVICE_S = 20
"""A take-over waits for the lease of a host that has vanished; 10 to 15 s leave time for a short outage."""
SKEW_ADVICE_MS = 1000
FSYNC_ADVICE_MS = 20.0
_LEASE = re.compile(r"\blease_time=(\d+)")
_DEVICE = re.compile(r"^device \S+ mounted on (?P<point>\S+) with fstype ")


@dataclass(frozen=True, slots=True)
class Latency:
    """Times of repeated syncs, in milliseconds."""

    count: int
    median: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """Compute the distribution of single measurements in seconds.

        Raises:
            ValueError: there are none.
        """
        if not seconds:
            raise ValueError("no sync was measured")
        ordered = sorted(1000 * each for each in seconds)
        last = len(ordered) - 1
        return cls(len(ordered), ordered[last // 2], ordered[math.ceil(last * 0.99)], ordered[-1])


@dataclass(frozen=True, slots=True)
class Measured:
    """Properties of a volume as one host sees it."""

    kind: str
    """Type of the file system."""
    options: tuple[str, ...]
    """Options of the mount as the kernel applies them."""
    lease_s: int | None
    """Lease of an NFSv4 server; None for other file systems."""
    free_bytes: int
    sync: Latency
    skew_ms: int
    """Clock of the host minus clock of the file server."""
    lock_seen: bool | None
    """Whether the lock that another host holds was seen here; None if that was not tried."""


@dataclass(slots=True)
class Verdict:
    """Sentences for the operator."""

    faults: list[str] = field(default_factory=list)
    """Reasons not to use the volume."""
    advice: list[str] = field(default_factory=list)
    """Properties that cost time without service or throughput."""

    def as_dict(self) -> dict[str, list[str]]:
        return asdict(self)


def judge(measured: Measured, *, shared: bool, wanted: Sequence[str], min_free_bytes: int) -> Verdict:
    """What speaks against a volume.

    Args:
        measured: its properties.
        shared: whether several hosts use it.
        wanted: options that the inventory gives; the mount may still have older ones.
        min_free_bytes: least free space.
    """
    verdict = Verdict()
    if measured.free_bytes < min_free_bytes:
        verdict.faults.append(
            f"{measured.free_bytes >> 20} MiB are free, at least {min_free_bytes >> 20} MiB are needed"
        )
    missing = [option for option in wanted if option not in measured.options and not _is_implied(option)]
    if missing:
        verdict.faults.append(
            f"the mount has not the options {', '.join(missing)} of broker_store_mount_options; "
            "stop the broker, unmount the volume and run site"
        )
    if shared:
        _judge_shared(measured, verdict)
    if measured.kind == "nfs4":
        _judge_nfs(measured, verdict)
    if measured.kind == "gfs2" and shared:
        _judge_gfs2(measured, verdict)
    if measured.sync.median > FSYNC_ADVICE_MS:
        verdict.advice.append(
            f"a sync takes {measured.sync.median:.1f} ms (median), {measured.sync.longest:.0f} ms at most; every "
            "confirmation of a durable message waits for one"
        )
    return verdict


def _judge_shared(measured: Measured, verdict: Verdict) -> None:
    if measured.kind == "nfs":
        verdict.faults.append(
            "NFS version 3 does not free the lock of a host that has vanished; mount it with vers=4.2"
        )
    elif measured.kind not in CLUSTER_KINDS:
        verdict.faults.append(f"{measured.kind} is for one host at a time; a shared store needs NFSv4 or GFS2")
    if measured.lock_seen is False:
        verdict.faults.append("the lock that another host of the pair holds is not seen here; both would be active")
    if abs(measured.skew_ms) > SKEW_ADVICE_MS:
        verdict.advice.append(
            f"the clock of this host differs by {measured.skew_ms} ms from the file server's; set up NTP"
        )


def _judge_nfs(measured: Measured, verdict: Verdict) -> None:
    if "local_lock=none" not in measured.options:
        verdict.faults.append("locks are local to this host (local_lock); mount it without nolock and local_lock")
    if "hard" in measured.options:
        verdict.advice.append(
            "a hard mount: while the server does not answer, the broker hangs and its clients wait for it instead of "
            "the backup; mount it soft with bounded timeo and retrans"
        )
    for option in ("noac", "sync"):
        if option not in measured.options:
            verdict.advice.append(f"the mount lacks {option}: another host may see this one's writes late")
    if measured.lease_s is not None and measured.lease_s > LEASE_ADVICE_S:
        verdict.advice.append(
            f"the server's lease is {measured.lease_s} s: after a power cut the backup waits so long for the lock; set "
            "lease-time and grace-time to 10 in [nfsd] of the server's /etc/nfs.conf"
        )


def _judge_gfs2(measured: Measured, verdict: Verdict) -> None:
    local = [option for option in ("localflocks", "lockproto=lock_nolock") if option in measured.options]
    if local:
        verdict.faults.append(f"locks are local to this host ({', '.join(local)}); mount it with lockproto=lock_dlm")
    if "errors=panic" not in measured.options:
        verdict.advice.append(
            "the mount lacks errors=panic: a host that loses the device keeps its locks until it is restarted by hand, "
            "and the backup waits for them"
        )


def _is_implied(option: str) -> bool:
    """Options that the kernel does not report: handled by mount programs, or defaults."""
    return option.startswith("_") or option in ("defaults", "rw", "auto")


def lease_of(mountstats: str, point: str) -> int | None:
    """The lease of an NFSv4 mount in seconds, from ``/proc/self/mountstats``; None if it is no such mount."""
    inside = False
    for line in mountstats.splitlines():
        device = _DEVICE.match(line)
        if device:
            inside = device["point"] == point
        found = _LEASE.search(line) if inside else None
        if found:
            return int(found[1])
    return None


def options_of(mountinfo: str, point: str) -> tuple[str, ...]:
    """Options of the last mount on a mount point: those of the mount and those of the file system (proc(5))."""
    options: tuple[str, ...] = ()
    for line in mountinfo.splitlines():
        before, _separator, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if len(left) >= 6 and len(right) >= 3 and left[4] == point:
            options = tuple(dict.fromkeys([*left[5].split(","), *right[2].split(",")]))
    return options
