"""Goal: every event in every phase is declared, and a record survives the way to the disk and back."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import (
    FINAL,
    IGNORED,
    TRANSITIONS,
    Event,
    IllegalEvent,
    Phase,
    Record,
    found,
    step,
)

ILLEGAL = {
    (phase, event)
    for phase, event in product(Phase, Event)
    if (phase, event) not in TRANSITIONS and (phase, event) not in IGNORED
}


def test_no_event_is_both_ignored_and_a_transition() -> None:
    assert not IGNORED & set(TRANSITIONS)


@pytest.mark.parametrize(("phase", "event"), sorted(ILLEGAL, key=str))
def test_illegal_events_are_steps_of_the_roll_and_are_refused(phase: Phase, event: Event) -> None:
    assert event in (Event.STOP, Event.APPLY, Event.START, Event.FINISH, Event.RESTART)
    with pytest.raises(IllegalEvent, match=f"{event.value} is no step for a node that is {phase.value}"):
        step(phase, event)


def test_every_unfinished_phase_leads_to_an_end_by_restoring() -> None:
    for phase in set(Phase) - FINAL:
        assert step(step(phase, Event.RESTORE), Event.RESTART) is Phase.RESTORED


@pytest.mark.parametrize("running", [True, False])
def test_the_phase_that_is_found_agrees_with_the_process(running: bool) -> None:
    for phase in set(Phase) - FINAL - {Phase.RESTORING}:
        assert (found(phase, running=running) in (Phase.BEGUN, Phase.STARTED)) is running


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record("20260101T000000Z", "update", "1.0-a", "east", Phase.APPLIED, served=True)
    path = tmp_path / "rollout/record.json"
    assert Record.read(path) is None
    record.write(path)
    assert Record.read(path) == record
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("text", ["", "{}", '{"format": 2}', '{"format": 1, "roll": "x"}'])
def test_damaged_record_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"record.json is no record of a roll of this version"):
        Record.read(path)
