"""A node whose messages a replica has moved to another node: it sets its data aside and starts empty (ADR 0126).

The steps are durable one after the other, and each may be repeated: a node that ends in between goes on with the first
step, by the note that it wrote before anything changed. Until the note is removed its data is not used.

Source: artemis-ha s. 6. Not here: the record that proves it (``moved_store``), the files (``Files``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar, Protocol

from understudy.errors import BrokerError
from understudy.ha.locks.local_sequence import LocalSequence, failure_of
from understudy.ha.replication.moved_store import MovedStore
from understudy.ha.replication.ports import Answer
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Worker

log = logging.getLogger(__name__)


class Files(Protocol):
    """The files of the store, and the note about an empty start. Each call blocks and may be repeated."""

    path: str
    """Path of the note, for errors."""

    def noted(self) -> int | None:
        """Activation sequence of the data that has moved, by the note; None: there is none. Raises StoreError."""
        ...

    def lacks(self, moved: MovedStore) -> bool:
        """Whether the log ends before the part that it has in common with the one that has moved. Raises StoreError."""
        ...

    def note(self, moved: MovedStore) -> None:
        """Note durably that the data is not needed, and where the empty store begins. Raises StoreError."""
        ...

    def set_aside(self) -> None:
        """Move the data to a directory of its own, or remove it if none is kept. Raises StoreError."""
        ...

    def begin_store(self) -> None:
        """Begin the empty store. Raises StoreError."""
        ...

    def remove_note(self) -> None:
        """Remove the note durably. Raises StoreError."""
        ...


class EmptyState(Enum):
    """States of an empty start."""

    IDLE = auto()
    NOTING = auto()
    SETTING_ASIDE = auto()
    BEGINNING = auto()
    """An empty log is made, which goes on after the end of the one that has moved."""
    NUMBERING = auto()
    """The activation sequence of the data that has moved becomes that of the empty store."""
    CLEARING = auto()
    """The note is removed."""


class EmptyEvent(Enum):
    """Events of an empty start."""

    BEGIN = auto()
    """The node begins with an empty store. Its argument is the record that its messages have moved."""
    GO_ON = auto()
    """A note of an earlier start exists, so the empty start continues."""
    DONE = auto()
    """The step is durable."""
    FAILED = auto()
    """A step failed; the argument is the error."""
    CLOSE = auto()


_S, _E = EmptyState, EmptyEvent


class EmptyStartLife(Machine[EmptyState, EmptyEvent]):
    """The empty start of one node. Implements ``ha.replication.ports.EmptyStart``."""

    STATES: ClassVar[type[Enum]] = EmptyState
    EVENTS: ClassVar[type[Enum]] = EmptyEvent
    INITIAL: ClassVar[Enum] = EmptyState.IDLE

    def __init__(self, files: Files, local: LocalSequence, worker: Worker) -> None:
        """Nothing is read yet.

        Args:
            local: Activation sequence of its data.
            worker: Carries out the steps.
        """
        super().__init__()
        self._files = files
        self._local = local
        self._worker = worker
        self.heard: MovedStore | None = None
        """Record that another node has answered with; see ``EmptyStart``."""
        self._ended: Answer = lambda error: None
        self._round = 0
        """Number of the present start: a step of an earlier one that was closed says nothing."""

    # --- EmptyStart --------------------------------------------------------------------------------

    def is_pending(self) -> bool:
        return self._files.noted() is not None

    def hear(self, moved: MovedStore) -> None:
        """See ``EmptyStart``: several nodes may have taken messages of this one, each at another time."""
        if self.heard is None or moved.sequence > self.heard.sequence:
            self.heard = moved

    def lacks(self, moved: MovedStore) -> bool:
        return self._files.lacks(moved)

    def begin(self, moved: MovedStore | None, ended: Answer) -> None:
        self._ended = ended
        if moved is None:
            self.fire(EmptyEvent.GO_ON)
        else:
            self.fire(EmptyEvent.BEGIN, moved)

    def close(self) -> None:
        self.fire(EmptyEvent.CLOSE)

    # --- steps -------------------------------------------------------------------------------------

    def _run(self, work: Callable[[], None]) -> None:
        begun = self._round

        def done(error: BaseException | None) -> None:
            if begun == self._round:
                self._done(error)

        self._worker.run(work, done)

    def _done(self, error: BaseException | None) -> None:
        if error is None:
            self.fire(EmptyEvent.DONE)
        else:
            self.fire(EmptyEvent.FAILED, failure_of(self._files.path, error))

    def _note(self, moved: MovedStore) -> None:
        self._run(lambda: self._files.note(moved))

    def _set_aside(self) -> None:
        self._run(self._files.set_aside)

    def _begin_store(self) -> None:
        self._run(self._files.begin_store)

    def _number(self) -> None:
        begun, noted = self._round, self._files.noted()
        assert noted is not None

        def written(error: BaseException | None) -> None:
            if begun == self._round:
                self._done(error)

        self._local.write(noted, written)

    def _clear(self) -> None:
        self._run(self._files.remove_note)

    def _end(self) -> None:
        log.info("the node begins with an empty store", extra={"sequence": self._local.value})
        self._ended(None)

    def _fail(self, error: BrokerError) -> None:
        self._ended(error)

    def _forget(self) -> None:
        self._round += 1

    TABLE = table(
        EmptyState,
        EmptyEvent,
        {
            (_S.IDLE, _E.BEGIN): To(_S.NOTING, _note),
            (_S.IDLE, _E.GO_ON): To(_S.SETTING_ASIDE, _set_aside),
            (_S.NOTING, _E.DONE): To(_S.SETTING_ASIDE, _set_aside),
            (_S.SETTING_ASIDE, _E.DONE): To(_S.BEGINNING, _begin_store),
            (_S.BEGINNING, _E.DONE): To(_S.NUMBERING, _number),
            (_S.NUMBERING, _E.DONE): To(_S.CLEARING, _clear),
            (_S.CLEARING, _E.DONE): To(_S.IDLE, _end),
            (_S.NOTING, _E.FAILED): To(_S.IDLE, _fail),
            (_S.SETTING_ASIDE, _E.FAILED): To(_S.IDLE, _fail),
            (_S.BEGINNING, _E.FAILED): To(_S.IDLE, _fail),
            (_S.NUMBERING, _E.FAILED): To(_S.IDLE, _fail),
            (_S.CLEARING, _E.FAILED): To(_S.IDLE, _fail),
            (_S.NOTING, _E.CLOSE): To(_S.IDLE, _forget),
            (_S.SETTING_ASIDE, _E.CLOSE): To(_S.IDLE, _forget),
            (_S.BEGINNING, _E.CLOSE): To(_S.IDLE, _forget),
            (_S.NUMBERING, _E.CLOSE): To(_S.IDLE, _forget),
            (_S.CLEARING, _E.CLOSE): To(_S.IDLE, _forget),
        },
        otherwise={
            _E.BEGIN: ILLEGAL,
            _E.GO_ON: ILLEGAL,
            _E.DONE: ILLEGAL,
            _E.FAILED: ILLEGAL,
            _E.CLOSE: IGNORED,
        },
    )
