"""The faults of a replicated pair: those of the witness and its links, of the copy, and crashes at named steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from understudy.testing.cluster import SimNode
from understudy.testing.fault_plan import PASSIVE, REPLICATION_KINDS, REPLICATION_LATER_KINDS, Fault, FaultKind
from understudy.testing.sim_loop import Death, SimProcess
from understudy.testing.sim_witness import SimWitness
from understudy.testing.steps import STEPS, Step, StepCrash, name_of
from understudy.testing.strikes import Strikes


class ReplicatedStrikes(Strikes):
    """The faults of a replicated pair."""

    witness: SimWitness

    def __init__(self, *arguments: Any) -> None:
        """As ``Strikes``."""
        super().__init__(*arguments)
        self.steps = StepCrash()
        self.reached: list[str] = []
        """Names of the steps at which nodes crashed."""

    def inject(self, fault: Fault) -> bool:
        """See ``Strikes``."""
        if fault.kind in REPLICATION_LATER_KINDS:
            return self._strike_pair(fault)
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

    def _strike_pair(self, fault: Fault) -> bool:
        active = self.cluster.active()
        if fault.kind is FaultKind.CRASH_AT_STEP:
            self._crash_at_step(fault, active)
            return False  # counted when the step is reached
        if active is None:
            return False
        (other,) = (name for name in self.cluster.nodes if name != active.name)
        network, host = self.network, self.witness.host
        network.part(active.name, other)
        if fault.kind is FaultKind.PART_THEN_KILL:

            def kill() -> None:
                active.down_s = 8.0 + fault.duration_s
                self.cluster.kill(active.name)
                network.heal(active.name, other)

            self.later(0.1 + fault.choice * 6.0, kill)
            return True
        network.part(active.name, host)
        network.reset(active.name, other)

        def heal() -> None:
            network.heal(active.name, other)
            network.heal(active.name, host)

        self.later(2.0 + fault.duration_s, heal)
        return True

    def _crash_at_step(self, fault: Fault, active: SimNode | None) -> None:
        """Arm the crash, and end the passive node, kill the active one, or stop it with a failover."""
        stream = self.loop.random(f"step {fault.number}")
        death, after = stream.choice((Death.KILLED, Death.POWER_LOST)), stream.random() < 0.5
        self._arm_step(self.step_of(fault), fault, death=death, after=after)
        if active is None:
            return
        active.down_s = 0.3 + fault.duration_s
        passive = self.cluster.target(PASSIVE)
        if fault.choice < 0.4 and passive is not None and passive is not active:
            passive.down_s = 0.1
            self.cluster.kill(passive.name)
        elif fault.choice < 0.7:
            self.cluster.kill(active.name)
        else:
            self.cluster.stop(active.name, failover=True)

    def step_of(self, fault: Fault) -> Step:
        """The step of a fault, drawn by the seed. Tests choose one."""
        return self.loop.random(f"step of {fault.number}").choice(STEPS)

    def _arm_step(self, step: Step, fault: Fault, *, death: Death, after: bool) -> None:
        """Crash the next node that reaches a step, once; counted by the kind of the fault."""

        def crash(process: SimProcess) -> None:
            self.loop.record(f"{process.label} crashes at {name_of(step)}")
            self.injected[fault.kind] += 1
            self.reached.append(name_of(step))
            if death is Death.POWER_LOST:
                self.network.power_off(process.host)
            else:
                process.kill()

        self.steps.arm(step, crash, after=after)

    def others(self) -> Sequence[str]:
        """The host of the witness; one isolation in two leaves it reachable."""
        return (self.witness.host,) if self.loop.random(f"isolation {self.loop.time()}").random() < 0.5 else ()

    def heal(self) -> None:
        """See ``Strikes``."""
        super().heal()
        self.steps.disarm()
        self.witness.crash_point.disarm()
        if self.witness.process is not None:
            self.witness.process.resume()
        self.witness.start()
