# SPDX-License-Identifier: Apache-2.0
"""Whether the nodes of a pair are one: they have one store, or copies of it, and see each other as partners.

Two replicated pairs of a cluster without group names may have exchanged their backups; each node then calls itself
ready, and a roll, which stops the nodes of one pair, would stop both nodes of neither. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.understudy.broker.plugins.module_utils.management import NodeState


@dataclass(frozen=True)
class Member:
    """One node as a member of its pair."""

    name: str
    pair: str
    """Empty for a node without one."""
    node_id: str
    """Node id of the data that the node serves or follows; empty if it does neither."""
    partner: str
    """``ADDRESS:PORT`` of the partner that it sees; empty without one."""
    partners: tuple[str, ...]
    """``ADDRESS:PORT`` that the other nodes of its pair advertise; empty if they are not known."""


def crossed(members: Sequence[Member]) -> list[str]:
    """Nodes of one pair with the stores of two, and nodes whose partner is no node of their pair."""
    found: list[str] = []
    by_pair: dict[str, list[Member]] = defaultdict(list)
    for each in members:
        if each.pair and each.node_id:
            by_pair[each.pair].append(each)
    for pair, (first, *others) in sorted(by_pair.items()):
        found.extend(
            f"{first.name} and {other.name} of pair {pair} have the stores of two node ids ({first.node_id} and"
            f" {other.node_id}): neither takes over from the other"
            for other in others
            if other.node_id != first.node_id
        )
    found.extend(
        f"{each.name} has {each.partner} as its partner, which is no other node of pair {each.pair}"
        f" ({', '.join(each.partners)})"
        for each in members
        if each.pair and each.partners and each.partner and each.partner not in each.partners
    )
    return found


def stores_of_partners(answers: Mapping[str, Mapping[str, object]]) -> tuple[list[str], list[str]]:
    """Partners that have a store of the pair, and partners of which that is not known: a text for each.

    Args:
        answers: for each partner by name the result of ``node_info`` with its store.
    """
    begun, unknown = [], []
    for name, answer in sorted(answers.items()):
        store, broker = answer.get("store"), answer.get("broker")
        if answer.get("unreachable") is True or answer.get("failed") is True or not isinstance(store, Mapping):
            unknown.append(f"{name} ({' '.join(str(answer.get('msg') or 'no answer').split())})")
        elif "begun" not in store:
            unknown.append(f"{name} (its store cannot be read)")
        elif store["begun"] is True:
            state = NodeState.from_dict({"node": {}, **broker}) if isinstance(broker, Mapping) else None
            told = f" of node {state.serves_as}" if state is not None and state.serves_as else ""
            begun.append(f"{name} has a store{told}, and is {state.state if state is not None else 'not known'}")
    return begun, unknown
