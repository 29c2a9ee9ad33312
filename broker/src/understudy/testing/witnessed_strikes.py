"""The faults of a pair with a witness: those of a replicated pair, of the witness, and of the links to it."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.testing.fault_plan import Fault, FaultKind
from understudy.testing.replicated_strikes import ReplicatedStrikes
from understudy.testing.sim_loop import Death
from understudy.testing.sim_witness import SimWitness
from understudy.testing.steps import LOCK_STEPS


class WitnessedStrikes(ReplicatedStrikes):
    """The faults of a pair with a witness."""

    steps_drawn = LOCK_STEPS
    witness: SimWitness

    def inject(self, fault: Fault) -> bool:
        """See ``Strikes``."""
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
            return super().inject(fault)
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
        node, host = self.target(fault), self.witness.host
        if node is None:
            return False
        if fault.choice < 0.75:
            self.network.part(node.name, host, both_ways=fault.choice < 0.5)
        else:
            self.network.part(host, node.name, both_ways=False)
        self.later(fault.duration_s, lambda: self.network.heal(node.name, host))
        return True

    def deciding_hosts(self) -> Sequence[str]:
        """The host of the witness."""
        return (self.witness.host,)

    def heal(self) -> None:
        """See ``Strikes``."""
        super().heal()
        self.witness.crash_point.disarm()
        if self.witness.process is not None:
            self.witness.process.resume()
        self.witness.start()
