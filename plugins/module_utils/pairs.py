# SPDX-License-Identifier: Apache-2.0
"""Whether the nodes of a pair are one: they have one store, or copies of it, and see each other as partners.

Two replicated pairs of a cluster without group names may have exchanged their backups; each node then calls itself
ready, and a roll, which stops the nodes of one pair, would stop both nodes of neither. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


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
