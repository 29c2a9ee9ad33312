"""The flows of all cluster connections of a node, and the reports of the other nodes on their queues.

Cluster connections with the same connector have their links in common: a node reports its queues once on the link. A
report concerns the first cluster connection that takes the address of the queue and leads to the node.

Source: artemis-ha s. 7.2, 7.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from understudy.cluster.balancing.flows import MessageFlows
from understudy.cluster.balancing.group_notices import GroupNotice
from understudy.cluster.balancing.member_flow import MemberFlow
from understudy.cluster.balancing.notices import Notice
from understudy.cluster.balancing.reports import QueueReports
from understudy.cluster.membership.member_link import MemberLink
from understudy.ports import Entropy
from understudy.wire.core import packets


class NodeReports:
    """Reports of one node over one link. Implements ``reports.ReportOwner``."""

    def __init__(
        self,
        link: MemberLink,
        flows: Sequence[tuple[MessageFlows, MemberFlow]],
        entropy: Entropy,
        *,
        takes_groups: bool,
    ) -> None:
        """Ask the other node for reports at once.

        Args:
            link: To the node.
            flows: To the node, each with those of its cluster connection; at least one.
            takes_groups: Whether reports on groups count on this link; another link to the node may have them, too.
        """
        self.link = link
        self._takes_groups = takes_groups
        self._flows = flows
        first = flows[0][0].settings
        selectors = [each.selector for each, _ in flows]
        self._reports = QueueReports(
            self,
            link,
            entropy,
            name=first.node_name.replace("::", "_"),
            selector=selectors[0] if len(selectors) == 1 else " OR ".join(f"({each})" for each in selectors),
            management_address=first.management_address,
            notifications=first.notifications,
        )

    def receive(self, packet: packets.Packet) -> None:
        """A packet of the session for reports. Raises RemoteProtocolError."""
        self._reports.receive(packet)

    def close(self) -> None:
        """End the reports about queues of this node."""
        self._reports.close()

    # -- ReportOwner ------------------------------------------------------------------------------

    def reset(self) -> None:
        for _, flow in self._flows:
            flow.reset()

    def complete(self) -> None:
        for _, flow in self._flows:
            flow.complete()

    def group_noticed(self, notice: GroupNotice) -> None:
        """See ``ReportOwner``. The grouping handler is that of all cluster connections."""
        if self._takes_groups:
            self._flows[0][1].group_noticed(notice)

    def noticed(self, notice: Notice) -> None:
        taken = False
        for flows, flow in self._flows:
            if not taken and notice.kind == "BINDING_ADDED" and flows.takes(notice.address):
                taken = True
                flow.noticed(notice)
            elif notice.cluster_name in flow.bindings:
                # a queue that was made again at an address of another cluster connection is gone from this one
                gone = notice.kind == "BINDING_ADDED"
                flow.noticed(replace(notice, kind="BINDING_REMOVED") if gone else notice)


class ClusterFlows:
    """The flows of all cluster connections of a node."""

    def __init__(self, flows: Sequence[MessageFlows], entropy: Entropy, *, grouping: str | None) -> None:
        """Args:
        grouping: Name of the cluster connection of the grouping handler; None without one.
        """
        self.by_cluster = {each.settings.cluster.name: each for each in flows}
        by_connector: dict[str, list[MessageFlows]] = {}
        for each in flows:
            by_connector.setdefault(each.settings.cluster.connector_ref, []).append(each)
        self.by_connector = {
            name: NetworkFlows(some, entropy, takes_groups=any(each.settings.cluster.name == grouping for each in some))
            for name, some in by_connector.items()
        }
        """The observers of the memberships, by the name of their own connector."""

    def all(self) -> list[MemberFlow]:
        """The flows of all cluster connections to all nodes."""
        return [flow for flows in self.by_cluster.values() for flow in flows.by_node.values()]

    def close(self) -> None:
        """Called when the node is not active any more."""
        for each in self.by_connector.values():
            each.close()


class NetworkFlows:
    """The flows of cluster connections with one connector. Implements ``LinkObserver``."""

    def __init__(self, flows: Sequence[MessageFlows], entropy: Entropy, *, takes_groups: bool) -> None:
        """Args:
        flows: Flow of each cluster connection.
        takes_groups: Whether the members agree about groups on these links.
        """
        self._flows = flows
        self._entropy = entropy
        self._takes_groups = takes_groups
        self._reports: dict[str, NodeReports] = {}
        """Reports of the queues of each other node, by node id."""
        self._closed = False

    def close(self) -> None:
        """Called when the node is not active any more."""
        self._closed = True
        for reports in self._reports.values():
            reports.close()
        self._reports.clear()
        for flows in self._flows:
            flows.close()

    # -- LinkObserver -----------------------------------------------------------------------------

    def link_identified(self, link: MemberLink) -> None:
        """Begin the flows to the node, or continue them over this link."""
        node_id = link.node_id
        wanted = [each for each in self._flows if each.goes_to(link)]
        if self._closed or node_id is None or all(each.is_on(link) for each in wanted):
            return
        before = self._reports.pop(node_id, None)
        if before is not None:
            before.close()
        flows = [(each, flow) for each in wanted if (flow := each.continue_on(link, node_id)) is not None]
        if flows:
            self._reports[node_id] = NodeReports(link, flows, self._entropy, takes_groups=self._takes_groups)
        for each, _ in flows:
            each.observer.node_joined(node_id)

    def link_received(self, link: MemberLink, packet: packets.Packet) -> None:
        """A packet of the session for reports. Raises RemoteProtocolError."""
        reports = self._reports.get(link.node_id or "")
        if reports is not None and reports.link is link:
            reports.receive(packet)

    def link_lost(self, link: MemberLink) -> None:
        """End the reports on a lost link."""
        for node_id, reports in list(self._reports.items()):
            if reports.link is link:
                reports.close()
                del self._reports[node_id]
        for flows in self._flows:
            flows.link_lost(link)
