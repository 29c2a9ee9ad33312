"""The scenario of a replicated pair whose lock manager is a group of three witnesses (ADR 0117).

The faults are those of a pair with one witness, each for one of the three or for a majority, and the replacement of a
member by one without state, carried out by the shipped procedure.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from understudy.errors import BrokerError
from understudy.runtime.locks.witness_groups import replace as replace_member
from understudy.testing.runs.cluster_configuration import PAIR, NodeRole
from understudy.testing.runs.fault_plan import GROUP_KINDS, LAST_KINDS, Fault, FaultKind
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.strikes import Strikes
from understudy.testing.runs.witnessed_run import WitnessedRun
from understudy.testing.runs.witnessed_strikes import WitnessedStrikes
from understudy.testing.scenarios.replicated_pair import with_faults_of_pairs, with_promises
from understudy.testing.scenarios.scenario import Scenario
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.witness import SimWitness
from understudy.testing.sim.witnessed_storage import operator

_GROUP: Final = bytes(range(16))
#: Virtual seconds before a replacement that failed is tried again.
_AGAIN_S: Final = 2.0


class GroupedStrikes(WitnessedStrikes):
    """The faults of a pair with a group of witnesses."""

    replacing: SimWitness | None = None
    """The witness that has lost its state and has not joined again."""

    def inject(self, fault: Fault) -> bool:
        if fault.kind is not FaultKind.WITNESS_REPLACED:
            return super().inject(fault)
        witness = self.struck(fault)
        if self.replacing is not None:
            # with two members without state the numbers of the group would be lost
            return False
        self.replacing = witness
        witness.kill()
        witness.lose_state()
        self.later(0.2 + fault.duration_s / 4, witness.start)
        self.loop.call_later(1.0 + fault.duration_s / 2, self._replace)
        return True

    def _replace(self) -> None:
        """Let the witness join again, on a host of its own; repeated until it has."""
        loop, witness = self.loop, self.replacing
        assert witness is not None
        process, requests = operator(loop)

        async def work() -> None:
            try:
                await replace_member(requests.ask, [each.place for each in self.witnesses], witness.place)
            except BrokerError as error:
                loop.record(f"replacement of {witness.host}: {error}")
                loop.call_later(_AGAIN_S, self._replace)
            else:
                self.replacing = None

        process.create_task(work())


class GroupedRun(WitnessedRun):
    """One run of a replicated pair with three witnesses."""

    strikes_class: ClassVar[type[Strikes]] = GroupedStrikes

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        self.network.add_host("operator")

    def make_witnesses(self) -> Sequence[SimWitness]:
        return [self.make_witness(f"witness{number}", _GROUP) for number in (1, 2, 3)]


class GroupedPair(Scenario):
    """A primary that fails back, a backup that allows it, and three witnesses."""

    name = "witnesses"
    text = "a primary and a backup with a store each, and three witnesses of which a majority decides"
    last_kinds = LAST_KINDS
    run_class = GroupedRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        return PAIR

    def configure(self, plan: Plan) -> Plan:
        names = [node.name for node in plan.nodes]
        update = random.Random(f"{plan.seed}/rolling update")
        older = frozenset(name for name in names if update.random() < 0.25)
        plan = with_promises(with_faults_of_pairs(plan, self.name, GROUP_KINDS), self.name)
        return replace(plan, pair=replace(plan.pair, older=older))
