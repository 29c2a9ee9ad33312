"""Command ids of a session channel with a confirmation window (artemis-core s. 7.1).

Each direction counts its commands from 0. The field is an i32 and long sessions run over it, so ids
are compared by their distance, never by size.
"""

from __future__ import annotations

from typing import Final

_HALF: Final = 1 << 31
_MASK: Final = (1 << 32) - 1


def command_id(count: int) -> int:
    """The id of the command that ``count`` others went before, as an i32."""
    return (count + _HALF & _MASK) - _HALF


def distance(later: int, earlier: int) -> int:
    """How far ``later`` is ahead of ``earlier``; negative when it is behind. Ids or counts."""
    return command_id(later - earlier)
