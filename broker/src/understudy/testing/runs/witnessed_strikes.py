"""The faults of a pair with a witness: those of a replicated pair, of the witness, and of the links to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final

from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.replicated_strikes import ReplicatedStrikes
from understudy.testing.runs.steps import LOCK_STEPS, Step
from understudy.testing.sim.loop import Death
from understudy.testing.sim.witness import SimWitness

#: The second loss of ``FaultKind.WITNESS_GONE_THEN``.
SECOND_LOSSES: Final = (
    "link cut",
    "link cut towards the replica",
    "link cut towards the active node",
    "replica killed",
    "replica restarted",
    "replica paused",
    "replica reaches the witness",
    "active node killed",
    "active node paused",
    "active node stopped",
)


class WitnessedStrikes(ReplicatedStrikes):
    """The faults of a pair with a witness."""

    steps_drawn: ClassVar[Sequence[Step]] = LOCK_STEPS
    witnesses: Sequence[SimWitness]
    """The only witness, or the members of a group of witnesses."""

    def struck(self, fault: Fault) -> SimWitness:
        """The witness that a fault of one witness strikes."""
        return self.witnesses[int(fault.choice * 97) % len(self.witnesses)]

    def deciding(self, fault: Fault) -> Sequence[SimWitness]:
        """Witnesses without which no permission is given: all, or just a majority."""
        count = len(self.witnesses) // 2 + 1 if fault.choice * 8 % 1 < 0.5 else len(self.witnesses)
        return self.witnesses[:count]

    def inject(self, fault: Fault) -> bool:
        witness = self.struck(fault)
        if fault.kind is FaultKind.WITNESS_DOWN:
            self._end_witness(witness, fault)
        elif fault.kind is FaultKind.WITNESS_FLAPS:
            self._flap_witness(witness, self.loop.time() + fault.duration_s)
        elif fault.kind is FaultKind.WITNESS_PAUSED:
            self.later(fault.duration_s, self._pause_witness(witness))
        elif fault.kind is FaultKind.WITNESS_GONE_THEN:
            return self._lose_witness_then(fault)
        elif fault.kind is FaultKind.PART_WITNESS:
            return self._part_witness(witness, fault)
        else:
            return super().inject(fault)
        return True

    @staticmethod
    def _pause_witness(witness: SimWitness) -> Callable[[], None]:
        """Pause the witness and return the call that resumes it."""
        assert witness.process is not None
        witness.process.pause()
        return witness.process.resume

    def _end_witness(self, witness: SimWitness, fault: Fault) -> None:
        death = Death.POWER_LOST if fault.choice < 0.5 else Death.KILLED
        if fault.choice * 4 % 1 < 0.5:
            self._kill_witness(witness, death)
        else:
            witness.crash_point.arm(fault.operations, lambda: self._kill_witness(witness, death))
        # a node that is killed by the crash point after this time is not started before all faults are healed
        self.later(fault.duration_s, witness.start)

    def _kill_witness(self, witness: SimWitness, death: Death) -> None:
        if death is Death.POWER_LOST:
            self.network.power_off(witness.host)
        else:
            witness.kill()

    def _flap_witness(self, witness: SimWitness, until_s: float) -> None:
        self._kill_witness(witness, Death.KILLED)
        self.later(0.3, witness.start)
        if self.loop.time() < until_s:
            self.later(1.0, lambda: self._flap_witness(witness, until_s))

    def _part_witness(self, witness: SimWitness, fault: Fault) -> bool:
        node, host = self.target(fault), witness.host
        if node is None:
            return False
        if fault.choice < 0.75:
            self.network.part(node.name, host, both_ways=fault.choice < 0.5)
        else:
            self.network.part(host, node.name, both_ways=False)
        self.later(fault.duration_s, lambda: self.network.heal(node.name, host))
        return True

    def _lose_witness_then(self, fault: Fault) -> bool:
        """A first loss, until the pair runs on its promise; then a second one, drawn by the seed."""
        active, passive = self.pair_of(fault)
        link = active.server.replication.link if active and active.server and active.server.replication else None
        if active is None or passive is None or passive is active or link is None or not link.in_sync:
            # the fault is counted when it is injected
            self.later(0.5, lambda: self.strike(fault))
            return False
        stream = self.loop.random(f"witness gone {fault.number}")
        lost, back = self.deciding(fault), []
        loss = stream.choice(("killed", "paused", "parted from both", "parted from the active node"))
        for witness in lost:
            if loss == "killed":
                self._kill_witness(witness, Death.KILLED)
                back.append(witness.start)
            elif loss == "paused":
                back.append(self._pause_witness(witness))
            else:
                for node in [active] if loss == "parted from the active node" else [active, passive]:
                    self.network.part(node.name, witness.host)
                    back.append(partial(self.network.heal, node.name, witness.host))

        strike = stream.choice(SECOND_LOSSES)
        self.loop.record(f"witness {loss}, then {strike}")
        first_s = stream.uniform(1.0, 9.0)
        self.later(first_s, lambda: self._strike_second(strike, active, passive, fault))
        back_s = first_s + stream.uniform(0.0, 12.0)
        for call in back:
            self.later(back_s, call)
        return True

    def _strike_second(self, strike: str, active: SimNode, passive: SimNode, fault: Fault) -> None:
        network, one, other = self.network, active.name, passive.name
        if strike.startswith("link"):
            if strike == "link cut towards the replica":
                network.part(one, other, both_ways=False)
            elif strike == "link cut towards the active node":
                network.part(other, one, both_ways=False)
            else:
                network.part(one, other)
            if fault.choice < 0.3:
                network.reset(one, other)
            self.later(3.0 + fault.duration_s, lambda: network.heal(one, other))
        elif strike in ("replica killed", "replica restarted", "active node killed"):
            node = active if strike == "active node killed" else passive
            node.down_s = 0.1 if strike == "replica restarted" else fault.duration_s
            self.cluster.kill(node.name)
        elif strike == "active node stopped":
            active.down_s = fault.duration_s
            self.cluster.stop(one, failover=True)
        elif strike == "replica reaches the witness":
            for witness in self.witnesses:
                network.heal(other, witness.host)
        else:
            process = (active if strike == "active node paused" else passive).process
            if process is not None:
                process.pause()
                self.later(fault.duration_s, process.resume)

    def deciding_hosts(self) -> Sequence[str]:
        """The hosts of the witnesses."""
        return [witness.host for witness in self.witnesses]

    def heal(self) -> None:
        super().heal()
        for witness in self.witnesses:
            witness.crash_point.disarm()
            if witness.process is not None:
                witness.process.resume()
            witness.start()
