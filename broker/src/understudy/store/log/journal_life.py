"""The life of a journal: open, then sealed and closed, or failed.

A clean end is: write appended records, seal the last segment, close the files. If a write fails, or there is no space
for the seal, nothing more is written and the files are closed. Either way the files are closed once, after the
housekeeper has ended its work: then another node may have the store.

Not here: batches, segments, writing (``journal``).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from understudy.machine import IGNORED, ILLEGAL, Machine, To, table


class JournalState(Enum):
    """States of a journal."""

    OPEN = auto()
    """Records are appended and written."""
    DRAINING = auto()
    """The journal is to be closed; the seal waits until its segment is ready."""
    SEALING = auto()
    """The seal is queued after all batches."""
    FAILED = auto()
    """A write has failed: nothing is written or confirmed any more. It is not to be closed yet."""
    CLOSING = auto()
    """The files of the journal are being closed."""
    CLOSED = auto()


class JournalEvent(Enum):
    """Events of the machine."""

    CLOSE = auto()
    """The journal is to be closed; the argument is called when it is closed."""
    DRAINED = auto()
    """The segment of the seal is ready."""
    SEALED = auto()
    """The seal is written and synced."""
    FAIL = auto()
    FILES_CLOSED = auto()


class ClosableJournal(Protocol):
    """Interface of the journal for its life."""

    def drain(self) -> None:
        """Fire DRAINED when the segment of the seal is ready, FAIL if there is no space for it."""
        ...

    def seal_last(self) -> None:
        """Queue and write collected records, then the seal."""
        ...

    def close_files(self) -> None:
        """Close the files away from the loop, then fire FILES_CLOSED."""
        ...


_S, _E = JournalState, JournalEvent


class JournalLife(Machine[JournalState, JournalEvent]):
    """Declared machine of the states of one journal."""

    STATES = JournalState
    EVENTS = JournalEvent
    INITIAL = JournalState.OPEN

    def __init__(self, journal: ClosableJournal) -> None:
        super().__init__()
        self._journal = journal
        self._done: Callable[[], None] | None = None

    def _drain(self, done: Callable[[], None]) -> None:
        self._done = done
        self._journal.drain()

    def _seal(self) -> None:
        self._journal.seal_last()

    def _close_failed(self, done: Callable[[], None]) -> None:
        self._done = done
        self._journal.close_files()

    def _close_files(self) -> None:
        self._journal.close_files()

    def _report(self) -> None:
        assert self._done is not None
        self._done()

    TABLE = table(
        JournalState,
        JournalEvent,
        {
            (_S.OPEN, _E.CLOSE): To(_S.DRAINING, _drain),
            (_S.OPEN, _E.FAIL): To(_S.FAILED),
            (_S.DRAINING, _E.DRAINED): To(_S.SEALING, _seal),
            (_S.DRAINING, _E.FAIL): To(_S.CLOSING, _close_files),
            (_S.SEALING, _E.SEALED): To(_S.CLOSING, _close_files),
            (_S.SEALING, _E.FAIL): To(_S.CLOSING, _close_files),
            (_S.FAILED, _E.CLOSE): To(_S.CLOSING, _close_failed),
            # the write of the seal was under way when other work on the files failed
            (_S.CLOSING, _E.SEALED): IGNORED,
            (_S.CLOSED, _E.SEALED): IGNORED,
            (_S.CLOSING, _E.FILES_CLOSED): To(_S.CLOSED, _report),
        },
        otherwise={
            _E.CLOSE: ILLEGAL,
            _E.DRAINED: ILLEGAL,
            _E.SEALED: ILLEGAL,
            _E.FAIL: IGNORED,
            _E.FILES_CLOSED: ILLEGAL,
        },
    )
