"""Counters of a queue: messages it holds now, and totals since the activation."""

from __future__ import annotations


class QueueCounts:
    """Counts of the messages of one queue."""

    __slots__ = (
        "delivering_count",
        "expiring_count",
        "incoming",
        "message_count",
        "messages_acknowledged",
        "messages_added",
        "messages_expired",
        "messages_killed",
        "messages_replaced",
        "scheduled_count",
    )

    def __init__(self) -> None:
        self.incoming = 0
        """Number of messages that producers have sent and that are not visible yet: not written, or in a
        transaction."""
        self.message_count = 0
        """Messages of the queue: pending, scheduled, or with a consumer."""
        self.delivering_count = 0
        """Messages of ``message_count`` that consumers or their transactions have."""
        self.scheduled_count = 0
        """Messages of ``message_count`` whose time has not come."""
        self.expiring_count = 0
        """Messages of ``message_count`` that have an expiration."""
        self.messages_added = 0
        self.messages_acknowledged = 0
        self.messages_expired = 0
        self.messages_killed = 0
        self.messages_replaced = 0
        """Messages that were replaced by a newer last value, or by a newer message of a ring."""
