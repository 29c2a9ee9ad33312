"""The scrubber: its rate, its findings, and the repair of damaged files."""

from __future__ import annotations

import random

import pytest

from support.replication import BODIES
from support.store import DIRECTORY
from understudy.message import LargeBody
from understudy.store.log.applier import Applier
from understudy.store.repair import Outcome
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.store_files import StoreDirectories
from understudy.store.scrubbing import FIRST_PASS_MS, Scrubber, ScrubberState, ScrubSettings, ScrubStore
from understudy.testing.sim.writer import SimWorker
from unit.store.replication.test_checked_copies import BODY, Rig, flip

PERIOD_MS = 3_600_000


class Scrubbed:
    """A scrubber on the store of a rig, and the files that it wants repaired."""

    def __init__(self, rate_bytes: int = 1 << 30, outcome: Outcome = Outcome.REPAIRED) -> None:
        self.rig = Rig()
        active, time = self.rig.active, self.rig.active.time
        self.time = time
        self.asked: list[tuple[Directory, str, LargeBody | None]] = []
        bodies = Applier(active.disk("node"), BODIES)

        def repair(directory: Directory, name: str, large: LargeBody | None, done) -> None:  # type: ignore[no-untyped-def]
            self.asked.append((directory, name, large))
            done(outcome)

        directories = StoreDirectories(active.disk(active.owner), DIRECTORY, BODIES)
        store = ScrubStore(directories, active.log.positions, bodies.checksum_of, repair)
        settings = ScrubSettings(rate_bytes, PERIOD_MS)
        self.scrubber = Scrubber(store, settings, SimWorker(time, random.Random(1)), time, time)

    def run_pass(self) -> None:
        passes = self.scrubber.report.passes
        self.time.advance(FIRST_PASS_MS if not passes else PERIOD_MS)
        for _ in range(2_000):
            if self.scrubber.report.passes > passes:
                return
            self.time.advance(10)
        raise AssertionError("the pass does not end")


def test_a_pass_over_a_store_in_order_finds_nothing() -> None:
    made = Scrubbed()
    made.run_pass()
    report = made.scrubber.report
    assert (report.passes, report.damaged, report.unverified, report.running) == (1, 0, 0, False)
    assert report.pass_bytes > len(BODY)
    assert report.completed_ms
    made.run_pass()
    assert report.passes == 2


@pytest.mark.parametrize("kind", ["body", "segment"])
def test_a_damaged_file_is_repaired(kind: str) -> None:
    made = Scrubbed()
    path = made.rig.body if kind == "body" else made.rig.segment()
    flip(made.rig, path)
    made.run_pass()
    ((directory, name, large),) = made.asked
    assert path.endswith(name)
    assert directory is (Directory.BODIES if kind == "body" else Directory.LOG)
    assert (large is not None) == (kind == "body")
    assert (made.scrubber.report.damaged, made.scrubber.report.repaired) == (1, 1)


def test_a_wrong_cache_is_not_taken_for_damage_of_the_disk() -> None:
    made = Scrubbed()
    made.rig.active.volume.wrong_reads.add(made.rig.body, 100, 3, cached=True)
    made.run_pass()
    assert made.asked == []


def test_damage_that_no_node_can_repair_is_found_in_each_pass(caplog: pytest.LogCaptureFixture) -> None:
    made = Scrubbed(outcome=Outcome.DAMAGED_TWICE)
    flip(made.rig, made.rig.body)
    made.run_pass()
    made.run_pass()
    assert (made.scrubber.report.damaged, made.scrubber.report.repaired) == (2, 0)
    assert "no other copy of it fits" in caplog.text


def test_the_rate_is_kept() -> None:
    made = Scrubbed(rate_bytes=200_000)
    made.time.advance(FIRST_PASS_MS)
    began = made.time.monotonic_ms()
    while not made.scrubber.report.passes:
        made.time.advance(10)
        elapsed_s = (made.time.monotonic_ms() - began) / 1000
        assert made.scrubber.report.pass_bytes <= 200_000 * elapsed_s + 2 * 512 * 1024
    assert made.time.monotonic_ms() - began >= 1000 * (made.scrubber.report.pass_bytes - 512 * 1024) // 200_000


def test_a_rate_of_zero_is_no_scrubber_and_a_closed_one_does_nothing() -> None:
    made = Scrubbed(rate_bytes=0)
    made.time.advance(10 * PERIOD_MS)
    assert made.scrubber.state is ScrubberState.WAITING
    closed = Scrubbed()
    closed.scrubber.close()
    closed.time.advance(2 * PERIOD_MS)
    assert closed.scrubber.report.passes == 0
