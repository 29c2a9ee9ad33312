"""The position of a store at the lock manager: written while the node serves and when it stops, read before a claim."""

from __future__ import annotations

import pytest

from understudy.errors import BrokerError, LockManagerUnavailable
from understudy.ha.locks.noted_position import (
    LAST_NOTE_MS,
    NOTE_POSITION_MS,
    NotedPosition,
    NotesState,
    PositionNotes,
    PositionNumbers,
    is_position,
)
from understudy.testing.manual_time import ManualTime
from understudy.testing.memory_locks import MemoryLockManager, MemoryService

NODE = "n1"
EPOCH, SEQUENCE = "n1.position-epoch", "n1.position-sequence"


class Noting:
    """A node that notes a position which the test moves."""

    def __init__(self, *, immediate: bool = True) -> None:
        self.time = ManualTime()
        self.service = MemoryService()
        self.manager = MemoryLockManager(self.service, self.time, self.time, immediate=immediate)
        self.held = True
        self.position = NotedPosition(4, 100)
        self.notes = PositionNotes(self._numbers, self.time)
        self.finished: list[int] = []

    def _numbers(self) -> PositionNumbers | None:
        return PositionNumbers(self.manager, NODE) if self.held else None

    @property
    def numbers(self) -> tuple[int, int]:
        return self.service.numbers.get(EPOCH, 0), self.service.numbers.get(SEQUENCE, 0)

    def open(self) -> None:
        self.notes.open(lambda: self.position)
        self.time.advance(0)

    def finish(self) -> None:
        self.notes.finish(lambda: self.finished.append(self.time.monotonic_ms()))


def test_the_position_is_noted_at_once_and_then_every_few_seconds() -> None:
    node = Noting()
    node.open()
    assert node.numbers == (4, 100)
    node.position = NotedPosition(4, 250)
    node.time.advance(NOTE_POSITION_MS - 1)
    assert node.numbers == (4, 100)
    node.time.advance(1)
    assert node.numbers == (4, 250)
    assert node.notes.noted == node.position


def test_an_idle_node_requests_nothing() -> None:
    node = Noting(immediate=False)
    node.open()
    while node.service.pending:
        node.service.pending[0].carry_out()
        node.service.pending[0].deliver()
    node.time.advance(10 * NOTE_POSITION_MS)
    assert node.service.pending == []
    assert node.notes.state is NotesState.RESTING


def test_a_stop_waits_for_the_exact_position() -> None:
    node = Noting()
    node.open()
    node.position = NotedPosition(4, 321)
    node.finish()
    assert node.finished == []
    node.time.advance(0)
    assert node.finished == [0]
    assert node.numbers == (4, 321)
    node.time.advance(10 * NOTE_POSITION_MS)
    assert node.time.pending() == 0


def test_a_stop_does_not_wait_for_a_lock_manager_that_does_not_answer() -> None:
    node = Noting(immediate=False)
    node.open()
    node.finish()
    node.time.advance(LAST_NOTE_MS - 1)
    assert node.finished == []
    node.time.advance(1)
    assert node.finished == [LAST_NOTE_MS]


def test_nothing_is_noted_without_the_lock_or_before_the_store_is_open() -> None:
    node = Noting()
    node.finish()
    assert node.finished == [0]
    node.held = False
    node.open()
    node.position = NotedPosition(4, 999)
    node.finish()
    node.time.advance(0)
    assert (node.finished, node.numbers) == ([0, 0], (0, 0))


def test_an_error_is_logged_once_and_the_note_repeated(caplog: pytest.LogCaptureFixture) -> None:
    node = Noting()
    node.service.reachable = False
    node.open()
    node.time.advance(2 * NOTE_POSITION_MS)
    assert len(caplog.records) == 1
    assert node.notes.noted is None
    node.service.reachable = True
    node.time.advance(NOTE_POSITION_MS)
    assert node.numbers == (4, 100)


def test_both_numbers_are_read() -> None:
    node = Noting()
    node.service.numbers |= {EPOCH: 7, SEQUENCE: 1_234}
    found: list[NotedPosition | BrokerError] = []
    PositionNumbers(node.manager, NODE).get(found.append)
    node.time.advance(0)
    assert found == [NotedPosition(7, 1_234)]
    node.service.reachable = False
    PositionNumbers(node.manager, NODE).get(found.append)
    node.time.advance(0)
    assert isinstance(found[1], LockManagerUnavailable)


def test_ids_of_positions_differ_from_those_of_activation_sequences() -> None:
    assert [is_position(each) for each in (NODE, EPOCH, SEQUENCE)] == [False, True, True]
