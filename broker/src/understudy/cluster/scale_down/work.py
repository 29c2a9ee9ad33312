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
    """The work waits until a further message may be sent."""
    CONFIRMED = auto()
    """The work waits until the target has confirmed all sent messages."""
    RECEIVED = auto()
    """The work waits until the target sends a message, and gets it."""
    WRITTEN = auto()
    """The work waits until the log has the record of the target."""
    TURN = auto()
    """The work waits for the next turn of the node."""


Answer = packets.Packet | Message | None
T = TypeVar("T")
Steps = Generator[Ask | Pause, Answer, T]
"""Work with a result."""
