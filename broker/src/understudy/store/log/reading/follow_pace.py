"""When a passive node looks at its log again.

Not here: reading the log (``follower``).
"""

from __future__ import annotations

from typing import Final

from understudy.store.log.reading.follower import Follower

#: Interval in ms at which a passive node reads what the active one has written.
FOLLOW_POLL_MS: Final = 50
#: Pause between two reads of a replica, whose process also receives and writes the log. Fewer and longer reads take
#: about a third less processor time for a message; a take-over then reads the records of half a second.
REPLICA_FOLLOW_POLL_MS: Final = 500
#: ... and how seldom at most: the time doubles with each poll that finds nothing.
FOLLOW_IDLE_POLL_MS: Final = 1_000
#: Once it polls that seldom, so many looks in a row are ``Follower.quiet``, one request on a network file system, as
#: long as it finds nothing. What only a whole poll finds is therefore found within ten seconds.
FOLLOW_QUIET_LOOKS: Final = 9


class FollowPace:
    """When a passive node looks at its log again, and whether a quick look is enough."""

    def __init__(self, *, replica: bool = False) -> None:
        """Begins as if something had been found.

        Args:
            replica: The log is a copy of this node, not the one that the active node writes.
        """
        self._busy_ms = REPLICA_FOLLOW_POLL_MS if replica else FOLLOW_POLL_MS
        self.delay_ms = self._busy_ms
        """Time until the next look."""
        self._quiet_looks = 0
        """Number of quiet looks in a row."""

    def needs_poll(self, follower: Follower | None) -> bool:
        """Whether the log must be polled now; False: a quick look has shown that nothing was written."""
        idle = self.delay_ms == FOLLOW_IDLE_POLL_MS and self._quiet_looks < FOLLOW_QUIET_LOOKS
        if idle and follower is not None and follower.quiet():
            self._quiet_looks += 1
            return False
        self._quiet_looks = 0
        return True

    def polled(self, applied_bytes: int) -> None:
        """Called when a poll has applied so many bytes."""
        self.delay_ms = self._busy_ms if applied_bytes else min(2 * self.delay_ms, FOLLOW_IDLE_POLL_MS)
