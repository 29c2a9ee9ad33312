"""Faults of a pair under load, each with the proof that nothing was lost and that service came back by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from understudy_lab.hosts import Lab, number_of
from understudy_lab.pair import UNITS, Load, await_that, longest_window_s, make_ready, record, serves


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

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def kill(lab: Lab, victim: str) -> None:
    """SIGKILL of the broker; systemd starts it again."""
    lab.output(victim, f"kill -9 $(systemctl show -p MainPID --value {UNITS[victim]})")


def cut_power(lab: Lab, victim: str) -> None:
    """Power cut of the active host."""
    lab.cut_power(victim)


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


def endure(lab: Lab, fault: Fault, table: str) -> None:
    """Strikes a pair under load, repairs the fault, and judges the ledgers; adds a row to a table of measurements.

    Raises:
        LabError: the pair did not serve again by itself.
        AssertionError: a promise was broken.
    """
    active, passive = make_ready(lab)
    load = Load(lab)
    load.await_progress(500)
    struck = time.monotonic()
    fault.strike(lab, active)
    took_over_s = None
    if fault.taken_over:
        await_that(lambda: serves(lab, passive), "the backup serves", fault.lasts_s)
        took_over_s = round(time.monotonic() - struck, 1)
        load.await_progress(timeout_s=60.0)
    time.sleep(max(0.0, struck + fault.lasts_s - time.monotonic()))
    fault.repair(lab, active)
    load.await_progress(500)
    make_ready(lab)
    load.await_progress(200)
    report = load.end()
    counts = report["counts"]
    assert isinstance(counts, dict)
    row = {"fault": fault.name, "window_s": longest_window_s(report), "taken_over_s": took_over_s}
    row.update({name: counts[name] for name in ("confirmed", "lost", "duplicated", "reordered", "unresolved")})
    record(table, row)
    assert report["verdict"] == "kept", report
    assert counts["unresolved"] == 0, report
