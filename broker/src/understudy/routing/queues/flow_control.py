"""Flow control of a consumer: how much it may still be sent, in bytes or in messages.

A consumer waits while its credit is not above zero. ``counts_bytes`` says what a delivery costs: the bytes of its
frames, or one for each message. The consumer subtracts the cost in place, because that is done for every delivery.

Not here: whether the socket keeps up (``Consumer.writable``), credits of producers (``session.send_requests``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

#: Credit of an unlimited consumer; no number of deliveries uses it up.
UNLIMITED: Final = 1 << 62
#: Maximum credit, so that no sum of grants becomes ``UNLIMITED``.
CREDITS_MAX: Final = 1 << 40


class FlowControl(ABC):
    """Credit of one consumer."""

    __slots__ = ("credits",)

    counts_bytes: ClassVar[bool]
    """Whether credit is in bytes; otherwise in messages."""
    settles: ClassVar[bool] = False
    """Whether messages are acknowledged when they are delivered."""

    def __init__(self) -> None:
        self.credits = 0

    @abstractmethod
    def grant(self, amount: int) -> None:
        """The client grants credit, as its protocol defines it."""

    def drain(self) -> int:
        """Take back unused credit. Returns how much it was."""
        unused, self.credits = max(self.credits, 0), 0
        return unused


class ByteCredits(FlowControl):
    """Credit in bytes of whole frames; may fall below zero by one message (artemis-core s. 6.3)."""

    __slots__ = ()

    counts_bytes = True

    def grant(self, amount: int) -> None:
        """A FLOWTOKEN: -1 makes the credit unlimited, 0 takes it back, a positive number is added."""
        if amount == -1:
            self.credits = UNLIMITED
        elif amount == 0:
            self.credits = 0
        elif self.credits < UNLIMITED - CREDITS_MAX:
            self.credits = min(self.credits + max(amount, 0), CREDITS_MAX)


class MessageCredits(FlowControl):
    """Credit in messages (AMQP 1.0 s. 2.6.7: link credit; MQTT 5 s. 4.9: receive maximum)."""

    __slots__ = ()

    counts_bytes = False

    def grant(self, amount: int) -> None:
        """Set the number of messages that may be sent from now on; a negative number counts as 0."""
        self.credits = min(max(amount, 0), CREDITS_MAX)
