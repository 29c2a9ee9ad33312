"""Planted bugs: their form, and the list of all of them. The bugs are in ``planted.bugs``.

A planted bug replaces methods of the shipped classes while its context is open, or runs the scenario with other parts.
It is not part of the package: no configuration, option or environment variable of the broker reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.testing.runs.fault_plan import Fault
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.scenarios.scenario import Outcome
from understudy.testing.scenarios.scenarios import SCENARIOS, SHARED_STORES
from understudy.testing.sim.loop import SimLoop


class Patch:
    """Replaces attributes, and restores them all."""

    def __init__(self) -> None:
        self._old: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, new: object) -> Any:
        """Put ``new`` in the place of an attribute. Returns the old value, to be called by the new one."""
        old = getattr(owner, name)
        self._old.append((owner, name, old))
        setattr(owner, name, new)
        return old

    def restore(self) -> None:
        """Undo everything, the last replacement first."""
        while self._old:
            owner, name, old = self._old.pop()
            setattr(owner, name, old)


#: Plants the bug; returns the run to use instead of that of the scenario, or None.
_Plant = Callable[[Patch], type[ScenarioRun] | None]


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One planted bug with the promise that it breaks and the check that must find it."""

    name: str
    promise: str
    """The promise of ADR 0022 that it breaks."""
    checks: frozenset[str]
    """Values of ``Violation.check`` of which one must be reported."""
    seeds: Mapping[str, range]
    """The seeds of each scenario in which the bug makes sense, within which it must be found."""
    text: str
    """The effect of the bug."""
    _plant: _Plant

    @contextmanager
    def planted(self) -> Iterator[type[ScenarioRun] | None]:
        """While open, brokers and clients of this process have the bug; run the yielded class, or that of the scenario
        if it is None.
        """
        patch = Patch()
        try:
            yield self._plant(patch)
        finally:
            patch.restore()

    def find(self, scenario: str) -> Outcome | None:
        """The first outcome that shows the bug; None when no seed does.

        A run ends as soon as a check has found the bug: with some bugs, what follows is a wait of minutes for a node
        that never serves.
        """
        with self.planted() as run_class:
            for seed in self.seeds[scenario]:
                outcome = SCENARIOS[scenario].run_seed(seed, run_class=run_class, until=self.checks)
                if any(violation.check in self.checks for violation in outcome.violations):
                    return outcome
        return None


#: All planted bugs by name.
BUGS: Final[dict[str, PlantedBug]] = {}


def planted(
    name: str,
    *,
    promise: str,
    checks: Sequence[str],
    seeds: range | None = None,
    elsewhere: Mapping[str, range] | None = None,
) -> Callable[[_Plant], _Plant]:
    """Register a planted bug; its docstring describes the bug.

    Args:
        promise: The promise it breaks, as a sentence.
        checks: One of these checks must fail.
        seeds: Within these seeds of each scenario of a shared store. Keep it short: begin with a seed that finds it.
            None: it makes no sense there.
        elsewhere: Seeds of other scenarios, or of one of those if they differ.
    """

    def register(plant: _Plant) -> _Plant:
        within = ({} if seeds is None else dict.fromkeys(SHARED_STORES, seeds)) | dict(elsewhere or {})
        BUGS[name] = PlantedBug(name, promise, frozenset(checks), within, plant.__doc__ or "", plant)
        return plant

    return register


class ShortRun(ScenarioRun):
    """A run with a bug after which no node serves: clients are not waited for longer than the bug needs to show."""

    liveness_s = 30.0


def with_faults(*faults: Fault, base: type[ScenarioRun] = ScenarioRun) -> type[ScenarioRun]:
    """A run with these faults instead of those of its plan. Its bug shows soon, so that it need not wait long.

    Args:
        faults: Faults in the order of their times.
        base: The run of the scenario.
    """

    class FaultRun(base):  # type: ignore[misc,valid-type]
        liveness_s = 30.0

        def __init__(self, plan: Plan, loop: SimLoop) -> None:
            super().__init__(replace(plan, faults=faults, heal_s=faults[-1].at_s + 8.0), loop)

    return FaultRun
