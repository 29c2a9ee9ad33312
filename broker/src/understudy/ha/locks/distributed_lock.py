"""The port to a lock manager: a service outside the pair that keeps one lock and one number per node id.

Replication with a lock manager needs two facts that neither node of a pair can establish alone: which node may be
active (the lock), and whose data is the newest (the number, see ``ha.locks.activation_sequence``). Source: artemis-ha
s. 4.1.

No call waits. An answer comes by callback on the thread of the loop, once, never within the call, and not after
``cancel``. Errors are values: a ``BrokerError`` that names the provider and its address. Every decision about the
age of a lock uses boot time (``Environment.lock_clock``), which goes on while the machine is suspended.

The port has one implementation per provider; ``testing.memory_locks`` is one in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from understudy.errors import BrokerError
from understudy.ports import Clock, Fence, Timer, Timers

#: Pause between two attempts of a timed acquisition (artemis-ha s. 4.1).
TRY_AGAIN_MS: Final = 250

Held = Callable[[bool | BrokerError], None]
"""Gets True or False, or the error because of which there is no answer."""
Read = Callable[[int | BrokerError], None]
"""Gets the number, or the error because of which there is no answer."""
Finished = Callable[[BrokerError | None], None]
"""Gets None, or the error."""


class Request(Protocol):
    """A request without an answer so far."""

    def cancel(self) -> None:
        """Do not call back. A lock that is acquired nevertheless is released; a number may be changed nevertheless."""
        ...


class DistributedLock(Protocol):
    """Lock of one id, which at most one node holds at any time."""

    @property
    def fence(self) -> Fence:
        """Whether the lock is provably held now. Its methods may be called on any thread."""
        ...

    @property
    def late_from_ms(self) -> int:
        """Boot time from which the service is late with a proof that the lock is held; it may still be held."""
        ...

    @property
    def lost(self) -> Callable[[BrokerError], None] | None:
        """Called once when an acquired lock is not provably held any more, except after ``release``. May be set."""
        ...

    @lost.setter
    def lost(self, listener: Callable[[BrokerError], None] | None) -> None: ...

    def try_acquire(self, answer: Held) -> Request:
        """Acquire the lock if it is free. One request at a time; a held lock must be released first."""
        ...

    def verify(self, answer: Held) -> Request:
        """Ask the service whether this node holds the lock."""
        ...

    def release(self, answer: Finished) -> None:
        """Release the lock; does nothing if it is not held. From the call on ``fence`` permits nothing."""
        ...


class DistributedNumber(Protocol):
    """A signed 64-bit number of one id; 0 before it is set for the first time."""

    def get(self, answer: Read) -> Request:
        """Read the number. The answer is not older than the request."""
        ...

    def set(self, value: int, answer: Finished) -> Request:
        """Change the number, whatever its value is."""
        ...

    def compare_and_set(self, expected: int, value: int, answer: Held) -> Request:
        """Change it if it is ``expected``; the answer says whether. After an error the outcome is unknown."""
        ...


class ManagerListener(Protocol):
    """Called when a lock manager becomes usable, and when it ceases to be."""

    def available(self) -> None:
        """Requests are answered from now on."""
        ...

    def unavailable(self, error: BrokerError) -> None:
        """Note that the manager cannot be reached, or its session has ended: every lock is lost. It stays so until it
        is started again.
        """
        ...


class LockManager(Protocol):
    """Provider of locks with its configuration."""

    @property
    def name(self) -> str:
        """Provider and address, for logs and errors: ``witness 10.0.0.3:61619``."""
        ...

    def start(self, listener: ManagerListener) -> None:
        """Begin to connect; the listener is called with the result. A stopped manager can be started again."""
        ...

    def stop(self) -> None:
        """Release all locks and disconnect. The listener and the callbacks of requests are not called any more."""
        ...

    def lock(self, lock_id: str) -> DistributedLock:
        """The lock of an id; the same object for the same id until ``stop``."""
        ...

    def number(self, number_id: str) -> DistributedNumber:
        """The number of an id."""
        ...


class TimedAcquisition:
    """Tries to acquire a lock until a time limit, every ``TRY_AGAIN_MS``. Implements ``Request``."""

    def __init__(self, lock: DistributedLock, limit_ms: int, clock: Clock, timers: Timers, answer: Held) -> None:
        """The first attempt begins at once.

        Args:
            lock: To acquire.
            limit_ms: Time after which the answer is False; 0 means one attempt.
            clock: Boot time.
            answer: Gets the result of the last attempt, or the first error.
        """
        self._lock = lock
        self._until_ms = clock.monotonic_ms() + limit_ms
        self._clock = clock
        self._timers = timers
        self._answer = answer
        self._timer: Timer | None = None
        self._request: Request | None = None
        self._try()

    def cancel(self) -> None:
        """End the acquisition; a lock that is acquired nevertheless is released."""
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None:
            self._request.cancel()

    def _try(self) -> None:
        self._timer = None
        self._request = self._lock.try_acquire(self._tried)

    def _tried(self, result: bool | BrokerError) -> None:
        self._request = None
        left_ms = self._until_ms - self._clock.monotonic_ms()
        if result is False and left_ms > 0:
            self._timer = self._timers.call_later(min(TRY_AGAIN_MS, left_ms), self._try)
        else:
            self._answer(result)
