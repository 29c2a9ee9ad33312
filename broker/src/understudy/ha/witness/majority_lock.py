"""A lock that a group of witnesses keeps: it is held while a majority of them prove it (ADR 0117).

Each member grants its lease to one node at a time, so no two nodes hold the leases of a majority. The lock is provably
held until the time up to which a majority of the leases is proved. A member whose lease is missing, because it was
down or was replaced, is asked for it again as long as the lock is held.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from understudy.errors import BrokerError, LockManagerUnavailable
from understudy.ha.locks.distributed_lock import Finished, Held, Request
from understudy.ha.locks.lease import Lease
from understudy.ha.witness.lock import WitnessLock
from understudy.ports import Clock, Timer, Timers

log = logging.getLogger(__name__)

#: Pause before members whose lease is missing are asked again.
COMPLETE_MS: Final = 1_000


class LockGroup(Protocol):
    """The members, as a lock uses them."""

    @property
    def name(self) -> str:
        """Provider and addresses of the group, for messages."""
        ...

    def available_locks(self, lock_id: str) -> Sequence[WitnessLock]:
        """The lock of an id at each member that answers at present."""
        ...

    @property
    def majority(self) -> int:
        """Members that must agree."""
        ...

    @property
    def size(self) -> int:
        """Number of members of the group."""
        ...

    clock: Clock
    timers: Timers


class _Attempt:
    """An attempt to get the leases of a majority. Implements ``ha.locks.distributed_lock.Request``."""

    def __init__(self, lock: MajorityLock, answer: Held) -> None:
        self._lock = lock
        self._answer: Held | None = answer
        self.requests: list[Request] = []
        self.refused = 0
        self.errors: list[BrokerError] = []

    def cancel(self) -> None:
        """Give no answer; granted leases are released."""
        if self._answer is not None:
            self._answer = None
            self._lock.attempt_ended(self, held=False)

    def give(self, result: bool | BrokerError) -> None:
        """Give the answer once."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(result)


class MajorityLock:
    """Lock that a majority of a group of members grants. Implements ``ha.locks.distributed_lock.DistributedLock``."""

    def __init__(self, group: LockGroup, lock_id: str) -> None:
        """Create a lock that is not held."""
        self._group = group
        self._id = lock_id
        self._name = f"lock {lock_id} of {group.name}"
        self.lost: Callable[[BrokerError], None] | None = None
        self.fence = Lease(self._name, group.clock, group.timers, self._ended)
        self._attempt: _Attempt | None = None
        self._leases: list[WitnessLock] = []
        """The locks of the members that make up the lease while it is held."""
        self._asked: dict[WitnessLock, Request] = {}
        """Members that are asked for a missing lease."""
        self._timer: Timer | None = None

    @property
    def late_from_ms(self) -> int:
        return self.fence.late_from_ms

    # --- DistributedLock -------------------------------------------------------------------------------------

    def try_acquire(self, answer: Held) -> _Attempt:
        assert not self.fence.held, "release it first"
        attempt = self._attempt = _Attempt(self, answer)
        locks = self._group.available_locks(self._id)
        if len(locks) < self._group.majority:
            error = LockManagerUnavailable(f"{self._group.name}: {len(locks)} of {self._group.size} members answer")
            self._group.timers.call_later(0, lambda: self._fail(attempt, error))
            return attempt
        missing = self._group.size - len(locks)
        for lock in locks:
            attempt.requests.append(lock.try_acquire(lambda got, lock=lock: self._got(attempt, lock, got, missing)))  # type: ignore[misc]  # bound at once
        return attempt

    def _fail(self, attempt: _Attempt, error: BrokerError) -> None:
        if self._attempt is attempt:
            self.attempt_ended(attempt, held=False)
            attempt.give(error)

    def _got(self, attempt: _Attempt, lock: WitnessLock, result: bool | BrokerError, missing: int) -> None:
        if self._attempt is not attempt:
            if result is True:
                self._join_late(lock)
            return
        if result is True:
            self._watch(lock)
            until_ms = self._proved_until_ms()
            if len(self._leases) >= self._group.majority and self.fence.begin(until_ms):
                self.attempt_ended(attempt, held=True)
                attempt.give(True)
            return
        if isinstance(result, BrokerError):
            attempt.errors.append(result)
        else:
            attempt.refused += 1
        if missing + attempt.refused + len(attempt.errors) > self._group.size - self._group.majority:
            self.attempt_ended(attempt, held=False)
            attempt.give(False if attempt.refused else attempt.errors[0])

    def _join_late(self, lock: WitnessLock) -> None:
        """Called when a member has granted its lease after a majority had."""
        if self.fence.held:
            self._watch(lock)
        else:
            lock.release(lambda error: None)

    def attempt_ended(self, attempt: _Attempt, *, held: bool) -> None:
        """Keep the leases if they are a majority, else give them back."""
        if self._attempt is attempt:
            self._attempt = None
        if held:
            self._complete_later()
            return
        for request in attempt.requests:
            request.cancel()
        self._give_back()

    def verify(self, answer: Held) -> _Verification:
        return _Verification(self._group, self._leases, answer)

    def release(self, answer: Finished) -> None:
        self.fence.release()
        left = len(self._leases)
        if not left:
            self._give_back()
            self._group.timers.call_later(0, lambda: answer(None))
            return
        failures: list[BrokerError] = []

        def released(error: BrokerError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failures.append(error)
            if left == 0:
                answer(failures[0] if failures else None)

        self._give_back(released)

    # --- leases --------------------------------------------------------------------------------------------

    def _watch(self, lock: WitnessLock) -> None:
        self._leases.append(lock)
        lock.lost = lambda error: self._lease_lost(lock, error)
        lock.renewed = self._renewed

    def _proved_until_ms(self) -> int:
        """Boot time until which a majority proves the lock; -1: none does."""
        times = sorted((lock.fence.proved_until_ms for lock in self._leases), reverse=True)
        return times[self._group.majority - 1] if len(times) >= self._group.majority else -1

    def _renewed(self) -> None:
        if self.fence.held:
            self.fence.extend(self._proved_until_ms())

    def _lease_lost(self, lock: WitnessLock, error: BrokerError) -> None:
        if lock not in self._leases:
            return
        self._leases.remove(lock)
        if self.fence.held:
            log.warning("the lease of one witness is lost", extra={"lock": self._name, "error": str(error)})
            until_ms = self._proved_until_ms()
            if until_ms < self._group.clock.monotonic_ms():
                self.fence.lose(str(error))
            else:
                self.fence.shorten(until_ms)

    def _complete_later(self) -> None:
        if self._timer is None:
            self._timer = self._group.timers.call_later(COMPLETE_MS, self._complete)

    def _complete(self) -> None:
        """Ask members whose lease is missing."""
        self._timer = None
        if not self.fence.held:
            return
        self._complete_later()
        for lock in self._group.available_locks(self._id):
            if lock not in self._leases and lock not in self._asked and not lock.fence.held:

                def got(result: bool | BrokerError, lock: WitnessLock = lock) -> None:
                    self._asked.pop(lock, None)
                    if result is True:
                        self._join_late(lock)
                        self._renewed()

                self._asked[lock] = lock.try_acquire(got)

    def _give_back(self, released: Finished | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        asked, self._asked = self._asked, {}
        for request in asked.values():
            request.cancel()
        leases, self._leases = self._leases, []
        for lock in leases:
            lock.lost = lock.renewed = None
            lock.release(released or (lambda error: None))

    def _ended(self, error: BrokerError) -> None:
        self._give_back()
        if self.lost is not None:
            self.lost(error)

    def forget(self) -> None:
        """Called when the members are being stopped, which releases their leases."""
        self.lost = None
        if self._attempt is not None:
            attempt, self._attempt = self._attempt, None
            for request in attempt.requests:
                request.cancel()
        for lock in self._leases:
            lock.lost = lock.renewed = None
        self._leases = []
        self._asked = {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.fence.release()


class _Verification:
    """Asks every member whose lease is held. Implements ``ha.locks.distributed_lock.Request``."""

    def __init__(self, group: LockGroup, leases: Sequence[WitnessLock], answer: Held) -> None:
        self._answer: Held | None = answer
        self._majority = group.majority
        self._yes = self._no = 0
        self._total = len(leases)
        self._requests = [lock.verify(self._verified) for lock in list(leases)]
        if self._total < group.majority:
            group.timers.call_later(0, lambda: self._give(False))

    def cancel(self) -> None:
        """End the check without an answer."""
        self._answer = None

    def _verified(self, result: bool | BrokerError) -> None:
        if result is True:
            self._yes += 1
        else:
            self._no += 1
        if self._yes >= self._majority:
            self._give(True)
        elif self._total - self._no < self._majority:
            self._give(result if isinstance(result, BrokerError) else False)

    def _give(self, result: bool | BrokerError) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(result)
