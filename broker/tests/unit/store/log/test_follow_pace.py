"""Goal: a log that changes is looked at often, one that does not seldom and cheaply, but never only cheaply."""

from __future__ import annotations

from typing import cast

from understudy.store.log.reading.follow_pace import (
    FOLLOW_IDLE_POLL_MS,
    FOLLOW_POLL_MS,
    FOLLOW_QUIET_LOOKS,
    FOLLOW_STEP_BYTES,
    REPLICA_FOLLOW_POLL_MS,
    REPLICA_STEP_S,
    FollowPace,
)
from understudy.store.log.reading.follower import Follower


class Log:
    """Stands for a follower."""

    def __init__(self) -> None:
        self.is_quiet = True

    def quiet(self) -> bool:
        return self.is_quiet


def idle() -> tuple[FollowPace, Log, Follower]:
    pace, log = FollowPace(), Log()
    while pace.delay_ms < FOLLOW_IDLE_POLL_MS:
        assert pace.needs_poll(cast(Follower, log)), "a quick look is for a log that has not changed for long"
        pace.polled(0, 0.0)
    return pace, log, cast(Follower, log)


def test_the_time_between_two_polls_doubles_until_something_is_found() -> None:
    pace = FollowPace()
    delays = []
    for _ in range(6):
        pace.polled(0, 0.0)
        delays.append(pace.delay_ms)
    assert delays == [100, 200, 400, 800, FOLLOW_IDLE_POLL_MS, FOLLOW_IDLE_POLL_MS]
    pace.polled(1, 0.0)
    assert pace.delay_ms == FOLLOW_POLL_MS


def test_a_replica_reads_its_log_less_often_while_that_grows() -> None:
    pace = FollowPace(replica=True)
    assert pace.delay_ms == REPLICA_FOLLOW_POLL_MS > FOLLOW_POLL_MS
    for _ in range(3):
        pace.polled(0, 0.0)
    assert pace.delay_ms == FOLLOW_IDLE_POLL_MS
    pace.polled(1, 0.0)
    assert pace.delay_ms == REPLICA_FOLLOW_POLL_MS


def test_a_step_of_a_replica_fits_the_time_that_its_loop_has_for_it() -> None:
    """The active node waits for answers of the replica, which come from the same loop."""
    pace = FollowPace(replica=True)
    first = pace.step_bytes
    pace.polled(first, REPLICA_STEP_S / 8)
    assert pace.step_bytes == 2 * first
    pace.polled(first, REPLICA_STEP_S / 8)
    assert pace.step_bytes == 2 * first, "the end of the log says nothing about longer steps"
    for _ in range(3):
        pace.polled(pace.step_bytes, 2 * REPLICA_STEP_S)
    assert pace.step_bytes == first
    for _ in range(20):
        pace.polled(pace.step_bytes, 0.0)
    assert pace.step_bytes == FOLLOW_STEP_BYTES
    shared = FollowPace()
    shared.polled(1, 1.0)
    assert shared.step_bytes == FOLLOW_STEP_BYTES, "no client waits for a node that reads the store of another one"


def test_short_steps_of_a_replica_look_at_the_directory_once_for_many_bytes() -> None:
    pace = FollowPace(replica=True)
    assert not pace.goes_on()
    read_bytes = 0
    pace.polled(pace.step_bytes, REPLICA_STEP_S)
    while pace.goes_on():
        read_bytes += pace.step_bytes
        pace.polled(pace.step_bytes, REPLICA_STEP_S)
    assert FOLLOW_STEP_BYTES - 2 * pace.step_bytes <= read_bytes <= FOLLOW_STEP_BYTES
    pace.polled(pace.step_bytes - 1, REPLICA_STEP_S)
    assert not pace.goes_on(), "the log had no further bytes"
    shared = FollowPace()
    shared.polled(FOLLOW_STEP_BYTES, 0.0)
    assert not shared.goes_on()


def test_an_idle_log_is_polled_after_some_quick_looks() -> None:
    pace, _, follower = idle()
    for _ in range(3):
        assert [pace.needs_poll(follower) for _ in range(FOLLOW_QUIET_LOOKS + 1)] == [False] * FOLLOW_QUIET_LOOKS + [
            True
        ]
        pace.polled(0, 0.0)


def test_news_are_polled_at_once() -> None:
    pace, log, follower = idle()
    assert not pace.needs_poll(follower)
    log.is_quiet = False
    assert pace.needs_poll(follower)
    assert pace.needs_poll(None)
