"""The steps of a node that begins with an empty store, one durable after the other (ADR 0126)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.local_files import StepWorker, local_sequence
from understudy.errors import BrokerError, DiskFailed
from understudy.ha.replication.empty_start import EmptyStartLife, EmptyState
from understudy.ha.replication.moved_store import LogEnd, MovedStore

MOVED = MovedStore("node", 8, LogEnd(5, 700, 600))


class ManualFiles:
    """Records the steps; one of them fails. Implements ``ha.replication.empty_start.Files``."""

    path = "/locks/empty-start.json"

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.sequence: int | None = None
        self.failing = ""

    def _step(self, name: str) -> None:
        if name == self.failing:
            raise DiskFailed("no space")
        self.steps.append(name)

    def noted(self) -> int | None:
        return self.sequence

    def lacks(self, moved: MovedStore) -> bool:
        return moved.end.common > 500

    def note(self, moved: MovedStore) -> None:
        self._step("note")
        self.sequence = moved.sequence

    def set_aside(self) -> None:
        self._step("set aside")

    def begin_store(self) -> None:
        self._step("begin store")

    def remove_note(self) -> None:
        self._step("remove note")
        self.sequence = None


class Start:
    """An empty start whose worker is moved by the test."""

    def __init__(self) -> None:
        self.files, self.worker = ManualFiles(), StepWorker()
        self.local, _ = local_sequence(7)
        self.life = EmptyStartLife(self.files, self.local, self.worker)
        self.answers: list[BrokerError | None] = []

    def begin(self, moved: MovedStore | None = MOVED) -> None:
        self.life.begin(moved, self.answers.append)

    def run(self) -> None:
        while self.worker.jobs:
            self.worker.step()


def test_the_steps_come_in_their_order_and_the_sequence_before_the_note_is_removed() -> None:
    start = Start()
    start.begin()
    start.run()
    assert start.files.steps == ["note", "set aside", "begin store", "remove note"]
    assert (start.local.value, start.answers, start.life.is_pending()) == (8, [None], False)


@pytest.mark.parametrize("failing", ["note", "set aside", "begin store", "remove note"])
def test_a_step_that_fails_is_reported_and_everything_is_repeated(failing: str) -> None:
    start = Start()
    start.files.failing = failing
    start.begin()
    start.run()
    assert [type(each) for each in start.answers] == [DiskFailed]
    assert start.life.is_pending() is (failing != "note")
    start.files.failing = ""
    start.begin(MOVED if failing == "note" else None)
    start.run()
    assert start.answers[1:] == [None]
    assert start.local.value == 8


def test_a_start_goes_on_by_its_note() -> None:
    start = Start()
    start.files.sequence = 9
    start.begin(None)
    start.run()
    assert start.files.steps == ["set aside", "begin store", "remove note"]
    assert start.local.value == 9


def test_steps_of_a_start_that_was_closed_say_nothing() -> None:
    start = Start()
    start.begin()
    start.life.close()
    assert start.life.state is EmptyState.IDLE
    start.run()
    assert start.answers == []
    start.begin(None)
    start.run()
    assert start.answers == [None]


def test_the_newest_record_that_other_nodes_keep_counts() -> None:
    start, newer = Start(), replace(MOVED, sequence=9)
    for moved in (MOVED, newer, MOVED):
        start.life.hear(moved)
    assert start.life.heard == newer
