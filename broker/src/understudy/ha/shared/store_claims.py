"""Conditions for a passive node to take the store: polling of its locks, by a primary and by a backup (ADR 0004).

A primary writes ``F`` and takes the store as soon as the lock is free. A backup first takes the backup lock, so that
one of several stands by at a time, and takes the store when its owner has died, not when it was stopped cleanly or a
primary asks for it.

A lock that its holder has not released, but lost by its death or by the expiry of its lease, is free before that holder
must have noticed: it may still write and confirm on its last proof. So the next holder waits as long as such a proof is
valid, and then reads the log (``WaitForProof``, ADR 0113).

Not here: what follows from having it (``ha.shared.policy``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from understudy.errors import LockTimedOut
from understudy.ha.life.policy import Decisions, Standby
from understudy.ha.life.polling import Polling
from understudy.ha.shared.lock_proof import UNPROVED_MS
from understudy.ha.shared.store_lock import NEVER_OPENED, OWNED, STOPPED_CLEANLY, WANTED, StoreLock
from understudy.ports import Clock

log = logging.getLogger(__name__)

#: Interval in ms at which a passive node asks for the lock. Polling, never a blocking lock: a blocked request on
#: a network file system is served late or never (IBM APAR IT43349).
LOCK_POLL_MS: Final = 100
#: Interval in ms at which a passive primary reads the state of the store while the lock is taken, and how long a backup
#: that found the store cleanly stopped waits before it reads it again. A backup does not read the state while the lock
#: is taken: the state matters only once the lock is acquired, and then it is always read.
STATE_POLL_MS: Final = 1_000
#: Reason of a backup that is ready and does not activate.
STAYS_PASSIVE: Final = "the primary was stopped cleanly: its backup waits for it, or for `understudy activate`"
#: Time within which a returning primary must acquire a store it requested, once the lock is free.
FAILBACK_GRACE_MS: Final = 5_000


class LockTimeout:
    """The longest wait for a lock: journal-lock-acquisition-timeout."""

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        """Args:
        limit_ms: -1 means no limit.
        """
        self._clock = clock
        self._limit_ms = limit_ms
        self._since_ms = 0

    def begin(self) -> None:
        """Begin the wait for the lock of the store."""
        self._since_ms = self._clock.monotonic_ms()

    def check(self) -> None:
        """Raise LockTimedOut if the wait for the lock has lasted too long."""
        if 0 <= self._limit_ms < self._clock.monotonic_ms() - self._since_ms:
            raise LockTimedOut(f"the store's lock was not free within {self._limit_ms} ms", hint="AMQ224000")


class WaitForProof:
    """The wait, with the primary lock, until no earlier holder has a valid proof; then the store is taken."""

    def __init__(self, lock: StoreLock, polling: Polling, take: Callable[[], None]) -> None:
        """Args:
        lock: Asked whether it was released cleanly.
        polling: Has the pending step.
        take: Called when the store is to be taken.
        """
        self._lock = lock
        self._polling = polling
        self._take = take

    def begin(self, released: bool, lost: Callable[[], None]) -> None:
        """Called when the lock has been acquired.

        Args:
            released: ``StoreLock.was_released``, by a state that was read with the lock.
            lost: Called instead if another node has the lock after the wait.
        """
        # an earlier holder that looks from now on finds out
        self._lock.touch()
        if released:
            self._take()
        else:
            self._polling.later(UNPROVED_MS, lambda: self._waited(lost))

    def _waited(self, lost: Callable[[], None]) -> None:
        reason = self._lock.lost()
        if reason is None:
            self._take()
            return
        log.warning("the lock of the store was lost before it was taken", extra={"reason": reason})
        self._lock.release_primary()
        lost()


class PrimaryClaim:
    """A primary, or a single server, asks for the store (artemis-ha s. 2.2)."""

    def __init__(
        self,
        life: Decisions,
        lock: StoreLock,
        polling: Polling,
        clock: Clock,
        timeout: LockTimeout,
        standby: Standby | None,
        take: Callable[[], None],
    ) -> None:
        """Args:
        standby: Standby life of a node that may have to wait for its backup; None for a single server.
        take: Called when the lock is held.
        """
        self._life = life
        self._lock = lock
        self._polling = polling
        self._clock = clock
        self._timeout = timeout
        self._standby = standby
        self._wait = WaitForProof(lock, polling, take)
        self._state_read_ms = 0

    def queue(self) -> None:
        """Do nothing: a primary needs no backup lock."""
        self._timeout.begin()
        self._life.take_place()

    def stand_by(self) -> None:
        """Write F, then wait: by it an active backup notices that its primary is back (artemis-ha s. 2.2, 4)."""
        if self._lock.try_primary():
            self._lock.read_state()
            released = self._lock.was_released()
            self._lock.write_state(WANTED)
            self._wait.begin(released, self._poll)
            return
        self._lock.write_state(WANTED)
        self._state_read_ms = -STATE_POLL_MS
        if self._standby is not None:
            self._standby.announce()
            self._standby.follow()
        self._polling.later(LOCK_POLL_MS, self._poll)

    def _poll(self) -> None:
        if self._lock.try_primary():
            self._lock.read_state()
            self._wait.begin(self._lock.was_released(), self._poll)
            return
        self._timeout.check()
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._state_read_ms >= STATE_POLL_MS:
            self._state_read_ms = now_ms
            if self._lock.read_state() == OWNED:
                # the active node wrote L after our F, because it was activating: write F again
                self._lock.write_state(WANTED)
        self._polling.later(LOCK_POLL_MS, self._poll)


class BackupClaim:
    """A backup waits until the store has no owner (artemis-ha s. 2.3)."""

    def __init__(
        self,
        life: Decisions,
        lock: StoreLock,
        polling: Polling,
        clock: Clock,
        timeout: LockTimeout,
        standby: Standby,
        take: Callable[[], None],
    ) -> None:
        """Args:
        take: Called when the lock is held and the store is to be taken.
        """
        self._life = life
        self._lock = lock
        self._polling = polling
        self._clock = clock
        self._timeout = timeout
        self._standby = standby
        self._wait = WaitForProof(lock, polling, take)
        self._store_state = ""
        """State of the store at the last read."""
        self._free_since_ms = self._free_ms = -FAILBACK_GRACE_MS
        """Time in ms at which the lock was first and last found free. The time goes on when a primary takes it in
        between and fails to activate.
        """
        self._takes_stopped = False
        """A store that was stopped cleanly is taken, because an administrator has asked for it."""

    def queue(self) -> None:
        """Wait for the backup lock."""
        self._timeout.begin()
        self._poll_backup_lock()

    def _poll_backup_lock(self) -> None:
        if self._lock.try_backup():
            self._life.take_place()
            return
        self._timeout.check()
        self._polling.later(LOCK_POLL_MS, self._poll_backup_lock)

    def stand_by(self) -> None:
        """Follow, and ask for the primary lock."""
        self._free_ms = -FAILBACK_GRACE_MS
        self._takes_stopped = False
        self._standby.announce()
        self._standby.follow()
        self._poll()

    @property
    def finds_stopped(self) -> bool:
        """Whether the store was stopped cleanly when its state was read last."""
        return self._store_state == STOPPED_CLEANLY

    @property
    def finds_unopened(self) -> bool:
        """Whether no node had been active with the store when its state was read last."""
        return self._store_state in NEVER_OPENED

    def take_stopped(self) -> str | None:
        """Take the store although it was stopped cleanly; why not, or None: it is tried until another node has it."""
        state = self._read_state()
        if state != STOPPED_CLEANLY:
            return f"its store was not stopped cleanly (state {state}): it activates by itself once the store is free"
        log.warning("the store was stopped cleanly and is taken on request")
        self._takes_stopped = True
        self._polling.later(0, self._poll)
        return None

    def _poll(self) -> None:
        if not self._wait_for_owner():
            return
        if not self._lock.try_primary():
            self._takes_stopped = False
            self._polling.later(LOCK_POLL_MS, self._poll)
            return
        state = self._read_state()
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._free_ms >= FAILBACK_GRACE_MS:
            self._free_since_ms = now_ms
        self._free_ms = now_ms
        unclaimed = state == WANTED and now_ms - self._free_since_ms >= FAILBACK_GRACE_MS
        if state == OWNED or unclaimed or (self._takes_stopped and state == STOPPED_CLEANLY):
            if unclaimed:
                waited_ms = now_ms - self._free_since_ms
                log.warning(
                    "the primary requested the store and is not announced: activating", extra={"waited_ms": waited_ms}
                )
            self._wait.begin(self._lock.was_released(), self._poll)
            return
        self._lock.release_primary()
        self._polling.later(4 * LOCK_POLL_MS, self._poll)

    def _wait_for_owner(self) -> bool:
        """Whether the store has an owner, or a primary that asks for it; if not, look again later."""
        state = self._store_state
        if state not in (OWNED, WANTED):
            state = self._read_state()
        if state in (OWNED, WANTED) or (self._takes_stopped and state == STOPPED_CLEANLY):
            return True
        self._polling.later(STATE_POLL_MS if state == STOPPED_CLEANLY else LOCK_POLL_MS, self._poll)
        return False

    def _read_state(self) -> str:
        before, self._store_state = self._store_state, self._lock.read_state()
        if before != STOPPED_CLEANLY == self._store_state:
            log.info(STAYS_PASSIVE)
        return self._store_state
