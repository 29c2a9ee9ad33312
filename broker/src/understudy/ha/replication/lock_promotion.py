"""Makes the data of a node the newest by the lock manager, because an administrator says so (ADR 0059).

The lock is acquired, which shows that no other node is active. The number that follows the highest known one is written
to the file of this node, then to the lock manager, and the lock is released. A node with any other data is refused from
then on, and copies the data of this one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from understudy.errors import ActivationRefused, BrokerError, DiskFailed
from understudy.ha.locks.distributed_lock import LockManager
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.locks.sequence_verdict import newest
from understudy.ha.replication.promotion import Promotion

log = logging.getLogger(__name__)


Outcome = Promotion | BrokerError
"""The sequences before and after, or the error because of which nothing has changed."""


class LockPromotion:
    """One promotion of a replica while the lock manager is available."""

    def __init__(
        self,
        node_id: str,
        manager: LockManager,
        local: LocalSequence,
        answer: Callable[[Outcome], None],
    ) -> None:
        """Nothing is asked before ``begin``.

        Args:
            node_id: Id of the lock and of the number.
            manager: Lock manager, which is available.
            local: Position of the data of this node.
            answer: Gets the numbers, or an error; after that at most the file of this node has changed.
        """
        self._node_id = node_id
        self._lock = manager.lock(node_id)
        self._number = manager.number(node_id)
        self._local = local
        self._answer = answer
        self._cancelled = False

    def begin(self) -> None:
        """Begin to acquire the lock."""
        self._lock.try_acquire(self._acquired)

    def cancel(self, error: BrokerError) -> None:
        """End it with this error; the lock manager has been stopped, which released the lock."""
        self._cancelled = True
        self._answer(error)

    def _acquired(self, held: bool | BrokerError) -> None:
        if isinstance(held, BrokerError):
            self._answer(held)
        elif held:
            self._number.get(self._read)
        else:
            self._answer(ActivationRefused(f"node {self._node_id}: another node holds the lock, so it is active"))

    def _read(self, shared: int | BrokerError) -> None:
        if isinstance(shared, BrokerError):
            self._end(shared)
            return
        before = self._local.value
        value = max(newest(shared), before or 0) + 1

        def written(error: BaseException | None) -> None:
            if self._cancelled:
                return
            if error is None:
                self._number.compare_and_set(shared, value, changed)
            else:
                self._end(error if isinstance(error, BrokerError) else DiskFailed(f"{self._local.path}: {error}"))

        def changed(done: bool | BrokerError) -> None:
            if done is True:
                self._end(Promotion(self._node_id, before, newest(shared), value))
            elif done is False:
                self._end(ActivationRefused(f"node {self._node_id}: another node has changed the activation sequence"))
            else:
                self._end(done)

        self._local.write(value, written)

    def _end(self, outcome: Outcome) -> None:
        self._lock.release(lambda error: self._answer(outcome))
