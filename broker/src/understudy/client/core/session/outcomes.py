"""Ends of a delivery other than its acknowledgement, as an application asks for them (ADR 0143).

Not here: what a broker does for each (``session.outcomes``).
"""

from __future__ import annotations

from understudy.dataclass import dataclass
from understudy.limits import SETTLE_DELAY_MS_MAX
from understudy.wire.core.packets import Settle, Settlement


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a delivery."""

    settlement: Settlement
    delay_ms: int | None = None
    """Time until the message is delivered again; None for that of the address settings."""
    undeliverable_here: bool = False
    """Do not deliver the message to this consumer again."""

    @property
    def needs_understudy(self) -> bool:
        """Whether only Understudy can do it: CORE has one request that gives messages back, for a whole session."""
        return self.settlement is not Settlement.FAIL or self.delay_ms is not None or self.undeliverable_here

    def packet(self, consumer_id: int, message_id: int, *, requires_response: bool) -> Settle:
        """Packet that requests the outcome for one delivery."""
        delay_ms = -1 if self.delay_ms is None else self.delay_ms
        return Settle(
            consumer_id, message_id, int(self.settlement), requires_response, self.undeliverable_here, delay_ms
        )


def rejection(*, requeue: bool, delay_s: float | None) -> Outcome:
    """The outcome of ``reject``.

    Raises:
        ValueError: a delay below zero or above ten years, or of a message that is not given back.
    """
    if not requeue:
        if delay_s is not None:
            raise ValueError("a message that goes to the dead letter address has no delay")
        return Outcome(Settlement.REJECT)
    return Outcome(Settlement.FAIL, _delay_ms(delay_s))


def modification(*, delivery_failed: bool, undeliverable_here: bool, delay_s: float | None) -> Outcome:
    """The outcome of ``modified``.

    Raises:
        ValueError: a delay below zero or above ten years.
    """
    settlement = Settlement.FAIL if delivery_failed else Settlement.RELEASE
    return Outcome(settlement, _delay_ms(delay_s), undeliverable_here)


def _delay_ms(delay_s: float | None) -> int | None:
    if delay_s is None:
        return None
    if not 0 <= delay_s <= SETTLE_DELAY_MS_MAX / 1000:
        raise ValueError(f"delay of {delay_s} s: 0 to {SETTLE_DELAY_MS_MAX // 1000}")
    return round(delay_s * 1000)
