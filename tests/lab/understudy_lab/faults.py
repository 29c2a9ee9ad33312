"""Faults of a pair under load, each with the proof that nothing was lost and that service came back by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from understudy_lab.errors import LabError
from understudy_lab.hosts import Lab, number_of
from understudy_lab.pair import (
    STORE,
    UNITS,
    Load,
    assert_kept,
    await_that,
    longest_window_s,
    make_ready,
    record,
    served_after_s,
    serves,
)

SETTLE_MS = 500
"""Within which what was confirmed before a fault reaches the ledger."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of a table of faults."""

    name: str
    strike: Callable[[Lab, str], None]
    """Is given the active host."""
    lasts_s: float = 0.0
    """Time until it is repaired."""
    repair: Callable[[Lab, str], None] = lambda lab, victim: None
    taken_over: bool = False
    """Whether the backup must serve while the fault lasts."""
    no_service: bool = False
    """Whether no node may confirm anything while the fault lasts, as there is no store."""
    ends_within_s: float = 0.0
    """Time within which the fault ends the active broker, whether or not its process goes away; 0: not asked."""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def kill(lab: Lab, victim: str) -> None:
    """SIGKILL of the broker; systemd starts it again."""
    lab.output(victim, f"kill -9 $(systemctl show -p MainPID --value {UNITS[victim]})")


def cut_power(lab: Lab, victim: str) -> None:
    """Power cut of the active host."""
    lab.cut_power(victim)


def shut_down(lab: Lab, victim: str) -> None:
    """Clean shutdown of the active host."""
    lab.shut_down(victim)


def power_on(lab: Lab, victim: str) -> None:
    """Boots it again."""
    lab.start([victim])


def pause(lab: Lab, victim: str) -> None:
    """Stops the active host between two instructions."""
    lab.pause(victim)


def resume(lab: Lab, victim: str) -> None:
    """Lets it go on, without knowing of the pause."""
    lab.resume(victim)


def cut_from(*others: str) -> Callable[[Lab, str], None]:
    """A strike that cuts the active host from other hosts."""

    def cut(lab: Lab, victim: str) -> None:
        for other in others:
            if other != victim:
                lab.network.cut(number_of(victim), number_of(other))

    return cut


def heal(lab: Lab, victim: str) -> None:
    """Ends all cuts."""
    lab.network.heal()


def freeze(lab: Lab, victim: str) -> None:
    """Writes to the file system of the export wait in the server's kernel, which goes on and keeps all leases."""
    lab.output(STORE, "fsfreeze --freeze /export")


def thaw(lab: Lab, victim: str) -> None:
    """The waiting writes are carried out, also those of processes that have ended."""
    lab.output(STORE, "fsfreeze --unfreeze /export")


def endure(lab: Lab, fault: Fault, table: str) -> None:
    """Strikes a pair under load, repairs the fault, and judges the ledgers; adds a row to a table of measurements.

    Raises:
        LabError: the pair did not serve again by itself.
        AssertionError: a promise was broken.
    """
    active, passive = make_ready(lab)
    load = Load(lab)
    load.await_progress(500)
    process = process_of(lab, active)
    struck = time.monotonic()
    fault.strike(lab, active)
    struck_ms = _now_ms()
    took_over_s = ended_s = None
    if fault.taken_over:
        await_that(lambda: serves(lab, passive), "the backup serves", fault.lasts_s)
        took_over_s = round(time.monotonic() - struck, 1)
        load.await_progress(timeout_s=60.0)
    if fault.ends_within_s:
        await_that(
            lambda: process_of(lab, active) not in ("", process),
            "the active broker ended",
            fault.ends_within_s,
        )
        ended_s = round(time.monotonic() - struck, 1)
    time.sleep(max(0.0, struck + fault.lasts_s - time.monotonic()))
    repaired_ms = _now_ms()
    fault.repair(lab, active)
    load.await_progress(500)
    make_ready(lab)
    load.await_progress(200)
    report = load.end()
    counts = report["counts"]
    assert isinstance(counts, dict)
    row: dict[str, object] = {"fault": fault.name, "window_s": longest_window_s(report), "taken_over_s": took_over_s}
    if fault.ends_within_s:
        row["ended_after_s"] = ended_s
    if fault.no_service:
        row["served_after_repair_s"] = served_after_s(report, struck_ms + SETTLE_MS, repaired_ms)
    row.update({name: counts[name] for name in ("confirmed", "lost", "duplicated", "reordered", "unresolved")})
    record(table, row)
    assert_kept(report)
    assert not fault.no_service or row["served_after_repair_s"] is not None, (
        "a message was confirmed while there was no store"
    )


def process_of(lab: Lab, host: str) -> str:
    """Which process the broker on a host is: its boot and number, without the number once its main thread has ended.

    Another thread may still wait in the kernel and keep the process. Empty if the host does not answer.
    """
    script = f"""
        cat /proc/sys/kernel/random/boot_id
        process=$(systemctl show -p MainPID --value {UNITS[host]})
        grep -q "^State:.[ZX]" /proc/$process/status || echo $process
    """
    try:
        return " ".join(lab.output(host, script, 10.0).split())
    except LabError:
        return ""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
