"""Planted bugs of two replicated pairs without group-names: a primary takes the store of the other pair."""

from __future__ import annotations

from typing import Final

from planted.planting import Patch, planted
from understudy.ha.life.policy import NodeState
from understudy.ha.replication.lock_authority import LockAuthority
from understudy.ha.replication.policy import ReplicationPolicy
from understudy.replication.active_link import ActiveLink, LinkState
from understudy.wire.core import packets
from understudy.wire.core.packets_replication import ReplicaProblem

_UNGROUPED: Final = "ungrouped-pairs"


@planted(
    "primary-takes-a-store", promise="a primary keeps the store of its node id", checks=["crossed"],
    elsewhere={_UNGROUPED: range(2, 5)},
)  # fmt: skip
def _primary_takes_a_store(patch: Patch) -> None:
    """A primary becomes the replica of any active node, and a primary yields to a primary."""

    def problem(self: ActiveLink, registration: packets.ReplicaRegistration) -> tuple[ReplicaProblem, str]:
        found: tuple[ReplicaProblem, str] = old(self, registration)
        free = self._replica is None and self._state is LinkState.FREE
        return (ReplicaProblem.NONE, "") if free and found[0] is ReplicaProblem.OTHER_PAIR else found

    def asks(self: ReplicationPolicy) -> None:
        if self._life.state is NodeState.ACTIVE:
            self._life.fail_back()

    patch.replace(LockAuthority, "data_node_id", lambda self: None)
    old = patch.replace(ActiveLink, "_problem", problem)
    patch.replace(ReplicationPolicy, "_replica_asks", asks)
