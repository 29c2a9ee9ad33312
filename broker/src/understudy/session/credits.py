"""Credits of producers (artemis-core s. 6.2), in bytes: granted as requested as long as the address is not full.

Credits of consumers are in ``routing.queues.flow_control``.
"""

from __future__ import annotations

from typing import Final

#: Most producer credits in one packet, whose field is an i32.
PRODUCER_CREDITS_MAX: Final = (1 << 31) - 1


class ProducerCredits:
    """Credits of one session for one address."""

    __slots__ = ("granted_bytes", "used_bytes")

    def __init__(self) -> None:
        self.granted_bytes = 0
        self.used_bytes = 0
