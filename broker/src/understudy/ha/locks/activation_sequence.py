"""Permission of a node to activate: its data is the newest, and it holds the lock (artemis-ha s. 4.2, *tryActivate*).

The number is read without the lock first: stale data is refused at once. Data in sync waits for the lock, which the
active node holds as long as it lives. After locking, the number is read again, because the previous holder may have
changed it. A claim that a killed node has left says that this node served nothing: the data is in sync nevertheless.
The lock stays held when the permission is given; ``ha.locks.sequence_claim`` must follow before the node serves.

Nothing is changed but the lock. Any node may give the permission up with ``cancel``, which releases the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final

from understudy.errors import BrokerError, LockLost
from understudy.ha.locks.distributed_lock import DistributedLock, LockManager, Request, TimedAcquisition
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.locks.sequence_verdict import Verdict, compare, refusal
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Timer, Timers

log = logging.getLogger(__name__)

#: Longest wait for the lock before the number is read again, if the data is in sync.
ACQUIRE_MS: Final = 2_000
#: Pause before the number is read again after one attempt, if a claim is not committed.
LOOK_AGAIN_MS: Final = 200


class State(Enum):
    """States of a request for the permission."""

    IDLE = auto()
    READING = auto()
    """The number is read without the lock."""
    ACQUIRING = auto()
    PAUSED = auto()
    """The lock was not free; the number is read again soon."""
    CHECKING = auto()
    """The lock is held; the number is read again."""
    RELEASING = auto()
    """The permission will not be given; the lock is being released."""
    ENDED = auto()


class Event(Enum):
    """Events of a request for the permission."""

    BEGIN = auto()
    READ = auto()
    """The lock manager has answered. Its argument is the activation sequence of the newest data."""
    ACQUIRED = auto()
    NOT_ACQUIRED = auto()
    LOOK_AGAIN = auto()
    PERMITTED = auto()
    REFUSED = auto()
    """The data of this node is older than the newest. Its argument is the number of the newest data."""
    FAILED = auto()
    """A request to the lock manager failed, or the lock was lost. Its argument is the error."""
    RELEASED = auto()
    CANCEL = auto()


_S, _E = State, Event


class ActivationRequest(Machine[State, Event]):
    """One request for the permission to activate. Implements ``ha.locks.distributed_lock.Request``."""

    STATES = State
    EVENTS = Event
    INITIAL = State.IDLE

    def __init__(
        self,
        node_id: str,
        manager: LockManager,
        local: LocalSequence,
        clock: Clock,
        timers: Timers,
        answer: Callable[[DistributedLock | BrokerError], None],
    ) -> None:
        """Nothing is requested before ``begin``.

        Args:
            node_id: Id of the lock and of the number.
            manager: Lock manager, which is available.
            local: Loaded; its number is not None.
            clock: Boot time.
            answer: Gets the held lock; ``ActivationRefused`` if the data is stale; any other error: there was no
                answer.
        """
        super().__init__()
        assert local.value is not None, "data without an activation sequence never activates by itself"
        self._node_id = node_id
        self._manager = manager
        self._lock = manager.lock(node_id)
        self._number = manager.number(node_id)
        self._local = local
        self._clock = clock
        self._timers = timers
        self._answer = answer
        self._request: Request | None = None
        self._timer: Timer | None = None
        self.found = 0
        """The number as it was read last; with the permission, as it was while the lock was held."""
        self._outcome: BrokerError | None = None

    def begin(self) -> None:
        """Request the permission."""
        self.fire(Event.BEGIN)

    def cancel(self) -> None:
        """End the request without an answer; a held lock is released."""
        self.fire(Event.CANCEL)

    # --- reading and locking -------------------------------------------------------------------

    def _read(self) -> None:
        self._timer = None
        self._request = self._number.get(self._number_read)

    def _number_read(self, number: int | BrokerError) -> None:
        self._request = None
        if isinstance(number, BrokerError):
            self.fire(Event.FAILED, number)
        else:
            self.fire(Event.READ, number)

    def _acquire(self, shared: int) -> None:
        self.found = shared
        verdict = compare(shared, self._value)
        if verdict is Verdict.STALE:
            self.fire(Event.REFUSED, shared)
            return
        limit_ms = ACQUIRE_MS if verdict is Verdict.IN_SYNC else 0
        self._request = TimedAcquisition(self._lock, limit_ms, self._clock, self._timers, self._acquired)

    def _acquired(self, result: bool | BrokerError) -> None:
        self._request = None
        if isinstance(result, BrokerError):
            self.fire(Event.FAILED, result)
        elif result:
            self._lock.lost = partial(self.fire, Event.FAILED)
            self.fire(Event.ACQUIRED)
        else:
            self.fire(Event.NOT_ACQUIRED)

    def _pause(self) -> None:
        # the pause of an attempt with a time limit was part of it
        waited = compare(self.found, self._value) is Verdict.IN_SYNC
        delay_ms = 0 if waited else LOOK_AGAIN_MS
        self._timer = self._timers.call_later(delay_ms, partial(self.fire, Event.LOOK_AGAIN))

    # --- with the lock ---------------------------------------------------------------------------

    def _check(self, shared: int) -> None:
        self.found = shared
        verdict = compare(shared, self._value)
        if verdict is Verdict.STALE:
            self.fire(Event.REFUSED, shared)
        elif verdict is Verdict.IN_SYNC:
            self._permitted()
        else:
            log.warning(
                "a claim of the activation sequence was not committed: nothing was served with it",
                extra={"node": self._node_id, "shared": shared, "local": self._value},
            )
            self._permitted()

    # --- ends --------------------------------------------------------------------------------------

    def _permitted(self) -> None:
        """The number permits it; the lock may have been lost since it was acquired, for example in a long pause."""
        why = self._lock.fence.why_not_confirm()
        if why is None:
            self.fire(Event.PERMITTED)
        else:
            self.fire(Event.FAILED, why if isinstance(why, BrokerError) else LockLost(str(why)))

    def _permit(self) -> None:
        log.info("permission to activate", extra={"node": self._node_id, "sequence": self._value})
        self._answer(self._lock)

    def _refuse(self, shared: int) -> None:
        """Refuse the request, which holds no lock."""
        self._end(refusal(self._node_id, self._manager.name, shared, self._value))

    def _refuse_and_release(self, shared: int) -> None:
        self._outcome = refusal(self._node_id, self._manager.name, shared, self._value)
        self._release_lock()

    def _fail_and_release(self, error: BrokerError) -> None:
        self._outcome = error
        self._release_lock()

    def _cancel_and_release(self) -> None:
        self._outcome = None
        self._release_lock()

    def _release_lock(self) -> None:
        self._drop()
        self._lock.lost = None
        self._lock.release(self._released)

    def _released(self, error: BrokerError | None) -> None:
        if error is not None:
            # the lock ends with its lease or session
            log.warning("lock not released", extra={"node": self._node_id, "error": str(error)})
        self.fire(Event.RELEASED)
        if self._outcome is not None:
            self._answer(self._outcome)

    def _end(self, error: BrokerError) -> None:
        self._drop()
        self._answer(error)

    def _drop(self) -> None:
        """Forget the pending request and timer."""
        if self._request is not None:
            self._request.cancel()
            self._request = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_outcome(self) -> None:
        self._outcome = None

    @property
    def _value(self) -> int:
        value = self._local.value
        assert value is not None
        return value

    TABLE = table(
        State,
        Event,
        {
            (_S.IDLE, _E.BEGIN): To(_S.READING, _read),
            (_S.IDLE, _E.CANCEL): To(_S.ENDED),
            (_S.READING, _E.READ): To(_S.ACQUIRING, _acquire),
            (_S.READING, _E.FAILED): To(_S.ENDED, _end),
            (_S.READING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.ACQUIRING, _E.REFUSED): To(_S.ENDED, _refuse),
            (_S.ACQUIRING, _E.ACQUIRED): To(_S.CHECKING, _read),
            (_S.ACQUIRING, _E.NOT_ACQUIRED): To(_S.PAUSED, _pause),
            (_S.ACQUIRING, _E.FAILED): To(_S.ENDED, _end),
            (_S.ACQUIRING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.PAUSED, _E.LOOK_AGAIN): To(_S.READING, _read),
            (_S.PAUSED, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.CHECKING, _E.READ): To(_S.CHECKING, _check),
            (_S.CHECKING, _E.REFUSED): To(_S.RELEASING, _refuse_and_release),
            (_S.CHECKING, _E.PERMITTED): To(_S.ENDED, _permit),
            (_S.CHECKING, _E.FAILED): To(_S.RELEASING, _fail_and_release),
            (_S.CHECKING, _E.CANCEL): To(_S.RELEASING, _cancel_and_release),
            (_S.RELEASING, _E.RELEASED): To(_S.ENDED),
            (_S.RELEASING, _E.CANCEL): To(_S.RELEASING, _forget_outcome),
            # the lock was lost while the sequence was being changed
            (_S.RELEASING, _E.FAILED): IGNORED,
            (_S.ENDED, _E.FAILED): IGNORED,
            (_S.ENDED, _E.CANCEL): IGNORED,
        },
        otherwise=dict.fromkeys(Event, ILLEGAL),
    )
