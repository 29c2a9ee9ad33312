"""Goal: a condition holds only when it should, and otherwise names every node in its way."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.conditions import CONDITIONS, Observed
from ansible_collections.understudy.broker.plugins.module_utils.management import NodeState

ACTIVE = NodeState(True, True, "active", node={"peer": {"role": "backup"}})
FOLLOWING = NodeState(True, True, "passive", node={"peer": {"role": "primary"}, "following": {"caught_up": True}})
LAGGING = NodeState(True, False, "passive", reason="lag", node={"following": {"caught_up": False}})
DOWN = NodeState(False, False, "stopped")


def pair(*states: NodeState, name: str = "east") -> list[Observed]:
    return [Observed(f"{name}-{number}", name, state) for number, state in enumerate(states, start=1)]


@pytest.mark.parametrize(
    ("condition", "states", "missing"),
    [
        ("active", [ACTIVE], []),
        ("active", [FOLLOWING], ["east-1 is passive, not active and ready"]),
        ("passive_following", [FOLLOWING], []),
        ("passive_following", [LAGGING], ["east-1 is passive: lag, not passive with the whole store read"]),
        ("ready", [ACTIVE, FOLLOWING], []),
        ("ready", [ACTIVE, LAGGING, DOWN], ["east-2 is passive: lag, not ready", "east-3 is stopped, not ready"]),
        ("paired", [ACTIVE, FOLLOWING], []),
        ("paired", [DOWN], ["east-1 is stopped, sees no partner"]),
        ("one_active_per_pair", [ACTIVE, FOLLOWING, FOLLOWING], []),
        ("one_active_per_pair", [FOLLOWING, ACTIVE], []),
        (
            "one_active_per_pair",
            [ACTIVE, ACTIVE],
            ["pair east has 2 active nodes instead of one (east-1 is active; east-2 is active)"],
        ),
        (
            "one_active_per_pair",
            [DOWN, FOLLOWING],
            [
                "pair east has 0 active nodes instead of one (east-1 is stopped; east-2 is passive)",
                "east-1 is stopped, not ready",
            ],
        ),
    ],
)
def test_conditions(condition: str, states: list[NodeState], missing: list[str]) -> None:
    assert CONDITIONS[condition](pair(*states)) == missing


def test_pairs_are_judged_one_by_one() -> None:
    nodes = pair(ACTIVE, FOLLOWING) + pair(FOLLOWING, FOLLOWING, name="west")
    (missing,) = CONDITIONS["one_active_per_pair"](nodes)
    assert missing.startswith("pair west has 0 active nodes")


def test_a_node_without_pair_is_a_pair_of_its_own() -> None:
    assert CONDITIONS["one_active_per_pair"]([Observed("a", "", ACTIVE), Observed("b", "", ACTIVE)]) == []
