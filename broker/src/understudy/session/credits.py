"""Credits: how many bytes a consumer may still be sent, and a producer may still send.

Consumer credits (artemis-core s. 6.3) are charged whole frames and may fall below zero by one message.
Producer credits (artemis-core s. 6.2) are given as asked as long as the address has room.
"""

from __future__ import annotations

from typing import Final

#: Balance of a consumer with an unlimited window; no amount of messages uses it up.
UNLIMITED: Final = 1 << 62
#: Highest balance by additions, so that a peer cannot count itself into another meaning.
CREDITS_MAX: Final = 1 << 40

#: Most producer credits in one packet, whose field is an i32.
PRODUCER_CREDITS_MAX: Final = (1 << 31) - 1


def credited(balance: int, credit_bytes: int) -> int:
    """The balance after a FLOWTOKEN: -1 unlimited, 0 none, n more."""
    if credit_bytes == -1:
        return UNLIMITED
    if credit_bytes == 0:
        return 0
    if balance >= UNLIMITED - CREDITS_MAX:
        return balance
    return min(balance + max(credit_bytes, 0), CREDITS_MAX)


class ProducerCredits:
    """What one session was granted and used for one address."""

    __slots__ = ("granted_bytes", "used_bytes")

    def __init__(self) -> None:
        self.granted_bytes = 0
        self.used_bytes = 0
