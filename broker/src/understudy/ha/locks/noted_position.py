"""The position of a store at the lock manager: how far every copy goes that may be the newest.

A node whose whole instance is put back from a snapshot has old notes as well, so nothing on its host shows that its log
was longer. The node that holds the lock therefore notes the end of its log at the lock manager, every
``NOTE_POSITION_MS`` while there is something new and when it stops; with a replica in sync only as far as the replica
has it on its disk (``OperationContext.everywhere``). Both numbers, epoch and sequence, are lower bounds of every copy
with the present activation sequence and never fall in the life of a store, and a reader compares each by itself. So it
does not matter which of the two is written first, or that a write is lost: the comparison is less strict then, and
never refuses a copy that has everything. Only the holder of the lock writes; a write that comes late, after the next
holder has written, can only be lower. ADR 0118.

Not here: the comparison (``store.seen``), and when an activation makes it (``runtime.replica.replication``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, ClassVar, Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ha.locks.distributed_lock import DistributedNumber, LockManager, Request
from understudy.machine import ILLEGAL, Machine, To, table
from understudy.ports import Timer, Timers

log = logging.getLogger(__name__)

#: Pause between two notes. A kill leaves confirmations of that time without a note.
NOTE_POSITION_MS: Final = 3_000
#: Longest time that a node waits for its last note when it stops.
LAST_NOTE_MS: Final = 1_000
#: The ids of the two numbers are the node id with these ends.
EPOCH_SUFFIX: Final = ".position-epoch"
SEQUENCE_SUFFIX: Final = ".position-sequence"


def is_position(number_id: str) -> bool:
    """Whether an id is that of a number of a position, and not of an activation sequence."""
    return number_id.endswith((EPOCH_SUFFIX, SEQUENCE_SUFFIX))


@dataclass(frozen=True, slots=True)
class NotedPosition:
    """How far a log goes. Zeros: nothing was noted."""

    epoch: int = 0
    sequence: int = 0


class PositionNumbers:
    """The two numbers of a store at its lock manager."""

    def __init__(self, manager: LockManager, node_id: str) -> None:
        """Args:
        manager: Lock manager, which is available; this node holds the lock.
        """
        self.name = manager.name
        """The name of the lock manager, for errors."""
        self._epoch = manager.number(node_id + EPOCH_SUFFIX)
        self._sequence = manager.number(node_id + SEQUENCE_SUFFIX)

    def get(self, answer: Callable[[NotedPosition | BrokerError], None]) -> None:
        """Read both numbers."""

        def epoch_read(epoch: int | BrokerError) -> None:
            if isinstance(epoch, BrokerError):
                answer(epoch)
                return

            def sequence_read(sequence: int | BrokerError) -> None:
                answer(sequence if isinstance(sequence, BrokerError) else NotedPosition(epoch, sequence))

            self._sequence.get(sequence_read)

        self._epoch.get(epoch_read)

    def changes(self, before: NotedPosition | None, position: NotedPosition) -> list[tuple[DistributedNumber, int]]:
        """The numbers to be set. ``before``: as they are; None: unknown."""
        found = []
        if before is None or before.epoch != position.epoch:
            found.append((self._epoch, position.epoch))
        if before is None or before.sequence != position.sequence:
            found.append((self._sequence, position.sequence))
        return found


class NotesState(Enum):
    """States of the notes of one node."""

    CLOSED = auto()
    """The store is closed, so no position can be noted."""
    RESTING = auto()
    """The next note follows soon."""
    WRITING = auto()
    FINISHING = auto()
    """The store is closed: its end is noted, and the caller waits for it."""


class NotesEvent(Enum):
    """Events of the notes of one node."""

    OPEN = auto()
    """The activation has ended: the position is noted from now on. Its argument is the function that gives the
    position.
    """
    DUE = auto()
    WRITTEN = auto()
    """The lock manager has answered a note. Its argument is the error; None: the note is written."""
    FINISH = auto()
    """The undo of the activation has ended: the last position is noted. Its argument is called after that."""
    EXPIRED = auto()
    """The last note was not written in time."""


_S, _E = NotesState, NotesEvent


class PositionNotes(Machine[NotesState, NotesEvent]):
    """Notes the position of the store of one node, from the end of an activation to the end of its undo."""

    STATES: ClassVar[type[Enum]] = NotesState
    EVENTS: ClassVar[type[Enum]] = NotesEvent
    INITIAL: ClassVar[Enum] = NotesState.CLOSED

    def __init__(self, numbers: Callable[[], PositionNumbers | None], timers: Timers) -> None:
        """Nothing is noted before ``open``.

        Args:
            numbers: The numbers of the present store; None: there is no lock manager, or its lock is not held.
        """
        super().__init__()
        self._numbers = numbers
        self._timers = timers
        self._position: Callable[[], NotedPosition] = NotedPosition
        self._noted: NotedPosition | None = None
        """The position that the numbers of the lock manager hold; None while it is unknown."""
        self._request: Request | None = None
        self._timer: Timer | None = None
        self._finished: Callable[[], None] | None = None
        self._failed = False

    @property
    def noted(self) -> NotedPosition | None:
        """The position that the lock manager keeps; None: it is unknown, or there is no lock manager."""
        return self._noted

    def open(self, position: Callable[[], NotedPosition]) -> None:
        """Note the position from now on.

        Args:
            position: The highest one that every copy has which may be the newest.
        """
        self.fire(NotesEvent.OPEN, position)

    def finish(self, finished: Callable[[], None]) -> None:
        """Note the position a last time, then call; at once if nothing is noted."""
        self.fire(NotesEvent.FINISH, finished)

    # --- actions -------------------------------------------------------------------------------------

    def _begin(self, position: Callable[[], NotedPosition]) -> None:
        self._position, self._noted = position, None
        self._write()

    def _write_again(self) -> None:
        self._timer = None
        self._write()

    def _write(self) -> None:
        numbers = self._numbers()
        if numbers is None:
            self.fire(NotesEvent.WRITTEN, None)
            return
        position = self._position()
        self._set(numbers.changes(self._noted, position), position)

    def _set(self, changes: list[tuple[DistributedNumber, int]], position: NotedPosition) -> None:
        """Set the first of the numbers, then the others."""
        if not changes:
            self._noted, self._failed = position, False
            self.fire(NotesEvent.WRITTEN, None)
            return
        number, value = changes[0]

        def changed(error: BrokerError | None) -> None:
            self._request = None
            if error is not None:
                self.fire(NotesEvent.WRITTEN, error)
            else:
                self._set(changes[1:], position)

        self._request = number.set(value, changed)

    def _rest(self, error: BrokerError | None) -> None:
        if error is not None:
            self._noted = None
            if not self._failed:
                log.warning("the lock manager does not note the position of the store", extra={"error": str(error)})
            self._failed = True
        self._timer = self._timers.call_later(NOTE_POSITION_MS, lambda: self.fire(NotesEvent.DUE))

    def _write_last(self, finished: Callable[[], None]) -> None:
        if self._request is not None:
            # the cancelled write may have been executed or not
            self._request.cancel()
            self._request, self._noted = None, None
        self._forget_timer()
        self._finished = finished
        self._timer = self._timers.call_later(LAST_NOTE_MS, lambda: self.fire(NotesEvent.EXPIRED))
        self._write()

    def _end(self, *outcome: Any) -> None:
        self._forget_timer()
        if self._request is not None:
            self._request.cancel()
            self._request = None
        finished, self._finished = self._finished, None
        assert finished is not None
        finished()

    def _end_at_once(self, finished: Callable[[], None]) -> None:
        finished()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    TABLE = table(
        NotesState,
        NotesEvent,
        {
            (_S.CLOSED, _E.OPEN): To(_S.WRITING, _begin),
            (_S.CLOSED, _E.FINISH): To(_S.CLOSED, _end_at_once),
            (_S.WRITING, _E.WRITTEN): To(_S.RESTING, _rest),
            (_S.WRITING, _E.FINISH): To(_S.FINISHING, _write_last),
            (_S.RESTING, _E.DUE): To(_S.WRITING, _write_again),
            (_S.RESTING, _E.FINISH): To(_S.FINISHING, _write_last),
            (_S.FINISHING, _E.WRITTEN): To(_S.CLOSED, _end),
            (_S.FINISHING, _E.EXPIRED): To(_S.CLOSED, _end),
        },
        otherwise=dict.fromkeys(NotesEvent, ILLEGAL),
    )
