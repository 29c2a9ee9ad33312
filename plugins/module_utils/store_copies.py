# SPDX-License-Identifier: Apache-2.0
"""Which node's store is copied for each pair, and which stores of a pair are newer than a copy. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Refused(Exception):
    """No store can be copied, or the copy must not be put back; the message names the node."""


@dataclass(frozen=True)
class Holder:
    """One node that has a store, as it was seen."""

    name: str
    pair: str
    """Empty for a node without one."""
    shared: bool
    """Whether all nodes of its pair have one store."""
    deployed: bool
    running: bool
    state: str
    ready: bool

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Holder:
        texts = {name: str(values.get(name) or "") for name in ("name", "pair", "state")}
        flags = {name: bool(values.get(name)) for name in ("shared", "deployed", "running", "ready")}
        return cls(**texts, **flags)  # type: ignore[arg-type]


def sources(holders: Sequence[Holder], pairs: Sequence[str] = ()) -> list[str]:
    """Names of the nodes whose stores are copied, at least one for each pair and each node without a pair.

    A replica in sync is copied rather than the active node, which has the clients. Where no node of a replicated pair
    runs, every store is copied, because only their logs say which one is the newest.

    Args:
        holders: every node of the run.
        pairs: only these pairs and nodes; empty for all.

    Raises:
        Refused: a pair is unknown, or has no node to copy.
    """
    units: dict[str, list[Holder]] = defaultdict(list)
    for holder in sorted(holders, key=lambda each: each.name):
        units[holder.pair or holder.name].append(holder)
    unknown = [name for name in pairs if name not in units]
    if unknown:
        raise Refused(f"{', '.join(unknown)} is no pair and no node without one; there are: {', '.join(sorted(units))}")
    found: list[str] = []
    for unit, members in sorted(units.items()):
        if not pairs or unit in pairs:
            found += _of_unit(unit, members)
    return found


def _of_unit(unit: str, members: Sequence[Holder]) -> list[str]:
    deployed = [each for each in members if each.deployed]
    if not deployed:
        raise Refused(f"nothing is deployed on {', '.join(each.name for each in members)}; run site first")
    replicas = [each for each in deployed if not each.shared and each.state == "passive" and each.ready]
    active = [each for each in deployed if each.state == "active"]
    if replicas or active:
        return [(replicas or active)[0].name]
    running = [each for each in deployed if each.running]
    if running:
        said = "; ".join(f"{each.name} is {each.state or 'silent'}" for each in running)
        raise Refused(f"no node of {unit} is active, and it is not at rest: {said}; bring it into service or stop it")
    return [each.name for each in (deployed[:1] if deployed[0].shared else deployed)]


def newer_than(copy: Mapping[str, object], others: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Why the stores of the other nodes of a pair must not stay beside a restored copy.

    Args:
        copy: C(node_id), C(epoch) and C(sequence) of the copy.
        others: the same of the store of each other node by its name; without C(node_id) there is none.
    """
    found = []
    for name, other in sorted(others.items()):
        if not other.get("node_id"):
            continue
        place = f"epoch {other['epoch']}, sequence {other['sequence']}"
        if other["node_id"] != copy["node_id"]:
            found.append(f"{name} has the store of node {other['node_id']}, and the copy is of {copy['node_id']}")
        elif int(str(other["epoch"])) > int(str(copy["epoch"])) or int(str(other["sequence"])) > int(
            str(copy["sequence"])
        ):
            found.append(
                f"the store of {name} is newer: it ends at {place}, and the copy at epoch {copy['epoch']}, sequence "
                f"{copy['sequence']}"
            )
    return found
