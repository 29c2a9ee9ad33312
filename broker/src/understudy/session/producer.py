"""A producer that a client registered (CREATE_PRODUCER): a number and its address, for management.

Sends name their address themselves; clients do not register producers again after a failover, so a
send of an unknown producer is as good as any (artemis-core s. 4.3).
"""

from __future__ import annotations

from understudy.dataclass import dataclass


@dataclass(slots=True)
class ServerProducer:
    """One registered producer."""

    producer_id: int
    address: str | None
    """None = anonymous, every message names its own."""
    created_ms: int = 0
    """Wall time."""
