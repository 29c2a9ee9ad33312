"""Goal: one turn for all requests, in the order work, what ended meanwhile, work, flush; errors reach their request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from understudy.errors import BrokerError, DiskFailed
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.turn import AWAKE_NS, IDLE_POLLS_MAX, SKIPPED_POLLS, Turn


def make_turn() -> Turn:
    loop = asyncio.get_running_loop()
    return Turn(loop, LoopTimers(loop))


class Connection:
    def __init__(self, events: list[str]) -> None:
        self._events = events

    def flush(self) -> None:
        self._events.append("flush")

    def abort(self) -> None:
        self._events.append("abort")


def test_what_a_sync_released_goes_out_in_the_same_turn() -> None:
    async def main() -> None:
        turn = make_turn()
        events: list[str] = []
        connection = Connection(events)

        def work(again: bool) -> bool:
            events.append("work")
            if events.count("work") == 1:
                turn.soon(released, "confirmation")
            return False

        def released(what: str) -> None:
            events.append(what)
            turn.mark_dirty(connection)
            turn.request()

        turn.work = work
        turn.request()
        turn.request()
        await asyncio.sleep(0)
        assert events == ["work", "confirmation", "work", "flush"]
        for _ in range(3):
            await asyncio.sleep(0)
        assert events[4:] == [], "no further turn was asked for"

    asyncio.run(main())


def test_what_ends_between_turns_comes_first_in_the_next() -> None:
    async def main() -> None:
        turn = make_turn()
        events: list[str] = []
        turn.work = lambda again: bool(events.append("work"))

        def ended() -> None:
            events.append("ended")
            turn.request()

        turn.soon(ended)
        assert events == []
        for _ in range(3):
            await asyncio.sleep(0)
        assert events == ["ended", "work"], "the work after it is the turn that it requested"
        turn.request()
        await asyncio.sleep(0)
        assert events[2:] == ["work"]

    asyncio.run(main())


def test_an_error_of_an_ended_object_is_reported_and_stops_no_other() -> None:
    async def main() -> None:
        turn = make_turn()
        told: list[BrokerError] = []
        events: list[str] = []
        turn.on_error = told.append
        error = DiskFailed("gone")

        def fails() -> None:
            raise error

        turn.soon(fails)
        turn.soon(events.append, "the next")
        await asyncio.sleep(0)
        assert told == [error]
        assert events == ["the next"]

    asyncio.run(main())


def test_after_a_bug_in_the_work_the_rest_still_goes_out() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[object] = []
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        turn = make_turn()
        events: list[str] = []
        bug = ValueError("a bug")

        def work(again: bool) -> bool:
            if not events:
                turn.mark_dirty(Connection(events))
                events.append("work")
                raise bug
            return False

        turn.work = work
        turn.request()
        await asyncio.sleep(0)
        assert seen == [bug]
        assert events == ["work", "flush"], "in the same turn"

    asyncio.run(main())


def test_a_bug_in_one_flush_costs_that_connection_and_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Connection):
        def flush(self) -> None:
            raise ValueError("a bug")

    async def main() -> None:
        turn = make_turn()
        broken: list[str] = []
        others: list[str] = []
        for connection in (Connection(others), Broken(broken), Connection(others)):
            turn.mark_dirty(connection)
        await asyncio.sleep(0)
        assert (broken, others) == (["abort"], ["flush", "flush"])

    asyncio.run(main())
    assert "a bug" in caplog.text, "with its traceback"


def test_a_bug_in_what_ended_keeps_no_other_end_from_being_heard() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[object] = []
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        turn = make_turn()
        events: list[str] = []
        bug = ValueError("a bug")

        def breaks() -> None:
            raise bug

        turn.soon(events.append, "before")
        turn.soon(breaks)
        turn.soon(events.append, "behind")
        await asyncio.sleep(0)
        assert seen == [bug]
        assert events == ["before", "behind"], "in the same turn"

    asyncio.run(main())


def test_an_error_of_a_completed_call_or_a_timer_is_reported_and_a_turn_follows() -> None:
    async def main() -> None:
        turn = make_turn()
        told: list[BrokerError] = []
        events: list[str] = []
        turn.on_error = told.append
        turn.work = lambda again: bool(events.append("work"))
        error = DiskFailed("gone")

        def fails() -> None:
            raise error

        turn.completed(fails)
        assert told == [error]
        await asyncio.sleep(0)
        assert events == ["work"]
        turn.call_later(0, fails)
        while len(told) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert events == ["work", "work"]
        await asyncio.sleep(0)
        assert told == [error, error]
        assert events == ["work", "work"], "no further turn was asked for"

    asyncio.run(main())


class Paused:
    """A connection that is not read."""

    def __init__(self, name: str, events: list[str], *, congested: bool = False) -> None:
        self._name = name
        self._events = events
        self._congested = congested

    def congested(self) -> bool:
        return self._congested

    def resume_reading(self) -> None:
        self._events.append(self._name)


class Log:
    congested = True


def test_paused_connections_are_read_again_once_the_log_and_their_own_input_allow_it() -> None:
    async def main() -> None:
        turn = make_turn()
        events: list[str] = []
        turn.congestion = congestion = Log()
        slow = Paused("slow", events, congested=True)
        turn.paused = {Paused("first", events): None, slow: None, Paused("second", events): None}
        turn.request()
        await asyncio.sleep(0)
        assert events == [], "the log is congested"
        congestion.congested = False
        turn.request()
        await asyncio.sleep(0)
        assert events == ["first", "second"]
        assert list(turn.paused) == [slow]

    asyncio.run(main())


class ByHand:
    """A loop whose calls are made by the test."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.ready.append(call)

    def iterate(self) -> int:
        """Run the ready callbacks; returns their number."""
        ready, self.ready = self.ready, []
        for call in ready:
            call()
        return len(ready)


class Syncing:
    """A turn in which a sync ends whenever the test wants, on a loop and a clock of the test's own."""

    def __init__(self) -> None:
        self.loop = ByHand()
        self.now_ns = 1_000
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.turn = Turn(loop, LoopTimers(loop), lambda: self.now_ns)

    def sync(self) -> None:
        def work(again: bool) -> bool:
            self.turn.work = None
            self.turn.soon(lambda: None)
            return False

        self.turn.work = work
        self.turn.request()

    def in_vain(self) -> bool:
        """One sync, and no bytes come; whether the loop stayed awake for it."""
        self.sync()
        self.loop.iterate()
        stayed = bool(self.loop.ready)
        self.now_ns += AWAKE_NS
        self.loop.iterate()
        assert not self.loop.ready
        return stayed


def test_the_loop_stays_awake_for_a_moment_after_a_sync_and_only_then() -> None:
    made = Syncing()
    loop = made.loop
    made.turn.request()
    assert [loop.iterate(), loop.iterate()] == [1, 0], "a turn without a sync is the last call"
    made.sync()
    assert [loop.iterate() for _ in range(3)] == [1, 1, 1]
    made.now_ns += AWAKE_NS - 1
    assert [loop.iterate(), loop.iterate()] == [1, 1]
    made.sync()
    assert [loop.iterate(), loop.iterate()] == [2, 1], "one more sync prolongs it and does not double it"
    made.now_ns += AWAKE_NS - 1
    assert loop.iterate() == 1
    made.now_ns += 1
    assert [loop.iterate(), loop.iterate()] == [1, 0]


def test_the_loop_sleeps_at_once_if_no_bytes_come_while_it_is_awake_and_tries_again_later() -> None:
    made = Syncing()
    awake = [made.in_vain() for _ in range(IDLE_POLLS_MAX + SKIPPED_POLLS)]
    assert awake == [True] * IDLE_POLLS_MAX + [False] * SKIPPED_POLLS
    assert [made.in_vain() for _ in range(SKIPPED_POLLS + 1)] == [True] + [False] * SKIPPED_POLLS, "one more chance"
    made.sync()
    made.loop.iterate()
    made.sync()
    made.loop.iterate()
    made.now_ns += AWAKE_NS
    made.loop.iterate()
    assert [made.in_vain() for _ in range(IDLE_POLLS_MAX)] == [True] * (IDLE_POLLS_MAX - 1) + [False], "bytes came"
