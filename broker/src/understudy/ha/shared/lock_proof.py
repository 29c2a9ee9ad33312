"""Whether the lock of the store is still held, proved again before anything is confirmed on an old proof (ADR 0004).

Not here: when an idle node proves its lock (``ha.shared.policy``), and what a proof consists of (``store.node_lock``).
"""

from __future__ import annotations

from typing import Final, Protocol

from understudy.errors import BrokerError, LockLost
from understudy.ports import Clock

#: Age of the last proof above which the lock is verified again before a message is confirmed. Every stop of the process
#: (SIGSTOP, a suspended machine, a sync that hangs) makes the last proof older. A node that has lost its lock may
#: confirm until its last proof has this age, so the next holder waits for it (ADR 0113).
LOCK_PROOF_MS: Final = 80
#: Time in ms for which the next holder of a lock that was not released cleanly waits before it reads the log to its
#: end: the age of a proof, a twentieth for the rates of two clocks, and the milliseconds that both of them round off.
UNPROVED_MS: Final = LOCK_PROOF_MS + LOCK_PROOF_MS // 20 + 2
#: Time in ms for which a proof that was requested before a confirmation may take, and how often it is requested again
#: if it took longer.
LOCK_ANSWER_MS: Final = 3_000
LOCK_PROOF_ATTEMPTS: Final = 3


class ProvableLock(Protocol):
    """A lock that can be asked whether it is held."""

    def lost(self) -> str | None:
        """The reason why the lock cannot be proved to be held; None if it is."""
        ...


class LockProof:
    """The last proof that a lock is held. Implements ``ports.Fence``."""

    def __init__(self, lock: ProvableLock, clock: Clock) -> None:
        """Begin without a proof.

        Args:
            clock: Clock whose monotonic time goes on while the machine is suspended.
        """
        self._lock = lock
        self._clock = clock
        self.proved_at_ms = 0
        """Boot time of the request of the last proof."""
        self.proved_until_ms = 0
        """Time until which the proof is valid, so that a batch is confirmed without a new one."""

    def taken(self) -> None:
        """Called when the lock has just been acquired."""
        self._proved(self._clock.monotonic_ms())

    def withdraw(self) -> None:
        """The lock is being released: the last proof is valid no longer."""
        self.proved_until_ms = 0

    def ask(self) -> str | None:
        """Reason why the lock is not provably ours; None if it is. A proof is dated from its request: a store that
        hangs may have answered the first request before another node took over.
        """
        asked_ms = self._clock.monotonic_ms()
        reason = self._lock.lost()
        if reason is None:
            self._proved(asked_ms)
        return reason

    def why_not_confirm(self) -> BrokerError | None:
        """Called after each sync, before its batch is confirmed: None, or why the store may not be ours.

        A proof that is asked for here comes after the sync, so a node that takes over later reads the written records.
        """
        if self._clock.monotonic_ms() <= self.proved_until_ms:
            return None
        for _ in range(LOCK_PROOF_ATTEMPTS):
            try:
                reason = self.ask()
            except BrokerError as error:
                return error
            if reason is not None:
                return LockLost(reason)
            if self._clock.monotonic_ms() - self.proved_at_ms <= LOCK_ANSWER_MS:
                return None
        return LockLost(f"the store did not say within {LOCK_ANSWER_MS} ms whose it is, {LOCK_PROOF_ATTEMPTS} times")

    def _proved(self, asked_ms: int) -> None:
        """Note that this node had the lock at the time of the request."""
        self.proved_at_ms = asked_ms
        self.proved_until_ms = asked_ms + LOCK_PROOF_MS
