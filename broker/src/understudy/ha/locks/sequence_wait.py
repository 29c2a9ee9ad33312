"""Waits until another node has activated (artemis-ha s. 4.4): a node that has failed back sees the sequence go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.errors import BrokerError
from understudy.ha.locks.distributed_lock import DistributedNumber, Request
from understudy.ha.locks.sequence_verdict import claim_of
from understudy.ports import Clock, Timer, Timers

#: Pause between two readings of the number.
LOOK_AGAIN_MS: Final = 200


class NextSequence:
    """Waits for a number beyond a given one. Implements ``ha.locks.distributed_lock.Request``."""

    def __init__(
        self,
        number: DistributedNumber,
        after: int,
        limit_ms: int,
        clock: Clock,
        timers: Timers,
        answer: Callable[[bool | BrokerError], None],
    ) -> None:
        """The first reading begins at once.

        Args:
            number: The activation sequence.
            after: Sequence of this node.
            limit_ms: Time after which the answer is False.
            clock: Boot time.
            answer: Gets whether a later sequence was committed; False also once a claim on this one was taken back,
                because the activation of the other node has failed.
        """
        self._number = number
        self._after = after
        self._until_ms = clock.monotonic_ms() + limit_ms
        self._clock = clock
        self._timers = timers
        self._answer = answer
        self._timer: Timer | None = None
        self._request: Request | None = None
        self._claimed = False
        """Whether another node has claimed the next sequence."""
        self._read()

    def cancel(self) -> None:
        """End the wait without an answer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None:
            self._request.cancel()

    def _read(self) -> None:
        self._timer = None
        self._request = self._number.get(self._was_read)

    def _was_read(self, number: int | BrokerError) -> None:
        self._request = None
        if isinstance(number, BrokerError):
            self._answer(number)
            return
        claim = claim_of(number)
        if (number if claim is None else claim.base) > self._after:
            self._answer(True)
        elif self._clock.monotonic_ms() >= self._until_ms or (self._claimed and claim is None):
            self._answer(False)
        else:
            self._claimed = claim is not None
            self._timer = self._timers.call_later(LOOK_AGAIN_MS, self._read)
