"""A store that is replaced by an older copy of itself is refused, and a pair that does not look for that is found.

The copy is taken, the pair goes on and fails over, then both nodes die and find the copy in the place of their store.
Later the right store is back, and everything that was promised must hold.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.errors import StoreBehind
from understudy.store.seen import SeenPosition
from understudy.testing.checkers import Violation
from understudy.testing.cluster_configuration import STORE
from understudy.testing.plan import draw_plan
from understudy.testing.scenario_run import ScenarioRun
from understudy.testing.scenarios import SHARED_STORE
from understudy.testing.simulate import quiet_logging

SEEDS = (0, 2)


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


class RolledBackRun(ScenarioRun):
    """A pair whose store is replaced by an older copy while both nodes are down."""

    def __init__(self, plan, loop):
        super().__init__(plan, loop)
        self.strikes.expected |= {StoreBehind}
        loop.call_later(1.5, self._copy)
        loop.call_later(2.0, lambda: self.cluster.kill("a"))
        loop.call_later(8.0, self._roll_back)
        loop.call_later(11.0, self._bring_back)

    def _copy(self):
        self._older = self.storage.volume.copy()

    def _kill_both(self):
        for name in self.cluster.nodes:
            self.cluster.nodes[name].down_s = 0.5
            self.cluster.kill(name)

    def _roll_back(self):
        self._kill_both()
        self._right = self.storage.volume.copy()
        self.storage.volume.replace_files(STORE, self._older)

    def _bring_back(self):
        self._kill_both()
        self.storage.volume.replace_files(STORE, self._right)


def violations(seed: int) -> list[Violation]:
    plan = replace(draw_plan(seed), faults=(), heal_s=14.0)
    refused: list[str] = []

    class Watched(RolledBackRun):
        def judge(self):
            refused.extend(
                node.name for node in self.cluster.nodes.values() if any(isinstance(e, StoreBehind) for e in node.ends)
            )
            return super().judge()

    found = list(SHARED_STORE.run_plan(plan, run_class=Watched).violations)
    return found if refused else [*found, Violation("store", "no node refused the older copy")]


def test_an_older_copy_is_refused_and_nothing_is_lost():
    assert [(seed, violation) for seed in SEEDS for violation in violations(seed)] == []


def test_a_pair_that_does_not_compare_is_found(monkeypatch):
    monkeypatch.setattr(SeenPosition, "check", lambda self, found: None)
    monkeypatch.setattr(SeenPosition, "check_epoch", lambda self, names, directory: None)
    checks = {violation.check for seed in SEEDS for violation in violations(seed)}
    assert checks & {"lost", "epoch", "left-over", "ended"}
