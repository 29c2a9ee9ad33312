"""Cache of the frames that a client has not confirmed, which are sent again after a reattachment.

Artemis-core s. 7.1. Limited per session and per node: above a limit the oldest frames are dropped, and then the
session can be reattached only by a client that has received those. No message is lost by that: the
client creates a new session, as it does without a confirmation window.

Invariant: the kept frames are the commands ``_first`` to ``_first + len - 1`` of this direction.
"""

from __future__ import annotations

from collections import deque

from understudy.limits import RESEND_BYTES_OF_NODE_MAX, RESEND_BYTES_OF_SESSION_MAX
from understudy.wire.core.commands import distance


class ResendBudget:
    """Bytes kept by all sessions of a node."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class ResendCache:
    """Frames of one session that the client has not confirmed, the oldest first."""

    __slots__ = ("_budget", "_bytes", "_first", "_frames")

    def __init__(self, budget: ResendBudget) -> None:
        self._budget = budget
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._first = 0

    def __len__(self) -> int:
        return len(self._frames)

    def sent(self, frame: bytes) -> None:
        """Add the frame of a counted command, which was sent or is kept for a reattachment."""
        self._frames.append(frame)
        self._bytes += len(frame)
        budget = self._budget
        budget.used_bytes += len(frame)
        while self._frames and (
            self._bytes > RESEND_BYTES_OF_SESSION_MAX or budget.used_bytes > RESEND_BYTES_OF_NODE_MAX
        ):
            self._drop_oldest()

    def confirmed(self, last_received: int) -> None:
        """Drop the frames up to this id; an unknown id is treated as the last one."""
        for _ in range(min(distance(last_received + 1, self._first), len(self._frames))):
            self._drop_oldest()

    def after(self, last_received: int) -> list[bytes] | None:
        """The frames to send again to a client that received everything up to this id (-1 = nothing).

        Returns:
            None if frames after it were dropped, or the id is unknown.
        """
        skipped = distance(last_received + 1, self._first)
        if not 0 <= skipped <= len(self._frames):
            return None
        self.confirmed(last_received)
        return list(self._frames)

    def clear(self) -> None:
        """Drop all frames, when the session has ended."""
        self._budget.used_bytes -= self._bytes
        self._bytes = 0
        self._first += len(self._frames)
        self._frames.clear()

    def _drop_oldest(self) -> None:
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        self._budget.used_bytes -= len(frame)
        self._first += 1
