"""The authority of a pair with a lock manager (artemis-ha s. 4): a lock, and the number that says whose data is newest.

The lock manager is connected while the node asks for the permission, and for as long as it has it. When it becomes
unavailable, or the lock is lost, an active node ends (ADR 0055), unless its replica has promised not to take over: then
it serves on that promise and acquires the lock again (ADR 0116).

Not here: the comparison of numbers (``ha.locks.activation_sequence``), their change (``ha.locks.sequence_claim``), how
long the promise counts (``standing_lock``, ``given_promise``), the providers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ActivationRefused, BrokerError, LockLost, LockManagerUnavailable
from understudy.ha.life.policy import WithoutManager
from understudy.ha.locks.activation_sequence import ActivationRequest
from understudy.ha.locks.distributed_lock import DistributedLock, LockManager
from understudy.ha.locks.local_sequence import LocalSequence, failure_of
from understudy.ha.locks.noted_position import PositionNumbers
from understudy.ha.locks.sequence_claim import SequenceClaim
from understudy.ha.locks.sequence_wait import NextSequence
from understudy.ha.replication.given_promise import GivenPromise
from understudy.ha.replication.lock_promotion import LockPromotion, Outcome
from understudy.ha.replication.moved_store import LogEnd, MovedNumbers, MovedStore
from understudy.ha.replication.ports import Answer, Cause, ReplicaPromises
from understudy.ha.replication.standing import WaitingCopy
from understudy.ha.replication.standing_lock import StandingLock, StandingState
from understudy.limits import PROMISE_MS_MAX
from understudy.ports import Clock, Fence, Timer, Timers

log = logging.getLogger(__name__)

#: After a failback, how long the node leaves the lock to the other one before it asks for it again. The other node
#: takes the lock within one pause between two attempts; while that holds it, asking changes nothing.
HAND_OVER_MS: Final = 5_000
#: Pause before an active node without its lock requests it again, or starts a lock manager again that was unavailable.
ACQUIRE_AGAIN_MS: Final = 250


class _Pause(Enum):
    """Reasons for which the authority waits."""

    PROMISE = auto()
    """A request waits for the end of the promise of this node."""
    LOCK = auto()
    """An active node requests its lock again soon, or starts the lock manager."""


@dataclass(frozen=True, slots=True)
class NodeData:
    """Questions about the data of a node, each answered at the time of the question."""

    node_id: Callable[[], str]
    """The present node id; a replica gets that of its active node."""
    first_start: Callable[[], bool]
    """Whether data without a number gets one: that of a primary."""
    complete: Callable[[], bool]
    """Whether the data is complete: not that of a copy that was interrupted."""


class LockAuthority:
    """Implements ``ha.replication.ports.Authority`` and ``ha.locks.distributed_lock.ManagerListener``."""

    by_votes = False

    def __init__(
        self,
        manager: LockManager,
        local: LocalSequence,
        data: NodeData,
        clock: Clock,
        timers: Timers,
        given: GivenPromise,
    ) -> None:
        """Begin without a connection to the lock manager.

        Args:
            manager: Started and stopped by this object.
            local: The number of the data of this node.
            data: The data of this node.
            clock: Boot time.
            given: The promise of this node while it is a replica.
        """
        self._manager = manager
        self._local = local
        self._node_id = data.node_id
        self._clock = clock
        self._timers = timers
        self._first_start = data.first_start
        self._complete = data.complete
        self._given = given
        self._standing = StandingLock(clock, timers, lambda: self.sequence, self._acquire_again)
        self._started = self._available = False
        self._answer: Answer | None = None
        """Callback of a request that has no answer yet."""
        self._request: ActivationRequest | None = None
        self._found = 0
        """The number of the lock manager: as it was read with the permission, or as this node has committed it."""
        self._claim: SequenceClaim | None = None
        """The last claim; None: it has failed, or there was none."""
        self._claimed: Answer | None = None
        """The callback of a call of ``claim`` or ``commit`` under way."""
        self._taking_back: SequenceClaim | None = None
        self._wait: NextSequence | None = None
        self._promotion: LockPromotion | None = None
        self._again: ActivationRequest | None = None
        """An active node requests its lock again."""
        self._pauses: dict[_Pause, Timer] = {}

    # --- Authority -----------------------------------------------------------------------------------

    @property
    def fence(self) -> Fence:
        return self._standing.fence

    @property
    def without_manager(self) -> WithoutManager | None:
        since_ms = self._standing.since_ms
        if since_ms is None:
            return None
        return WithoutManager(self._manager.name, self._clock.monotonic_ms() - since_ms, str(self._standing.reason))

    @property
    def sequence(self) -> int:
        return -1 if self._local.value is None else self._local.value

    def data_node_id(self) -> str | None:
        """See ``Authority``. The copy of a backup may be the newest data of its pair while the lock manager is away."""
        own = self._first_start() or (self._complete() and self._local.load() is not None)
        return self._node_id() if own else None

    def may_request(self, *, looked: bool) -> bool:
        known = self._local.load() is not None
        return self._complete() and (known or self._first_start()) and not self._local.moved_away

    def request(self, cause: Cause, answer: Answer) -> None:
        """See ``Authority``. The lock decides, whatever the cause; a promise of this node is kept first, unless the
        active node gave it back.
        """
        self._answer = answer
        if cause is Cause.TOLD:
            self._given.void()
        try:
            left_ms = self._given.left_ms()
        except BrokerError as error:
            self._answer = None
            answer(error)
            return
        if left_ms > 0:
            log.info("the lock is requested after the end of a promise", extra={"left_ms": left_ms})
            self._pauses[_Pause.PROMISE] = self._timers.call_later(left_ms, self._request_now)
        else:
            self._request_now()

    def _request_now(self) -> None:
        self._pauses.pop(_Pause.PROMISE, None)
        if self._available:
            self._begin_request()
        else:
            self._start_manager()

    def _start_manager(self) -> None:
        if not self._started:
            self._started = True
            self._manager.start(self)

    def cancel(self) -> None:
        self._answer = None
        self._end_pause(_Pause.PROMISE)
        request, self._request = self._request, None
        if request is not None:
            request.cancel()

    def share(self, replica: str, answer: Answer) -> None:
        """See ``Authority``: the lock manager keeps the sequence, nothing has to be noted."""
        answer(None)

    def listens(self) -> bool:
        """See ``Authority``: the lock manager knows which data is the newest."""
        return False

    def waiting_copy(self) -> WaitingCopy | None:
        return None

    def copy_waits(self, copy: WaitingCopy) -> bool:
        return False

    def claim(self, answer: Answer, *, alone: bool) -> None:
        """See ``Authority``. The claim waits while a promise stands in for the lock, at most until its end."""
        if self._standing.state is StandingState.PROMISED:
            self._claimed = answer
        elif not self._available:
            answer(LockLost(f"{self._manager.name} is not available"))
        else:
            self._claimed = answer
            self._begin_claim(alone=alone)

    def _begin_claim(self, *, alone: bool) -> None:
        self._claim = claim = SequenceClaim(self._node_id(), self._manager, self._local, self._found)

        def claimed(error: BrokerError | None) -> None:
            if error is None and alone:
                claim.commit(self._committed)
            else:
                self._answer_claim(error)

        claim.begin(claimed)

    def commit(self, answer: Answer) -> None:
        if self._claim is None:
            answer(LockLost(f"{self._manager.name} is not available"))
            return
        self._claimed = answer
        self._claim.commit(self._committed)

    def _committed(self, error: BrokerError | None) -> None:
        if error is not None:
            self._claim = None
        elif self._claim is not None:
            self._found = self._claim.sequence
            # the next replica has given no promise, and may take over
            self._standing.renounce()
        self._answer_claim(error)

    def _answer_claim(self, error: BrokerError | None) -> None:
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed(error)

    def take_back(self, taken_back: Callable[[], None], *, served: bool) -> None:
        claim, self._claim = self._claim, None
        # a claim after the loss of the replica has no answer yet, and is not to begin once the lock is held again
        self._claimed = None
        if claim is None or (served and claim.committed):
            taken_back()
        else:
            self._taking_back = claim

            def ended() -> None:
                self._taking_back = None
                taken_back()

            claim.take_back(ended)

    def moved_record(self, end: LogEnd) -> MovedStore | None:
        """See ``Authority``. The lock manager proves the move; the record has the last batch of the log."""
        return MovedStore(self._node_id(), self.sequence, end)

    def moved_away(self, end: LogEnd, answer: Answer) -> None:
        """See ``Authority``. A node that ends before its own note activates again, moves nothing and writes both."""
        if not self._available or self.fence_lock is None:
            answer(LockLost(f"{self._manager.name} is not available"))
            return

        def recorded(error: BrokerError | None) -> None:
            if error is not None:
                answer(error)
            else:
                self._local.write_moved(lambda failure: answer(failure_of(self._local.path, failure)))

        MovedNumbers(self._manager, self._node_id()).write(self.sequence, end, recorded)

    def find_moved(self, heard: MovedStore | None, found: Callable[[MovedStore], None]) -> None:
        """See ``Authority``. The newest data is empty, so older data is not needed, whatever it is. The record of
        another node says more about the log, but was made before the messages moved: the log went on after that, and
        the lock manager has noted its end. An empty store that began before it would be refused (ADR 0118).
        """

        def read(moved: MovedStore | None) -> None:
            # of two questions on their way the first one may have led to an empty store with this sequence
            if moved is None or moved.sequence <= self.sequence:
                return
            if heard is not None and (heard.node_id, heard.sequence) == (moved.node_id, moved.sequence):
                epoch, sequence = max(heard.end.epoch, moved.end.epoch), max(heard.end.sequence, moved.end.sequence)
                found(replace(heard, end=replace(heard.end, epoch=epoch, sequence=sequence)))
            else:
                found(moved)

        if self._available and self._first_start():
            MovedNumbers(self._manager, self._node_id()).read(self.sequence, read)

    def position_numbers(self) -> PositionNumbers | None:
        held = self._available and self.fence_lock is not None
        return PositionNumbers(self._manager, self._node_id()) if held else None

    def watch(self, lost: Callable[[BrokerError], None], proved: Callable[[], None]) -> None:
        self._standing.serve(lost, proved)
        # a long pause may have ended the lock since it was acquired (artemis-ha s. 4.3)
        why = self.fence.why_not_confirm()
        if why is not None:
            self._standing.lock_lost(why if isinstance(why, BrokerError) else LockLost(str(why)))

    def synced(self, replica: ReplicaPromises | None) -> None:
        self._standing.replica = replica

    def promised(self, number: int, refusal: str | None) -> None:
        self._standing.promised(number, refusal)

    def promise(self, sequence: int, duration_ms: int, answer: Callable[[str | None], None]) -> None:
        """See ``Authority``. The data is in sync; the lock must not be requested at the same time."""
        refusal = None
        if not 0 < duration_ms <= PROMISE_MS_MAX:
            refusal = f"a promise of {duration_ms} ms; 1 to {PROMISE_MS_MAX} ms are given"
        elif self._answer is not None or self.fence_lock is not None or self._promotion is not None:
            refusal = "this node requests the lock"
        elif sequence != self.sequence:
            refusal = f"the activation sequence here is {self.sequence}, not {sequence}"
        if refusal is not None:
            answer(refusal)
            return

        def given(error: BaseException | None) -> None:
            answer(None if error is None else f"the promise cannot be noted: {error}")

        try:
            self._given.give(duration_ms, given)
        except BrokerError as error:
            given(error)

    @property
    def fence_lock(self) -> DistributedLock | None:
        """The lock, as long as this node holds it."""
        return self._standing.fence.lock

    def release(self) -> None:
        self._end_again()
        lock = self.fence_lock
        self._standing.release()
        if lock is not None:
            lock.lost = None
            lock.release(lambda error: None)

    def hand_over(self, handed_over: Callable[[], None]) -> None:
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

    def promote(self, answer: Callable[[Outcome], None]) -> None:
        """See ``Authority``. The lock shows that no other node is active."""
        if not self._available:
            answer(LockManagerUnavailable(f"{self._manager.name} is not available"))
        elif self._given.left_ms() > 0:
            answer(ActivationRefused(f"node {self._node_id()}: it has promised its active node not to take over yet"))
        elif not self._complete():
            answer(ActivationRefused(f"node {self._node_id()}: the data of this node is a copy that was not completed"))
        elif self._promotion is None:

            def ended(outcome: Outcome) -> None:
                self._promotion = None
                answer(outcome)

            self._promotion = LockPromotion(self._node_id(), self._manager, self._local, ended)
            self._promotion.begin()

    def close(self) -> None:
        self._promotion = None
        self.cancel()
        self._end_wait()
        self._end_claim()
        self.release()
        self._given.close()
        if self._started:
            self._started = self._available = False
            self._manager.stop()

    # --- ManagerListener -------------------------------------------------------------------------------

    def available(self) -> None:
        self._available = True
        if self._answer is not None and self._request is None and _Pause.PROMISE not in self._pauses:
            self._begin_request()
        self._acquire_again()

    def unavailable(self, error: BrokerError) -> None:
        self._end_again()
        self._started = self._available = False
        self._manager.stop()
        answer = self._answer if _Pause.PROMISE not in self._pauses else None
        if answer is not None:
            self.cancel()
        claimed = self._end_claim() if _is_under_way(self._claim) else None
        if self._promotion is not None:
            self._promotion.cancel(error)
        if answer is not None:
            answer(error)
        if claimed is not None:
            claimed(error)
        self._lose(error)
        self._acquire_again()

    # --- requests --------------------------------------------------------------------------------------

    def _begin_request(self) -> None:
        if self._local.value is None:
            # the data never had an activation sequence (artemis-ha s. 4.3)
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
        self._standing.fence.lock = outcome
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
        """Called when the lock is not held any more. Without a promise the node ends, and with it a claim that
        waits."""
        self._standing.lock_lost(error)

    # --- the lock of an active node that serves on a promise ---------------------------------------------

    def _acquire_again(self) -> None:
        """Request the lock, which shows the activation sequence as well; start the lock manager if it has ended."""
        self._pauses.pop(_Pause.LOCK, None)
        if self._standing.state is not StandingState.PROMISED or self._again is not None:
            return
        if not self._available:
            if not self._started:
                self._start_later()
            return
        sequence = self.sequence

        def answered(outcome: DistributedLock | BrokerError) -> None:
            self._again = None
            if not isinstance(outcome, BrokerError):
                self._found = again.found
            self._acquired_again(sequence, outcome)

        self._again = again = ActivationRequest(
            self._node_id(), self._manager, self._local, self._clock, self._timers, answered
        )
        again.begin()

    def _start_later(self) -> None:
        if _Pause.LOCK not in self._pauses:

            def start() -> None:
                self._pauses.pop(_Pause.LOCK, None)
                if self._standing.state is StandingState.PROMISED:
                    self._start_manager()

            self._pauses[_Pause.LOCK] = self._timers.call_later(ACQUIRE_AGAIN_MS, start)

    def _acquired_again(self, sequence: int, outcome: DistributedLock | BrokerError) -> None:
        if isinstance(outcome, ActivationRefused):
            self._standing.refused(outcome)
        elif isinstance(outcome, BrokerError):
            if _Pause.LOCK not in self._pauses:
                self._pauses[_Pause.LOCK] = self._timers.call_later(ACQUIRE_AGAIN_MS, self._acquire_again)
        elif sequence != self.sequence:
            outcome.release(lambda error: None)
            text = f"node {self._node_id()}: the activation sequence went from {sequence} to {self.sequence}"
            self._standing.refused(ActivationRefused(f"{text} while the lock was not held"))
        else:
            outcome.lost = self._lose
            self._standing.acquired(outcome)
            if self._claimed is not None and not _is_under_way(self._claim):
                # only the loss of a replica claims while the node serves
                self._begin_claim(alone=True)

    def _end_again(self) -> None:
        again, self._again = self._again, None
        if again is not None:
            again.cancel()
        self._end_pause(_Pause.LOCK)

    def _end_pause(self, pause: _Pause) -> None:
        timer = self._pauses.pop(pause, None)
        if timer is not None:
            timer.cancel()


def _is_under_way(claim: SequenceClaim | None) -> bool:
    return claim is not None and not claim.committed
