"""Durations of batches, counted by upper bounds: what a histogram of the metrics is made of.

A batch is counted once, whatever its number of messages. The code that counts is written out where it is used: a call
would be a part of the path of a single message (``benchmarks calls``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

#: Upper bounds, in nanoseconds: 50 microseconds to 10 seconds.
BOUNDS_NS: Final = tuple(
    number * unit
    for unit, numbers in (
        (1_000, (50, 100, 200, 500)),
        (1_000_000, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000_000_000, (1, 2, 5, 10)),
    )
    for number in numbers
)


class Durations:
    """Counts of durations."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        """Nothing was counted yet."""
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        """Durations of at most ``BOUNDS_NS``, each counted at the smallest bound; the last count is of longer ones."""
        self.total_ns = 0
        """Sum of the durations. Nanoseconds."""

    def add(self, took_ns: int) -> None:
        """Count a duration, in nanoseconds. For code that is not on the path of a message."""
        self.counts[bisect_left(BOUNDS_NS, took_ns)] += 1
        self.total_ns += took_ns


class Confirmations(Durations):
    """Times from the hand-over of a batch to the writer until everything that waits for it is released.

    One batch is measured at a time: with a replica several batches may be under way, and those that begin while one
    is measured are not counted.
    """

    __slots__ = ("began_ns", "now_ns", "sequence")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """No batch is measured.

        Args:
            now_ns: Monotonic time.
        """
        super().__init__()
        self.now_ns = now_ns
        self.sequence = 0
        """Last sequence of the batch that is measured; 0: none is."""
        self.began_ns = 0
        """Time at which that batch was handed over."""


class StoreTimes:
    """Durations of the batches of a node, in all of its activations."""

    __slots__ = ("confirmations", "writes")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """Nothing was counted yet.

        Args:
            now_ns: Monotonic time.
        """
        self.confirmations = Confirmations(now_ns)
        self.writes = Durations()
        """Writes of batches with their sync, by all log writers."""
