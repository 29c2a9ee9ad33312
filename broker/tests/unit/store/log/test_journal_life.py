"""The life of a journal: every end closes the files once."""

from __future__ import annotations

import pytest

from understudy.errors import MachineError
from understudy.machine import ILLEGAL
from understudy.store.log.journal_life import JournalEvent, JournalLife, JournalState


class Recorder:
    """A journal that records the calls of its life."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.life = JournalLife(self)

    def drain(self) -> None:
        self.seen.append("drain")

    def seal_last(self) -> None:
        self.seen.append("seal")

    def close_files(self) -> None:
        self.seen.append("close files")

    def fire(self, *events: JournalEvent) -> list[str]:
        """All calls after the events, in order."""
        for event in events:
            payload = [lambda: self.seen.append("done")] if event is JournalEvent.CLOSE else []
            self.life.fire(event, *payload)
        return self.seen


CLOSE, DRAINED, SEALED = JournalEvent.CLOSE, JournalEvent.DRAINED, JournalEvent.SEALED
FAIL, FILES_CLOSED = JournalEvent.FAIL, JournalEvent.FILES_CLOSED


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        ((CLOSE, DRAINED, SEALED, FILES_CLOSED), ["drain", "seal", "close files", "done"]),
        ((CLOSE, FAIL, FAIL, FILES_CLOSED), ["drain", "close files", "done"]),
        ((CLOSE, DRAINED, FAIL, SEALED, FILES_CLOSED), ["drain", "seal", "close files", "done"]),
        ((FAIL, FAIL, CLOSE, FILES_CLOSED), ["close files", "done"]),
    ],
)
def test_every_end_closes_the_files_once(events: tuple[JournalEvent, ...], calls: list[str]) -> None:
    journal = Recorder()
    assert journal.fire(*events) == calls
    assert journal.life.state is JournalState.CLOSED


@pytest.mark.parametrize("state", JournalState)
@pytest.mark.parametrize("event", JournalEvent)
def test_every_pair_is_a_transition_or_a_written_refusal(state: JournalState, event: JournalEvent) -> None:
    journal = Recorder()
    journal.life._done = lambda: None
    journal.life._state = state
    if JournalLife.TABLE[state, event] is ILLEGAL:
        with pytest.raises(MachineError):
            journal.fire(event)
        assert journal.life.state is state
    else:
        journal.fire(event)
