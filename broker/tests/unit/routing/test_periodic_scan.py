"""Scans of a node are made in steps, between which other work is done (ADR 0215)."""

from __future__ import annotations

from collections.abc import Iterator

from understudy.routing.lifecycle.periodic_scan import PeriodicScan
from understudy.testing.manual_time import ManualTime


class Scans:
    """Counts scans and their steps."""

    def __init__(self, steps: int) -> None:
        self.time = ManualTime()
        self.begun = 0
        self.steps = 0
        self._pauses = steps - 1
        self.scan = PeriodicScan(self.time, 100, self._call)

    def _call(self) -> Iterator[None]:
        self.begun += 1
        for _ in range(self._pauses):
            self.steps += 1
            yield
        self.steps += 1


def test_a_scan_pauses_between_its_steps_and_the_period_begins_at_its_end() -> None:
    scans = Scans(3)
    scans.time.advance(99)
    assert scans.begun == 0
    for steps, passed_ms in ((1, 1), (2, 1), (3, 1), (3, 99), (4, 1)):
        scans.time.advance(passed_ms)
        assert scans.steps == steps
    assert scans.begun == 2


def test_a_scan_that_is_closed_takes_no_further_step() -> None:
    scans = Scans(3)
    scans.time.advance(100)
    scans.scan.close()
    scans.time.advance(1_000)
    assert (scans.begun, scans.steps) == (1, 1)
