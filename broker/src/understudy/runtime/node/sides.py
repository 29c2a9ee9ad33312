"""Parts of a node that differ in a replicated pair, made in the order in which they need each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from understudy.ha.life.policy import Decisions, Policy
from understudy.ha.shared.lock_proof import LockProof
from understudy.runtime.base.parts import NodeParts, Owner
from understudy.runtime.members.scale_down import NodeScaleDown
from understudy.runtime.node.opened_store import OpenedStore
from understudy.runtime.node.policies import make_replication_parts, make_replication_policy, make_shared_store_policy
from understudy.runtime.node.standby import NodeStandby
from understudy.runtime.replica.replication import NodeReplication


class Sides(NamedTuple):
    """The parts of one node that differ between its active and its passive side."""

    opened: OpenedStore
    scale_down: NodeScaleDown
    replication: NodeReplication | None
    """Replication at the active node; None: the node is not one of a replicated pair."""
    make_policy: Callable[[Decisions], Policy]
    """Makes the policy, which calls the life that it is given."""


def make_sides(parts: NodeParts, standby: NodeStandby, owner: Owner) -> Sides:
    """Make these parts of a node.

    Args:
        standby: The node while another one is active.
        owner: Ends when a part cannot go on.

    Raises:
        ConfigError: the lock manager of a replicated pair cannot be made.
    """
    used = make_replication_parts(parts)
    if used is None:
        proof = LockProof(parts.lock, parts.environment.lock_clock or parts.environment.clock)
        scale_down = NodeScaleDown(parts, owner)
        opened = OpenedStore(parts, standby, proof, owner)
        return Sides(opened, scale_down, None, partial(make_shared_store_policy, parts, standby, proof, scale_down))
    opened = OpenedStore(parts, standby, used.authority.fence, owner, used.shipping)
    replication = NodeReplication(parts, used, owner, opened, standby)
    scale_down = NodeScaleDown(parts, owner, used.authority.moved_record, replication.sequence.commit)
    return Sides(
        opened, scale_down, replication, partial(make_replication_policy, parts, standby, replication, scale_down)
    )
