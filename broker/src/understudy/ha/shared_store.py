"""The shared-store policy: one lock decides which node is active; the others follow the log.

Implements artemis-ha s. 2 (primary s. 2.2, backup s. 2.3, failback s. 2.4, outcomes s. 2.5, lock monitor s. 2.6)
with the choices of ADR 0004: a passive node *follows* the store; an ``F`` that no primary claims for
``FAILBACK_GRACE_MS`` does not keep a backup from serving; a lost lock always ends the node. The
same machine with role ``PRIMARY_ONLY`` is the policy of a single server.

Not here: the steps of an activation, the lock files, and the notification of clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from understudy.errors import BrokerError, DescriptorsExhausted, DiskFailed, LockLost, LockTimedOut
from understudy.ha.activation import ActivationPort, StoreLock
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Timer, Timers

log = logging.getLogger(__name__)

#: How often a passive node asks for the lock. Polling, never a blocking lock: a blocked request on
#: a network file system is served late or never (IBM APAR IT43349).
LOCK_POLL_MS: Final = 100
#: How often a passive primary reads the state of the store while the lock is taken, and how long a backup that found
#: the store cleanly stopped waits before it reads it again. A backup does not read the state while the lock is taken:
#: the state matters only once the lock is acquired, and then it is always read.
STATE_POLL_MS: Final = 1_000
#: How often an active backup reads the state of the store while another node is announced, to notice a primary that
#: requests the store for a failback.
FAILBACK_POLL_MS: Final = 200
#: Time within which a returning primary must acquire a store it requested, once the lock is free.
FAILBACK_GRACE_MS: Final = 5_000
#: How often an active node proves its lock (artemis-ha s. 2.6).
LOCK_CHECK_MS: Final = 1_000
#: Age of the last proof above which the lock is verified again before a message is confirmed. Every stop of the process
#: (SIGSTOP, a suspended machine, a sync that hangs) makes the last proof older, so a stop longer than this between a
#: proof and a confirmation is always noticed (docs/reliability.md).
LOCK_PROOF_MS: Final = 250
#: How long a proof that was requested before a confirmation may take, and how often it is requested again if it took
#: longer.
LOCK_ANSWER_MS: Final = 3_000
LOCK_PROOF_ATTEMPTS: Final = 3

OWNED, WANTED, STOPPED_CLEANLY = "L", "F", "P"


class Role(Enum):
    """How the server is configured; its present state is that of the machine."""

    PRIMARY_ONLY = "primary-only"
    PRIMARY = "primary"
    BACKUP = "backup"


class State(Enum):
    """States of a node under this policy."""

    STOPPED = auto()
    QUEUED = auto()
    PASSIVE = auto()
    ACTIVATING = auto()
    ACTIVE = auto()
    FAILING_BACK = auto()
    YIELDED = auto()
    STOPPING = auto()


class Event(Enum):
    """Events of the machine."""

    START_PRIMARY = auto()
    START_BACKUP = auto()
    BACKUP_LOCK_TAKEN = auto()
    PRIMARY_LOCK_TAKEN = auto()
    ACTIVATED = auto()
    FAILED = auto()
    FAILBACK_WANTED = auto()
    DEACTIVATED = auto()
    PRIMARY_SERVES = auto()
    STOP = auto()


_S, _E = State, Event


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


class SharedStorePolicy(Machine[State, Event]):
    """The declared machine of one node of a shared-store pair, or of a single server."""

    STATES = State
    EVENTS = Event
    INITIAL = State.STOPPED

    def __init__(
        self, options: SharedStoreOptions, node: ActivationPort, lock: StoreLock, clock: Clock, timers: Timers
    ) -> None:
        super().__init__()
        self.options = options
        self._node = node
        self._lock = lock
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._waiting_since_ms = 0
        self._proved_ms = 0
        self.proved_until_ms = 0
        """Until then the proof of the lock is valid and a batch is confirmed without a new one (``ports.Fence``)."""
        self._free_since_ms: int | None = None
        self._store_state = ""
        """State of the store at the last read."""
        self._state_read_ms: int | None = None
        """Time of the last read; None: it is read at the next opportunity."""
        self._fail_over = False
        self._stop_wanted = False
        self._error: BrokerError | None = None

    # --- what the node calls -------------------------------------------------------------------

    def start(self) -> None:
        """Begin; calls ``follow`` or ``activate`` of the node next."""
        is_backup = self.options.role is Role.BACKUP
        self.fire(Event.START_BACKUP if is_backup else Event.START_PRIMARY)

    def stop(self, *, fail_over: bool = False) -> None:
        """Stop cleanly; ``fail_over`` lets the backup take over regardless of the configuration."""
        self._fail_over = fail_over or self.options.failover_on_shutdown
        self.fire(Event.STOP)

    def fail(self, error: BrokerError) -> None:
        """The node cannot continue (store, lock or activation failed): stop."""
        self.fire(Event.FAILED, error)

    @property
    def error(self) -> BrokerError | None:
        """The error because of which the node stops, or None."""
        return self._error

    def why_not_confirm(self) -> BrokerError | None:
        """Called after each sync, before its batch is confirmed: None, or why the store may not be ours.

        A proof requested here is later than the sync, so a node that takes over after it reads the batch.
        """
        if self._clock.monotonic_ms() <= self.proved_until_ms:
            return None
        for _ in range(LOCK_PROOF_ATTEMPTS):
            try:
                reason = self._ask_lock()
            except BrokerError as error:
                return error
            if reason is not None:
                return LockLost(reason)
            if self._clock.monotonic_ms() - self._proved_ms <= LOCK_ANSWER_MS:
                return None
        return LockLost(f"the lock could not be verified within {LOCK_ANSWER_MS} ms, {LOCK_PROOF_ATTEMPTS} times")

    def _ask_lock(self) -> str | None:
        """Why the lock is not provably ours; None if it is. A proof is dated from its request: a store that
        hangs may have answered the first request before another node took over.
        """
        asked_ms = self._clock.monotonic_ms()
        reason = self._lock.lost()
        if reason is None:
            self._proved(asked_ms)
        return reason

    def _proved(self, asked_ms: int) -> None:
        """The lock was ours at the time of the request."""
        self._proved_ms = asked_ms
        self.proved_until_ms = asked_ms + LOCK_PROOF_MS

    def state_changed(self, origin: State, target: State, event: Event) -> None:
        """Log the change."""
        log.info("ha state", extra={"from": origin.name, "to": target.name, "cause": event.name})

    # --- passive -------------------------------------------------------------------------------

    def _request_store(self) -> None:
        # write F, then wait: by it an active backup notices that its primary is back (2.2, 4)
        self._waiting_since_ms = self._clock.monotonic_ms()
        self._guarded(self._request_store_now)

    def _request_store_now(self) -> None:
        if self._lock.try_primary():
            self._lock.write_state(WANTED)
            self.fire(Event.PRIMARY_LOCK_TAKEN)
            return
        self._lock.write_state(WANTED)
        if self.options.role is Role.PRIMARY:
            self._node.announce()
            self._node.follow()
        self._later(LOCK_POLL_MS, self._poll_as_primary)

    def _poll_as_primary(self) -> None:
        if self._lock.try_primary():
            self.fire(Event.PRIMARY_LOCK_TAKEN)
            return
        self._check_lock_timeout()
        if self._state_is_due() and self._read_state() == OWNED:
            # the active node wrote L after our F, because it was activating: write F again
            self._lock.write_state(WANTED)
        self._later(LOCK_POLL_MS, self._poll_as_primary)

    def _queue(self) -> None:
        self._waiting_since_ms = self._clock.monotonic_ms()
        self._guarded(self._poll_backup_lock)

    def _poll_backup_lock(self) -> None:
        if self._lock.try_backup():
            self.fire(Event.BACKUP_LOCK_TAKEN)
            return
        self._check_lock_timeout()
        self._later(LOCK_POLL_MS, self._poll_backup_lock)

    def _stand_by(self) -> None:
        self._free_since_ms = None
        self._state_read_ms = None
        self._node.announce()
        self._node.follow()
        self._guarded(self._poll_as_backup)

    def _state_is_due(self) -> bool:
        read_ms = self._state_read_ms
        return read_ms is None or self._clock.monotonic_ms() - read_ms >= STATE_POLL_MS

    def _read_state(self) -> str:
        self._state_read_ms = self._clock.monotonic_ms()
        self._store_state = self._lock.read_state()
        return self._store_state

    def _poll_as_backup(self) -> None:
        state = self._store_state
        if state not in (OWNED, WANTED):
            state = self._read_state()
        if state not in (OWNED, WANTED):
            self._later(STATE_POLL_MS if state == STOPPED_CLEANLY else LOCK_POLL_MS, self._poll_as_backup)
            return
        if not self._lock.try_primary():
            self._free_since_ms = None
            self._later(LOCK_POLL_MS, self._poll_as_backup)
            return
        state = self._read_state()
        now_ms = self._clock.monotonic_ms()
        if self._free_since_ms is None:
            self._free_since_ms = now_ms
        unclaimed = state == WANTED and now_ms - self._free_since_ms >= FAILBACK_GRACE_MS
        if state == OWNED or unclaimed:
            if unclaimed:
                log.warning("the primary requested the store and is gone: activating", extra={"waited_ms": now_ms})
            self.fire(Event.PRIMARY_LOCK_TAKEN)
            return
        self._lock.release_primary()
        self._later(4 * LOCK_POLL_MS, self._poll_as_backup)

    # --- active --------------------------------------------------------------------------------

    def _activate(self) -> None:
        self._cancel()
        self._proved(self._clock.monotonic_ms())
        self._lock.touch()
        self._node.withdraw()
        self._node.activate(self._activation_done)

    def _activation_done(self, error: BrokerError | None) -> None:
        if error is not None:
            self.fire(Event.FAILED, error)
        else:
            self.fire(Event.ACTIVATED)

    def _serve(self) -> None:
        self._guarded(self._serve_now)

    def _serve_now(self) -> None:
        self._lock.write_state(OWNED)
        if self.options.role is Role.BACKUP:
            self._lock.release_backup()
        if self._stop_wanted:
            self.fire(Event.STOP)
            return
        self._later(LOCK_CHECK_MS, self._check_lock)

    def _check_lock(self) -> None:
        try:
            reason = self._ask_lock()
            failback_wanted = reason is None and self._failback_wanted()
        except DescriptorsExhausted as error:
            # without an answer the lock is not lost, but nothing is confirmed either: retry soon
            log.warning("the lock cannot be verified at present", extra={"error": str(error)})
            self._later(LOCK_POLL_MS, self._check_lock)
            return
        if reason is not None:
            self.fire(Event.FAILED, LockLost(reason))
            return
        if failback_wanted:
            self.fire(Event.FAILBACK_WANTED)
            return
        self._later(FAILBACK_POLL_MS if self._failback_possible() else LOCK_CHECK_MS, self._check_lock)

    def _failback_possible(self) -> bool:
        may = self.options.role is Role.BACKUP and self.options.allow_failback
        return may and self._node.peer_is_announced()

    def _failback_wanted(self) -> bool:
        return self._failback_possible() and self._lock.read_state() == WANTED

    # --- failing back and stopping --------------------------------------------------------------

    def _yield(self) -> None:
        self._cancel()
        self._node.deactivate(self._deactivation_done)

    def _stop_active(self) -> None:
        self._cancel()
        self._node.deactivate(self._deactivation_done)

    def _stop_later(self) -> None:
        self._stop_wanted = True

    def _abandon(self, error: BrokerError) -> None:
        self._remember(error)
        self._cancel()
        self._node.deactivate(self._deactivation_done)

    def _remember(self, error: BrokerError) -> None:
        self._error = self._error or error

    def _deactivation_done(self, error: BrokerError | None) -> None:
        if error is not None:
            self._remember(error)
            if self.state is State.FAILING_BACK:
                self.fire(Event.FAILED, error)
                return
        self.fire(Event.DEACTIVATED)

    def _wait_for_primary(self) -> None:
        self._lock.release_primary()
        if self._stop_wanted:
            self.fire(Event.STOP)
            return
        self._waiting_since_ms = self._clock.monotonic_ms()
        self._later(FAILBACK_POLL_MS, self._poll_for_primary)

    def _poll_for_primary(self) -> None:
        waited_ms = self._clock.monotonic_ms() - self._waiting_since_ms
        if self._lock.read_state() != OWNED and waited_ms < 2 * FAILBACK_GRACE_MS:
            self._later(FAILBACK_POLL_MS, self._poll_for_primary)
        elif self.options.restart_backup:
            self.fire(Event.PRIMARY_SERVES)
        else:
            self.fire(Event.STOP)

    def _end_active(self) -> None:
        # after an error, and if a clean stop fails over, the store stays "active": a passive node takes
        # over. Otherwise P keeps the backups passive (2.5).
        if self._error is None and not self._fail_over:
            try:
                self._lock.write_state(STOPPED_CLEANLY)
            except DiskFailed as error:
                self._remember(error)
        self._release()

    def _end_passive(self, error: BrokerError | None = None) -> None:
        if error is not None:
            self._remember(error)
        self._node.withdraw()
        self._node.stop_following()
        self._release()

    def _release(self) -> None:
        self._cancel()
        for release in (self._lock.release_primary, self._lock.release_backup):
            try:
                release()
            except DiskFailed as error:
                self._remember(error)
        self._node.stopped(self._error)

    # --- plumbing ------------------------------------------------------------------------------

    def _later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self._cancel()
        self._timer = self._timers.call_later(delay_ms, lambda: self._guarded(step))

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step that accesses the store; an error of the store stops the node."""
        try:
            step()
        except BrokerError as error:
            self.fire(Event.FAILED, error)

    def _check_lock_timeout(self) -> None:
        limit_ms = self.options.lock_timeout_ms
        if 0 <= limit_ms < self._clock.monotonic_ms() - self._waiting_since_ms:
            raise LockTimedOut(f"the store's lock was not free within {limit_ms} ms", hint="AMQ224000")

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (_S.STOPPED, _E.START_PRIMARY): To(_S.PASSIVE, _request_store),
            (_S.STOPPED, _E.START_BACKUP): To(_S.QUEUED, _queue),
            (_S.STOPPED, _E.STOP): IGNORED,
            (_S.STOPPED, _E.FAILED): IGNORED,
            (_S.QUEUED, _E.BACKUP_LOCK_TAKEN): To(_S.PASSIVE, _stand_by),
            (_S.QUEUED, _E.STOP): To(_S.STOPPED, _end_passive),
            (_S.QUEUED, _E.FAILED): To(_S.STOPPED, _end_passive),
            (_S.PASSIVE, _E.PRIMARY_LOCK_TAKEN): To(_S.ACTIVATING, _activate),
            (_S.PASSIVE, _E.STOP): To(_S.STOPPED, _end_passive),
            (_S.PASSIVE, _E.FAILED): To(_S.STOPPED, _end_passive),
            (_S.ACTIVATING, _E.ACTIVATED): To(_S.ACTIVE, _serve),
            # a stop during an activation waits until the activation has succeeded or failed
            (_S.ACTIVATING, _E.STOP): To(_S.ACTIVATING, _stop_later),
            (_S.ACTIVATING, _E.FAILED): To(_S.STOPPING, _abandon),
            (_S.ACTIVE, _E.FAILBACK_WANTED): To(_S.FAILING_BACK, _yield),
            (_S.ACTIVE, _E.STOP): To(_S.STOPPING, _stop_active),
            (_S.ACTIVE, _E.FAILED): To(_S.STOPPING, _abandon),
            (_S.FAILING_BACK, _E.DEACTIVATED): To(_S.YIELDED, _wait_for_primary),
            (_S.FAILING_BACK, _E.STOP): To(_S.FAILING_BACK, _stop_later),
            (_S.FAILING_BACK, _E.FAILED): To(_S.STOPPING, _abandon),
            (_S.YIELDED, _E.PRIMARY_SERVES): To(_S.QUEUED, _queue),
            (_S.YIELDED, _E.STOP): To(_S.STOPPED, _end_passive),
            (_S.YIELDED, _E.FAILED): To(_S.STOPPED, _end_passive),
            (_S.STOPPING, _E.DEACTIVATED): To(_S.STOPPED, _end_active),
            (_S.STOPPING, _E.STOP): IGNORED,
            (_S.STOPPING, _E.FAILED): To(_S.STOPPING, _remember),
            (_S.STOPPING, _E.ACTIVATED): IGNORED,
        },
        otherwise={
            _E.START_PRIMARY: ILLEGAL,
            _E.START_BACKUP: ILLEGAL,
            _E.BACKUP_LOCK_TAKEN: ILLEGAL,
            _E.PRIMARY_LOCK_TAKEN: ILLEGAL,
            _E.ACTIVATED: ILLEGAL,
            _E.FAILBACK_WANTED: ILLEGAL,
            _E.DEACTIVATED: ILLEGAL,
            _E.PRIMARY_SERVES: ILLEGAL,
        },
    )
