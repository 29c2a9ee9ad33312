"""The shared-store policy: one lock decides which node is active; the others follow the log.

Implements artemis-ha s. 2 (primary s. 2.2, backup s. 2.3, failback s. 2.4, outcomes s. 2.5, lock monitor s. 2.6)
with the choices of ADR 0004: a passive node *follows* the store; an ``F`` that no primary claims for
``FAILBACK_GRACE_MS`` does not keep a backup from serving; a lost lock always ends the node. With the role
``PRIMARY_ONLY`` it is the policy of a single server.

When a passive node may take the store is decided in ``ha.shared.store_claims``, whether an active node may confirm in
``ha.shared.lock_proof``; here: the conditions that an active node watches, the moment when it yields, and the state of
the lock that it leaves.

Not here: the steps of an activation, the lock files, and the notification of clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, DescriptorsExhausted, DiskFailed, LockLost
from understudy.ha.life.activation import Step
from understudy.ha.life.policy import Decisions, Ending, NodeState, Role, Standby
from understudy.ha.life.polling import Polling
from understudy.ha.replication.failback_pause import FailbackPause
from understudy.ha.shared.lock_proof import LockProof
from understudy.ha.shared.store_claims import (
    FAILBACK_GRACE_MS,
    LOCK_POLL_MS,
    STAYS_PASSIVE,
    BackupClaim,
    LockTimeout,
    PrimaryClaim,
)
from understudy.ha.shared.store_lock import OWNED, STOPPED_CLEANLY, WANTED, StoreLock
from understudy.ports import Clock, Fence, Timers

log = logging.getLogger(__name__)

#: Interval in ms at which an active backup reads the state of the store while another node is announced, to notice a
#: primary that requests the store for a failback.
FAILBACK_POLL_MS: Final = 200
#: Interval in ms at which an active node proves its lock (artemis-ha s. 2.6).
LOCK_CHECK_MS: Final = 1_000


#: Reason of a backup that is ready and not the next one in line.
IN_LINE: Final = "passive in line: another backup holds the backup lock"


@dataclass(frozen=True, slots=True)
class SharedStoreOptions:
    """Settings of the policy (artemis-ha s. 1)."""

    role: Role
    failover_on_shutdown: bool = False
    """A clean stop lets the backup take over instead of marking the store as stopped."""
    allow_failback: bool = True
    """An active backup becomes passive when its primary returns."""
    restart_backup: bool = True
    """After a failback, become a backup again instead of stopping."""
    lock_timeout_ms: int = -1
    """journal-lock-acquisition-timeout; -1 means no limit."""
    scaled_down: Callable[[], bool] | None = None
    """Whether all messages have moved, of a backup whose activation moves its messages to another node instead of
    serving them (artemis-ha s. 6). None: it serves."""


class SharedStorePolicy:
    """Decides the life of one node of a shared-store pair, or of a single server. Implements ``Policy``."""

    def __init__(
        self,
        options: SharedStoreOptions,
        life: Decisions,
        standby: Standby,
        lock: StoreLock,
        proof: LockProof,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """Args:
        life: Takes the decisions.
        lock: The locks of the nodes.
        proof: Says whether this node holds the one of the primary.
        clock: Clock whose monotonic time goes on while the machine is suspended.
        """
        self.options = options
        self._life = life
        self._standby = standby
        self._lock = lock
        self._clock = clock
        self._scaled_down = options.scaled_down
        self._proof = proof
        self._pause = FailbackPause(clock)
        self._polling = Polling(timers, life.fail)
        self._claimed = False
        """An activation is under way, or has failed."""
        self._yielded_ms = 0
        """Time in ms at which the lock was given back."""
        timeout = LockTimeout(clock, options.lock_timeout_ms)
        ports = (life, lock, self._polling, clock, timeout)
        self._claim: PrimaryClaim | BackupClaim
        if options.role is Role.BACKUP:
            self._claim = BackupClaim(*ports, standby, self._take)
        else:
            self._claim = PrimaryClaim(*ports, standby if options.role is Role.PRIMARY else None, self._take)

    @property
    def name(self) -> str:
        """Name of the policy, ``shared-store`` or ``primary-only``."""
        return "primary-only" if self.role is Role.PRIMARY_ONLY else "shared-store"

    @property
    def role(self) -> Role:
        """How the server is configured."""
        return self.options.role

    @property
    def fence(self) -> Fence:
        """The proof of the lock."""
        return self._proof

    @property
    def in_line(self) -> str | None:
        """See ``Policy``: only the next one in line follows the log."""
        if self.role is Role.PRIMARY_ONLY or self._life.state is not NodeState.QUEUED:
            return None
        return IN_LINE

    @property
    def active_node(self) -> str | None:
        """See ``Policy``: there is one store."""
        return None

    @property
    def unopened(self) -> bool:
        """See ``Policy``: the store has the state of a new one."""
        claim = self._claim
        return isinstance(claim, BackupClaim) and claim.finds_unopened and self._life.state is NodeState.PASSIVE

    @property
    def without_manager(self) -> None:
        """See ``Policy``: the locks are files of the store."""
        return None

    @property
    def stays_passive(self) -> str | None:
        """See ``Policy``: the store was stopped cleanly."""
        claim = self._claim
        waits = isinstance(claim, BackupClaim) and claim.finds_stopped
        return STAYS_PASSIVE if waits and self._life.state is NodeState.PASSIVE else None

    # --- passive -------------------------------------------------------------------------------

    def queue(self) -> None:
        self._claim.queue()

    def stand_by(self) -> None:
        self._claim.stand_by()

    def _take(self) -> None:
        """Called when the primary lock is held, no earlier holder confirms any more, and the store is to be taken."""
        self._polling.cancel()
        if self._lock.was_released() and self._lock.read_state() != WANTED:
            # not the state that this node left in a failback
            self._pause.other_served()
        self._proof.taken()
        self._life.activate()

    def activation(self, opening: Sequence[Step], serving: Sequence[Step]) -> Sequence[Step]:
        """The store is claimed first."""
        return (Step("claim the store", self._claim_store), *opening, *serving)

    def _claim_store(self) -> None:
        self._claimed = True
        self._standby.withdraw()

    # --- active --------------------------------------------------------------------------------

    def serve(self) -> None:
        """Mark the store as active, and prove the lock from now on."""
        self._lock.write_state(OWNED)
        self._claimed = False
        self._pause.serves()
        if self.role is Role.BACKUP:
            self._lock.release_backup()
        if self._scaled_down is not None:
            self._polling.later(0, self._life.fail_back)
        else:
            self._polling.later(LOCK_CHECK_MS, self._check_lock)

    def _check_lock(self) -> None:
        try:
            reason = self._proof.ask()
            failback_wanted = reason is None and self._failback_wanted()
        except DescriptorsExhausted as error:
            # without an answer the lock is not lost, but nothing is confirmed either: retry soon
            log.warning("the lock cannot be proved now", extra={"error": str(error)})
            self._polling.later(LOCK_POLL_MS, self._check_lock)
            return
        if reason is not None:
            self._life.fail(LockLost(reason))
        elif failback_wanted:
            self._life.fail_back()
        else:
            self._polling.later(FAILBACK_POLL_MS if self._failback_possible() else LOCK_CHECK_MS, self._check_lock)

    def _failback_possible(self) -> bool:
        may = self.role is Role.BACKUP and self.options.allow_failback
        return may and self._standby.peer_is_announced()

    def _failback_wanted(self) -> bool:
        return self._failback_possible() and self._pause.left_ms() == 0 and self._lock.read_state() == WANTED

    def refuse_failback(self) -> str | None:
        """See ``Policy``: the primary has to wait for the store."""
        if self.role is not Role.BACKUP:
            return "only a backup fails back, to its primary"
        if not self._standby.peer_is_announced() or self._lock.read_state() != WANTED:
            return "the primary does not wait for the store: is it running?"
        return None

    def take_stopped(self) -> str | None:
        """See ``Policy``. The lock shows that no other node is active, and the store is the only one."""
        if not isinstance(self._claim, BackupClaim):
            return "it is not a backup: it activates as soon as the store is free"
        return self._claim.take_stopped()

    # --- failing back and stopping -----------------------------------------------------------------

    def leave(self, *, fail_over: bool) -> None:
        """End the periodic proofs of the lock; a batch that is still written asks for a proof itself."""
        self._polling.cancel()

    def give_back(self) -> None:
        """Release the lock, and wait until the primary is active. A store whose messages have moved needs no other node
        until the primary starts; of one that still has some the backups try again.
        """
        moved = self._scaled_down is not None and self._scaled_down()
        if moved:
            self._write_stopped()
        self._note_release()
        self._lock.release_primary()
        self._pause.gave_back()
        self._yielded_ms = self._clock.monotonic_ms()
        self._polling.later(0 if moved else FAILBACK_POLL_MS, self._yielded if moved else self._poll_for_primary)

    def _poll_for_primary(self) -> None:
        waited_ms = self._clock.monotonic_ms() - self._yielded_ms
        if self._lock.read_state() != OWNED and waited_ms < 2 * FAILBACK_GRACE_MS:
            self._polling.later(FAILBACK_POLL_MS, self._poll_for_primary)
        else:
            self._yielded()

    def _yielded(self) -> None:
        if self.options.restart_backup:
            self._life.queue_again()
        else:
            self._life.stop()

    def release(self, ending: Ending) -> BrokerError | None:
        """Release the locks. After an error, and if a clean stop fails over, the store stays ``L``: a passive node
        takes over. Otherwise P keeps the backups passive (artemis-ha s. 2.5). A primary whose activation failed has
        left ``F``, by which a backup would wait for it: it writes ``L``.
        """
        self._polling.cancel()
        failure: BrokerError | None = None
        fails_over = ending.fail_over or self.options.failover_on_shutdown
        releases = [self._lock.release_primary, self._lock.release_backup]
        if ending.served and ending.error is None:
            releases.insert(0, self._note_release)
            if not fails_over:
                releases.insert(0, self._write_stopped)
        elif self._claimed:
            releases.insert(0, self._write_owned)
        self._claimed = False
        for release in releases:
            try:
                release()
            except DiskFailed as error:
                failure = failure or error
        return failure

    def close(self, closed: Callable[[], None]) -> None:
        """See ``Policy``: nothing is at work."""
        closed()

    def _write_stopped(self) -> None:
        self._lock.write_state(STOPPED_CLEANLY)

    def _write_owned(self) -> None:
        if self._proof.ask() is None:
            self._lock.write_state(OWNED)

    def _note_release(self) -> None:
        """Called when the store is closed, and nothing is confirmed any more. A node that does not have the lock says
        nothing."""
        if self._proof.ask() is None:
            self._lock.note_release()
