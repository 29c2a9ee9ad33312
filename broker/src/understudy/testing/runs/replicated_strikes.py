"""The faults of a replicated pair: those of the copy, nodes that lose each other, and crashes at named steps.

Not here: the faults of what decides which node is active (``witnessed_strikes``, ``quorum_strikes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from understudy.errors import JournalCorrupt, StoreBehind, StoreError
from understudy.store.log.reading.follower import recover
from understudy.store.seen import position_of
from understudy.testing.runs.cluster import INSTANCES, SimNode
from understudy.testing.runs.fault_plan import PAIR_LATER_KINDS, Fault, FaultKind
from understudy.testing.runs.steps import Step, StepCrash, name_of
from understudy.testing.runs.strikes import JOURNAL, Strikes, add_repair
from understudy.testing.sim.broken_disk import damage_log, note_later_position
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.loop import Death, SimProcess

#: Virtual seconds between the copy of a disk and its return: longer than the pause between two notes of the position.
PUT_BACK_AFTER_S: Final = 4.5


class ReplicatedStrikes(Strikes):
    """The faults of a replicated pair."""

    steps_drawn: ClassVar[Sequence[Step]]
    """Steps at which nodes crash."""

    def __init__(self, *arguments: Any) -> None:
        """Make strikes, like ``Strikes``."""
        super().__init__(*arguments)
        self.steps = StepCrash()
        self.reached: list[str] = []
        """Names of the steps at which nodes crashed."""

    def inject(self, fault: Fault) -> bool:
        if fault.kind in PAIR_LATER_KINDS:
            return self._strike_pair(fault)
        if fault.kind is FaultKind.CRASH_IN_COPY:
            return self._crash_in_copy(fault)
        if fault.kind is FaultKind.PUT_BACK:
            self._put_back(fault)
            return False  # the fault is counted when the disk is put back
        return super().inject(fault)

    def deciding_hosts(self) -> Sequence[str]:
        """The hosts that decide, beside the pair, which node is active."""
        raise NotImplementedError

    def _crash_in_copy(self, fault: Fault) -> bool:
        """The node that is not active ends, and copies the store when it is started again."""
        active, passive = self.pair_of(fault)
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

    def _put_back(self, fault: Fault) -> None:
        """Take a copy of the disk of one node, and put it back when the lock manager has noted a later position."""
        active, passive = self.pair_of(fault)
        victim = active if fault.choice < 0.6 else passive
        if victim is None:
            return
        volume = victim.storage.volume
        copy = volume.copy() if fault.choice * 8 % 1 < 0.5 else volume.synced_copy()
        self.later(PUT_BACK_AFTER_S, lambda: self._exchange(victim, copy, fault))

    def _exchange(self, victim: SimNode, copy: SimVolume, fault: Fault) -> None:
        active = self.cluster.active()
        replication = active.server.replication if active is not None and active.server is not None else None
        if replication is None or not replication.link.in_sync:
            # the other messages would be on no node
            return
        noted = replication.position.notes.noted
        try:
            follower = recover(copy.disk("auditor"), JOURNAL)
        except StoreError:
            # in the middle of a copy from the other node
            return
        follower.close()
        end = position_of(follower)
        if noted is None or noted.sequence <= end.sequence:
            return
        self.loop.record(f"the disk of {victim.name} is put back to {end}; noted is {noted}")
        self.injected[fault.kind] += 1
        self.expected.add(StoreBehind)
        other = self.cluster.nodes[self._partner(victim.name)]
        victim.down_s, other.down_s = 0.2, 1.0 + 6.0 * (fault.choice * 4 % 1)
        for node in (victim, other):
            if fault.choice * 16 % 1 < 0.5:
                self.cluster.kill(node.name)
            else:
                self.cluster.power_off(node.name)
        victim.storage.volume.replace_files("/", copy)

    def _strike_pair(self, fault: Fault) -> bool:
        active, passive = self.pair_of(fault)
        if fault.kind is FaultKind.CRASH_AT_STEP:
            self._crash_at_step(fault, active, passive)
            return False  # the fault is counted when the step is reached
        if fault.kind is FaultKind.COPY_UNUSABLE:
            return active is not None and passive not in (None, active) and self._spoil_copy(fault, active, passive)
        if active is None:
            return False
        other = self._partner(active.name)
        network = self.network
        network.part(active.name, other)
        if fault.kind is FaultKind.PART_THEN_KILL:

            def kill() -> None:
                active.down_s = 8.0 + fault.duration_s
                self.cluster.kill(active.name)
                network.heal(active.name, other)

            self.later(0.1 + fault.choice * 6.0, kill)
            return True
        for host in self.deciding_hosts():
            network.part(active.name, host)
        network.reset(active.name, other)

        def heal() -> None:
            for host in (other, *self.deciding_hosts()):
                network.heal(active.name, host)

        self.later(2.0 + fault.duration_s, heal)
        return True

    def _spoil_copy(self, fault: Fault, active: SimNode, passive: SimNode) -> bool:
        """The passive node starts alone, with a copy that it cannot use; the active one follows."""
        stream, volume = self.loop.random(f"copy {fault.number}"), passive.storage.volume
        passive.down_s = 0.1
        self.cluster.kill(passive.name)
        if fault.choice < 0.5:
            repair = damage_log(volume, JOURNAL, stream)
        else:
            repair = note_later_position(volume, passive.name, f"{INSTANCES}/{passive.name}")
        if repair is None:
            return False
        self.expected |= {JournalCorrupt, StoreBehind}
        add_repair(self.repairs, passive.name, repair)
        active.down_s = 1.0 + fault.duration_s
        self.cluster.kill(active.name)
        return True

    def _partner(self, name: str) -> str:
        """The other node of a pair."""
        (group,) = (node.group for node in self.plan.nodes if node.name == name)
        (other,) = (node.name for node in self.plan.nodes if node.group == group and node.name != name)
        return other

    def _crash_at_step(self, fault: Fault, active: SimNode | None, passive: SimNode | None) -> None:
        """Arm the crash, and end the passive node, kill the active one, or stop it with a failover."""
        stream = self.loop.random(f"step {fault.number}")
        death, after = stream.choice((Death.KILLED, Death.POWER_LOST)), stream.random() < 0.5
        self._arm_step(self.step_of(fault), fault, death=death, after=after)
        if active is None:
            return
        active.down_s = 0.3 + fault.duration_s
        if fault.choice < 0.4 and passive is not None and passive is not active:
            passive.down_s = 0.1
            self.cluster.kill(passive.name)
        elif fault.choice < 0.7:
            self.cluster.kill(active.name)
        else:
            self.cluster.stop(active.name, failover=True)

    def step_of(self, fault: Fault) -> Step:
        """The step of a fault, drawn by the seed. Tests choose one."""
        return self.loop.random(f"step of {fault.number}").choice(self.steps_drawn)

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
        """The hosts that decide; one isolation in two leaves them reachable."""
        return self.deciding_hosts() if self.loop.random(f"isolation {self.loop.time()}").random() < 0.5 else ()

    def heal(self) -> None:
        super().heal()
        self.steps.disarm()
