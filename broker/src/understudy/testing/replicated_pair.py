"""The scenario of a replicated pair: two hosts with a disk each, and a witness on a third host.

The primary fails back, the backup allows it. Every fault of the shared stores is used except those of a storage server
that both hosts mount, and damaged records; the witness and its links have faults of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from understudy.errors import ActivationRefused, LockLost, LockManagerUnavailable, ReplicaFailed
from understudy.ha.distributed_lock import LockManager
from understudy.runtime.environment import Environment
from understudy.testing.checkers import Violation
from understudy.testing.cluster_configuration import PAIR, NodeRole
from understudy.testing.fault_plan import PASSIVE, REPLICATION_KINDS, Fault, FaultKind, draw_faults
from understudy.testing.plan import Plan
from understudy.testing.scenario import Scenario
from understudy.testing.scenario_run import ScenarioRun
from understudy.testing.sim_environment import Skew
from understudy.testing.sim_loop import Death, SimLoop, SimProcess
from understudy.testing.sim_storage import CrashPoint, SharedStorage
from understudy.testing.sim_witness import SimWitness
from understudy.testing.strikes import Strikes

#: Lease of the lock, and the longest lease of the witness, which is also its wait after a start. Milliseconds.
_LEASE_MS: Final = 3_000
_LEASE_MS_MAX: Final = 4_000
#: Kinds of a storage server that several hosts mount, and damaged records.
_LEFT_OUT: Final = frozenset({FaultKind.STORE_CUT_OFF, FaultKind.DAMAGE})


class OwnStorage(SharedStorage):
    """The disk of one node, and its way to the witness."""

    witness: SimWitness

    def environment(
        self, process: SimProcess, skew: Skew, crash_point: CrashPoint, heard: Callable[[float], None]
    ) -> Environment:
        """See ``SharedStorage``; the lock manager is the simulated witness."""

        def lock_manager(options: Any, name: str, environment: Environment, loop: Any, turn: Any) -> LockManager:
            return self.witness.lock_manager(name, turn, environment.clock, environment.timers, environment.entropy)

        return replace(super().environment(process, skew, crash_point, heard), lock_manager=lock_manager)

    def expire_leases(self, host: str) -> None:
        """A lock on a disk of the own host has no lease."""


class ReplicatedStrikes(Strikes):
    """The faults of a replicated pair."""

    witness: SimWitness

    def inject(self, fault: Fault) -> bool:
        """See ``Strikes``."""
        if fault.kind not in REPLICATION_KINDS:
            return super().inject(fault)
        witness = self.witness
        if fault.kind is FaultKind.WITNESS_DOWN:
            self._end_witness(fault)
        elif fault.kind is FaultKind.WITNESS_FLAPS:
            self._flap_witness(self.loop.time() + fault.duration_s)
        elif fault.kind is FaultKind.WITNESS_PAUSED:
            assert witness.process is not None
            witness.process.pause()
            self.later(fault.duration_s, witness.process.resume)
        elif fault.kind is FaultKind.PART_WITNESS:
            return self._part_witness(fault)
        else:
            return self._crash_in_copy(fault)
        return True

    def _end_witness(self, fault: Fault) -> None:
        witness = self.witness
        death = Death.POWER_LOST if fault.choice < 0.5 else Death.KILLED
        if fault.choice * 4 % 1 < 0.5:
            self._kill_witness(death)
        else:
            witness.crash_point.arm(fault.operations, lambda: self._kill_witness(death))
        # one that is killed by the crash point after this time stays down until everything heals
        self.later(fault.duration_s, witness.start)

    def _kill_witness(self, death: Death) -> None:
        if death is Death.POWER_LOST:
            self.network.power_off(self.witness.host)
        else:
            self.witness.kill()

    def _flap_witness(self, until_s: float) -> None:
        self._kill_witness(Death.KILLED)
        self.later(0.3, self.witness.start)
        if self.loop.time() < until_s:
            self.later(1.0, lambda: self._flap_witness(until_s))

    def _part_witness(self, fault: Fault) -> bool:
        node, host = self.cluster.target(fault.target), self.witness.host
        if node is None:
            return False
        if fault.choice < 0.75:
            self.network.part(node.name, host, both_ways=fault.choice < 0.5)
        else:
            self.network.part(host, node.name, both_ways=False)
        self.later(fault.duration_s, lambda: self.network.heal(node.name, host))
        return True

    def _crash_in_copy(self, fault: Fault) -> bool:
        """The node that is not active ends, and copies the store when it is started again."""
        active, passive = self.cluster.active(), self.cluster.target(PASSIVE)
        if active is None or passive is None or passive is active:
            return False
        passive.down_s = 0.1
        self.cluster.kill(passive.name)
        death = Death.POWER_LOST if fault.choice < 0.5 else Death.KILLED
        victim = active if fault.choice * 4 % 1 < 0.3 else passive

        def arm() -> None:
            victim.down_s = fault.duration_s
            self.cluster.crash_in_disk(victim.name, fault.operations, death)

        # after the start, which disarms the crash point
        self.later(0.15, arm)
        return True

    def others(self) -> Sequence[str]:
        """The host of the witness; one isolation in two leaves it reachable."""
        return (self.witness.host,) if self.loop.random(f"isolation {self.loop.time()}").random() < 0.5 else ()

    def heal(self) -> None:
        """See ``Strikes``."""
        super().heal()
        self.witness.crash_point.disarm()
        if self.witness.process is not None:
            self.witness.process.resume()
        self.witness.start()


class ReplicatedRun(ScenarioRun):
    """One run of a replicated pair."""

    storage_class: ClassVar[type[SharedStorage]] = OwnStorage
    strikes_class: ClassVar[type[Strikes]] = ReplicatedStrikes

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        assert isinstance(self.strikes, ReplicatedStrikes)
        self.strikes.witness = self.witness
        # an active node ends without its lock or its replica; the supervisor starts it again
        self.strikes.expected |= {LockLost, LockManagerUnavailable, ActivationRefused, ReplicaFailed}

    def make_storages(self) -> list[SharedStorage]:
        """A storage for each node, and the witness."""
        stream = random.Random(f"{self.plan.seed}/witness clock")
        skew = Skew(boot_ms=stream.randrange(10**9), rate=stream.choice((1.0, stream.uniform(0.999, 1.001))))
        self.network.add_host("witness")
        self.witness = SimWitness(self.loop, lease_ms=_LEASE_MS, lease_max_ms=_LEASE_MS_MAX, skew=skew)
        storages: list[SharedStorage] = []
        for _ in self.plan.nodes:
            storage = self.storage_class(self.loop, replace(self.plan.storage))
            assert isinstance(storage, OwnStorage)
            storage.witness = self.witness
            storages.append(storage)
        return storages

    async def run(self) -> None:
        """See ``ScenarioRun``."""
        self.witness.start()
        await super().run()
        self.violations += [Violation("ended", f"the witness ended with {error}") for error in self.witness.failures]

    def _judge_store(self) -> None:
        """The store of the node that was active last has everything."""
        if self.cluster.epochs.activations:
            name = self.cluster.epochs.activations[-1].node.partition(".")[0]
            self.storage = self.cluster.nodes[name].storage
        super()._judge_store()


class ReplicatedPair(Scenario):
    """A primary that fails back, a backup that allows it, and a witness."""

    name = "replication"
    text = "a primary and a backup with a store each, and a witness that decides which of them is active"
    run_class = ReplicatedRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        return PAIR

    def configure(self, plan: Plan) -> Plan:
        stream = random.Random(f"{plan.seed}/replication")
        faults = [fault for fault in plan.faults if fault.kind not in _LEFT_OUT]
        first = 1 + max((fault.number for fault in plan.faults), default=0)
        more = draw_faults(
            stream, begin_s=0.0, end_s=plan.heal_s, count=stream.randint(0, 3), weights=REPLICATION_KINDS
        )
        faults += [replace(fault, number=first + fault.number) for fault in more]
        faults.sort(key=lambda fault: fault.at_s)
        pair = replace(plan.pair, replicated=True, allow_failback=True, quarantine=False)
        return replace(plan, pair=pair, faults=tuple(faults))
