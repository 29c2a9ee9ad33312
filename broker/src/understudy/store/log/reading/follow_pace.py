"""When a passive node looks at its log again, and how much of it one step reads.

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
#: Log bytes applied per step, so that a long log does not keep the loop from answering.
FOLLOW_STEP_BYTES: Final = 8 * 1024 * 1024
#: Least and first step of a replica, and the time for which a step should hold its loop at most: clients of the active
#: node wait for answers of the replica meanwhile (ADR 0215).
REPLICA_STEP_BYTES_MIN: Final = 16 * 1024
REPLICA_STEP_S: Final = 0.0005
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
        self.step_bytes = REPLICA_STEP_BYTES_MIN if replica else FOLLOW_STEP_BYTES
        """Log bytes that the next step may apply."""
        self._replica = replica
        self._unlisted_bytes = 0
        """Bytes that were applied since the directory of the log was looked at."""
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

    def goes_on(self) -> bool:
        """Whether the next step may go on without a look at the directory of the log, which takes longer than a short
        step. After as many bytes as a long step has, it may not.
        """
        return 0 < self._unlisted_bytes < FOLLOW_STEP_BYTES

    def polled(self, applied_bytes: int, took_s: float) -> None:
        """Called when a poll has applied so many bytes in a time."""
        goes_on = self._replica and applied_bytes >= self.step_bytes and self._unlisted_bytes < FOLLOW_STEP_BYTES
        self._unlisted_bytes = self._unlisted_bytes + applied_bytes if goes_on else 0
        if self._replica and took_s > REPLICA_STEP_S:
            self.step_bytes = max(self.step_bytes // 2, REPLICA_STEP_BYTES_MIN)
        elif self._replica and took_s < REPLICA_STEP_S / 4 and applied_bytes >= self.step_bytes:
            self.step_bytes = min(2 * self.step_bytes, FOLLOW_STEP_BYTES)
        self.delay_ms = self._busy_ms if applied_bytes else min(2 * self.delay_ms, FOLLOW_IDLE_POLL_MS)
