"""A take-over whose disk fails at one of its operations, each of them in turn: the other node of the pair serves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.testing.runs.fault_plan import PASSIVE, Fault, FaultKind
from understudy.testing.scenarios.scenarios import SCENARIOS
from understudy.testing.simulate import quiet_logging

#: More than an activation of these plans has: with the last ones nothing fails, and the replica takes over.
OPERATIONS = 24
#: Selects the kind of operations that fail: all from the given one on, or only syncs, of files and of directories.
KINDS = {"all": 0.0, "syncs": 0.5}


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


def take_over(name: str, kind: str, operation: int):
    """The active node is killed and down for 3 s; the disk of its replica fails from an operation of the activation on
    until a client is served, or 20 s after the other node is back.
    """
    scenario = SCENARIOS[name]
    fault = Fault(0, 8.0, FaultKind.DISK_FAILS_IN_ACTIVATION, PASSIVE, 3.0, KINDS[kind], operation)
    return scenario.run_plan(replace(scenario.draw(5), faults=(fault,), heal_s=22.0))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["replication", "witnesses", "quorum"])
def test_the_other_node_serves_whichever_operation_fails(name: str, kind: str) -> None:
    """A node that has everything serves without a repair and without an operator."""
    outcomes = {operation: take_over(name, kind, operation) for operation in range(1, OPERATIONS)}
    found = {operation: each.violations for operation, each in outcomes.items()}
    assert {operation: violations for operation, violations in found.items() if violations} == {}
    assert sum(each.promotions for each in outcomes.values()) == 0


@pytest.mark.parametrize("operation", [1, 5])
def test_the_other_node_serves_after_a_failed_commit(operation: int) -> None:
    """The first sync of the activation fails, or the one after the file of the activation sequence was replaced."""
    outcome = take_over("quorum", "syncs", operation)
    assert outcome.violations == ()
    assert outcome.promotions == 0
