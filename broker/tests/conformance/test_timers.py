"""Clocks, timers and the executor: the order of callbacks, and what a cancelled or failing one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.loops import LOOPS, Place, run, until
from understudy.errors import BrokerError, DiskFull
from understudy.ports import Clock, Timers
from understudy.runtime.base.environment import BootClock, SystemClock
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.environment import SimClock, Skew
from understudy.testing.sim.loop import SimLoop


@pytest.fixture(params=LOOPS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


# --- timers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["loop", "turn"])
def test_timers_are_called_in_the_order_of_their_time(kind: str, tmp_path: Path, of: str) -> None:
    async def case(place: Place) -> None:
        timers: Timers = place.timers if of == "loop" else place.turn
        called: list[int] = []
        for delay_ms in (30, 0, 10, 20):
            timers.call_later(delay_ms, lambda delay_ms=delay_ms: called.append(delay_ms))  # type: ignore[misc]
        assert called == [], "0 means the next turn"
        await until(lambda: len(called) == 4)
        assert called == [0, 10, 20, 30]

    run(kind, tmp_path, case)


@pytest.mark.parametrize("of", ["loop", "turn"])
def test_a_cancelled_timer_is_not_called(kind: str, tmp_path: Path, of: str) -> None:
    async def case(place: Place) -> None:
        timers: Timers = place.timers if of == "loop" else place.turn
        called: list[str] = []
        first = timers.call_later(0, lambda: called.append("first"))
        cancelled = timers.call_later(1, lambda: called.append("cancelled"))
        by_another = timers.call_later(5, lambda: called.append("cancelled by another"))
        timers.call_later(2, by_another.cancel)
        timers.call_later(20, lambda: called.append("last"))
        cancelled.cancel()
        cancelled.cancel()
        await until(lambda: "last" in called)
        first.cancel()
        assert called == ["first", "last"]

    run(kind, tmp_path, case)


def test_a_timer_set_by_a_timer_is_called_later(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        called: list[str] = []

        def again() -> None:
            called.append("first")
            place.timers.call_later(0, lambda: called.append("second"))
            assert called == ["first"]

        place.timers.call_later(0, again)
        await until(lambda: len(called) == 2)
        assert called == ["first", "second"]

    run(kind, tmp_path, case)


def test_a_timer_is_not_early_by_the_clock_of_the_node(kind: str, tmp_path: Path) -> None:
    """A policy computes ages with the clock that its timers wait by. A millisecond may be lost to rounding."""

    async def case(place: Place) -> None:
        began_ms = place.clock.monotonic_ms()
        called: list[int] = []
        place.timers.call_later(30, lambda: called.append(place.clock.monotonic_ms() - began_ms))
        await until(lambda: bool(called))
        assert called[0] >= 29

    run(kind, tmp_path, case)


def test_manual_time_keeps_the_same_order() -> None:
    time = ManualTime()
    called: list[int] = []
    for delay_ms in (30, 0, 10, 20):
        time.call_later(delay_ms, lambda delay_ms=delay_ms: called.append(delay_ms))  # type: ignore[misc]
    time.call_later(15, lambda: called.append(15)).cancel()
    assert called == []
    time.advance(100)
    assert called == [0, 10, 20, 30]


# --- clocks --------------------------------------------------------------------------------------


def _simulated_clock() -> Clock:
    loop = SimLoop(1)
    clock = SimClock(loop, Skew(wall_ms=-5_000, boot_ms=77, rate=1.001))
    loop.close()
    return clock


@pytest.mark.parametrize("make", [SystemClock, BootClock, _simulated_clock, ManualTime])
def test_clocks(make: Callable[[], Clock]) -> None:
    clock = make()
    readings = [clock.monotonic_ms() for _ in range(100)]
    assert readings == sorted(readings)
    assert all(isinstance(each, int) for each in (clock.monotonic_ms(), clock.wall_ms(), clock.wall_ns()))
    before, exact, after = clock.wall_ms(), clock.wall_ns(), clock.wall_ms()
    assert before * 1_000_000 <= exact < (after + 1) * 1_000_000


# --- executor ------------------------------------------------------------------------------------


def test_calls_requested_with_soon_are_made_in_order_and_not_within_the_request(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        called: list[int] = []
        for number in range(5):
            place.turn.soon(called.append, number)
        assert called == []
        await until(lambda: len(called) == 5)
        assert called == list(range(5))

    run(kind, tmp_path, case)


def test_soon_comes_before_the_loop_waits(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        called: list[str] = []
        place.loop.call_later(0.05, called.append, "timer")
        place.turn.soon(called.append, "soon")
        await until(lambda: len(called) == 2)
        assert called == ["soon", "timer"]

    run(kind, tmp_path, case)


def test_a_turn_follows_everything_that_was_completed(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        events: list[str] = []
        place.turn.work = lambda synced: bool(events.append("turn"))
        place.turn.completed(events.append, "completed")
        assert events == ["completed"], "at once"
        place.turn.completed(events.append, "completed")
        await until(lambda: "turn" in events)
        assert events[:3] == ["completed", "completed", "turn"], "one turn for all"
        place.turn.work = None

    run(kind, tmp_path, case)


def test_an_error_goes_to_the_node_and_keeps_no_other_call_from_being_made(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        errors: list[BrokerError] = []
        called: list[str] = []
        place.turn.on_error = errors.append
        full = DiskFull("full")

        def fail() -> None:
            raise full

        place.turn.soon(fail)
        place.turn.soon(called.append, "after")
        place.turn.completed(fail)
        place.turn.call_later(1, fail)
        place.turn.call_later(5, lambda: called.append("timer"))
        await until(lambda: "timer" in called)
        assert errors == [full, full, full]
        assert called == ["after", "timer"]

    run(kind, tmp_path, case)


def test_a_dirty_connection_is_flushed_once_in_a_turn(kind: str, tmp_path: Path) -> None:
    class Connection:
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

        def abort(self) -> None:
            raise AssertionError

    async def case(place: Place) -> None:
        connection = Connection()
        place.turn.work = lambda synced: bool(place.turn.mark_dirty(connection))
        place.turn.request()
        place.turn.request()
        await until(lambda: connection.flushed > 0)
        await asyncio.sleep(0.01)
        assert connection.flushed == 1
        place.turn.work = None

    run(kind, tmp_path, case)
