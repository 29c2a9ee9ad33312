"""How far a replica in sync is (artemis-ha s. 3.9)."""

from __future__ import annotations

from collections import deque

from understudy.errors import ReplicaFailed


class ReplicaProgress:
    """The submissions that were sent to a replica and that it has not executed."""

    def __init__(self, now_ms: int) -> None:
        """Begin without submissions.

        Args:
            now_ms: Monotonic time.
        """
        self.sent = 0
        """Index of the last submission that was sent."""
        self.executed = 0
        """Index of the last one that is executed durably."""
        self.behind_bytes = 0
        """Bytes of the submissions that were sent and not yet executed by the replica."""
        self._behind: deque[tuple[int, int]] = deque()
        self._since_ms = now_ms
        """Time at which the replica last made progress, or had nothing to do."""

    @property
    def finished(self) -> bool:
        """Whether the replica has executed every submission."""
        return self.executed == self.sent

    def add(self, index: int, size_bytes: int, now_ms: int) -> None:
        """Called when a submission was sent."""
        if self.finished:
            self._since_ms = now_ms
        self.sent = index
        self._behind.append((index, size_bytes))
        self.behind_bytes += size_bytes

    def report(self, received: int, durable: int, now_ms: int) -> None:
        """Called when the replica has reported.

        Args:
            received: Index of the last submission in its memory.
            durable: Index of the last one that is executed durably.
            now_ms: Monotonic time.

        Raises:
            ReplicaFailed: the numbers are impossible.
        """
        if not self.executed <= durable <= received <= self.sent:
            raise ReplicaFailed(f"progress {received}, {durable} after {self.executed} of {self.sent}")
        self.executed = durable
        self._since_ms = now_ms
        while self._behind and self._behind[0][0] <= durable:
            self.behind_bytes -= self._behind.popleft()[1]

    def silent_ms(self, now_ms: int) -> int:
        """Milliseconds without progress of the replica; 0 if it has nothing to do."""
        return 0 if self.finished else now_ms - self._since_ms
