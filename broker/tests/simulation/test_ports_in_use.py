"""An activation whose acceptor finds its port in use: the other node of the pair serves, as nothing was committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.testing.runs.fault_plan import ACTIVE, PASSIVE, Fault, FaultKind
from understudy.testing.scenarios.scenarios import SCENARIOS, SHARED_STORES
from understudy.testing.simulate import quiet_logging


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


@pytest.mark.parametrize("target", [ACTIVE, PASSIVE])
@pytest.mark.parametrize("name", [*SHARED_STORES, "replication", "witnesses", "quorum"])
def test_the_other_node_serves_while_a_port_is_in_use(name: str, target: str) -> None:
    """The active node is killed; the port of the node that takes over is in use, or its own. No operator is needed."""
    scenario = SCENARIOS[name]
    fault = Fault(0, 8.0, FaultKind.PORT_IN_USE, target, 3.0, 0.5, 1)
    plan = replace(scenario.draw(5), faults=(fault,), heal_s=22.0)
    outcome = scenario.run_plan(plan)
    assert outcome.violations == ()
    assert outcome.injected == {FaultKind.PORT_IN_USE.value: 1}
    assert outcome.promotions == 0
