"""Planted bugs of the promise by which a pair goes on without its lock manager (ADR 0116)."""

from __future__ import annotations

from typing import Any, Final

from planted.planting import Patch, planted
from understudy.ha.replication.given_promise import GivenPromise
from understudy.ha.replication.lock_authority import LockAuthority
from understudy.ha.replication.ports import ReplicaPromises
from understudy.ha.replication.standing_lock import StandingLock
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.runs.witnessed_run import WitnessedRun
from understudy.testing.runs.witnessed_strikes import WitnessedStrikes
from understudy.testing.scenarios.replicated_pair import with_pair_faults

_REPLICATION: Final = "replication"
_ONE_NODE: Final = "one node of a pair may confirm at a time"


def _second_loss(strike: str) -> type[ScenarioRun]:
    """A run whose active node alone loses the witness, and 5 s later the replica."""

    class LosesBoth(WitnessedStrikes):
        def inject(self, fault: Fault) -> bool:
            active, passive = self.pair_of(fault)
            if active is None or passive is None or passive is active:
                return False
            network = self.network
            (host,) = self.deciding_hosts()
            network.part(active.name, host)
            self.later(5.0, lambda: self._strike_second(strike, active, passive, fault))
            self.later(20.0, lambda: network.heal(active.name, host))
            return True

    class LosesBothRun(WitnessedRun):
        strikes_class = LosesBoth

    fault = Fault(0, 8.0, FaultKind.WITNESS_GONE_THEN, "", 10.0, 0.1, 0)
    return with_pair_faults(fault, run_class=LosesBothRun)


@planted("promise-kept-too-short", promise=_ONE_NODE, checks=["two-permitted"], elsewhere={_REPLICATION: range(6)})
def _promise_kept_too_short(patch: Patch) -> type[ScenarioRun]:
    """A replica keeps its promise for a twentieth of the time."""

    def give(self: GivenPromise, duration_ms: int, given: Any) -> None:
        old(self, duration_ms // 20, given)

    old = patch.replace(GivenPromise, "give", give)
    return _second_loss("link cut")


@planted("promise-out-of-sync", promise=_ONE_NODE, checks=["two-permitted"], elsewhere={_REPLICATION: range(6)})
def _promise_out_of_sync(patch: Patch) -> type[ScenarioRun]:
    """A promise counts as given by a replica that is not in sync any more, and does not keep it."""

    def synced(self: LockAuthority, replica: ReplicaPromises | None) -> None:
        if replica is not None:
            set_replica(self, replica)

    def ask(self: StandingLock, now_ms: int) -> None:
        old_ask(self, now_ms)
        self.promised(self._number, None)

    set_replica = patch.replace(LockAuthority, "synced", synced)
    old_ask = patch.replace(StandingLock, "_ask", ask)
    return _second_loss("link cut")
