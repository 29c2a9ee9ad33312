"""A lock manager in memory for unit and property tests: requests wait until the test carries them out.

``MemoryService`` is the service: leases of locks and numbers. ``MemoryLockManager`` is one node's access to it. With
``immediate`` every request is carried out as soon as time passes; without it the test takes the requests from
``pending``, in any order across nodes, carries them out, delivers the answers or drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import TypeVar

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, LockManagerUnavailable
from understudy.ha.locks.distributed_lock import Finished, Held, ManagerListener, Read
from understudy.ha.locks.lease import Lease
from understudy.ports import Clock, Timers

T = TypeVar("T")


@dataclass
class MemoryService:
    """The state of the service."""

    lease_ms: int = 6_000
    numbers: dict[str, int] = field(default_factory=dict)
    holders: dict[str, tuple[object, int]] = field(default_factory=dict)
    """Id to the holder and the boot time until which the service keeps the lock for it."""
    pending: list[MemoryRequest] = field(default_factory=list)
    """Requests of all nodes, the oldest first."""
    reachable: bool = True

    def grant(self, lock_id: str, holder: object, now_ms: int) -> bool:
        """Give or renew a lock."""
        present, until_ms = self.holders.get(lock_id, (holder, 0))
        if present is not holder and until_ms >= now_ms:
            return False
        self.holders[lock_id] = (holder, now_ms + self.lease_ms)
        return True

    def release(self, lock_id: str, holder: object) -> None:
        """Take a lock back from its holder."""
        if self.holders.get(lock_id, (None, 0))[0] is holder:
            del self.holders[lock_id]

    def swap(self, number_id: str, expected: int, value: int) -> bool:
        """Set a number if it has the expected value (compare and set)."""
        if self.numbers.get(number_id, 0) != expected:
            return False
        self.numbers[number_id] = value
        return True


class MemoryRequest:
    """A request to the service that is not answered yet. Implements ``ha.locks.distributed_lock.Request``."""

    def __init__(
        self,
        manager: MemoryLockManager,
        work: Callable[[], object],
        answer: Callable[[object], None],
        undo: Callable[[], object] | None = None,
    ) -> None:
        """Adds itself to the pending requests of the service.

        Args:
            manager: Manager of the node that sends it.
            work: Carried out at the service; returns the answer.
            answer: Gets it.
            undo: Called instead of the answer if the request was cancelled.
        """
        self.manager = manager
        self.done = False
        """Whether the request was carried out; its answer is on the way."""
        self._work = work
        self._answer: Callable[[object], None] | None = answer
        self._result: object = None
        self._undo = undo
        manager.service.pending.append(self)

    def carry_out(self) -> None:
        """Change the service; the answer is not delivered yet."""
        if not self.done:
            self.done = True
            self._result = self._work()

    def deliver(self) -> None:
        """Give the answer to the node."""
        self._end(self._result)

    def lose(self) -> None:
        """Give an error to the node; the request was carried out before, or is dropped."""
        self._end(LockManagerUnavailable(f"{self.manager.name}: no answer"))

    def cancel(self) -> None:
        """The node does not wait for the answer any more."""
        self._answer = None

    def _end(self, result: object) -> None:
        if self in self.manager.service.pending:
            self.manager.service.pending.remove(self)
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(result)
        elif self._undo is not None:
            self._undo()


class MemoryLock:
    """Lock in memory. Implements ``ha.locks.distributed_lock.DistributedLock``."""

    def __init__(self, manager: MemoryLockManager, lock_id: str) -> None:
        """Begin without holding the lock."""
        self.manager = manager
        self.lock_id = lock_id
        self.lost: Callable[[BrokerError], None] | None = None
        self.fence = Lease(f"lock {lock_id} of {manager.name}", manager.clock, manager.timers, self._ended)
        self._token = object()

    @property
    def late_from_ms(self) -> int:
        return self.fence.late_from_ms

    def try_acquire(self, answer: Held) -> MemoryRequest:
        sent_ms, token = self.manager.clock.monotonic_ms(), object()
        self._token = token

        def answered(result: object) -> None:
            if result is True:
                result = self.fence.begin(sent_ms + self.manager.service.lease_ms)
            answer(result)  # type: ignore[arg-type]  # the result of the work below

        service = self.manager.service
        return self.manager.ask(
            lambda: service.grant(self.lock_id, token, self.manager.clock.monotonic_ms()),
            answered,
            lambda: service.release(self.lock_id, token),
        )

    def verify(self, answer: Held) -> MemoryRequest:
        token = self._token
        return self.manager.ask(
            lambda: self.manager.service.holders.get(self.lock_id, (None, 0))[0] is token,
            answer,  # type: ignore[arg-type]  # as above
        )

    def renew(self) -> None:
        """Request a renewal of the lease."""
        sent_ms, token = self.manager.clock.monotonic_ms(), self._token

        def answered(result: object) -> None:
            if result is True and token is self._token:
                self.fence.extend(sent_ms + self.manager.service.lease_ms)

        def work() -> bool:
            held = self.manager.service.holders.get(self.lock_id, (None, 0))[0] is token
            return held and self.manager.service.grant(self.lock_id, token, self.manager.clock.monotonic_ms())

        self.manager.ask(work, answered)

    def release(self, answer: Finished) -> None:
        self.fence.release()
        token = self._token

        def answered(result: object) -> None:
            answer(result if isinstance(result, BrokerError) else None)

        self.manager.ask(lambda: self.manager.service.release(self.lock_id, token), answered)

    def _ended(self, error: BrokerError) -> None:
        if self.lost is not None:
            self.lost(error)


class MemoryNumber:
    """Number in memory. Implements ``ha.locks.distributed_lock.DistributedNumber``."""

    def __init__(self, manager: MemoryLockManager, number_id: str) -> None:
        """Begin without a read."""
        self._manager = manager
        self._id = number_id

    def get(self, answer: Read) -> MemoryRequest:
        return self._manager.ask(lambda: self._manager.service.numbers.get(self._id, 0), answer)  # type: ignore[arg-type]  # an integer or an error

    def set(self, value: int, answer: Finished) -> MemoryRequest:
        return self._manager.ask(
            lambda: self._manager.service.numbers.__setitem__(self._id, value),
            answer,  # type: ignore[arg-type]  # None or an error
        )

    def compare_and_set(self, expected: int, value: int, answer: Held) -> MemoryRequest:
        return self._manager.ask(
            lambda: self._manager.service.swap(self._id, expected, value),
            answer,  # type: ignore[arg-type]  # a truth value or an error
        )


class MemoryLockManager:
    """One node's access to the service. Implements ``ha.locks.distributed_lock.LockManager``."""

    def __init__(self, service: MemoryService, clock: Clock, timers: Timers, *, immediate: bool = True) -> None:
        """Begin in the state before ``start``.

        Args:
            service: Shared by all nodes.
            clock: Boot time, the same for the service.
            immediate: Whether requests are carried out as soon as the time passes.
        """
        self.service = service
        self.clock = clock
        self.timers = timers
        self.name = "memory"
        self._immediate = immediate
        self._locks: dict[str, MemoryLock] = {}
        self._listener: ManagerListener | None = None

    def start(self, listener: ManagerListener) -> None:
        self._listener = listener
        self.timers.call_later(0, self._started)

    def _started(self) -> None:
        if self._listener is None:
            return
        if self.service.reachable:
            self._listener.available()
        else:
            self._listener.unavailable(LockManagerUnavailable(f"{self.name}: not reachable"))

    def stop(self) -> None:
        self._listener = None
        for lock in self._locks.values():
            if lock.fence.held:
                lock.fence.release()
                self.service.release(lock.lock_id, lock._token)
        self._locks.clear()

    def lock(self, lock_id: str) -> MemoryLock:
        return self._locks.setdefault(lock_id, MemoryLock(self, lock_id))

    def number(self, number_id: str) -> MemoryNumber:
        return MemoryNumber(self, number_id)

    def ask(
        self, work: Callable[[], object], answer: Callable[[object], None], undo: Callable[[], object] | None = None
    ) -> MemoryRequest:
        """Send a request to the service."""
        request = MemoryRequest(self, work, answer, undo)
        if self._immediate:
            self.timers.call_later(0, partial(self._serve, request))
        return request

    def _serve(self, request: MemoryRequest) -> None:
        if self.service.reachable:
            request.carry_out()
            request.deliver()
        else:
            request.lose()
