"""Conditions of a cluster that a play can wait for: pure functions over the states that nodes report.

Each returns what is missing, so that a gate that runs out of time can report the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.understudy.broker.plugins.module_utils.management import NodeState
from ansible_collections.understudy.broker.plugins.module_utils.pairs import Member, crossed


@dataclass(frozen=True)
class Observed:
    """One node at one moment, with the pair it belongs to."""

    name: str
    pair: str
    state: NodeState
    partners: tuple[str, ...] = ()
    """``ADDRESS:PORT`` that the other nodes of its pair advertise; empty if they are not known."""


def _say(node: Observed) -> str:
    reason = f": {node.state.reason}" if node.state.reason else ""
    return f"{node.name} is {node.state.state}{reason}"


def _each(nodes: Sequence[Observed], good: Callable[[NodeState], bool], missing: str) -> list[str]:
    return [f"{_say(node)}, {missing}" for node in nodes if not good(node.state)]


def active(nodes: Sequence[Observed]) -> list[str]:
    """Every node serves."""
    return _each(nodes, lambda state: state.ready and state.state == "active", "not active and ready")


def passive_following(nodes: Sequence[Observed]) -> list[str]:
    """Every node is passive and has read all of the store."""
    return _each(nodes, lambda state: state.ready and state.following, "not passive with the whole store read")


def ready(nodes: Sequence[Observed]) -> list[str]:
    """Every node is active, or passive and following: what the broker itself calls ready."""
    return _each(nodes, lambda state: state.ready, "not ready")


def paired(nodes: Sequence[Observed]) -> list[str]:
    """Every node sees its partner."""
    return _each(nodes, lambda state: state.paired, "sees no partner")


def one_active_per_pair(nodes: Sequence[Observed]) -> list[str]:
    """Every pair has exactly one active node, and every other node of it is ready to take over."""
    missing = []
    by_pair: dict[str, list[Observed]] = defaultdict(list)
    for node in nodes:
        by_pair[node.pair or node.name].append(node)
    for pair, members in sorted(by_pair.items()):
        serving = [node.name for node in members if node.state.state == "active"]
        if len(serving) != 1:
            said = "; ".join(_say(node) for node in members)
            missing.append(f"pair {pair} has {len(serving)} active nodes instead of one ({said})")
        missing.extend(f"{_say(node)}, not ready" for node in members if not node.state.ready)
    return missing


def missing(condition: str, nodes: Sequence[Observed]) -> list[str]:
    """What keeps a condition from holding; none holds for pairs that have crossed."""
    members = [Member(node.name, node.pair, node.state.serves_as, node.state.partner, node.partners) for node in nodes]
    return [*CONDITIONS[condition](nodes), *crossed(members)]


CONDITIONS: Mapping[str, Callable[[Sequence[Observed]], list[str]]] = {
    "active": active,
    "passive_following": passive_following,
    "ready": ready,
    "paired": paired,
    "one_active_per_pair": one_active_per_pair,
}
