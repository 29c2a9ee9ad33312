"""The faults of a pair of a cluster that votes: those of a replicated pair, of the voters, and of the links to them."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.testing.runs.cluster import SimCluster
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.replicated_strikes import ReplicatedStrikes
from understudy.testing.runs.steps import VOTE_STEPS


class QuorumStrikes(ReplicatedStrikes):
    """The faults of a pair of a cluster that votes."""

    steps_drawn = VOTE_STEPS
    voters: SimCluster

    def inject(self, fault: Fault) -> bool:
        voters = list(self.voters.nodes.values())
        voter = voters[fault.number % len(voters)]
        if fault.kind is FaultKind.VOTER_DOWN:
            voter.down_s = fault.duration_s
            if fault.choice < 0.5:
                self.voters.kill(voter.name)
            else:
                self.voters.power_off(voter.name)
        elif fault.kind is FaultKind.VOTER_PAUSED:
            if voter.process is None:
                return False
            voter.process.pause()
            self.later(fault.duration_s, voter.process.resume)
        elif fault.kind is FaultKind.PART_VOTERS:
            return self._part_voters(fault, [voter.name] if fault.choice * 8 % 1 < 0.4 else list(self.voters.nodes))
        else:
            return super().inject(fault)
        return True

    def _part_voters(self, fault: Fault, names: Sequence[str]) -> bool:
        node = self.cluster.target(fault.target)
        if node is None:
            return False
        for name in names:
            if fault.choice < 0.75:
                self.network.part(node.name, name, both_ways=fault.choice < 0.5)
            else:
                self.network.part(name, node.name, both_ways=False)
        self.later(fault.duration_s, lambda: self._rejoin(node.name, names))
        return True

    def _rejoin(self, node: str, names: Sequence[str]) -> None:
        for name in names:
            self.network.heal(node, name)

    def deciding_hosts(self) -> Sequence[str]:
        """The hosts of the voters."""
        return tuple(self.voters.nodes)

    def heal(self) -> None:
        super().heal()
        for name, voter in self.voters.nodes.items():
            voter.down_s = 1.0
            if voter.process is not None:
                voter.process.resume()
            self.voters.start(name)
