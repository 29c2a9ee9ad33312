"""Comparison of the sequence of this node's data with the one that the lock manager keeps (artemis-ha s. 4.2).

The number rises by one whenever a node begins to serve without a replica. The lock manager keeps it *claimed*
(negative) while the node writes its own file, and *committed* (positive) after that. So only data whose number equals
the committed one, or takes part in the present claim, can be the newest.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from understudy.errors import ActivationRefused

#: Highest sequence; the lock manager keeps it as a signed 64-bit number, and its negation.
SEQUENCE_MAX: Final = 2**63 - 1


class Verdict(Enum):
    """Result of the comparison."""

    IN_SYNC = "in sync"
    """The data is the newest."""
    STALE = "stale"
    """Another node has newer data, or may have."""
    SELF_REPAIR = "self-repair"
    """This node claimed the number, wrote its own file, and ended before it committed: the data is the newest."""
    MAYBE_IN_SYNC = "maybe in sync"
    """A node claimed the next number and has not begun to serve with it: the data is as new as the data of that node,
    unless that node is about to commit. Only the holder of the lock can tell."""


def compare(shared: int, local: int) -> Verdict:
    """The verdict about data with the sequence ``local`` (at least 0)."""
    if shared == local:
        return Verdict.IN_SYNC
    if shared >= 0:
        return Verdict.STALE
    ahead = -shared - local
    if ahead == 0:
        return Verdict.SELF_REPAIR
    return Verdict.MAYBE_IN_SYNC if ahead == 1 else Verdict.STALE


def repaired(shared: int, local: int) -> int:
    """The committed number after a repair, when the verdict is SELF_REPAIR or MAYBE_IN_SYNC."""
    assert compare(shared, local) in (Verdict.SELF_REPAIR, Verdict.MAYBE_IN_SYNC)
    return -shared


def refusal(node_id: str, manager: str, shared: int, local: int) -> ActivationRefused:
    """The error of a node whose data is stale. Names both numbers and the ways to go on."""
    if abs(shared) < local:
        state = "has no activation sequence" if shared == 0 else f"has the activation sequence {abs(shared)}"
        return ActivationRefused(
            f"node {node_id}: the data of this node has the activation sequence {local}, but {manager} {state}:"
            " its data was lost, restored from an older copy, or it is another lock manager than before",
            hint=f"connect to the right lock manager, or, if no other node of this id has newer data,"
            f" set its activation sequence to {local}",
        )
    claimed = " (claimed, not committed)" if shared < 0 else ""
    return ActivationRefused(
        f"node {node_id}: the data of this node has the activation sequence {local}; the newest is"
        f" {abs(shared)}{claimed} according to {manager}: another node has served without this one",
        hint=f"start the node whose data has the sequence {abs(shared)}, and this one copies its data;"
        f" if that data is lost for good, set the activation sequence of the lock manager to {local}:"
        " the messages that only the lost data has are lost then",
    )
