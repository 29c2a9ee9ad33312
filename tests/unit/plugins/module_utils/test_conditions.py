"""Goal: a condition holds only when it should, and otherwise names every node in its way."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.conditions import (
    CONDITIONS,
    Observed,
)
from ansible_collections.understudy.broker.plugins.module_utils.conditions import (
    missing as missing_of,
)
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


EAST, WEST = "11111111-0000", "22222222-0000"


def serving(node_id: str, partner: str) -> NodeState:
    return NodeState(True, True, "active", node={"node_id": node_id, "peer": {"connector": partner}})


def following(node_id: str, partner: str) -> NodeState:
    node = {"node_id": node_id, "peer": {"connector": partner}, "following": {"caught_up": True}}
    return NodeState(True, True, "passive", node=node)


def cluster(east_backup: NodeState, west_backup: NodeState) -> list[Observed]:
    """Two pairs; each primary serves, and its partner is the backup of its own pair or of the other one."""
    at = {"e1": "10.0.0.1:61616", "e2": "10.0.0.2:61616", "w1": "10.0.1.1:61616", "w2": "10.0.1.2:61616"}
    straight = east_backup.serves_as == EAST
    return [
        Observed("e1", "east", serving(EAST, at["e2"] if straight else at["w2"]), (at["e2"],)),
        Observed("e2", "east", east_backup, (at["e1"],)),
        Observed("w1", "west", serving(WEST, at["w2"] if straight else at["e2"]), (at["w2"],)),
        Observed("w2", "west", west_backup, (at["w1"],)),
    ]


def test_pairs_whose_nodes_belong_together_meet_the_condition() -> None:
    nodes = cluster(following(EAST, "10.0.0.1:61616"), following(WEST, "10.0.1.1:61616"))
    assert missing_of("one_active_per_pair", nodes) == []


@pytest.mark.parametrize("condition", ["one_active_per_pair", "ready", "paired"])
def test_two_pairs_that_have_exchanged_their_backups_meet_no_condition(condition: str) -> None:
    nodes = cluster(following(WEST, "10.0.1.1:61616"), following(EAST, "10.0.0.1:61616"))
    assert CONDITIONS[condition](nodes) == [], "each node calls itself ready"
    found = missing_of(condition, nodes)
    assert found[0].startswith(f"e1 and e2 of pair east have the stores of two node ids ({EAST} and {WEST})")
    assert found[2] == "e1 has 10.0.1.2:61616 as its partner, which is no other node of pair east (10.0.0.2:61616)"
    assert len(found) == 6, "both pairs, and the partner of each node"


def test_a_node_that_serves_and_follows_nothing_has_no_identity_to_compare() -> None:
    waiting = NodeState(True, True, "passive", node={"node_id": "33333333-0000"})
    nodes = [*cluster(following(EAST, "10.0.0.1:61616"), following(WEST, "10.0.1.1:61616"))]
    nodes.append(Observed("e3", "east", waiting))
    assert missing_of("one_active_per_pair", nodes) == []


def test_nodes_without_a_pair_are_not_compared() -> None:
    nodes = [Observed("a", "", serving(EAST, "10.0.0.9:1")), Observed("b", "", serving(WEST, "10.0.0.9:2"))]
    assert missing_of("active", nodes) == []
