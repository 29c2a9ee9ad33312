"""Credit of AMQP 0-9-1: limits of deliveries that are not acknowledged, of a consumer and of its channel, and the time
for which they may be outstanding.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from understudy.limits import AMQP091_UNACKNOWLEDGED_MAX
from understudy.routing.queues.flow_control import UNLIMITED, FlowControl, MessageCredits

#: Parts of the time limit after which a new mark is made: deliveries are found that long after their time at most.
_MARKS: Final = 30


class Overdue:
    """Finds the deliveries of a channel that are outstanding for too long.

    A delivery does not keep its time: at intervals the last delivery tag is noted, and everything up to it was
    delivered before.
    """

    __slots__ = ("_marks", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        """``timeout_ms``: longest time in which a delivery has to be settled; 0: no limit."""
        self.timeout_ms = timeout_ms
        self._marks: deque[tuple[int, int]] = deque()
        """Times, and the last delivery tag at each of them."""

    def found(self, now_ms: int, last_tag: int, oldest_tag: int | None) -> bool:
        """Whether the oldest delivery has been outstanding for too long.

        Args:
            now_ms: Monotonic time; calls come at intervals that are short beside the limit.
            last_tag: Tag of the last delivery.
            oldest_tag: Tag of the oldest delivery that is not settled; None: there is none.
        """
        if not self.timeout_ms:
            return False
        if oldest_tag is None:
            self._marks.clear()
            return False
        marks = self._marks
        if not marks or now_ms - marks[-1][0] >= self.timeout_ms // _MARKS:
            marks.append((now_ms, last_tag))
        while marks and marks[0][1] < oldest_tag:
            marks.popleft()
        return bool(marks) and now_ms - marks[0][0] >= self.timeout_ms


class Prefetch:
    """Limit of a channel (basic.qos with ``global``), and the number of its deliveries."""

    __slots__ = ("limit", "unacknowledged")

    def __init__(self) -> None:
        self.limit = AMQP091_UNACKNOWLEDGED_MAX
        self.unacknowledged = 0

    def set(self, count: int) -> None:
        """Take the limit of basic.qos; 0: none of the client."""
        self.limit = min(count or AMQP091_UNACKNOWLEDGED_MAX, AMQP091_UNACKNOWLEDGED_MAX)


class ConsumerPrefetch(FlowControl):
    """Credit of a consumer that acknowledges its deliveries."""

    __slots__ = ("_channel", "_limit", "_unacknowledged", "alone")

    counts_bytes = False

    def __init__(self, channel: Prefetch, limit: int, *, alone: bool = False) -> None:
        """Args:
        channel: Limit of its channel, which holds too.
        limit: Deliveries of the consumer that are not acknowledged; 0: only the channel limits them.
        alone: Whether no other consumer may read its queue.
        """
        self._channel = channel
        self._limit = limit or UNLIMITED
        self._unacknowledged = 0
        self.alone = alone

    @property
    def credits(self) -> int:  # computed from two limits
        """Messages that may still be delivered."""
        return min(self._limit - self._unacknowledged, self._channel.limit - self._channel.unacknowledged)

    @credits.setter  # noqa: A003  # the name that every consumer has for it
    def credits(self, value: int) -> None:
        delivered = self.credits - value
        self._unacknowledged += delivered
        self._channel.unacknowledged += delivered

    def settled(self, count: int) -> None:
        """Deliveries were acknowledged or returned."""
        self._unacknowledged -= count
        self._channel.unacknowledged -= count

    def release(self) -> None:
        """The consumer has ended with its deliveries."""
        self.settled(self._unacknowledged)

    def grant(self, amount: int) -> None:
        """Do nothing: acknowledgements give credit."""


class Unlimited(FlowControl):
    """Credit of a consumer whose deliveries need no acknowledgement: the socket limits it."""

    __slots__ = ("alone",)

    counts_bytes = False
    settles = True

    def __init__(self, *, alone: bool = False) -> None:
        """``alone``: whether no other consumer may read its queue."""
        super().__init__()
        self.credits = UNLIMITED
        self.alone = alone

    def grant(self, amount: int) -> None:
        """Do nothing: the credit is not limited."""


class OneMessage(MessageCredits):
    """Credit of basic.get."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.credits = 1


class OneSettledMessage(OneMessage):
    """Credit of basic.get without an acknowledgement."""

    __slots__ = ()

    settles = True
