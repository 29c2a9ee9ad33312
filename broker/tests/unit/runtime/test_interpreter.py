"""When a full collection of reference cycles runs."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable
from typing import cast

from understudy.runtime.process.interpreter import (
    GROWTH_BYTES,
    GROWTH_SHARE,
    Collector,
    resident_bytes,
    settle,
    start_up,
)


class Loop:
    def __init__(self) -> None:
        self.check: Callable[[], None] | None = None

    def call_later(self, _seconds: float, call: Callable[[], None]) -> Loop:
        self.check = call
        return self

    def cancel(self) -> None:
        self.check = None


class CollectorHarness:
    def __init__(self, resident: int) -> None:
        self.loop = Loop()
        self.resident = resident
        self.freed_bytes = 0
        self.collections = 0
        self.collector = Collector(
            cast(asyncio.AbstractEventLoop, self.loop), resident=lambda: self.resident, collect=self.collect
        )
        self.collector.start()

    def collect(self) -> None:
        self.collections += 1
        self.resident -= self.freed_bytes

    def check(self, resident: int) -> int:
        """Collections so far, after a check with that much memory."""
        self.resident = resident
        assert self.loop.check is not None
        self.loop.check()
        return self.collections


def test_a_collection_runs_when_memory_has_grown() -> None:
    rig = CollectorHarness(100 * 1024 * 1024)
    grown = rig.resident + GROWTH_BYTES
    assert rig.check(grown) == 0
    assert rig.check(grown + 1) == 1
    assert rig.check(grown + 1) == 1, "it could free nothing, so it waits for more growth"
    assert rig.check(grown + 1 + 2 * GROWTH_BYTES) == 2


def test_large_processes_collect_by_their_share() -> None:
    rig = CollectorHarness(1024 * GROWTH_BYTES)
    assert rig.check(int(1024 * GROWTH_BYTES * (1 + GROWTH_SHARE))) == 0
    assert rig.check(int(1024 * GROWTH_BYTES * (1 + GROWTH_SHARE)) + 1) == 1


def test_growth_counts_from_the_least_since() -> None:
    rig = CollectorHarness(10 * GROWTH_BYTES)
    assert rig.check(GROWTH_BYTES) == 0
    assert rig.check(3 * GROWTH_BYTES) == 1


def test_the_collector_stops() -> None:
    rig = CollectorHarness(0)
    rig.collector.stop()
    assert rig.loop.check is None


def test_resident_memory_is_known() -> None:
    assert resident_bytes() > 1024 * 1024


def test_a_start_makes_its_objects_without_a_collection() -> None:
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    try:
        start_up()
        assert not gc.isenabled()
        settle()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)


#: Prints how often the kernel had to provide a page for blocks of a size that was freed before.
FREED_AND_USED_AGAIN = """
import resource
from understudy.runtime.process.interpreter import keep_freed_memory
{call}
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"x" * size for size in range(1 << 20, 5 << 20, 1 << 19)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_blocks_are_used_again_without_the_kernel() -> None:
    faults = [
        int(
            subprocess.run(
                [sys.executable, "-c", FREED_AND_USED_AGAIN.format(call=call)], check=True, capture_output=True
            ).stdout
        )
        for call in ("", "keep_freed_memory()")
    ]
    assert faults[0] > 1_000, "another C library: the setting does nothing"
    assert faults[1] < 100
