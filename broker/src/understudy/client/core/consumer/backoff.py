"""Delays between the deliveries of a message whose work fails."""

from __future__ import annotations

from understudy.dataclass import dataclass

#: Exponent from which on a factor above 1 has reached every longest delay that makes sense.
_EXPONENT_MAX = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing delays: the first one, multiplied by the factor after each further delivery, at most the longest."""

    first_s: float = 1.0
    """Delay after the first delivery, seconds."""
    factor: float = 2.0
    """Factor from each delay to the next."""
    longest_s: float = 300.0
    """Longest delay, seconds."""

    def __post_init__(self) -> None:
        """Check the values. Raises ValueError: a delay below zero, or a factor below 1."""
        if self.first_s < 0 or self.longest_s < 0 or not self.factor >= 1:
            raise ValueError(f"{self!r}: delays of 0 or more and a factor of 1 or more are wanted")

    def delay_s(self, delivery_count: int) -> float:
        """The delay before the next delivery.

        Args:
            delivery_count: Deliveries of the message so far, the present one included.

        Returns:
            Seconds.

        Failover and concurrency: a function of its argument.
        """
        return min(self.longest_s, self.first_s * self.factor ** min(max(delivery_count - 1, 0), _EXPONENT_MAX))


def delay_after(delay_s: float | Backoff | None, delivery_count: int) -> float | None:
    """The delay of a message that is given back after so many deliveries; None for that of its address settings."""
    return delay_s.delay_s(delivery_count) if isinstance(delay_s, Backoff) else delay_s
