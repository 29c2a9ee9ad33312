"""The disk of a simulated node with its way to the witnesses, and the requests of an operator to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from understudy.ha.locks.distributed_lock import LockManager
from understudy.ha.witness.group import WitnessGroup
from understudy.ha.witness.options import GroupConfiguration
from understudy.runtime.base.environment import Environment
from understudy.runtime.base.turn import Turn
from understudy.runtime.locks.witness_dialer import LoopWitnessDialer
from understudy.runtime.locks.witness_requests import WitnessRequests
from understudy.testing.sim.environment import SimClock, SimEntropy, SimTimers, Skew
from understudy.testing.sim.loop import SimLoop, SimProcess
from understudy.testing.sim.own_storage import OwnStorage
from understudy.testing.sim.storage import CrashPoint
from understudy.testing.sim.witness import SECRET, SimWitness

#: Time limit of a request of the operator. Virtual seconds.
_TIMEOUT_S = 3.0


class WitnessedStorage(OwnStorage):
    """The disk of one node, and its way to the witness or the group of witnesses."""

    witnesses: Sequence[SimWitness]

    def environment(
        self, process: SimProcess, skew: Skew, crash_point: CrashPoint, heard: Callable[[float], None]
    ) -> Environment:
        """See ``SharedStorage``; the lock manager is that of the simulated witnesses."""

        def lock_manager(options: Any, name: str, environment: Environment, loop: Any, turn: Any) -> LockManager:
            group = GroupConfiguration() if len(self.witnesses) > 1 else None
            clock, timers, entropy = environment.clock, environment.timers, environment.entropy
            members = [each.lock_manager(name, turn, clock, timers, entropy, group) for each in self.witnesses]
            return members[0] if group is None else WitnessGroup(members, clock, timers, entropy)

        return replace(super().environment(process, skew, crash_point, heard), lock_manager=lock_manager)


def operator(loop: SimLoop) -> tuple[SimProcess, WitnessRequests]:
    """A process of an operator on the host of that name, and its requests to witnesses."""
    process = loop.new_process("operator")
    turn = Turn(loop, SimTimers(loop, Skew()), lambda: SimClock(loop, Skew()).monotonic_ms() * 1_000_000)
    entropy = SimEntropy(loop.random(f"entropy {process.label}"))
    return process, WitnessRequests(LoopWitnessDialer(loop, turn), entropy, SECRET, "operator", _TIMEOUT_S)
