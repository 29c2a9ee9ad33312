"""Whether an active node may serve: its lock is provably held, or its replica has promised not to take over (ADR 0116).

While the lock manager renews the lock in time nothing is promised, so a replica takes over at once from an active node
that was killed. When a renewal is late, the active node asks its replica in sync for a promise of ``PROMISE_MS``, and
again as long as the renewal is late. When the lock is not provably held any more, the node serves until the end of the
last promise, and acquires the lock again meanwhile. The node ends when neither stands, or when the activation sequence
at the lock manager is not its own any more.

The time of a promise counts from before the request was sent, less a margin for clocks of different rates, so that it
ends here before it ends at the replica (``given_promise``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar, Final

from understudy.errors import BrokerError, LockLost
from understudy.ha.locks.distributed_lock import DistributedLock
from understudy.ha.replication.ports import ReplicaPromises
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Timer, Timers

log = logging.getLogger(__name__)

#: Length of a promise, as the replica keeps it.
PROMISE_MS: Final = 6_000
#: The active node ends a promise earlier than the replica by this part of it.
MARGIN_DIVISOR: Final = 20
#: Pause between two requests for a promise.
ASK_AGAIN_MS: Final = PROMISE_MS // 4
#: Interval in ms at which the age of the last proof is looked at.
LOOK_MS: Final = 250


class StandingState(Enum):
    """States of the permission of an active node."""

    IDLE = auto()
    """The node is not active."""
    PROVED = auto()
    """The lock is held, and renewed in time."""
    LATE = auto()
    """The lock is held; a renewal is late, and the replica is asked for its promise."""
    PROMISED = auto()
    """The lock is not provably held: the promise of the replica stands in for it."""
    ENDED = auto()
    """The node has lost the lock, and the proof by its replica is not valid any more."""


class StandingEvent(Enum):
    """Events of the permission of an active node."""

    SERVE = auto()
    RENEWAL_LATE = auto()
    RENEWED = auto()
    LOCK_LOST = auto()
    """The lock was lost while a promise is valid. Its argument is the reason."""
    ACQUIRED = auto()
    """The lock was acquired again, and the activation sequence is the same."""
    END = auto()
    """The node must not serve any more: no promise is valid, or another node has newer data. Its argument is the error.

    """
    RELEASE = auto()


_S, _E = StandingState, StandingEvent


class StandingFence:
    """The proof that this node may confirm. Implements ``ports.Fence``; its methods may be called on any thread."""

    def __init__(self, clock: Clock) -> None:
        """Begin without a proof."""
        self._clock = clock
        self.lock: DistributedLock | None = None
        """Acquired lock of the active node."""
        self.promised_until_ms = 0
        """Boot time until which a promise of the replica counts here."""

    @property
    def proved_until_ms(self) -> int:
        lock = self.lock
        return max(self.promised_until_ms, lock.fence.proved_until_ms if lock is not None else 0)

    @property
    def proved_at_ms(self) -> int | None:
        lock = self.lock
        return lock.fence.proved_at_ms if lock is not None else None

    @property
    def promised(self) -> bool:
        """Whether a promise is valid now."""
        return self._clock.monotonic_ms() <= self.promised_until_ms

    def why_not_confirm(self) -> BaseException | None:
        if self.promised:
            return None
        lock = self.lock
        return lock.fence.why_not_confirm() if lock is not None else LockLost("the lock is not held")


class StandingLock(Machine[StandingState, StandingEvent]):
    """The lock of an active node, and the promise of its replica."""

    STATES: ClassVar[type[Enum]] = StandingState
    EVENTS: ClassVar[type[Enum]] = StandingEvent
    INITIAL: ClassVar[Enum] = StandingState.IDLE

    def __init__(
        self, clock: Clock, timers: Timers, sequence: Callable[[], int], acquire_again: Callable[[], None]
    ) -> None:
        """The node is not active.

        Args:
            clock: Boot time.
            timers: Used for the promises and their end.
            sequence: Activation sequence of the data of this node.
            acquire_again: Called when a promise begins to stand in for the lock.
        """
        super().__init__()
        self._clock = clock
        self._timers = timers
        self._sequence = sequence
        self._acquire_again = acquire_again
        self.fence = StandingFence(clock)
        self.replica: ReplicaPromises | None = None
        """The replica in sync."""
        self.since_ms: int | None = None
        """Boot time since which a promise stands in for the lock; None: it does not."""
        self.reason: BrokerError | None = None
        """Reason why the lock was lost."""
        self.lost: Callable[[BrokerError], None] | None = None
        self.proved: Callable[[], None] | None = None
        """Function that is called when the lock, which was lost, is held again."""
        self._timer: Timer | None = None
        self._asked_ms = 0
        self._number = 0
        self._sent: dict[int, int] = {}
        """Boot time of each request without an answer, by its number."""
        self._refused = ""

    # --- called by the authority -----------------------------------------------------------------------

    def serve(self, lost: Callable[[BrokerError], None], proved: Callable[[], None]) -> None:
        """The node serves: ``lost`` is called when neither lock nor promise stands, ``proved`` when the lock is held
        again.
        """
        self.lost, self.proved = lost, proved
        self.fire(StandingEvent.SERVE)

    def lock_lost(self, error: BrokerError) -> None:
        """Called when the lock is not provably held."""
        self.fence.lock = None
        if self.fence.promised:
            self.fire(StandingEvent.LOCK_LOST, error)
        else:
            self.fire(StandingEvent.END, error)

    def refused(self, error: BrokerError) -> None:
        """The activation sequence at the lock manager is another one."""
        self.fire(StandingEvent.END, error)

    def acquired(self, lock: DistributedLock) -> None:
        """The lock is held again; the activation sequence is still that of this node."""
        self.fence.lock = lock
        self.fire(StandingEvent.ACQUIRED)

    def renounce(self) -> None:
        """Count no promise any more: other data may be in sync from now on."""
        self.fence.promised_until_ms = 0
        self._sent.clear()

    def release(self) -> None:
        """Called when the node is not active any more."""
        self.renounce()
        self.fence.lock = None
        self.fire(StandingEvent.RELEASE)

    def promised(self, number: int, refusal: str | None) -> None:
        """The replica has answered a request; ``refusal`` is the reason why it promises nothing."""
        sent_ms = self._sent.pop(number, None)
        if sent_ms is None:
            return
        if refusal is not None:
            if refusal != self._refused:
                log.warning("the replica does not promise to wait", extra={"reason": refusal})
            self._refused = refusal
            return
        self._refused = ""
        until_ms = sent_ms + PROMISE_MS - PROMISE_MS // MARGIN_DIVISOR
        self.fence.promised_until_ms = max(self.fence.promised_until_ms, until_ms)

    # --- the age of the proof ----------------------------------------------------------------------------

    def _begin(self) -> None:
        self._asked_ms = 0
        self._look_later(LOOK_MS)

    def _look_later(self, delay_ms: int) -> None:
        self._forget_timer()
        self._timer = self._timers.call_later(max(1, delay_ms), self._look)

    def _look(self) -> None:
        """Ask for promises while the proof is late, and notice the end of the last promise."""
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        lock = self.fence.lock
        if self._state is StandingState.PROMISED:
            if now_ms > self.fence.promised_until_ms:
                self.fire(StandingEvent.END, self._ended())
                return
        elif lock is not None:
            late = now_ms >= lock.late_from_ms
            if late and self._state is StandingState.PROVED:
                self.fire(StandingEvent.RENEWAL_LATE)
            elif not late and self._state is StandingState.LATE:
                self.fire(StandingEvent.RENEWED)
        if self._state in (StandingState.LATE, StandingState.PROMISED):
            self._ask(now_ms)
        delay_ms = LOOK_MS
        if self._state is StandingState.PROMISED:
            delay_ms = min(delay_ms, self.fence.promised_until_ms - now_ms + 1)
        elif lock is not None and lock.late_from_ms > now_ms:
            delay_ms = min(delay_ms, lock.late_from_ms - now_ms)
        if self._state is not StandingState.ENDED:
            self._look_later(delay_ms)

    def _ask(self, now_ms: int) -> None:
        replica = self.replica
        if replica is None or (self._asked_ms and now_ms - self._asked_ms < ASK_AGAIN_MS):
            return
        self._asked_ms = now_ms
        self._number += 1
        self._sent = {number: sent_ms for number, sent_ms in self._sent.items() if now_ms - sent_ms < PROMISE_MS}
        self._sent[self._number] = now_ms
        replica.ask_promise(self._number, self._sequence(), PROMISE_MS)

    def _ended(self) -> BrokerError:
        reason = f": {self.reason}" if self.reason is not None else ""
        return LockLost(f"the lock is not provably held, and the replica promises no longer to wait{reason}")

    # --- actions ---------------------------------------------------------------------------------------

    def _begin_promised(self, error: BrokerError) -> None:
        self.since_ms, self.reason = self._clock.monotonic_ms(), error
        log.warning(
            "the pair runs on the promise of the replica, without its lock manager", extra={"error": str(error)}
        )
        self._look_later(0)
        self._acquire_again()

    def _prove(self) -> None:
        since_ms, self.since_ms, self.reason = self.since_ms, None, None
        took_ms = self._clock.monotonic_ms() - since_ms if since_ms is not None else 0
        log.info("the lock is held again", extra={"without_ms": took_ms})
        if self.proved is not None:
            self.proved()

    def _late(self) -> None:
        log.info("the lock manager is late: the replica is asked not to take over meanwhile")

    def _end(self, error: BrokerError) -> None:
        self._forget_timer()
        self.fence.lock = None
        self.renounce()
        lost, self.lost, self.proved = self.lost, None, None
        if lost is not None:
            lost(error)

    def _end_idle(self, error: BrokerError) -> None:
        """End the lock before the node serves; ``serve`` notices the end."""

    def _stop(self) -> None:
        self._forget_timer()
        self.lost = self.proved = None
        self.since_ms = self.reason = None

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    TABLE = table(
        StandingState,
        StandingEvent,
        {
            (_S.IDLE, _E.SERVE): To(_S.PROVED, _begin),
            (_S.IDLE, _E.END): To(_S.IDLE, _end_idle),
            (_S.PROVED, _E.RENEWAL_LATE): To(_S.LATE, _late),
            (_S.LATE, _E.RENEWED): To(_S.PROVED),
            # a promise of a moment ago, if the lock was lost all at once
            (_S.PROVED, _E.LOCK_LOST): To(_S.PROMISED, _begin_promised),
            (_S.PROVED, _E.END): To(_S.ENDED, _end),
            (_S.LATE, _E.LOCK_LOST): To(_S.PROMISED, _begin_promised),
            (_S.LATE, _E.END): To(_S.ENDED, _end),
            (_S.PROMISED, _E.ACQUIRED): To(_S.PROVED, _prove),
            (_S.PROMISED, _E.END): To(_S.ENDED, _end),
            # the manager became unavailable after its lock was lost
            (_S.PROMISED, _E.LOCK_LOST): IGNORED,
            (_S.ENDED, _E.LOCK_LOST): IGNORED,
            (_S.ENDED, _E.END): IGNORED,
            (_S.IDLE, _E.LOCK_LOST): IGNORED,
            (_S.IDLE, _E.RELEASE): To(_S.IDLE, _stop),
            (_S.PROVED, _E.RELEASE): To(_S.IDLE, _stop),
            (_S.LATE, _E.RELEASE): To(_S.IDLE, _stop),
            (_S.PROMISED, _E.RELEASE): To(_S.IDLE, _stop),
            (_S.ENDED, _E.RELEASE): To(_S.IDLE, _stop),
        },
        otherwise=dict.fromkeys(StandingEvent, ILLEGAL),
    )
