"""Limits of messages per second: producerMaxRate and consumerMaxRate.

Messages are spread evenly; one that comes a little early, within ``_TOLERANCE_MS``, goes at once, so
that a high rate does not need a timer per message. Not here: waiting (the shells).
"""

from __future__ import annotations

from typing import Final

_TOLERANCE_MS: Final = 20.0


class RateLimit:
    """The moment at which the next message of one producer or consumer is due."""

    __slots__ = ("_due_ms", "_interval_ms")

    def __init__(self, per_second: int) -> None:
        """``per_second`` is at least 1."""
        self._interval_ms = 1000 / per_second
        self._due_ms = 0.0

    def delay_ms(self, now_ms: float) -> float:
        """How long the next message has to wait; 0 if it may go now."""
        early_ms = self._due_ms - now_ms
        return early_ms if early_ms > _TOLERANCE_MS else 0.0

    def count(self, now_ms: float) -> None:
        """Count a message that is sent now."""
        self._due_ms = max(self._due_ms, now_ms) + self._interval_ms


def rate_limit(per_second: int) -> RateLimit | None:
    """Make the limit of a producer; None for a rate of 0 or below: no limit."""
    return RateLimit(per_second) if per_second > 0 else None
