"""Lock manager over a group of witnesses, of which a majority decides. Implements ``LockManager`` (ADR 0117).

It has a client for each member. It is available while a majority of the clients is. A client that became unavailable
is started again, so that a member that was down, updated or replaced takes part again by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from understudy.errors import BrokerError, LockManagerUnavailable
from understudy.ha.locks.distributed_lock import ManagerListener
from understudy.ha.witness.client import WitnessLockManager
from understudy.ha.witness.lock import WitnessLock
from understudy.ha.witness.majority_lock import MajorityLock
from understudy.ha.witness.majority_number import MajorityNumber
from understudy.ports import Clock, Entropy, Timer, Timers

log = logging.getLogger(__name__)

#: Pause before the client of a member is started again.
START_AGAIN_MS: Final = 250


class _MemberListener:
    """Listener at one member of a group. Implements ``ManagerListener``."""

    def __init__(self, group: WitnessGroup, member: WitnessLockManager) -> None:
        self._group = group
        self._member = member

    def available(self) -> None:
        self._group.member_available(self._member)

    def unavailable(self, error: BrokerError) -> None:
        self._group.member_unavailable(self._member, error)


class WitnessGroup:
    """Access of one node to a group of witnesses. Implements ``LockGroup``."""

    def __init__(self, members: Sequence[WitnessLockManager], clock: Clock, timers: Timers, entropy: Entropy) -> None:
        """Begin in the state before ``start``.

        Args:
            members: Clients of the witnesses; an odd number.
            clock: Boot time.
            entropy: Used for the tokens of ballots.
        """
        self.members: Sequence[WitnessLockManager] = members
        self.clock = clock
        self.timers = timers
        self.entropy = entropy
        self.size = len(members)
        self.majority = len(members) // 2 + 1
        self._listener: ManagerListener | None = None
        self._available = False
        """The listener was called with ``available`` since the last start."""
        self._up: set[WitnessLockManager] = set()
        self._errors: dict[WitnessLockManager, BrokerError] = {}
        """Error of each member that has failed since the last start and has not answered again."""
        self._starts: dict[WitnessLockManager, Timer] = {}
        self._locks: dict[str, MajorityLock] = {}

    # --- LockManager -----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Provider and addresses of the group, for messages."""
        places = (f"{host}:{port}" for member in self.members for host, port in member.options.addresses)
        return "witnesses " + ",".join(places)

    def start(self, listener: ManagerListener) -> None:
        """Begin to connect to all members; see ``LockManager``."""
        self.stop()
        self._listener = listener
        for member in self.members:
            member.start(_MemberListener(self, member))

    def stop(self) -> None:
        """Release all locks and disconnect from all members."""
        self._listener = None
        self._available = False
        for timer in self._starts.values():
            timer.cancel()
        self._starts.clear()
        self._up.clear()
        self._errors.clear()
        locks, self._locks = self._locks, {}
        for lock in locks.values():
            lock.forget()
        for member in self.members:
            member.stop()

    def lock(self, lock_id: str) -> MajorityLock:
        """The lock of an id; the same object for the same id until ``stop``."""
        found = self._locks.get(lock_id)
        if found is None:
            found = self._locks[lock_id] = MajorityLock(self, lock_id)
        return found

    def number(self, number_id: str) -> MajorityNumber:
        """The number of an id."""
        return MajorityNumber(self, number_id)

    # --- members ---------------------------------------------------------------------------------------------

    def available_locks(self, lock_id: str) -> list[WitnessLock]:
        return [member.lock(lock_id) for member in self.members if member in self._up]

    def member_available(self, member: WitnessLockManager) -> None:
        """Called when a member of the group answers."""
        self._up.add(member)
        self._errors.pop(member, None)
        if not self._available and len(self._up) >= self.majority and self._listener is not None:
            self._available = True
            self._listener.available()

    def member_unavailable(self, member: WitnessLockManager, error: BrokerError) -> None:
        """A member does not answer any more."""
        self._up.discard(member)
        self._errors[member] = error
        log.warning("a witness of the group does not answer", extra={"error": str(error), "answer": len(self._up)})
        listener = self._listener
        if listener is not None and self._lost():
            reasons = "; ".join(str(each) for each in self._errors.values())
            self._listener = None
            listener.unavailable(LockManagerUnavailable(f"{self.name}: no majority answers: {reasons}"))
            return
        self._starts[member] = self.timers.call_later(START_AGAIN_MS, lambda: self._start_member(member))

    def _lost(self) -> bool:
        """Whether no majority answers; before the first one did, whether none can."""
        if self._available:
            return len(self._up) < self.majority
        return len(self._errors) > self.size - self.majority

    def _start_member(self, member: WitnessLockManager) -> None:
        self._starts.pop(member, None)
        if self._listener is not None:
            member.start(_MemberListener(self, member))
