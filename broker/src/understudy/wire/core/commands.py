"""Command ids of a session channel with a confirmation window (artemis-core s. 7.1).

Each direction counts its commands from 0. The field is an i32 and overflows in long sessions, so ids
are compared by their distance, never by value.
"""

from __future__ import annotations

from typing import Final

_HALF: Final = 1 << 31
_MASK: Final = (1 << 32) - 1


def command_id(count: int) -> int:
    """The id of the command that ``count`` others preceded, as an i32."""
    return (count + _HALF & _MASK) - _HALF


def distance(later: int, earlier: int) -> int:
    """Number of commands from ``earlier`` to ``later``, both ids or counts; negative in the other order."""
    return command_id(later - earlier)
