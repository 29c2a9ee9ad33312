"""Work on one connection to the target, written as a generator: it yields a wait, and goes on with the answer."""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from typing import TypeVar

from understudy.dataclass import dataclass
from understudy.message import Message
from understudy.wire.core import packets


@dataclass(frozen=True, slots=True)
class Ask:
    """Waits for the answer of the target to a request."""

    packet: packets.Packet
    expected: tuple[type[packets.Packet], ...]
    of_cluster: bool = False
    """On the channel between brokers, not on that of the session."""


class Pause(Enum):
    """Waits without a request."""

    ROOM = auto()
    """Until a further message may be sent."""
    CONFIRMED = auto()
    """Until the target has everything that was sent."""
    RECEIVED = auto()
    """Until the target sends a message; goes on with it."""
    WRITTEN = auto()
    """Until the record of the target is in the log."""
    TURN = auto()
    """Until other work of the node had its turn."""


Answer = packets.Packet | Message | None
T = TypeVar("T")
Steps = Generator[Ask | Pause, Answer, T]
"""Work with a result."""
