"""The life of a follower: where reading begins, reading, and the end of the log.

A follower first looks for a snapshot to begin with and loads it, else it begins with the first segment of the log.
Then it applies records until it has reached the end of the readable ones; each poll may find more. When the log turns
out to be another one than was read, it begins again.

Not here: reading (``follower``), which segments form the log (``chain``).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from understudy.machine import IGNORED, ILLEGAL, Machine, To, table


class FollowerState(Enum):
    """States of a follower."""

    SEARCHING = auto()
    """The place where reading begins is not decided."""
    EMPTY = auto()
    """The log had no segment at the last poll."""
    LOADING = auto()
    """A snapshot is being read."""
    READING = auto()
    """The follower applies records; the log may have more of them."""
    CAUGHT_UP = auto()
    """All readable records are applied."""
    ENDED = auto()
    """The end of the log is decided, with the lock of the store held."""


class FollowerEvent(Enum):
    """Events of the machine."""

    READ = auto()
    """The follower is polled: it reads the next bytes."""
    SNAPSHOT_FOUND = auto()
    NO_SNAPSHOT = auto()
    """No snapshot can be used; the log has a segment."""
    SNAPSHOT_LOADED = auto()
    CLOSE = auto()
    """The open files are closed."""
    END_REACHED = auto()
    """No further record is readable."""
    END_DECIDED = auto()
    """Only a torn batch, or nothing, follows the last record."""
    RESTART = auto()
    """Records that were applied are not, or no longer, part of the log."""


class RestartableFollower(Protocol):
    """Interface of the follower for its life."""

    def drop_snapshot(self) -> None:
        """Close the snapshot that is being read, and forget its content."""
        ...

    def begin_again(self) -> None:
        """Forget everything that was read."""
        ...


_S, _E = FollowerState, FollowerEvent


class FollowerLife(Machine[FollowerState, FollowerEvent]):
    """Declared machine of the states of one follower."""

    STATES = FollowerState
    EVENTS = FollowerEvent
    INITIAL = FollowerState.SEARCHING

    def __init__(self, follower: RestartableFollower) -> None:
        super().__init__()
        self._follower = follower

    def _drop_snapshot(self) -> None:
        self._follower.drop_snapshot()

    def _begin_again(self) -> None:
        self._follower.begin_again()

    TABLE = table(
        FollowerState,
        FollowerEvent,
        {
            (_S.SEARCHING, _E.SNAPSHOT_FOUND): To(_S.LOADING),
            (_S.SEARCHING, _E.NO_SNAPSHOT): To(_S.READING),
            (_S.SEARCHING, _E.END_REACHED): To(_S.EMPTY),
            (_S.EMPTY, _E.READ): To(_S.SEARCHING),
            (_S.EMPTY, _E.END_DECIDED): IGNORED,
            (_S.LOADING, _E.SNAPSHOT_LOADED): To(_S.READING),
            # a part of a snapshot is of no use: it is read from its beginning again
            (_S.LOADING, _E.CLOSE): To(_S.SEARCHING, _drop_snapshot),
            (_S.READING, _E.END_REACHED): To(_S.CAUGHT_UP),
            (_S.READING, _E.END_DECIDED): To(_S.ENDED),
            (_S.CAUGHT_UP, _E.READ): To(_S.READING),
            (_S.CAUGHT_UP, _E.END_DECIDED): To(_S.ENDED),
            # the activation has failed, and the node follows again
            (_S.ENDED, _E.READ): To(_S.READING),
            (_S.SEARCHING, _E.RESTART): To(_S.SEARCHING, _begin_again),
            (_S.EMPTY, _E.RESTART): To(_S.SEARCHING, _begin_again),
            (_S.LOADING, _E.RESTART): To(_S.SEARCHING, _begin_again),
            (_S.READING, _E.RESTART): To(_S.SEARCHING, _begin_again),
            (_S.CAUGHT_UP, _E.RESTART): To(_S.SEARCHING, _begin_again),
            (_S.ENDED, _E.RESTART): To(_S.SEARCHING, _begin_again),
        },
        otherwise={
            _E.READ: IGNORED,
            _E.SNAPSHOT_FOUND: ILLEGAL,
            _E.NO_SNAPSHOT: ILLEGAL,
            _E.SNAPSHOT_LOADED: ILLEGAL,
            _E.CLOSE: IGNORED,
            _E.END_REACHED: ILLEGAL,
            _E.END_DECIDED: ILLEGAL,
        },
    )
