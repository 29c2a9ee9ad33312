"""Members that advertise an address to which this node could not connect so far, because it is wrong or a firewall
refuses the connection.
"""

from __future__ import annotations

import logging

from understudy.cluster.membership.member_link import MemberLink
from understudy.dataclass import dataclass
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnreachedMember:
    """One member that this node cannot reach."""

    node_id: str
    connector: TransportConfiguration
    """The connector as the member advertises it."""
    failures: int
    error: str


class UnreachedMembers:
    """The unreached members of a node, by node id."""

    def __init__(self) -> None:
        self.by_node: dict[str, UnreachedMember] = {}

    def failed(self, link: MemberLink) -> None:
        """Called when an attempt failed, or a connection ended. A link that was ever joined reaches its member."""
        node_id = link.node_id
        if node_id is None or link.ever_joined:
            return
        if node_id not in self.by_node:
            log.warning(
                "a member advertises an address that this node does not reach",
                extra={"node_id": node_id, "to": link.target.to_url(), "error": link.error},
            )
        self.by_node[node_id] = UnreachedMember(node_id, link.target, link.failures, link.error)

    def reached(self, link: MemberLink) -> None:
        """Called when a link is joined, and its member is known."""
        self.by_node.pop(link.node_id or "", None)
