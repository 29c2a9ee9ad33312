"""The life of a follower: what a poll, a restart and a closed file do in each state."""

from __future__ import annotations

import random

import pytest
from tests.support.store import StoreHarness

from understudy.errors import MachineError
from understudy.machine import ILLEGAL
from understudy.store.log.reading.follower_life import FollowerEvent, FollowerLife, FollowerState

E, S = FollowerEvent, FollowerState


class Recorder:
    """A follower that records the calls of its life."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.life = FollowerLife(self)

    def drop_snapshot(self) -> None:
        self.seen.append("drop")

    def begin_again(self) -> None:
        self.seen.append("begin again")

    def fire(self, *events: FollowerEvent) -> FollowerState:
        for event in events:
            self.life.fire(event)
        return self.life.state


@pytest.mark.parametrize(
    ("events", "state", "seen"),
    [
        ((E.READ, E.END_REACHED), S.EMPTY, []),
        ((E.READ, E.END_REACHED, E.END_DECIDED), S.EMPTY, []),
        ((E.READ, E.END_REACHED, E.READ, E.NO_SNAPSHOT), S.READING, []),
        ((E.READ, E.SNAPSHOT_FOUND, E.READ, E.CLOSE), S.SEARCHING, ["drop"]),
        ((E.READ, E.SNAPSHOT_FOUND, E.SNAPSHOT_LOADED, E.CLOSE, E.END_REACHED), S.CAUGHT_UP, []),
        ((E.NO_SNAPSHOT, E.END_REACHED, E.READ, E.RESTART), S.SEARCHING, ["begin again"]),
        ((E.NO_SNAPSHOT, E.END_REACHED, E.END_DECIDED, E.READ), S.READING, []),
        ((E.NO_SNAPSHOT, E.END_DECIDED), S.ENDED, []),
    ],
)
def test_events_lead_to_the_state_and_call_the_follower(
    events: tuple[FollowerEvent, ...], state: FollowerState, seen: list[str]
) -> None:
    recorder = Recorder()
    assert recorder.fire(*events) is state
    assert recorder.seen == seen


def test_illegal_events_are_refused_in_every_state() -> None:
    for (state, event), entry in FollowerLife.TABLE.items():
        if entry is ILLEGAL:
            recorder = Recorder()
            recorder.life._state = state
            with pytest.raises(MachineError, match=event.name):
                recorder.fire(event)


def test_a_follower_passes_through_its_states() -> None:
    rig = StoreHarness(random.Random(3), compact_segments_min=1)
    follower = rig.follower("passive")
    states: list[FollowerState] = []

    def poll() -> None:
        follower.poll(1 << 30)
        states.append(follower._life.state)

    poll()
    rig.activate("a")
    rig.queue()
    rig.settle()
    poll()
    poll()
    rig.die(power_loss=False)
    follower.finish()
    states.append(follower._life.state)
    assert states == [S.EMPTY, S.CAUGHT_UP, S.CAUGHT_UP, S.ENDED]
