"""A scenario of the simulation: a topology, how its plans are drawn, and the run that carries them out.

A scenario chooses its nodes and their configuration, the weights of the fault kinds, the workload and the class of its
run, which has the judges. Everything else (processes, storage, network, clients, faults) is shared. To add one, derive
from ``Scenario`` and add it to ``scenarios.SCENARIOS``; planted bugs name the scenarios in which they must be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, field, replace
from typing import Any, ClassVar

from understudy.dataclass import dataclass
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.cluster_configuration import NodeRole
from understudy.testing.runs.fault_plan import WEIGHTS, FaultKind, draw_later_faults
from understudy.testing.runs.plan import Plan, draw_plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.sim.loop import SimLoop, SimulationStuck

#: Number of runs in which one failing seed is shortened at most.
SHRINKING_RUNS_MAX = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run."""

    scenario: str
    seed: int
    digest: str
    """Digest of the run's trace; equal seeds give equal digests."""
    violations: tuple[Violation, ...]
    sent: int
    confirmed: int
    delivered: int
    activations: int
    faults: int
    steps: int
    virtual_s: float
    damaged: int = 0
    """Messages whose records were damaged."""
    quarantined: int = 0
    """Number of messages in the quarantine at the end of the run."""
    branches: int = 0
    """Number of XA branches that were begun."""
    restored_s: float = 0.0
    """Virtual seconds from healing until a message of a new client was confirmed."""
    promotions: int = 0
    """Commands of an operator that a pair needed to serve again."""
    injected: Mapping[str, int] = field(default_factory=dict)
    """Faults that had an effect, by kind."""

    @property
    def ok(self) -> bool:
        """Whether no checker reported a violation."""
        return not self.violations

    def to_json(self) -> dict[str, Any]:
        """The outcome for ``--json``."""
        return asdict(self) | {"injected": dict(self.injected), "ok": self.ok}


class Scenario:
    """One scenario; its attributes and ``configure`` are for subclasses to set."""

    name: ClassVar[str]
    text: ClassVar[str]
    """Description in one line for ``--help``."""
    weights: ClassVar[Mapping[FaultKind, int]] = WEIGHTS
    """How often each kind of fault is drawn, relative to the others."""
    last_kinds: ClassVar[Mapping[FaultKind, float]] = {}
    """Kinds of faults drawn after everything else, so that the rest of a seed's plan does not change, and the share of
    the seeds with each."""
    run_class: ClassVar[type[ScenarioRun]] = ScenarioRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        """The topology of a seed."""
        raise NotImplementedError

    def configure(self, plan: Plan) -> Plan:
        """The plan with what this scenario wants otherwise."""
        return plan

    def draw(self, seed: int) -> Plan:
        """The plan of a seed."""
        plan = self.configure(draw_plan(seed, self.nodes(seed), self.weights))
        stream = random.Random(f"{seed}/{self.name}, last")
        last = draw_later_faults(stream, plan.faults, begin_s=1.0, end_s=plan.heal_s, chances=self.last_kinds)
        return replace(plan, faults=last)

    def run_seed(
        self,
        seed: int,
        *,
        without: Collection[int] = (),
        write_trace: Callable[[str], object] | None = None,
        run_class: type[ScenarioRun] | None = None,
        until: Collection[str] = (),
    ) -> Outcome:
        """Run the plan of a seed and judge it.

        Args:
            without: Numbers of faults of the plan to leave out.
            write_trace: Takes the trace as text lines.
            run_class: A subclass with a planted bug.
            until: Checks. The run ends early, without the later ones, when one of them has failed before its end.
        """
        plan = self.draw(seed)
        plan = replace(plan, faults=tuple(fault for fault in plan.faults if fault.number not in without))
        return self.run_plan(plan, write_trace=write_trace, run_class=run_class, until=until)

    def run_plan(
        self,
        plan: Plan,
        *,
        write_trace: Callable[[str], object] | None = None,
        run_class: type[ScenarioRun] | None = None,
        until: Collection[str] = (),
    ) -> Outcome:
        """Run a plan and judge it; arguments as for ``run_seed``."""
        loop = SimLoop(plan.seed, write_trace=write_trace)
        try:
            run = (run_class or self.run_class)(plan, loop)
            task = loop.create_task(run.run())

            def has_ended() -> bool:
                return task.done() or any(each.check in until for each in run.reported())

            ended = True
            try:
                deadline = plan.heal_s + 2 * run.liveness_s
                ended = loop.run_until(has_ended if until else task.done, deadline=deadline)
            except SimulationStuck as stuck:
                run.violations.append(Violation("stuck", f"in phase {run.phase}: {stuck}"))
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
            if not ended and not run.violations:
                run.violations.append(Violation("stuck", f"the run did not end; phase {run.phase}"))
            return self._outcome(run, loop)
        finally:
            loop.close()

    def _outcome(self, run: ScenarioRun, loop: SimLoop) -> Outcome:
        rows, strikes = run.book.rows, run.strikes
        return Outcome(
            scenario=self.name,
            seed=run.plan.seed,
            digest=loop.trace.digest(),
            violations=run.judge(),
            sent=sum(row.kind.name == "SENT" for row in rows),
            confirmed=sum(row.kind.name == "CONFIRMED" for row in rows),
            delivered=sum(row.kind.name == "DELIVERED" for row in rows),
            activations=len(run.cluster.epochs.activations),
            faults=len(run.plan.faults),
            steps=loop.steps,
            virtual_s=loop.time(),
            damaged=len(strikes.damaged),
            quarantined=len(run.set_aside),
            branches=run.branches,
            restored_s=run.restored_s,
            promotions=run.promotions,
            injected={kind.value: strikes.injected[kind] for kind in FaultKind if strikes.injected[kind]},
        )

    def shrink(self, failed: Outcome, run_class: type[ScenarioRun] | None = None) -> frozenset[int]:
        """Numbers of faults that can be left out of a failing seed with one of the same checks still failing.

        Halves are tried first, then single faults; at most ``SHRINKING_RUNS_MAX`` runs.
        """
        checks = {violation.check for violation in failed.violations}
        kept = [fault.number for fault in self.draw(failed.seed).faults]
        without: set[int] = set()
        runs, size = 0, max(1, len(kept) // 2)
        while kept:
            place = 0
            while place < len(kept):
                if runs == SHRINKING_RUNS_MAX:
                    return frozenset(without)
                runs += 1
                part = kept[place : place + size]
                outcome = self.run_seed(failed.seed, without=without | set(part), run_class=run_class)
                if any(violation.check in checks for violation in outcome.violations):
                    without |= set(part)
                    kept = [number for number in kept if number not in part]
                else:
                    place += size
            if size == 1:
                break
            size //= 2
        return frozenset(without)
