"""Injection of the faults of a plan into members of a cluster, single nodes or pairs."""

from __future__ import annotations

from typing import Final

from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.fault_plan import ACTIVE, PASSIVE, Fault
from understudy.testing.runs.strikes import Strikes

_OF: Final = " of "


def role_of(role: str, member: str) -> str:
    """The target of a fault: the node of a member that has a role when the fault strikes."""
    return f"{role}{_OF}{member}"


class MemberStrikes(Strikes):
    """Injects faults into one run of members."""

    def target(self, fault: Fault) -> SimNode | None:
        """See ``Strikes``; the node that has a role in one member."""
        role, of_member, member = fault.target.partition(_OF)
        return self.cluster.target(role, self._nodes(member)) if of_member else super().target(fault)

    def pair_of(self, fault: Fault) -> tuple[SimNode | None, SimNode | None]:
        """Pair of a member; see ``Strikes``."""
        members = list(dict.fromkeys(node.group for node in self.plan.nodes))
        names = self._nodes(members[fault.number % len(members)])
        active = self.cluster.target(ACTIVE, names)
        if active is None or active.state != "active":
            return None, None
        return active, self.cluster.target(PASSIVE, names)

    def _nodes(self, member: str) -> list[str]:
        return [node.name for node in self.plan.nodes if node.group == member]
