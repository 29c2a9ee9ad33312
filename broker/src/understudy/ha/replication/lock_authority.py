"""The authority of a pair with a lock manager (artemis-ha s. 4): a lock, and the number that says whose data is newest.

The lock manager is connected while the node asks for the permission, and for as long as it has it. When it becomes
unavailable, or the lock is lost, the node has no permission any more: an active one ends (ADR 0055).

Not here: the comparison of numbers (``ha.activation_sequence``), their change (``ha.sequence_claim``), the providers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.errors import ActivationRefused, BrokerError, LockLost, LockManagerUnavailable
from understudy.ha.activation_sequence import ActivationRequest
from understudy.ha.distributed_lock import DistributedLock, LockManager
from understudy.ha.local_sequence import LocalSequence
from understudy.ha.noted_position import PositionNumbers
from understudy.ha.replication.lock_promotion import LockPromotion
from understudy.ha.replication.ports import Answer, Cause
from understudy.ha.replication.promotion import Promotion
from understudy.ha.replication.standing import WaitingCopy
from understudy.ha.sequence_claim import SequenceClaim
from understudy.ha.sequence_wait import NextSequence
from understudy.ports import Clock, Fence, Timers

#: After a failback, how long the node leaves the lock to the other one before it asks for it again. The other node
#: takes the lock within one pause between two attempts; while that holds it, asking changes nothing.
HAND_OVER_MS: Final = 5_000


class LockFence:
    """Whether the lock of this node is provably held; not before it was acquired. Implements ``ports.Fence``."""

    def __init__(self) -> None:
        self.lock: DistributedLock | None = None
        """The acquired lock."""

    @property
    def proved_until_ms(self) -> int:
        """See ``Fence``."""
        return self.lock.fence.proved_until_ms if self.lock is not None else 0

    def why_not_confirm(self) -> BaseException | None:
        """See ``Fence``."""
        return self.lock.fence.why_not_confirm() if self.lock is not None else LockLost("the lock is not held")


class LockAuthority:
    """Implements ``ha.replication.ports.Authority`` and ``ha.distributed_lock.ManagerListener``."""

    by_votes = False

    def __init__(
        self,
        manager: LockManager,
        local: LocalSequence,
        node_id: Callable[[], str],
        clock: Clock,
        timers: Timers,
        *,
        first_start: Callable[[], bool],
        complete: Callable[[], bool],
    ) -> None:
        """Nothing is connected.

        Args:
            manager: Started and stopped by this object.
            local: The number of the data of this node.
            node_id: The present node id; a replica gets that of its active node.
            clock: Boot time.
            timers: For pauses.
            first_start: Whether data without a number gets one: that of a primary.
            complete: Whether the data is complete: not that of a copy that was interrupted.
        """
        self._manager = manager
        self._local = local
        self._node_id = node_id
        self._clock = clock
        self._timers = timers
        self._first_start = first_start
        self._complete = complete
        self._fence = LockFence()
        self._started = self._available = False
        self._answer: Answer | None = None
        """Of a request that has no answer yet."""
        self._request: ActivationRequest | None = None
        self._found = 0
        """The number of the lock manager: as it was read with the permission, or as this node has committed it."""
        self._claim: SequenceClaim | None = None
        """A claim that is not committed."""
        self._claimed: Answer | None = None
        """Of a call of ``claim`` or ``commit`` under way."""
        self._taking_back: SequenceClaim | None = None
        self._lost: Callable[[BrokerError], None] | None = None
        self._wait: NextSequence | None = None
        self._promotion: LockPromotion | None = None

    # --- Authority -----------------------------------------------------------------------------------

    @property
    def fence(self) -> Fence:
        """See ``Authority``."""
        return self._fence

    @property
    def sequence(self) -> int:
        """See ``Authority``."""
        return -1 if self._local.value is None else self._local.value

    def data_node_id(self) -> str | None:
        """See ``Authority``. The copy of a backup may be the newest data of its pair while the lock manager is away."""
        own = self._first_start() or (self._complete() and self._local.load() is not None)
        return self._node_id() if own else None

    def may_request(self, *, looked: bool) -> bool:
        """See ``Authority``."""
        return self._complete() and (self._local.load() is not None or self._first_start())

    def request(self, cause: Cause, answer: Answer) -> None:
        """See ``Authority``. The lock decides, whatever the cause."""
        self._answer = answer
        if self._available:
            self._begin_request()
        elif not self._started:
            self._started = True
            self._manager.start(self)

    def cancel(self) -> None:
        """See ``Authority``."""
        self._answer = None
        request, self._request = self._request, None
        if request is not None:
            request.cancel()

    def share(self, replica: str, answer: Answer) -> None:
        """See ``Authority``: the lock manager keeps the sequence, nothing has to be noted."""
        answer(None)

    def listens(self) -> bool:
        """See ``Authority``: the lock manager knows which data is the newest."""
        return False

    def copied_at(self) -> int:
        """See ``Authority``."""
        return -1

    def copy_waits(self, copy: WaitingCopy) -> bool:
        """See ``Authority``."""
        return False

    def claim(self, answer: Answer, *, alone: bool) -> None:
        """See ``Authority``."""
        if not self._available:
            answer(LockLost(f"{self._manager.name} is not available"))
            return
        self._claimed = answer
        self._claim = claim = SequenceClaim(self._node_id(), self._manager, self._local, self._found)

        def claimed(error: BrokerError | None) -> None:
            if error is None and alone:
                claim.commit(self._committed)
            else:
                self._answer_claim(error)

        claim.begin(claimed)

    def commit(self, answer: Answer) -> None:
        """See ``Authority``."""
        if self._claim is None:
            answer(LockLost(f"{self._manager.name} is not available"))
            return
        self._claimed = answer
        self._claim.commit(self._committed)

    def _committed(self, error: BrokerError | None) -> None:
        claim, self._claim = self._claim, None
        if error is None and claim is not None:
            self._found = claim.sequence
        self._answer_claim(error)

    def _answer_claim(self, error: BrokerError | None) -> None:
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed(error)

    def take_back(self, taken_back: Callable[[], None]) -> None:
        """See ``Authority``."""
        claim, self._claim = self._claim, None
        if claim is None:
            taken_back()
        else:
            self._taking_back = claim

            def ended() -> None:
                self._taking_back = None
                taken_back()

            claim.take_back(ended)

    def position_numbers(self) -> PositionNumbers | None:
        """See ``Authority``."""
        held = self._available and self._fence.lock is not None
        return PositionNumbers(self._manager, self._node_id()) if held else None

    def watch(self, lost: Callable[[BrokerError], None]) -> None:
        """See ``Authority``."""
        self._lost = lost
        # a long pause may have ended the lock since it was acquired (artemis-ha s. 4.3)
        why = self._fence.why_not_confirm()
        if why is not None:
            self._lose(why if isinstance(why, BrokerError) else LockLost(str(why)))

    def release(self) -> None:
        """See ``Authority``."""
        self._lost = None
        lock, self._fence.lock = self._fence.lock, None
        if lock is not None:
            lock.lost = None
            lock.release(lambda error: None)

    def hand_over(self, handed_over: Callable[[], None]) -> None:
        """See ``Authority``."""
        self.release()
        if not self._available:
            handed_over()
            return
        number = self._manager.number(self._node_id())
        self._wait = NextSequence(
            number, self.sequence, HAND_OVER_MS, self._clock, self._timers, lambda outcome: self._end_wait(handed_over)
        )

    def _end_wait(self, handed_over: Callable[[], None] | None = None) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.cancel()
        if handed_over is not None:
            handed_over()

    def promote(self, answer: Callable[[Promotion | BrokerError], None]) -> None:
        """See ``Authority``. The lock shows that no other node is active."""
        if not self._available:
            answer(LockManagerUnavailable(f"{self._manager.name} is not available"))
        elif not self._complete():
            answer(ActivationRefused(f"node {self._node_id()}: the data of this node is a copy that was not completed"))
        elif self._promotion is None:

            def ended(outcome: Promotion | BrokerError) -> None:
                self._promotion = None
                answer(outcome)

            self._promotion = LockPromotion(self._node_id(), self._manager, self._local, ended)
            self._promotion.begin()

    def close(self) -> None:
        """See ``Authority``."""
        self._promotion = None
        self.cancel()
        self._end_wait()
        self._end_claim()
        self.release()
        if self._started:
            self._started = self._available = False
            self._manager.stop()

    # --- ManagerListener -------------------------------------------------------------------------------

    def available(self) -> None:
        """See ``ManagerListener``."""
        self._available = True
        if self._answer is not None and self._request is None:
            self._begin_request()

    def unavailable(self, error: BrokerError) -> None:
        """See ``ManagerListener``."""
        self._started = self._available = False
        self._manager.stop()
        answer = self._answer
        self.cancel()
        claimed = self._end_claim()
        if self._promotion is not None:
            self._promotion.cancel(error)
        if answer is not None:
            answer(error)
        if claimed is not None:
            claimed(error)
        self._lose(error)

    # --- requests --------------------------------------------------------------------------------------

    def _begin_request(self) -> None:
        if self._local.value is None:
            # data that never had a number (artemis-ha s. 4.3)
            self._local.write(0, self._numbered)
            return
        self._request = ActivationRequest(
            self._node_id(), self._manager, self._local, self._clock, self._timers, self._answered
        )
        self._request.begin()

    def _numbered(self, error: BaseException | None) -> None:
        if self._answer is None or self._request is not None:
            return
        if error is None:
            self._begin_request()
        else:
            answer, self._answer = self._answer, None
            answer(error if isinstance(error, BrokerError) else LockLost(f"{self._local.path}: {error}"))

    def _answered(self, outcome: DistributedLock | BrokerError) -> None:
        answer, self._answer, request, self._request = self._answer, None, self._request, None
        if isinstance(outcome, BrokerError):
            if answer is not None:
                answer(outcome)
            return
        assert request is not None
        self._found = request.found
        self._fence.lock = outcome
        outcome.lost = self._lose
        if answer is not None:
            answer(None)

    def _end_claim(self) -> Answer | None:
        claim, self._claim = self._claim, None
        for each in (claim, self._taking_back):
            if each is not None:
                each.cancel()
        claimed, self._claimed = self._claimed, None
        return claimed

    def _lose(self, error: BrokerError) -> None:
        """The lock is not held any more."""
        self._fence.lock = None
        lost, self._lost = self._lost, None
        if lost is not None:
            lost(error)
