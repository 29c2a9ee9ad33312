"""The port to the encoding of AMQP 0-9-1 in messages, which ``protocols.amqp091`` implements."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from understudy.dataclass import dataclass
from understudy.message import Message


class Reason(StrEnum):
    """Why a message became a dead letter, as the header ``x-death`` says it."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAX_LENGTH = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


@dataclass(frozen=True, slots=True)
class Death:
    """How a message left its queue."""

    queue: str
    """Name of the queue without the prefix of its virtual host."""
    reason: Reason
    time_ms: int
    """Wall time."""
    routing_key: str | None
    """Routing key of the dead letter; None: that of the message stays."""
    exchange: str
    """Exchange that gets the dead letter, without the prefix of its virtual host."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, ready to be routed."""

    message: Message
    keys: tuple[str, ...]
    """Routing keys: the first one and those of the headers CC and BCC."""
    headers: Mapping[str, object]
    priority: int
    """Priority in queues with x-max-priority: that of its publisher, and 0 for a message without one."""
    passed: frozenset[str]
    """Names of queues in which it died before, if it was never rejected."""


class Carrier(Protocol):
    """Reads and writes what AMQP 0-9-1 keeps in a message."""

    def arguments(self, table: bytes) -> Mapping[str, object]:
        """The values of the encoded arguments of a binding. Raises ValueError."""
        ...

    def dead_letter(self, message: Message, death: Death) -> DeadLetter:
        """The copy of a message that leaves a queue as a dead letter; without an id."""
        ...
